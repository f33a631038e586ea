"""The bundled language model under the same methods, by the trainer of `lens_ref.train`."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from toy.compare.cell import LIBRARY_SOURCES
from toy.sampled import Report
from toy.tables import COLUMNS

METHODS = {
    "grpo": "grpo",
    "nsr": "nsr",
    "ngrpo": "ngrpo",
    "rl_zvp": "rl_zvp",
    "lens_paper": "lens",
    "lens_normalized_difficulty": "lens:preset=normalized_difficulty",
    "lens_neg_unscaled": "lens:preset=neg_unscaled",
    "lens_negative_std": "lens:preset=negative_std",
    "lens_no_demean": "lens:preset=no_demean",
    "lens_likelihood": "lens:preset=likelihood",
    "lens_pooled": "lens_pooled",
}
PASS_AT = ("pass@1", "pass@16")
LOGGED = (
    *("reward", "negative_share", "neg_to_mixed_rms", "entropy", "mean_length", "confidence"),
    "clip_fraction",
)
TRAINING = "batch config evaluation grading metrics policy sampler tasks trainer treatment update"
SOURCES = (
    *LIBRARY_SOURCES,
    *(f"lens_ref/rlvr/{name}.py" for name in TRAINING.split()),
    *("lens_ref/tiny/task.py", "lens_ref/tiny/tokenizer.py"),
)


@dataclass(frozen=True)
class LanguageModel:
    """One training run: pass@k by level at every evaluation, and the log, averaged over the updates
    on one rollout batch. A row a number."""

    treatment: str
    method: str  # of the trainer
    seed: int
    updates: int
    part: str = "language"
    sources: tuple[str, ...] = SOURCES

    @property
    def name(self) -> str:
        return f"{self.treatment} seed{self.seed} {self.updates}"

    @property
    def cost(self) -> float:
        return 2.5 * self.updates

    def run(self, workspace: Path, report: Report) -> pd.DataFrame:
        # imported here: the other parts need neither transformers nor the verifier
        import torch
        from transformers.utils import logging

        from lens_ref.rlvr.config import load
        from lens_ref.rlvr.policy import load_policy
        from lens_ref.rlvr.run_folder import RunFolder
        from lens_ref.rlvr.session import load_data
        from lens_ref.rlvr.trainer import StopRequest, Trainer
        from lens_ref.verifier import Verifier

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        settings: dict[str, Any] = {
            "methods": [self.method],
            "seed": self.seed,
            "steps": self.updates,
            "device": "cpu",
            "verifier.workers": 1,
        }
        if self.updates < 20:  # a look, not a measurement
            settings |= {"data.test_questions": 50, "eval.n": 4, "rollout.questions": 32}
        begun = [path.parent for path in workspace.glob("*/config.yaml")]
        if begun:
            folder = RunFolder(begun[0])
        else:
            folder = RunFolder.create(workspace, load(None, settings))
        config = folder.config()
        if not folder.finished:
            with Verifier(**asdict(config.verifier)) as verifier:
                policy = load_policy(config.model, torch.device("cpu"), config.seed, ())
                data = load_data(config, verifier)
                Trainer(config, folder, policy, data, verifier, StopRequest()).run()
        per_batch = config.loss.updates_per_rollout
        rows = [*_evaluations(folder.path), *_log(folder.path, per_batch)]
        frame = pd.DataFrame(rows, columns=["level", "step", "quantity", "value"])
        cell = {"experiment": "language", "method": self.treatment, "seed": self.seed}
        return frame.assign(**cell)[[*cell, *frame.columns]]


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _evaluations(folder: Path) -> list[tuple[str, int, str, float]]:
    return [
        (row["level"], int(row["step"]), quantity, float(row[quantity]))
        for row in _read(folder / "eval.csv")
        for quantity in PASS_AT
        if row.get(quantity)
    ]


def _log(folder: Path, per_batch: int) -> list[tuple[str, int, str, float]]:
    rows = _read(folder / "metrics.csv")
    averaged = []
    for first in range(0, len(rows), per_batch):
        batch = rows[first : first + per_batch]
        for quantity in LOGGED:
            values = [float(row[quantity]) for row in batch if row[quantity]]
            if values:
                averaged.append(("training", int(batch[-1]["step"]), quantity, np.mean(values)))
    return averaged


def cells(full: bool, seed_base: int) -> list[LanguageModel]:
    """Eleven methods, five seeds; short: two methods, one seed, eight updates."""
    if not full:
        return [LanguageModel(t, METHODS[t], seed_base, 8) for t in ("grpo", "lens_paper")]
    seeds = range(seed_base, seed_base + 5)
    return [LanguageModel(t, method, seed, 60) for t, method in METHODS.items() for seed in seeds]


def summarize(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Mean and 95 % t-interval over seeds at the first and last step of every number; the same for
    the difference to GRPO and for the gain of pass@k since the start, seed by seed. `setting` is
    the level, or "training"."""
    if "language" not in frames:
        return pd.DataFrame()
    frame = frames["language"]
    first, last = (frame.groupby("quantity")["step"].transform(pick) for pick in ("min", "max"))
    ends = frame[(frame["step"] == first) | (frame["step"] == last)]
    start, end = frame[frame["step"] == first], frame[frame["step"] == last]
    shown = {
        "": ends,
        " minus GRPO": against_grpo(ends),
        " gain": _minus(
            end[end["quantity"].isin(PASS_AT)],
            start,
            matched_over=("method", "seed", "level", "quantity"),
        ),
    }
    rows = []
    for suffix, part in shown.items():
        cells = part.groupby(["level", "quantity", "step", "method"], sort=False)["value"]
        for (level, quantity, step, method), values in cells:
            mean, half = _interval(values.to_numpy())
            rows.append((f"{quantity}{suffix}", method, step, mean, half, len(values), level))
    columns = ["quantity", "method", "step", "mean", "ci95", "n", "setting"]
    table = pd.DataFrame(rows, columns=columns)
    fixed = {"experiment": "language", "optimizer": "adamw", "group_size": 16}
    return table.assign(**fixed).reindex(columns=[*COLUMNS, "setting"])


def against_grpo(frame: pd.DataFrame) -> pd.DataFrame:
    """Every number less GRPO's with the same seed, questions and step."""
    ours, grpo = frame[frame["method"] != "grpo"], frame[frame["method"] == "grpo"]
    return _minus(ours, grpo, matched_over=("seed", "level", "quantity", "step"))


def _minus(rows: pd.DataFrame, others: pd.DataFrame, matched_over: tuple[str, ...]) -> pd.DataFrame:
    """Each value less its counterpart, the other one with the same `matched_over`; rows without a
    counterpart are dropped."""
    keys = list(matched_over)
    paired = rows.merge(others[[*keys, "value"]], on=keys, suffixes=("", "_other"))
    return paired.assign(value=paired["value"] - paired["value_other"])


def _interval(values: np.ndarray) -> tuple[float, float]:
    """Mean and half width; no width for a single seed."""
    if len(values) < 2:
        return float(values.mean()), float("nan")
    from lens_ref.rlvr.statistics import t_interval

    interval = t_interval(values)
    return interval.mean, interval.high - interval.mean
