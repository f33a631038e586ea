"""Run a plan: every cell with a progress bar, then CSVs and figures in one go.

Nothing is written before all of it is there, so that an interrupted run leaves no half of a table.
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from toy import experiments, figures
from toy.experiments import CURVE_RULES, SEQUENCE_CASES, SEQUENCE_QUANTITIES, Plan
from toy.rules import RULES
from toy.sampled import Report
from toy.tables import summarize_curves, summarize_escapes

Job = tuple[str, str, Callable[[Report], pd.DataFrame]]  # frame it adds to, description, run


@dataclass(frozen=True)
class Results:
    """The frames of a run, by the name of their CSV."""

    frames: dict[str, pd.DataFrame]

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self.frames[name]


def run(plan: Plan, seed_base: int, console: Console) -> Results:
    """Everything of a plan, one cell after another on one core."""
    escape_seeds = range(seed_base, seed_base + plan.escape_seeds)
    other_seeds = range(seed_base, seed_base + plan.other_seeds)
    jobs = _jobs(plan, escape_seeds, other_seeds)
    parts: dict[str, list[pd.DataFrame]] = defaultdict(list)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
        console=console,
    )
    with bar:
        task = bar.add_task("exact flow", total=len(jobs) + 1, now="")
        times, guards = experiments.flow_times()
        frames = {"flow": times, "guards": guards, "flow_curves": experiments.flow_curves()}
        frames["signal_sizes"] = experiments.signal_sizes()
        bar.advance(task)
        for frame, description, job in jobs:
            bar.update(task, description=description, now="")
            parts[frame].append(job(lambda text: bar.update(task, now=text)))
            bar.advance(task)
        bar.update(task, description="done", now="")
    frames |= {name: pd.concat(rows, ignore_index=True) for name, rows in parts.items()}
    frames["summary"] = _summary(plan, frames)
    return Results(frames)


def _jobs(plan: Plan, escape_seeds: range, other_seeds: range) -> list[Job]:
    jobs: list[Job] = []
    for column in plan.columns:
        for name in RULES:
            if name in column.leave_out:
                continue
            where = f"{column.optimizer.upper()} p={column.p_c:.0e} G={column.group_size}"
            run_cell = partial(experiments.escape_cell, column, name, escape_seeds)
            jobs.append(("steps", f"six options, {where}: {RULES[name].label}", run_cell))
    for curve in plan.curves:
        for name in CURVE_RULES:
            if name in curve.leave_out:
                continue
            run_curve = partial(experiments.curve_cell, curve, name, plan.questions, other_seeds)
            text = f"100 options, {curve.optimizer.upper()}: {RULES[name].label}"
            jobs.append(("accuracy", text, run_curve))
    for case in SEQUENCE_CASES:
        run_case = partial(experiments.sequence_case, case, plan.sequence_updates, other_seeds)
        jobs.append(("sequence", f"sequences: {case.label}", run_case))
    return jobs


def _summary(plan: Plan, frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    read_at = {column.optimizer: column.read_at for column in plan.curves}
    parts = [
        summarize_escapes(frames["steps"]),
        summarize_curves(frames["accuracy"], ("accuracy", "entropy"), read_at),
        summarize_curves(frames["sequence"], SEQUENCE_QUANTITIES, {"sgd": plan.sequence_read_at}),
    ]
    return pd.concat(parts, ignore_index=True)


def draw(results: Results) -> dict[str, figures.Figure]:
    """The figures of a run, by file name."""
    return {
        "flow_curves": figures.flow_curves(results["flow_curves"]),
        "escape_times": figures.escape_times(results["flow"], results["guards"]),
        "sampled_steps": figures.sampled_steps(results["summary"]),
        "signal_sizes": figures.signal_sizes(results["signal_sizes"]),
        "accuracy_curves": figures.accuracy_curves(results["accuracy"]),
        "sequence_curves": figures.sequence_curves(results["sequence"]),
    }


def require_writable(out: Path) -> None:
    """Make the folder and try it, before the work rather than after.

    Raises:
        OSError: it can't be made or written to.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out):
        pass


def write(results: Results, out: Path, seed_base: int, seconds: float) -> None:
    """CSVs, figures and a manifest into a folder, built beside it and then moved over file by file.

    Raises:
        OSError: the folder can't be written to, or the disk is full.
    """
    with tempfile.TemporaryDirectory(dir=out, prefix=".writing-") as name:
        draft = Path(name)
        for frame, table in results.frames.items():
            table.to_csv(draft / f"{frame}.csv", index=False, float_format="%.6g")
        figures.save(draw(results), draft)
        manifest = {
            "seed_base": seed_base,
            "seconds": round(seconds),
            "made": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "torch": torch.__version__,
        }
        (draft / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
        for file in sorted(draft.iterdir()):
            os.replace(file, out / file.name)
