"""The bundled language model under the same methods, by the trainer of `lens_ref.train`."""

from __future__ import annotations

import csv
from dataclasses import dataclass
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
LOGGED = ("reward", "negative_share", "neg_to_mixed_rms", "entropy", "mean_length", "confidence")
SOURCES = (*LIBRARY_SOURCES, "lens_ref/rlvr/update.py", "lens_ref/rlvr/sampler.py")


@dataclass(frozen=True)
class LanguageModel:
    """One training run: pass@k by level at every evaluation, and the log, averaged over the updates
    on one rollout batch. A row a number."""

    treatment: str
    seed: int
    updates: int = 60
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
        from lens_ref.rlvr.run_folder import RunFolder, find_runs
        from lens_ref.rlvr.session import load_data
        from lens_ref.rlvr.trainer import StopRequest, Trainer
        from lens_ref.verifier import Verifier

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        settings: dict[str, Any] = {
            "methods": [METHODS[self.treatment]],
            "seed": self.seed,
            "steps": self.updates,
            "device": "cpu",
            "verifier.workers": 1,
        }
        if self.updates < 20:  # a look, not a measurement
            settings |= {"data.test_questions": 50, "eval.n": 4, "rollout.questions": 32}
        found = list(workspace.glob("*/manifest.json"))
        folder = (
            find_runs(workspace)[0] if found else RunFolder.create(workspace, load(None, settings))
        )
        config = folder.config()
        if not folder.finished:
            with Verifier(config.verifier.workers, config.verifier.timeout) as verifier:
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
        return [LanguageModel(t, seed_base, 8) for t in ("grpo", "lens_paper")]
    seeds = range(seed_base, seed_base + 5)
    return [LanguageModel(treatment, seed, 60) for treatment in METHODS for seed in seeds]


def summarize(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Mean and 95 % t-interval over seeds at the first and last step of every number, and the same
    for the difference to GRPO, seed by seed; `setting` is the level, or "training"."""
    if "language" not in frames:
        return pd.DataFrame()
    frame = frames["language"]
    keys = ["level", "quantity", "seed", "step"]
    baseline = frame[frame["method"] == "grpo"].set_index(keys)["value"].rename("grpo")
    paired = frame.join(baseline, on=keys)
    paired["value"] -= paired["grpo"]
    paired = paired[paired["grpo"].notna() & (paired["method"] != "grpo")]
    rows = []
    for suffix, part in (("", frame), (" minus GRPO", paired)):
        for (level, quantity), numbers in part.groupby(["level", "quantity"], sort=False):
            for step in sorted({numbers["step"].min(), numbers["step"].max()}):
                at = numbers[numbers["step"] == step]
                for method, values in at.groupby("method", sort=False)["value"]:
                    mean, half = _interval(values.to_numpy())
                    rows.append(
                        (f"{quantity}{suffix}", method, step, mean, half, len(values), level)
                    )
    columns = ["quantity", "method", "step", "mean", "ci95", "n", "setting"]
    table = pd.DataFrame(rows, columns=columns)
    fixed = {"experiment": "language", "optimizer": "adamw", "group_size": 16}
    return table.assign(**fixed).reindex(columns=[*COLUMNS, "setting"])


def _interval(values: np.ndarray) -> tuple[float, float]:
    """Mean and half width; no width for a single seed."""
    if len(values) < 2:
        return float(values.mean()), float("nan")
    from lens_ref.rlvr.statistics import t_interval

    interval = t_interval(values)
    return interval.mean, interval.high - interval.mean
