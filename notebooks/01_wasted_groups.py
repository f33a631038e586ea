# %% [markdown]
# # 01 · Groups that teach nothing
#
# A language model answers a question 16 times, every answer is wrong, and the training step that
# follows does nothing at all. This notebook builds GRPO from nothing, shows why such a group
# teaches nothing, how often that happens, and what it costs.
#
# **You need:** what a probability, a logarithm and a gradient are; a little PyTorch. No
# reinforcement learning: each word is explained where it first appears and again in the
# [glossary](../docs/glossary.md).
#
# **Afterwards you can**
# - compute the GRPO advantages of a group by hand,
# - answer "why is my loss 0?" and say when that is a bad sign,
# - predict how often a group is all wrong, $(1-p)^G$, and say why the mean accuracy misleads.

# %%
import matplotlib.pyplot as plt
import pandas as pd
import torch
from classroom import line, results, start

from lens_ref import Rollouts, group_kind, grpo_loss, lens_advantages, methods, pass_at_k, value
from lens_ref.rlvr.statistics import t_interval
from toy.spaces import OPTIONS, six_options

device = start(0.3, "pandas")
F64 = torch.float64

# %% [markdown]
# ## A question, a policy, a reward
#
# Take one multiple-choice *question* $q$ with six possible *responses* $o$: A to F. A and B are
# correct. (In a language model a response is a whole text; here it is one letter, so that we can
# list them all.)
#
# - The **policy** $\pi_\theta(o \mid q)$ is the model: the probability that it answers $o$. The
#   numbers $\theta$ that training may change are here six *logits*; softmax turns them into
#   probabilities.
# - The **reward** $r^\star(q, o)$ is 1 for a correct response and 0 for a wrong one. A program
#   checks the answer, nobody judges the reasoning: reinforcement learning with *verifiable*
#   rewards.
# - What we want is a large expected reward, the paper's objective:
#
# $$J(\pi) = \mathbb{E}_{o\sim\pi}\,[\,r^\star(q, o)\,] \qquad\text{(Section 3.1)}$$
#
# ($\mathbb{E}_{o\sim\pi}$ is the expected value when $o$ is drawn from $\pi$. The paper also
# averages over questions; we have one.)
#
# Expect: a policy that believes in the wrong answer C, and $J = 0.1$, the probability of A or B.

# %%
space = six_options(p_correct=0.1)
first_logits = torch.tensor(space.logits[0, 0])
correct = torch.tensor(space.correct[0, 0], dtype=F64)

pi = first_logits.softmax(-1)
for option, p, r in zip(OPTIONS, pi.tolist(), correct.tolist(), strict=True):
    print(f"{option}   pi = {p:.2f}   reward = {r:.0f}")
print(f"\nJ = expected reward = {value(pi, correct):.2f}")

# %% [markdown]
# ## Learning by trial: the policy gradient
#
# We may only *sample* responses and see their rewards. The **policy gradient** says what to do with
# a sample: move $\theta$ so that its log-probability grows, times the reward.
#
# $$\nabla_\theta J(\pi_\theta) = \mathbb{E}_{o\sim\pi_\theta}\big[\, r \cdot \nabla_\theta
# \log \pi_\theta(o \mid q)\,\big] \qquad\text{("Comparison with Policy Gradient", Section 4.2)}$$
#
# ($\nabla_\theta$, a gradient, is the direction in which something grows fastest.) This is
# **REINFORCE**: correct responses are pushed up, wrong ones are not pushed at all. For a softmax the
# push on the logits is $\nabla \log \pi(o) = e_o - \pi$, where $e_o$ is 1 at $o$ and 0 elsewhere:
# up by 1 for the response itself, down for everybody by their own probability.
#
# Expect: the sum over all six responses, weighted by $\pi \cdot r$, is the gradient that PyTorch
# finds.

# %%
logits = first_logits.clone().requires_grad_()
(exact,) = torch.autograd.grad(value(logits.softmax(-1), correct), logits)

push = torch.eye(6, dtype=F64) - pi  # row o: the gradient of log pi(o)
by_formula = (pi * correct) @ push

print("PyTorch  ", exact)
print("formula  ", by_formula)
assert (exact - by_formula).abs().max() < 1e-15

# %% [markdown]
# ## From reward to advantage
#
# REINFORCE pushes every correct response equally hard, however common success is. It is better to
# ask: *was this response better than what the policy usually does?* The answer is its **advantage**
# $A$: positive for better, negative for worse.
#
# **GRPO** (Group Relative Policy Optimization) finds it by comparison. It samples a **group** of
# $G$ responses to the same question (a *rollout* is one such response) and normalises their rewards
# to mean 0 and standard deviation 1:
#
# $$\widehat r_i = \frac{r_i - \mathrm{mean}(r_1, \dots, r_G)}{\mathrm{std}(r_1, \dots, r_G)}
# \qquad\text{(group advantages, Section 3.2)}$$
#
# The result is used as the advantage, $A_i = \widehat r_i$. (The std divides by $G$ here,
# `correction=0`; the paper does not say.) By hand, for $G = 4$ and one correct response: mean
# $1/4$, std $\sqrt{3}/4$, so the correct one gets $\sqrt 3 \approx 1.732$ and the others
# $-1/\sqrt 3 \approx -0.577$.

# %%
rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
by_hand = (rewards - rewards.mean()) / rewards.std(correction=0)
print("by hand    ", by_hand)


def rollouts(rewards: torch.Tensor, log_pi: torch.Tensor | None = None) -> Rollouts:
    """Groups `[B, G]` of one-token responses; GRPO does not look at their probabilities."""
    log_pi = torch.full_like(rewards, -1.0) if log_pi is None else log_pi
    return Rollouts(rewards=rewards, logprobs=log_pi, lengths=torch.ones_like(rewards))


grpo = methods.get("grpo")
print("the library", grpo(rollouts(rewards[None])).advantages[0])
assert torch.allclose(by_hand, torch.tensor([1.7320508, -0.5773503, -0.5773503, -0.5773503]))

# %% [markdown]
# The advantage tells every response where it stands *in its group*. So what about a group in which
# nobody stands out? There are three kinds of groups:
#
# - **mixed**: right and wrong responses;
# - **negative**: every response is wrong;
# - **correct**: every response is right.
#
# In the last two all rewards are equal: $r_i - \mathrm{mean} = 0$ for everybody. (The formula says
# $0/0$; the library makes it 0.)
#
# Expect: advantages in the mixed group only.

# %%
batch = rollouts(torch.tensor([[1.0, 0, 0, 0], [0.0, 0, 0, 0], [1.0, 1, 1, 1]]))
names = ["negative", "mixed", "correct"]
advantages = grpo(batch).advantages
for kind, r, a in zip(group_kind(batch.rewards), batch.rewards, advantages, strict=True):
    print(f"{names[kind]:9} rewards {r.tolist()}   advantages {[round(x, 3) for x in a.tolist()]}")
assert advantages[1:].abs().max() == 0

# %% [markdown]
# A correct group needs no lesson. A negative group needs one most, and gets none: it was sampled,
# checked, and thrown away.
#
# ## "Why is the loss 0?"
#
# To use the advantages, GRPO maximises a *clipped surrogate* (an objective that is there for its
# gradient; its value means little). The library returns minus it, as a loss to minimise:
#
# $$J_{\mathrm{GRPO}} = \frac1G\sum_{i=1}^G \frac{1}{|o_i|}\sum_{t=1}^{|o_i|}
# \min\big(\mathrm{ratio}_{i,t}\,A_i,\ \mathrm{clip}(\mathrm{ratio}_{i,t},\,1-\epsilon,\,1+\epsilon)
# \,A_i\big) \qquad\text{(GRPO objective, Section 3.2)}$$
#
# - $|o_i|$ is the length of response $i$ in *tokens* (the pieces of words in which a language model
#   writes), $t$ counts them.
# - $\mathrm{ratio}_{i,t}$ is the token's probability under the policy being trained over that under
#   the policy that sampled. The paper writes $\rho$ for it, and later $\rho$ again for something
#   else; here it is always called the *ratio*.
# - *clip* cuts the ratio to $[1-\epsilon, 1+\epsilon]$: one batch can't move the policy far.
#
# Right after sampling, both policies are the same (**on-policy**): every ratio is 1, nothing is
# clipped, and the loss is minus the mean advantage: 0, because advantages are *built* to have mean
# 0. But a loss of 0 does not mean a gradient of 0:
#
# $$\frac{\partial\,\mathrm{loss}}{\partial \log\pi_{i,t}} = -\frac{A_i}{G\,|o_i|}
# \qquad\text{at ratio 1}$$
#
# Expect, for a group of two, one right (2 tokens) and one wrong (4 tokens), with advantages $\pm1$:
# loss 0, ratio 1, gradient $-1/4$ on each token of the first and $+1/8$ on each of the second.

# %%
sampled = torch.full((2, 4), -1.0)  # log-probabilities of the tokens when they were sampled
mask = torch.tensor([[True, True, False, False], [True, True, True, True]])  # the real tokens


def look(rewards: list[float]) -> torch.Tensor:
    """Print loss, ratio and gradient of one on-policy group of two; return the gradient."""
    new = sampled.clone().requires_grad_()  # on-policy: the same numbers
    advantages = grpo(rollouts(torch.tensor([rewards]))).advantages[0]
    output = grpo_loss(new, sampled, advantages, mask)
    gradient = torch.autograd.grad(output.loss, new)[0] + 0.0  # + 0 makes a 0 of a "−0"
    print(f"rewards {rewards}: loss {abs(output.loss):.3f}, ratio {output.mean_ratio:.3f}")
    print("gradient", gradient.tolist(), "\n")
    return gradient


# %%
mixed, negative = look([1.0, 0.0]), look([0.0, 0.0])
assert mixed.tolist() == [[-0.25, -0.25, 0, 0], [0.125] * 4]
assert negative.abs().max() == 0

# %% [markdown]
# Two zeros that look alike in a log file. The first group has loss 0 *and teaches*: training
# follows the gradient, never the value of the loss. The second has loss 0 and teaches nothing.
#
# So watch the **reward**, the **gradient norm** (the length of the gradient) and the share of
# negative groups, not the loss. (It is not always 0: from the second update on the same batch on,
# ratios differ from 1. And where long responses weigh more, as under the option
# `aggregation="token_mean"`, it differs from 0 even on-policy.)
#
# ## A training run with a loss of 0
#
# Now the whole of GRPO on the six options: sample a group, compute advantages, take one gradient
# step, repeat, always with fresh samples. The policy begins with $P(\text{correct}) = 0.03$.


# %%
def grpo_step(logits: torch.Tensor, group_size: int, rate: float):
    """Sample one group, take one step; returns the new logits, the loss and the group's kind."""
    logits = logits.detach().requires_grad_()
    drawn = torch.multinomial(logits.softmax(-1), group_size, replacement=True)
    log_pi = logits.log_softmax(-1)[drawn]
    group = rollouts(correct[drawn][None])
    advantages = grpo(group).advantages[0]
    one_token = torch.ones(group_size, 1, dtype=torch.bool)
    loss = grpo_loss(log_pi[:, None], log_pi.detach()[:, None], advantages, one_token).loss
    (gradient,) = torch.autograd.grad(loss, logits)
    return logits.detach() - rate * gradient, loss.item(), group_kind(group.rewards).item()


# %% [markdown]
# Expect: the loss is 0 at every single update, while the probability of a correct answer climbs
# from 0.03 to nearly 1. It stands still wherever the group was negative (grey) and, late in the
# run, where all four were right. ($G = 4$: small groups are often negative.)

# %%
torch.manual_seed(4)
logits, losses, kinds = torch.tensor(six_options(0.03).logits[0, 0]), [], []
accuracies = [value(logits.softmax(-1), correct).item()]
for _ in range(150):
    logits, loss, kind = grpo_step(logits, group_size=4, rate=0.3)
    losses.append(loss)
    kinds.append(kind)
    accuracies.append(value(logits.softmax(-1), correct).item())
print(f"largest |loss| of 150 updates: {max(map(abs, losses)):.6f}")
print(f"P(correct): {accuracies[0]:.2f} -> {accuracies[-1]:.2f}")
print(f"groups: {kinds.count(0)} negative, {kinds.count(1)} mixed, {kinds.count(2)} correct")
assert max(map(abs, losses)) < 1e-12
assert accuracies[-1] > 0.9
assert all(accuracies[i] == accuracies[i + 1] for i in range(150) if kinds[i] != 1)

# %%
fig, ax = plt.subplots()
negative = [i for i, kind in enumerate(kinds) if kind == 0]
for i in negative:
    first = {"label": "negative group: nothing moves"} if i == negative[0] else {}
    ax.axvspan(i, i + 1, color="0.8", linewidth=0, **first)
ax.plot(accuracies, **(line(0) | {"marker": ""}), label="P(correct), exact")
ax.plot(range(1, 151), losses, **(line(3) | {"marker": ""}), label="loss")
ax.set(xlabel="updates", ylabel="P(correct), and the loss", ylim=(-0.1, 1.05), xlim=(0, 150))
ax.legend(loc="center right")
plt.show()

# %% [markdown]
# ## How often? $(1-p)^G$
#
# If one response is right with probability $p$ and the $G$ responses are independent, then each of
# them is wrong with probability $1-p$, and all of them with
#
# $$P(\text{negative group}) = (1-p)^G.$$
#
# A fair coin, four tosses: $(1/2)^4 = 1/16$. Expect the simulation to agree within its noise.

# %%
assert (1 - 0.5) ** 4 == 1 / 16


def simulated(p: float, group_size: int, groups: int = 20_000) -> float:
    """Share of negative groups among that many sampled ones."""
    right = (torch.rand(groups, group_size) < p).double()
    return (group_kind(right) == 0).double().mean().item()


for p, group_size in ((0.5, 4), (0.1, 16), (0.01, 16), (0.01, 64)):
    exact = (1 - p) ** group_size
    share = simulated(p, group_size)
    print(f"p = {p:<5} G = {group_size:<3} formula {exact:.3f}   simulated {share:.3f}")
    assert abs(share - exact) < 5 * (exact * (1 - exact) / 20_000) ** 0.5

# %%
p = torch.logspace(-4, 0, 200)
fig, ax = plt.subplots()
for i, group_size in enumerate((4, 16, 64, 256)):
    ax.semilogx(p, 100 * (1 - p) ** group_size, **line(i), markevery=25, label=f"G = {group_size}")
ax.axhline(50, color="0.4", linewidth=1)
ax.set_xlabel("p, the chance that one response is right (log scale)")
ax.set_ylabel("negative groups, %")
ax.legend()
plt.show()

# %% [markdown]
# Read the figure along the 50 % line. Half of the groups are negative where
# $G \approx \ln 2 / p \approx 0.7/p$: a question solved once in a hundred tries needs about 69
# samples before only every other group is negative. Sampling ten times as much buys questions that
# are ten times as hard, no more.
#
# ## The mean accuracy misleads
#
# A training set holds easy and hard questions. What counts is the mean of $(1-p_q)^G$ over
# questions, *not* $(1-\text{mean } p)^G$. Since $(1-p)^G$ is convex in $p$, the true share is never
# the smaller of the two (Jensen's inequality), and often far larger.
#
# Expect: two sets of questions, both with 25 % accuracy; one has 1 % negative groups, the other
# 75 %.

# %%
alike = torch.tensor([0.25, 0.25, 0.25, 0.25])
apart = torch.tensor([1.0, 0.0, 0.0, 0.0])
for name, set_of_p in (("all alike ", alike), ("one solved", apart)):
    share = ((1 - set_of_p) ** 16).mean()
    print(f"{name}: mean p = {set_of_p.mean():.2f}, negative groups at G = 16: {share:.1%}")
assert ((1 - apart) ** 16).mean() == 0.75

# %% [markdown]
# ## In real training: the paper's figure, and ours
#
# The paper's figure "Negative group ratio during GRPO training" follows a language model,
# Llama-3.1-8B-Instruct, on two collections of mathematical questions, MATH and Numina 1.5, with
# $G = 16$. Its text says: "nearly 45 %" of the groups are negative early in training, and "about
# 35 %" by the end. We have its words, not its curve, so these two numbers enter below as *quoted*,
# not as measured here.
#
# Beside them we draw GRPO on this project's bundled tiny language model (arithmetic in several
# steps, also $G = 16$), from `results/tiny/updates.csv`: several training runs that differ in their
# random **seed** only. The band is a 95 % interval over those seeds: where the mean of many such
# runs plausibly lies.
#
# Before you look: the tiny task was *built* to start in the paper's range, so that the height on
# the left proves nothing. What to look at: how slowly it falls, and how far it lies above what the
# mean reward alone would predict.

# %%
PAPER_EARLY, PAPER_END = 45, 35  # %, quoted from the paper's Section 3.2, not measured here

updates = pd.read_csv(results("tiny", "updates.csv")).query("method == 'grpo'")
updates["predicted"] = (1 - updates["reward"]) ** 16
last = updates["step"].max()
updates["block"] = (updates["step"] - 1) // 5 * 5 + 3  # the middle of each five updates
blocks = 100 * updates.groupby(["block", "seed"])[["negative_share", "predicted"]].mean()
share = blocks["negative_share"].unstack().apply(t_interval, axis=1)
predicted = blocks["predicted"].unstack().mean(axis=1)
early, end = share.iloc[0], share.iloc[-1]
print(f"{updates['seed'].nunique()} seeds, {last} updates, 95 % intervals over seeds")
print(f"first five updates: {early.mean:.1f} % negative [{early.low:.1f}, {early.high:.1f}]")
print(f"last five updates:  {end.mean:.1f} % negative [{end.low:.1f}, {end.high:.1f}]")
print(f"(1 - mean reward)^16 would say {predicted.iloc[0]:.1f} % and {predicted.iloc[-1]:.1f} %")

# %%
progress = 100 * share.index / last
fig, ax = plt.subplots(figsize=(8, 4.8))
low, high = [i.low for i in share], [i.high for i in share]
ax.fill_between(progress, low, high, color="0.8", label="95 % over seeds")
ax.plot(progress, [i.mean for i in share], **line(0), label="tiny model, GRPO, measured")
ax.plot(progress, predicted, **line(1), label="(1 − mean reward)$^{16}$, same runs")
diamond = {"color": "#c0392b", "fillstyle": "none", "markersize": 13, "markeredgewidth": 2.5}
quoted = [PAPER_EARLY, PAPER_END]
ax.plot([0, 100], quoted, "D", **diamond, clip_on=False, label="paper, Llama-3.1-8B: quoted")
ax.set(xlim=(0, 100), ylim=(-2, 60))
ax.set_xlabel("training progress, % of all updates")
ax.set_ylabel("negative groups, %")
ax.legend(loc="upper right", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# The lower line is what the mean accuracy would lead you to expect: hardly any negative groups. The
# measured line is far above it, because the questions differ: some are nearly always solved and
# some nearly never.
#
# Two honest remarks. The share does fall although GRPO learns nothing *from* negative groups: what
# it learns on mixed groups carries over, since all questions share one model. And a negative group
# is wasted sampling, not proof that something could have been learned from it: nobody can learn the
# answer to a question from wrong answers alone. What they hold is at most *which mistakes the model
# believes in*.
#
# ## Which questions? The hard ones
#
# **pass@k** is the chance that at least one of $k$ responses is right. With 16 graded responses a
# question, pass@16 is 1 where any of them is right, so *1 − pass@16 is the share of negative
# groups*: the evaluation files hold it by level of difficulty.
#
# Expect: two cases by hand, then bars that rise with the level.

# %%
print("16 responses, 0 right: pass@16 =", pass_at_k(16, 0, 16))
print("16 responses, 1 right: pass@16 =", pass_at_k(16, 1, 16), " pass@1 =", pass_at_k(16, 1, 1))

curves = pd.read_csv(results("tiny", "curves.csv")).query("method == 'grpo'")
curves["negative"] = 100 * (1 - curves["pass@16"])
levels = ["1", "2", "3", "4", "5"]
table = curves[curves["level"].isin(levels)].pivot_table(
    index=["step", "level"], columns="seed", values="negative"
)
bars = {step: table.loc[step].apply(t_interval, axis=1) for step in (0, curves["step"].max())}

# %%
fig, ax = plt.subplots()
looks = (("0.75", "", "before training"), ("0.45", "//", "after GRPO"))
for i, (intervals, (grey, hatch, label)) in enumerate(zip(bars.values(), looks, strict=True)):
    heights = [x.mean for x in intervals]
    half = [x.mean - x.low for x in intervals]
    places = [j + 0.4 * (i - 0.5) for j in range(5)]
    style = {"color": grey, "hatch": hatch, "edgecolor": "black", "capsize": 4}
    ax.bar(places, heights, 0.38, yerr=half, label=label, **style)
ax.set_xticks(range(5), levels)
ax.set_xlabel("level of the test question (number of steps)")
ax.set_ylabel("negative groups, %")
ax.legend(loc="upper left")
plt.show()

# %% [markdown]
# The black lines are 95 % intervals over seeds. They are wide, since a level has 50 test questions
# only (the same for all seeds); after training, levels 4 and 5 can't be told apart. Before it, these
# two lose more than half of their groups. The questions that we most want the model to learn are
# those on which it samples in vain.
#
# ## What it costs
#
# On the six options we can put a price on it: the number of GRPO updates until 90 % of the
# responses are right, for policies that begin with a smaller and smaller chance. From
# `results/toy/summary.csv`; plain gradient ascent, $G = 16$, 24 seeds.
#
# Expect: for a start ten times as unlikely, several times as many updates, towards ten times at the
# far end. Most of them wait for a lucky group.

# %%
toy = pd.read_csv(results("toy", "summary.csv")).query(
    "experiment == 'six_options' and quantity == 'steps_to_90' and method == 'grpo'"
    " and optimizer == 'sgd' and group_size == 16"
)
for row in toy.itertuples():
    print(
        f"P(correct) = {row.p_c:g}: {row.mean:,.0f} ± {row.ci95:,.0f} updates, "
        f"negative groups at the start: {(1 - row.p_c) ** 16:.1%}"
    )

# %%
fig, ax = plt.subplots()
ax.errorbar(toy["p_c"], toy["mean"], toy["ci95"], capsize=5, **line(0), label="GRPO")
ax.set(xscale="log", yscale="log")
ax.set_xlabel("P(correct) at the start (log scale)")
ax.set_ylabel("updates to 90 % (log scale)")
ax.legend(title="mean, 95 % over seeds")
plt.show()

# %% [markdown]
# ## Are wrong answers all alike?
#
# To GRPO they are: reward 0, every one. But the model did not find them equally likely. **LENS**,
# the method of this project, gives a wrong response the more negative a reward the more
# *confident* the model was of it. Confidence is a probability *per token*, averaged over the
# response, so those of a group need not add up to 1. Four wrong responses with 90, 80, 50 and 20 %:

# %%
confidences = torch.tensor([[0.9, 0.8, 0.5, 0.2]], dtype=F64)
all_wrong = rollouts(torch.zeros(1, 4, dtype=F64), confidences.log())
print("GRPO", grpo(all_wrong).advantages[0])
print("LENS", lens_advantages(all_wrong).advantages[0])

# %% [markdown]
# The confident mistakes are pushed down, the others up. Note the size, too: compared with the
# $\pm 1$ of a mixed group, this signal is very quiet. Whether it is loud enough to matter is
# measured in [notebook 04](04_calibrated_reward.ipynb) and
# [notebook 05](05_toy_dynamics.ipynb). First: where does the idea come from?
#
# ## What you have seen
#
# - GRPO learns from differences of reward inside a group; equal rewards give advantage 0.
# - On-policy the GRPO loss is 0 *by construction*; the gradient is not, except in groups without
#   differences. Watch reward, gradient norm and the share of negative groups.
# - A group is negative with probability $(1-p)^G$; over questions of different difficulty the share
#   is far above what the mean accuracy suggests.
# - Negative groups are common in practice, most of all on hard questions.
#
# ## Questions for the class
#
# 1. A question is solved with probability $p = 0.02$. What share of its groups is negative at
#    $G = 16$? How large must $G$ be for one in ten?
# 2. The formula for *correct* groups is $p^G$. For which $p$ is a group of 16 most often mixed?
# 3. Your colleague sees `loss = 0.0000` at every step and stops the run. Which two numbers would
#    you look at first, and what would each tell you?
# 4. "Let us give wrong responses the reward −1 instead of 0." What would change in the GRPO
#    advantages of a mixed group, and of a negative group? Compute with the formula.
# 5. Why can't a policy learn from a negative group *which* answer is correct? What can it learn?
#
# **Next:** [notebook 02](02_likelihood.ipynb), where a wrong answer becomes evidence. Practice: the
# [exercises](exercises/01_groups.ipynb).
