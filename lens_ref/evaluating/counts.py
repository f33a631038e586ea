"""Per-question counts, `counts.csv`: from them every statistic can be recomputed.

A row a question: `id, level, subject, n, correct, truncated`: n answers, of which so many are
correct and so many were stopped by the length limit. Levels, subjects and truncated may be empty.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from lens_ref.evaluating.columns import as_csv
from lens_ref.rlvr import run_folder
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.files import Line, read_csv
from lens_ref.rlvr.untrusted import from_cell

FILE = "counts.csv"
OF_A_RUN = "eval_counts.csv"
MEND = "mend it or copy it again"
"""What to do with a damaged file that is only read."""
DIGITS = 9
"""Of the largest number that is believed."""


@dataclass(frozen=True)
class Count:
    """The answers to one question."""

    id: str
    level: int | None
    subject: str | None
    n: int
    correct: int
    truncated: int | None


COLUMNS = tuple(field.name for field in fields(Count))
REQUIRED = ("id", "n", "correct")


def read(path: Path) -> list[Count]:
    """The counts of a file; of a run's `eval_counts.csv` those of its last evaluation.

    Raises:
        UserError: no such file, or anything in it that can't be so.
    """
    return read_last(path)[0]


def read_last(path: Path) -> tuple[list[Count], int | None]:
    """`read`, and after which update a run's last evaluation was made."""
    return _parse(*read_csv(path, MEND, complete=True), path)


def read_begun(path: Path) -> list[Count]:
    """The whole rows of a file that is still being written: a kill can leave half a last one.

    Raises:
        UserError: as `read`.
    """
    header, rows = read_csv(path, begin_anew(path.parent))
    return _parse(header, rows, path)[0] if header else []


def begin_anew(folder: Path) -> str:
    """What to do where the files of an evaluation that is to go on are damaged."""
    return f"delete {folder} or choose another --out"


def write(path: Path, counts: Sequence[Count]) -> None:
    """Replace the file."""
    with writing(path):
        run_folder.write_atomic(path, as_csv(COLUMNS, map(astuple, counts)))


def append(path: Path, counts: Sequence[Count]) -> None:
    """Add rows, on the disk when this returns."""
    with writing(path), path.open("a", encoding="utf-8", newline="") as file:
        file.write(as_csv((), map(astuple, counts)))
        file.flush()
        os.fsync(file.fileno())


def writing(path: Path) -> AbstractContextManager[None]:
    """`run_folder.writing` for files of this command, which goes on when it is given again."""
    return run_folder.writing(path, run_folder.AGAIN)


def _parse(header: list[str], rows: Sequence[Line], path: Path) -> tuple[list[Count], int | None]:
    of_a_run = "question" in header and "step" in header
    if of_a_run:
        header = ["id" if name == "question" else name for name in header]
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise UserError(f"{path} holds no counts: no column {missing[0]!r}")
    found: list[tuple[int, Count]] = []
    for line, row in rows:
        where = f"{path}, line {line}"
        cells = dict(zip(header, map(from_cell, row), strict=True))
        found.append((_whole(cells, "step", where) if of_a_run else 0, _count(cells, where)))
    last = max((step for step, _ in found), default=0)
    counts = [count for step, count in found if step == last]
    seen: set[str] = set()
    for count in counts:
        if count.id in seen:
            raise UserError(f"{path}: the question {count.id!r} occurs twice")
        seen.add(count.id)
    return counts, last if of_a_run and counts else None


def _count(cells: dict[str, str], where: str) -> Count:
    n, correct = _whole(cells, "n", where), _whole(cells, "correct", where)
    truncated = _whole(cells, "truncated", where) if cells.get("truncated") else None
    if n < 1:
        raise UserError(f"{where}: n must be at least 1")
    for name, value in (("correct", correct), ("truncated", truncated)):
        if value is not None and value > n:
            raise UserError(f"{where}: {name} = {value} exceeds n = {n}")
    return Count(
        id=cells["id"],
        level=_whole(cells, "level", where) if cells.get("level") else None,
        subject=cells.get("subject") or None,
        n=n,
        correct=correct,
        truncated=truncated,
    )


def _whole(cells: dict[str, str], name: str, where: str) -> int:
    text = cells[name]
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS):
        raise UserError(f"{where}: {name} must be a whole number, not {text[:40]!r}")
    return int(text)
