# %% [markdown]
# # Solutions 2 · The likelihood
#
# Solutions of [exercises 2](../02_likelihood.ipynb). A check that is not *right* stops this
# notebook.

# %%
import torch

from notebooks.classroom import start
from notebooks.exercises import checks

device = start(0.3)
checks.begin(strict=True)

# %% [markdown]
# ## Exercise 4 · Difficulty and the optimal policy
#
# $\pi^\star = D\, p^\star$ adds up to 1 only if $D = 1 / \sum_o p^\star(o)$. With 0 and 1 that is
# one over the number of right answers; with $p^\star = (0.3, 0.2, 0.1)$ it is $1/0.6 > 1$,
# although the paper says that $D$ lies in $(0, 1]$.


# %%
def solve(p_star):
    D = 1 / p_star.sum(-1)
    return D, D.unsqueeze(-1) * p_star


print(solve(torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0, 0.0]])))

# %%
checks.check_4(solve)

# %% [markdown]
# ## Exercise 5 · Derive the calibrated reward
#
# Write $\ell = \log \pi$, so $\pi = e^\ell$ and $\partial \pi / \partial \ell = \pi$. Then
#
# $$\frac{\partial}{\partial \ell} \Big[ r\, \ell + (1-r) \log\big(1 - e^\ell / D\big) \Big]
# = r + (1-r)\, \frac{-\pi / D}{1 - \pi / D} = r - (1-r)\, \frac{\pi}{D - \pi}.$$
#
# This is Theorem 1, and the number is the boxed calibrated reward. A right answer earns 1, a
# wrong one pays the odds $\pi/(D-\pi)$ that the policy gave it.


# %%
def calibrated(r, pi, D):
    return r - (1 - r) * pi / (D - pi)


assert calibrated(0.0, 0.25, 0.5) == -1.0

# %%
checks.check_5(calibrated)

# %% [markdown]
# ## Exercise 6 · From the odds to the weight function
#
# The left side is $(z\, w)'$. So $z\, w(z) = \int_0^z \frac{u}{1-u}\, du = -\log(1-z) - z$: the
# constant is fixed by $z\,w = 0$ at $z = 0$. Divide by $z$:
#
# $$w(z) = \frac1z \log \frac{1}{1-z} - 1.$$
#
# $w$ is the *running mean* of the odds over $[0, z]$, and smaller than they are: at $z = 0.99$
# the odds are 99. (Very close to 0 this formula loses its digits; `lens_ref.weight` takes a
# series there.)


# %%
def w(z):
    return -torch.log1p(-z) / z - 1


print(w(torch.tensor([0.01, 0.5, 0.99], dtype=torch.float64)))

# %%
checks.check_6(w)

# %% [markdown]
# ## Exercise 7 · One logarithm for each wrong answer
#
# $\pi\, w(\pi/D) = -D \log(1 - \pi/D) - \pi$. Hence
#
# $$J_{\mathrm{MLE}} = \sum_o \pi p^\star + \sum_o (1-p^\star) \big[ D \log(1 - \pi/D) + \pi \big]
# = \underbrace{\sum_o \pi}_{1} + D \sum_o (1-p^\star) \log(1 - \pi/D).$$
#
# A barrier: every wrong answer pays a logarithm that goes to $-\infty$ at $\pi = D$, and how the
# rest is spread over right answers makes no difference. The maximum on the simplex is therefore a
# whole face, not one policy.


# %%
def j_mle(pi, p_star, D):
    z = torch.where(p_star < 1, pi / D.unsqueeze(-1), 0.0)
    return 1 + D * ((1 - p_star) * torch.log1p(-z)).sum(-1)


# %%
checks.check_7(j_mle)

# %% [markdown]
# ## Exercise 8 · Where the likelihood misses the best policy
#
# Under $\mu$ the right answers contribute $\mu(A) \log \pi(A) + \mu(B) \log \pi(B)$. With
# $\pi(A) + \pi(B) = 1$ this is largest at $\pi \propto \mu$ on the right answers, which is
# $(\tfrac12, \tfrac12)$ only if $\mu$ is uniform on them. Let $\mu$ prefer $A$ and $\pi$ follow
# it. The consistency proof multiplies 0 by $\infty$ at $p^\star = 1$; it holds where
# $0 < p^\star < 1$, or on-policy.

# %%
mu = [0.4, 0.1, 0.125, 0.125, 0.125, 0.125]
pi = [0.8, 0.2, 0.0, 0.0, 0.0, 0.0]

# %%
checks.check_8((mu, pi))

# %%
checks.summary(4, 5, 6, 7, 8)
