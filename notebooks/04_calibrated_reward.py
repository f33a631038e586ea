# %% [markdown]
# # 04 · The calibrated reward
#
# [Notebook 03](03_value_function.ipynb) made exact statements about policies one can write down. A
# language model's answers are long, the difficulty $D$ of a question is unknown, and only a few
# answers are seen. Here you follow the paper step by step from the theorem to the **practical
# rule**, meet the places where it can be read in two ways, and measure how small the resulting
# signal is.
#
# **You need** notebooks 01–03, or their reminders below. Words are in the
# [glossary](../docs/glossary.md).
#
# **Afterwards you can**
# - compute the LENS advantages of a group by hand, and name the purpose of every step;
# - say what the estimate of $D$ is worth at 4, 16 or 64 samples;
# - predict what changes under another reading of the paper;
# - say why, as printed, LENS is nearly GRPO.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from classroom import line, results, slider, start

from lens_ref import (
    LensConfig,
    Rollouts,
    group_kind,
    importance_difficulty,
    length_normalized,
    lens_advantages,
    methods,
    mle_coefficient,
    neg_to_mixed_rms,
    true_difficulty,
)
from toy.experiments import signal_sizes

device = start(1)
torch.set_default_dtype(torch.float64)

# %% [markdown]
# ## 1 · Reminder, and the cast
#
# The **policy** $\pi$ (the language model) draws a **group** of $G$ answers $o_1\dots o_G$ to one
# question. A verifier gives each the **reward** $r_i = 1$ (correct) or $0$. **GRPO** turns rewards
# into **advantages** $A_i = (r_i - \text{mean})/\text{std}$, the force with which $o_i$ is made
# more ($A_i>0$) or less probable. A **mixed** group has both verdicts. A **negative** group has no
# correct answer: all rewards are 0, all advantages are 0, nothing is learnt.
#
# LENS, the paper's method, replaces $r$ by the **calibrated reward**, the boxed equation of Section
# 4, where $\pi(o)$ is the probability of the answer and $D$ the difficulty of the question
# ($1/\sum_o p^\star(o)$, with $p^\star(o)$ the probability that $o$ is correct: 1 if one answer is
# correct, ½ if two are):
#
# $$\tilde r = r - (1-r)\,\frac{\pi(o)}{D-\pi(o)} .$$
#
# Our cast: four wrong answers, with confidences from 0.9 down to 0.2. `Rollouts` is the library's
# record of what was sampled: rewards, $\log\pi$ of each whole answer, lengths in *tokens* (pieces of
# words). Lengths of 1 keep our numbers short; think of longer texts, whose confidence *per token*
# may be as high for several at once.


# %%
def group(rewards: list, confidence: list, lengths: list | None = None) -> Rollouts:
    """One question, `[1, G]`, whose answers have these geometric-mean token probabilities."""
    lengths = torch.tensor([lengths or [1] * len(rewards)])
    logprobs = lengths * torch.tensor([confidence]).log()
    return Rollouts(torch.tensor([rewards], dtype=torch.float64), logprobs, lengths)


CONFIDENCE = [0.9, 0.8, 0.5, 0.2]
NEGATIVE = group([0, 0, 0, 0], CONFIDENCE)
print(NEGATIVE.rewards, NEGATIVE.logprobs, NEGATIVE.lengths, sep="\n")

# %% [markdown]
# ## 2 · Confidence: take the length out
#
# The probability of a whole answer is a product over its tokens and shrinks with every one of them.
# Section 5.1 therefore uses the **length-normalised** confidence, the geometric mean of the token
# probabilities:
#
# $$\bar\pi(o) = \pi(o)^{1/|o|},\qquad \log\bar\pi = \frac{\log\pi}{|o|} .$$
#
# **Expect** $-6$ over 3 tokens to become $-2$ a token (in *nats*, the unit of natural logarithms):

# %%
log_confidence = length_normalized(torch.tensor([-6.0, -6.0, 0.0]), torch.tensor([3, 1, 5]))
print(log_confidence.tolist(), "nats a token")
assert log_confidence.tolist() == [-2, -6, 0]

# %% [markdown]
# Why bother? The penalty $\pi/(D-\pi)$ compares answers. Take 16 wrong answers of equal length with
# $\bar\pi = 0.85 \pm 0.03$. Raw probabilities differ by the factor $(\bar\pi_1/\bar\pi_2)^{|o|}$,
# so on long answers one of them takes the whole penalty. We count **how many answers effectively
# share it**, $(\sum u)^2/\sum u^2$ with $u = \pi/(D-\pi)$. **Expect** the count to fall from 16 to
# 1 with raw $\pi$ and to stay with $\bar\pi$. (`LensConfig` holds the options of the rule; a *preset*
# is a named set of them. `raw_all` has raw $\pi$ everywhere.)

# %%
random = torch.Generator().manual_seed(0)


def confident_groups(groups: int, correct: int, length: int, G: int = 16, spread=0.03) -> Rollouts:
    """Groups `[B, G]` with π̄ = 0.85 ± spread, the first `correct` answers right."""
    confidence = 0.85 + spread * torch.randn(groups, G, generator=random)
    rewards = torch.zeros(groups, G)
    rewards[:, :correct] = 1.0
    return Rollouts(rewards, length * confidence.clamp(0.01, 0.999).log(),
                    torch.full((groups, G), length))


# %%
def sharing(preset: str, length: int) -> float:
    odds = lens_advantages(confident_groups(300, 0, length), LensConfig.preset(preset)).info["odds"]
    return float((odds.sum(-1) ** 2 / (odds**2).sum(-1)).mean())


lengths = [1, 3, 10, 30, 100, 300, 1000]
figure, ax = plt.subplots()
for i, (preset, name) in enumerate([("paper", "π̄, length-normalised"), ("raw_all", "raw π")]):
    counts = [sharing(preset, n) for n in lengths]
    ax.semilogx(lengths, counts, label=name, **line(i))
    print(f"{name:22} shared by", ", ".join(f"{c:.1f}" for c in counts))
ax.set(ylim=(0, 17), xlabel="length, tokens (log scale)", ylabel="answers (of 16) that share")
ax.legend(loc="lower left")
plt.show()

# %% [markdown]
# **Is that still the theorem?** Yes, in another framework of the paper (Appendix "A
# Preference-Aware Framework"): with a **preference** $\rho(o)$, which says how much we would like to
# see each answer if it is correct, the penalty is $\pi/(D\rho-\pi)$. Choose $\rho = \pi^{1-1/|o|} = \pi/\bar\pi$, held fixed. Then
# $D\rho-\pi = \rho\,(D-\bar\pi)$, and $\rho$ cancels. **Expect** the same number twice:

# %%
log_pi, length, D = torch.tensor(-30.0), 100, 1.8
bar = (log_pi / length).exp()
preference = log_pi.exp() / bar
exact = mle_coefficient(log_pi, torch.tensor(0.0), D, preference)
print(f"−π/(Dρ − π) = {exact:.6f}    −π̄/(D − π̄) = {-bar / (D - bar):.6f}")
assert abs(exact + bar / (D - bar)) < 1e-12

# %% [markdown]
# ## 3 · The difficulty, estimated
#
# $D = 1/\sum_o p^\star(o)$ sums over *all* answers; we see $G$. Since
# $\sum_o p^\star = \mathbb E_{o\sim\pi}[r/\pi]$, the paper takes the mean over the group
# (**importance sampling**: draw from $\pi$, divide by $\pi$; equation for $D_{\rm imp}$ in Section
# 5.1):
#
# $$D_{\rm imp} = \Big\{\frac1G\sum_i \frac{r_i}{\pi(o_i)}\Big\}^{-1} .$$
#
# By hand: one correct answer of four, with $\pi=0.9$: $D_{\rm imp} = 4\cdot0.9 = 3.6$. If instead
# the one with $0.2$ is correct: $4\cdot0.2=0.8$. Note that nothing keeps the estimate below 1,
# where the true $D$ lives.

# %%
log_confidence = torch.tensor(CONFIDENCE).log()
for rewards in ([1.0, 0, 0, 0], [0, 0, 0, 1.0], [0.0, 0, 0, 0]):
    log_d = importance_difficulty(torch.tensor(rewards), log_confidence)
    print(rewards, f"D_imp = {log_d.exp():.1f}")
assert abs(importance_difficulty(torch.tensor([1.0, 0, 0, 0]), log_confidence).exp() - 3.6) < 1e-12

# %% [markdown]
# How good is it? Six options, A and B correct, so the true $D$ is $\tfrac12$; the policy gives the
# correct ones 5 % each. We draw 20 000 groups of each size. **Expect** the mean of $1/D_{\rm imp}$
# to be 2 at every $G$ (it is *unbiased*: right on average) and $D_{\rm imp}$ itself to be off: the
# inverse of an unbiased estimate is not unbiased. In negative groups it does not exist at all.

# %%
p_star = torch.tensor([1.0, 1, 0, 0, 0, 0])
policy = torch.tensor([0.05, 0.05, 0.6, 0.1, 0.1, 0.1])
print("true D:", float(true_difficulty(p_star)))
sizes, estimates = [4, 8, 16, 64, 256], {}
for G in sizes:
    drawn = torch.multinomial(policy.expand(20_000, 6), G, replacement=True, generator=random)
    D = importance_difficulty(p_star[drawn], policy[drawn].log()).exp()
    estimates[G], defined = D, D.isfinite()
    print(f"G = {G:3}   mean of 1/D_imp {(1 / D).mean():.2f}   mean of D_imp where defined "
          f"{D[defined].mean():.2f}   undefined {1 - defined.double().mean():.1%}")

# %%
figure, ax = plt.subplots()
for i, G in enumerate([4, 16, 64, 256]):
    D = estimates[G].sort().values
    share = (np.arange(len(D)) + 1) / len(D)
    defined = D.isfinite()
    ax.step(D[defined], share[defined], where="post", label=f"G = {G}", markevery=0.1, **line(i))
ax.axvline(0.5, color="0.4", linewidth=3, alpha=0.6)
ax.text(0.51, 0.02, "true D = ½", color="0.25")
ax.text(0.19, 0.36, "G = 4 ends here:\nthe others are negative", ha="right")
ax.set(xscale="log", xlim=(0.06, 2.5), ylim=(0, 1.02), xlabel="$D_{\\rm imp}$ (log scale)",
       ylabel="share of groups below", title="The estimate of D, group by group")
ax.set_xticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
ax.legend(loc="upper left", fontsize=12)
plt.show()

# %% [markdown]
# Read the curves from the left: at $G=4$ every estimate lies *below* the truth, and the curve stops
# at one third, since the other groups are negative. Around $G=64$ the mean is *above* it. So the
# bias has either sign. The paper wants to "conservatively overestimate" $D$; the estimate does not
# see to that. The guard does.
#
# ## 4 · The guard
#
# $$D = \max\big(D_{\rm imp},\ 2\max_i\bar\pi(o_i)\big)\ \text{in mixed groups},\qquad
#   D = 2\max_i\bar\pi(o_i)\ \text{in negative groups.}$$
#
# With $D\ge2\bar\pi$ the odds $u = \bar\pi/(D-\bar\pi)$ are at most 1: nothing comes near the pole
# $\bar\pi = D$ of notebook 03. In a negative group, where the guard is all there is, the most
# confident answer gets exactly $u = 1$. (This $D$ is often above 1, where no true difficulty lies:
# it has become a brake, rather than a measure of the question.) By hand for our cast,
# $D = 2\cdot0.9 = 1.8$:
# $u = \frac{0.9}{0.9},\ \frac{0.8}{1.0},\ \frac{0.5}{1.3},\ \frac{0.2}{1.6}$.

# %%
info = lens_advantages(NEGATIVE).info
print(f"D = {info['log_difficulty'].exp().item():.1f}   u =", info["odds"][0].numpy().round(4))
assert (info["odds"][0] - torch.tensor([1, 0.8, 5 / 13, 1 / 8])).abs().max() < 1e-14

# %% [markdown]
# Now move $D$ yourself. Dots are the four wrong answers, the curve is $-\bar\pi/(D-\bar\pi)$.
# **Expect**: far above the guard nearly no penalty; at the guard (1.8) at most 1; below it,
# penalties beyond 1; and once $D$ falls under an answer's $\bar\pi$, a *reward* for that answer. (A
# triangle is an answer beyond the end of the axis.)


# %%
def draw_difficulty(D: float) -> None:
    figure, ax = plt.subplots()
    for low, high, style in ((0, min(1, D - 0.01), "k-"), (D + 0.01, max(1, D + 0.01), "r--")):
        c = np.linspace(low, high, 200)
        ax.plot(c, -c / (D - c), style)
    for c in CONFIDENCE:
        r_tilde = np.clip(-c / (D + 1e-9 - c), -3.8, 3.8)
        marker = "v" if r_tilde == -3.8 else "^" if r_tilde == 3.8 else "o"  # off the axis?
        ax.plot(c, r_tilde, marker, markersize=11, color="#c0392b" if c > D else "black")
    ax.axhspan(-1, 0, color="0.92")
    ax.text(0.01, -0.95, "what the guard allows: −1 to 0", color="0.3")
    ylim = (-4, 4) if D < 1 else (-4, 0.2) if D < 1.8 else (-1.6, 0.2)
    title = f"D = {D:.2f}: " + ("guard kept" if D >= 1.8 else "below the guard")
    ax.set(xlim=(0, 1.02), ylim=ylim, xlabel="confidence π̄",
           ylabel="calibrated reward $\\tilde r$", title=title)
    plt.show()


slider(draw_difficulty, D=(0.4, 5.0, 0.05, 1.8))

# %% [markdown]
# The 2 is a choice, `guard` in `LensConfig`. With $D=\kappa\max\bar\pi$ the lowest $\tilde r$ is
# $-1/(\kappa-1)$: $\kappa\to1$ brings the pole back, a large $\kappa$ flattens everything.
# [Notebook 05](05_toy_dynamics.ipynb) measures what that does to learning.
#
# ## 5 · The factor 1/G
#
# GRPO has a **sign invariance**: after subtracting the mean, correct answers have $A>0$ and wrong
# ones $A<0$. The paper's example, with $G=16$: calibrated rewards $[1, 0, -1,\dots,-1]$. The
# mean is $-\tfrac{13}{16}$, so the *wrong* answer with 0 ends up above it. Therefore the paper
# scales all negative calibrated rewards by $1/G$: the mean becomes $\tfrac1{128}$, and 0 lies below
# it.

# %%
example = group([1.0] + [0.0] * 15, [0.8, 1e-30] + [0.8] * 14, [300] * 16)
scaled = {}
for preset, title in (("no_scale", "without 1/G"), ("paper", "with 1/G")):
    signal = lens_advantages(example, LensConfig.preset(preset))
    scaled[title] = A = signal.advantages[0].tolist()
    mean = signal.info["calibrated_reward"].mean()
    print(f"{title:12} mean calibrated reward {mean:+.4f}   unsure answer {A[1]:+.3f}")
    assert (A[1] > 0) == (preset == "no_scale")

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True)
for ax, (title, A) in zip(axes, scaled.items(), strict=True):
    ax.bar(range(1, 17), A, color=["black", "#c0392b"] + ["0.7"] * 14, edgecolor="black")
    ax.axhline(0, color="black", linewidth=1)
    ax.text(1.7, A[0] - 0.25, "correct")
    ax.annotate("wrong, unsure", (2, A[1]), (4, 2), arrowprops={"arrowstyle": "->"})
    ax.set(title=title, xlabel="answer", xticks=[1, 4, 8, 12, 16])
axes[0].set_ylabel("advantage A")
plt.show()

# %% [markdown]
# The factor is safe, not necessary: anything below $1/(G-2)$ keeps the signs under the paper's
# guard. And it is stated for all negative calibrated rewards, so negative groups get it too, though
# they have no sign to protect. Section 10 shows what that costs.
#
# ## 6 · Normalise, and α
#
# Mixed groups are centred and divided by their standard deviation, as in GRPO. Negative groups are
# **de-meaned** only (the mean is subtracted), and weighted with **α** = 0.25, "the only
# hyperparameter" (a number that one chooses before training; Section 5.1, final objective):
#
# $$A_i = \frac{\tilde r_i-\text{mean}}{\text{std}}\ \text{(mixed)},\qquad
#   A_i = \alpha\,(\tilde r_i-\text{mean})\ \text{(negative)},\qquad A_i = 0\ \text{(all correct)}.$$
#
# Here is the whole rule. It reads $D_{\rm imp}$ with the raw $\pi$, as printed (see section 7).


# %%
def lens_by_hand(r: torch.Tensor, log_pi: torch.Tensor, lengths: torch.Tensor, alpha=0.25):
    """The advantages of one group; all arguments `[G]`. Section 5.1 in its order."""
    G = len(r)
    if (r == 1).all():
        return torch.zeros(G)
    bar = torch.exp(log_pi / lengths)                                # confidence
    D = 2 * bar.max()                                                # the guard
    if (r == 1).any():
        D = torch.maximum(D, 1 / (r / log_pi.exp()).mean())          # D_imp, in mixed groups
    r_tilde = r - (1 - r) / G * bar / (D - bar)                      # calibrated, with 1/G
    centred = r_tilde - r_tilde.mean()
    return centred / r_tilde.std(correction=0) if (r == 1).any() else alpha * centred


# %%
by_hand = lens_by_hand(NEGATIVE.rewards[0], NEGATIVE.logprobs[0], NEGATIVE.lengths[0])
print("by hand", by_hand.numpy().round(4))
print("library", lens_advantages(NEGATIVE).advantages[0].numpy().round(4))

# %% [markdown]
# And on 300 random groups of every kind. (The library works with logarithms throughout: the line
# with `log_pi.exp()` would fail on a real answer, since $e^{-1000}$ is 0 to a computer.) **Expect**
# agreement to rounding:

# %%
confidence = 0.05 + 0.9 * torch.rand(300, 8, generator=random)
lengths = torch.randint(1, 20, (300, 8), generator=random)
chance = torch.rand(300, 1, generator=random) ** 2
rewards = (torch.rand(300, 8, generator=random) < chance).double()
many = Rollouts(rewards, lengths * confidence.log(), lengths)
rows = zip(rewards, many.logprobs, lengths, strict=True)
ours = torch.stack([lens_by_hand(*row) for row in rows])
error = (ours - lens_advantages(many).advantages).abs().max()
print("negative, mixed, correct groups:", group_kind(rewards).bincount().tolist())
print(f"largest difference {error:.1e}")
assert error < 1e-9

# %% [markdown]
# Three things to see in our negative group:
#
# - the two confident answers are pushed down, **the two unsure ones are pushed up**, though they
#   are wrong too: the advantages of a group add up to 0;
# - if all four had the same confidence, all four would get exactly 0: nothing is learnt, as in
#   GRPO;
# - α only scales. In a live notebook, **expect** the left bars to follow α, and the mixed group (the
#   same answers, the first now correct) to stay as it is. Mind the two axes.


# %%
def draw_alpha(alpha: float) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4))
    groups = {f"negative group, α = {alpha:.2f}": NEGATIVE,
              "mixed group: no α": group([1, 0, 0, 0], CONFIDENCE)}
    for ax, (title, rollouts) in zip(axes, groups.items(), strict=True):
        A = lens_advantages(rollouts, LensConfig(alpha=alpha)).advantages[0].tolist()
        bars = ax.bar([str(c) for c in CONFIDENCE], A, color="0.75", edgecolor="black")
        ax.bar_label(bars, [f"{a:+.3f}" for a in A], padding=3)
        ax.axhline(0, color="black", linewidth=1)
        ax.margins(y=0.15)
        ax.set(title=title, xlabel="confidence π̄", ylabel="advantage A")
    axes[0].set_ylim(-0.13, 0.14)
    plt.show()


slider(draw_alpha, alpha=(0.0, 1.0, 0.05, 0.25))

# %%
expected = [-0.0264122596154, -0.0139122596154, 0.0120492788462, 0.0282752403846]
assert (lens_advantages(NEGATIVE).advantages[0] - torch.tensor(expected)).abs().max() < 1e-12
same = lens_advantages(group([0, 0, 0, 0], [0.7] * 4)).advantages
print("four wrong answers of equal confidence:", same.tolist())

# %% [markdown]
# ## 7 · First ambiguity: which π in $D_{\rm imp}$?
#
# The equation for $D_{\rm imp}$ is printed with the **raw** probability $\pi$ of the whole answer,
# everything around it with $\bar\pi$. The preference framework of section 2 would want $\bar\pi$ in
# $D_{\rm imp}$ as well: there $1/D = \sum p^\star\rho = \mathbb E_{o\sim\pi}[r/\bar\pi]$. On
# answers of one token both are the same. On 100 tokens raw $\pi$ is about $10^{-7}$, and so is
# $D_{\rm imp}$: the guard always wins. The preset `paper` is the printed reading,
# `normalized_difficulty` the other one. **Expect**, left, that the printed reading forgets how many
# answers were correct; right, how soon $D_{\rm imp}$ loses its say.

# %%
READINGS = {"as printed: raw π": "paper", "other: π̄": "normalized_difficulty"}


def wrong_odds(preset: str, correct: int, length: int) -> tuple[float, float]:
    """Mean odds of the wrong answers; share of groups in which D_imp is above the guard."""
    rollouts = confident_groups(300, correct, length)
    info = lens_advantages(rollouts, LensConfig.preset(preset)).info
    guard = 2 * info["log_confidence"].exp().amax(-1)
    decides = info["log_difficulty"].exp() > guard * (1 + 1e-9)
    return float(info["odds"][:, correct:].mean()), float(decides.double().mean())


# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.8))
counts, tokens = range(1, 16), [1, 2, 4, 8, 16, 32, 100]
for i, (name, preset) in enumerate(READINGS.items()):
    u = [wrong_odds(preset, k, 100)[0] for k in counts]
    left.plot(counts, u, label=name, **line(i))
    right.semilogx(tokens, [wrong_odds(preset, 4, n)[1] for n in tokens], label=name, **line(i))
    some = ", ".join(f"{u[k - 1]:.2f}" for k in (1, 4, 8, 12))
    print(f"{name:20} mean odds at 1, 4, 8, 12 of 16 correct: {some}")
left.set(xlabel="correct of 16 (100 tokens)", ylabel="mean odds of a wrong answer",
         ylim=(0, 1.05), xticks=[1, 4, 8, 12, 15], title="Does accuracy matter?")
right.set(xlabel="length, tokens (4 of 16 correct)", ylabel="share of groups",
          ylim=(-0.03, 1.05), title="$D_{\\rm imp}$ above the guard")
left.legend(loc="lower right")
plt.show()

# %% [markdown]
# So under the printed reading a mixed group of long answers has $D = 2\max\bar\pi$ like a negative
# one; "the difficulty of the question" plays no part in what wrong answers pay. Under the $\bar\pi$
# reading $D_{\rm imp}\approx\bar\pi/\text{accuracy}$ and wrong answers to hard questions pay less,
# until the guard takes over above one half correct.
#
# ## 8 · All readings on the same two groups
#
# `LensConfig` has a named preset for each reading. The same eight answers of 100 tokens, $\bar\pi$
# from 0.90 to 0.55: once all wrong, once with the third ($\bar\pi = 0.80$) correct. "Ratio" is the
# RMS (root mean square) advantage of the negative group over that of the mixed one. **Expect** the
# correct answer's advantage to be much the same under all but the last (which does not divide by
# the std), while the negative group's differ by more than an order of magnitude.

# %%
eight = [0.90 - 0.05 * i for i in range(8)]
both = Rollouts(
    torch.tensor([[0.0] * 8, [0.0, 0, 1, 0, 0, 0, 0, 0]]),
    100 * torch.tensor([eight, eight]).log(), torch.full((2, 8), 100),
)
columns = ["neg: surest", "neg: least sure", "mixed: correct", "mixed: surest wrong",
           "mixed: least sure", "ratio"]
table = pd.DataFrame(columns=columns, dtype=float)
for preset in LensConfig.presets():
    signal = lens_advantages(both, LensConfig.preset(preset))
    negative, mixed = signal.advantages.tolist()
    ratio = neg_to_mixed_rms(signal.advantages, group_kind(both.rewards), signal.keep)
    table.loc[preset] = [negative[0], negative[7], mixed[2], mixed[0], mixed[7], float(ratio)]
print(table.round(4).to_string())
assert abs(table.loc["paper", "neg: surest"] + 0.0096) < 5e-5

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 5.4), sharey=True)
dots = {"c": eight, "cmap": "Greys", "vmin": 0.3, "vmax": 0.9, "edgecolor": "black"}
for row, preset in enumerate(LensConfig.presets()):
    A = lens_advantages(both, LensConfig.preset(preset)).advantages
    for ax, advantages in zip(axes, A, strict=True):
        ax.axhline(row, color="0.7", linewidth=1)
        ax.scatter(advantages, [row] * 8, s=75, zorder=3, **dots)
    axes[1].plot(A[1, 2], row, "*", color="#e08214", markersize=17, mec="black", zorder=4)
for ax, title in zip(axes, ["all wrong", "third answer correct (star)"], strict=True):
    ax.axvline(0, color="black", linewidth=1)
    ax.set(title=title, xlabel="advantage A (dark: confident)")
axes[0].set_xscale("symlog", linthresh=0.01)
axes[0].set_xticks([-1, -0.1, -0.01, 0, 0.01, 0.1, 1], ["−1", "−.1", "−.01", "0", ".01", ".1", "1"])
axes[0].set_yticks(range(8), LensConfig.presets())
axes[0].invert_yaxis()
plt.show()

# %% [markdown]
# (The left axis is linear between ±0.01 and logarithmic outside.) What each does, from the top:
#
# | preset | what is different | what changes |
# |---|---|---|
# | `paper` | nothing: the printed formulas | |
# | `normalized_difficulty` | $D_{\rm imp}$ on $\bar\pi$ | mixed groups: wrong answers pay less where few are correct |
# | `raw_all` | raw $\pi$ everywhere | only the single most confident answer pays |
# | `neg_unscaled` | no $1/G$ in negative groups | their signal is $G$ times as large |
# | `no_scale` | no $1/G$ anywhere | as above, and an unsure wrong answer in a mixed group can get $A>0$, as here |
# | `negative_std` | negative groups divided by their std too | exactly α times as loud as mixed ones, however similar the answers |
# | `no_demean` | negative groups not centred, no $1/G$ | all wrong answers go down |
# | `likelihood` | no $1/G$, no std, α = 1 | the scale that maximum likelihood itself implies; signs as in `no_scale` |
#
# There are smaller open ends. **Which std** does GRPO divide by? Dividing the squares by $G-1$ (the
# default of `torch.std`) instead of $G$ makes mixed advantages smaller by the factor
# $\sqrt{(G-1)/G}$.
#
# **Truncated answers.** An answer that ran into the length limit is wrong, and if it repeats itself
# it is also very confident. It then sets $D$ for the whole group. `truncated` says what to do: keep
# it (the paper says nothing of it), *mask* it (as if it had not been sampled), or leave it out of the
# maximum. **Expect** one answer
# of $\bar\pi=0.99$ to shrink the differences between fifteen others:

# %%
fifteen = [0.85 + 0.03 * x for x in np.linspace(-1.6, 1.6, 15)]
base = group([0.0] * 16, [*fifteen, 0.99], [100] * 16)
stuck = Rollouts(base.rewards, base.logprobs, base.lengths,
                 truncated=torch.tensor([[False] * 15 + [True]]))
for rule in ("keep", "exclude_from_max", "mask"):
    signal = lens_advantages(stuck, LensConfig(truncated=rule))
    odds, A = signal.info["odds"][0], signal.advantages[0]
    D = signal.info["log_difficulty"].exp().item()
    print(f"{rule:17} D = {D:.2f}   spread of the others' odds "
          f"{odds[:15].std():.3f}   advantage of the truncated one {A[15]:+.4f}")

# %% [markdown]
# **Partial credit.** The likelihood allows rewards between 0 and 1. A group of *equal* rewards, say
# ¼ each, then holds no verdict either, and dividing its tiny differences by their own std would blow
# them up to full strength. The library treats such groups like negative ones. **Expect** small
# numbers:

# %%
partial = group([0.25] * 4, [0.5, 0.5, 0.25, 0.25])
A = lens_advantages(partial).advantages[0]
print("GRPO", methods.get("grpo")(partial).advantages[0].tolist(), "  LENS", A.numpy().round(5))
assert abs(A[3] - 0.25 * 0.75 * (3 / 5 - 3 / 13) / 2 / 4) < 1e-14  # D = 4/3, odds 3/5 and 3/13

# %% [markdown]
# ## 9 · Two consequences one does not expect
#
# **The jump at no correct answer.** With fewer correct answers the question looks harder,
# $D_{\rm imp}$ grows and wrong answers pay less. With *none* correct, theory says $D=\infty$: pay
# nothing. The rule falls back on the guard, the **smallest** $D$ it allows. For identical
# $\bar\pi=0.85$, $G=16$, under the $\bar\pi$ reading: **expect**
# $u = \tfrac13, \tfrac17, \tfrac1{15}$ at 4, 2, 1 correct answers, and then 1.

# %%
def odds_at(preset: str, k: int) -> float:
    rollouts = group([1.0] * k + [0.0] * (16 - k), [0.85] * 16, [100] * 16)
    return lens_advantages(rollouts, LensConfig.preset(preset)).info["odds"][0, -1].item()


normalized = [odds_at("normalized_difficulty", k) for k in range(16)]
printed = [odds_at("paper", k) for k in range(16)]
print("odds at 4, 2, 1, 0 correct:", [round(normalized[k], 3) for k in (4, 2, 1, 0)])
assert np.allclose([normalized[k] for k in (4, 2, 1, 0)], [1 / 3, 1 / 7, 1 / 15, 1])

# %%
figure, ax = plt.subplots()
ax.plot(range(16), printed, label="as printed", **line(0))
ax.plot(range(1, 16), normalized[1:], label="π̄ in $D_{\\rm imp}$", **line(1))
ax.plot(0, 1, "o", markersize=14, color="#c0392b", markerfacecolor="none", markeredgewidth=3)
ax.annotate("no correct answer:\nthe largest penalty", (0, 1), (1.3, 0.6), color="#c0392b",
            arrowprops={"arrowstyle": "->", "color": "#c0392b"})
ax.plot(0, 0, "*", markersize=18, color="#e08214", markeredgecolor="black", label="theory: D = ∞")
ax.set(xlabel="correct answers in the group (of 16)", ylabel="odds u of a wrong answer",
       ylim=(-0.06, 1.1), title="The jump at zero")
ax.legend(loc="lower right")
plt.show()

# %% [markdown]
# The printed reading has no jump on long answers, for the reason of section 7: it is at the guard
# everywhere. A remedy beyond the paper: *pool* $D$, that is, estimate it from all past samples of a
# question, as `lens_pooled` does. It begins as if 16 samples had been seen at $D = 1$. **Expect** the
# penalty to fade on a question that was never solved: the more samples failed, the larger $D$.

# %%
never = group([0.0] * 16, [0.85] * 16, [100] * 16)
for n in (16, 64, 256, 1024):
    D = torch.tensor([(16 + n) / 16.0])  # the pooled D after n failures
    known = Rollouts(never.rewards, never.logprobs, never.lengths, prior=D)
    u = methods.get("lens_pooled")(known).info["odds"][0, 0]
    print(f"{n:5} failures   D = {D.item():5.1f}   u = {u:.3f}")

# %% [markdown]
# **Absolute confidence cancels.** LENS is described as penalising *over-confident* mistakes. But
# $D = 2\max\bar\pi$ scales along with $\bar\pi$: make every answer a million times less likely and
# nothing changes. **Expect** the most confident wrong answer to pay exactly $1/G$, be its $\bar\pi$
# 0.9 or $10^{-6}$, where a fixed $D = 1$ would let the latter off:

# %%
for top in (0.9, 1e-3, 1e-6):
    wild = group([0.0] * 4, [top, top / 2, top / 3, top / 4], [7, 5, 3, 2])
    pays = -lens_advantages(wild).info["calibrated_reward"][0, 0].item()
    print(f"π̄ = {top:<7g} pays {pays:.4f}   with D = 1: {top / (1 - top):.2g}")
    assert abs(pays - 1 / 4) < 1e-12

# %% [markdown]
# In negative groups the practical rule penalises **relative** confidence: the most confident of four
# wild guesses is treated like a firm conviction.
#
# ## 10 · How loud is all this?
#
# Negative groups are scaled by $1/G$, de-meaned without division, and weighted by α. Mixed groups
# are divided by their std, so their RMS advantage is 1. Answers of one model to one question have
# similar $\bar\pi$: we vary their spread around 0.85 ($G = 16$, 400 groups a point). Mind the
# logarithmic axis. **Expect** the printed rule about a thousand times weaker in negative groups
# than in mixed ones, and the scale of the likelihood itself near α = ¼ with std:

# %%
signals = signal_sizes(groups=400)
at = signals[signals["spread"] == 0.03].set_index("preset")["neg_to_mixed_rms"]
print("at spread 0.03, negative : mixed =")
print("\n".join(f"    {preset:14} 1 : {1 / ratio:.0f}" for preset, ratio in at.items()))
print(f"the likelihood is {at['likelihood'] / at['paper']:.0f} times as loud as the printed rule")
assert 1 / 1400 < at["paper"] < 1 / 900

# %% [markdown]
# And in a real run? Every update of the tiny language model of
# [notebook 07](07_tiny_language_model.ipynb) logged the same ratio, under the printed rule, also with
# groups of 16. The grey band below spans all of them.

# %%
updates = pd.read_csv(results("tiny", "updates.csv")).query("method == 'lens'")
run = updates["neg_to_mixed_rms"]
print(f"tiny language model, {updates['seed'].nunique()} runs of {updates['step'].max()} updates: "
      f"negative : mixed = 1 : {1 / run.median():.0f} (median)")

# %%
figure, ax = plt.subplots(figsize=(8, 5))
for i, (preset, rows) in enumerate(signals.groupby("preset", sort=False)):
    ax.plot(rows["spread"], rows["neg_to_mixed_rms"], label=preset, **line(i))
ax.axhline(1, color="0.4", linewidth=3, alpha=0.6)
ax.text(0.003, 1.12, "mixed groups", color="0.25")
ax.axhspan(run.min(), run.max(), color="0.85")
ax.text(0.019, run.max() * 1.15, "tiny language model, printed rule", color="0.25")
ax.set(yscale="log", ylim=(5e-5, 3), xlabel="spread of π̄ in the group (std around 0.85)",
       ylabel="RMS advantage, negative ÷ mixed", title="How loud are negative groups?")
ax.legend(loc="lower right", ncols=2)
plt.show()

# %% [markdown]
# And mixed groups? There the calibrated reward differs from $r$ by at most $1/G$, and by nearly the
# *same* amount for all wrong answers, which centring removes. **Expect** advantages that are GRPO's
# to about a hundredth, with a cosine above 0.9999 (1: the same direction); without the $1/G$
# (`no_scale`), to about a tenth:

# %%
grpo, differences = methods.get("grpo"), {}
for preset in ("paper", "normalized_difficulty", "no_scale"):
    differences[preset] = []
    for k in range(1, 15):
        rollouts = confident_groups(300, k, 100)
        A = lens_advantages(rollouts, LensConfig.preset(preset)).advantages
        B = grpo(rollouts).advantages
        differences[preset].append(float((A - B).square().mean().sqrt()))
        cosine = float(torch.cosine_similarity(A.flatten(), B.flatten(), dim=0))
        if k in (1, 12):
            print(f"{preset:22} {k:2} correct: RMS difference {differences[preset][-1]:.4f}, "
                  f"cosine {cosine:.5f}")
        assert cosine > 0.9999 or preset == "no_scale"

# %%
figure, ax = plt.subplots()
for i, (preset, difference) in enumerate(differences.items()):
    ax.plot(range(1, 15), difference, label=preset, **line(i))
ax.axhline(1, color="0.4", linewidth=3, alpha=0.6)
ax.text(1, 1.15, "size of GRPO's advantages", color="0.25")
ax.set(yscale="log", ylim=(2e-4, 2.5), xlabel="correct answers in the group (of 16)",
       ylabel="RMS of $A_{\\rm LENS} - A_{\\rm GRPO}$", title="Mixed groups: LENS is nearly GRPO")
ax.legend(loc="lower center", ncols=3, fontsize=12)
plt.show()

# %% [markdown]
# (With 15 of 16 correct the two are equal exactly: one wrong answer takes a single value, and
# standardising removes it.)
#
# As printed, then, LENS is GRPO plus a whisper: mixed groups are the same to about a hundredth, and
# negative groups are hundreds of times quieter. That is not a verdict on the idea; the likelihood
# itself would make negative groups hundreds of times louder than that. Whether louder is better is an
# experiment: [notebook 05](05_toy_dynamics.ipynb) begins it, where it helps and where it hurts. The
# paper reports gains with what it ran, and its code may have read its formulas in one of the other
# ways; that we cannot tell from the text.
#
# ## What you have seen
#
# - π̄ takes the length out (and is the preference framework with $\rho=\pi/\bar\pi$); $D_{\rm imp}$
#   is noisy and biased either way; the guard bounds the odds by 1; $1/G$ keeps the signs; α weighs
#   negative groups.
# - In a negative group confident answers go down and unsure ones up; equal ones get 0.
# - The printed $D_{\rm imp}$ has no say on long answers; on $\bar\pi$ it has, and jumps at no
#   correct answer.
# - In a negative group only relative confidence counts.
# - As printed, negative groups are hundreds to a thousand times quieter than mixed ones. Log it:
#   `neg_to_mixed_rms`.
#
# **Questions for the class**
# 1. Which of the steps would you drop for answers of one token, and which would you keep?
# 2. Eight wrong answers, seven of them identical in confidence, one less sure. Who moves which way
#    under `paper`, under `no_demean`?
# 3. Under which circumstances would you *want* unsure wrong answers to be pushed up?
# 4. A verifier marks a correct result wrong, and all samples reach it, by different texts. What
#    does LENS do that GRPO does not?
#
# **Next:** [notebook 05](05_toy_dynamics.ipynb). **Practice:** the [exercises](exercises/).
