# %% [markdown]
# # 10 · The paper's tables beside ours
#
# Every table and figure of the LENS paper, and beside each published number the one that was
# measured here. Nothing is typed by hand: the code of `python -m lens_ref.report` reads the runs
# under `results/`, and what has not been run says **not run**. The notebook grows with the runs.
#
# **You need:** negative groups, GRPO and its advantages ([notebook 01](01_wasted_groups.ipynb)),
# the calibrated reward ([notebook 04](04_calibrated_reward.ipynb)), what a training run is
# ([notebook 07](07_tiny_language_model.ipynb)). Words: [glossary](../docs/glossary.md).
#
# **After this notebook you can**
# - read a table of pass@k, and say what one number in it rests on;
# - tell a difference between two methods from the spread between two seeds;
# - say how many seeds a claim of a given size needs;
# - put your own runs beside the paper's.

# %%
import numpy as np
from classroom import results, start
from IPython.display import HTML, Image, display
from scipy import stats

from lens_ref import pass_at_k
from lens_ref.reporting import paper, tables
from lens_ref.reporting.document import reproduction
from lens_ref.rlvr import report_figures
from lens_ref.rlvr.report_page import table
from lens_ref.rlvr.statistics import t_interval
from lens_ref.rlvr.untrusted import as_html

device = start(1, "numpy", "matplotlib")


# %% [markdown]
# ## What was run
#
# A **run** trains one policy (the language model) with one method and one **seed** (the number
# that fixes every random draw). Runs that differ in method and seed alone make up a *setting*. Which
# row of the paper's tables a run belongs to is decided by what its files say that it did: model,
# training data, method, number of gradient updates, answers per question. The name of its folder
# does not matter. Expect one sentence, and a note on runs that were found twice.

# %%
found = reproduction(results=results())
print(found.coverage())
for note in found.notes():
    print("note:", note)


# %% [markdown]
# Three ways to show what the report makes: a table, a sentence, and a figure with its caption.


# %%
def show_table(header, rows):
    display(HTML(table(header, rows)))


def say(text, tag="p"):
    display(HTML(f"<{tag}>{as_html(text)}</{tag}>"))


def show_figure(name, drawing, caption):
    if isinstance(drawing, str):
        say(drawing)
    else:
        display(Image(report_figures.png(drawing, dpi=100), width=840, alt=caption))
        say(caption, "em")


drawings = found.paper_drawings()

# %% [markdown]
# ## The three figures that need no run
#
# **Overview.** GRPO gives every wrong answer the reward 0, so in a group without a right answer
# (a *negative group*) every **advantage**, the push up or down that training gives an answer, is 0.
# LENS takes from each wrong answer the odds of its confidence $\bar\pi$ (the geometric mean of its
# token probabilities). Expect black dots at zero (GRPO) and hatched bars (LENS); mind the scale of
# the third panel.

# %%
show_figure("overview", *drawings["overview"])

# %% [markdown]
# **From $p^\star$ to $\pi^\star$.** The paper's example has six options of which two are right.
# $p^\star(o)$ is the probability that option $o$ is right, and the *difficulty* $D$ normalises it to
# a policy:
# $$\pi^\star(o\mid q) = D(q)\,p^\star(q,o),\qquad D(q) = \Big\{\sum_o p^\star(q,o)\Big\}^{-1}.$$
# Expect two bars of height 1, then two of height 1/2.

# %%
show_figure("optimal_policy", *drawings["optimal_policy"])

# %% [markdown]
# **The weight function** of Theorem 2,
# $$w(z) = \frac1z\log\frac1{1-z} - 1,\qquad z = \pi/D,$$
# ($\pi$: the probability that the policy gives a wrong answer) is the weight of that answer in the
# value function; the odds $z/(1-z)$ are what multiplies its gradient. The paper draws $w$ alone.
# Expect two curves that rise to infinity at the pole $z = 1$, the odds much earlier
# ([notebook 03](03_value_function.ipynb)).

# %%
show_figure("weight", *drawings["weight"])

# %% [markdown]
# ## How many groups are negative
#
# The paper's motivation is a picture: with Llama-3.1-8B and 16 answers a question, nearly 45 % of
# the groups are negative early in training under GRPO, and about 35 % are at the end. Its text gives
# those two numbers and no more. Expect them as thick bars, and our own GRPO runs as lines.

# %%
show_figure("negative_groups", *drawings["negative_groups"])

# %% [markdown]
# Where a line of ours comes near the bars, nothing is reproduced by it: another model, another task.
#
# ## What a number in a table is
#
# **pass@k** is the probability that at least one of $k$ answers is right; pass@1 is the accuracy.
# From $n$ answers to a question, $c$ of them right, it is estimated without bias by
# $$\text{pass@}k = 1 - \binom{n-c}{k}\Big/\binom{n}{k}.$$
# With 1 of 4 right and $k = 2$: of the 6 pairs 3 hold the right one.

# %%
assert pass_at_k(4, 1, 2) == 0.5
print("4 answers, 1 right: pass@2 =", pass_at_k(4, 1, 2))

# %% [markdown]
# Numbers of several seeds $x_1,\dots,x_n$ are given as mean and **95 % interval**,
# $$\bar x \pm t_{.975,\,n-1}\,\frac{s}{\sqrt n},$$
# with $s$ their standard deviation and $t$ from Student's distribution with $n - 1$ degrees of
# freedom, at which 97.5 % lie below. Two methods are compared
# on the *same* seeds: each seed gives one difference, and the interval is that of the differences.
# A small example: GRPO and a rival on three seeds. Expect a wide interval for the rival alone, since
# the seeds lie far apart, and a narrow one for the difference, which leaves 0 out.

# %%
grpo, rival = np.array([30.0, 34.0, 38.0]), np.array([31.0, 35.3, 38.7])
alone, paired = t_interval(rival), t_interval(rival - grpo)
print(f"rival alone:       {alone.mean:.1f} [{alone.low:.1f}, {alone.high:.1f}]")
print(f"rival minus GRPO: {paired.mean:+.1f} [{paired.low:+.2f}, {paired.high:+.2f}]")
# s of (1, 1.3, 0.7) is 0.3 and t(.975; 2) = 4.303, so the half-width is 4.303 · 0.3 / √3 = 0.745
assert abs((paired.high - paired.low) / 2 - 0.745) < 1e-3

# %% [markdown]
# ## Table 1: MATH + DAPO
#
# The main table. Each row comes twice: the paper's digits, and ours. "Run" means at the paper's
# setting: 1,000 updates or more, 32 questions × 16 answers an update, answers up to 4,096 tokens,
# tested on all 5,000 questions of MATH with 16 answers each.

# %%
main, ablation, second = found.tables


def show_paper_table(filled):
    show_table(tables.PAPER_HEADER, tables.paper_rows(filled))
    for remark in filled.remarks:
        say(remark)


show_paper_table(main)

# %% [markdown]
# About 1,000 questions of DAPO are problems of the MATH *test* set, so part of this table, the
# paper's and any of ours, is measured on questions that were trained on
# (`configs/paper/math-dapo-clean.yaml` leaves them out).
#
# The training curves to it: accuracy on all test questions, and on the hard ones (levels 4–5). The
# paper prints no numbers for its curves, so only the pass@1 of its table can be drawn: as level lines.

# %%
show_figure("curves_dapo", *drawings["curves_dapo"])

# %% [markdown]
# ## Table 2: which part of LENS does it
#
# LENS changes two things: the rewards of wrong answers in **mixed** groups (right and wrong answers
# together), and those in negative groups. The paper switches on one at a time.

# %%
show_paper_table(ablation)

# %% [markdown]
# ## Table 3: MATH + Numina 1.5
#
# The second training set. The Llama rows are those of Table 2.

# %%
show_paper_table(second)
show_figure("curves_numina", *drawings["curves_numina"])

# %% [markdown]
# Two things to notice in the published digits alone. First, the claimed gains; second, how far the
# two training sets lie apart for the same model and method. Expect the second to be as large.

# %%
for filled in (main, second):
    for line in filled.lines:
        if line.published_gain is not None:
            print(
                f"{filled.table.name}, {line.row.label}: pass@1 {line.published_gain:+.2f} points"
            )
value = {key: float(text) for key, text in paper.published().items()}
row = "Llama-3.1-8B-Instruct: GRPO baseline"
for column in ("pass@1", "pass@16"):
    gap = value["Table 3", row, column] - value["Table 1", row, column]
    print(f"GRPO on Llama, Numina minus DAPO: {column} {gap:+.2f} points")

# %% [markdown]
# ## Our own settings
#
# What was run here is smaller: other models, other questions but for MATH's, fewer updates. It can't confirm or
# refute a row of the tables above, but it can answer the same question in its own world: *does LENS
# as printed beat GRPO, by more than luck?* The sentences below are written by the code from the
# intervals. Then come pass@k after the last update, the differences to GRPO, and what happened while
# training. Look at the column "their signal": it says how loud negative groups are next to mixed
# ones. GRPO's are silent (0); LENS as printed is nearly so
# ([notebook 04](04_calibrated_reward.ipynb)). Two other readings of LENS make negative groups loud:
# `no_demean` does not take their mean off, `negative_std` divides them by their standard deviation.
# `qwen05` is the folder that held Qwen2.5-Coder-0.5B-Instruct, its weights computed back from a quantised file
# ([docs/reproduction.md](../docs/reproduction.md) says what was run, on what).


# %%
def show_setting(setting):
    say(setting.title, "h3")
    for sentence in found.verdicts(setting):
        say(sentence)
    show_table(*tables.accuracy_rows(setting))
    show_table(*tables.difference_rows(setting))
    show_table(tables.TRAINING_HEADER, tables.training_rows(setting))
    say(tables.TRAINING_NOTE, "em")
    for name, drawing in found.setting_drawings(setting).items():
        show_figure(name, *drawing)


compared = [setting for setting in found.settings if setting.compares]
for setting in compared:
    show_setting(setting)
if not compared:
    print("not run")

# %% [markdown]
# Settings with one method alone (a search for the learning rate, say) compare nothing.

# %%
alone = [setting for setting in found.settings if not setting.compares]
if alone:
    show_table(*tables.lone_rows(alone))
else:
    print("none")

# %% [markdown]
# ## How many seeds does a claim need?
#
# From the spread $s$ of the paired differences one can compute, before any further run, how wide the
# interval of $n$ seeds will be: $t_{.975,\,n-1}\,s/\sqrt n$. Expect a steep fall from two seeds to
# five. With two seeds $t$ is 12.7: a pair of runs says next to nothing about a difference of the
# size of $s$.

# %%
assert round(float(stats.t.ppf(0.975, 1)), 1) == 12.7
counts = (2, 3, 5, 10, 20)
rows = []
for setting in compared:
    pairs = setting.seed_differences("lens")
    if len(pairs) > 2:
        s = float(np.std(pairs, ddof=1))
        widths = [f"±{stats.t.ppf(0.975, n - 1) * s / n**0.5:.1f}" for n in counts]
        rows.append([setting.title, f"{len(pairs)}", f"{s:.2f}", *widths])
show_table(["setting", "seeds run", "s, points", *(f"{n} seeds" for n in counts)], rows)

# %% [markdown]
# Compare these widths with the published gains above. The paper averages two runs a row of Table 1
# (of the other tables it names no second one) and gives no spread. That is usual for runs of this cost, and the spread of
# a large model need not be that of a small one; but no single difference can be told from luck by its
# digits.
# That all four comparisons point the same way is evidence too: with no effect at all, four fair coins
# fall alike with probability 1/8. Coins don't share a run, though: the arms of Table 2 stand beside the
# same GRPO run, and ours on GSM8K show what that does. With each of the seeds 0 to 2 all arms of LENS
# lie on the same side of GRPO, since that is where GRPO's run went.

# %%
gains = [line.published_gain for t in (main, second) for line in t.lines if line.row.role == "lens"]
print(f"{sum(gain > 0 for gain in gains)} of {len(gains)} published gains in pass@1 are positive")
print(f"chance that {len(gains)} fair coins fall alike: 1/{2 ** (len(gains) - 1)}")

# %% [markdown]
# ## Put your own runs here
#
# Train, then ask for the report: HTML with its figures, PNG, CSV and LaTeX.
#
# ```
# python -m lens_ref.train --config paper/qwen2.5-3b paper/math-dapo --method grpo lens --name seed0
# python -m lens_ref.train --config paper/qwen2.5-3b paper/math-dapo --method grpo lens --seed 1 --name seed1
# python -m lens_ref.report runs/seed0 runs/seed1 --out report
# ```
#
# Without run folders it reads `results/`, as this notebook does. Here is the first of its files:

# %%
frame = found.frame()
assert set(frame[frame["runs"] == 0]["state"]) <= {"not run"}
assert frame[frame["runs"] == 0][["ours", "low", "high"]].isna().all(axis=None)
print(frame.head(3).to_csv(index=False))

# %% [markdown]
# ## What you have seen
#
# - The paper's tables and figures, with ours beside them where they were run and "not run" where
#   they were not.
# - A number of pass@k rests on seeds and on questions. Only several seeds say how far it moves with
#   another run.
# - Differences are read from paired intervals; at two seeds such an interval is very wide.
# - In our runs LENS as printed gave negative groups a signal that is a tiny fraction of a mixed
#   group's, and its difference from GRPO could not be told from 0.
#
# ## Questions for the class
#
# 1. Table 1 and Table 3 differ far more in pass@16 than in pass@1 for the same model under GRPO. What
#    could do that? Which file of a run would tell?
# 2. The report takes the evaluation after the *last* update. What changes if each method may show its
#    *best* one? In whose favour?
# 3. You may afford 12 runs. Which methods, how many seeds each, and what is the smallest difference
#    that you can hope to see?
# 4. Suppose that LENS without the 1/G in negative groups wins. Is the paper's claim then confirmed?
#
# Next: [11 · Beyond the paper](11_extensions.ipynb). Exercises: [exercises](exercises/), 15 above
# all. What was run, when and on what, is told in `results/README.md`.
