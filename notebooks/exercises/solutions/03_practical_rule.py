# %% [markdown]
# # Solutions 3 · The practical rule
#
# Solutions of [exercises 3](../03_practical_rule.ipynb). A check that is not *right* stops this
# notebook.

# %%
import torch

from notebooks.classroom import start
from notebooks.exercises import checks

device = start(0.3)
checks.begin(strict=True)

# %% [markdown]
# ## Exercise 9 · The confidence of a response
#
# $\pi(o)^{1/|o|} = \exp\big(\tfrac{1}{|o|} \sum_t \log \pi(o_t)\big)$: the geometric mean of the
# token probabilities. The arithmetic mean is larger unless all tokens are equal.


# %%
def confidence(token_logprobs, mask):
    total = torch.where(mask, token_logprobs, 0.0).sum(-1)
    return (total / mask.sum(-1)).exp()


# %%
checks.check_9(confidence)

# %% [markdown]
# ## Exercise 10 · The difficulty of a group
#
# $\log D_{\mathrm{imp}} = \log G - \log \sum_i r_i e^{-\log \pi(o_i)}$, a `logsumexp` over right
# answers. A group without any has $D_{\mathrm{imp}} = \infty$, which is *not* what the rule uses.
# For long responses $\log D_{\mathrm{imp}}$ is hundreds below 0 and the guard decides; only at a
# few tokens does the estimate matter at all.


# %%
def log_difficulty(rewards, logprobs, lengths):
    guard = (logprobs / lengths).amax(-1) + torch.tensor(2.0).log()
    terms = (-logprobs).masked_fill(rewards == 0, -torch.inf)
    log_imp = torch.tensor(float(rewards.shape[-1])).log() - terms.logsumexp(-1)
    negative = (rewards == 0).all(-1)
    return torch.where(negative, guard, torch.maximum(log_imp, guard))


# %%
checks.check_10(log_difficulty)

# %% [markdown]
# ## Exercise 11 · An all-wrong group by hand
#
# $D = 1.8$, odds $(1, 0.8, 0.3846, 0.125)$, calibrated rewards a quarter of their negatives, mean
# $-0.1444$. De-meaning turns the two *less* confident mistakes into winners: they become more
# probable, although they are wrong. The advantages are of the size of 0.03; those of a mixed
# group are of the size of 1.


# %%
def negative_group(confidence):
    D = 2 * confidence.amax(-1, keepdim=True)
    reward = -confidence / (D - confidence) / confidence.shape[-1]
    return 0.25 * (reward - reward.mean(-1, keepdim=True))


print(negative_group(torch.tensor([[0.9, 0.8, 0.5, 0.2]])))

# %%
checks.check_11(negative_group)

# %% [markdown]
# ## Exercise 12 · The jump at no correct answer
#
# With equal confidence $D_{\mathrm{imp}} = (G/k)\, \bar\pi$, so $D / \bar\pi = \max(G/k, 2)$ and
# $u = 1 / (\max(G/k, 2) - 1)$: the fewer are right, the smaller it is, down to $1/(G-1)$ at
# $k = 1$. At $k = 0$ the rule falls back to the guard, $D = 2 \bar\pi$ and $u = 1$: the smallest
# admissible $D$ on the hardest question. The theory would say $D = \infty$ and $u = 0$.


# %%
def wrong_odds(k, G):
    ratio = (G / k.clamp(min=1)).clamp(min=2)
    ratio = torch.where(k == 0, 2.0, ratio)
    return 1 / (ratio - 1)


print(wrong_odds(torch.arange(5), 16))

# %%
checks.check_12(wrong_odds)

# %%
checks.summary(9, 10, 11, 12)
