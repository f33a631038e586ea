"""Tables as text and as CSV."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable, Sequence

from lens_ref.rlvr.untrusted import printable, to_cell


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell: the first one flush left, the others right; printable,
    every row in one line."""
    rows = [[printable(cell, keep="") for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        gaps = [" " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        others = (gap + cell for cell, gap in zip(row[1:], gaps[1:], strict=True))
        lines.append("  ".join([row[0] + gaps[0], *others]).rstrip())
    return "\n".join(lines)


def _width(text: str) -> int:
    """Places on a terminal: two for a Chinese, Japanese or Korean letter, none for a mark over or
    under another or a letter that is not seen."""
    return sum(
        1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
        if unicodedata.category(letter) not in ("Mn", "Me", "Cf")
    )


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows under their header, without columns the rows alone. None is an empty cell; a text is
    written so that no spreadsheet computes it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if columns:
        writer.writerow(columns)
    writer.writerows([to_cell(cell) for cell in row] for row in rows)
    return out.getvalue()
