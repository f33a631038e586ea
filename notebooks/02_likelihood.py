# %% [markdown]
# # 02 · Learning from wrong answers by maximum likelihood
#
# A wrong answer is evidence: a policy that was sure of it should be less sure. This notebook turns
# the sentence into statistics. We fit a model of "is this answer correct?" by maximum likelihood,
# find that its gradient is a policy gradient in which wrong answers count (Theorem 1), and then
# look closely at where that gradient vanishes, and where it does not.
#
# **You need:** [notebook 01](01_wasted_groups.ipynb) or these reminders: a *policy*
# $\pi_\theta(o \mid q)$ is the probability that the model gives response $o$ to question $q$; the
# *reward* $r$ is 1 for a correct response and 0 for a wrong one; a *policy gradient* sums, over
# sampled responses, a number times $\nabla_\theta\log\pi_\theta(o)$, the direction that makes $o$
# more probable (REINFORCE takes $r$ for that number); a *negative group* holds wrong responses only.
# More in the [glossary](../docs/glossary.md).
#
# **Afterwards you can**
# - compute the difficulty $D$ and the optimal policy $\pi^\star$ of a question,
# - derive Theorem 1 and check it,
# - say what the optimum "at infinity" means for a softmax, and
# - say for which data the likelihood finds $\pi^\star$, and for which it does not.

# %%
import math

import matplotlib.pyplot as plt
import torch
from classroom import line, start
from IPython.display import Markdown, display

from lens_ref import (
    bernoulli_nll,
    mle_coefficient,
    mle_loss,
    resources,
    true_difficulty,
    value,
    value_mle,
)
from lens_ref.extensions import bounded_coefficient, inverse_sampling_weights
from lens_ref.rlvr.statistics import t_interval

device = start(0.5)
torch.set_default_dtype(torch.float64)  # theorems are checked to 15 digits

# %% [markdown]
# ## The symbols, once for all notebooks
#
# A table to come back to, not to read now. Two traps: the paper uses $\rho$ for two things, of
# which one is always called the **ratio** here; and $D$ (a question's difficulty) is not
# $\mathcal D$ (the data set). A log quantity says so in its name: `log_pi`, `log_difficulty`. The
# cell prints the table of [docs/notation.md](../docs/notation.md); the last column says where the
# paper and where these notebooks use a symbol first.

# %%
page = resources.find("docs", "notation.md").read_text(encoding="utf-8")
table = page.split("<!-- table: begin -->")[1].split("<!-- table: end -->")[0]
display(Markdown(table.replace("(extensions.md)", "(../docs/extensions.md)")))

# %% [markdown]
# ## Six options
#
# The paper's example: one question $q$, six possible answers A to F, of which A and B are correct.
# Write $p^\star(q, o)$ for the probability that answer $o$ is correct: 1 or 0 for a question of
# mathematics, something between where even experts disagree. (With one question only, we drop the
# $q$.)
#
# The *difficulty* of the question and an *optimal policy* follow from $p^\star$:
#
# $$D(q) = \Big\{\sum_o p^\star(q, o)\Big\}^{-1} \qquad\text{(difficulty, Section 4.1)}$$
#
# $$\pi^\star(o \mid q) = D(q)\, p^\star(q, o) \qquad\text{(from probabilities to policy, 4.1)}$$
#
# Expect: $D = 1/2$ and $\pi^\star$ = half A, half B. Were only A correct, the question would be
# harder: $D = 1$.

# %%
certain = torch.tensor([1.0, 1, 0, 0, 0, 0])
print("A and B correct: D =", true_difficulty(certain).item())
print("only A correct:  D =", true_difficulty(torch.tensor([1.0, 0, 0, 0, 0, 0])).item())
print("none correct:    D =", true_difficulty(torch.zeros(6)).item())
print("pi* =", (true_difficulty(certain) * certain).tolist())

# %% [markdown]
# And where verdicts are uncertain? Take $p^\star = (.9, .6, .3, .1, .05, .05)$, the *fractional*
# example of this notebook. Its sum is 2, so again $D = 1/2$.
#
# Two conditions to add to the paper here, both about fractional $p^\star$:
# - $D \in (0, 1]$, as Section 4.1 has it, needs $\sum_o p^\star \ge 1$; three answers with
#   $p^\star = (.3, .2, .1)$ have $D = 1.67$.
# - $\pi^\star$ is then not the policy with the largest expected reward: that one would always
#   answer A. $\pi^\star$ *matches probabilities*: it gives an answer twice as often when it is
#   twice as likely to be correct. With verdicts that are certain, the case of the paper's
#   experiments, it is optimal.

# %%
fractional = torch.tensor([0.9, 0.6, 0.3, 0.1, 0.05, 0.05])
print("fractional example: D =", round(true_difficulty(fractional).item(), 12))
print(f"(.3, .2, .1):       D = {true_difficulty(torch.tensor([0.3, 0.2, 0.1])).item():.2f}")
matching = value(true_difficulty(fractional) * fractional, fractional)
always_a = value(torch.tensor([1.0, 0, 0, 0, 0, 0]), fractional)
print(f"expected reward: pi* {matching:.3f}, always A {always_a:.3f}")

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True)
for ax, p_star, title in zip(axes, (certain, fractional), ("certain", "fractional"), strict=True):
    pi_star = true_difficulty(p_star) * p_star
    places = torch.arange(6)
    ax.bar(places - 0.2, p_star, 0.38, color="0.8", edgecolor="black", label="$p^*$")
    ax.bar(
        places + 0.2, pi_star, 0.38, color="0.4", edgecolor="black", hatch="//", label=r"$\pi^*$"
    )
    ax.set_xticks(places, list("ABCDEF"))
    ax.set(title=f"{title}: D = {true_difficulty(p_star):.2g}", xlabel="answer")
axes[0].set_ylabel("probability")
axes[1].legend()
plt.show()

# %% [markdown]
# ## Maximum likelihood, on a coin
#
# We do not know $p^\star$; we see *samples*: a question, an answer, a verdict $r$. The
# **likelihood** of a model is the probability that it gave to what we saw; **maximum likelihood**
# chooses the model that gave it most. For a coin that fell on heads with chance $p$, and verdicts
# 1, 1, 1, 0, the logarithm of the likelihood is $3\log p + \log(1-p)$. (Natural logarithms; their
# unit is the *nat*.)
#
# Expect: a maximum at $p = 3/4$, the share of ones. Note the right end: one single zero forbids
# $p = 1$, and the closer $p$ is to 1, the more that zero costs. That steep wall is what LENS, the
# paper's method, is made of.

# %%
p = torch.linspace(0.02, 0.999, 300)
log_likelihood = 3 * p.log() + (1 - p).log()
best = p[log_likelihood.argmax()].item()
print(f"best p on the grid: {best:.2f}")

fig, ax = plt.subplots()
ax.plot(p, log_likelihood, **(line(0) | {"marker": ""}))
ax.axvline(0.75, color="0.4", linestyle=":")
ax.annotate("3 of 4 verdicts were 1", (0.75, -2.2), (0.2, -2.6), arrowprops={"arrowstyle": "->"})
ax.set(xlabel="p, the model's chance of a 1", ylabel="log-likelihood, nats", ylim=(-9, -1.5))
plt.show()

# %% [markdown]
# ## A reward model that is the policy itself
#
# One coin for each answer: a **reward model** $p_\theta(q, o)$ estimates $p^\star(q, o)$. The
# paper's idea is to not train a second network for it, but to read it off the policy: since
# $p^\star = \pi^\star/D$, put $p_\theta = \pi_\theta/D$. Then maximum likelihood from $n$ samples
# $(q_i, o_i, r_i)$, written as a loss to minimise (the hat: it is computed from data), is
#
# $$\widehat{\mathcal L}_0(\theta) = -\frac1n\sum_{i=1}^n \big\{ r_i \log p_\theta(q_i, o_i) +
# (1-r_i) \log\big(1 - p_\theta(q_i, o_i)\big)\big\} \qquad\text{(Section 4.1)}$$
#
# and, after dropping $r_i \log D(q_i)$, which does not depend on $\theta$,
#
# $$\widehat{\mathcal L}(\theta) = -\frac1n\sum_{i=1}^n \Big\{ r_i \log \pi_\theta(o_i \mid q_i) +
# (1-r_i) \log\Big(1 - \frac{\pi_\theta(o_i \mid q_i)}{D(q_i)}\Big)\Big\}
# \qquad\text{(boxed loss, Section 4.1)}$$
#
# A literal: two samples under $D = 1/2$. Answer A, which has $\pi = 0.1$, was right; answer C,
# which has $\pi = 0.25$, was wrong.
#
# Expect: $-\frac12(\log 0.1 + \log(1 - 0.25/0.5)) = 1.498$, and $\widehat{\mathcal L}_0$ smaller by
# $\frac12\log 2 = 0.347$.

# %%
log_pi, rewards = torch.tensor([0.1, 0.25]).log(), torch.tensor([1.0, 0.0])
boxed = mle_loss(log_pi, rewards, 0.5).item()
initial = bernoulli_nll(log_pi, rewards, 0.5).item()
print(f"boxed loss {boxed:.4f}   by hand {-(math.log(0.1) + math.log(1 - 0.25 / 0.5)) / 2:.4f}")
print(f"initial loss {initial:.4f}   difference {boxed - initial:.4f}")
assert abs(boxed - 1.4978661) < 1e-6
assert abs(boxed - initial - math.log(2) / 2) < 1e-12

# %% [markdown]
# ## Theorem 1: its gradient is a policy gradient
#
# Differentiate one term. With $\nabla\pi = \pi\,\nabla\log\pi$,
#
# $$\nabla \Big[r\log\pi + (1-r)\log\Big(1-\frac{\pi}{D}\Big)\Big] = \Big(\frac r\pi -
# \frac{1-r}{D-\pi}\Big)\,\nabla\pi = \Big\{ r - (1-r)\,\frac{\pi}{D-\pi}\Big\}\,\nabla\log\pi ,$$
#
# $$\nabla\widehat{\mathcal L}(\theta) = -\frac1n\sum_{i=1}^n \Big\{ r_i - (1-r_i)\,
# \frac{\pi_\theta(o_i\mid q_i)}{D(q_i) - \pi_\theta(o_i\mid q_i)}\Big\}\,
# \nabla\log\pi_\theta(o_i\mid q_i) \qquad\text{(Theorem 1)}$$
#
# Compare REINFORCE, $r\,\nabla\log\pi$: a right answer counts the same, 1. A wrong one no longer
# counts 0: it is pushed down with the **coefficient** $-\pi/(D-\pi)$, the harder the surer the
# policy was.
#
# Expect, for the two samples above: $1$ for the right one, $-0.25/(0.5-0.25) = -1$ for the wrong
# one.

# %%
print("coefficients:", mle_coefficient(log_pi, rewards, 0.5).tolist())

four_wrong = torch.tensor([0.4, 0.2, 0.1, 0.01])
coefficients = mle_coefficient(four_wrong.log(), torch.zeros(4), 0.5)
print("four wrong answers, pi =", four_wrong.tolist())
print("coefficients           =", [round(c, 4) for c in coefficients.tolist()])
assert abs(coefficients[0] + 4) < 1e-12

# %% [markdown]
# The last four could be a negative group. GRPO ([notebook 01](01_wasted_groups.ipynb)) would give
# it 0, 0, 0, 0.
#
# Expect in the figure: nearly nothing for small $\pi$, and a wall at $\pi = D$, the **pole**.
# ([Notebook 03](03_value_function.ipynb) climbs it.)

# %%
fig, ax = plt.subplots()
for i, d in enumerate((0.5, 0.75, 1.0, 2.0)):
    pi = torch.linspace(0.001, min(0.97 * d, 1.0), 200)
    curve = mle_coefficient(pi.log(), torch.zeros(200), d)
    ax.plot(pi, curve, **line(i), markevery=40, label=f"D = {d:g}")
ax.set(xlabel=r"$\pi$, the policy's probability of the wrong answer", ylim=(-6, 0.3))
ax.set_ylabel("coefficient of a wrong answer")
ax.legend(loc="lower left")
plt.show()

# %% [markdown]
# ### Checked live
#
# Many questions, each with six answers and a $D$ of its own; samples with right, wrong and
# fractional verdicts. PyTorch differentiates the loss (*autograd*, automatic differentiation); we
# compute the formula of Theorem 1.
#
# Expect: the two agree to the last digits.

# %%
torch.manual_seed(1)
questions, n = 7, 80
logits = torch.randn(questions, 6)
q, o = torch.randint(questions, (n,)), torch.randint(6, (n,))  # question and answer of a sample
r = torch.tensor([0.0, 0.0, 1.0, 0.3])[torch.randint(4, (n,))]
d = (1.1 + torch.rand(questions))[q]  # above every probability, so that every term exists


def loss_of(logits: torch.Tensor) -> torch.Tensor:
    return mle_loss(logits.log_softmax(-1)[q, o], r, d)


leaf = logits.clone().requires_grad_()
(autograd,) = torch.autograd.grad(loss_of(leaf), leaf)

# %%
coefficient = mle_coefficient(logits.log_softmax(-1)[q, o], r, d)
push = torch.eye(6)[o] - logits.softmax(-1)[q]  # gradient of log pi(o|q) in the logits of q
theorem = torch.zeros_like(logits).index_add_(0, q, -coefficient[:, None] * push / n)

error = (autograd - theorem).abs().max().item()
assert error < 1e-15
print("Theorem 1 equals autograd: largest difference below 1e-15")

one_d = mle_coefficient(logits.log_softmax(-1)[q, o], r, d[0])
print(f"with one D for all questions: wrong by up to {(coefficient - one_d).abs().max():.2f}")

# %% [markdown]
# (The theorem is printed with $D(q)$; each sample needs the $D(q_i)$ of its own question, as the
# last line shows. And its text calls $\widehat{\mathcal L}$ the log-likelihood; it is the negative
# one, hence the minus in front.)
#
# A third way needs no calculus at all: *finite differences*. Move one logit by $h$ to either side
# and divide the change of the loss by $2h$. Expect a tiny error, far below the gradient itself.

# %%
h, moved = 1e-5, torch.zeros_like(logits)
moved[q[0], o[0]] = h
slope = (loss_of(logits + moved) - loss_of(logits - moved)) / (2 * h)
print(f"finite difference {slope:.9f}   Theorem 1 {theorem[q[0], o[0]]:.9f}")
assert abs(slope - theorem[q[0], o[0]]) < 1e-10

# %% [markdown]
# ## Does maximum likelihood find $\pi^\star$?
#
# The paper's appendix argues that it does (*consistency*): at $\pi = \pi^\star$ the expected
# coefficient of every single answer is 0,
#
# $$p^\star - (1-p^\star)\,\frac{\pi^\star}{D-\pi^\star} = p^\star - (1-p^\star)\,
# \frac{p^\star}{1-p^\star} = 0 \qquad\text{(proof of Theorem 1, Appendix B)}$$
#
# If each answer's coefficient is 0, it does not matter how often each answer was sampled. With the
# fractional $p^\star$ this is exactly right. Write $\mu$ for the distribution that the answers come
# from; the helper below computes the expected step in the six logits, $\sum_o \mu(o)\,c(o)\,(e_o -
# \pi)$, with $c$ the coefficient.
#
# Expect: zeros, for three very different $\mu$.


# %%
def expected_step(pi, mu, coefficient):
    """E over answers from mu of coefficient · ∇ log pi, in the logits. All `[..., 6]`."""
    pull = mu * coefficient
    return pull - pi * pull.sum(-1, keepdim=True)


pi_star = true_difficulty(fractional) * fractional
at_optimum = mle_coefficient(pi_star.log(), fractional, 0.5)
for mu in (torch.full((6,), 1 / 6), pi_star, torch.tensor([0.0, 0.1, 0.1, 0.1, 0.1, 0.6])):
    size = expected_step(pi_star, mu, at_optimum).abs().max().item()
    assert size < 1e-15
    print(f"mu = {[round(x, 3) for x in mu.tolist()]}: largest |gradient| below 1e-15")

# %% [markdown]
# And from real, finite data? Draw $n$ samples with answers from a uniform $\mu$ and verdicts from
# $p^\star$, then climb the likelihood with Theorem 1's own step until it stops. Ten such data sets
# (seeds) for each $n$; the bars are 95 % intervals for their mean.
#
# The error is measured by the **total variation**, half the sum of all
# $|\pi(o) - \pi^\star(o)|$: 0 if the two agree, at most 1. Expect it to fall like $1/\sqrt n$, as for
# any honest estimate: a hundred times the data, about a tenth of the error.

# %%
torch.manual_seed(2)
sizes, seeds = (100, 1_000, 10_000, 100_000), 10
mu = torch.full((6,), 1 / 6)
counts = torch.stack([torch.distributions.Multinomial(n, mu).sample((seeds,)) for n in sizes])
right = torch.distributions.Binomial(counts, fractional.expand(counts.shape)).sample()
mean_verdict = right / counts  # the loss is linear in r: an answer's mean verdict is all it needs
shares = counts / counts.sum(-1, keepdim=True)

fitted = torch.zeros(len(sizes), seeds, 6)
for _ in range(1000):
    log_pi = fitted.log_softmax(-1)
    c = mle_coefficient(log_pi, mean_verdict, 0.5)
    fitted = fitted + 0.5 * expected_step(log_pi.exp(), shares, c)
distance = (fitted.softmax(-1) - pi_star).abs().sum(-1) / 2  # total variation

# %%
found = [t_interval(row.tolist()) for row in distance]
for n, x in zip(sizes, found, strict=True):
    print(f"n = {n:>7,}: distance to pi* {x.mean:.4f} ± {x.high - x.mean:.4f}")

fig, ax = plt.subplots()
half = [x.high - x.mean for x in found]
ax.errorbar(sizes, [x.mean for x in found], half, capsize=5, **line(0), label="10 seeds, 95 %")
guide = found[-1].mean * (sizes[-1] / torch.tensor(sizes)).sqrt()
ax.plot(sizes, guide, **(line(3) | {"marker": ""}), label=r"slope of $1/\sqrt{n}$")
ax.set(xscale="log", yscale="log", xlabel="samples n")
ax.set_ylabel(r"total variation from $\pi^*$")
ax.legend()
plt.show()

# %% [markdown]
# ## Certain verdicts: the optimum is at infinity
#
# Mathematics has certain verdicts: $p^\star$ is 0 or 1. Then $\pi^\star = (\tfrac12, \tfrac12, 0,
# 0, 0, 0)$ lies on the *boundary*: a softmax policy can't give probability 0 to anything, unless
# logits become infinite. Training ends "at infinity" or, in practice, somewhere on the way.
#
# How does it look from nearby? Let a share $\varepsilon$ of the probability still be on the wrong
# answers, shared evenly: $\pi = ((1-\varepsilon)/2,\,(1-\varepsilon)/2,\,\varepsilon/4, \dots)$,
# and sample from the policy itself (*on-policy*). The gap between the logits of A and C is
# $\log\big(2(1-\varepsilon)/\varepsilon\big)$: it grows for ever, but slowly.
#
# Expect: the gradient is proportional to $\varepsilon$ and never 0.

# %%
rows = []
for eps in (1e-1, 1e-2, 1e-4, 1e-6, 1e-8):
    pi = torch.tensor([(1 - eps) / 2] * 2 + [eps / 4] * 4)
    leaf = pi.log().requires_grad_()
    (gradient,) = torch.autograd.grad(value_mle(leaf.softmax(-1), certain, 0.5), leaf)
    rows.append((eps, math.log(pi[0] / pi[2]), gradient.abs().max().item()))
    print("wrong share {:.0e}   logit gap {:5.1f}   largest |gradient| {:.2e}".format(*rows[-1]))
    assert 0 < rows[-1][2] <= 2 * eps

# %% [markdown]
# So a test that waits for "gradient = 0" waits for ever; a good test asks for "gradient at most
# $2\varepsilon$" (here it is about $\varepsilon/2$). Now let it train: 10,000 exact on-policy steps
# from uniform.
#
# Expect: the logits move in proportion to $\varepsilon$, and that is the *fraction* of itself by
# which the wrong share shrinks in a step: $\varepsilon$ loses an amount in proportion to
# $\varepsilon^2$. What shrinks so falls like $1/\text{step}$, and the gradient with it: straight
# lines of slope $-1$ on log-log axes. The logits never settle: their gap grows like
# $\log(\text{step})$.

# %%
logits, path, checkpoints = torch.zeros(6), [], {round(10 ** (k / 4)) for k in range(17)}
for step in range(1, 10_001):
    log_pi = logits.log_softmax(-1)
    pi = log_pi.exp()
    gradient = expected_step(pi, pi, mle_coefficient(log_pi, certain, 0.5))
    logits = logits + 0.5 * gradient
    if step in checkpoints:
        gap = (logits[0] - logits[2]).item()
        path.append((step, gradient.abs().max().item(), pi[2:].sum().item(), gap))
step, size, wrong, gap = map(torch.tensor, zip(*path, strict=True))
slope = (size[-1] / size[-5]).log() / (step[-1] / step[-5]).log()
print(f"after {int(step[-1]):,} steps: wrong share {wrong[-1]:.1e}, gradient {size[-1]:.1e}")
print(f"slope of the gradient from step {int(step[-5]):,} on: {slope:.3f}")
assert abs(slope + 1) < 0.03

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4.4))
left.loglog(step, wrong, **line(1), label="wrong share")
left.loglog(step, size, **line(0), label="largest |gradient|")
left.loglog(step[8:], 6 / step[8:], color="0.5", linewidth=2, label="slope −1")
left.set(xlabel="steps (log scale)", ylabel="size (log scale)")
left.legend(loc="lower left")
right.semilogx(step, gap, **line(2))
right.set(xlabel="steps (log scale)", ylabel="logit of A − logit of C")
plt.show()

# %% [markdown]
# This is no fault of LENS: every policy gradient of a softmax ends this way, REINFORCE included.
# But it explains why reinforcement learning is *stopped*, not finished, and why its last per cent
# takes longest.
#
# ### Which optimum?
#
# On-policy there is one more surprise. Any policy that lives on A and B alone is as good as any
# other: the objective $J_{\mathrm{MLE}}$ ([notebook 03](03_value_function.ipynb) defines it;
# on-policy it is what the likelihood climbs) is 1 on the whole edge between them. $\pi^\star$ is
# *one* optimal policy, as the paper says, and the data can't tell it from the rest.

# %%
for a in (0.5, 0.7, 0.99):
    policy = torch.tensor([a, 1 - a, 0, 0, 0, 0])
    print(f"pi = ({a}, {1 - a:.2f}, 0, 0, 0, 0): J_MLE = {value_mle(policy, certain, 0.5):.12f}")

# %% [markdown]
# ## A counterexample, kindly
#
# The consistency proof above is exact where $0 < p^\star < 1$. For certain verdicts one step of it
# is silent: $(1-p^\star)\cdot\frac{p^\star}{1-p^\star}$ is $0\cdot\infty$ at $p^\star = 1$, and it
# matters. A correct answer is never seen wrong, so its coefficient is 1, not 0:

# %%
print(
    "coefficient of A at pi*, fractional p*:",
    mle_coefficient(pi_star.log(), fractional, 0.5)[0].abs().round(decimals=12).item(),
)
print(
    "coefficient of A at pi*, certain p*:   ",
    mle_coefficient(torch.tensor([0.5]).log(), torch.tensor([1.0]), 0.5).item(),
)

# %% [markdown]
# With coefficient 1 on both correct answers, the pull on A is $\mu(A)$ and that on B is $\mu(B)$.
# They balance at $\pi = (\tfrac12, \tfrac12)$ only if A and B were sampled equally often. On-policy
# that is so *at* $\pi^\star$: there $\mu = \pi^\star$. From a fixed data set it need not be.
#
# Take $\mu = (.4, .1, .125, .125, .125, .125)$: A was collected four times as often as B. Expect:
# $(.8, .2)$ is more likely than $\pi^\star$, and at $\pi^\star$ the gradient points from B to A.

# %%
mu = torch.tensor([0.4, 0.1, 0.125, 0.125, 0.125, 0.125])
answers = torch.arange(6).repeat_interleave(torch.tensor([16, 4, 5, 5, 5, 5]))  # 40 samples
true_policy = torch.tensor([0.5, 0.5, 0, 0, 0, 0])
other = torch.tensor([0.8, 0.2, 0, 0, 0, 0])
for name, policy in (("pi* = (.5, .5)", true_policy), ("(.8, .2)", other)):
    likelihood = -mle_loss(policy.log()[answers], certain[answers], 0.5)
    print(f"log-likelihood of {name:15} {likelihood:.3f}")

gradient = expected_step(true_policy, mu, mle_coefficient(true_policy.log(), certain, 0.5))
print("gradient at pi*:", [round(x, 3) for x in gradient.tolist()])
assert torch.allclose(gradient[:2], torch.tensor([0.15, -0.15]), atol=1e-12)

# %% [markdown]
# So the claim of Appendix B needs a condition. With certain verdicts $\pi^\star$ maximises the
# likelihood of data from $\mu$ if $\mu$ is uniform on the correct answers; on-policy it is one of
# many optima of $J_{\mathrm{MLE}}$, as the last section showed. The accuracy does not suffer: $(.8,
# .2)$ answers correctly every time. What is lost is the *evenness* of $\pi^\star$, and with it
# diversity. LENS trains on samples of its own recent policy, so this is a remark about fixed data
# sets; it does not undo the method.
#
# It can also be mended (both in `lens_ref.extensions`): weigh each correct sample by $1/\mu$, or
# push a correct answer no further than $\pi = D$, where its reward model already says $p = 1$.
#
# Expect: from uniform, the plain likelihood takes A's share of the correct answers to .8; each of
# the mends to .5, or close to it.


# %%
def share_of_a(coefficient_of, weights=1.0, steps=2000):
    """A's share of the correct probability along exact steps on data from mu."""
    logits, shares = torch.zeros(6), []
    for _ in range(steps):
        log_pi = logits.log_softmax(-1)
        c = weights * coefficient_of(log_pi, certain, 0.5)
        logits = logits + 0.2 * expected_step(log_pi.exp(), mu, c)
        shares.append((log_pi[0].exp() / log_pi[:2].exp().sum()).item())
    return shares


# %%
weights = inverse_sampling_weights(mu.log(), certain)
shares_of_a = {
    "the likelihood as it is": share_of_a(mle_coefficient),
    "correct samples weighed by 1/μ": share_of_a(mle_coefficient, weights),
    "bounded by π ≤ D": share_of_a(bounded_coefficient),
}
for label, shares in shares_of_a.items():
    print(f"{label:31} {shares[-1]:.3f}")

# %%
shown = sorted({round(10 ** (k / 8)) for k in range(27)})  # steps, evenly on a log axis
fig, ax = plt.subplots()
for i, (label, shares) in enumerate(shares_of_a.items()):
    ax.semilogx(shown, [shares[t - 1] for t in shown], **line(i), label=label)
for goal in (0.5, 0.8):
    ax.axhline(goal, color="0.5", linewidth=1)
ax.set(xlabel="steps (log scale)", ylabel="A's share of the correct answers", ylim=(0.45, 1.1))
ax.set_yticks([0.5, 0.6, 0.7, 0.8, 0.9])
ax.legend(loc="upper left")
plt.show()

# %% [markdown]
# (The last one makes small jumps around .5: a step that ends above $\pi(A) = D$ is followed by some
# without a push on A.)
#
# ## What you have seen
#
# - $D$ says how few answers are correct; $\pi^\star = D\,p^\star$ spreads evenly over them.
# - Fitting $p_\theta = \pi_\theta/D$ by maximum likelihood gives a policy gradient: $+1$ for a
#   right answer, $-\pi/(D-\pi)$ for a wrong one (Theorem 1). Negative groups have a gradient.
# - Uncertain verdicts: the gradient is exactly 0 at $\pi^\star$, for any data. Certain verdicts:
#   only at infinity; it falls like 1/step.
# - Certain verdicts and a fixed, uneven data set: the likelihood prefers another optimal policy.
#
# ## Questions for the class
#
# 1. A question has three equally good answers. What are $D$, $\pi^\star$ and the coefficient of a
#    wrong answer that has $\pi = 0.1$?
# 2. For which $\pi$ does a wrong answer count exactly as much as a right one?
# 3. What happens to a wrong answer's coefficient as $D \to \infty$? Which algorithm do you get, and
#    which kind of question has $D = \infty$?
# 4. The loss contains $\log(1 - \pi/D)$. What goes wrong in a computer if $\pi > D$, and why can it
#    happen for a wrong answer but do no harm for a right one?
# 5. Repeat the run to infinity with answers from a uniform $\mu$ instead of the policy. Is the
#    slope still $-1$? Is it faster or slower? Predict, then change one argument in the cell.
#
# **Next:** [notebook 03](03_value_function.ipynb): what is it that this gradient climbs? Practice:
# the [exercises](exercises/02_likelihood.ipynb).
