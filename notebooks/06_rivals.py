# %% [markdown]
# # 06 · Rivals: every treatment of negative groups on the same rollouts
#
# Many papers ask what to do with a group in which every answer is wrong. Here all their methods get
# the *same* rollouts: you will see the sign, the size and the shape of what each gives a negative,
# a mixed and a correct group, then all of them trained side by side, and at last what the long runs
# say, on toys and on a small language model.
#
# **You need:** group, reward, advantage and GRPO ([notebook 01](01_wasted_groups.ipynb)), the
# calibrated reward of LENS ([notebook 04](04_calibrated_reward.ipynb)), SGD and Adam
# ([notebook 05](05_toy_dynamics.ipynb)). Words: [glossary](../docs/glossary.md).
#
# **After this notebook you can**
# - sort a method for negative groups by three questions: which sign, which size, which shape?
# - say which methods look beyond the group, and where to look when their signal vanishes;
# - tell an advantage of a method from an advantage of its step size;
# - say what is known, and what is not, about which one to take.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from classroom import line, results, start
from matplotlib.patches import Rectangle

from lens_ref import Rollouts, methods
from lens_ref.core import group_kind, neg_to_mixed_rms
from lens_ref.core.groups import NEGATIVE
from lens_ref.rlvr.statistics import t_interval
from toy.compare.training import Ascent, Tabular, curves
from toy.compare.treatments import TREATMENTS, Lesson, Teacher
from toy.rules import Draws
from toy.sampled import Problem, mean_accuracy_and_entropy, policy_gradient, streams
from toy.spaces import many_questions

device = start(1, "numpy")
torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other
pd.set_option("display.max_colwidth", None)

# %% [markdown]
# ## The rollouts
#
# **Rollouts** are what the sampler saw: for each question a **group** of $G = 8$ answers, their
# **rewards** (1 right, 0 wrong), log-probabilities and lengths. Ours have three groups, one of
# each kind: **negative** (all wrong), **mixed** (answers 3 and 6 right), **correct** (all right).
# In each the **confidence** $\bar\pi$ (the geometric mean of the token probabilities) falls from
# .90 to .55, so that one sees what depends on confidence and what does not. Every answer has two
# tokens, and each token an **entropy**, in nats: how undecided the policy was there. The first is
# the more undecided, the less confident the answer (one method reads entropies).

# %%
G = 8
confidence = torch.tensor([0.9 - 0.05 * i for i in range(G)], dtype=torch.float64)
rewards = torch.zeros(3, G, dtype=torch.float64)
rewards[1, [2, 5]] = 1.0
rewards[2] = 1.0
first_token = 0.2 + 0.1 * torch.arange(G, dtype=torch.float64)  # entropies, nats
entropy = torch.stack([first_token, torch.full_like(first_token, 1.2)], -1)


# %%
def rollouts(rewards: torch.Tensor, *prior: float) -> Rollouts:
    """The answers above; `prior`: what a method remembers, one number for all or one a question."""
    groups = len(rewards)
    return Rollouts(
        rewards=rewards,
        logprobs=2 * confidence.log().expand(groups, G),
        lengths=torch.full((groups, G), 2),
        entropy=entropy.expand(groups, G, 2),
        prior=torch.tensor(prior, dtype=torch.float64).expand(groups),
    )


# %% [markdown]
# Three probes by hand, on the negative group and on a group with one right answer of eight.
#
# **GRPO** (group advantages, Section 3.2) standardises the rewards,
# $A_i = (r_i - \text{mean}) / \text{std}$ (std: standard deviation). All equal: 0. One of eight right: mean $\tfrac18$, std
# $\tfrac{\sqrt 7}{8}$, hence $\sqrt 7$ for the right one and $-1/\sqrt 7$ for the others.
#
# **NGRPO** adds one imaginary right answer to the group before it standardises: mean $\tfrac19$,
# std $\tfrac{\sqrt 8}{9}$, hence $-1/\sqrt 8$ for each of eight wrong answers.
#
# **LENS**, as printed (calibrated reward, Section 5.1): with $D = 2 \max \bar\pi = 1.8$ the most confident answer has $\tilde r = -\tfrac18 \cdot .9/(1.8 - .9) = -\tfrac18$, the least
# confident $-\tfrac18 \cdot .55/(1.8 - .55) = -.055$; then the mean is taken off and
# $\alpha = .25$ multiplied.

# %%
one_right = torch.zeros(1, G, dtype=torch.float64)
one_right[0, 0] = 1.0
probe = torch.cat([torch.zeros(1, G, dtype=torch.float64), one_right])
for name in ("grpo", "ngrpo", "lens"):
    a = methods.get(name)(rollouts(probe, 0.5)).advantages.numpy()
    print(
        f"{name:6} all wrong: {a[0, 0]:+.4f} … {a[0, -1]:+.4f}   one right: {a[1, 0]:+.4f}, "
        f"wrong beside it {a[1, 1]:+.4f} … {a[1, -1]:+.4f}"
    )

grpo, lens = (methods.get(n)(rollouts(probe, 0.5)).advantages.numpy() for n in ("grpo", "lens"))
assert np.allclose(grpo[1, :2], [7**0.5, -(7**-0.5)])
assert np.allclose(lens[0, [0, -1]], [-0.0096, 0.0079], atol=5e-5)

# %% [markdown]
# ## Who is who
#
# Every treatment is one call, `methods.get(name)(rollouts)`, and has a **spec**, an entry that says
# what it does to a negative group. Expect six classes. (Letters are those of each paper: $\lambda$,
# $\alpha$, $S$, $\delta V$ are fixed weights, $\tau$ a threshold, $\mu$ and $\hat p$ remembered
# success rates, $H$ a token's entropy.)

# %%
ORDER = ("zero", "dropped", "all_negative", "all_positive", "batch_dependent", "zero_sum")
NAMES = sorted(methods.names(), key=lambda n: ORDER.index(methods.spec(n).negative_class))
print(len(NAMES), "treatments")
pd.DataFrame(
    [
        (n, s.negative_class, s.negative_signal, s.summary)
        for n, s in ((n, methods.spec(n)) for n in NAMES)
    ],
    columns=["method", "class", "a negative group gets", "advantages"],
).set_index("method")

# %% [markdown]
# - `zero`: the group is in the loss with advantage 0; `dropped`: it is left out of the loss *and
#   of the mean*, which makes the other answers count more;
# - `all_negative`: every wrong answer is pushed down; `all_positive`: pushed **up**;
# - `zero_sum`: some down, some up, in sum 0; LENS as printed and its pooled extension;
# - `batch_dependent`: it depends on the other groups of the batch, or on the past.
#
# Where a paper's formula was read, and its own hyperparameters: [methods](../docs/methods.md).
#
# ## Sign, size and shape
#
# Now all of them on our three groups. Methods with a memory need a number to remember: a success
# rate of ½ for `ebpo` and `spo`, a share of collapsed groups (all rewards equal) of ¾ for `avspo`,
# $\hat D = 2.5$ for `lens_pooled`. `rl_zvp` gives every token its own advantage; we show the mean
# of the two.
#
# Each square is one answer: **black = down, white = up**, its side grows with the cube root of
# $|A|$, a dot is exactly 0, a cross is left out. Expect the first columns (negative group) to
# differ most, and LENS's squares there to be small even on this kind scale.

# %%
REMEMBERED = {"avspo": 0.75, "lens_pooled": 2.5}


def advantages(name: str) -> np.ndarray:
    """`[3, G]`, NaN where an answer is left out."""
    signal = methods.get(name)(rollouts(rewards, REMEMBERED.get(name, 0.5)))
    a = signal.advantages.mean(-1) if signal.advantages.ndim == 3 else signal.advantages
    return a.masked_fill(~signal.keep, torch.nan).numpy() + 0.0  # + 0.0: no −0


A = {name: advantages(name) for name in NAMES}


# %%
def mark(ax: plt.Axes, x: float, y: float, a: float) -> None:
    """The square, dot or cross of one answer."""
    if np.isnan(a) or a == 0:
        ax.plot(x, y, "x" if np.isnan(a) else ".", color="0.35", markersize=6)
        return
    side = 0.6 * min(1.5, abs(a) ** (1 / 3))
    corner, fill = (x - side / 2, y - side / 2), "white" if a > 0 else "black"
    ax.add_patch(Rectangle(corner, side, side, facecolor=fill, edgecolor="black"))


# %%
fig, ax = plt.subplots(figsize=(11, 7.2))
for y, name in enumerate(NAMES):
    for x, a in enumerate(A[name].ravel()):
        mark(ax, x + x // G, y, a)  # x // G: a gap between groups
for group, right in enumerate(rewards.numpy()):
    for i in np.flatnonzero(right):
        ax.text(i + group * (G + 1), -1.0, "✓", ha="center", va="center", fontsize=12)
ax.set_facecolor("0.82")
ax.grid(False)
ax.set_yticks(range(len(NAMES)), NAMES)
centres = [(G - 1) / 2 + g * (G + 1) for g in range(3)]
ax.set_xticks(centres, ["negative group\nπ̄: .90 → .55", "mixed group", "correct group"])
ax.set(ylim=(len(NAMES) - 0.4, -1.6), xlim=(-1, 3 * G + 2), aspect="equal")
ax.set_title("black: down, white: up, dot: 0, ×: left out, ✓: right answer", fontsize=13)
plt.show()

# %% [markdown]
# Read it by rows. `nsr` and `w_reinforce` push wrong answers down with full weight, confident or
# not. `ngrpo` pushes uniformly too, at about a third. `asymre` pushes wrong answers *up* wherever
# the group is all wrong. `spo`, `ebpo`, `reinforce_pp` and `avspo` push down here, but only
# because of what they remember or see beside it. Only LENS and its pooled version, and `rl_zvp`
# through entropies, make a difference *within* the negative group. In the mixed group all agree in
# sign, and the one-sided `psr` and `nsr` leave one side out. In the correct group GRPO and its kin
# do nothing; about half of the methods go on pushing up what is right already.
#
# The same in numbers. *Shape* is the difference between the least and the most confident answer,
# *sum* tells zero-sum from one-sided; *negative ÷ mixed* compares the sizes of the two groups
# (root mean square). Expect the class of every spec to be what we measure.


# %%
def measured(a: np.ndarray) -> str:
    """The class of a negative group's advantages `[G]`."""
    if np.isnan(a).all():
        return "dropped"
    if not a.any():
        return "zero"
    if abs(a.sum()) < 1e-12:
        return "zero_sum"
    return "all_negative" if (a <= 0).all() else "all_positive" if (a >= 0).all() else "both signs"


# %%
kind = group_kind(rewards)
rows = []
for name in NAMES:
    negative = A[name][NEGATIVE]
    declared = methods.spec(name).negative_class
    assert declared in (measured(negative), "batch_dependent"), name
    a = torch.from_numpy(A[name])
    ratio = neg_to_mixed_rms(a.nan_to_num(), kind, ~a.isnan())
    rows.append((name, measured(negative), np.nansum(negative), negative[-1] - negative[0], ratio))
columns = ["method", "measured here", "sum", "shape", "negative ÷ mixed"]
table = pd.DataFrame(rows, columns=columns).set_index("method")
table["negative ÷ mixed"] = [f"{float(r):.4f}" for r in table["negative ÷ mixed"]]
table.round(4)

# %% [markdown]
# (A method that leaves the negative group out has no ratio: `nan`.) LENS as printed gives the
# negative group well below one hundredth of the mixed group's size, and these confidences are
# spread wide. For narrow spreads the ratio falls below 1:1000
# ([notebook 04](04_calibrated_reward.ipynb)). `spo` and `reinforce_pp` coincide because `spo`
# remembers the same rate for all three groups.
#
# ### Zoom: the negative group, each at its own scale
#
# Expect four shapes: flat down, flat up, graded by entropy, graded by confidence around 0.

# %%
shown = ("nsr", "ngrpo", "asymre", "rl_zvp", "lens", "lens_pooled")
fig, axes = plt.subplots(2, 3, figsize=(11, 5.2), sharex=True)
for ax, name in zip(axes.flat, shown, strict=True):
    a = A[name][NEGATIVE]
    _, stems, base = ax.stem(confidence, a, linefmt="k-", markerfmt="ko", basefmt="k-")
    stems.set_linewidth(2)
    base.set_linewidth(1)
    span = 1.25 * np.abs(a).max()
    ax.set(ylim=(-span, span), title=name)
for ax in axes[1]:
    ax.set_xlabel("confidence π̄")
axes[0, 0].set_ylabel("advantage")
axes[1, 0].set_ylabel("advantage")
plt.show()

# %% [markdown]
# ## Those that look beyond the group
#
# A signal that depends on the batch can vanish. By hand, for `reinforce_pp`, which standardises
# over the whole batch: if half of all answers are right, mean and std are ½, and a wrong one gets
# $(0 - \tfrac12)/\tfrac12 = -1$; if *all* of the batch is wrong, there is nothing to compare, and
# it gets 0.
#
# The figure: a batch of two groups, ours (all wrong) and one with four of eight right. On the
# horizontal axis what a method sees or remembers: the share of right answers in the *other* group
# for `reinforce_pp`, the remembered success rate of our question for `ebpo` and `spo` (the other
# question is remembered at .8 and disappoints today), the remembered share of collapsed groups for
# `avspo`. Expect three of them to fall silent towards the left, and one to turn round.

# %%
half = torch.cat([torch.zeros(1, G), torch.ones(1, G)]).double()
assert methods.get("reinforce_pp")(rollouts(half, 0.5)).advantages[0].eq(-1).all()
assert methods.get("reinforce_pp")(rollouts(0 * half, 0.5)).advantages.eq(0).all()


def push(name: str, share: float) -> float:
    """The advantage of a wrong answer in the negative one of the two groups."""
    batch = torch.zeros(2, G, dtype=torch.float64)
    batch[1, : round(G * share) if name == "reinforce_pp" else G // 2] = 1.0
    prior = (share,) if name == "avspo" else (share, 0.8)
    return float(methods.get(name)(rollouts(batch, *prior)).advantages[0, 0])


# %%
fig, ax = plt.subplots()
for i, name in enumerate(("reinforce_pp", "ebpo", "spo", "avspo")):
    x = np.linspace(0, 1, (1 if name == "reinforce_pp" else 8) * G + 1)
    ax.plot(x, [push(name, share) for share in x], label=name, markevery=len(x) // 8, **line(i))
ax.axhline(0, color="0.5", linewidth=1)
ax.set(xlabel="what it sees or remembers (share)", ylabel="advantage of a wrong answer")
ax.legend(fontsize=12, loc="lower left")
plt.show()
assert push("spo", 0.0) > 0

# %% [markdown]
# `spo` compares with the rest of the batch: on a question that it remembers as hopeless a wrong
# answer is no surprise, while the other question disappoints, and so the wrong answer gets *more*
# than 0: it is pushed up. `avspo` jumps: it acts only where more than half of the groups
# collapsed.
#
# `lens_pooled` remembers the difficulty. A question that was tried $n$ times and never solved has
# $\hat D = (16 + n)/16$ (16 pseudo-observations of $D = 1$), so the odds
# $\bar\pi/(\hat D - \bar\pi)$ fade as $1/n$ and the question is left alone. Expect a flat start
# (the guard $2 \max \bar\pi$ decides) and then a line that falls tenfold for ten times as many
# visits.

# %%
spec, method = methods.spec("lens_pooled"), methods.get("lens_pooled")
state, visits, loudness = spec.init_state(), [], []
for visit in range(201):
    prior = float(spec.prior(state, ["q"])[0])
    seen = rollouts(torch.zeros(1, G, dtype=torch.float64), prior)
    if visit in (0, 1, 2, 5, 10, 20, 50, 100, 200):
        visits.append(visit)
        loudness.append(float(method(seen).advantages.square().mean().sqrt()))
    state = spec.update(state, seen, ["q"])
assert abs(prior - (16 + 200 * G) / 16) < 1e-9

# %%
fig, ax = plt.subplots()
printed = np.sqrt((A["lens"][NEGATIVE] ** 2).mean())
ax.plot(np.maximum(visits, 0.5), loudness, label="lens_pooled", **line(0))
ax.axhline(printed, label="lens, as printed", **line(1) | {"marker": ""})
ax.set(xscale="log", yscale="log", xlabel="earlier visits, none solved (first point: 0)")
ax.set_ylabel("advantage (root mean square)")
ax.legend(fontsize=12)
plt.show()

# %% [markdown]
# ## What one step does to the right answer
#
# Signs are pushes on the *sampled* answers. What we want is that the right answer, which nobody
# sampled, becomes likelier. On six options (A, B right) with a softmax policy this can be
# computed: for a group with option counts $n_o$ and advantages $A_o$ the gradient in the logits is
# $g = s - \pi \sum_k s_k$, $s_o = n_o A_o / G$, and
#
# $$\frac{d \log \pi(A)}{d\,\text{step}} = g_A - \sum_o \pi_o\, g_o .$$
#
# The group: C five times, D twice, E once. Left, each method at its own size; right, divided by
# its root mean square, so that shape and sign alone differ. (The names after LENS are its presets,
# readings of the rule: [notebook 04](04_calibrated_reward.ipynb).) Expect GRPO to do nothing, all-up
# (AsymRE) to hurt and the rest to help. That the zero-sum signal helps is a theorem for tabular
# policies, with a logit for every answer: the logits of unsampled options do not move at all, and
# the mass that confident mistakes lose reaches them. Guess before you look: does the same push on
# everything (NSR) or a graded one (LENS) help more at equal size?

# %%
policy = np.array([[[0.02, 0.02, 0.6, 0.2, 0.1, 0.06]]])
options = np.array([[[2, 2, 2, 2, 2, 3, 3, 4]]])
draws = Draws(options, np.log(policy[0, 0][options]), np.zeros(options.shape), policy)


def gain(name: str, size: str) -> float:
    """d log π(A) / d step of one update on that group."""
    g = policy_gradient(draws, Teacher(name, size)(draws).advantages)[0, 0]
    return float(g[0] - policy[0, 0] @ g)


# %%
ONE_STEP = (
    *("grpo", "asymre", "nsr", "ngrpo", "lens_paper", "lens_neg_unscaled"),
    *("lens_negative_std", "lens_no_demean", "lens_likelihood"),
)
gains = pd.DataFrame(
    {s: [gain(n, s) for n in ONE_STEP] for s in ("published", "equal_size")},
    index=[TREATMENTS[n].label for n in ONE_STEP],
)
fig, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
for ax, (size, title) in zip(
    axes, (("published", "own size"), ("equal_size", "equal size")), strict=True
):
    ax.barh(gains.index, gains[size], color="0.35", edgecolor="black")
    ax.axvline(0, color="black", linewidth=1)
    ax.set(title=title, xlabel="d log P(A) / d step")
axes[0].invert_yaxis()
plt.show()
assert gain("grpo", "published") == 0
assert gain("asymre", "published") < 0 < gain("lens_paper", "published")

# %%
gains.round(4)

# %% [markdown]
# On this group the graded push helps several times as much for its size, and a reason is worth a
# blackboard. **A constant pushes nothing on average**, since $\mathbb E_\pi[\nabla \log \pi] = 0$.
# NSR's advantage is $-(1-r) = r - 1$: REINFORCE's minus a constant. So in expectation NSR *is*
# REINFORCE: where right answers are rare, all its pushes on wrong answers add up to the small push
# that the rare right ones would give, and the rest is sampling luck. Checked on three options with
# the flow formula $\pi \circ (c - \pi \cdot c)$ of [notebook 05](05_toy_dynamics.ipynb):

# %%
pi, r = np.array([0.5, 0.25, 0.25]), np.array([1.0, 0.0, 0.0])
expected = {name: pi * (c - pi @ c) for name, c in (("REINFORCE", r), ("NSR", r - 1))}
print(expected)
assert np.allclose(expected["REINFORCE"], [0.25, -0.125, -0.125])
assert np.allclose(expected["NSR"], expected["REINFORCE"])

# %% [markdown]
# ## Trained side by side
#
# One step is not training. Here all of them train on 8 questions of 30 options (1 to 3 right,
# starting three logits behind), 16 answers a question and update, 200 updates, SGD and Adam. All
# methods of a seed see the same questions and the same random numbers, so we look at the
# **difference to GRPO** per seed. Those with a memory need a few lines more: keep the state of each
# seed, hand its number to the method, update it.


# %%
class Remembering:
    """A method with a memory as a teacher; a memory a seed."""

    def __init__(self, name: str) -> None:
        self.name, self.spec, self.states = name, methods.spec(name), []

    def __call__(self, draws: Draws) -> Lesson:
        seeds, questions, size = draws.rewards.shape
        self.states = self.states or [self.spec.init_state() for _ in range(seeds)]
        found = np.empty(draws.rewards.shape)
        for s, state in enumerate(self.states):
            seen = Rollouts(
                rewards=torch.from_numpy(draws.rewards[s]),
                logprobs=torch.from_numpy(draws.log_pi[s]),
                lengths=torch.ones(questions, size),
                prior=self.spec.prior(state, range(questions)),
            )
            settings = self.spec.state_hyperparameters(state, size)
            found[s] = methods.get(self.name, **settings)(seen).advantages.numpy()
            self.states[s] = self.spec.update(state, seen, range(questions))
        return Lesson(found, np.ones(seeds, dtype=bool))


# %%
SEEDS, UPDATES = range(8), 200


def final_accuracy(name: str, optimizer: str) -> np.ndarray:
    """Accuracy of each seed after training."""
    known = {"lens": "lens_paper"}.get(name, name)
    teacher = Teacher(known) if known in TREATMENTS else Remembering(name)
    space = many_questions(streams(SEEDS, "rivals"), questions=8, options=30)
    model, problem, ascent = Tabular(space.logits), Problem(space.correct), Ascent(optimizer)
    luck, measure = streams(SEEDS, f"rivals/{optimizer}"), mean_accuracy_and_entropy(space.correct)
    sizes = (16, UPDATES, UPDATES)  # answers a group; updates; measured every so many updates
    _, traces = curves(model, problem, teacher, ascent, luck, *sizes, measure, lambda text: None)
    return traces["accuracy"][-1]


trained = {(n, o): final_accuracy(n, o) for n in NAMES for o in ("sgd", "adam")}

# %%
fig, axes = plt.subplots(1, 2, figsize=(11, 6.4), sharey=True)
for ax, optimizer in zip(axes, ("sgd", "adam"), strict=True):
    base = trained["grpo", optimizer]
    for y, name in enumerate(NAMES):
        d = t_interval(trained[name, optimizer] - base)
        ax.errorbar(d.mean, y, xerr=d.high - d.mean, fmt="o", color="black", capsize=4)
    ax.axvline(0, color="0.5", linewidth=1)
    ax.set_yticks(range(len(NAMES)), NAMES)
    ax.set(ylim=(len(NAMES) - 0.5, -0.5), xlabel="accuracy less GRPO's")
    ax.set_title(f"{'SGD' if optimizer == 'sgd' else 'Adam'} (GRPO: {base.mean():.2f})")
plt.show()

# %% [markdown]
# Bars are 95 % intervals over 8 seeds of *paired* differences. The order under SGD has little to
# do with the order under Adam. `dapo` does nothing to negative groups and still leads under SGD:
# leaving groups out makes the mean over the rest a mean over few, hence larger steps. Under Adam,
# which rescales steps, nothing is left of that gain, and what wins is the full push down of every
# wrong answer (`nsr`, `w_reinforce`): on average little more than REINFORCE, yet steady on any one
# answer that is sampled again and again. LENS can't be told from GRPO under either. So ask of
# every such plot: **is it the signal, or is it the size of the step?**
#
# ## The long runs: at its own size, and at equal size
#
# `results/compare` has 50 questions of 100 options, 800 updates, 20 seeds (made by
# `python -m toy.compare --full`), twice: filled, each method at its own size; open, all updates
# scaled to the same root mean square, so that only sign and shape differ.

# %%
long = pd.read_csv(results("compare", "summary_signal.csv"))
long = long.query("experiment == 'questions_50x100' and quantity == 'accuracy' and step == 800")
order = [n for n in TREATMENTS if n in set(long["method"])]

# %%
fig, axes = plt.subplots(1, 2, figsize=(11, 7.6), sharey=True, sharex=True)
for ax, optimizer in zip(axes, ("sgd", "adam"), strict=True):
    for size, fill, shift in (("published", "black", -0.15), ("equal_size", "white", 0.15)):
        chosen = long[(long["optimizer"] == optimizer) & (long["setting"] == size)]
        rows = chosen.set_index("method").reindex(order)
        look = {"markerfacecolor": fill, "color": "black", "fmt": "o" if shift < 0 else "s"}
        y = np.arange(len(order)) + shift
        label = "its own size" if shift < 0 else "equal size"
        ax.errorbar(rows["mean"], y, xerr=rows["ci95"], capsize=3, label=label, **look)
    ax.set_yticks(range(len(order)), [TREATMENTS[n].label for n in order])
    ax.set(ylim=(len(order) - 0.5, -0.5), xlabel="accuracy after 800 updates")
    ax.set_title("SGD" if optimizer == "sgd" else "Adam")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=11)
plt.show()
named = {"lens": "lens_paper"}  # what `toy.compare` calls the default preset
print("not run:", ", ".join(n for n in NAMES if named.get(n, n) not in order))

# %% [markdown]
# At equal size under SGD the confidence-graded push of LENS as printed does better than GRPO's
# nothing and than NSR's uniform push; but DAPO's filter, which learns *nothing* from negative
# groups, does as well. Under Adam what is not centred wins by far: the uniform pushes down, and
# LENS without de-meaning. Is that a reason to use them? These policies are tables: every question
# has its own logits, and pushing a wrong answer down costs nothing elsewhere.
#
# ## The same on a language model
#
# The bundled model (a small transformer that does arithmetic in five levels:
# [notebook 07](07_tiny_language_model.ipynb)), 60 updates with AdamW, Adam with weight decay; 5
# seeds, the difference to GRPO with the same seed and questions. **pass@1** is the accuracy,
# **pass@16** the share of questions solved by at least one of 16 answers. Expect no clear winner,
# and one clear loser.

# %%
language = pd.read_csv(results("compare", "summary_language.csv")).query(
    "setting == 'all' and step == 60"
)
run = [n for n in TREATMENTS if n != "grpo" and n in set(language["method"])]
fig, axes = plt.subplots(1, 2, figsize=(11, 5.2), sharey=True)
for ax, k in zip(axes, (1, 16), strict=True):
    rows = language[language["quantity"] == f"pass@{k} minus GRPO"].set_index("method")
    rows = 100 * rows.reindex(run)[["mean", "ci95"]]
    ax.errorbar(rows["mean"], range(len(run)), xerr=rows["ci95"], fmt="o", color="black", capsize=4)
    ax.axvline(0, color="0.5", linewidth=1)
    ax.set_xscale("symlog", linthresh=4)
    ax.set_xticks([-50, -10, -4, -2, 0, 2, 4], ["−50", "−10", "−4", "−2", "0", "2", "4"])
    ax.set_yticks(range(len(run)), [TREATMENTS[n].label for n in run])
    ax.set(ylim=(len(run) - 0.5, -0.5), xlabel=f"pass@{k} less GRPO's, points")
plt.show()
print("not run:", ", ".join(n for n in NAMES if n != "grpo" and named.get(n, n) not in run))

# %%
for k in (1, 16):
    rows = language[language["quantity"] == f"pass@{k} minus GRPO"].set_index("method").loc[run]
    above = [TREATMENTS[n].label for n, row in rows.iterrows() if row["mean"] > row["ci95"]]
    below = [TREATMENTS[n].label for n, row in rows.iterrows() if row["mean"] < -row["ci95"]]
    print(
        f"pass@{k}: above GRPO: {'; '.join(above) or 'none'} | below: {'; '.join(below) or 'none'}"
    )
    mean, half_width = 100 * rows.loc["lens_paper", ["mean", "ci95"]]
    print(f"        LENS as printed {mean:+.2f} ± {half_width:.2f} points")

# %% [markdown]
# (The axis is linear between −4 and 4 and logarithmic beyond. Intervals are Student's $t$ over
# five seeds; of twenty such intervals one is expected to miss 0 by luck alone.) NSR, first on the
# table toy under Adam, is last here, and its wide interval says that seeds differ: some collapse.
# A policy of shared weights that is only told "not this" can lose what it knew. LENS as printed is
# at or a little above GRPO in pass@1, with an interval that just covers 0. Nothing here shows a
# gain such as the paper reports for large models, and five seeds of a tiny model can't refute one.
#
# ## Where each hurts
#
# The four settings of [notebook 05](05_toy_dynamics.ipynb) (the first under both optimizers), all
# methods that were run in them, each setting's own measure (± 95 % interval). Starred: worse than
# GRPO, intervals apart.

# %%
harms = pd.read_csv(results("compare", "summary_harms.csv"))
marked = "experiment == 'mislabelled' and quantity == 'accuracy' and step == 800 and optimizer == "
unsolvable = "setting == '50x100 d=32' and quantity == 'accuracy' and step == 400"
longer = "setting == 'unsolvable' and quantity == 'length' and step == 1500"
SETTINGS = {  # column: (which rows, +1 if more is better)
    "mislabelled, SGD: accuracy kept": (marked + "'sgd'", 1),
    "mislabelled, Adam: accuracy kept": (marked + "'adam'", 1),
    "unsolvable half, d = 32: accuracy": (unsolvable, 1),
    "shared features ρ = .8: updates": ("setting == 'rho=0.8'", -1),
    "unsolvable sequence: tokens": (longer, -1),
}


# %%
def summary(title: str) -> pd.Series:
    """Mean ± interval by method, starred where worse than GRPO with intervals apart."""
    which, better = SETTINGS[title]
    rows = harms.query(which).set_index("method").rename(index=lambda m: TREATMENTS[m].label)
    digits = 2 if better > 0 else 0 if "updates" in title else 1
    text = [
        f"{m:,.{digits}f} ± {c:,.{digits}f}"
        for m, c in zip(rows["mean"], rows["ci95"], strict=True)
    ]
    base = rows.loc["GRPO"]
    worse = better * (base["mean"] - rows["mean"]) > base["ci95"] + rows["ci95"]
    return pd.Series(text, rows.index) + worse.map({True: " *", False: ""})


pd.DataFrame({title: summary(title) for title in SETTINGS}).fillna("not run")

# %% [markdown]
# Every treatment that was run in all five columns has a star, except GRPO, which leaves negative
# groups alone. LENS as printed has two, where the verifier errs: a small loss under SGD, and under
# Adam, which turns its whisper into full steps, one as large as that of its louder presets. Pooled D
# removes the first and softens the second. (Updates at ρ = .8 count seeds that never solved it as
# 4,000; stars at length assume that longer is worse where nothing can be solved.)
#
# ## What you have seen
#
# - All treatments fall into six classes. Three questions sort them: sign (down, up, zero-sum,
#   none), size (next to a mixed group) and shape (flat, or by confidence or entropy).
# - Some look beyond the group; their signal on a negative group vanishes, or turns round, with the
#   batch or the memory.
# - A flat push on wrong answers is REINFORCE on average; a graded one is more. Yet much of what
#   looks like a better method is a larger step: compare at equal size, and with Adam.
# - On tables the flat push wins under Adam; on the language model it is the clear loser. LENS as
#   printed is hard to tell from GRPO at its own size, for good and for ill, unless Adam and
#   questions with parameters of their own make it loud.
#
# ## Questions for the class
#
# 1. Why can a method that gives a negative group nothing (`dapo`) still beat one that uses it?
# 2. `asymre` pushes wrong answers up in a negative group. When could that be sensible? (Think of
#    samples from another policy.)
# 3. Which of the classes would you trust with a verifier that misses 20 % of the right answers?
# 4. Design one more treatment: which sign, size and shape, and what would refute it?
#
# Which to take when, with all numbers: [when to use what](../docs/when-to-use.md). Next:
# [07 · A tiny language model](07_tiny_language_model.ipynb). Exercises: [exercises](exercises/).
