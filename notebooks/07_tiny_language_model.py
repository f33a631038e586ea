# %% [markdown]
# # 07 · A tiny language model
#
# The whole training loop on a CPU: a language model answers questions, a program checks the
# answers, GRPO and LENS turn the verdicts into advantages, and an optimizer step changes the weights.
# We go through one batch by hand, then let the loop run, and look at what five seeds of longer
# runs say.
#
# **You need:** GRPO's advantages and negative groups ([notebook 01](01_wasted_groups.ipynb)), the
# calibrated reward ([notebook 04](04_calibrated_reward.ipynb)). Words: [glossary](../docs/glossary.md).
#
# **Afterwards you can**
# - name the four stations of the loop and say what goes from each to the next,
# - tell an all-wrong group of guesses from one with a confident mistake, and say what LENS does to each,
# - answer "why is the loss 0?" with three numbers from a log,
# - read pass@k by level, and say when a difference between two methods is none.

# %%
import re
from collections import Counter
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from classroom import line, start
from training import one_thread, train

from lens_ref import (
    LensConfig,
    group_kind,
    grpo_loss,
    lens_advantages,
    methods,
    neg_to_mixed_rms,
    pass_at_k,
)
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.config import load
from lens_ref.rlvr.grading import grade
from lens_ref.rlvr.policy import load_policy
from lens_ref.rlvr.prompts import encode_prompt
from lens_ref.rlvr.report_data import display, read_committed
from lens_ref.rlvr.sampler import make_sampler
from lens_ref.rlvr.statistics import bootstrap_interval, moving_average, t_interval
from lens_ref.rlvr.tasks import load_questions
from lens_ref.rlvr.update import Updater
from lens_ref.tiny import task
from lens_ref.verifier import Verifier

start(1.5, "transformers", "numpy")
config = load("tiny")  # configs/tiny.yaml: all settings of the bundled run
device = torch.device("cpu")  # this model is too small for a GPU

# %% [markdown]
# ## The task
#
# Arithmetic modulo 36, step by step. A **question** $q$ of *level* $L$ is a number and $L$ steps; a
# **response** $o$ works through them and puts the last result into a box. The level is the
# difficulty: one slip anywhere spoils the final answer.
#
# Expect: 9 + 5 = 14; 14 · 7 = 98 = 26 modulo 36; 26 − 11 = 15.

# %%
chain = task.Chain(9, (("+", 5), ("*", 7), ("-", 11)))
results_of_steps = task.true_results(chain)
print("question ", chain.problem)
print("response ", task.worked(chain, results_of_steps))
assert results_of_steps == [14, 26, 15]

# %% [markdown]
# ## The policy
#
# The **policy** $\pi_\theta(o\mid q)$ is a language model: it writes a response token by token, and
# the probability of the whole response is the product of its tokens'. Ours is a real transformer
# with 0.13 million weights $\theta$ that was first trained to imitate worked answers. Its textbook was
# bad on purpose. A *fact* is one step, such as $14\cdot7=26$; of the 540 facts it taught
#
# - most *rightly*,
# - some *confidently wrongly*: the same false result nearly every time,
# - some *at random*: one of twelve results, of which one is right.
#
# So there are questions that the policy knows, questions that it guesses, and questions on which it
# is sure and wrong: the confident mistakes that LENS is about.

# %%
policy = load_policy(config.model, device, seed=0)
print(f"{policy.model.num_parameters():,} weights, {len(policy.tokenizer)} tokens")
for kind, count in task.KIND_COUNTS.items():
    print(f"{kind:6}  {count} facts")
assert sum(task.KIND_COUNTS.values()) == 36 * 5 * 3  # numbers × operands × operations

# %% [markdown]
# ## Station 1: rollouts
#
# Sample a **group** of $G = 16$ responses to each question, at temperature 1: from the policy's own
# probabilities, nothing sharpened or cut off. The sampler hands back the token ids that it drew, the
# length $|o|$ of each response in tokens and the log-probability of each token, in nats (natural
# logarithm).
#
# Expect: 20 questions, four of each level, make 320 responses.

# %%
verifier = Verifier(workers=2)
questions = load_questions("tiny", verifier, limit=20, seed=0).items
questions = tuple(sorted(questions, key=lambda question: question.level))
prompts = tuple(encode_prompt(policy.tokenizer, config.prompt, q.problem) for q in questions)
sampler = make_sampler(policy, config, max(map(len, prompts)), lambda: None)
with one_thread():
    samples = sampler.sample(prompts, responses=16, seed=0)
print("token ids    [B, G, T] =", tuple(samples.ids.shape))
print("lengths      [B, G]    =", tuple(samples.lengths.shape))
print("first response:", policy.tokenizer.decode(samples.ids[0, 0, : samples.lengths[0, 0]]))

# %% [markdown]
# ## Station 2: verification
#
# The **verifier** reads the last closed box of a response, and nothing else, and compares it with
# the known answer. The **reward** $r$ is 1 if they are equal in value, else 0. A probe: the box may
# be written in another way; the work before it may be nonsense; a response without a box gets
# nothing.

# %%
probes = [r"\boxed{15}", r"1+1=3 \boxed{30/2}", r"\boxed{14}", "the answer is 15"]
for text, verdict in zip(probes, verifier.grade(["15"] * 4, probes), strict=True):
    print(f"{text:20} reward {verdict.reward:.0f}  ({verdict.reason})")
assert [v.reward for v in verifier.grade(["15"] * 4, probes)] == [1, 1, 0, 0]

# %% [markdown]
# Now the batch. Expect: a picture with a row a question and a square a response. Filled: correct.
# Rows that are empty are **negative groups**: every response is wrong. Full rows are **correct groups**,
# all others **mixed**.

# %%
batch = grade(Batch(0, questions, prompts, samples), policy.tokenizer, verifier)
verifier.close()
kind = group_kind(batch.rewards)
words = ["negative", "mixed", "correct"]

fig, ax = plt.subplots(figsize=(8.5, 6.4))
shown = batch.rewards.sort(-1, descending=True).values
ax.pcolormesh(shown.numpy(), cmap="Greys", vmin=-0.12, vmax=1.3, edgecolors="white", linewidth=2)
labels = [f"level {q.level}" for q in questions]
ax.set_yticks(np.arange(20) + 0.5, labels, fontsize=11)
for row, k in enumerate(kind.tolist()):
    ax.text(16.3, row + 0.5, words[k], va="center", weight="bold" if k == 0 else "normal")
ax.set(xlabel="response in the group of 16 (correct ones first)", xlim=(0, 16))
ax.grid(visible=False)
ax.invert_yaxis()
plt.show()
print({word: int((kind == i).sum()) for i, word in enumerate(words)})

# %% [markdown]
# The number of correct squares falls with the level; but there is a negative group at level 1
# already: a fact that the textbook taught badly is wrong in a short question too.
#
# ## Station 3: advantages
#
# First the **old log-probabilities** $\log\pi_{\theta_{\text{old}}}$: those of the policy that sampled,
# computed once by the model that is trained and then frozen. From them the **confidence** of a
# response, the geometric mean of its token probabilities:
#
# $$\bar\pi_i = \pi_{\theta_{\text{old}}}(o_i\mid q)^{1/|o_i|} \qquad\text{(Section 5.1, length
# normalisation)}$$
#
# Then a method makes **advantages** $A_i$ of rewards and confidences: how hard to push each response,
# up or down. GRPO's are the standardised rewards, so 0 in every negative group.

# %%
updater = Updater(policy, config.rollout, config.optimizer, config.loss, lambda: None)
with one_thread():
    batch = updater.freeze_old(batch)
rollouts = batch.rollouts()
grpo, lens = methods.get("grpo")(rollouts), methods.get("lens")(rollouts)
print("advantages [B, G] =", tuple(lens.advantages.shape))
negative = kind == 0
print("largest |A| in negative groups:")
print(f"  GRPO {grpo.advantages[negative].abs().max():.4f}")
print(f"  LENS {lens.advantages[negative].abs().max():.4f}")
assert grpo.advantages[negative].abs().max() == 0

# %% [markdown]
# ### Two all-wrong groups, looked at
#
# Expect two kinds of failure. In the first group the policy *guesses*: many different answers, none
# of them right. In the second it is *sure*: nearly all 16 responses are the same wrong one.

# %%
distinct = torch.tensor([len(set(texts)) for texts in batch.texts])
guessing = int(torch.where(negative, distinct, -1)[:4].argmax())  # of level 1
sure = int(torch.where(negative, distinct, 99).argmin())
for name, b in (("guessing", guessing), ("sure", sure)):
    print(f"{name}: {questions[b].problem}   right: {questions[b].answer}")
    for text, times in Counter(batch.texts[b]).most_common(4):
        g = batch.texts[b].index(text)
        print(f"  {times:2} ×  confidence {batch.confidence()[b, g]:.2f}  {text}")
    print(f"  {distinct[b]} different responses of 16\n")

# %% [markdown]
# What the textbook said about the last step of the sure answer:

# %%
fact = task.fact_table()[6, "-", 13]
print(f"6 - 13 = {task.apply_step(6, '-', 13)} modulo 36, taught {fact.kind}: {fact.favoured}")

# %% [markdown]
# A confident mistake, and no GRPO step will ever touch it while all 16 answers are wrong. LENS does,
# by the practical algorithm of Section 5.1. In a negative group the difficulty $D$ is its
# **guard**, and the calibrated reward $\tilde r$ takes from a wrong answer the odds $u$ that the
# policy gave it, divided by $G$; then the group mean is taken off (*de-meaning*) and the rest is
# multiplied by $\alpha = 0.25$:
#
# $$D = 2\max_j \bar\pi_j,\qquad u_i=\frac{\bar\pi_i}{D-\bar\pi_i},\qquad
# \tilde r_i = r_i-(1-r_i)\,\frac1G\,u_i,\qquad A_i = \alpha\,(\tilde r_i-\mathrm{mean}\,\tilde r)$$
#
# Expect: the most confident answer has $u = 1$ exactly, whatever its confidence, so
# $\tilde r = -1/16$. The sure answer is pushed down, the other three up.

# %%
confidence = batch.confidence()[sure]
D = 2 * confidence.max()
u = confidence / (D - confidence)
r_tilde = -u / 16
A = 0.25 * (r_tilde - r_tilde.mean())
for text, times in Counter(batch.texts[sure]).most_common():
    g = batch.texts[sure].index(text)
    print(f"{times:2} ×  confidence {confidence[g]:.2f}  u {u[g]:.2f}  A {A[g]:+.4f}  {text}")
assert u.max() == 1
assert torch.allclose(A.float(), lens.advantages[sure], atol=1e-7)

# %% [markdown]
# The right answer (29) is not among the three that are pushed up: nobody sampled it. What is pushed
# up is *something else than the mistake*, in the hope that exploration finds the rest.
#
# And look at the size: a mixed group's advantages are around 1. How loud a negative group is beside
# a mixed one is logged at each update as
#
# $$\texttt{neg\_to\_mixed\_rms} = \frac{\mathrm{RMS}(A \text{ in negative groups})}
# {\mathrm{RMS}(A\text{ in mixed groups})}$$
#
# with RMS the root of the mean square. Expect a whisper for LENS as printed, and 1:4 (which is
# $\alpha$) where negative groups are divided by their standard deviation too (`negative_std`, a
# reading that the paper excludes: "de-meaning only").

# %%
for preset in ("paper", "neg_unscaled", "no_demean", "negative_std"):
    signal = lens_advantages(batch.rollouts(), LensConfig.preset(preset))
    loudness = neg_to_mixed_rms(signal.advantages, kind, signal.keep)
    print(f"{preset:13} neg_to_mixed_rms = {loudness:.4f}   (1 : {1 / loudness:.0f})")
assert abs(loudness - 0.25) < 1e-3

# %% [markdown]
# ## Station 4: the update, and "why is the loss 0?"
#
# The optimizer maximises the clipped surrogate $J$ of GRPO (Section 3.2): with the *ratio*
# $\rho_{i,t}$ of new to old probability of token $t$,
#
# $$J = \frac1G\sum_{i}\frac1{|o_i|}\sum_{t}\min\big(\rho_{i,t}A_i,\ \mathrm{clip}(\rho_{i,t},\,1-\epsilon,\,
# 1+\epsilon)\,A_i\big),\qquad \text{loss} = -J.$$
#
# (The paper writes ρ; in this project's code it is always called ratio.) At the first update on a
# batch nothing has changed yet: every ratio is 1, so $J = \mathrm{mean}(A)$, and that is 0 because each
# group's advantages sum to 0. The *gradient* is $\frac1G\sum_i A_i\,\frac1{|o_i|}\sum_t\nabla\log\pi$,
# which is not 0 at all.
#
# A literal of two one-token answers with $A = (1, -1)$: loss 0, gradient $\mp\frac12$.

# %%
logprobs = torch.tensor([[-1.0], [-2.0]], requires_grad=True)
out = grpo_loss(
    logprobs, logprobs.detach(), torch.tensor([1.0, -1.0]), torch.ones(2, 1, dtype=torch.bool)
)
out.loss.backward()
print("loss", out.loss.item(), "  gradient", logprobs.grad.flatten().tolist())
assert out.loss.item() == 0
assert logprobs.grad.flatten().tolist() == [-0.5, 0.5]

# %% [markdown]
# The same on the real batch, four times, each from a fresh copy of the policy: the whole batch
# under GRPO; then the sure group alone, under GRPO, under LENS as printed and under LENS without its
# 1/G. Beside the loss: the norm of the gradient, how far the weights moved
# ($\lVert\Delta\theta\rVert$), and the log-probability of the sure answer.
#
# Expect: the loss is 0 in *all four* cases. Only `grad_norm` tells the one that has nothing to learn
# from the three that do.


# %%
def one_update(method, groups):
    """Loss, gradient norm, change of the weights and of log π(the sure answer)."""
    fresh = load_policy(config.model, device, seed=0)
    optimizer = replace(config.optimizer, warmup_updates=0)
    updater = Updater(fresh, config.rollout, optimizer, config.loss, lambda: None)
    before = torch.cat([p.detach().flatten() for p in fresh.model.parameters()])
    with one_thread():
        stats = updater.step(replace(batch, signal=method(rollouts)), groups, update=0)
        after = torch.cat([p.detach().flatten() for p in fresh.model.parameters()])
        logprob = updater.freeze_old(batch).sequence_logprobs()[sure, 0]
    return stats, (after - before).norm(), logprob - batch.sequence_logprobs()[sure, 0]


only_sure = slice(sure, sure + 1)
assert batch.texts[sure][0] == Counter(batch.texts[sure]).most_common(1)[0][0]
print("                           loss   grad_norm   |change of θ|   change of log π(sure answer)")
for name, method, groups in (
    ("GRPO, whole batch", methods.get("grpo"), slice(None)),
    ("GRPO, sure group alone", methods.get("grpo"), only_sure),
    ("LENS, sure group alone", methods.get("lens"), only_sure),
    ("LENS, no 1/G, alone", methods.get("lens", preset="neg_unscaled"), only_sure),
):
    stats, moved, change = one_update(method, groups)
    loss = abs(stats.loss) if abs(stats.loss) < 1e-6 else stats.loss
    print(f"{name:23} {loss:8.4f}   {stats.grad_norm:9.5f}   {moved:13.4f}   {change:+.5f}")

# %% [markdown]
# Read the last two rows against the first. Alone, a negative group under LENS has a gradient dozens
# of times smaller than a whole batch under GRPO, *and moves the weights as far*: Adam divides a
# gradient by its own recent size, so that a whisper in an empty room is as loud as a shout, and the
# 1/G makes no difference. In a real batch mixed groups speak at the same time, and the whisper is
# lost. Whether a negative group is heard depends on who else talks:
# [notebook 05](05_toy_dynamics.ipynb) shows both cases.
#
# So, **why is the loss 0?** Look at two more numbers: `grad_norm` above 0 means that it learns;
# `mixed_share` (of groups) at 0 for many updates means that GRPO does not, and the training command
# warns you. Watch the reward, not the loss.
#
# ## The loop, live
#
# Now all four stations, again and again: 40 updates under GRPO, and 40 under LENS as printed, from
# the same policy, seed and questions. They train on 32 questions only, so that it shows within a
# minute. Each question comes back ten times: the runs *practise* these 32. That is the first test
# of any training loop, and no evidence of generalisation; the long runs below have their own test
# questions.
#
# Expect: a line for every rollout batch; the reward rises, the share of negative groups falls, both
# noisily. (Each line counts the 8 questions of one update.)

# %%
settings = {
    "steps": 40, "data.train_questions": 32, "rollout.questions": 32, "optimizer.lr": 1e-3,
    "optimizer.warmup_updates": 0, "eval.every": 40, "eval.n": 16, "checkpoint.every": 0,
    "device": "cpu",
}  # fmt: skip
with Verifier(workers=1) as checker:
    chosen = load_questions("tiny", checker, limit=32, seed=0)
runs, trained = {}, {}
for method in ("grpo", "lens"):
    print(display(method))
    live = load("tiny", settings | {"methods": [method]})
    runs[method], trained[method] = train(live, train_on=chosen, test_on=chosen)

# %%
fig, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
for i, (method, run) in enumerate(runs.items()):
    batches = run.metrics.groupby((run.metrics["step"] - 1) // 4).mean(numeric_only=True)
    for ax, column in zip(axes, ("reward", "negative_share"), strict=True):
        ax.plot(4 * (batches.index + 1), batches[column], label=display(method), **line(3 * i))
for ax, title in zip(axes, ("reward: share of correct answers", "negative groups"), strict=True):
    ax.set(xlabel="updates", title=title, ylim=(0, 1))
axes[0].set_ylabel("share")
axes[1].legend()
plt.show()

# %% [markdown]
# How sure can we be that they learned, with 32 questions? Each question has its rate of correct
# answers before and after; the **bootstrap** draws 32 questions with replacement, many times, and
# takes the middle 95 % of the mean change. (It says how far another 32 questions could move the
# result, not another seed.) The same for the difference between the two, question by question.


# %%
def rates(run):
    """`[question, step]`: the share of correct answers before and after."""
    table = run.counts.assign(rate=run.counts["correct"] / run.counts["n"])
    return table.pivot(index="question", columns="step", values="rate")


def points(name, values):
    x = bootstrap_interval(values.to_numpy()).times(100)
    print(f"{name:22} {x.mean:+3.0f} points of pass@1, 95 % interval [{x.low:+.0f}, {x.high:+.0f}]")
    return x


before = rates(runs["lens"])[0]
after = {method: rates(run)[40] for method, run in runs.items()}
for method in runs:
    assert points(f"{display(method)}: change", after[method] - before).low > 0
points("LENS minus GRPO", after["lens"] - after["grpo"])
never = before == 0
print(
    f"\n{never.sum()} of 32 questions had no correct answer in 16 before. With one after training:"
)
for method in runs:
    print(f"  {display(method):16} {(after[method][never] > 0).sum()}")
print(f"  both             {((after['grpo'] > 0) & (after['lens'] > 0))[never].sum()}")

# %% [markdown]
# Both learn; between them no difference can be told. And mind the last lines: *GRPO too* solves
# questions whose groups were all wrong. It never learns from those groups, but questions share facts,
# and a lucky draw in a later epoch makes a group mixed. Whoever shows a hard question that a LENS run
# has solved must show the GRPO run beside it. Here both are:
#
# ### Samples before and after
#
# The same prompts, three responses each, from the policy before and after. Three questions: one that
# both runs learned, the sure mistake from above, and one that neither solved.

# %%
both = pd.DataFrame(after).min(axis=1) - before
learned = next(q for q in chosen.items if q.id == both.idxmax())
unsolved = next(q for q in chosen.items if after["lens"][q.id] + after["grpo"][q.id] == 0)
for question in (learned, questions[sure], unsolved):
    prompt = encode_prompt(policy.tokenizer, config.prompt, question.problem)
    print(f"{question.problem}   right: {question.answer}")
    for name, model in (("before", policy), *((display(m), trained[m]) for m in trained)):
        its = make_sampler(model, config, len(prompt), lambda: None).sample((prompt,), 3, seed=1)
        for ids, length in zip(its.ids[0], its.lengths[0].tolist(), strict=True):
            print(f"   {name:16} {policy.tokenizer.decode(ids[:length], skip_special_tokens=True)}")
    print()

# %% [markdown]
# The LENS run has repaired the sure mistake, and the GRPO run has not! Is that LENS at work, as the
# paper tells it? Look before you believe. Here is how often each run had that question right among its
# 16 responses, one number for each rollout batch, and how confident its answers were.
#
# Expect, if it is LENS: the confidence falls, step by step, while all answers are still wrong.

# %%
for method, run in runs.items():
    rows = run.groups[run.groups["question"] == questions[sure].id]
    print(display(method))
    print("  correct of 16  ", "  ".join(f"{c:4.0f}" for c in rows["correct"]))
    print("  confidence     ", "  ".join(f"{c:.2f}" for c in rows["confidence"]))

# %% [markdown]
# While the group was negative, the confidence went the same way in both runs, whatever the method. Then
# one run *drew* a right answer by chance; from there the group was mixed, and any method learns from
# mixed groups, GRPO too. One example, however striking, is not evidence. It takes a control and
# several seeds.
#
# ### Right box, wrong work
#
# The first question above deserves a second look: is *each step* of the answers after training right?
# The verifier reads the box alone, so that two slips that cancel earn the full reward, and training
# makes them a habit. Here the right work is known: count the correct boxes that come from other work.


# %%
def with_wrong_work(model):
    """Among the responses with a correct box, the share whose work is not the right one."""
    prompts = tuple(encode_prompt(policy.tokenizer, config.prompt, q.problem) for q in chosen.items)
    with one_thread():
        drawer = make_sampler(model, config, max(map(len, prompts)), lambda: None)
        sampled = drawer.sample(prompts, 16, seed=2)
    found = []
    for question, group, lengths in zip(chosen.items, sampled.ids, sampled.lengths, strict=True):
        steps = re.findall(r"\) ([-+*])(\d+)", question.problem)
        its = task.Chain(int(question.problem.split()[0]), tuple((op, int(b)) for op, b in steps))
        right = task.worked(its, task.true_results(its))
        for ids, length in zip(group, lengths, strict=True):
            text = policy.tokenizer.decode(ids[:length], skip_special_tokens=True)
            if text.endswith(f"{{{question.answer}}}"):
                found.append(text != right)
    return np.mean(found)


for name, model in (("before", policy), *((display(m), trained[m]) for m in trained)):
    print(f"{name:16} {with_wrong_work(model):4.0%} of the correct boxes stand on wrong work")

# %% [markdown]
# A *verifiable* reward verifies the answer, not the reasoning. No treatment of negative groups mends
# that: to both methods these responses are as good as any.

# %% [markdown]
# ## What five seeds say
#
# The committed runs in `results/tiny` train on 60 updates of 32 questions × 16 answers each, and
# test on 250 questions that no run trained on. **pass@k** is the probability that at least one of $k$
# responses is correct, estimated without bias from $n = 16$ of which $c$ are correct:
#
# $$\text{pass@}k = 1-\binom{n-c}{k}\Big/\binom nk$$
#
# A literal: 1 of 4 correct, $k = 2$; three of the six pairs hold it, so 1/2.

# %%
assert pass_at_k(4, 1, 2) == 0.5
committed = read_committed("tiny")
curves, updates = committed.curves, committed.updates
last = curves["step"].max()
methods = ["grpo", "lens", "lens-negative_std"]
print({display(m): len(committed.seeds(m)) for m in methods}, "seeds,", int(last), "updates")

# %% [markdown]
# Expect: two panels with pass@1 and pass@16 by level, before (open markers) and after; bars are 95 %
# intervals over the five seeds. All three methods gain, at level 1 least.

# %%
levels = ["1", "2", "3", "4", "5"]


def by_level(method, step, column):
    """Mean and half-width of the interval over seeds, %, for each level."""
    rows = curves[(curves["method"] == method) & (curves["step"] == step)]
    cells = [t_interval(100 * rows[rows["level"] == level][column]) for level in levels]
    return np.array([(c.mean, c.mean - c.low) for c in cells]).T


series = [("grpo", 0, "before"), *((m, last, display(m)) for m in methods)]
fig, axes = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True)
for ax, column in zip(axes, ("pass@1", "pass@16"), strict=True):
    for i, (method, step, label) in enumerate(series):
        mean, half = by_level(method, step, column)
        look = line(i) | {"linestyle": "none", "markersize": 9, "capsize": 4}
        look |= {"markerfacecolor": "white"} if step == 0 else {}
        ax.errorbar(np.arange(5) + 0.16 * (i - 1.5), mean, half, label=label, **look)
    ax.set(xlabel="level", title=column, xticks=range(5), xticklabels=levels, ylim=(0, 100))
axes[0].set_ylabel("% of test questions")
axes[1].legend(fontsize=11, loc="lower left")
plt.show()

# %% [markdown]
# The marks of the three methods lie close together. To compare fairly, subtract *seed by seed*: GRPO
# and LENS with the same seed saw the same questions. Expect: nearly all intervals cover 0. (Of
# intervals at 95 % one in twenty misses the truth, so one that does not cover 0, among so many,
# proves little.)


# %%
def difference(method, level, column):
    """Method minus GRPO, points, interval over seeds."""
    rows = curves[(curves["step"] == last) & (curves["level"] == level)]
    table = rows.pivot(index="seed", columns="method", values=column)
    return t_interval(100 * (table[method] - table["grpo"]))


wanted = ["all", *levels]
fig, axes = plt.subplots(1, 2, figsize=(11, 4.6), sharey=True)
for ax, column in zip(axes, ("pass@1", "pass@16"), strict=True):
    for i, method in enumerate(methods[1:], start=1):
        cells = [difference(method, level, column) for level in wanted]
        look = line(i + 1) | {"linestyle": "none", "markersize": 9, "capsize": 4}
        ax.errorbar(
            np.arange(6) + 0.2 * (i - 1.5),
            [c.mean for c in cells],
            [c.mean - c.low for c in cells],
            label=display(method),
            **look,
        )
    ax.axhline(0, color="black", linewidth=1.2)
    ax.set(xlabel="level", title=column, xticks=range(6), xticklabels=wanted)
axes[0].set_ylabel("minus GRPO, points")
axes[0].legend(fontsize=11)
plt.show()
for method in methods[1:]:
    d = difference(method, "all", "pass@1")
    verdict = "no difference can be told" if d.covers_zero else "a difference"
    print(f"{display(method):18} {d.mean:+.1f} points [{d.low:+.2f}, {d.high:+.2f}]: {verdict}")

# %% [markdown]
# ## Why so little? The loudness, at each update
#
# Expect: LENS as printed gives a negative group far less than a hundredth of the advantage of a mixed
# one, from the first update to the last; with the standard deviation it is 1/4 by construction. GRPO's
# is 0 and can't be drawn on this axis.

# %%
fig, ax = plt.subplots()
for i, method in enumerate(methods[1:], start=1):
    rows = updates[updates["method"] == method]
    table = rows.pivot(index="step", columns="seed", values="neg_to_mixed_rms")
    mean = moving_average(table.mean(axis=1).to_numpy(), 8)
    look = line(i + 1) | {"markevery": 8}
    ax.fill_between(table.index, table.min(axis=1), table.max(axis=1), alpha=0.2, color="grey")
    label = f"{display(method)} (median 1 : {1 / np.nanmedian(table):.0f})"
    ax.plot(table.index, mean, label=label, **look)
ax.set(xlabel="updates", ylabel="neg_to_mixed_rms", yscale="log", ylim=(5e-4, 1))
ax.legend(loc="center right")
plt.show()

# %% [markdown]
# (Lines: mean over seeds, averaged over eight updates; grey: all seeds.) So the two treatments are not
# two shades of one: LENS as printed leaves negative groups almost silent and trains like GRPO;
# `negative_std` makes them heard, and on this model that does harm rather than good. The paper's
# gains are at 3 and 8 billion weights, which this model can't speak for. What would decide it is
# in [notebook 10](10_reproduction.ipynb).
#
# ## What you have seen
#
# - The loop has four stations: rollouts → verification → advantages → update. A method lives in the
#   third and sees numbers only.
# - Negative groups come in two kinds, guesses and confident mistakes. LENS pushes the confident
#   answer down and the others up, without knowing which one is right.
# - A response that is rewarded need not be right in its steps; a repaired mistake need not be the
#   method's doing.
# - A loss of 0 is the rule on-policy, for every zero-sum method. `grad_norm` and the reward say
#   whether anything is learned.
# - As printed, a negative group is hundreds of times quieter than a mixed one, and pass@1 can't be told
#   from GRPO's. Alone in a batch, Adam would make it loud.
#
# ## Questions for the class
#
# 1. In the sure group 13 answers are equal. What does LENS do if all 16 are? What should it do?
# 2. The policy guesses a fact with twelve results, one of them right. With $G = 16$, how often is
#    its group negative? And with $G = 4$?
# 3. Practising 32 questions raised pass@1 on them by far more than the long runs did on new
#    questions. Which facts can a run repair at all? (Which answers does it ever sample?)
# 4. Write down a run whose result would convince you that LENS as printed beats GRPO here. How many
#    seeds does it need?
#
# Your own runs: `python -m lens_ref.train --method grpo lens --seed 1`; what is logged is explained in
# [metrics](../docs/metrics.md). Exercises: [exercises](exercises/). Next:
# [08 · LoRA on one GPU](08_lora_qwen.ipynb).
