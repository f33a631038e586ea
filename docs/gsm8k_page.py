"""The measured part of docs/reproduction.md about Qwen2.5-Coder-0.5B on GSM8K, and its figure, from
the run folders in results/reproduction-0.5b."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from reproduction_page import commits, interval, signals, verdict  # beside this file

from lens_ref.reporting.settings import Estimate, Setting, at_end
from lens_ref.rlvr.collect import check_alike
from lens_ref.rlvr.evaluation import KS
from lens_ref.rlvr.report_data import BASELINE, Run, display, read_runs
from lens_ref.rlvr.report_verdict import percent
from lens_ref.rlvr.statistics import Interval, moving_average

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
        "![Mean reward of the sampled answers and share of negative groups during training.]"
        "(gsm8k.png)",
        *(verdict(label, as_interval(change)) for label, change in found.items() if change),
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
    counts = runs[0].counts
    tested = counts[counts["step"] == counts["step"].max()]
    return (
        f"{len(runs)} runs ({', '.join(f'{display(r.label)} seed {r.seed}' for r in runs)}), "
        f"{config['steps']} updates each of {questions} questions × {rollout['responses']} "
        f"answers, evaluated on {len(tested):,} test questions × {int(tested['n'].iloc[0])} "
        f"answers; {hours:.1f} hours of one {', '.join(cards)} in all; torch "
        f"{manifest['versions']['torch']}, vLLM {manifest['sampler']['version']}; commits "
        f"{commits(run.manifest for run in runs)}. The adapter had another hash after {changes} of "
        f"{len(table)} updates; sampler and trainer differed by "
        f"{table['logprob_drift'].max():.3f} nats a token at most; vLLM sampled "
        f"{table['rollout_tokens_per_second'].median():,.0f} tokens/s, an update took "
        f"{table['update_seconds'].median():.1f} s (medians)."
    )


def difference(setting: Setting, label: str) -> Estimate | None:
    """Points of pass@1 at the end, minus GRPO of the same seeds: over seeds, or over questions
    where the seeds are too few. None without a common seed."""
    if len(setting.paired(label)) < FEW_SEEDS:
        return setting.over_questions(label)
    return setting.difference(label)


def as_interval(found: Estimate) -> Interval:
    """Of an estimate that has one."""
    assert found.low is not None
    assert found.high is not None
    return Interval(found.mean, found.low, found.high)


def by_arm(setting: Setting, found: dict[str, Estimate | None]) -> str:
    """pass@1 and the largest pass@k, and the difference from GRPO."""
    k = max(k for k in KS if not np.isnan(at_end(setting.runs[0], f"pass@{k}")))
    rows = [
        f"| arm | seeds | pass@1 before | after | pass@{k} before | after | minus GRPO, points of "
        "pass@1 [95 %] | interval over |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for label, change in found.items():
        own = setting.of(label)
        cells = [
            percent(float(np.mean([rate(run, f"pass@{j}") for run in own])))
            for j in (1, k)
            for rate in (before, at_end)
        ]
        last = ["", ""]
        if change is not None:
            seeds = " and ".join(str(run.seed) for run in setting.paired(label))
            over = f"{change.n} seeds" if change.over == "seeds" else f"questions, seed {seeds}"
            last = [interval(as_interval(change)), over]
        rows.append(f"| {' | '.join([display(label), str(len(own)), *cells, *last])} |")
    text = "\n".join(rows)
    if any(change and change.over == "questions" for change in found.values()):
        text += (
            f"\n\nWith fewer than {FEW_SEEDS} seeds the interval is over test questions alone "
            "(paired bootstrap): how much runs differ by chance is not in it, and a difference "
            "that it shows can be that of two runs, not of two methods."
        )
    return text


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
