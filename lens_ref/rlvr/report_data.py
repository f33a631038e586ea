"""What a report is made of: the run folders of one parent, and the committed runs of several seeds.

Everything is read as it lies on the disk: a run may be unfinished, never evaluated, or killed in
the middle of a line.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from lens_ref.resources import find
from lens_ref.rlvr import evaluation
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.files import (
    COPY_AGAIN,
    Line,
    csv_text,
    damaged,
    read_csv,
    read_json,
    read_jsonl,
    read_yaml,
)
from lens_ref.rlvr.logs import GROUP_COLUMNS
from lens_ref.rlvr.manifest_file import read_manifest
from lens_ref.rlvr.metrics import METRICS
from lens_ref.rlvr.ranges import AT_MOST, RANGES
from lens_ref.rlvr.run_folder import find_runs
from lens_ref.rlvr.untrusted import from_cell, one_line

BASELINE, LENS = "grpo", "lens"
PASS_COLUMNS = tuple(f"pass@{k}" for k in evaluation.KS)
CURVE_COLUMNS = ("method", "seed", "step", "level", *PASS_COLUMNS)
UPDATE_METRICS = ("reward", "negative_share", "neg_to_mixed_rms", "entropy", "mean_length")
UPDATE_COLUMNS = ("method", "seed", "step", *UPDATE_METRICS)
TEXT = ("question", "level", "kind", "method", "adapter")
INCIDENTAL = (
    *("methods", "seed", "steps", "device", "checkpoint", "verifier"),
    *("rollout.vllm.memory_share", "rollout.vllm.cache_gb", "rollout.vllm.sleep"),
    *("model.gradient_checkpointing", "model.memory_gb", "model.compile"),
    *("loss.micro_batch_tokens", "eval.every"),
)
"""Settings in which runs may differ and still be compared update by update."""


@dataclass(frozen=True)
class Run:
    """One run folder; a missing file is an empty table."""

    path: Path
    label: str  # the method, as in the folder's name
    seed: int
    config: dict[str, Any]
    manifest: dict[str, Any]
    metrics: pd.DataFrame  # a row an update
    groups: pd.DataFrame  # a row a question of a rollout batch
    evals: pd.DataFrame  # pass@k by step and level
    counts: pd.DataFrame  # correct answers by step and test question
    samples: list[dict[str, Any]]
    whole: bool = True  # a folder of its own, not rows of collected files

    @property
    def step(self) -> int:
        """Updates done."""
        return int(self.metrics["step"].max()) if len(self.metrics) else 0

    @property
    def finished(self) -> bool:
        """Whether all updates were done."""
        return self.manifest.get("status") == "finished"


@dataclass(frozen=True)
class Committed:
    """The runs of several seeds that travel with the project, on the bundled task."""

    curves: pd.DataFrame
    updates: pd.DataFrame
    configs: tuple[dict[str, Any], ...]

    def of(self, labels: Sequence[str]) -> Committed:
        """Those of some methods and of the baseline alone."""
        wanted = {BASELINE, *labels}
        curves, updates = (t[t["method"].isin(wanted)] for t in (self.curves, self.updates))
        return replace(self, curves=curves, updates=updates)

    def seeds(self, label: str) -> list[int]:
        """The seeds of a method."""
        return sorted(set(self.curves.loc[self.curves["method"] == label, "seed"]))


def as_committed(runs: Iterable[Run]) -> Committed:
    """Runs as one table of curves and one of updates."""
    runs = list(runs)
    return Committed(
        _stacked(runs, "evals", CURVE_COLUMNS),
        _stacked(runs, "metrics", UPDATE_COLUMNS),
        tuple(run.config for run in runs),
    )


def _stacked(runs: Iterable[Run], table: str, columns: Iterable[str]) -> pd.DataFrame:
    parts = [getattr(run, table).assign(method=run.label, seed=run.seed) for run in runs]
    parts = [part for part in parts if len(part)]
    if not parts:
        return pd.DataFrame(columns=list(columns))
    return pd.concat(parts, ignore_index=True).reindex(columns=list(columns))


def read_runs(parent: Path) -> list[Run]:
    """Every run folder of a parent, GRPO first, then LENS as printed, then the others by name.

    Raises:
        UserError: no run folder, or one whose config, manifest or logs are damaged.
    """
    runs = [read_run(folder.path) for folder in find_runs(parent)]
    return sorted(runs, key=run_order)


def run_order(run: Run) -> tuple[bool, bool, str, int]:
    """A sort key: by method, as in `label_order`, then by seed."""
    return (*label_order(run.label), run.seed)


def label_order(label: str) -> tuple[bool, bool, str]:
    """A sort key: GRPO, LENS as printed, the others."""
    return (label != BASELINE, label != LENS, label)


NAMES = {
    LENS: "LENS as printed",
    "lens-paper": "LENS as printed",
    "lens-groupsmixed": "LENS, mixed groups only",
    "lens-groupsnegative": "LENS, negative groups only",
    "nsr": "NSR",
    "psr": "PSR",
    "ngrpo": "NGRPO",
}


def display(label: str) -> str:
    """A method's name for readers: "lens-negative_std" → "LENS negative_std"."""
    if label in NAMES:
        return NAMES[label]
    name, _, variant = label.partition("-")
    return one_line(f"{name.upper() if name in (BASELINE, LENS) else name} {variant}")


def run_name(run: Run, runs: Sequence[Run]) -> str:
    """The method's name, and the seed where there are several."""
    several = len({other.seed for other in runs}) > 1
    return display(run.label) + (f", seed {run.seed}" if several else "")


def look_name(run: Run, runs: Sequence[Run]) -> str:
    """What a legend says of a run: runs of a method look alike, so it names them once."""
    seeds = {other.seed for other in runs if other.label == run.label}
    return f"{display(run.label)}, {len(seeds)} seeds" if len(seeds) > 1 else run_name(run, runs)


def read_run(path: Path) -> Run:
    """One run folder.

    Raises:
        UserError: a file in it is damaged.
    """
    config = read_yaml(path / "config.yaml", COPY_AGAIN)
    if type(config.get("seed")) is not int:
        raise damaged(path / "config.yaml", "it has no seed", COPY_AGAIN)
    manifest_file = path / "manifest.json"
    manifest = read_manifest(manifest_file, COPY_AGAIN) if manifest_file.exists() else {}
    run = Run(
        path=path,
        label=re.sub(r"-seed\d+$", "", path.name),
        seed=config["seed"],
        config=config,
        manifest=manifest,
        metrics=read_table(path / "metrics.csv", METRICS, UPDATE_KEY),
        groups=read_table(path / "groups.csv", GROUP_COLUMNS),
        evals=read_table(path / "eval.csv", evaluation.COLUMNS, CURVE_KEY),
        counts=read_table(path / "eval_counts.csv", evaluation.COUNT_COLUMNS, COUNT_KEY),
        samples=[line.value for line in read_jsonl(path / "samples.jsonl", COPY_AGAIN)],
    )
    if run.finished:
        _check_counts(run)
    return run


def _check_counts(run: Run) -> None:
    """Raises UserError where the counts of a finished run, if it has any, are not those of its
    evaluations."""
    if run.counts.empty:
        return
    path = run.path / "eval_counts.csv"
    for _, row in run.evals[run.evals["level"] == "all"].iterrows():
        step, counts = int(row["step"]), run.counts[run.counts["step"] == row["step"]]
        if counts.empty and step != run.step:
            continue  # an earlier evaluation alone may have been left out
        if not np.isnan(row["questions"]) and len(counts) != row["questions"]:
            why = f"update {step} has {len(counts)} questions, eval.csv {row['questions']:g}"
            raise damaged(path, why, COPY_AGAIN)
        rate = (counts["correct"] / counts["n"]).mean()
        if abs(rate - row["pass@1"]) > ROUNDED:
            why = f"pass@1 after update {step} is {rate:.4g}, in eval.csv {row['pass@1']:.4g}"
            raise damaged(path, why, COPY_AGAIN)


def require_manifest(folder: Path) -> None:
    """For those who count finished runs alone, which only a manifest tells.

    Raises:
        UserError: a run folder has none.
    """
    if not (folder / "manifest.json").is_file():
        raise UserError(
            f"{folder} is half a run: it has no manifest.json, which training writes when it "
            f"begins; start it with --resume {folder}, or move it away"
        )


def lacks_last_evaluation(run: Run) -> bool:
    """Whether a finished run that is evaluated has no pass@1 after its last update."""
    every = (run.config.get("eval") or {}).get("every")
    if run.evals.empty and not every:
        return False
    last = run.evals[(run.evals["step"] == run.config.get("steps")) & (run.evals["level"] == "all")]
    return last.empty or bool(last["pass@1"].isna().any())


UPDATE_KEY, CURVE_KEY, COUNT_KEY = ("step",), ("step", "level"), ("step", "question")
"""What tells the rows of a run's metrics.csv, eval.csv and eval_counts.csv apart."""
ROUNDED = 1e-4
"""How far a rate in a log may be from that of its counts."""


def read_table(path: Path, columns: Iterable[str], key: Sequence[str] = ()) -> pd.DataFrame:
    """A CSV with at least these columns; empty cells are NaN, a missing file is an empty table.

    Args:
        key: the columns that no two rows have alike.

    Raises:
        UserError: it is damaged: a number that is none, or outside its range, say.
    """
    columns = list(columns)
    header, rows = read_csv(path, COPY_AGAIN)
    if not rows:
        return pd.DataFrame({c: pd.Series(dtype=str if c in TEXT else float) for c in columns})
    numbers = [column for column in header if column not in TEXT]
    table = pd.read_csv(
        io.StringIO(csv_text([header, *(row.value for row in rows)])),
        dtype={column: str for column in header if column in TEXT},
        keep_default_na=False,
        na_values={column: [""] for column in numbers},
    )
    for column in header:
        if column in TEXT:
            table[column] = [one_line(from_cell(cell)) for cell in table[column]]
    for column in numbers:
        if not pd.api.types.is_numeric_dtype(table[column]):
            why = f"column {column} holds something else than numbers"
            raise damaged(path, why, COPY_AGAIN)
    if "step" in columns and "step" not in header:
        raise damaged(path, "it has no column step", COPY_AGAIN)
    _check_ranges(path, table, rows)
    key = [column for column in key if column in table]
    if key and (twice := table.duplicated(key).to_numpy()).any():
        why = f"line {rows[int(twice.argmax())][0]}: the same {' and '.join(key)} again"
        raise damaged(path, why, COPY_AGAIN)
    return table.reindex(columns=[*header, *(c for c in columns if c not in header)])


def _check_ranges(path: Path, table: pd.DataFrame, rows: list[Line]) -> None:
    """Raises UserError for the first cell of a column that can't hold what it does."""
    for place, column in enumerate(table.columns):
        values = table[column]
        faults = []
        if column in RANGES:
            faults.append((RANGES[column].outside(values), RANGES[column]))
        if column == "step":
            faults.append((values.isna(), RANGES[column]))
        for bound in AT_MOST.get(column, ()):
            if bound in table:
                faults.append((values > table[bound], f"at most its {bound}"))
        for wrong, wanted in faults:
            if wrong.any():
                number, cells = rows[int(wrong.to_numpy().argmax())]
                why = f"line {number}: {column} is {cells[place][:40]!r}, not {wanted}"
                raise damaged(path, why, COPY_AGAIN)


def read_committed(folder: str = "tiny_study") -> Committed | None:
    """The committed runs of several seeds, None where they don't come along."""
    curves, updates = (find("results", folder, name) for name in ("curves.csv", "updates.csv"))
    manifests = find("results", folder, "manifests.json")
    if curves is None or updates is None or manifests is None:
        return None
    return Committed(
        read_table(curves, CURVE_COLUMNS),
        read_table(updates, UPDATE_COLUMNS),
        tuple(m["config"] for m in read_json(manifests, COPY_AGAIN)),
    )


def differing_settings(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """The dotted names of the settings that both configs have and that differ, incidental ones
    aside. A setting that only one has came with another version and says nothing."""
    return [key for key in _differing(a, b) if not _within(key, INCIDENTAL)]


def _within(key: str, names: Iterable[str]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in names)


def _differing(a: dict[str, Any], b: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key in [key for key in a if key in b]:
        if isinstance(a[key], dict) and isinstance(b[key], dict):
            yield from _differing(a[key], b[key], f"{prefix}{key}.")
        elif a[key] != b[key]:
            yield f"{prefix}{key}"


class Trained(Protocol):
    """What settings and manifest say of a run, whoever has read them."""

    @property
    def seed(self) -> int: ...
    @property
    def config(self) -> dict[str, Any]: ...
    @property
    def manifest(self) -> dict[str, Any]: ...


def differences(a: Trained, b: Trained, but: Sequence[str] = ()) -> list[str]:
    """What two runs differ in besides method and seed, and besides some settings: by their dotted
    names or the sections that they are in. Of base weights the hashes tell, where both have one,
    wherever they lay; of questions, where they are equal."""
    different = differing_settings(a.config, b.config)
    ours, theirs = hashes(a), hashes(b)
    told = {HASHED[what] for what, one in ours.items() if one is not None and one == theirs[what]}
    if ours["weights"] and theirs["weights"]:
        told.add(HASHED["weights"])
    different = [key for key in different if key not in told]
    if a.config.get("steps") != b.config.get("steps"):
        different.append("steps")
    return [key for key in different + differing_hashes(a, b) if not _within(key, but)]


def differing_hashes(a: Trained, b: Trained) -> list[str]:
    """What two runs were not given alike, by the hashes that both manifests have: the weights they
    began with, the test questions; with one seed, from which a few may be drawn, the training
    questions too."""
    theirs = hashes(b)
    return [
        what
        for what, one in hashes(a).items()
        if None not in (one, theirs[what])
        and one != theirs[what]
        and (what != "training questions" or a.seed == b.seed)
    ]


HASHED = {
    "weights": "model.path",
    "test questions": "data.test",
    "training questions": "data.train",
}
"""What a manifest has hashes of, and the setting that says where it lay."""


def hashes(run: Trained) -> dict[str, str | None]:
    """Of what a run was given, by the names in `HASHED`; None where its manifest has none."""
    data = run.manifest.get("data") or {}
    parts = (run.manifest.get("policy"), data.get("test"), data.get("train"))
    return {what: (part or {}).get("sha256") for what, part in zip(HASHED, parts, strict=True)}
