# %% [markdown]
# # Exercises 1 · Groups
#
# Three exercises on what GRPO learns from a group of answers, and what it cannot learn. They go
# with [notebook 01](../01_wasted_groups.ipynb).
#
# How it works: replace `...` by your answer and run the cell below it. The check says *right*,
# gives a hint, or says that there is no answer yet. You may try as often as you like. Checks use
# random inputs, so an answer that fits one example only will not pass. The library holds many of
# these formulas: write them yourself, then compare.
#
# Words: a **question** gets a **group** of $G$ sampled **responses**; the **reward** $r_i$ of
# response $i$ is 1 if its answer is right and 0 if it is wrong. A group is *negative* if all its
# rewards are 0, *correct* if all are 1, *mixed* otherwise ([glossary](../../docs/glossary.md)).

# %%
import torch

from notebooks.classroom import start
from notebooks.exercises import checks

device = start(0.3)
checks.begin()

# %% [markdown]
# ## Exercise 1 · How many groups speak?
#
# A policy answers a question rightly with probability $p$, and the $G$ responses of a group are
# independent. GRPO learns from *differences* of rewards inside a group. What is the probability
# that a group has any?
#
# `speaking(p, G)`: `p` is a tensor `[N]` of probabilities, `G` an int of at least 2; return
# `[N]`.


# %%
def speaking(p, G):
    return ...


# %%
checks.check_1(speaking)

# %% [markdown]
# ## Exercise 2 · The advantages of GRPO
#
# The advantage of response $i$ says how much more probable it should become (less, if negative).
# GRPO takes, inside each group,
#
# $$\hat A_i = \frac{r_i - \operatorname{mean}(r_1, \dots, r_G)}
# {\operatorname{std}(r_1, \dots, r_G)}$$
#
# (the normalisation in Section 3 of the paper). Here the standard deviation divides by $G$, and a
# group without differences gives 0.
#
# `advantages(rewards)`: `[B, G]` rewards of $B$ questions; return `[B, G]`.


# %%
def advantages(rewards):
    return ...


# %%
checks.check_2(advantages)

# %% [markdown]
# ## Exercise 3 · The loss is 0, the gradient is not
#
# GRPO lowers the loss
#
# $$-J = -\frac1N \sum_{i=1}^{N} \frac{1}{|o_i|} \sum_{t=1}^{|o_i|}
# \min\big(\mathrm{ratio}_{i,t} \hat A_i,\,
# \mathrm{clip}(\mathrm{ratio}_{i,t}, 0.8, 1.2)\, \hat A_i\big),
# \qquad
# \mathrm{ratio}_{i,t} = \exp\big(\ell_{i,t} - \ell^{\mathrm{old}}_{i,t}\big).$$
#
# ($\mathrm{clip}(x, a, b)$ is $x$, but at least $a$ and at most $b$.) $N$ is the number of
# responses, $|o_i|$ the number of tokens of response $i$, $\ell_{i,t}$ the log-probability of its
# token $t$ under the policy in training and $\ell^{\mathrm{old}}_{i,t}$ the same under the policy
# that sampled. On the first update the two policies are the same. The next cell shows what people
# then see in their log.

# %%
from lens_ref import grpo_loss

logprobs = torch.tensor([[-0.7, -1.1, -0.4], [-0.2, -2.0, -99.0]], dtype=torch.float64)
mask = torch.tensor([[True, True, True], [True, True, False]])  # False: padding
out = grpo_loss(logprobs, logprobs, torch.tensor([1.0, -1.0], dtype=torch.float64), mask)
print(
    f"|loss| = {abs(out.loss):.1f}, ratio = {out.mean_ratio:.1f}, clipped = {out.clip_fraction:.1f}"
)

# %% [markdown]
# "Why is my loss 0?" is the commonest question about GRPO. Answer it with the gradient: what is
# $\partial(-J) / \partial \ell_{i,t}$ at this first update?
#
# `token_gradient(advantages, mask)`: `advantages` `[N]`, `mask` `[N, T]` (True on the tokens of a
# response, False on padding); return `[N, T]`.


# %%
def token_gradient(advantages, mask):
    return ...


# %%
checks.check_3(token_gradient)

# %%
checks.summary(1, 2, 3)

# %% [markdown]
# Next: [exercises on the likelihood](02_likelihood.ipynb). Solutions, for when you have tried:
# [solutions](solutions/01_groups.ipynb).
