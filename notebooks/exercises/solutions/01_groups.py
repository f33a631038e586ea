# %% [markdown]
# # Solutions 1 · Groups
#
# Solutions of [exercises 1](../01_groups.ipynb). A check that is not *right* stops this notebook.

# %%
import torch

from notebooks.classroom import start
from notebooks.exercises import checks

device = start(0.3)
checks.begin(strict=True)

# %% [markdown]
# ## Exercise 1 · How many groups speak?
#
# A group is silent in two ways: all wrong, with probability $(1-p)^G$, and all right, with
# probability $p^G$. Both have equal rewards, so every difference is 0. The rest speaks:
# $1 - (1-p)^G - p^G$. At $p = 1/2$ and $G = 2$ that is $1/2$.


# %%
def speaking(p, G):
    return 1 - (1 - p) ** G - p**G


assert speaking(torch.tensor(0.5), 2) == 0.5

# %%
checks.check_1(speaking)

# %% [markdown]
# ## Exercise 2 · The advantages of GRPO
#
# `torch.std` divides by $G - 1$ unless told otherwise, and a group without differences would be
# $0/0$.


# %%
def advantages(rewards):
    centred = rewards - rewards.mean(-1, keepdim=True)
    std = centred.square().mean(-1, keepdim=True).sqrt()
    return torch.where(std > 0, centred / std.where(std > 0, 1.0), 0.0)


print(advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])))

# %%
checks.check_2(advantages)

# %% [markdown]
# ## Exercise 3 · The loss is 0, the gradient is not
#
# At the first update every ratio is $e^0 = 1$: inside the clip range, so the minimum takes the
# unclipped branch. The loss is $-\tfrac1N \sum_i \hat A_i$ (the token mean of a constant), and
# GRPO's advantages add up to 0. But
# $\partial\, \mathrm{ratio} / \partial \ell = \mathrm{ratio} = 1$, so each token has the gradient
# $-\hat A_i / (N\, |o_i|)$: tokens of good responses are pushed up, those of bad ones down, and
# the two halves of a sum of 0 do not undo each other.


# %%
def token_gradient(advantages, mask):
    per_token = -advantages / (len(advantages) * mask.sum(-1))
    return per_token.unsqueeze(-1) * mask


print(token_gradient(torch.tensor([1.0, -1.0]), torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()))

# %%
checks.check_3(token_gradient)

# %%
checks.summary(1, 2, 3)
