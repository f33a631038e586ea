"""The measured part of docs/reproduction.md about Qwen2.5-Coder-0.5B on GSM8K, and its figure, from
the run folders in results/reproduction-0.5b."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from reproduction_page import (  # beside this file
    commits,
    in_words,
    interval,
    signals,
)

from lens_ref.reporting.settings import Estimate, Setting, at_end
from lens_ref.rlvr.collect import check_alike
from lens_ref.rlvr.evaluation import KS
from lens_ref.rlvr.report_data import BASELINE, Run, display, read_runs
from lens_ref.rlvr.report_verdict import percent, signed
from lens_ref.rlvr.statistics import Interval, moving_average, t_interval

LENS = "lens"
NONE_YET = "No runs are committed yet."
FEW_SEEDS = 3
"""From so many seeds on the interval is one over seeds."""
WINDOW = 8  # updates
COLORS = {"grpo": "0.35", "lens": "tab:blue"}


def page(folder: Path) -> str:
    """Everything that the page says about these runs; a line that says so where none is there.

    Raises:
        UserError: one of them is unfinished or was never evaluated, or its settings are others.
    """
    if not folder.is_dir():
        return NONE_YET
    setting = read(folder)
    found = {label: difference(setting, label) for label in setting.labels}
    sections = (
        what_was_run(setting.runs),
        by_arm(setting, found),
        signals(setting.committed.updates, setting.labels, "runs"),
        *loudness(setting),
        "![Mean reward of the sampled answers and share of negative groups during training.]"
        "(gsm8k.png)",
        *(f"{display(label)}: {told(setting, label, it)}." for label, it in found.items() if it),
    )
    return "\n\n".join(sections)


def read(folder: Path) -> Setting:
    """The runs of a folder, which must be alike.

    Raises:
        UserError: see `page`.
    """
    runs = read_runs(folder)
    for run in runs:
        check_alike(run, runs[0])
    return Setting("Qwen2.5-Coder-0.5B on GSM8K", "gsm8k", tuple(runs))


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
        f"{len(runs)} runs ({', '.join(f'{display(r.label)} seed {r.seed}' for r in runs)}), "
        f"{config['steps']} updates each of {questions} questions × {rollout['responses']} "
        f"answers, evaluated on {len(tested):,} test questions × {int(tested['n'].iloc[0])} "
        f"answers; their wall times add up to {hours:.1f} hours ({', '.join(cards)}); torch "
        f"{manifest['versions']['torch']}, vLLM {manifest['sampler']['version']}; commits "
        f"{commits(run.manifest for run in runs)}. The adapter had another hash after {changes} of "
        f"{len(table)} updates; sampler and trainer differed by "
        f"{table['logprob_drift'].max():.3f} nats a token at most; vLLM sampled "
        f"{table['rollout_tokens_per_second'].median():,.0f} tokens/s, an update took "
        f"{table['update_seconds'].median():.1f} s (medians)."
    )


def tested_at_end(run: Run) -> pd.DataFrame:
    """Right answers to every test question of the last evaluation."""
    return run.counts[run.counts["step"] == run.counts["step"].max()]


def difference(setting: Setting, label: str, k: int = 1) -> Estimate | None:
    """Points of pass@k at the end, minus GRPO of the same seeds: over seeds, or over questions
    where the seeds are too few. None without a common seed."""
    if len(setting.paired(label)) < FEW_SEEDS:
        return setting.over_questions(label, k)
    return setting.difference(label, f"pass@{k}")


def as_interval(found: Estimate) -> Interval:
    """Of an estimate that has one."""
    assert found.low is not None
    assert found.high is not None
    return Interval(found.mean, found.low, found.high)


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
    for label, change in found.items():
        cells = [display(label), str(len(setting.of(label)))]
        for j, its in ((1, change), (k, difference(setting, label, k))):
            cells += [mean_rate(setting, label, f"pass@{j}", rate) for rate in (before, at_end)]
            cells.append(interval(as_interval(its)) if its else "")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n\n".join(("\n".join(rows), *intervals_are(setting, found)))


def mean_rate(
    setting: Setting, label: str, column: str, rate: Callable[[Run, str], float] = at_end
) -> str:
    """A pass@k in the mean over the seeds of an arm."""
    return percent(float(np.mean([rate(run, column) for run in setting.of(label)])))


def intervals_are(setting: Setting, found: dict[str, Estimate | None]) -> list[str]:
    """What the intervals are over; where it is questions, the seeds one by one."""
    by_seed = [
        f"{display(label)} minus GRPO {seed_by_seed(setting, label)}"
        for label, change in found.items()
        if change is not None and change.over == "questions"
    ]
    if not by_seed:
        return ["The intervals are Student's over seeds."]
    return [
        f"With fewer than {FEW_SEEDS} seeds the intervals are over test questions alone (paired "
        "bootstrap): how much runs differ by chance is not in them, and a difference that they "
        f"show can be that of two runs, not of two methods. pass@1 by seed: {'; '.join(by_seed)}."
    ]


def seed_by_seed(setting: Setting, label: str) -> str:
    """+0.4 and +1.3 (seeds 0 and 1)."""
    changes = setting.seed_differences(label)
    seeds = " and ".join(str(run.seed) for run in setting.paired(label))
    return f"{' and '.join(map(signed, changes))} (seed{'s'[: len(changes) - 1]} {seeds})"


def told(setting: Setting, label: str, change: Estimate) -> str:
    """The difference from GRPO and what can be said of it: of methods, only over seeds."""
    found = as_interval(change)
    if change.over == "seeds":
        return in_words(found)
    changes = setting.seed_differences(label)
    over_seeds = ""
    if len(changes) > 1:
        few = t_interval(changes)
        over_seeds = f", over the {len(changes)} seeds [{signed(few.low)}, {signed(few.high)}]"
    return (
        f"{signed(found.mean)} points, 95 % interval over questions "
        f"[{signed(found.low)}, {signed(found.high)}]{over_seeds}: {len(changes)} "
        f"seed{'s' if len(changes) > 1 else ''} can't tell the methods apart"
    )


def loudness(setting: Setting) -> list[str]:
    """How the last column of the table of signals went over a run, where LENS as printed is."""
    if LENS not in setting.labels:
        return []
    ratios = setting.committed.updates[setting.committed.updates["method"] == LENS]
    quarter = ratios["step"].max() // 4
    first = ratios[ratios["step"] <= quarter]["neg_to_mixed_rms"].median()
    last = ratios[ratios["step"] > ratios["step"].max() - quarter]["neg_to_mixed_rms"].median()
    if not (first > 0 and last > 0):
        return []
    return [
        f"{display(LENS)}, the last column by quarter: 1 : {1 / first:,.0f} in the first, "
        f"1 : {1 / last:,.0f} in the last."
    ]


def headline(folder: Path) -> tuple[list[str], int]:
    """The lines of the README on these runs, and how many runs they are; none without any.

    Raises:
        UserError: see `page`.
    """
    if not folder.is_dir():
        return [], 0
    setting = read(folder)
    change = difference(setting, LENS)
    own = setting.paired(LENS)
    if change is None:
        return [], len(setting.runs)
    return [
        f"- **{setting.title}** ({len(own)} seed{'s'[: len(own) - 1]}, {own[0].step} updates, "
        f"{len(tested_at_end(own[0])):,} test questions, "
        "weights of a 4-bit file, [docs/reproduction.md](docs/reproduction.md)): GRPO takes "
        f"pass@1 from {mean_rate(setting, BASELINE, 'pass@1', before)} to "
        f"{mean_rate(setting, BASELINE, 'pass@1')}.",
        f"  LENS as printed: {told(setting, LENS, change)}.",
    ], len(setting.runs)


def before(run: Run, column: str) -> float:
    """A pass@k on all test questions, of the first evaluation."""
    rows = run.evals[run.evals["level"] == "all"].sort_values("step")
    return float(rows[column].iloc[0])


def figure(folder: Path, path: Path) -> None:
    """Reward and share of negative groups over the updates, a line a run."""
    setting = read(folder)
    fig, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    columns = {"reward": "mean reward of sampled answers", "negative_share": "negative groups"}
    others = dict(
        zip(setting.labels, plt.rcParams["axes.prop_cycle"].by_key()["color"], strict=False)
    )
    for ax, (column, name) in zip(axes, columns.items(), strict=True):
        shown = set[str]()
        for run in setting.runs:
            values = 100 * moving_average(run.metrics[column].to_numpy(), WINDOW)
            ax.plot(
                run.metrics["step"],
                values,
                "--" if run.label == BASELINE else "-",
                color=COLORS.get(run.label, others[run.label]),
                linewidth=1.3,
                label=None if run.label in shown else display(run.label),
            )
            shown.add(run.label)
        ax.set(xlabel="updates", ylabel="%", title=f"{name}, mean of {WINDOW} updates")
        ax.grid(alpha=0.3)
    axes[0].legend()
    fig.savefig(path, dpi=110)
    plt.close(fig)
