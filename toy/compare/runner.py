"""Run cells in processes, keep every finished one, and take up a run that was cut off."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from toy.compare.cell import Cell, fingerprint, slug

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Outcome:
    """All rows, and what they cost."""

    frames: dict[str, pd.DataFrame]  # by part
    cpu_seconds: float  # summed over the cells, earlier pieces of the run included
    reused: int  # cells that were there already


def run_all(cells: Sequence[Cell], folder: Path, workers: int, console: Console) -> Outcome:
    """The rows of all cells, long ones first; what `folder` holds already is not run again.

    A cell counts as done if its settings and the code behind it are the same.
    """
    folder.mkdir(parents=True, exist_ok=True)
    waiting = [cell for cell in cells if _saved(folder, cell) is None]
    reused = len(cells) - len(waiting)
    waiting.sort(key=lambda cell: -cell.cost)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=console,
    )
    with bar:
        task = bar.add_task("cells", total=len(cells), completed=reused, left="")
        _run(waiting, folder, workers, lambda left: bar.update(task, advance=1, left=left))
    parts: dict[str, list[pd.DataFrame]] = defaultdict(list)
    for cell in cells:
        rows = _saved(folder, cell)
        assert rows is not None
        parts[cell.part].append(rows)
    seconds = sum(float(_stamp(folder, cell).read_text().split()[1]) for cell in cells)
    frames = {part: pd.concat(rows, ignore_index=True) for part, rows in parts.items()}
    return Outcome(frames, seconds, reused)


def _run(cells: list[Cell], folder: Path, workers: int, done: Callable[[str], None]) -> None:
    if not cells:
        return
    for name in THREADS:  # inherited by the workers: many processes of one thread each
        os.environ[name] = "1"
    context = multiprocessing.get_context("spawn")
    cost_left, began = sum(cell.cost for cell in cells), time.monotonic()
    total = cost_left
    with ProcessPoolExecutor(min(workers, len(cells)), context, initializer=_begin) as pool:
        futures = {pool.submit(run_cell, cell, folder): cell for cell in cells}
        try:
            for future in as_completed(futures):
                future.result()
                cost_left -= futures[future].cost
                spent = time.monotonic() - began
                seconds = spent * cost_left / max(total - cost_left, 1e-9)
                done(f"about {seconds / 60:.0f} min left" if seconds > 60 else "")
        except BaseException:
            for process in list(pool._processes.values()):  # they hold nothing unsaved
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)  # forgets its processes
            raise


def _begin() -> None:
    """In a worker: Ctrl-C is for the parent, and no worker outlives it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def run_cell(cell: Cell, folder: Path) -> None:
    """Run a cell and save its rows: the CSV first, then, as one rename, the stamp that counts."""
    import torch

    torch.set_num_threads(1)
    print_ = fingerprint(cell)
    workspace, mark = folder / slug(cell), folder / slug(cell) / "fingerprint"
    if workspace.exists() and (not mark.is_file() or mark.read_text() != print_):
        shutil.rmtree(workspace)  # of other settings or other code
    workspace.mkdir(exist_ok=True)
    mark.write_text(print_)
    began = time.process_time() + _children()
    rows = cell.run(workspace, lambda text: None)
    seconds = time.process_time() + _children() - began
    rows.to_csv(_rows(folder, cell), index=False, float_format="%.6g")
    draft = _stamp(folder, cell).with_suffix(".tmp")
    draft.write_text(f"{print_} {seconds:.3f}")
    draft.replace(_stamp(folder, cell))


def forget(cells: Sequence[Cell], folder: Path) -> None:
    """Make these cells count as not done; those of other parts are kept."""
    for cell in cells:
        _stamp(folder, cell).unlink(missing_ok=True)
        _rows(folder, cell).unlink(missing_ok=True)
        shutil.rmtree(folder / slug(cell), ignore_errors=True)


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _rows(folder: Path, cell: Cell) -> Path:
    return folder / f"{slug(cell)}.csv"


def _stamp(folder: Path, cell: Cell) -> Path:
    return folder / f"{slug(cell)}.done"


def _saved(folder: Path, cell: Cell) -> pd.DataFrame | None:
    stamp, rows = _stamp(folder, cell), _rows(folder, cell)
    if not (stamp.is_file() and rows.is_file()):
        return None
    return pd.read_csv(rows) if stamp.read_text().split()[0] == fingerprint(cell) else None
