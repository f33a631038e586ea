# %% [markdown]
# # 05 · Escaping a confident mistake
#
# A policy believes a wrong answer with 99.99 % confidence. Which training rule gets it out, and
# how long does that take? You will see that one version of the likelihood objective escapes in
# almost constant time, that the guard of the practical rule takes this away, that the same rule
# can be a whisper under one optimizer (SGD) and a shout under another (Adam), and four settings in
# which the push does harm.
#
# **You need:** the policy gradient and GRPO ([notebook 01](01_wasted_groups.ipynb)), the
# calibrated reward ([notebook 03](03_value_function.ipynb) and [04](04_calibrated_reward.ipynb)).
# Reminders stand where a word is first used; more in the [glossary](../docs/glossary.md).
#
# **After this notebook you can**
# - say which reading of LENS escapes, and what "the pole" has to do with it;
# - predict the escape time from the guard with a formula of one line;
# - explain why Adam turns a signal of one thousandth into a full step, for good and for ill;
# - name four settings in which a signal from all-wrong groups hurts.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from classroom import line, results, slider, start
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from lens_ref.core import DomainError
from lens_ref.rlvr.statistics import t_interval
from toy import flow
from toy.compare.harms import Mislabelled, shared_features
from toy.compare.training import Linear
from toy.compare.treatments import TREATMENTS
from toy.experiments import EscapeColumn, escape_cell
from toy.rules import RULES, Draws
from toy.sampled import SGD, Adam, streams
from toy.sequence import first_logits, train_unsolvable
from toy.spaces import log_softmax, six_options
from toy.tables import summarize_escapes

device = start(1, "numpy", "scipy")
torch.set_num_threads(1)  # tiny tensors: more threads only wait for each other


# %% [markdown]
# ## The question
#
# One **question** has six possible answers, A to F. A and B are correct (**reward** $r = 1$), the
# others are wrong ($r = 0$): the paper's example of Section 4.1. The **policy** $\pi$ says how
# likely each answer is; it is a **softmax** $\pi(o) = e^{z_o} / \sum_k e^{z_k}$ of six numbers
# $z$, the **logits**, which are what training changes. At the start the policy is sure of the
# wrong answer C.
#
# Expect: A and B together have the probability we ask for, here $10^{-4}$, and C has nearly all
# the rest. (The answer D shares its letter with the difficulty $D$; below, $D$ is always the
# difficulty.)

# %%
space = six_options(p_correct=1e-4)
policy = np.exp(log_softmax(space.logits))[0, 0]
assert abs(policy[:2].sum() - 1e-4) < 1e-12
assert policy.argmax() == 2
print("  ".join(f"{name}: {p:.5f}" for name, p in zip("ABCDEF", policy, strict=True)))

# %% [markdown]
# A **group** is a set of $G$ answers sampled from the policy for one question. It is **negative**
# when all of them are wrong, which happens with probability $(1-p)^G$ for $p = P(\text{correct})$.
# It is **mixed** when some are right. Expect that at $p = 10^{-4}$ and $G = 16$ almost every group
# is negative: GRPO, which compares the answers of a group by their rewards, then learns nothing.

# %%
p, G = 1e-4, 16
print(f"negative groups: {(1 - p) ** G:.2%};  one mixed group in {1 / (1 - (1 - p) ** G):,.0f}")


# %% [markdown]
# ## First without luck: the exact flow
#
# Sampling adds noise. To see the rule alone we follow the **gradient flow**: the path that
# infinitely many samples and infinitely small steps would take. All our rules push an answer $o$
# with some coefficient $c(o)$ along $\nabla \log \pi(o)$, the direction that makes it likelier
# ([notebook 01](01_wasted_groups.ipynb)). For softmax logits
# $\nabla_z \log \pi(o) = e_o - \pi$ ($e_o$: 1 at $o$, else 0), so
#
# $$\dot z = \mathbb E_{o \sim \pi}\big[c(o)\,\nabla_z \log \pi(o)\big]
#          = \pi \circ (c - \pi \cdot c)$$
#
# (∘ multiplies entry by entry). REINFORCE, the plain policy gradient, has $c = r$. By hand, for
# three answers, $\pi = (\tfrac12, \tfrac14, \tfrac14)$, the first one correct:
# $\pi \cdot c = \tfrac12$ and
# $\dot z = (\tfrac12 \cdot \tfrac12,\; \tfrac14 \cdot (-\tfrac12),\; \tfrac14 \cdot (-\tfrac12))$.

# %%
pi, c = np.array([0.5, 0.25, 0.25]), np.array([1.0, 0.0, 0.0])
by_hand = pi * (c - pi @ c)
by_library = flow.velocity(flow.OBJECTIVES["reinforce"], np.log(pi), c == 1)
print(by_hand, by_library)
assert np.allclose(by_hand, [0.25, -0.125, -0.125])
assert np.allclose(by_library, by_hand)

# %% [markdown]
# LENS has the coefficient of **Theorem 1**, the calibrated reward (boxed equation of Section 4.2):
#
# $$\tilde r = r - (1-r)\,\frac{\pi(o)}{D - \pi(o)}$$
#
# $D$, the **difficulty**, is a number above every $\pi(o)$. A wrong answer is pushed down, and
# harder the nearer its $\pi$ is to $D$: at $\pi = D$ the fraction has a **pole**, it is infinite.
# Three ways to choose $D$ matter here:
#
# - a constant: $D = 1$ keeps the pole where a fully confident mistake sits, $D = 2$ keeps it away;
# - the truth of this question, $D = 1/\sum_o p^\star(o) = \tfrac12$, where $p^\star(o)$ is the
#   probability that $o$ is correct: here 1 for A and B, else 0;
# - the **guard** of the practical rule (Section 5.1): $D$ is at least $2 \max_o \pi(o)$. It follows
#   the policy, so no answer is ever near the pole, and no penalty exceeds 1.
#
# Expect the truth without a guard to be a trap: at $\pi = .9 > D$ the fraction changes its sign. By hand:
# $-.9/(.5 - .9) = +2.25$, more than a correct answer gets.

# %%
log_pi, correct = np.log([0.05, 0.05, 0.9]), np.array([True, False, False])
print("true D = 1/2, no guard:", flow.unguarded_half(log_pi, correct).round(4))
print("D = 1:                 ", flow.likelihood(flow.constant(1.0))(log_pi, correct).round(4))
print("D = 2 max π:           ", flow.likelihood(flow.guarded(2.0))(log_pi, correct).round(4))
try:
    flow.likelihood(flow.constant(0.5))(log_pi, correct)
except DomainError as error:
    print("\nThe library refuses D = 1/2 here:", error)

# %% [markdown]
# Now all of them from $P(\text{correct}) = 10^{-4}$ to 0.9. The time of a flow is *updates ×
# learning rate*. (MLE: maximum likelihood, the coefficient above.) Expect $D = 1$ to be there a
# hundred times sooner than the others, the guard to lie exactly on $D = 2$, and one curve that
# never rises.

# %%
shown = ("reinforce", "mle_d2", "mle_guarded", "mle_d1", "mle_d_half_unguarded")
flows = {name: flow.escape(flow.OBJECTIVES[name], 1e-4) for name in shown}

fig, ax = plt.subplots(figsize=(8, 5))
for i, (name, result) in enumerate(flows.items()):
    later = result.times >= 1
    ax.plot(
        result.times[later],
        result.p_correct[later],
        label=flow.OBJECTIVES[name].label,
        markevery=0.15,
        **line(i),
    )
ax.set(xscale="log", xlabel="flow time (updates × learning rate)", ylabel="P(correct)")
ax.set_title("From $P$(correct) = $10^{-4}$, exact flow", fontsize=13)
fig.legend(loc="outside lower center", ncols=2, fontsize=12)
plt.show()

# %%
for name, result in flows.items():
    time = f"{result.time:8,.1f}" if result.outcome == "solved" else "   never"
    print(f"{flow.OBJECTIVES[name].label:26} {result.outcome:7} time {time}")
assert flows["reinforce"].time > 200 * flows["mle_d1"].time  # the pole
assert flows["mle_guarded"].time > 50 * flows["mle_d1"].time  # ... and what the guard makes of it
assert flows["mle_d_half_unguarded"].outcome == "wrong"

# %% [markdown]
# So *"the likelihood objective escapes"* is true of $D = 1$ and not of the guarded rule, which
# gains a factor of about three on REINFORCE and no more. With the true $D$ and no guard the policy
# is rewarded for its mistake and never leaves it. That $D = 1$ is an *over*estimate of the true
# $\tfrac12$ does no harm: with certain rewards every $D$ above all wrong $\pi$ has the same best
# policies.

# %% [markdown]
# ## How the time grows with the confidence
#
# While $p$ is small the flow can be done by hand. $\pi_C \approx 1$, the correct ones share $p$,
# and D, E, F have $\tfrac32 p$, so $1 - \pi_C \approx \tfrac52 p$.
#
# - **REINFORCE:** $\dot z_A \approx \tfrac p2$ and $\dot z_C \approx -p$. The ratio $\pi_A/\pi_C$
#   grows at rate $\tfrac32 p$, which is itself tiny: $\dot p = \tfrac32 p^2$, hence the time
#   $\approx 1/(1.5\,p)$. Ten times as confident, ten times as long.
# - **$D = 1$:** C earns $-\pi_C/(1-\pi_C) \approx -1/(\tfrac52 p)$, and
#   $\dot z_C = \pi_C\,c_C\,(1 - \pi_C) \approx -1$. The tiny factor cancels: C's logit falls at
#   speed 1, A's rises at $\tfrac p2 / (\tfrac52 p) = 0.2$. So $\pi_A/\pi_C$ grows at the constant
#   rate 1.2, and every further factor of ten in $p$ costs $\log(10)/1.2 = 1.9$ units of time, not
#   ten times as much.
# - **guard $\kappa$**, $D = \kappa \max \pi$: C earns $-1/(\kappa - 1)$ at most, nothing cancels
#   any more, and the same calculation gives
#
# $$\text{time} \;\approx\; \frac{1}{1.5\,p\,\big(1 + \tfrac{2}{\kappa-1}\big)} .$$
#
# Expect that for small $p$ all but $D = 1$ take ten times as long for every further factor of ten.

# %%
starts = np.array([1e-1, 1e-2, 1e-3, 1e-4])
chosen = ("reinforce", "mle_d2", "mle_guarded", "mle_d1")
times = {name: [flow.escape(flow.OBJECTIVES[name], p_c).time for p_c in starts] for name in chosen}
fig, ax = plt.subplots()
for i, name in enumerate(chosen):
    ax.plot(starts, times[name], label=flow.OBJECTIVES[name].label, **line(i))
ax.plot(starts, 1 / (1.5 * starts), color="0.6", linewidth=1, label="1/(1.5 p)")
ax.set(xscale="log", yscale="log", xlabel="P(correct) at the start", ylabel="flow time to 0.9")
ax.invert_xaxis()
ax.legend(fontsize=12)
ax.set_title("More confident → the pole alone stays fast", fontsize=13)
plt.show()

# %%
labels = {name: flow.OBJECTIVES[name].label for name in chosen}
table = pd.DataFrame(times, index=[f"{s:g}" for s in starts]).round(1)
table.rename(columns=labels).rename_axis("P(correct) at the start")

# %% [markdown]
# ## The guard is the hidden hyperparameter
#
# The paper says the algorithm has one hyperparameter, $\alpha$. The factor 2 in the guard is a
# second one: it sets the largest penalty, $1/(\kappa - 1)$, and the formula above says that the
# escape time follows it. Move the slider (where no kernel runs, you see $\kappa = 1.1$).


# %%
def draw(kappa: float) -> None:
    paths = {
        "REINFORCE": flows["reinforce"],
        f"guard {kappa:g}: penalty ≤ {1 / (kappa - 1):.3g}": flow.escape(
            flow.guard_objective(kappa), 1e-4
        ),
        "D = 1 (pole kept)": flows["mle_d1"],
    }
    fig, ax = plt.subplots(figsize=(8, 4.8))
    for i, (label, path) in enumerate(paths.items()):
        later = path.times >= 1
        style = {**line(i), "markevery": 0.15}
        ax.plot(path.times[later], path.p_correct[later], label=label, **style)
    ax.set(xscale="log", xlim=(1, 1e4), xlabel="flow time", ylabel="P(correct)")
    fig.legend(loc="outside lower center", ncols=3, fontsize=12)
    plt.show()


slider(draw, kappa=(1.01, 5.0, 0.01, 1.1))

# %% [markdown]
# All guards at once, with the formula beside the exact times. Expect the formula to be good down
# to $\kappa \approx 1.1$; below that, the logarithm of the $D = 1$ case takes over.

# %%
kappas = np.array([1.01, 1.03, 1.1, 1.3, 2.0, 3.0, 5.0])
exact = np.array([flow.escape(flow.guard_objective(k), 1e-4).time for k in kappas])
formula = 1 / (1.5e-4 * (1 + 2 / (kappas - 1)))

fig, ax = plt.subplots()
ax.plot(kappas - 1, exact, label="exact flow", **line(0))
ax.plot(kappas - 1, formula, label="formula", **line(3))
for k, t in zip(kappas, exact, strict=True):
    ax.annotate(f"{k:g}", (k - 1, t), (-8, 9), textcoords="offset points", ha="right")
ax.set(xscale="log", yscale="log", xlabel="guard κ − 1 (numbers: κ)", ylabel="flow time to 0.9")
ax.set(xlim=(0.004, 6), ylim=(20, 1.2e4))
ax.legend(loc="lower right")
plt.show()
print(
    "formula ÷ exact:", dict(zip(kappas.tolist(), (formula / exact).round(2).tolist(), strict=True))
)

# %% [markdown]
# ## Now with luck: sampled training
#
# Training sees groups, not expectations. One **update** samples $G$ answers, turns each into an
# **advantage** $A_i$ (how much to push it up or down), and moves the logits along
#
# $$g = \frac1G \sum_{i=1}^G A_i \,\nabla_z \log \pi(o_i) .$$
#
# Most updates see a negative group. What does each rule make of one? The readings of LENS have
# names, its **presets** ([notebook 04](04_calibrated_reward.ipynb)): `paper`, as printed, scales
# the penalties by 1/G, **de-means** them (takes the group's mean off) and multiplies by
# $\alpha = \tfrac14$; `neg_unscaled` leaves the 1/G out in negative groups; `negative_std` divides
# by the standard deviation; `no_demean` neither scales nor de-means.
#
# Expect: GRPO nothing; LENS as printed a push of a few hundredths that sums to 0; the next two the
# same shape, louder; `no_demean` pushes all four down.

# %%
confidence = np.array([[[0.9, 0.8, 0.5, 0.2]]])  # π of four wrong answers, one group
group = Draws(np.arange(4)[None, None], np.log(confidence), np.zeros((1, 1, 4)), confidence)
for name in ("grpo", "lens_paper", "lens_neg_unscaled", "lens_negative_std", "lens_no_demean"):
    print(f"{RULES[name].label:20}", RULES[name].rule(group)[0, 0].round(4) + 0.0)
expected = [-0.026412, -0.013912, 0.012049, 0.028275]
assert np.allclose(RULES["lens_paper"].rule(group)[0, 0], expected, atol=1e-6)

# %% [markdown]
# But here is a catch. A very confident policy samples C sixteen times, and **a group of identical
# answers has nothing to compare**: centred, every advantage is exactly 0. The probabilities of the
# three kinds of groups follow from $\pi$ alone. Expect "all identical" to be nearly everything.

# %%
rows = {}
for p_c in (1e-2, 1e-3, 1e-4):
    pi = np.exp(log_softmax(six_options(p_c).logits))[0, 0]
    negative, identical = (1 - p_c) ** 16, (pi[2:] ** 16).sum()
    rows[f"{p_c:g}"] = [identical, negative - identical, 1 - negative]
columns = ["all wrong, identical", "all wrong, different", "mixed"]
kinds = pd.DataFrame(rows, index=columns).T.rename_axis("P(correct) at the start")
assert abs(kinds.loc["0.001", "all wrong, identical"] - 0.961) < 5e-4
kinds.map("{:.2%}".format)

# %% [markdown]
# So a de-meaned rule learns from the second kind, hardly more frequent than the mixed groups that
# GRPO learns from already, while a rule that does not de-mean learns from all of them. (That is
# only the count: over *all* groups de-meaning costs a factor $1 - 1/G$ in expectation, no more.
# What it takes away is the steadiness, and that is what the next paragraph is about.)
#
# How large that signal is matters only to some optimizers. **SGD** moves by learning rate ×
# gradient. **Adam** divides the gradient by its own recent size, so a gradient that is tiny but
# *steady* makes a full step. A probe: the first step for gradients a million times apart.

# %%
for size in (1.0, 1e-3, 1e-6):
    step = {
        name: opt.step(np.zeros(1), np.array([size]))[0]
        for name, opt in (("SGD, lr 0.5", SGD()), ("Adam, lr 0.02", Adam()))
    }
    print(f"gradient {size:g}: " + ", ".join(f"{k} moves {v:.3g}" for k, v in step.items()))
assert abs(Adam().step(np.zeros(1), np.array([1e-3]))[0] - 0.02) < 1e-6

# %% [markdown]
# Now the race: from $P(\text{correct}) = 10^{-3}$, $G = 16$, updates until $P(\text{correct})$ has
# reached 0.9; 24 seeds (independent repetitions), mean and 95 % interval over them.
#
# Expect under SGD: LENS as printed beside GRPO, the louder presets a little ahead, and $D = 1$
# well ahead of all. Expect under Adam: ahead is what pushes on identical wrong answers too, the
# three rows that do not de-mean (`no_demean`, `MLE, D=2`, `MLE, D=1`).

# %%
RACERS = (
    *("reinforce", "grpo", "lens_paper", "lens_neg_unscaled", "lens_negative_std"),
    *("lens_no_demean", "mle_d2_demeaned", "mle_d2", "mle_d1_clipped"),
)
runs = pd.concat(
    escape_cell(EscapeColumn(1e-3, 16, optimizer, 6000), rule, range(24), lambda text: None)
    for optimizer in ("sgd", "adam")
    for rule in RACERS
)
live = summarize_escapes(runs)
assert (live["solved"] == live["n"]).all()  # all seeds got there: the means are means

# %% [markdown]
# To draw it: a row a rule, mean and 95 % interval; open markers where some seeds did not get there.


# %%
def plain(axis: Axis) -> None:
    """A logarithmic axis with plain numbers at 1, 2, 5, 10, …"""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axis.set_minor_formatter(NullFormatter())


def forest(ax: plt.Axes, table: pd.DataFrame, order: tuple[str, ...], row_labels: bool) -> None:
    """One panel."""
    table = table.set_index("method").reindex(order)
    for y, row in enumerate(table.itertuples()):
        fill = "white" if row.solved < row.n else "black"
        style = {"color": "black", "markerfacecolor": fill, "capsize": 4}
        ax.errorbar(row.mean, y, xerr=row.ci95, fmt="o", **style)
    ax.set_yticks(range(len(order)), [RULES[m].label if row_labels else "" for m in order])
    ax.set(xscale="log", ylim=(len(order) - 0.5, -0.5), xlabel="updates to P(correct) = 0.9")
    plain(ax.xaxis)


# %%
def race(table: pd.DataFrame, order: tuple[str, ...], title: str) -> None:
    _, axes = plt.subplots(1, 2, figsize=(11, 0.42 * len(order) + 1.4), sharex=True)
    for ax, optimizer in zip(axes, ("sgd", "adam"), strict=True):
        forest(ax, table[table["optimizer"] == optimizer], order, optimizer == "sgd")
        ax.set_title(f"{'SGD' if optimizer == 'sgd' else 'Adam'}, {title}", fontsize=13)
    plt.show()


race(live, RACERS, "from $10^{-3}$")

# %% [markdown]
# In the name of the last row, $A \ge -5$: near the pole a sampled penalty can be huge, so the
# sampled $D = 1$ is cut off at −5. Look at Adam's side: the split is not *LENS or not*, it is
# whether sixteen identical mistakes teach something. `MLE, D=2` and `MLE, D=2, de-meaned` differ
# in nothing else.
#
# And look at SGD's side: GRPO is ahead of REINFORCE *and* of `MLE, D=2`, although it learns
# nothing from negative groups. It divides by the standard deviation of the rewards, so a single
# correct answer of sixteen gets $A = \sqrt{15} \approx 3.9$ instead of 1. Under SGD such sizes
# decide; [notebook 06](06_rivals.ipynb) compares at equal size, too.
#
# ### The long version, from a more confident mistake
#
# `results/toy` holds the same from $10^{-4}$ (24 seeds; made by `python -m toy --full`). Expect
# the gaps under Adam to widen, since 99.8 % of the groups are now negative, nearly all of them
# identical. Open markers: not all seeds got there within the cap, so the mean is a lower bound.

# %%
long = pd.read_csv(results("toy", "summary.csv"))
long = long.query("quantity == 'steps_to_90' and p_c == 1e-4 and group_size == 16")
ORDER = (
    "reinforce",
    "grpo",
    "lens_paper",
    "lens_neg_unscaled",
    "lens_negative_std",
    "lens_no_demean",
    "mle_d1_clipped",
)
race(long, ORDER, "from $10^{-4}$")
for row in long[long["method"].isin(ORDER) & (long["solved"] < long["n"])].itertuples():
    share = f"{row.solved:.0f} of {row.n} seeds in {row.cap:,.0f} updates"
    print(f"{RULES[row.method].label}, {row.optimizer}: {share}")

# %% [markdown]
# ### So does LENS as printed beat GRPO here?
#
# Two means whose intervals overlap may still differ: most of the spread is the luck of the seeds,
# and that luck can be shared. `results/compare` has 96 seeds in which **all methods draw from the
# same random numbers**; then the *difference* per seed can have a much narrower interval. Expect of
# the printed rule: under SGD a gain below one per cent, of no practical size; under Adam one that
# counts, from $10^{-4}$.

# %%
paired = pd.read_csv(results("compare", "six_options.csv")).query("setting == 'published'")
rows = []
for (optimizer, p_c), cell in paired.groupby(["optimizer", "p_c"]):
    steps = cell.pivot(index="seed", columns="method", values="steps")
    for method in ("lens_paper", "lens_negative_std", "lens_no_demean"):
        saved = t_interval((steps["grpo"] - steps[method]) / steps["grpo"].mean())
        text = f"{saved.mean:+.1%} ± {saved.high - saved.mean:.1%}"
        rows.append((optimizer, f"{p_c:g}", RULES[method].label, text))
table = pd.DataFrame(rows, columns=["optimizer", "start", "method", "saved"])
print(f"updates saved against GRPO (95 % interval over {len(steps)} seeds, paired)")
table.pivot(index=["optimizer", "start"], columns="method", values="saved")

# %% [markdown]
# **Verdict.** "GRPO stalls, LENS escapes" is true of the exact objective with its pole, and of
# negative groups that are *not* de-meaned under Adam. It is not true of the algorithm as printed:
# under SGD the 1/G, the de-meaning and $\alpha$ together leave next to nothing; under Adam it saves
# some updates, the fewer the less confident the mistake was. All this on one question of six
# options.

# %% [markdown]
# ## Where it hurts
#
# An escape from a mistake and a flight from the truth are the same push. Four settings tell them
# apart; the small runs are made here, the long ones lie in `results` (20 to 24 seeds).
#
# ### 1 · The verifier is wrong
#
# The **verifier** decides what is correct. Suppose that it marks one question in five always wrong
# although the policy has it right. All groups of such a question look negative. Expect that GRPO
# leaves them as they were, and that the louder a rule pushes confident "mistakes", the more it
# unlearns. First small and live: 20 questions of 100 options, 400 updates of SGD, 10 seeds.

# %%
four = ("grpo", "lens_paper", "lens_negative_std", "lens_pooled")
for name in four:
    cell = Mislabelled(name, "sgd", (0, 10), questions=20, updates=400)
    run = cell.run(Path(), lambda text: None).set_index("step")["accuracy"]
    kept, half = t_interval(run[400]).mean, t_interval(run[400]).high - t_interval(run[400]).mean
    print(
        f"{TREATMENTS[name].label:20} true accuracy {run[0].mean():.3f} → {kept:.3f} ± {half:.3f}"
    )

# %% [markdown]
# `pooled D` is an extension of this project: it estimates $D$ over the *past* of a question, too,
# so that a question never solved gets a larger and larger $D$ and fades out
# ([notebook 11](11_extensions.ipynb)). Now the long runs, 50 questions, both optimizers. Expect
# Adam to make even the printed rule, nearly silent under SGD, forget nearly everything.


# %%
def curves(ax: plt.Axes, runs: pd.DataFrame, quantity: str, order: tuple[str, ...]) -> None:
    """Mean over seeds against the update, with its 95 % interval as a band."""
    for i, name in enumerate(order):
        of_step = runs[runs["method"] == name].groupby("step")[quantity]
        mean, half = of_step.mean(), 1.96 * of_step.sem()
        style = {**line(i), "markevery": (i, 5)}
        ax.plot(mean.index, mean, label=TREATMENTS[name].label, **style)
        ax.fill_between(mean.index, mean - half, mean + half, color=style["color"], alpha=0.15)
    ax.set_xlabel("update")


# %%
marked = pd.read_csv(results("compare", "mislabelled.csv"))
fig, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
for ax, optimizer in zip(axes, ("sgd", "adam"), strict=True):
    curves(ax, marked[marked["optimizer"] == optimizer], "accuracy", (*four, "lens_no_demean"))
    ax.set(title="SGD" if optimizer == "sgd" else "Adam", ylim=(0, 1.02))
axes[0].set_ylabel("true accuracy on\nmislabelled questions")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=12)
plt.show()

# %% [markdown]
# Under Adam even pooled D only slows the forgetting. Every question here has logits of its own,
# the worst case for Adam: they see nothing but the tiny signal, which Adam blows up to full steps.
# Check the verifier before you turn negative groups up.
#
# ### 2 · The answer resembles the mistake
#
# In a network, answers share **features**. If the right answer's features are correlated with
# those of the confident mistake (correlation $\rho$), pushing the mistake down pushes the answer
# down with it. One exact step shows it: 20 options with random features, the expected signal of
# wrong answers alone (Theorem 1 with $D = 2$). We follow the *logits*: that of the answer, that of
# the mistake, and the mean of the 18 others, which have nothing to do with either. Expect the
# mistake to fall always, and the answer to be dragged down with it as ρ grows.


# %%
def one_step(correlation: float, seeds: int = 200) -> np.ndarray:
    """d logit / d step of the answer, the mistake and the others: `[seeds, 3]`."""
    bias, features, correct = shared_features(streams(range(seeds), "one step"), correlation)
    model = Linear(bias, features)
    pi = np.exp(log_softmax(model.logits()))
    c = np.where(correct, 0.0, -pi / (2 - pi))  # wrong answers alone, D = 2
    push = pi * (c - (pi * c).sum(-1, keepdims=True))  # the flow formula above
    model.parameters = model.pull_back(push)
    z = (model.logits() - bias)[:, 0]
    return np.stack([z[:, 0], z[:, 1], z[:, 2:].mean(-1)], -1)


# %%
steps = {f"ρ = {rho:g}": one_step(rho) for rho in (0.0, 0.5, 0.8, 0.95)}
table = pd.DataFrame({k: 1e3 * v.mean(0) for k, v in steps.items()}).T.round(1)
table.columns = ["answer", "mistake", "others (mean)"]
behind = [(v[:, 0] < v[:, 2]).mean() for v in steps.values()]
table["answer falls behind the others"] = [f"{share:.0%}" for share in behind]
table.rename_axis("in 1/1000 a step")

# %% [markdown]
# From ρ = 0.5 on, the mistake loses its probability, but not to the answer: the unrelated wrong
# options get it. In training (8 answers a group, SGD, 24 seeds, cap 4,000 updates) expect the order
# of the LENS presets to turn round as ρ grows. (`NSR` gives every wrong answer −1 and right ones
# nothing: [notebook 06](06_rivals.ipynb).)

# %%
harms = pd.read_csv(results("compare", "summary_harms.csv"))
shared = harms[harms["experiment"] == "shared_features"].copy()
shared["rho"] = shared["setting"].str.removeprefix("rho=").astype(float)
fig, ax = plt.subplots(figsize=(8.5, 4.4))
five = ("grpo", "lens_paper", "lens_neg_unscaled", "lens_negative_std", "nsr")
for i, name in enumerate(five):
    rows = shared[shared["method"] == name].sort_values("rho")
    x = rows["rho"] + 0.012 * (i - 2)
    ax.errorbar(x, rows["mean"], yerr=rows["ci95"], label=TREATMENTS[name].label, **line(i))
    lost = rows["solved"] < rows["n"]
    ax.plot(x[lost], rows["mean"][lost], "o", markersize=13, markerfacecolor="none", color="0.3")
ax.set(yscale="log", xlabel="correlation ρ of answer and mistake", ylabel="updates to 0.9")
plain(ax.yaxis)
ax.legend(fontsize=12)
ax.set_title("circled: some seeds never got there (counted as 4,000)", fontsize=13)
plt.show()

# %% [markdown]
# How many of the 24 seeds solved the question:

# %%
share = [f"{row.solved:.0f}/{row.n}" for row in shared.itertuples()]
table = shared.assign(share=share).pivot(index="method", columns="rho", values="share").loc[[*five]]
table.rename(index=lambda name: TREATMENTS[name].label, columns=lambda rho: f"ρ = {rho:g}")

# %% [markdown]
# With unrelated features (ρ = 0) the loud `negative_std` is the fastest; at ρ = 0.8 two thirds of
# its seeds fail.
#
# ### 3 · The question has no answer
#
# Half of 50 questions have no correct option, and all questions share $d$ parameters. Signal spent
# on the unsolvable half is taken from the other. Expect: the fewer shared parameters, the larger
# the harm of loud negative signals; the printed rule, nearly silent, is harmless.

# %%
half = harms.query("experiment == 'unsolvable' and quantity == 'accuracy' and step == 400")
names = ("grpo", "lens_paper", "lens_pooled", "lens_neg_unscaled", "lens_negative_std", "nsr")
fig, axes = plt.subplots(1, 2, figsize=(11, 3.8), sharey=True)
for ax, width in zip(axes, (32, 128), strict=True):
    rows = half[half["setting"] == f"50x100 d={width}"].set_index("method").reindex(names)
    y = np.arange(len(names))
    ax.errorbar(rows["mean"], y, xerr=rows["ci95"], fmt="o", color="black", capsize=4)
    ax.set_yticks(y, [TREATMENTS[n].label for n in names])
    ax.set(ylim=(len(names) - 0.5, -0.5), xlim=(0, 0.4), title=f"d = {width} shared parameters")
    ax.set_xlabel("accuracy, solvable half")
plt.show()

# %% [markdown]
# (Adam, 400 updates, 20 seeds. In another run, SGD with 20 questions of 50 options, this harm was
# not seen: the intervals of all LENS presets overlap GRPO's. Only NSR's do not.)
#
# ### 4 · Sequences: every confidence can be exploited
#
# Answers are now sequences of tokens a, b and EOS (end), at most 12 long, to a question that can't
# be solved. GRPO learns nothing. What does a confidence signal alone teach? Expect: with the
# length-normalised $\bar\pi = \pi^{1/\text{length}}$ the policy becomes *uniform*; with the raw
# $\pi$ it becomes *long*, since long answers are improbable ones. **Entropy** measures how
# undecided the policy is: 0 nats when it is sure of every token, $\log 3 \approx 1.10$ when all
# three are equally likely. A small live run first: mean of five seeds, 300 updates.

# %%
for label, preset, confidence in (
    ("LENS as printed (π̄)", "paper", "length_normalized"),
    ("negative_std on π̄", "negative_std", "length_normalized"),
    ("negative_std on raw π", "negative_std", "sequence"),
):
    seeds = range(5)
    path = train_unsolvable(
        first_logits(streams(seeds, "sequence")),
        streams(seeds, label),
        300,
        300,
        preset=preset,
        confidence=confidence,
    )
    (l0, l1), (h0, h1) = path.length.mean(1), path.token_entropy.mean(1)
    print(f"{label:22} length {l0:.2f} → {l1:.2f} tokens, entropy {h0:.3f} → {h1:.3f} nats a token")

# %% [markdown]
# The long run, with intervals over its seeds:

# %%
runs = pd.read_csv(results("toy", "sequence.csv"))
print(runs["seed"].nunique(), "seeds")
cases = {
    "paper_normalized": "as printed (π̄)",
    "std_normalized": "negative_std, π̄",
    "std_raw": "negative_std, raw π",
}
fig, axes = plt.subplots(1, 2, figsize=(11, 4))
for ax, quantity in zip(axes, ("length", "token_entropy"), strict=True):
    for i, (name, label) in enumerate(cases.items()):
        of_step = runs[runs["method"] == name].groupby("step")[quantity]
        mean, half = of_step.mean(), 1.96 * of_step.sem()
        ax.plot(mean.index, mean, label=label, markevery=(2 * i, 6), **line(i))
        ax.fill_between(mean.index, mean - half, mean + half, color=line(i)["color"], alpha=0.15)
axes[0].set(xlabel="update", ylabel="length, tokens (limit 12)", ylim=(0, 12))
axes[1].set(xlabel="update", ylabel="entropy, nats a token", ylim=(None, 1.14))
axes[1].axhline(np.log(3), color="0.5", linewidth=1)
axes[1].text(700, np.log(3) + 0.006, "uniform: log 3", fontsize=12)
axes[0].legend(fontsize=12)
plt.show()

# %% [markdown]
# A negative group alone knows nothing of what is right; it can only say "not this". Where nothing
# was right, "not this" ended in noise or in length; only the printed rule barely moved.
#
# ## What you have seen
#
# - The exact objective with the pole at $D = 1$ leaves a confident mistake in time of order
#   $\log(1/p)$; REINFORCE, and every guarded version, needs time of order $1/p$ for small $p$.
# - The guard $\kappa$ is a hyperparameter: time ≈ $1/(1.5\,p\,(1 + 2/(\kappa-1)))$. With the true
#   $D$ and no guard, the mistake is rewarded.
# - Sampled: under SGD the printed rule is GRPO for all practical purposes; under Adam it gains a
#   little on very confident mistakes, and rules that do not de-mean gain several-fold.
# - The same strength harms where the verifier errs, where the answer resembles the mistake, where
#   nothing can be solved. The printed rule does little harm under SGD because it is nearly silent.
#
# ## Questions for the class
#
# 1. Why does de-meaning cost only a constant factor under SGD and nearly everything under Adam?
# 2. Derive the time for $D = 2$ from the formula for the guard. Why are the two so close?
# 3. A colleague proposes $\kappa = 1.01$ "since it escapes fastest". What will happen on
#    mislabelled questions?
# 4. Would you expect the harm of setting 1 for an adapter (LoRA) trained with Adam, where all
#    questions share parameters? What would you measure?
#
# Next: [06 · Rivals](06_rivals.ipynb), where every other treatment of negative groups gets the
# same rollouts. Exercises: [exercises](exercises/).
