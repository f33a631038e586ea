"""The runs that a report is made of: whole run folders, found by their manifest.json at any depth,
and collected ones (`curves.csv`, `updates.csv`, `manifests.json` of `lens_ref.rlvr.collect`). Of a
run that is there in both ways the whole one is read, which tells more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from lens_ref.reporting import paper
from lens_ref.reporting.settings import same_setting
from lens_ref.rlvr import evaluation
from lens_ref.rlvr.config import method_label
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.files import COPY_AGAIN, damaged, read_json
from lens_ref.rlvr.logs import GROUP_COLUMNS
from lens_ref.rlvr.manifest_file import check_manifest
from lens_ref.rlvr.report_data import (
    CURVE_COLUMNS,
    CURVE_KEY,
    LENS,
    UPDATE_COLUMNS,
    UPDATE_KEY,
    Run,
    read_run,
    read_table,
    require_manifest,
    run_order,
)

PASSED_OVER = ("cells", "checkpoints")  # pieces of `python -m toy.compare`, and of a run
MANIFEST_KEYS = {"status", "method", "seed", "steps"}  # a training run's; toys have manifests too


@dataclass(frozen=True)
class Found:
    """The runs by what they can tell."""

    finished: tuple[Run, ...]
    unfinished: tuple[Run, ...]
    double: tuple[tuple[Run, Run], ...]  # left out, and the run of its settings, method and seed


def find(runs: Sequence[Path] = (), results: Path | None = None) -> Found:
    """Read every run below some folders.

    Args:
        runs: run folders, or folders that hold some.
        results: one more folder, which may hold none yet.

    Raises:
        UserError: a path of `runs` that holds no run; half a run, or a damaged one, anywhere.
    """
    read: list[Run] = []
    for path in runs:
        if not path.is_dir():
            raise UserError(_no_folder(path))
        below = list(_below(path))
        if not below:
            raise UserError(
                f"{path} holds no training run: a run is a folder with config.yaml and "
                "manifest.json, such as python -m lens_ref.train writes into runs/<name>/"
            )
        read += below
    if results is not None:
        if not results.is_dir():
            raise UserError(f"{_no_folder(results)}; name one that holds results with --results")
        read += _below(results)
    once = {(run.path.resolve(), run.whole): run for run in read}
    ordered = sorted(once.values(), key=lambda run: (*run_order(run), not run.whole))
    finished, double = _once([run for run in ordered if run.finished])
    return Found(tuple(finished), tuple(run for run in ordered if not run.finished), tuple(double))


def _no_folder(path: Path) -> str:
    return f"{path} is not a folder" if path.exists() else f"no folder {path}"


def _once(runs: list[Run]) -> tuple[list[Run], list[tuple[Run, Run]]]:
    """The first run of every setting, method and seed, or the first that was evaluated, and those
    that were left out for it."""
    kept: list[Run] = []
    left_out = list[tuple[Run, Run]]()
    for run in sorted(runs, key=lambda run: run.evals.empty):
        twin = next(
            (
                k
                for k in kept
                if (k.label, k.seed) == (run.label, run.seed) and same_setting(k, run)
            ),
            None,
        )
        if twin is None:
            kept.append(run)
        else:
            left_out.append((run, twin))
    return kept, left_out


def _below(folder: Path) -> Iterator[Run]:
    """Every run at or below a folder, in the order of their paths."""
    seen = set[Path]()
    for file in sorted(folder.rglob("*")):
        if set(PASSED_OVER) & set(file.relative_to(folder).parts):
            continue
        if file.name == "manifests.json" and _is_collection(file.parent):
            yield from _collected(file.parent)
        elif file.name in ("manifest.json", "config.yaml") and file.parent not in seen:
            seen.add(file.parent)
            if _is_run(file.parent):
                yield _named(read_run(file.parent))


def _is_collection(folder: Path) -> bool:
    """Whether a folder with a manifests.json holds collected runs; UserError on half of them."""
    missing = [name for name in ("curves.csv", "updates.csv") if not (folder / name).is_file()]
    if missing and _holds_collected(folder / "manifests.json"):
        raise UserError(f"{folder} is half a collection: it has no {missing[0]}; copy it again")
    return "curves.csv" not in missing


def _holds_collected(path: Path) -> bool:
    """Whether a file, which may be of another program's, lists collected runs."""
    try:
        manifests = read_json(path, COPY_AGAIN)
    except UserError:
        return False
    return isinstance(manifests, list) and bool(manifests) and all(map(_is_collected, manifests))


def _is_run(folder: Path) -> bool:
    """Whether a folder with a config or a manifest is a run; UserError on half of one. Of a run
    that was not begun, since the one before it was stopped, there is the config alone."""
    if (folder / "config.yaml").is_file():
        if (folder / "metrics.csv").is_file():
            require_manifest(folder)
        return True
    path = folder / "manifest.json"
    manifest = read_json(path, COPY_AGAIN) if path.is_file() else None
    if isinstance(manifest, dict) and manifest.keys() >= MANIFEST_KEYS:
        raise UserError(f"{folder} is half a run: it has no config.yaml; copy it again")
    return False


def _named(run: Run) -> Run:
    """The run with the label of its config's method, and checked against its manifest."""
    methods = run.config.get("methods")
    if not (isinstance(methods, list) and len(methods) == 1 and isinstance(methods[0], str)):
        raise UserError(f"{run.path}: its config names no single method; is it a run's?")
    if run.finished and run.step != (steps := run.manifest.get("steps")):
        raise UserError(
            f"{run.path} is half a run: its manifest says {steps} updates, its metrics.csv "
            f"{run.step}; copy it again"
        )
    return replace(run, label=_label(methods[0]))


def _label(method: str) -> str:
    if paper.role(method) == "lens":
        return LENS
    try:
        return method_label(method)
    except ValueError:  # a method of another version
        return method


def _collected(folder: Path) -> Iterator[Run]:
    """The runs of `python -m lens_ref.rlvr.collect … --out folder`."""
    run_key = ("method", "seed")
    curves = read_table(folder / "curves.csv", CURVE_COLUMNS, (*run_key, *CURVE_KEY))
    updates = read_table(folder / "updates.csv", UPDATE_COLUMNS, (*run_key, *UPDATE_KEY))
    path = folder / "manifests.json"
    manifests = read_json(path, COPY_AGAIN)
    if not isinstance(manifests, list) or not all(map(_is_collected, manifests)):
        raise damaged(path, "a list of runs with their configs is needed", COPY_AGAIN)
    for manifest in manifests:
        check_manifest(manifest, path, COPY_AGAIN)
        name, config = manifest["run"], manifest["config"]
        label = name.rsplit("-seed", 1)[0]

        def of(table: pd.DataFrame, label: str = label, seed: int = config["seed"]) -> pd.DataFrame:
            chosen = table[(table["method"] == label) & (table["seed"] == seed)]
            return chosen.drop(columns=["method", "seed"]).reset_index(drop=True)

        yield _named(
            Run(
                path=folder / name,
                label=label,
                seed=config["seed"],
                config=config,
                manifest=manifest,
                metrics=of(updates),
                groups=pd.DataFrame(columns=GROUP_COLUMNS),
                evals=of(curves),
                counts=pd.DataFrame(columns=evaluation.COUNT_COLUMNS),
                samples=[],
                whole=False,
            )
        )


def _is_collected(manifest: Any) -> bool:
    if not isinstance(manifest, dict) or not isinstance(manifest.get("config"), dict):
        return False
    return isinstance(manifest.get("run"), str) and type(manifest["config"].get("seed")) is int
