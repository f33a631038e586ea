# %% [markdown]
# # Exercises 3 · The practical rule
#
# Four exercises that rebuild the algorithm of Section 5 of the paper, step by step, and find the
# place where it jumps. They go with [notebook 04](../04_calibrated_reward.ipynb).
#
# Words: a group holds $G$ responses $o_1, \dots, o_G$ to one question, with rewards $r_i$ (1
# right, 0 wrong); $|o_i|$ is the number of tokens of a response, its end-of-sequence token
# included; $\pi(o_i)$ is the probability of the whole response under the policy that sampled it,
# $\bar\pi_i$ its *confidence* (exercise 9), $D$ the difficulty (exercise 10).

# %%
import torch

from notebooks.classroom import start
from notebooks.exercises import checks

device = start(0.3)
checks.begin()

# %% [markdown]
# ## Exercise 9 · The confidence of a response
#
# A response of 1000 tokens has a tiny probability however sure the policy is. The paper takes the
# length out: $\bar\pi(o) = \pi(o)^{1/|o|}$.
#
# `confidence(token_logprobs, mask)`: natural logarithms of token probabilities `[G, T]`, and a
# mask `[G, T]` that is True on tokens of the response. Padding holds −99. Return $\bar\pi$ `[G]`.


# %%
def confidence(token_logprobs, mask):
    return ...


# %%
checks.check_9(confidence)

# %% [markdown]
# ## Exercise 10 · The difficulty of a group
#
# As printed in Section 5, the estimate by importance sampling, and the difficulty, are
#
# $$D_{\mathrm{imp}} = \Big\{ \frac1G \sum_{i=1}^{G} \frac{r_i}{\pi(o_i)} \Big\}^{-1}, \qquad
# D = \max\big(D_{\mathrm{imp}},\ 2 \max_j \bar\pi_j\big).$$
#
# $D_{\mathrm{imp}}$ is printed with the probability $\pi$ of the whole response, the second term
# (the *guard*) with $\bar\pi$; keep it so. A group without a right answer takes the guard alone.
# Responses may have thousands of tokens, so that $\pi$ is smaller than any floating-point number:
# stay in logarithms (`torch.logsumexp` is $\log \sum_i e^{x_i}$).
#
# `log_difficulty(rewards, logprobs, lengths)`: three tensors `[B, G]`, with `logprobs`
# $= \log \pi(o_i)$; return $\log D$, `[B]`.


# %%
def log_difficulty(rewards, logprobs, lengths):
    return ...


# %%
checks.check_10(log_difficulty)

# %% [markdown]
# ## Exercise 11 · An all-wrong group by hand
#
# All $G$ answers are wrong, so $D = 2 \max_j \bar\pi_j$. The paper gives them the calibrated
# rewards and advantages
#
# $$\tilde r_i = -\frac1G\, \frac{\bar\pi_i}{D - \bar\pi_i}, \qquad
# A_i = \alpha\, \big(\tilde r_i - \operatorname{mean}(\tilde r_1, \dots, \tilde r_G)\big),
# \qquad \alpha = 0.25.$$
#
# Before you run anything, write down for $\bar\pi = (0.9, 0.8, 0.5, 0.2)$ which of the four wrong
# answers become *more* probable.
#
# `negative_group(confidence)`: $\bar\pi$, `[B, G]`; return the advantages `[B, G]`.


# %%
def negative_group(confidence):
    return ...


# %%
checks.check_11(negative_group)

# %% [markdown]
# ## Exercise 12 · The jump at no correct answer
#
# Read $D_{\mathrm{imp}}$ with $\bar\pi$ instead of $\pi$ (the preset `normalized_difficulty`),
# and let all $G$ responses have the same confidence $\bar\pi$. $k$ of them are right. What are
# the odds $u = \bar\pi / (D - \bar\pi)$ of a wrong one?
#
# Write the sequence $u(0), u(1), u(2), \dots$ for $G = 16$ and look at its start. What would you
# have expected at $k = 0$, from $D = 1 / \sum_o p^\star(o)$?
#
# `wrong_odds(k, G)`: a tensor of counts `[N]`, $0 \le k < G$, and an int; return $u$ as the rule
# gives it, `[N]`.


# %%
def wrong_odds(k, G):
    return ...


# %%
checks.check_12(wrong_odds)

# %%
checks.summary(9, 10, 11, 12)

# %% [markdown]
# Next: [experiments](04_experiments.ipynb). Solutions, for when you have tried:
# [solutions](solutions/03_practical_rule.ipynb).
