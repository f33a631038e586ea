# %% [markdown]
# # Exercises 2 · The likelihood
#
# Five derivations behind LENS: where the calibrated reward comes from, what it maximises, and
# where the argument ends. They go with [notebook 02](../02_likelihood.ipynb) and
# [notebook 03](../03_value_function.ipynb). Pencil first, code second.
#
# Words: $\pi(o)$ is the probability that the policy gives answer $o$ to the question at hand; the
# reward $r$ of an answer is 1 if right and 0 if wrong; $p^\star(o)$ is the probability that
# answer $o$ is right: 0 or 1 in mathematics, anything between where graders disagree. $D > 0$ is
# the question's difficulty, $\pi^\star$ the policy we would like to have.

# %%
import torch

from notebooks.classroom import start
from notebooks.exercises import checks

device = start(0.3)
checks.begin()

# %% [markdown]
# ## Exercise 4 · Difficulty and the optimal policy
#
# The paper ties policy and rewards by $p^\star(o) = \pi^\star(o) / D$, with one number $D$ for
# the whole question. $\pi^\star$ is a probability distribution over the answers. Which $D$ and
# which $\pi^\star$ follow from a given $p^\star$?
#
# `solve(p_star)`: `[B, K]`, $B$ questions of $K$ answers; return the tuple `(D, pi_star)`, `[B]`
# and `[B, K]`. At least one answer has $p^\star > 0$.


# %%
def solve(p_star):
    return ...


# %%
checks.check_4(solve)

# %% [markdown]
# ## Exercise 5 · Derive the calibrated reward
#
# Take $p_\theta(o) = \pi_\theta(o) / D$ as a model of "answer $o$ is right", with $D$ fixed. Up
# to a constant, the log-likelihood of one sample (the boxed loss of Section 4, for one sample and
# with the opposite sign) is
#
# $$r \log \pi_\theta(o) + (1 - r) \log\Big(1 - \frac{\pi_\theta(o)}{D}\Big).$$
#
# $\theta$ are the policy's parameters. A policy gradient has the form
# $\tilde r \cdot \nabla_\theta \log \pi_\theta(o)$: a number times the gradient of the
# log-probability. Which number $\tilde r$ makes it the gradient of the log-likelihood?
#
# `calibrated(r, pi, D)`: three tensors `[N]`, with $\pi < D$ and $r$ in $[0, 1]$; return `[N]`.


# %%
def calibrated(r, pi, D):
    return ...


# %%
checks.check_5(calibrated)

# %% [markdown]
# ## Exercise 6 · From the odds to the weight function
#
# We look for a value function: something whose gradient is what exercise 5 found. Suppose that
# wrong answers cost $\sum_o \pi(o)\, w(\pi(o)/D)$ for some function $w$. With $z = \pi / D$, the
# derivative of $\pi\, w(\pi / D)$ with respect to $\pi$ is $w(z) + z\, w'(z)$. It should be what
# a wrong answer pays, the *odds* $z / (1 - z)$:
#
# $$w(z) + z\, w'(z) = \frac{z}{1 - z}, \qquad w(0) = 0.$$
#
# Solve for $w$. (The left side is the derivative of a product.)
#
# `w(z)`: `[N]`, $0 < z < 1$; return `[N]`.


# %%
def w(z):
    return ...


# %%
checks.check_6(w)

# %% [markdown]
# ## Exercise 7 · One logarithm for each wrong answer
#
# Theorem 2 gives the value function
#
# $$J_{\mathrm{MLE}} = \sum_o \pi(o)\, p^\star(o)
# - \sum_o \pi(o)\, w\big(\pi(o)/D\big)\, (1 - p^\star(o)).$$
#
# Put your $w$ in and use $\sum_o \pi(o) = 1$. Much cancels. What is left is short: right answers
# ($p^\star = 1$) do not occur in it at all.
#
# `j_mle(pi, p_star, D)`: `[B, K]`, `[B, K]` and `[B]`; return `[B]`. The check also changes $\pi$
# of the answers with $p^\star = 1$ and wants the same number as before.


# %%
def j_mle(pi, p_star, D):
    return ...


# %%
checks.check_7(j_mle)

# %% [markdown]
# ## Exercise 8 · Where the likelihood misses the best policy
#
# Six answers, $A$ to $F$; $A$ and $B$ are right, the others wrong; $D = 1/2$;
# $\pi^\star = (\tfrac12, \tfrac12, 0, 0, 0, 0)$. Now the samples come from some other policy
# $\mu$ ("off-policy"). The expected log-likelihood of a policy $\pi$ is then
#
# $$L(\pi) = \sum_o \mu(o) \Big[ r(o) \log \pi(o)
# + (1 - r(o)) \log\Big(1 - \frac{\pi(o)}{D}\Big) \Big].$$
#
# The paper says that the true $\pi^\star$ is a maximiser of the population log-likelihood. Find a
# counterexample: a $\mu$ and a $\pi$ with $L(\pi) \ge L(\pi^\star) + 0.01$. Wrong answers need
# $\pi < D$. (Which $\mu$ makes this impossible? Try that one first.)
#
# Answer: two lists or tensors of six probabilities each.

# %%
mu = ...
pi = ...

# %%
checks.check_8((mu, pi))

# %%
checks.summary(4, 5, 6, 7, 8)

# %% [markdown]
# Next: [exercises on the practical rule](03_practical_rule.ipynb). Solutions, for when you have
# tried: [solutions](solutions/02_likelihood.ipynb).
