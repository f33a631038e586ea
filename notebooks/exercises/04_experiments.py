# %% [markdown]
# # Exercises 4 · Experiments
#
# Four exercises in which you measure instead of derive: who moves, what escapes, what is noise,
# and where LENS hurts. They go with [notebook 05](../05_toy_dynamics.ipynb),
# [notebook 06](../06_rivals.ipynb) and [notebook 07](../07_tiny_language_model.ipynb).
#
# Words: an *advantage* is the number that multiplies $\nabla \log \pi$ of a sampled answer; GRPO
# gives a *negative group* (all answers wrong) the advantage 0, LENS gives it
# $\alpha(\tilde r_i - \operatorname{mean} \tilde r)$ with
# $\tilde r_i = -\tfrac1G\, \bar\pi_i / (D - \bar\pi_i)$, where $\bar\pi_i$ is the confidence of
# answer $i$ and $D$ the difficulty ([notebook 04](../04_calibrated_reward.ipynb)).

# %%
import numpy as np

from notebooks.classroom import results, start
from notebooks.exercises import checks

device = start(0.5)
checks.begin()

# %% [markdown]
# ## Exercise 13 · Sixteen times the same mistake
#
# The policy is so sure of a wrong answer that all 16 samples of a group are that very answer.
# Which treatments move the policy at all, that is, give some response that they keep an advantage
# other than 0? Predict first, then compute: `checks.TREATMENTS[name](checks.SAME_WRONG_GROUP)`
# returns a signal with `.advantages` and `.keep` (False: left out of the loss). What each name does
# to a negative group stands in the table of [notebook 06](../06_rivals.ipynb); `lens negative_std`
# and `lens no_demean` are two readings of LENS.

# %%
print(*checks.TREATMENTS, sep="\n")

# %%
moves = ...  # a set of names, such as {"grpo", "dapo"}

# %%
checks.check_13(moves)

# %% [markdown]
# ## Exercise 14 · Escape, and what it costs
#
# One question, six options, two of them right, and a policy that believes in a wrong one:
# $P(\text{correct}) = 10^{-4}$. Follow the exact gradient of the likelihood objective
# $J_{\mathrm{MLE}}$ with $D = \kappa \cdot \max_o \pi(o)$. The paper takes $\kappa = 2$. Time runs in units of one update
# of learning rate 1; "solved" is $P(\text{correct}) \ge 0.9$.

# %%
from toy.flow import OBJECTIVES, escape, guard_objective

print(f"REINFORCE (no negative signal): {escape(OBJECTIVES['reinforce'], 1e-4).time:,.0f}")
print(f"kappa = 2:                      {escape(guard_objective(2.0), 1e-4).time:,.0f}")

# %% [markdown]
# Find a $\kappa$ that solves it in at most 200, and say what you pay: what is the lowest value
# that the calibrated reward $\tilde r = -\pi/(D - \pi)$ of a wrong answer can take under your
# $\kappa$? (With $\kappa = 2$ the paper says that rewards stay in $[-1, 1]$.)

# %%
kappa = ...
lowest = ...

# %%
checks.check_14((kappa, lowest))

# %% [markdown]
# ## Exercise 15 · Is the difference real?
#
# `results/tiny/curves.csv` holds training runs of a tiny language model. A row has `method`,
# `seed`, `step` (updates so far), `level` ("all": all test questions) and pass@1, the share of
# right answers, between 0 and 1. The runs of one seed share their questions and random numbers.
# Compare the methods `lens` and `grpo` at the last update, level "all":
#
# 1. the mean over seeds of the difference LENS − GRPO, in percentage points;
# 2. the half-width of its 95 % interval, by Student's t;
# 3. whether this interval says that the two differ (True or False).

# %%
import pandas as pd

table = pd.read_csv(results("tiny", "curves.csv"), dtype={"level": str})
table[(table.level == "all") & (table.seed == 0)][["method", "seed", "step", "pass@1"]].head(4)

# %%
mean = ...
half_width = ...
they_differ = ...

# %%
checks.check_15((mean, half_width, they_differ))

# %% [markdown]
# ## Exercise 16 · Find a task where LENS hurts
#
# Build a task on which LENS ends with a *lower true accuracy* than GRPO. A task is
# `checks.Task(logits, correct, graded)`:
#
# - `logits` `[Q, K]`: the policy's first logits on Q questions of K options (at most 20 × 100);
# - `correct` `[Q, K]`: which options are right;
# - `graded` `[Q]`: False where the verifier says "wrong" to every answer, right or not.
#
# Your function gets a numpy random generator and returns a task; it is called once for each of 8
# seeds. `checks.duel(task, preset, optimizer)` trains GRPO and LENS on it (G = 16, 200 updates)
# and returns LENS − GRPO with its 95 % interval. Presets are readings of LENS, from `"paper"` (as
# printed) to `"negative_std"` (negative groups at full strength); optimizers are `"sgd"` and
# `"adam"`. The next cell shows one task where nothing is lost.


# %%
def coin_flips(rng):
    correct = np.zeros((10, 4), dtype=bool)
    correct[:, 0] = True
    return checks.Task(rng.normal(size=(10, 4)), correct, np.ones(10, dtype=bool))


difference = checks.duel(coin_flips, "paper", "sgd")
print(f"LENS − GRPO: {difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]")

# %% [markdown]
# Yours counts if the whole interval lies below −0.02. Think before you search: which group must
# LENS meet in order to do harm, and what does it do there that GRPO does not?


# %%
def my_task(rng):
    return ...


preset = "paper"
optimizer = "sgd"

# %%
checks.check_16((my_task, preset, optimizer))

# %%
checks.summary(13, 14, 15, 16)

# %% [markdown]
# You have met all sixteen. To go on: turn your task into a run of a language model
# ([notebook 07](../07_tiny_language_model.ipynb)), or compare your harm with those that are
# measured in [when to use what](../../docs/when-to-use.md). Solutions, for when you have tried:
# [solutions](solutions/04_experiments.ipynb).
