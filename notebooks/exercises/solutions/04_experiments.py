# %% [markdown]
# # Solutions 4 · Experiments
#
# Solutions of [exercises 4](../04_experiments.ipynb). A check that is not *right* stops this
# notebook.

# %%
import numpy as np

from notebooks.classroom import results, start
from notebooks.exercises import checks

device = start(0.5)
checks.begin(strict=True)

# %% [markdown]
# ## Exercise 13 · Sixteen times the same mistake
#
# GRPO and Dr. GRPO see no difference of rewards; DAPO and PSR drop the group. LENS sees no
# difference of confidence: de-meaned, sixteen equal penalties are 0, with or without the standard
# deviation. What moves is what does not centre: LENS without de-meaning, and the uniform
# penalties of NSR and NGRPO. So where the policy is surest of a mistake, LENS as printed is as
# silent as GRPO.

# %%
moves = set()
for name, method in checks.TREATMENTS.items():
    signal = method(checks.SAME_WRONG_GROUP)
    if (signal.advantages[signal.keep] != 0).any():
        moves.add(name)
print(sorted(moves))

# %%
checks.check_13(moves)

# %% [markdown]
# ## Exercise 14 · Escape, and what it costs
#
# The odds of the most confident answer are $\pi / (\kappa \pi - \pi) = 1 / (\kappa - 1)$: 1 for
# the paper's guard, and the nearer $\kappa$ is to 1, the nearer to the pole. The pole is what
# makes the escape fast, and rewards are then no longer in $[-1, 1]$.

# %%
from toy.flow import escape, guard_objective

for kappa in (2.0, 1.5, 1.1, 1.05, 1.02):
    time = escape(guard_objective(kappa), 1e-4).time
    print(f"kappa = {kappa:<5g} time {time:7.1f}   lowest reward {-1 / (kappa - 1):6.1f}")

# %%
kappa = 1.05
lowest = -1 / (kappa - 1)

# %%
checks.check_14((kappa, lowest))

# %% [markdown]
# ## Exercise 15 · Is the difference real?
#
# Differences seed by seed, because the runs of a seed share questions and random numbers; the
# standard error divides by $\sqrt n$; and few seeds have few degrees of freedom. The last line
# shows what the factor of the normal distribution, 1.96, would have claimed.

# %%
import pandas as pd
from scipy import stats

table = pd.read_csv(results("tiny", "curves.csv"), dtype={"level": str})
at_end = table[(table.level == "all") & (table.step == table.step.max())]
by_method = at_end.pivot(index="seed", columns="method", values="pass@1")
difference = 100 * (by_method["lens"] - by_method["grpo"])
n = len(difference)
mean = difference.mean()
half_width = stats.t.ppf(0.975, n - 1) * difference.std(ddof=1) / np.sqrt(n)
they_differ = not (mean - half_width <= 0 <= mean + half_width)
print(f"{mean:+.2f} ± {half_width:.2f} points over {n} seeds; they differ: {they_differ}")
normal = 1.96 * difference.std(ddof=1) / np.sqrt(n)
print(f"with 1.96: ± {normal:.2f}; they differ: {abs(mean) > normal}")

# %%
checks.check_15((mean, half_width, they_differ))

# %% [markdown]
# ## Exercise 16 · Find a task where LENS hurts
#
# A verifier that marks right answers wrong makes every group negative. GRPO learns nothing from
# them and leaves the policy alone. LENS pushes down what the policy is surest of, and here that
# is the right answer. Under SGD the harm follows the size of the signal; Adam divides by that
# size, so that even the whisper of the printed rule is heard.


# %%
def my_task(rng):
    correct = np.zeros((10, 50), dtype=bool)
    correct[:, 0] = True
    logits = rng.normal(size=(10, 50)) + 8.0 * correct  # solved
    return checks.Task(logits, correct, graded=np.zeros(10, dtype=bool))  # and always marked wrong


for preset, optimizer in (("paper", "sgd"), ("negative_std", "sgd"), ("paper", "adam")):
    found = checks.duel(my_task, preset, optimizer)
    print(f"{preset:13} {optimizer:5} {found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]")

# %%
checks.check_16((my_task, "paper", "adam"))

# %%
checks.summary(13, 14, 15, 16)
