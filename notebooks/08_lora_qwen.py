# %% [markdown]
# # 08 · LoRA: Qwen2.5-3B on one GPU
#
# The paper trained all weights of a model with 3 billion of them. This notebook does with one GPU: it
# shows what an adapter is, plans the memory before anything is loaded, trains, and draws whatever
# runs `results/` holds. One variable, `REAL`, decides whether the cells train the bundled tiny
# policy on a CPU or Qwen2.5-3B on a GPU; all else is the same.
#
# **You need:** the training loop ([notebook 07](07_tiny_language_model.ipynb)); what a matrix of low
# rank is. Words: [glossary](../docs/glossary.md).
#
# **Afterwards you can**
# - write down what LoRA adds to a layer, and count its weights,
# - say what fills a GPU in such a run, and predict it with pencil and paper,
# - tell from a log whether the sampler runs the policy that is trained,
# - say which numbers of a 3 B run exist here, and which do not.

# %%
import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from classroom import line, results, start
from IPython.display import display as show
from torch.nn import functional as F
from training import GPU, draw_plans, plan_on_card, train

from lens_ref.reporting.find import find
from lens_ref.reporting.paper import trained_on
from lens_ref.reporting.settings import accuracy, grouped
from lens_ref.reporting.tables import shown
from lens_ref.rlvr.config import LoraConfig, ModelConfig, load
from lens_ref.rlvr.memory import (
    BYTES_IN_NF4,
    NOTHING,
    PROMPT_TOKENS,
    Shape,
    gigabytes,
    make_plan,
    read_shape,
)
from lens_ref.rlvr.policy import load_policy
from lens_ref.rlvr.report_data import display
from lens_ref.rlvr.report_figures import common_seeds, shared_seeds
from lens_ref.rlvr.report_verdict import counted, named_seeds
from lens_ref.rlvr.statistics import bootstrap_interval, moving_average
from lens_ref.rlvr.tasks import load_questions
from lens_ref.verifier import Verifier

start(0.7, "transformers", "peft")
REAL = False  # True: Qwen2.5-3B itself. Needs a GPU with 80 GB, the `gpu` extra and the hub

# %% [markdown]
# ## Two settings, one notebook
#
# The recipe is `configs/qwen2.5-3b-lora.yaml`, what `python -m lens_ref.train --lora` runs: the paper's
# batch on MATH + DAPO. The stand-in is the policy of notebook 07, through the same adapter code. In
# a lesson the real recipe is cut to 8 updates and 200 test questions.

# %%
recipe = load("qwen2.5-3b-lora")
cut = {"steps": 8, "eval.every": 8, "eval.n": 4, "data.test_questions": 200}
tiny = {
    "methods": ["lens"], "steps": 24, "model.lora": {"r": 8, "alpha": 16}, "optimizer.lr": 5e-3,
    "optimizer.warmup_updates": 0, "rollout.questions": 32, "data.train_questions": 32,
    "eval.every": 24, "checkpoint.every": 0, "device": "cpu",
}  # fmt: skip
config = load("qwen2.5-3b-lora", cut) if REAL else load("tiny", tiny)


def summary(c):
    batch = f"{c.rollout.questions} × {c.rollout.responses} answers"
    return {
        "model": c.model.path, "adapter rank r": c.model.lora.r, "a rollout batch": batch,
        "updates on it": c.loss.updates_per_rollout, "updates": c.steps, "method": c.method,
        "longest answer, tokens": c.rollout.max_new_tokens, "learning rate": c.optimizer.lr,
    }  # fmt: skip


show(pd.DataFrame({"the recipe": summary(recipe), "this notebook": summary(config)}))

# %% [markdown]
# ## What LoRA changes
#
# **LoRA** (low-rank adaptation) freezes a layer's weights $W$ and trains two small matrices beside
# them: $A$ with $r$ rows and $B$ with $r$ columns, $r$ the *rank*. The layer computes
#
# $$y = Wx + s\,B(Ax),\qquad s = \tfrac{\texttt{alpha}}{r}$$
#
# (`alpha` is LoRA's scale; LENS's $\alpha$ is something else. None of this is in the paper.)
#
# A literal: $W$ the identity, $A = (1\ \ 1)$, $B = (0\ \ 2)^\top$, $s = 2$, $x = (1, 3)$. Then
# $Ax = 4$, $B(Ax) = (0, 8)$, and $y = (1, 3) + 2\,(0, 8) = (1, 19)$. It is the same as one layer with
# $W + s\,BA$.

# %%
W, A, B, s = torch.eye(2), torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0], [2.0]]), 2.0
x = torch.tensor([1.0, 3.0])
y = F.linear(x, W) + s * F.linear(F.linear(x, A), B)
print("with the adapter:", y.tolist(), "  merged:", F.linear(x, W + s * B @ A).tolist())
assert y.tolist() == [1, 19]
assert torch.equal(y, F.linear(x, W + s * B @ A))

# %% [markdown]
# A linear layer with $a$ inputs and $b$ outputs has $a\cdot b$ weights; its adapter has $r\,(a+b)$.
# Expect, for one of the 36 blocks of Qwen2.5-3B: the large layers are where an adapter is cheapest.

# %%
qwen = read_shape("Qwen/Qwen2.5-3B")  # sizes alone: nothing is downloaded
r = recipe.model.lora.r
names = ["queries", "keys", "values", "attention out", "gate", "up", "down"]
layers = pd.DataFrame(
    [(a, b, a * b, r * (a + b), f"{r * (a + b) / (a * b):.1%}") for a, b in qwen.linears],
    index=names,
    columns=["inputs a", "outputs b", "weights a·b", "adapter r(a+b)", "share"],
)
show(layers)
total = qwen.layers * layers["adapter r(a+b)"].sum()
print(f"adapter {total:,} weights beside {qwen.parameters:,}: {total / qwen.parameters:.1%}")
assert total == qwen.adapter(r)
assert Shape(2, 1, 2, 4, 10, True).adapter(1) == 4 * (2 + 2) + 3 * (2 + 4)  # by hand

# %% [markdown]
# Two facts about the first update. At the start $B = 0$: the adapter changes nothing, and the trained
# policy *is* the base. And so the first gradient of $A$ is 0, since $A$ acts through $B$ alone; that is
# no fault.
#
# Expect: a difference of exactly 0, then a gradient for $B$ and none for $A$.

# %%
with_adapter = ModelConfig(lora=LoraConfig(r=8, alpha=16))
cpu = torch.device("cpu")
base, adapted = load_policy(ModelConfig(), cpu, 0), load_policy(with_adapter, cpu, 0)
prompts, answers = [(2, 3, 4)], [torch.tensor([5, 6, 7])]
before = base.logprobs(prompts, answers, temperature=1.0)[0][0]
after = adapted.logprobs(prompts, answers, temperature=1.0)[0][0]
print("largest difference of a log-probability:", (after - before).abs().max().item())
after.sum().backward()
for matrix in ("lora_A", "lora_B"):
    norms = [p.grad.norm() ** 2 for n, p in adapted.trainable().items() if matrix in n]
    print(f"{matrix}: {len(norms)} matrices, gradient norm {torch.stack(norms).sum().sqrt():.4f}")
assert torch.equal(before, after)

# %% [markdown]
# One more thing that changes: the learning rate. An adapter takes about ten times the rate of all
# weights (the recipe uses ten times the paper's $10^{-6}$); the paper is silent on LoRA, and so
# these values are this project's.
#
# ## The memory plan
#
# What fills a GPU, for $N$ frozen weights and $n$ trained ones:
#
# | what | bytes | why |
# |---|---|---|
# | weights | $2N$ | frozen, in bfloat16 (2 bytes) |
# | adapter | $4n$ | trained, in float32: small updates would be lost in bfloat16 |
# | gradients | $2\cdot4n$ | the running sum, and that of the micro-batch at hand |
# | optimizer | $2\cdot4n$ | AdamW's two moving averages |
# | activations | tokens × layers × … | what the backward pass needs again |
# | vLLM | its share | a second copy of the weights, and the *keys and values* of the answers in flight |
#
# A **micro-batch** is what passes through the model at once; **vLLM** is the engine that samples. By
# hand for Qwen2.5-3B:

# %%
N, n = qwen.parameters, qwen.adapter(r)
by_hand = {"weights": 2 * N, "adapter": 4 * n, "gradients": 8 * n, "optimizer": 8 * n}
plan = plan_on_card(recipe, qwen, card_gb=80)
for name, size in by_hand.items():
    print(f"{name:10} {gigabytes(size)}")
    assert size == getattr(plan, name)
print("\nand the whole plan of the recipe on a card of 80 GB:\n")
print(plan)

# %% [markdown]
# Weights, adapter, gradients and optimizer are a small part: the rest goes to answers of up to 4,096
# tokens, in the sampler and in the backward pass. Activations and vLLM's share adapt to the card. So
# compare four ways on their cards:
#
# - **all weights** (`--full`, what the paper did): $n = N$, kept in float32 with a copy in bfloat16,
#   so 6 + 8 + 8 bytes a weight before the first token;
# - **LoRA**, 80 GB: the recipe;
# - **LoRA**, 24 GB: answers of up to 1,024 tokens, and vLLM *sleeps* (hands its memory back) during
#   updates;
# - **QLoRA**, 24 GB: frozen weights in 4 bits, sampled by transformers from these very weights
#   ([notebook 09](09_lora_llama.ipynb) says how that works).
#
# Expect: stacked bars. All weights fit on 80 GB only just, and without vLLM.

# %%
bits = 4 + 8 / 64 + 32 / (64 * 256)  # a weight, its block's scale, the scales' scale
assert abs(bits / 8 - BYTES_IN_NF4) < 1e-3
full = load(["paper/qwen2.5-3b-full", "paper/math-dapo", "paper/lens"])
small = load("qwen2.5-3b-24gb")
four_bits = load("qwen2.5-3b-24gb", {"model.quantization": "nf4", "rollout.engine": "hf"})
plans = {
    "all weights": plan_on_card(full, qwen, 80),
    "LoRA, 80 GB": plan_on_card(recipe, qwen, 80),
    "LoRA, 24 GB": plan_on_card(small, qwen, 24),
    "QLoRA, 24 GB": plan_on_card(four_bits, qwen, 24),
}
fig, ax = plt.subplots(figsize=(10, 5))
draw_plans(ax, plans)
plt.show()
print("layers computed again in the backward pass:", {k: p.recomputed for k, p in plans.items()})
assert all(plan.total < 1e9 * (24 if "24" in name else 80) for name, plan in plans.items())

# %% [markdown]
# At 3 billion weights QLoRA buys nothing: what the 4-bit weights save goes into activations, since
# blocks with 4-bit weights are not compiled here and keep more for the backward pass.
#
# A plan is a prediction. Where `results/benchmarks` holds measurements, they belong beside it: an
# update of 4 answers of 4,096 tokens on random weights of Qwen2.5-3B's shape (speed and memory do not
# depend on their values), by Hugging Face + PEFT, by TRL, and by this project under several settings.
# `planned` is what the plan says to the same settings.

# %%
path = results("benchmarks", "update-qwen2.5-3b.json")
measured = json.loads(path.read_text(encoding="utf-8")) if path else {"variants": {}}


def planned(label, variant):
    """GB, for this project's own variants."""
    if not label.startswith("lens_ref"):
        return None
    same = {
        "loss.micro_batch_tokens": variant["budget"], "model.compile": "uncompiled" not in label,
        "rollout.max_new_tokens": 4096 - PROMPT_TOKENS,
    }  # fmt: skip
    less = variant.get("keeps_less", False)
    settings = load("qwen2.5-3b-lora", same)
    plan = make_plan(settings, qwen, GPU, variant["recomputed"], sampler=NOTHING, less=less)
    return plan.total / 1e9


rows = {
    label: (v["tokens_per_second"], v["peak_gb"], planned(label, v))
    for label, v in measured["variants"].items()
    if v.get("peak_gb")
}
if rows:
    print(f"on one {measured['hardware']['gpu']}, torch {measured['versions']['torch']}")
    columns = ["tokens/s", "peak GB", "planned GB"]
    show(pd.DataFrame.from_dict(rows, "index", columns=columns).astype(float).round(1))
else:
    print("updates of Qwen2.5-3B, measured on a GPU: not run")

# %% [markdown]
# ## Training
#
# The same call for both settings. The tiny one practises 32 questions, as in notebook 07, so that
# something can be seen in half a minute; the real one takes the recipe's questions from the hub.
#
# Expect: a line for every rollout batch.

# %%
chosen = None
if not REAL:
    with Verifier(workers=1) as checker:
        chosen = load_questions("tiny", checker, limit=32, seed=0)
run, policy = train(config, train_on=chosen, test_on=chosen)

# %% [markdown]
# Look at four columns of the log before you look at the reward:
#
# - `logprob_drift`: mean |log-probability, sampler − trainer| in nats a token. Near 0 on a CPU, about
#   0.02 between vLLM and the trainer in bfloat16; beyond `rollout.max_drift` the run stops. A sampler
#   that runs *other weights* is the classical silent fault of such systems;
# - `adapter`: the start of a hash of the adapter. It must change at every update that learns;
# - `grad_norm`: 0 means that no group carried a signal;
# - `clip_fraction`: the share of tokens that the clip cut off.

# %%
log = run.metrics[["step", "reward", "negative_share", "logprob_drift", "adapter", "grad_norm"]]
show(log.iloc[:: max(1, len(log) // 6)].round({"reward": 3, "negative_share": 3, "grad_norm": 3}))
assert run.metrics["logprob_drift"].max() < config.rollout.max_drift
assert run.metrics["adapter"].nunique() == len(run.metrics)  # every update moved it

# %% [markdown]
# And the frozen weights are frozen. Expect 0 in the first line.

# %%
if not REAL:
    start_weights = dict(base.model.named_parameters())
    moved = []
    for name, p in policy.model.named_parameters():
        if "lora_" not in name:
            plain = name.replace("base_model.model.", "").replace(".base_layer", "")
            moved.append((p - start_weights[plain]).abs().max())
    print(f"{len(moved)} frozen tensors, largest change {max(moved).item()}")
    assert max(moved) == 0
trained = sum(p.numel() for p in policy.trainable().values())
print(f"{trained:,} weights trained of {sum(p.numel() for p in policy.model.parameters()):,}")

# %% [markdown]
# (At rank 8 the adapter is a sixth of this tiny model; the same rank-to-width ratio would be absurd
# at 3 B. There it was 2 %.)
#
# ## Evaluation
#
# Before the first update and after the last: $n$ answers to each test question, pass@1 the mean share
# of correct ones. The interval is a bootstrap over questions: it says nothing about other seeds.

# %%
rates = run.counts.assign(rate=run.counts["correct"] / run.counts["n"]).pivot(
    index="question", columns="step", values="rate"
)
first, last = rates.columns.min(), rates.columns.max()
change = bootstrap_interval((rates[last] - rates[first]).to_numpy()).times(100)
print(f"{len(rates)} questions: pass@1 {rates[first].mean():.1%} → {rates[last].mean():.1%}")
print(f"change {change.mean:+.1f} points, 95 % interval [{change.low:+.1f}, {change.high:+.1f}]")

# %% [markdown]
# ## Curves from `results/`
#
# What has really been run with a Qwen model is read from the committed runs: those of
# `configs/reproduction-0.5b.yaml`, a small experiment in which the policy stands as the
# paper's Llama did (with 16 answers nearly half of its groups are negative), and one run each of GRPO
# and LENS with `configs/reproduction-0.5b-math.yaml`, where about six in ten are. The policy's weights
# were computed back from a quantised file into a folder `qwen05`
# ([docs/reproduction.md](../docs/reproduction.md)). Where a model has no run, the cell says so.
# Expect curves that can't be told apart, but for NSR's, whose reward falls to 0, and perhaps the two on
# MATH, which part at the end: single runs, of which nobody knows what a second would do. An arm of three seeds
# is compared with GRPO of these three, one of a single seed with that seed alone.

# %%
finished = find(results=results()).finished
small = "Qwen/Qwen2.5-Coder-0.5B-Instruct"
models = {"Qwen/Qwen2.5-3B": "Qwen/Qwen2.5-3B", small: small, "qwen05": small}
qwen_runs = [r for r in finished if r.config["model"]["path"] in models]
for model in dict.fromkeys(models.values()):
    its = [r for r in qwen_runs if models[r.config["model"]["path"]] == model]
    for data in dict.fromkeys(" + ".join(trained_on(r)) for r in its):
        own = [r for r in its if " + ".join(trained_on(r)) == data]
        said = [f"{display(r.label)} seed {r.seed} ({r.step} updates)" for r in own]
        print(f"{model} on {data}: {', '.join(said)}")
    if not its:
        print(f"{model}: not run")


# %%
def curves(setting):
    """Reward and negative groups of each method, averaged over eight updates: the mean over the
    seeds that the methods of several have, and a band from the lowest to the highest of all its
    seeds; of a method with one seed, that one."""
    common = sorted(common_seeds(setting.runs))
    fig, axes = plt.subplots(1, 2, figsize=(11, 5.4))
    for ax, column in zip(axes, ("reward", "negative_share"), strict=True):
        for i, label in enumerate(setting.labels):
            runs = {r.seed: r.metrics.set_index("step")[column] for r in setting.of(label)}
            smooth = pd.DataFrame(runs).apply(lambda values: moving_average(values, 8))
            low, high = smooth.min(axis=1), smooth.max(axis=1)
            ax.fill_between(smooth.index, low, high, color=line(i)["color"], alpha=0.12, lw=0)
            shared = smooth[shared_seeds(setting.of(label), common)].mean(axis=1)
            name = f"{display(label)}, seed {min(runs)} alone" if len(runs) == 1 else display(label)
            look = line(i) | {"markevery": 0.12, "linewidth": 2.2 if len(runs) > 1 else 1.2}
            ax.plot(smooth.index, shared, label=name, **look)
        ax.set(xlabel="updates", ylabel="share", title=TITLES[column])
    lines = f"lines: mean of {named_seeds(common) if common else 'all seeds'}; bands: all seeds"
    single = all(len(setting.of(label)) == 1 for label in setting.labels)
    place = {"loc": "outside lower center", "ncols": 3, "fontsize": 10, "title_fontsize": 10}
    named = axes[0].get_legend_handles_labels()
    fig.legend(*named, title=None if single else lines, **place)
    fig.suptitle(setting.title, fontsize=12)
    plt.show()


TITLES = {"reward": "reward (training questions)", "negative_share": "negative groups"}
qwen_settings = grouped(qwen_runs)
for setting in qwen_settings:
    curves(setting)
    for name, its in setting.rows():
        gain = setting.difference(its[0].label)
        alone = " (one seed: over questions)" if gain and gain.over == "questions" else ""
        print(
            f"{name:26} {counted(len(its), 'seed'):7}  pass@1 {shown(accuracy(its)):17}  "
            f"minus GRPO {shown(gain, sign=True)}{alone}"
        )
if not qwen_settings:
    print("runs of a Qwen model: not run, so there is no curve")

# %% [markdown]
# ### Where the time goes
#
# The paper calls LENS "plug-and-play with negligible computational overhead". Each run logs the seconds
# of every phase: handing the adapter over (`sync`), sampling, grading, old log-probabilities,
# *advantages* (all that a method adds), updates. Expect that one of the bars is too short to be seen.
# (Where no run of a Qwen model is committed, the bars are those of the run above.)

# %%
PHASES = ["sync", "sample", "grade", "old", "advantage", "update"]
timed = [r for r in qwen_runs if "advantage_seconds" in r.metrics] or [run]
fig, ax = plt.subplots(figsize=(9, 3.6))
seconds = np.array([[run.metrics[f"{p}_seconds"].sum() for p in PHASES] for run in timed])
share = 100 * seconds.mean(0) / seconds.mean(0).sum()
ax.barh(PHASES, share, color="#8c8c8c", edgecolor="black")
for i, value in enumerate(share):
    ax.text(value, i, f" {value:.2g} %", va="center")
ax.set(xlabel="share of the time, %", xlim=(0, 1.15 * share.max()))
ax.set_title("the run above" if timed[0] is run else "committed runs of a Qwen model")
ax.invert_yaxis()
plt.show()
assert share[PHASES.index("advantage")] < 5

# %% [markdown]
# ## What you have seen
#
# - LoRA adds $s\,BA$ to each linear layer. Gradients and optimizer state are paid for trained weights
#   only, and here those are 2 % of the model.
# - What fills the card in such a run are long answers: activations, keys and values.
# - At the start the adapter is invisible ($B = 0$). That hides a sampler without the adapter, so the
#   drift is measured all the time.
# - The advantages, all that LENS changes, cost next to nothing beside sampling and updating.
# - Which numbers of a 3 B model exist here is said above by the cells themselves. What the paper
#   reports for it is in [notebook 10](10_reproduction.ipynb), beside ours.
#
# ## Questions for the class
#
# 1. Double $r$. Which bars of the plan change, and by how many GB?
# 2. Answers of 8,192 tokens instead of 4,096: which bars grow?
# 3. Why does the adapter's hash stay the same when all groups of an update are negative under GRPO?
#    And under LENS?
# 4. The paper trained all weights, this recipe an adapter. If a result differs, what would you have to
#    run to know whether LoRA is the reason?
#
# To run it: [docs/gpu.md](../docs/gpu.md). Exercises: [exercises](exercises/). Next:
# [09 · Llama-3.1-8B](09_lora_llama.ipynb).
