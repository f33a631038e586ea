"""Collect finished runs of several seeds into three small files that can be committed.

    python -m lens_ref.rlvr.collect runs/seed0 runs/seed1 --out results/tiny

writes `curves.csv` (pass@k by method, seed, step and level), `updates.csv` (what was logged at
every update) and `manifests.json` (settings, versions, hardware). Reports draw their bands from
them. With `--whole` it copies each run instead: its tables, settings and manifest, but no question
and no answer. Beside the runs it draws the figures of a report on all of them.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lens_ref import extras

extras.check_command(__name__, "collecting runs")

import yaml
from matplotlib.figure import Figure

from lens_ref.command_line import OneLineParser, folder, one_line_errors
from lens_ref.rlvr.console import console
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.files import COPY_AGAIN, csv_text, read_csv, read_json
from lens_ref.rlvr.report_data import (
    CURVE_COLUMNS,
    UPDATE_COLUMNS,
    Run,
    differences,
    lacks_last_evaluation,
    read_run,
    read_runs,
    require_manifest,
    run_order,
)
from lens_ref.rlvr.report_page import write_figure
from lens_ref.rlvr.report_verdict import counted
from lens_ref.rlvr.run_folder import AGAIN, find_runs, refuse_secrets, write_whole, writing
from lens_ref.rlvr.run_report import CAPTIONS, draw
from lens_ref.rlvr.untrusted import one_line, to_cell

ABSOLUTE_PATH = re.compile(r"(?<![\w.:/~])/(?:[^\s/]+/)*([^\s/]+)/?")


def collect(parents: Sequence[Path], out: Path) -> list[Run]:
    """Write the three files for every run folder of the parents; returns the runs.

    Raises:
        UserError: an unfinished or never evaluated run, the same method and seed twice, runs of
            different settings, an output folder that can't be written or holds other runs. Nothing
            is written then.
    """
    runs = _read(parents, out)
    _check_kept(runs, out)
    seen: dict[tuple[str, int], Run] = {}
    for run in runs:
        check_alike(run, runs[0])
        twin = seen.setdefault((run.label, run.seed), run)
        if twin is not run:
            raise UserError(
                f"{twin.path} and {run.path} are both {run.label} with seed {run.seed}; "
                "give each run once"
            )
    runs.sort(key=run_order)
    manifests = [
        without_paths({"run": f"{r.label}-seed{r.seed}", **r.manifest, "config": r.config})
        for r in runs
    ]
    curves, updates = _rows(runs, "eval.csv"), _rows(runs, "metrics.csv")
    write_whole(out / "curves.csv", _csv(CURVE_COLUMNS, curves), AGAIN)
    write_whole(out / "updates.csv", _csv(UPDATE_COLUMNS, updates), AGAIN)
    write_whole(out / "manifests.json", json.dumps(manifests, indent=1) + "\n", AGAIN)
    return runs


def _check_kept(runs: Sequence[Run], out: Path) -> None:
    """Raises UserError where runs that were collected into a folder would be lost."""
    path = out / "manifests.json"
    held = read_json(path, COPY_AGAIN) if path.is_file() else []
    names = {manifest.get("run") for manifest in held if isinstance(manifest, dict)}
    lost = sorted(map(str, names - {f"{run.label}-seed{run.seed}" for run in runs} - {None}))
    if lost:
        raise UserError(
            f"{out} holds {counted(len(lost), 'run')} that would be lost ({', '.join(lost)}): give "
            "them too, or another --out"
        )


TABLES = ("metrics.csv", "groups.csv", "eval.csv", "eval_counts.csv")


def copy_whole(parents: Sequence[Path], out: Path) -> tuple[list[Run], list[str]]:
    """`out/<run>/` with tables, settings and manifest of every run of the parents, without absolute
    paths, and beside them the figures of a report over all runs that are then in `out`.

    Returns:
        the runs that were copied, and notes: how many others `out` holds, why a figure is missing.

    Raises:
        UserError: an unfinished run, two runs of one name, a folder that can't be written, or that
            holds another run of such a name.
    """
    runs = _read(parents, out)
    names = [run.path.name for run in runs]
    for run in runs:
        _check_finished(run)
        if names.count(run.path.name) > 1:
            raise UserError(f"two runs are named {run.path.name}; collect them into two folders")
        _check_same(run, out / run.path.name)
    for run in runs:
        folder = out / run.path.name
        manifest = json.dumps(without_paths(run.manifest), indent=1)
        write_whole(folder / "manifest.json", manifest + "\n", AGAIN)
        config = yaml.safe_dump(without_paths(run.config), sort_keys=False, allow_unicode=True)
        write_whole(folder / "config.yaml", config, AGAIN)
        for name in TABLES:
            with writing(folder / name, AGAIN):
                if (run.path / name).is_file():
                    shutil.copy(run.path / name, folder / name)
                else:  # one of an earlier copy would be of another run
                    (folder / name).unlink(missing_ok=True)
    drawn = read_runs(out)
    notes = _draw(drawn, out)
    if more := len(drawn) - len(runs):
        notes.insert(0, f"{out} holds {counted(more, 'other run')} too")
    return runs, notes


def _check_same(run: Run, copy: Path) -> None:
    """Raises UserError where an earlier copy of this name is of another run."""
    try:
        earlier = read_run(copy) if (copy / "config.yaml").is_file() else None
    except UserError:  # a damaged one is mended by this
        return
    if earlier is None:
        return
    run = replace(run, config=without_paths(run.config))
    different = [key for key in ("methods", "seed") if run.config[key] != earlier.config.get(key)]
    different += differences(run, earlier)
    if different:
        raise UserError(
            f"{copy} is another run: it differs in {', '.join(different)}; give another --out, or "
            "move it away"
        )


def _read(parents: Sequence[Path], out: Path) -> list[Run]:
    """All runs of the parents, none of which is to be written over.

    Raises:
        UserError: one would be, has no manifest, or is damaged.
    """
    runs = [read_run(folder.path) for parent in parents for folder in find_runs(parent)]
    for run in runs:
        require_manifest(run.path)
        if out.resolve() in (run.path.resolve(), run.path.resolve().parent):
            raise UserError(f"--out {out} holds {run.path.name}, which is to be collected")
    return runs


def _draw(runs: list[Run], folder: Path) -> list[str]:
    """The figures of a report over all runs in a folder; returns why one is missing."""
    apart = {key for run in runs for key in differences(runs[0], run)}
    if apart:
        said = f"no figures, since the runs in {folder} differ in {', '.join(sorted(apart))}"
        drawings: dict[str, Figure | str] = dict.fromkeys(CAPTIONS, said)
    else:
        drawings = draw(runs)
    for name, drawing in drawings.items():
        with writing(folder / f"{name}.png", AGAIN):
            write_figure(folder / f"{name}.png", drawing)
    return list(dict.fromkeys(x for x in drawings.values() if isinstance(x, str)))


def _check_finished(run: Run) -> None:
    if not run.finished:
        raise UserError(
            f"{run.path} is not finished ({run.step} of {run.config.get('steps')} updates); "
            f"go on with: python -m lens_ref.train --resume {run.path}"
        )
    steps = run.config.get("steps")
    if run.metrics["step"].tolist() != list(range(1, (steps or 0) + 1)):
        raise UserError(
            f"{run.path} is half a run: its config asks for {steps} updates, its metrics.csv has "
            f"{len(run.metrics)} rows; copy it again"
        )
    if lacks_last_evaluation(run):
        raise UserError(f"{run.path} was not evaluated after its last update; copy it again")


def check_alike(run: Run, first: Run) -> None:
    """Whether a run can stand beside another one in a table.

    Raises:
        UserError: it is unfinished or was never evaluated, or its settings are others.
    """
    _check_finished(run)
    if run.evals.empty:
        raise UserError(f"{run.path} was never evaluated; leave it out, or train with eval.every")
    if different := differences(first, run):
        raise UserError(
            f"{first.path} and {run.path} differ in {', '.join(different)}; "
            "collect runs of the same settings only"
        )


def without_paths(value: Any) -> Any:
    """The same nested value with every absolute path in its texts cut to its last part."""
    if isinstance(value, dict):
        return {key: without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_paths(inner) for inner in value]
    return ABSOLUTE_PATH.sub(r"\1", value) if isinstance(value, str) else value


def _rows(runs: Iterable[Run], file: str) -> list[dict[str, str]]:
    """The rows of a log of each run as they are written there, with method and seed."""
    rows = []
    for run in runs:
        header, lines = read_csv(run.path / file, COPY_AGAIN)
        label = {"method": to_cell(run.label), "seed": str(run.seed)}
        rows += [{**label, **dict(zip(header, line.value, strict=True))} for line in lines]
    return rows


def _csv(columns: Sequence[str], rows: Iterable[dict[str, str]]) -> str:
    return csv_text([columns, *([row.get(column, "") for column in columns] for row in rows)])


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = OneLineParser(
        prog="python -m lens_ref.rlvr.collect",
        description="Collect finished runs of several seeds into curves.csv, updates.csv and "
        "manifests.json.",
    )
    parser.add_argument("parents", nargs="+", type=Path, metavar="RUNS_PARENT")
    parser.add_argument(
        "--out", type=folder, required=True, metavar="DIR", help="e.g. results/tiny"
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="copy each run, texts left out, and draw the figures of all",
    )
    args = parser.parse_args(arguments)
    return one_line_errors(lambda: _run(args), False, "collecting", "")


def _run(args: argparse.Namespace) -> int:
    refuse_secrets({"--out": str(args.out)})
    if args.whole:
        runs, said = copy_whole(args.parents, args.out)
    else:
        runs, said = collect(args.parents, args.out), []
    names = one_line(", ".join(run.path.name for run in runs))
    console.print(f"{counted(len(runs), 'run')} → {args.out}: {names}")
    for sentence in said:
        console.print(f"note: {sentence}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
