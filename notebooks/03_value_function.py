# %% [markdown]
# # 03 · The value function
#
# [Notebook 02](02_likelihood.ipynb) fitted a reward model by maximum likelihood and found that its
# gradient is a policy gradient in which a wrong answer earns less than 0. Here you see *what* that
# gradient climbs: a value function $J_{\rm MLE}$, the accuracy minus a price on confident mistakes;
# and what happens where the rule must not be used.
#
# **You need** notebooks 01 and 02, or their two-line reminders below, and derivatives. Words are in
# the [glossary](../docs/glossary.md).
#
# **Afterwards you can**
# - tell the weight $w(z)$ from the odds $z/(1-z)$, and say which of them multiplies a gradient;
# - compute $J_{\rm MLE}$ of a policy by hand, in two ways;
# - say why Theorem 2 needs a stop-gradient, and what happens without one;
# - point at the pole $\pi = D$ on a picture, and say what lies beyond it.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from classroom import line, slider, start

from lens_ref import (
    DomainError,
    mle_coefficient,
    odds,
    value,
    value_mle,
    value_mle_closed_form,
    value_negative,
    weight,
    weight_derivative,
)
from toy import flow
from toy.spaces import six_options

device = start(0.5)
torch.set_default_dtype(torch.float64)  # errors of 1e-16 shall be visible

# %% [markdown]
# ## 1 · Reminder: one question, a policy, a reward model
#
# A **question** has a few possible **answers** (also: responses) $o$. The **policy**
# $\pi_\theta(o)$ is what we train: a probability for each answer, here a softmax of one number (a
# *logit*) an answer; $\theta$ are those numbers. An answer earns the **reward** $r = 1$ if it is
# correct and $r = 0$ if not. $p^\star(o)$ is the probability that $o$ is correct, in mathematics
# just 0 or 1.
#
# The **difficulty** is $D = 1/\sum_o p^\star(o)$: 1 if one answer is correct, $\tfrac12$ if two
# are. The paper models "$o$ is correct" by the probability $p_\theta(o) = \pi_\theta(o)/D$. We call
# that ratio $z = \pi/D$. It must stay below 1 on wrong answers: keep that in mind.
#
# Fitting $p_\theta$ by maximum likelihood gave (Theorem 1) a gradient in which each sampled answer
# pushes with the force
#
# $$\tilde r = r - (1-r)\,\frac{\pi}{D-\pi}\qquad\text{(calibrated reward, boxed equation of Section 4)}$$
#
# times $\nabla_\theta \log\pi_\theta(o)$, "make $o$ more probable". A correct answer is pushed up
# with force 1, a wrong one down with force $\pi/(D-\pi) = z/(1-z)$. (Notebook 02 calls $\tilde r$ the
# coefficient. All logarithms are natural.)

# %% [markdown]
# ## 2 · The price $w(z)$
#
# Theorem 2 defines a **weight function**
#
# $$w(z) = \frac1z \log\frac1{1-z} - 1 .$$
#
# **Expect** nothing at $z \to 0$ (an unsure mistake is free), $2\log 2 - 1$ at $z=\tfrac12$, and
# infinity at $z \to 1$. By hand first, then the library's:

# %%
z = torch.tensor([0.1, 0.5, 0.9, 0.99])
by_hand = (1 / z) * torch.log(1 / (1 - z)) - 1
print("z      ", z.tolist())
print("by hand", by_hand.numpy().round(4))
print("library", weight(z).numpy().round(4))
assert abs(weight(0.5) - (2 * np.log(2) - 1)) < 1e-15
assert weight(0.0) == 0 and weight_derivative(0.0) == 0.5

# %% [markdown]
# **Two remarks.** The paper says "for any $0 \le z < 1$", but at $z=0$ the formula reads
# $0/0$; the limit is 0, since $w(z) = \tfrac z2 + \tfrac{z^2}3 + \tfrac{z^3}4 + \dots$. And near 0
# the formula is the small difference of two numbers near 1. In float32 (seven digits, the usual
# precision in training), **expect** garbage at $z = 10^{-7}$, where the truth is
# $5\cdot10^{-8}$:

# %%
small = torch.tensor(1e-7, dtype=torch.float32)
printed = -torch.log(1 - small) / small - 1
print(f"the formula as printed, float32: {printed:.3g}")
print(f"the library (a power series):    {weight(small):.3g}")
assert abs(weight(small) - 5e-8) < 1e-13

# %% [markdown]
# ## 3 · The weight is not the odds
#
# The paper says that $w$ "represents the policy's own 'odds'". The **odds** of an event of probability $z$ are
# $z/(1-z)$: at $z = 0.99$ they are 99 to 1. **Expect** a much smaller $w$:

# %%
print(f"z = 0.99:  odds {odds(0.99):.1f}   w {weight(0.99):.2f}")
assert abs(odds(0.99) - 99) < 1e-12 and abs(weight(0.99) - 3.65) < 2e-3

# %% [markdown]
# They are related all the same: $w(z) = \frac1z\int_0^z \frac{u}{1-u}\,du$ is the **mean of the
# odds** from 0 to $z$. In the picture the hatched area under the odds and the grey box of height
# $w(z)$ have the same area. In a live notebook, move $z$ towards 1: the odds at the edge run away,
# their mean follows slowly.


# %%
def draw_mean(z: float) -> None:
    u, left = torch.linspace(0, 0.99, 400), torch.linspace(0, z, 200)
    at_z, mean = float(odds(z)), float(weight(z))
    figure, ax = plt.subplots()
    ax.plot(u, odds(u), color="black", label="odds $u/(1-u)$")
    ax.fill_between(left, odds(left), facecolor="none", hatch="///", edgecolor="0.55",
                    linewidth=0, label=r"area $\int_0^z$ odds")
    ax.fill_between([0, z], 0, mean, color="0.75", alpha=0.7, label=f"height $w(z)$ = {mean:.2f}")
    ax.plot(z, at_z, "ko")
    ax.text(z - 0.02, at_z, f"odds {at_z:.2f}", ha="right", va="bottom")
    ax.set(xlim=(0, 1), ylim=(0, max(6.0, 1.25 * at_z)), xlabel="$z = \\pi/D$", ylabel="odds")
    ax.legend(loc="upper left")
    plt.show()


slider(draw_mean, z=(0.05, 0.99, 0.01, 0.8))

# %% [markdown]
# Differentiating $z\,w(z) = \int_0^z \frac{u}{1-u}du$ gives the identity on which the proof of
# Theorem 2 rests:
#
# $$w(z) + z\,w'(z) = \frac{z}{1-z} .$$
#
# **Expect** rounding errors only. The appendix prints $w'(z)$ with $D\log(1-z)$ in its numerator;
# with that $D$ the identity would fail unless $D = 1$, so it is a slip of the pen:

# %%
z = torch.linspace(0.01, 0.99, 99)
error = (weight(z) + z * weight_derivative(z) - odds(z)).abs().max()
print(f"identity: largest error {error:.1e}")
D = 0.5
slope_as_printed = (z / (1 - z) + D * torch.log(1 - z)) / z**2
error_as_printed = (weight(z) + z * slope_as_printed - odds(z)).abs().max()
print(f"with the appendix's w' and D = {D}: {error_as_printed:.1f}")
assert error < 1e-12 < error_as_printed

# %%
figure, ax = plt.subplots()
ax.plot(z, weight(z), markevery=14, label="$w(z)$: price in $J_{\\rm MLE}$", **line(1))
ax.plot(z, z * weight_derivative(z), markevery=14, label="$z\\,w'(z)$", **line(2))
ax.plot(z, odds(z), markevery=14, label="their sum $z/(1-z)$: force in the gradient", **line(0))
ax.set(yscale="log", ylim=(5e-3, 150), xlabel="$z = \\pi/D$", ylabel="size (log scale)",
       title="What a confident mistake costs, and how hard it is pushed")
ax.legend()
plt.show()

# %% [markdown]
# ## 4 · The value function
#
# A **value function** says how good a policy is. The usual one is the accuracy, the expected reward
# $J(\pi) = \mathbb E[r]$. Theorem 2 subtracts a price:
#
# $$J_{\rm MLE} = J_+ - J_-,\qquad J_+ = \sum_o \pi(o)\,p^\star(o),\qquad
#   J_- = \sum_o \pi(o)\;w\!\left(\frac{\pi(o)}{D}\right)\,(1-p^\star(o)) .$$
#
# Take the paper's six options, A and B correct ($D = \tfrac12$), and the policy that guesses:
# $\pi = \tfrac16$ each, so $z = \tfrac13$ and $w(\tfrac13) = 3\log\tfrac32 - 1$. **Expect**
# $J = \tfrac13$ and $J_- = \tfrac46\,w(\tfrac13)$:

# %%
p_star = torch.tensor([1.0, 1, 0, 0, 0, 0])
guess = torch.full((6,), 1 / 6)
w_third = 3 * np.log(3 / 2) - 1
print(f"by hand: J = {2 / 6:.6f}  J_- = {4 / 6 * w_third:.6f}  "
      f"J_MLE = {2 / 6 - 4 / 6 * w_third:.6f}")
print(f"library: J = {value(guess, p_star):.6f}  J_- = {value_negative(guess, p_star, 0.5):.6f}  "
      f"J_MLE = {value_mle(guess, p_star, 0.5):.6f}")
assert abs(value_mle(guess, p_star, 0.5) - 0.18906978378367123) < 1e-15

# %% [markdown]
# ## 5 · A closed form
#
# Not in the paper, and exact. From the formula of $w$, $\pi\,w(\pi/D) = -D\log(1-\pi/D) - \pi$. Put
# that into $J_-$; since the $\pi$ of all answers add up to 1, what remains is
#
# $$J_{\rm MLE}(\pi) = 1 + D\sum_o (1-p^\star(o))\,\log\!\left(1-\frac{\pi(o)}{D}\right).$$
#
# Correct answers have vanished from it: $J_{\rm MLE}$ is a **barrier** around each wrong answer and
# nothing else. For the guessing policy, $1 + \tfrac12\cdot4\log\tfrac23$. **Expect** the same
# number as above, and the same on a thousand random policies over twelve answers with fractional
# $p^\star$:

# %%
print(f"1 + 2 log(2/3) = {1 + 2 * np.log(2 / 3):.6f}")
random = torch.Generator().manual_seed(0)
pi = torch.randn(1000, 12, generator=random).softmax(-1)
p = torch.rand(1000, 12, generator=random)
D = 1.1 * pi.amax(-1)  # any D above every π will do
by_definition, closed = value_mle(pi, p, D), value_mle_closed_form(pi, p, D)
print(f"1000 random policies: largest difference {(by_definition - closed).abs().max():.1e}")
assert (by_definition - closed).abs().max() < 1e-14
assert (by_definition <= value(pi, p)).all()  # J_MLE is never above the accuracy

# %% [markdown]
# So each wrong answer of probability $\pi$ takes $-D\log(1-\pi/D)$ away from a perfect score of 1,
# where accuracy takes away just $\pi$. **Expect** a straight line for the accuracy ($D=\infty$) and
# curves that climb to infinity at their **pole** $\pi = D$. The larger $D$, the closer to the
# accuracy; for small $\pi$ they all agree.

# %%
figure, ax = plt.subplots()
for i, D in enumerate([0.5, 1.0, 2.0]):
    pi = torch.linspace(0, min(D, 1) - 1e-3, 300)
    ax.plot(pi, -D * torch.log(1 - pi / D), markevery=40, label=f"D = {D:g}", **line(i + 1))
    if D <= 1:
        ax.axvline(D, color="0.5", linestyle=":")
        ax.text(D + 0.01, 2.3, f"pole of D = {D:g}", rotation=90, va="top", fontsize=12)
ax.plot([0, 1], [0, 1], label="accuracy (D = ∞)", color="black", linewidth=3)
ax.set(xlim=(0, 1.06), ylim=(0, 2.4), xlabel="probability $\\pi$ of one wrong answer",
       ylabel="taken from a perfect score", title="What one wrong answer costs")
ax.legend(loc="upper left")
plt.show()

# %% [markdown]
# ## 6 · Theorem 2: this is what the likelihood climbs
#
# **The claim.** With answers drawn from the policy itself (*on-policy*), the gradient of the
# expected log-likelihood is the gradient of $J_{\rm MLE}$:
#
# $$\nabla_\theta J_{\rm MLE} = \mathbb E_{o\sim\pi}\big[\,\tilde r(o)\,\nabla_\theta\log\pi_\theta(o)\big] .$$
#
# By hand for the guessing policy: a wrong answer has odds $\frac{1/3}{2/3}=\frac12$, so
# $\tilde r = (1,1,-\tfrac12,-\tfrac12,-\tfrac12,-\tfrac12)$, whose mean is 0. In logits
# $\nabla\log\pi(o)$ is "1 at $o$, minus $\pi$"; with mean 0 the second part drops out. **Expect**
# $\tfrac16$ on A and B and $-\tfrac1{12}$ on the rest, from automatic differentiation too:

# %%
logits = torch.zeros(6, requires_grad=True)
pi, log_pi = logits.softmax(-1), logits.log_softmax(-1)
(truth,) = torch.autograd.grad(value_mle(pi, p_star, 0.5), logits, retain_graph=True)
r_tilde = mle_coefficient(log_pi, p_star, 0.5)  # detached: just six numbers
surrogate = (pi.detach() * r_tilde * log_pi).sum()
(policy_gradient,) = torch.autograd.grad(surrogate, logits)
print("calibrated rewards ", r_tilde.numpy().round(4))
print("∇J_MLE             ", truth.numpy().round(4))
print("E[r̃ ∇ log π]       ", policy_gradient.numpy().round(4))
assert (truth - torch.tensor([1 / 6, 1 / 6] + [-1 / 12] * 4)).abs().max() < 1e-15
assert (truth - policy_gradient).abs().max() < 1e-15

# %% [markdown]
# ## 7 · The small print: two stop-gradients
#
# `detach()` tells automatic differentiation to treat a number as a constant. The cell above did so
# twice, and both matter:
#
# 1. **The answers that were drawn are data.** The likelihood is differentiated with the sampling
#    probabilities held fixed. That is called a **semi-gradient**: part of the dependence on
#    $\theta$ is left out, on purpose.
# 2. **The reward is a number.** $\tilde r$ contains $\pi_\theta$, but it only multiplies
#    $\nabla\log\pi$.
#
# Now leave out one of them at a time, on 500 fairly undecided policies over the six options. The
# **cosine** between two gradients is 1 if they point the same way and −1 if they are opposed.
# **Expect** exactly 1 for Theorem 2, whatever the policy and $D$. The other two depend on both: we
# try a $D$ close to the pole, $1.1\max\pi$, and one far from it, 1.


# %%
def three_gradients(logits: torch.Tensor, D: torch.Tensor) -> list[torch.Tensor]:
    """∇J_MLE; both stop-gradients; the sampler differentiated too; the reward too."""
    logits = logits.clone().requires_grad_()
    pi, log_pi = logits.softmax(-1), logits.log_softmax(-1)
    r_tilde = p_star - (1 - p_star) * odds(pi / D)
    log_likelihood = torch.where(p_star == 1, log_pi, torch.log(1 - pi / D))
    objectives = [
        value_mle(pi, p_star, D.squeeze(-1)),
        (pi.detach() * r_tilde.detach() * log_pi).sum(-1),
        (pi * log_likelihood).sum(-1),
        (pi.detach() * r_tilde * log_pi).sum(-1),
    ]
    return [torch.autograd.grad(x.sum(), logits, retain_graph=True)[0] for x in objectives]


# %%
names = ["Theorem 2: both stop-gradients", "sampler differentiated too", "r̃ differentiated too"]
policies = 0.5 * torch.randn(500, 6, generator=random)
close = 1.1 * policies.softmax(-1).amax(-1, keepdim=True)
cosines = {}
for case, D in (("close to the pole: D = 1.1 max π", close), ("D = 1", torch.ones(500, 1))):
    truth, *candidates = three_gradients(policies, D)
    cosines[case] = [torch.cosine_similarity(x, truth, dim=-1) for x in candidates]
    print(case)
    for name, cosine in zip(names, cosines[case], strict=True):
        print(f"    {name:32} cosine: median {cosine.median():+.2f}, lowest {cosine.min():+.2f}")
    assert cosines[case][0].min() > 1 - 1e-12

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 4.8), sharey=True)
share = (np.arange(500) + 0.5) / 500
for ax, (case, three) in zip(axes, cosines.items(), strict=True):
    for i, (name, cosine) in enumerate(zip(names, three, strict=True)):
        ax.plot(cosine.sort().values, share, markevery=50, label=name, **line(i))
    ax.axvline(0, color="0.5", linewidth=1)
    ax.set(xlim=(-1.08, 1.08), xticks=[-1, -0.5, 0, 0.5, 1], title=case,
           xlabel="cosine with $\\nabla J_{\\rm MLE}$")
axes[0].set(ylabel="share of policies below")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
plt.show()

# %% [markdown]
# Each curve shows how many of the 500 policies have a cosine below the value on the axis. Close to
# the pole a reward that is differentiated points *against* the true gradient for nearly all
# policies; with $D=1$ it is the differentiated sampler that misleads. A forgotten `.detach()` leaves
# the value of the loss as it is and changes the gradient only. That is why the library's `mle_coefficient` and
# `calibrated_reward` hand back detached numbers only.
#
# ## 8 · The landscape on a triangle
#
# Three answers: A is correct, B and C are wrong. A policy is then a point of a triangle: the corner
# A is "always A", the centre is "a third each", the lower edge is "never A". One correct answer
# means $D = 1$. First the coordinates:

# %%
CORNERS = np.array([[0.5, 3**0.5 / 2], [0.0, 0.0], [1.0, 0.0]])  # A on top, B left, C right
RIGHT = torch.tensor([1.0, 0.0, 0.0])


def lattice(n: int) -> torch.Tensor:
    """Policies (π_A, π_B, π_C), evenly spread inside the triangle."""
    points = [(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)]
    return (torch.tensor(points, dtype=torch.float64) + 1 / 3) / (n + 1)


# %%
def triangle(ax, title: str) -> None:
    ax.fill(*CORNERS.T, facecolor="none", edgecolor="black", linewidth=2)
    names = ["A: correct", "B: wrong", "C: wrong"]
    for name, (x, y), dy in zip(names, CORNERS, [9, -20, -20], strict=True):
        ax.annotate(name, (x, y), (0, dy), textcoords="offset points", ha="center", fontsize=14)
    ax.set(aspect="equal", xlim=(-0.12, 1.12), ylim=(-0.13, 1.02))
    ax.set_title(title, fontsize=14, pad=10)
    ax.axis("off")


# %% [markdown]
# Next the arrows: the way a small step of gradient ascent in the logits moves the policy. The
# logits move by $g = \pi\circ(c - \pi\cdot c)$, where $c$ is the force on each answer ($c = r$ for
# the accuracy, $c=\tilde r$ for $J_{\rm MLE}$), and the policy by $\pi\circ(g - \pi\cdot g)$. A
# check: $g$ must be what automatic differentiation of $J_{\rm MLE}$ gives. ($\circ$ multiplies answer
# by answer.)


# %%
def gradient(pi: torch.Tensor, D: float) -> torch.Tensor:
    """∇J_MLE in the logits, `[N, 3]`; beyond the pole, what the same formula says there."""
    c = RIGHT - (1 - RIGHT) * pi / (D - pi)
    return pi * (c - (pi * c).sum(-1, keepdim=True))


logits = torch.tensor([[0.3, 0.1, -0.2]], requires_grad=True)
(truth,) = torch.autograd.grad(value_mle(logits.softmax(-1), RIGHT, 1.0).sum(), logits)
print("error of the formula:", f"{(gradient(logits.softmax(-1), 1.0) - truth).abs().max():.0e}")
assert (gradient(logits.softmax(-1), 1.0) - truth).abs().max() < 1e-15


# %%
def shades(ax, D: float) -> None:
    """J_MLE (dark is good); hatched what lies beyond the pole."""
    fine = lattice(150)
    inside = fine[(fine[:, 1:] < D).all(-1)]
    J = value_mle_closed_form(inside, RIGHT, D).clamp(min=-0.99)
    levels = [-1, -0.5, 0, 0.25, 0.5, 0.75, 0.9, 1]
    ax.tricontourf(*(inside.numpy() @ CORNERS).T, J, levels=levels, cmap="Greys", alpha=0.55)
    for wrong, other in ((1, 2), (2, 1)) if D < 1 else ():
        corner = CORNERS[wrong]
        pole = D * corner + (1 - D) * CORNERS[[0, other]]
        ax.fill(*np.vstack([corner, pole]).T, facecolor="white", edgecolor="#c0392b", hatch="xx")
        ax.plot(*pole.T, color="#c0392b", linewidth=4)


# %%
def landscape(ax, D: float, title: str) -> None:
    """Shades, and arrows of ascent."""
    shades(ax, D)
    policies = lattice(12)
    g = gradient(policies, D)
    step = policies * (g - (policies * g).sum(-1, keepdim=True))
    arrows = step.numpy() @ CORNERS
    arrows /= np.linalg.norm(arrows, axis=1, keepdims=True)
    ax.quiver(*(policies.numpy() @ CORNERS).T, *arrows.T, scale=24, width=0.007, pivot="mid")
    triangle(ax, title)


# %% [markdown]
# **Expect**, left, the accuracy $J$ ($D=\infty$): straight level lines, and arrows that climb to
# the correct corner from everywhere. Right, $J_{\rm MLE}$ with the true $D = 1$: the wrong corners
# are now deep wells, and the arrows near the lower edge first run *along* it, out of the corner and
# towards the other wrong answer. "Be less sure" comes before "be right".

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4.8))
landscape(axes[0], 1e9, "accuracy $J$ (D = ∞)")
landscape(axes[1], 1.0, "$J_{\\rm MLE}$, true D = 1")
plt.show()

# %% [markdown]
# All arrows are drawn equally long; how *fast* the policy moves is in section 10. The shades are
# the value: dark is good, and at the corner A both reach their maximum 1.
#
# Now move $D$. Upwards the picture turns into the accuracy's. Below 1, which is too small for a
# question with one correct answer, **expect** two thick lines to come in from the wrong corners: the
# **poles** $\pi_B = D$ and $\pi_C = D$. Beyond them $J_{\rm MLE}$ is not defined (the logarithm of
# a negative number): hatched.


# %%
def draw_landscape(D: float) -> None:
    figure, ax = plt.subplots(figsize=(7, 5.6))
    pole = "; thick: the poles $\\pi = D$" if D < 1 else ""
    landscape(ax, D, f"$J_{{\\rm MLE}}$, D = {D:g}" + pole)
    plt.show()


slider(draw_landscape, D=(0.35, 3.0, 0.05, 0.6))

# %% [markdown]
# ## 9 · Beyond the pole the sign flips
#
# Look at the arrows in the hatched corners: they point *to the wrong answer*. Why? The formula
# $\tilde r = -\pi/(D-\pi)$ does not fail beyond the pole, it changes its sign. For a wrong answer
# of probability $0.9$ and $D = \tfrac12$:
#
# $$\tilde r = -\frac{0.9}{0.5-0.9} = +2.25 ,$$
#
# **more than the $+1$ of a correct answer.** Is that far-fetched? No: $\tfrac12$ is the *true*
# difficulty of the six options, and nothing keeps a bad policy from putting 0.9 on the wrong option
# C. Theorem 2 needs $\pi(o) < D$ on every wrong answer, drawn or not.

# %%
D = 0.5
figure, ax = plt.subplots()
below, beyond = np.linspace(0, 0.485, 200), np.linspace(0.515, 1, 200)
ax.plot(below, -below / (D - below), color="black", label="$\\pi < D$: a penalty")
ax.plot(beyond, -beyond / (D - beyond), color="#c0392b", linestyle="--", linewidth=3,
        label="$\\pi > D$: a reward for being wrong")
ax.plot(0.9, 2.25, "o", color="#c0392b", markersize=10)
ax.text(0.9, 3.3, "+2.25 at $\\pi$ = 0.9", ha="center")
ax.axhline(1, color="0.4", linestyle=":")
ax.text(0.02, 1.15, "a correct answer: +1", color="0.25")
ax.axvspan(0.485, 0.515, color="0.85")
ax.set(ylim=(-6, 6), xlabel="probability $\\pi$ of the wrong answer (pole at D = 0.5, grey)",
       ylabel="calibrated reward $\\tilde r$")
ax.legend(loc="lower right", fontsize=12)
plt.show()

# %% [markdown]
# The library therefore refuses to compute it. **Expect** one line instead of a number. (Its `rho` is
# a preference between answers, see [notebook 04](04_calibrated_reward.ipynb); here it is 1.)

# %%
try:
    mle_coefficient(torch.tensor(0.9).log(), torch.tensor(0.0), 0.5)
except DomainError as refusal:
    print("DomainError:", refusal)

# %% [markdown]
# And what if one goes on regardless? Six options, C confidently wrong, P(correct) = 0.01 at the
# start. We follow the exact gradient (no sampling noise) with three forces. **Expect** one of them
# to end at the wrong answer:

# %%
for name in ("reinforce", "mle_guarded", "mle_d_half_unguarded"):
    objective = flow.OBJECTIVES[name]
    result = flow.escape(objective, 0.01)
    print(f"{objective.label:26} {result.outcome:8} P(correct) at the end: {result.final:.2g}")

# %% [markdown]
# ("MLE" stands for maximum likelihood, "REINFORCE" is plain ascent of the accuracy; "solved" means
# that P(correct) reached 0.9, "wrong" that it ended below its start.) The second keeps
# $D \ge 2\max\pi$, the **guard** that the paper puts on $D$ in Section 5 and that
# [notebook 04](04_calibrated_reward.ipynb) looks at.
#
# ## 10 · What the pole is good for
#
# A confident mistake is where accuracy learns slowest: the correct answers are almost never played.
# We measure the pull out of that corner on the six options: how fast the logit of A gains on that
# of C when logits move by the gradient, for a policy with P(correct) $= p$. **Expect** a pull
# proportional to $p$ for the accuracy, and a *constant* one for $J_{\rm MLE}$ with $D = 1$, whose
# pole sits right in the corner. (The curves of $D=2$ and of the guard lie on one another.)

# %%
p_correct = np.logspace(-6, -0.6, 30)
figure, ax = plt.subplots()
for i, name in enumerate(["mle_d1", "mle_guarded", "mle_d2", "reinforce"]):
    objective, pull = flow.OBJECTIVES[name], []
    for p in p_correct:
        space = six_options(p)
        v = flow.velocity(objective, space.logits[0, 0], space.correct[0, 0])
        pull.append(v[0] - v[2])
    ax.loglog(p_correct, pull, markevery=(i, 5), label=objective.label, **line(i))
    print(f"{objective.label:24} pull at p = 1e-6: {pull[0]:.2g}")
ax.set(xlabel="P(correct)", ylabel="pull: speed of logit A − logit C",
       title="How hard a confident mistake is pulled away")
ax.legend()
plt.show()

# %% [markdown]
# So the escape is not in "negative samples" as such; it is in the **pole**: only with $\pi \to D$
# do the odds grow as fast as the chance of a correct answer shrinks. Any $D$ that stays clear of
# $\pi$ (here $D = 2$, and the guard $D \ge 2\max\pi$, which is the same where $\max\pi\approx1$)
# gives a pull proportional to $p$ again, merely with a larger factor.
# [Notebook 05](05_toy_dynamics.ipynb) trains all of them.
#
# A word on choosing $D$ too large: with $p^\star$ of 0 and 1 it does no harm to the goal. The
# maximum of $J_{\rm MLE}$ stays at the correct answers, and $J_{\rm MLE}\to J$, the gap closing
# like $\sum_{\rm wrong}\pi^2/(2D)$. **Expect** the two columns to meet:

# %%
pi = torch.tensor([0.1, 0.2, 0.4, 0.1, 0.15, 0.05])  # A and B correct
squares = (pi[2:] ** 2).sum()
for D in (0.5, 1.0, 10.0, 100.0, 1e4):
    gap = value(pi, p_star) - value_mle_closed_form(pi, p_star, D)
    print(f"D = {D:7g}   J − J_MLE = {gap:.6f}   sum of squares / 2D = {squares / (2 * D):.6f}")

# %% [markdown]
# ## What you have seen
#
# - $w(z)$ is the price of a wrong answer in $J_{\rm MLE}$, the odds $z/(1-z) = w + z\,w'$ are the
#   force in its gradient; $w$ is the mean of the odds, not the odds.
# - $J_{\rm MLE} = 1 + D\sum(1-p^\star)\log(1-\pi/D)$: a barrier around wrong answers, never above
#   the accuracy.
# - Theorem 2 holds to the last digit as a semi-gradient. Forget one of its two
#   stop-gradients and the gradient may point the wrong way.
# - At $\pi = D$ there is a pole. Near it, the policy is pulled out of a confident mistake with
#   undiminished force; beyond it, the rule rewards the mistake.
#
# **Questions for the class**
# 1. The policy puts 0.45 on a wrong answer of a question with two correct ones. What is its
#    calibrated reward? And at 0.49? What does one such sample do to a batch?
# 2. $J_{\rm MLE}$ does not contain the probabilities of correct answers. How then does its gradient
#    push them up?
# 3. Where on the edge A–C of the triangle is $J_{\rm MLE} = 0$ for $D = 1$? (Closed form, one
#    line.)
# 4. A colleague computes $\tilde r$ with `requires_grad` and sees the loss fall. What should she
#    look at instead of the loss?
#
# **Next:** [notebook 04](04_calibrated_reward.ipynb) turns this into an algorithm for language
# models. **Practice:** the [exercises](exercises/).
