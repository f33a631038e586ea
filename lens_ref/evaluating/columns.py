"""Tables as text and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from lens_ref.rlvr.untrusted import printable, to_cell


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell: the first one flush left, the others right; printable,
    every row in one line."""
    rows = [[printable(cell, keep="") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows)
    return "\n".join("  ".join(line).rstrip() for line in lines)


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows under their header, without columns the rows alone. None is an empty cell; a text is
    written so that no spreadsheet computes it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if columns:
        writer.writerow(columns)
    writer.writerows([to_cell(cell) for cell in row] for row in rows)
    return out.getvalue()
