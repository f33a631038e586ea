# %% [markdown]
# # 09 · Llama-3.1-8B: when it does not fit
#
# Llama-3.1-8B-Instruct has two and a half times the weights of Qwen2.5-3B, and several plans that
# worked there break. This notebook takes the obstacles one by one: the head with its 128,256 words,
# the activations, 24 GB, and all weights at once. Adapters, the loop and the log are as in
# [notebook 08](08_lora_qwen.ipynb) and are not repeated.
#
# **You need:** the memory plan of [notebook 08](08_lora_qwen.ipynb). Words:
# [glossary](../docs/glossary.md).
#
# **Afterwards you can**
# - say where the weights of a language model are, and which of its tensors is the largest that never
#   needs to exist,
# - trade memory for time by *gradient checkpointing*, and say what it costs,
# - explain what 4-bit weights are, and why a sampler without them samples from another policy,
# - say why `--full` does not fit, to within a few GB.

# %%
import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from classroom import line, results, start
from IPython.display import display as show
from training import GPU, draw_plans, plan_on_card, train

from lens_ref.reporting.find import find
from lens_ref.rlvr import logprobs as head
from lens_ref.rlvr.config import LoraConfig, ModelConfig, load
from lens_ref.rlvr.layers import checkpoint_layers
from lens_ref.rlvr.memory import USABLE, logits_bytes, make_plan, plan_for, read_shape
from lens_ref.rlvr.policy import load_policy
from lens_ref.rlvr.prompts import encode_prompt
from lens_ref.rlvr.report_data import display
from lens_ref.rlvr.sampler import make_sampler
from lens_ref.rlvr.statistics import bootstrap_interval
from lens_ref.rlvr.tasks import load_questions
from lens_ref.verifier import Verifier

start(1, "transformers", "peft", "bitsandbytes")
REAL = False  # True: Llama-3.1-8B-Instruct on a GPU with 24 GB (its weights are gated)
cpu = torch.device("cpu")
llama, qwen = read_shape("meta-llama/Llama-3.1-8B-Instruct"), read_shape("Qwen/Qwen2.5-3B")

# %% [markdown]
# ## Where the weights are
#
# Each *block* of the transformer has seven matrices. Before the first block a table turns tokens
# into vectors (the *input embeddings*); after the last one the *head* turns a vector into one score
# for every token of the vocabulary, the **logits**. With vocabulary $V$ and width $h$ these two have
# $V\cdot h$ weights each, or once for both where they are *tied*.
#
# Expect: Llama's two tables together are as large as a third of all of Qwen2.5-3B.

# %%
columns = {"Qwen2.5-3B": qwen, "Llama-3.1-8B": llama}
sizes = {
    name: {
        "width h": s.hidden, "blocks": s.layers, "vocabulary V": s.vocabulary, "tied": s.tied,
        "weights in blocks": s.matrices, "embeddings and head": s.embeddings,
        "all weights": s.parameters, "adapter, r = 32": s.adapter(32),
    }
    for name, s in columns.items()
}  # fmt: skip
show(pd.DataFrame(sizes).map(lambda x: x if isinstance(x, bool) else f"{x:,}"))
assert llama.embeddings == 2 * 128256 * 4096
assert 0.3 < llama.embeddings / qwen.parameters < 0.36

# %% [markdown]
# ## Obstacle 1: the logits
#
# An update needs the log-probability of each sampled token, so the head is applied to each position.
# For a micro-batch of $T$ tokens that is a table of $T\times V$ numbers:
#
# $$T\cdot V\cdot 4\ \text{bytes} = 8{,}192\cdot128{,}256\cdot4 = 4.2\ \text{GB},$$
#
# and the softmax and its gradient each want a table like it. But nobody needs the table: only one number
# of each row, and the gradient at the states. So `head_logprobs` computes $2^{27}$ logits at a time,
# keeps their normaliser, and computes the chunk *again* in the backward pass.
#
# A probe with the tiny policy's head of 50 words: all 64 positions at once, then 7 at a time. Expect
# equal log-probabilities and gradients, up to rounding.

# %%
base = load_policy(ModelConfig(), cpu, 0)
layer = base.model.get_output_embeddings()
torch.manual_seed(0)
states, targets = torch.randn(64, 64), torch.randint(50, (64,))


def through_the_head(chunk):
    """Log-probabilities and the gradient at the states, so many logits at a time."""
    head.LOGITS_CHUNK["cpu"] = chunk
    x = states.clone().requires_grad_()
    logprob, _ = head.head_logprobs(layer, x, targets, temperature=1.0)
    return logprob.detach(), torch.autograd.grad(logprob.sum(), x)[0]


whole, pieces = through_the_head(64 * 50), through_the_head(7 * 50)
head.LOGITS_CHUNK["cpu"] = 2**24  # as it was
naive = layer(states).log_softmax(-1).gather(-1, targets[:, None])[:, 0]
print("log-probabilities differ by", f"{(whole[0] - pieces[0]).abs().max():.0e}")
print("gradients differ by        ", f"{(whole[1] - pieces[1]).abs().max():.0e}")
assert torch.allclose(pieces[0], naive, atol=1e-5)
assert torch.allclose(whole[1], pieces[1], atol=1e-5)

# %% [markdown]
# What that is worth on a GPU, at the bytes a logit that the plan counts for a chunk. Expect: two lines
# that grow with the micro-batch (Qwen's the steeper one: its vocabulary is larger), and one that
# does not.

# %%
tokens = np.array([1024, 2048, 4096, 8192, 16384])
bytes_a_logit = logits_bytes(GPU) / head.logits_chunk(GPU)
fig, ax = plt.subplots()
for i, (name, shape) in enumerate(columns.items()):
    gb = bytes_a_logit * tokens * shape.vocabulary / 1e9
    ax.plot(tokens, gb, label=f"all logits, {name}", **line(i))
ax.axhline(logits_bytes(GPU) / 1e9, color="black", linewidth=3)
ax.text(16384, logits_bytes(GPU) / 1e9 + 0.5, "in chunks, any model", ha="right")
ax.set(xlabel="tokens of a micro-batch", ylabel="GB", xscale="log", ylim=(0, 22))
ax.set_xticks(tokens, [f"{t:,}" for t in tokens])
ax.minorticks_off()
ax.legend()
plt.show()


# %% [markdown]
# Measured, where `results/benchmarks` holds it: Hugging Face + PEFT on four answers of 4,096 tokens, all
# logits at once and in chunks. Expect a difference of about what the last point of Llama's line says.


# %%
def measured(name):
    path = results("benchmarks", f"{name}.json")
    return json.loads(path.read_text(encoding="utf-8")) if path else {"variants": {}}


updates = measured("update-llama-3.1-8b")
peaks = {k: v["peak_gb"] for k, v in updates["variants"].items() if v.get("peak_gb")}
if "hf_peft_m4" in peaks and "hf_peft_chunked_m4" in peaks:
    saved = peaks["hf_peft_m4"] - peaks["hf_peft_chunked_m4"]
    print(f"in chunks the peak is {saved:.1f} GB lower ({updates['hardware']['gpu']})")
else:
    print("logits in chunks, measured: not run")

# %% [markdown]
# ## Obstacle 2: activations
#
# The backward pass needs what the forward pass computed: the **activations** of each block, for each
# token. **Gradient checkpointing** keeps only the *input* of a block and computes the rest again when the
# gradient arrives. Live, on the two blocks of the tiny policy: count the bytes that autograd saves.
#
# Expect: fewer bytes a token with each recomputed block, and the *same* gradient.

# %%
prompts, answers = [tuple(range(2, 14))] * 32, [torch.arange(2, 32)] * 32
weights = list(base.model.parameters())
own = {w.untyped_storage().data_ptr() for w in weights}


def kept_bytes(recomputed):
    """Bytes a token that autograd saved beside the weights, and the gradient's norm."""
    checkpoint_layers(base.model.train(), recomputed)
    saved = {}

    def note(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = torch.cat(base.logprobs(prompts, answers, 1.0)[0]).mean()
    gradient = torch.autograd.grad(loss, weights)
    beside = sum(size for place, size in saved.items() if place not in own)
    return beside / (32 * 42), torch.stack([g.norm() for g in gradient]).norm()


found = [kept_bytes(n) for n in (0, 1, 2)]
checkpoint_layers(base.model, 0)
for n, (size, norm) in enumerate(found):
    print(f"{n} of 2 blocks recomputed: {size:7,.0f} bytes a token, gradient norm {norm:.6f}")
assert found[0][0] > found[1][0] > found[2][0]
assert all(abs(norm - found[0][1]) < 1e-5 for _, norm in found)

# %% [markdown]
# The price is time. With frozen weights $N$ a token costs about $2N$ operations forward and $2N$
# backward; to compute all blocks again costs another $2N$: $6N$ instead of $4N$, half as much more. So
# one recomputes *as few blocks as the card asks for*. Before whole blocks there is a cheaper step: to
# recompute one product of each block's MLP (`less`), which keeps a third less.
#
# Expect: Llama's plan with LoRA falls in a straight line with the number of recomputed blocks; the
# recipe for 80 GB needs the cheap step only.

# %%
lora = load("llama3.1-8b-lora")
recipe = plan_on_card(lora, llama, 80)
counts = np.arange(0, 33, 4)
fig, ax = plt.subplots(figsize=(9, 4.6))
for i, less in enumerate((False, True)):
    plans = [make_plan(lora, llama, GPU, int(n), recipe.sampler, less) for n in counts]
    label = "one product of the others too" if less else "whole blocks only"
    ax.plot(counts, [p.total / 1e9 for p in plans], label=label, **line(3 * i))
ax.axhline(80 * USABLE, color="black", linestyle="--")
ax.text(32, 80 * USABLE + 0.5, "usable of 80 GB", ha="right")
ax.set(xlabel="blocks recomputed, of 32", ylabel="peak beside vLLM, GB")
ax.legend()
plt.show()
print(
    f"the recipe: {recipe.recomputed} blocks recomputed, one product in the others: {recipe.less}"
)

# %% [markdown]
# ## Obstacle 3: 24 GB
#
# Now a card of 24 GB, answers of up to 1,024 tokens. In bfloat16 the weights alone are $2N = 16$ GB.
# Expect: with every block recomputed the plan is still too large; with 4-bit weights it fits.

# %%
qlora = load("llama3.1-8b-qlora-24gb")
in_bf16 = load("llama3.1-8b-qlora-24gb", {"model.quantization": None})
limit = int(USABLE * 24e9)
print("LoRA, bfloat16, the leanest plan:\n", plan_for(in_bf16, llama, GPU, limit, None), sep="")
print("\nQLoRA:\n", plan_on_card(qlora, llama, 24), sep="")
assert plan_for(in_bf16, llama, GPU, limit, None).total > 24e9
assert plan_on_card(qlora, llama, 24).total < 24e9

# %% [markdown]
# **QLoRA** stores the frozen weights in 4 bits and trains a LoRA adapter over them. Four bits are 16
# values. *nf4* chooses them so that each is used about equally often if weights are normally
# distributed; blocks of 64 weights share one scale, their largest absolute value. In the matrix
# product the stored number becomes bfloat16 again.
#
# By hand, with a block that begins $(0.5, -1, 0.1, 0)$ and is 0 after that; its largest is 1. The levels
# around $0.5$ are $0.4407$ and $0.5626$, those around $0.1$ are $0.0796$ and $0.1609$. Expect the nearer
# ones: $(0.4407, -1, 0.0796, 0)$.

# %%
from bitsandbytes.functional import dequantize_4bit, get_4bit_type, quantize_4bit


def there_and_back(w):
    """What is left of weights after 4 bits, in blocks of 64."""
    coarse = dequantize_4bit(*quantize_4bit(w.contiguous(), blocksize=64, quant_type="nf4"))
    return coarse.reshape(w.shape)


levels = get_4bit_type("nf4", device="cpu")
block = torch.zeros(64)
block[:4] = torch.tensor([0.5, -1.0, 0.1, 0.0])
print(len(levels), "levels; (0.5, -1, 0.1, 0) becomes", there_and_back(block)[:4])
assert len(levels) == 16
assert torch.allclose(there_and_back(block)[:4], torch.tensor([0.4407, -1, 0.0796, 0]), atol=1e-4)

# %%
w = base.model.model.layers[0].mlp.gate_proj.weight.detach()
coarse = there_and_back(w)
scale = w.flatten().reshape(-1, 64).abs().amax(-1, keepdim=True)
fig, axes = plt.subplots(1, 2, figsize=(11, 4.2))
axes[0].hist((w.flatten().reshape(-1, 64) / scale).flatten(), bins=60, color="#b9b9b9")
for level in levels.tolist():
    axes[0].axvline(level, color="black", linewidth=1.2)
axes[0].set(xlabel="weight / largest of its block", ylabel="weights", title="the 16 levels of nf4")
axes[1].plot(w.flatten()[:800], coarse.flatten()[:800], linestyle="none", marker=".", color="black")
axes[1].set(xlabel="a weight of the tiny policy", ylabel="after 4 bits", title="there and back")
plt.show()
print(f"mean error: {(coarse - w).abs().mean() / w.abs().mean():.1%} of the mean weight")

# %% [markdown]
# ### Another policy
#
# Weights that are off by so much make *another policy*. If vLLM sampled from the bfloat16 weights while
# the 4-bit ones are trained, every ratio of the first update would be wrong: the answers come from
# somebody else. How far off? Sample from the tiny policy and ask its 4-bit copy for the
# log-probabilities of the same tokens.
#
# Expect: far more than between two exact copies, where it is rounding; for this small model still less
# than the `rollout.max_drift` at which a run stops. So drift alone would not catch it.

# %%
with Verifier(workers=1) as checker:
    chosen = load_questions("tiny", checker, limit=32, seed=0)
tiny = load("tiny")
four_bits = ModelConfig(lora=LoraConfig(r=8, alpha=16), quantization="nf4")
its_copy, coarse_policy = load_policy(ModelConfig(), cpu, 0), load_policy(four_bits, cpu, 0)
encoded = tuple(encode_prompt(base.tokenizer, tiny.prompt, q.problem) for q in chosen.items)
samples = make_sampler(base, tiny, max(map(len, encoded)), lambda: None).sample(encoded, 8, seed=0)
ids, lengths = samples.ids.flatten(0, 1), samples.lengths.flatten()
rows = [row[:n] for row, n in zip(ids, lengths, strict=True)]
of_sampler = samples.logprobs.flatten(0, 1)[samples.mask.flatten(0, 1)]
repeated = [prompt for prompt in encoded for _ in range(8)]
drift = {}
with torch.no_grad():
    for name, policy in (("an exact copy", its_copy), ("the 4-bit copy", coarse_policy)):
        scored = torch.cat(policy.logprobs(repeated, rows, 1.0)[0])
        drift[name] = (scored - of_sampler).abs().mean()
        print(f"{name:15} |sampler − trainer| = {drift[name]:.1e} nats a token")
print(f"{'a run stops at':15} {tiny.rollout.max_drift:25} nats a token")
assert drift["the 4-bit copy"] > 100 * drift["an exact copy"]

# %% [markdown]
# So under `--qlora` transformers samples from the very 4-bit weights that are trained: slower than vLLM,
# but from the same policy. vLLM is allowed if its weights are in 4 bits too, or if each token is weighed by
# how much likelier the trainer draws it than the sampler did (`loss.sampler_correction`, an
# *importance weight*). Anything else is refused.
#
# ## Obstacle 4: all weights
#
# The paper trained all of them. Per weight: 4 bytes for the master copy in float32 and 2 for the copy
# that computes; 4 for the gradient and 4 for that of the micro-batch at hand; 8 for AdamW:
#
# $$N\,(4+2+4+4+4+4) = 22\,N = 22\cdot 8.03\cdot10^9\ \text{bytes} = 177\ \text{GB}$$
#
# before the first token. Why not keep everything in bfloat16, with a third of the bytes? Because of the
# learning rate: $3\cdot10^{-7}$ in the paper. bfloat16 has 8 significant bits; a weight of 1 can't
# move by less than $2^{-8}$. Expect: nothing moves.

# %%
N = llama.parameters
print(f"22 N = {22 * N / 1e9:.0f} GB")
weight = torch.tensor(1.0, dtype=torch.bfloat16)
print(f"bfloat16: {weight - 3e-7:.8f}   float32: {weight.float() - 3e-7:.8f}")
assert weight - 3e-7 == 1
assert weight.float() - 3e-7 < 1

# %% [markdown]
# ## The plans, side by side
#
# Both models, all ways. Expect: what fits a 3 B model in one piece (all weights on 80 GB) takes more
# than two such cards at 8 B, and no recomputation helps, because activations are not what fills it.

# %%
full = load(["paper/llama3.1-8b-full", "paper/math-dapo", "paper/lens"])
full_qwen = load(["paper/qwen2.5-3b-full", "paper/math-dapo", "paper/lens"])
plans = {
    "Llama, all weights": plan_on_card(full, llama, 80),
    "Qwen, all weights": plan_on_card(full_qwen, qwen, 80),
    "Llama, LoRA, 80 GB": recipe,
    "Qwen, LoRA, 80 GB": plan_on_card(load("qwen2.5-3b-lora"), qwen, 80),
    "Llama, LoRA, 24 GB": plan_for(in_bf16, llama, GPU, limit, None),
    "Llama, QLoRA, 24 GB": plan_on_card(qlora, llama, 24),
    "Qwen, LoRA, 24 GB": plan_on_card(load("qwen2.5-3b-24gb"), qwen, 24),
}
fig, ax = plt.subplots(figsize=(11, 6.4))
draw_plans(ax, plans)
plt.show()
columns = ["peak, GB", "blocks recomputed", "one product in the others"]
rows = [(round(p.total / 1e9, 1), f"{p.recomputed} of {p.layers}", p.less) for p in plans.values()]
show(pd.DataFrame(rows, index=list(plans), columns=columns))
assert plans["Llama, all weights"].total > 2 * 80e9

# %% [markdown]
# What has been measured of this on a GPU, read from `results/benchmarks`: updates of 4 answers of 4,096
# tokens, and a whole run inside 24 GB. Expect, among rows with the same tokens at once: what recomputes
# more takes less memory and is slower. (With all 32 blocks recomputed, `one product` has nothing left
# to save.)

# %%
if peaks:
    print(f"updates of Llama-3.1-8B on one {updates['hardware']['gpu']}, this project:")
    rows = [
        {
            "tokens at once": v["budget"], "blocks recomputed": v["recomputed"],
            "one product": bool(v.get("keeps_less")), "compiled": "uncompiled" not in label,
            "tokens/s": round(v["tokens_per_second"]), "peak, GB": round(v["peak_gb"], 1),
        }
        for label, v in updates["variants"].items()
        if label.startswith("lens_ref") and label in peaks
    ]  # fmt: skip
    show(pd.DataFrame(rows))
else:
    print("updates of Llama-3.1-8B, measured: not run")
inside = measured("memory-llama-3.1-8b")
peak = f"peak {inside['peak_gb']:.1f} GB" if inside.get("status") == 0 else "not run"
print(f"a QLoRA run of Llama-3.1-8B inside 24 GB: {peak}")

# %% [markdown]
# ## Training with QLoRA
#
# `REAL` takes the recipe for 24 GB, cut to 8 updates of 8 questions; else the tiny policy in 4 bits
# practises 32 questions. Llama's own differences are settings: its chat template, three tokens that may end an
# answer, the learning rate. Expect: it learns, although its frozen weights are coarse; the adapter
# makes up for some of that, too.

# %%
small = {
    "steps": 8, "rollout.questions": 32, "eval.every": 8, "eval.n": 4, "data.test_questions": 100,
}  # fmt: skip
practice = {
    "methods": ["lens"], "steps": 24, "model.lora": {"r": 8, "alpha": 16},
    "model.quantization": "nf4", "optimizer.lr": 5e-3, "optimizer.warmup_updates": 0, "rollout.questions": 32,
    "data.train_questions": 32, "eval.every": 24, "checkpoint.every": 0, "device": "cpu",
}  # fmt: skip
config = load("llama3.1-8b-qlora-24gb", small) if REAL else load("tiny", practice)
questions = None if REAL else chosen
run, trained = train(config, train_on=questions, test_on=questions)

# %%
rates = run.counts.assign(rate=run.counts["correct"] / run.counts["n"]).pivot(
    index="question", columns="step", values="rate"
)
first, last = rates.columns.min(), rates.columns.max()
change = bootstrap_interval((rates[last] - rates[first]).to_numpy()).times(100)
print(f"{len(rates)} questions: pass@1 {rates[first].mean():.1%} → {rates[last].mean():.1%}")
print(f"change {change.mean:+.1f} points, 95 % interval [{change.low:+.1f}, {change.high:+.1f}]")
frozen = [p for name, p in trained.model.named_parameters() if ".base_layer.weight" in name]
print(f"{len(frozen)} frozen matrices, stored as {frozen[0].dtype}: two weights a byte")
assert run.metrics["logprob_drift"].max() < config.rollout.max_drift

# %% [markdown]
# ## Runs of Llama
#
# The paper's figure of wasted groups is Llama's: nearly 45 % of the groups negative at the start of
# GRPO, about 35 % at the end. Is there a run of it in `results/`?

# %%
finished = find(results=results()).finished
runs = [r for r in finished if "llama" in str(r.config["model"]["path"]).lower()]
for r in runs:
    ends = r.metrics["negative_share"]
    quarter = max(1, len(ends) // 4)
    shares = f"negative groups {ends[:quarter].mean():.0%} → {ends[-quarter:].mean():.0%}"
    print(f"{display(r.label)} seed {r.seed}: {r.step} updates, {shares}")
if not runs:
    print("Llama-3.1-8B-Instruct: not run")

# %% [markdown]
# ## What you have seen
#
# - The largest tensor of an update, tokens × vocabulary, need not exist: its rows are used one number
#   each, and computed twice.
# - Activations are bought back with time, block by block; the gradient stays the same.
# - 4-bit weights make room for 8 B on 24 GB, and make another policy: sample from the weights that you
#   train.
# - All weights take 22 bytes each before the first token. One card of 80 GB holds that for 3 B, not for 8 B.
#
# ## Questions for the class
#
# 1. Which of the four obstacles does a vocabulary of 262,144 make worse? Longer answers? A larger $G$?
# 2. How many weights may a model have so that all of them can be trained on one card of 141 GB?
# 3. Under QLoRA the old log-probabilities come from the 4-bit policy. Does LENS's confidence
#    $\bar\pi$ change its meaning?
# 4. The adapter is trained over coarse weights. May it be merged into the exact ones afterwards?
#
# To run it: [docs/gpu.md](../docs/gpu.md). Exercises: [exercises](exercises/). Next:
# [10 · The paper's tables beside ours](10_reproduction.ipynb).
