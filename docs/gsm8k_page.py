"""The measured parts of docs/reproduction.md about Qwen2.5-Coder-0.5B, on GSM8K and on MATH, and
their figures, from the run folders in results/reproduction-0.5b and reproduction-0.5b-math."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from reproduction_page import (  # beside this file
    LINES,
    code_of,
    in_words,
    interval,
    loudness,
    signals,
    together_in_words,
)
from scipy.stats import chi2

from lens_ref.reporting.settings import Estimate, Setting, at_end
from lens_ref.rlvr.collect import check_alike
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.evaluation import KS
from lens_ref.rlvr.report_data import BASELINE, LENS, Run, display, hashes, read_runs
from lens_ref.rlvr.report_figures import beside_means, common_seeds, shared_seeds
from lens_ref.rlvr.report_verdict import bounds, counted, listed, named_seeds, percent, signed
from lens_ref.rlvr.statistics import Interval, detectable, moving_average, seeds_interval

ORIGINS = {
    "4d9033c59a332300cc87589924c18c6f8260838e115bbd46ed26a29b7634c9f0": (
        "weights computed back from a quantised file, "
    )
}
"""What the README must say of weights that are not the hub's, by their hash."""
NONE_YET = "No runs are committed yet."
FEW_SEEDS = 3
"""From so many seeds on the interval is one over seeds."""
WINDOW = 8  # updates
COLORS = {
    BASELINE: "black",
    "nsr": "tab:purple",
    "ngrpo": "tab:pink",
    "lens-normalized_difficulty": "tab:cyan",
    **{label: color for label, (color, *_) in LINES.items()},
}
"""Others are grey."""


def page(folder: Path, task: str = "GSM8K") -> str:
    """Everything that the page says about the runs on a task; a line that says so where none is
    there.

    Raises:
        UserError: one of them is unfinished or was never evaluated, or its settings are others.
    """
    if not folder.is_dir():
        return NONE_YET
    setting = read(folder, task)
    found = {label: difference(setting, label) for label in setting.labels}
    sections = (
        what_was_run(setting.runs),
        by_arm(setting, found),
        *by_level(setting),
        signals(arms(setting), "runs"),
        *by_quarter(setting),
        "![Mean reward of the sampled answers and share of negative groups during training.]"
        f"({task.lower()}.png)",
        *verdicts(setting, found),
    )
    return "\n\n".join(sections)


def read(folder: Path, task: str = "GSM8K") -> Setting:
    """The runs of a folder, which must be alike, in weights and questions too.

    Raises:
        UserError: see `page`.
    """
    runs = read_runs(folder)
    for run in runs:
        check_alike(run, runs[0])
        if run.counts.empty:
            raise UserError(f"{run.path} has no eval_counts.csv, or an empty one")
        if hashes(run) != hashes(runs[0]):
            raise UserError(f"{runs[0].path} and {run.path} are of other weights or questions")
    return Setting(f"Qwen2.5-Coder-0.5B on {task}", task.lower(), tuple(runs))


def what_was_run(runs: Sequence[Run]) -> str:
    """Settings, hardware, time, and whether the runs were sound."""
    config, manifest = runs[0].config, runs[0].manifest
    rollout = config["rollout"]
    questions = rollout["questions"] // config["loss"]["updates_per_rollout"]
    hours = sum(run.manifest["wall_seconds"] for run in runs) / 3600
    cards = sorted({run.manifest["hardware"]["gpu"] for run in runs})
    table = pd.concat([run.metrics for run in runs])
    changes = sum(run.metrics["adapter"].nunique() for run in runs)
    tested = tested_at_end(runs[0])
    return (
        f"{counted(len(runs), 'run')}, {config['steps']} updates each of {questions} questions × "
        f"{rollout['responses']} answers, evaluated on {len(tested):,} test questions × "
        f"{int(tested['n'].iloc[0])} answers; their wall times add up to {hours:.1f} hours "
        f"({', '.join(cards)}); torch "
        f"{manifest['versions']['torch']}, vLLM {manifest['sampler']['version']}. "
        f"The adapter had another hash after {changes:,} of {len(table):,} updates; "
        f"sampler and trainer differed by at most {largest_drift(runs)} nats a token in the mean "
        "of an update (one answer a question); vLLM sampled "
        f"{table['rollout_tokens_per_second'].median():,.0f} tokens/s, an update took "
        f"{table['update_seconds'].median():.1f} s (medians).\n\n"
        + "\n".join(("Commits:\n", *by_commit(runs)))
    )


def largest_drift(runs: Sequence[Run]) -> str:
    """0.010; where one method's is larger than all others' it is named: 0.024 (NSR; else 0.010)."""
    of_each = dict[str, float]()
    for run in runs:
        of_each[run.label] = max(of_each.get(run.label, 0), run.metrics["logprob_drift"].max())
    *others, (label, most) = sorted(of_each.items(), key=lambda each: each[1])
    second = f"{others[-1][1]:.3f}" if others else f"{most:.3f}"
    return second if second == f"{most:.3f}" else f"{most:.3f} ({display(label)}; else {second})"


def by_commit(runs: Sequence[Run]) -> list[str]:
    """Which methods and seeds ran with which code, a line a commit."""
    found: dict[str, dict[str, list[int]]] = {}
    for run in runs:
        commit = found.setdefault(code_of(run.manifest), {})
        commit.setdefault(display(run.label), []).append(run.seed)
    return [
        f"- {commit}: "
        + "; ".join(f"{name} ({named_seeds(seeds)})" for name, seeds in methods.items())
        for commit, methods in found.items()
    ]


def arms(setting: Setting) -> dict[str, pd.DataFrame]:
    """What was logged at all updates of the runs of every row."""
    return {name: pd.concat([run.metrics for run in runs]) for name, runs in setting.rows()}


def tested_at_end(run: Run) -> pd.DataFrame:
    """Right answers to every test question of the last evaluation."""
    return run.counts[run.counts["step"] == run.counts["step"].max()]


def difference(setting: Setting, label: str, k: int = 1, level: str = "all") -> Estimate | None:
    """Points of pass@k at the end, minus GRPO of the same seeds: over seeds, or over questions
    where the seeds are too few. None without a common seed."""
    if len(setting.paired(label, level)) < FEW_SEEDS:
        return setting.over_questions(label, k, level)
    return setting.difference(label, f"pass@{k}", level)


def as_interval(found: Estimate) -> Interval | None:
    """That of an estimate; None where it has none."""
    if found.low is None or found.high is None:
        return None
    return Interval(found.mean, found.low, found.high)


def with_interval(found: Estimate | None) -> str:
    """A cell: the difference and, where there is one, its interval."""
    if found is None:
        return ""
    its = as_interval(found)
    return signed(found.mean) if its is None else interval(its)


def largest_k(setting: Setting) -> int:
    """The k of the largest pass@k that was evaluated."""
    return max(k for k in KS if not np.isnan(at_end(setting.runs[0], f"pass@{k}")))


def by_arm(setting: Setting, found: dict[str, Estimate | None]) -> str:
    """pass@1 and the largest pass@k, and the differences from GRPO."""
    k = largest_k(setting)
    rows = [
        "| arm | seeds | pass@1 before | after | minus GRPO, points [95 %] "
        f"| pass@{k} before | after | minus GRPO, points [95 %] |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, runs in setting.rows():
        label = runs[0].label
        cells = [name, str(len(runs))]
        for j, its in ((1, found[label]), (k, difference(setting, label, k))):
            cells += [mean_rate(runs, f"pass@{j}", rate) for rate in (before, at_end)]
            cells.append(with_interval(its))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n\n".join(("\n".join(rows), *intervals_are(setting, found)))


def mean_rate(
    runs: Sequence[Run],
    column: str,
    rate: Callable[[Run, str, str], float] = at_end,
    level: str = "all",
) -> str:
    """A pass@k in the mean over some runs."""
    return percent(float(np.mean([rate(run, column, level) for run in runs])))


def by_level(setting: Setting) -> list[str]:
    """pass@1 by level; nothing where questions have none, or not all methods the same seeds."""
    first = setting.runs[0].evals
    levels = [level for level in dict.fromkeys(first["level"]) if level != "all"]
    others = [label for label in setting.labels if setting.paired(label) and label != BASELINE]
    alike = {frozenset(run.seed for run in setting.of(label)) for label in setting.labels}
    if not levels or not others or len(alike) > 1:
        return []
    heads = ["level", "negative groups", "test questions", "pass@1 before", "GRPO after"]
    for label in others:
        heads += [f"{display(label)} after", "minus GRPO, points [95 %]"]
    rows = [heads, len(heads) * ["---"]]
    groups = pd.concat([run.groups for run in setting.runs])
    for level in levels:
        negative = groups[groups["level"].isin(level.split("-"))]["kind"] == "negative"
        cells = [level.replace("-", "–"), percent(negative.mean()) if len(negative) else ""]
        cells.append(f"{first.loc[first['level'] == level, 'questions'].iloc[0]:,}")
        cells.append(mean_rate(setting.of(BASELINE), "pass@1", before, level))
        cells.append(mean_rate(setting.of(BASELINE), "pass@1", at_end, level))
        for label in others:
            cells.append(mean_rate(setting.of(label), "pass@1", at_end, level))
            cells.append(with_interval(difference(setting, label, level=level)))
        rows.append(cells)
    return [
        "By level of the question, the intervals as above; negative groups are those of training "
        "questions, of all runs and updates:",
        "\n".join(f"| {' | '.join(cells)} |" for cells in rows),
    ]


def intervals_are(setting: Setting, found: dict[str, Estimate | None]) -> list[str]:
    """What the intervals are over; where that is questions, what the seeds say one by one."""
    of_seeds = [label for label, it in found.items() if it and it.over == "seeds"]
    of_questions = [label for label, it in found.items() if it and it.over == "questions"]
    of_none = [display(label) for label, it in found.items() if it and as_interval(it) is None]
    said = []
    if of_none:
        said.append(f"No interval, as every seed gave the same difference: {'; '.join(of_none)}.")
    if of_seeds:
        said.append(
            "Student's intervals over seeds, each alone, paired with GRPO's. Minus GRPO by seed, "
            "and from where on so many seeds with this spread find a true difference in pass@1 "
            "(80 % power; in brackets, with the ends of the spread's own 95 % interval):\n\n"
            + "\n".join(
                f"- {by_seed(setting, label)}{from_where(setting, label)}" for label in of_seeds
            )
        )
    if of_questions:
        said.append(
            f"With fewer than {FEW_SEEDS} seeds the intervals are over test questions alone "
            "(paired bootstrap): how much runs differ by chance is not in them, and a difference "
            "that they show can be that of two runs, not of two methods."
        )
        said.append(
            "Minus GRPO by seed:\n\n"
            + "\n".join(f"- {by_seed(setting, label)}." for label in of_questions)
        )
        said += apart(setting, [BASELINE, *of_questions])
    return said


def from_where(setting: Setting, label: str) -> str:
    """What `found_by` finds, to be said after the differences by seed."""
    found = found_by(setting, label)
    return f". From {found[0]:.1f} points on ({found[1]:.1f} to {found[2]:.1f})." if found else "."


def by_seed(setting: Setting, label: str) -> str:
    """The differences from GRPO one by one; where the seeds are too few for the table, with
    Student's interval over them."""
    seeds = [run.seed for run in setting.paired(label)]
    few = len(seeds) < FEW_SEEDS
    parts = []
    for k in (1, largest_k(setting)):
        changes = setting.seed_differences(label, f"pass@{k}")
        over = with_seeds(changes) if few else ""
        parts.append(f"{listed(list(map(signed, changes)))} in pass@{k}{over}")
    student = " (Student's)" if few and len(seeds) > 1 else ""
    return f"{display(label)}, {named_seeds(seeds)}: {'; '.join(parts)}{student}"


def found_by(setting: Setting, label: str) -> tuple[float, float, float] | None:
    """Points of pass@1 that so many seeds would find with the spread that they have, and with the
    ends of its 95 % interval; None where they don't differ at all."""
    changes = setting.seed_differences(label)
    spread, freedom = float(changes.std(ddof=1)), len(changes) - 1
    if not spread > 0:
        return None
    limit = detectable(spread, len(changes))
    low, high = (limit * (freedom / chi2.ppf(q, freedom)) ** 0.5 for q in (0.975, 0.025))
    return limit, float(low), float(high)


def apart(setting: Setting, labels: Sequence[str]) -> list[str]:
    """How far two runs of one method lie apart."""
    parts = []
    for label in labels:
        runs = sorted(setting.of(label), key=lambda run: run.seed)
        if len(runs) == 2:
            changes = [
                f"{signed(100 * (at_end(runs[1], column) - at_end(runs[0], column)))} in {column}"
                for column in ("pass@1", f"pass@{largest_k(setting)}")
            ]
            parts.append(f"{display(label)} {' and '.join(changes)}")
    return [f"Two runs of one method, second minus first: {'; '.join(parts)}."] if parts else []


def with_seeds(changes: np.ndarray) -> str:
    """Student's interval, where there is one, to be said after another figure."""
    over = seeds_interval(changes)
    return f", over the seeds {bounds(over)}" if over else ""


def told(setting: Setting, label: str, change: Estimate) -> str:
    """The difference from GRPO and what can be said of it: of methods, over enough seeds only."""
    found = as_interval(change)
    if found is None:
        return f"{signed(change.mean)} points with each of {counted(change.n, 'seed')}: no interval"
    if change.over == "seeds":
        return in_words(found)
    changes = setting.seed_differences(label)
    few = f"{counted(len(changes), 'seed')} {'are' if len(changes) > 1 else 'is'} too few"
    return (
        f"{signed(found.mean)} points, 95 % interval over questions {bounds(found)}"
        f"{with_seeds(changes)}: {few} to tell the methods apart"
    )


def verdicts(
    setting: Setting, found: Mapping[str, Estimate | None], *, of: str = "{name}"
) -> list[str]:
    """What can be said of every arm, those with enough seeds together; `of`: how one is named."""
    names = {
        label: of.format(name=display(label), seeds=counted(len(setting.partners(label)), "seed"))
        for label in found
    }
    few = [
        f"{names[label]}: {told(setting, label, it)}."
        for label, it in found.items()
        if it and it.over != "seeds"
    ]
    enough = {
        names[label]: its
        for label, it in found.items()
        if it and it.over == "seeds" and (its := as_interval(it))
    }
    return [*([f"{together_in_words(enough)}."] if enough else []), *few]


def by_quarter(setting: Setting) -> list[str]:
    """How the last column of the table of signals went over a run, where LENS as printed is."""
    updates = setting.committed.updates
    loud = updates[(updates["method"] == LENS) & (updates["neg_to_mixed_rms"] > 0)]
    if loud.empty:
        return []
    quarter = np.ceil(4 * loud["step"] / loud["step"].max()).astype(int)
    medians = loud.groupby(quarter)["neg_to_mixed_rms"].median()
    return [f"{display(LENS)}, the last column by quarter: {', '.join(map(loudness, medians))}."]


def headline(folder: Path, task: str = "GSM8K") -> list[str]:
    """The lines of the README on the runs on a task; none without any.

    Raises:
        UserError: see `page`.
    """
    if not folder.is_dir():
        return []
    setting = read(folder, task)
    change = difference(setting, LENS)
    if change is None:
        return []
    base = setting.partners(LENS)
    start, end = (mean_rate(base, "pass@1", rate) for rate in (before, at_end))
    limits = found_by(setting, LENS) if change.over == "seeds" else None
    shows = f" ({limits[0]:.1f} points would probably have shown)" if limits else ""
    others = {
        label: difference(setting, label)
        for label in setting.labels
        if label not in (BASELINE, LENS)
    }
    origin = ORIGINS.get(hashes(base[0])["weights"] or "", "")
    return [
        f"- **{setting.title}** ({counted(len(base), 'seed')}, {base[0].step} updates, "
        f"{len(tested_at_end(base[0])):,} test questions, answers of at most "
        f"{base[0].config['rollout']['max_new_tokens']} tokens, {origin}"
        f"[docs/reproduction.md](docs/reproduction.md)): GRPO takes pass@1 from {start} to {end}.",
        f"  LENS as printed: {told(setting, LENS, change)}{shows}.",
        *(f"  {said}" for said in verdicts(setting, others, of="{name} ({seeds})")),
    ]


def before(run: Run, column: str, level: str = "all") -> float:
    """A pass@k of the first evaluation."""
    rows = run.evals[run.evals["level"] == level].sort_values("step")
    return float(rows[column].iloc[0])


def figure(folder: Path, path: Path) -> None:
    """Write the figure of the page."""
    drawn = drawing(read(folder))
    drawn.savefig(path, dpi=110)
    plt.close(drawn)


def drawing(setting: Setting) -> Figure:
    """Reward and share of negative groups over the updates: thin, each run; thick, the mean over
    the common seeds, if there are any, of the methods that have them."""
    fig, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    columns = {"reward": "reward of sampled answers", "negative_share": "negative groups"}
    common = sorted(common_seeds(setting.runs))
    for ax, (column, title) in zip(axes, columns.items(), strict=True):
        for label in setting.labels:
            runs = setting.of(label)
            curves = {
                run.seed: pd.Series(100 * moving_average(run.metrics[column].to_numpy(), WINDOW))
                for run in runs
            }
            look = {
                "color": COLORS.get(label, "tab:gray"),
                "ls": "--" if label == BASELINE else "-",
                "zorder": 3 if label == BASELINE else 2,
            }
            name = f"{display(label)}, {named_seeds(curves)}"
            single = beside_means(runs, common)
            if not single:
                for curve in curves.values():
                    ax.plot(curve.index + 1, curve, **look, linewidth=0.8, alpha=0.35)
            shared = [curves[seed] for seed in shared_seeds(runs, common)]
            mean = pd.concat(shared, axis=1).mean(axis=1)
            ax.plot(mean.index + 1, mean, **look, linewidth=1 if single else 2, label=name)
        ax.set(xlabel="updates", ylabel="%", title=f"{title}, mean of up to {WINDOW} updates")
        ax.grid(alpha=0.3)
    thick = f"thick: mean of {named_seeds(common) if common else 'its seeds'}"
    alone = all(len(setting.of(label)) == 1 for label in setting.labels)
    fig.legend(
        *axes[0].get_legend_handles_labels(), title=None if alone else thick,
        loc="outside lower center", ncols=3, fontsize=8, title_fontsize=8,
    )  # fmt: skip
    return fig
