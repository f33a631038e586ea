"""The measured part of docs/reproduction.md about Qwen2.5-Coder-0.5B on GSM8K, and its figure, from
the run folders in results/reproduction-0.5b."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from reproduction_page import interval, signals, verdict  # beside this file

from lens_ref.rlvr.collect import check_alike
from lens_ref.rlvr.report_data import BASELINE, Run, display, read_runs
from lens_ref.rlvr.report_verdict import percent, question_rates
from lens_ref.rlvr.statistics import Interval, bootstrap_interval, moving_average, t_interval

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
    runs = read_runs(folder)
    for run in runs:
        check_alike(run, runs[0])
    found = {label: difference(runs, label) for label in labels(runs) if label != BASELINE}
    sections = (
        what_was_run(runs),
        by_arm(runs, found),
        signals(updates(runs), labels(runs), "runs"),
        "![Mean reward of the sampled answers and share of negative groups during training.]"
        "(gsm8k.png)",
        *(verdict(label, change[1]) for label, change in found.items() if change),
    )
    return "\n\n".join(sections)


def labels(runs: Sequence[Run]) -> list[str]:
    """The arms, in the order of the runs."""
    return list(dict.fromkeys(run.label for run in runs))


def updates(runs: Sequence[Run]) -> pd.DataFrame:
    """The rows of all `metrics.csv`, with method and seed."""
    return pd.concat([run.metrics.assign(method=run.label, seed=run.seed) for run in runs])


def what_was_run(runs: Sequence[Run]) -> str:
    """Settings, hardware, time, and whether the runs were sound."""
    config, manifest = runs[0].config, runs[0].manifest
    rollout = config["rollout"]
    questions = rollout["questions"] // config["loss"]["updates_per_rollout"]
    hours = sum(run.manifest["wall_seconds"] for run in runs) / 3600
    cards = sorted({run.manifest["hardware"]["gpu"] for run in runs})
    commits = sorted({commit(run) for run in runs})
    table = updates(runs)
    changes = sum(run.metrics["adapter"].nunique() for run in runs)
    counts = runs[0].counts
    tested = counts[counts["step"] == counts["step"].max()]
    return (
        f"{len(runs)} runs ({', '.join(f'{display(r.label)} seed {r.seed}' for r in runs)}), "
        f"{config['steps']} updates each of {questions} questions × {rollout['responses']} "
        f"answers, evaluated on {len(tested):,} test questions × {int(tested['n'].iloc[0])} "
        f"answers; {hours:.1f} hours of one {', '.join(cards)} in all; torch "
        f"{manifest['versions']['torch']}, vLLM {manifest['sampler']['version']}; commits "
        f"{', '.join(commits)}. The adapter had another hash after {changes} of {len(table)} "
        f"updates; sampler and trainer differed by {table['logprob_drift'].max():.3f} nats a token "
        f"at most; vLLM sampled {table['rollout_tokens_per_second'].median():,.0f} tokens/s, an "
        f"update took {table['update_seconds'].median():.1f} s (medians)."
    )


def commit(run: Run) -> str:
    """Of the code that ran: a copy without its repository does not know it, and one with changes
    is not what was committed."""
    digits, plus, changes = (run.manifest["commit"] or "unknown").partition("+")
    return f"{digits[:7]}{plus}{changes}"


def at_the_end(run: Run, column: str, first: bool = False) -> float:
    """A pass@k on all test questions, of the last evaluation or of the first."""
    rows = run.evals[run.evals["level"] == "all"].sort_values("step")
    return float(rows[column].iloc[0 if first else -1])


def difference(runs: Sequence[Run], label: str) -> tuple[str, Interval] | None:
    """Points of pass@1 at the end, minus GRPO of the same seeds: over seeds, or over questions
    where the seeds are too few. None without a common seed.

    Returns:
        What the interval is over, and the interval.
    """
    by_seed = {(run.label, run.seed): run for run in runs}
    seeds = [seed for name, seed in by_seed if name == label and (BASELINE, seed) in by_seed]
    pairs = [
        tuple(
            question_rates(run.counts, int(run.counts["step"].max()))
            for run in (by_seed[BASELINE, seed], by_seed[label, seed])
        )
        for seed in seeds
    ]
    if not pairs:
        return None
    changes = pd.concat([100 * (other - grpo) for grpo, other in pairs], axis=1).dropna()
    if len(pairs) >= FEW_SEEDS:
        return f"{len(pairs)} seeds", t_interval(changes.mean(axis=0).to_numpy())
    over = f"questions, seed {' and '.join(map(str, seeds))}"
    return over, bootstrap_interval(changes.mean(axis=1).to_numpy())


def by_arm(runs: Sequence[Run], found: dict[str, tuple[str, Interval] | None]) -> str:
    """pass@1 and the largest pass@k, and the difference from GRPO."""
    k = max(k for k in (1, 2, 4, 8, 16) if not np.isnan(at_the_end(runs[0], f"pass@{k}")))
    rows = [
        f"| arm | seeds | pass@1 before | after | pass@{k} before | after | minus GRPO, points of "
        "pass@1 [95 %] | interval over |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for label in labels(runs):
        own = [run for run in runs if run.label == label]
        cells = [
            percent(float(np.mean([at_the_end(run, f"pass@{j}", first) for run in own])))
            for j in (1, k)
            for first in (True, False)
        ]
        change = found.get(label)
        last = [interval(change[1]), change[0]] if change else ["", ""]
        rows.append(f"| {' | '.join([display(label), str(len(own)), *cells, *last])} |")
    text = "\n".join(rows)
    if any(change and "questions" in change[0] for change in found.values()):
        text += (
            f"\n\nWith fewer than {FEW_SEEDS} seeds the interval is over test questions alone "
            "(paired bootstrap): how much runs differ by chance is not in it, and a difference "
            "that it shows can be that of two runs, not of two methods."
        )
    return text


def figure(folder: Path, path: Path) -> None:
    """Reward and share of negative groups over the updates, a line a run."""
    runs = read_runs(folder)
    fig, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    columns = {"reward": "mean reward of sampled answers", "negative_share": "negative groups"}
    others = dict(
        zip(labels(runs), plt.rcParams["axes.prop_cycle"].by_key()["color"], strict=False)
    )
    for ax, (column, name) in zip(axes, columns.items(), strict=True):
        shown = set[str]()
        for run in runs:
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
