"""The tables as LaTeX, for a document that loads booktabs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lens_ref.reporting.settings import Setting
from lens_ref.reporting.tables import (
    PAPER_HEADER,
    Filled,
    accuracy_rows,
    difference_rows,
    paper_rows,
)
from lens_ref.rlvr.report_page import NOT_RUN
from lens_ref.rlvr.untrusted import printable

_SPECIAL = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
_SPECIAL |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
_MATH = {"−": "$-$", "–": "--", "×": r"$\times$", "α": r"$\alpha$", "·": r"$\cdot$"}


def text(cell: str) -> str:
    """A cell as LaTeX: special letters escaped, "not run" in italics."""
    if cell == NOT_RUN:
        return rf"\textit{{{NOT_RUN}}}"
    table = str.maketrans(_SPECIAL | _MATH)
    return printable(cell, keep="").translate(table)


def tabular(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str, label: str) -> str:
    """A table environment: columns of words to the left, of numbers to the right."""
    words = [any(re.search("[A-Za-z]", row[i].replace(NOT_RUN, "")) for row in rows)
             for i in range(len(header))]  # fmt: skip
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{text(caption)}}}",
        rf"\label{{tab:{label}}}",
        r"\begin{tabular}{" + "".join("l" if wordy else "r" for wordy in words) + "}",
        r"\toprule",
        " & ".join(map(text, header)) + r" \\",
        r"\midrule",
        *(" & ".join(map(text, row)) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def document(filled: Sequence[Filled], settings: Sequence[Setting]) -> str:
    """Every table, one after the other."""
    parts = ["% Needs \\usepackage{booktabs}. Intervals are 95 %.\n"]
    for one in filled:
        name = one.table.name
        caption = f"{name} of the paper and our runs: {one.table.caption}."
        label = name.lower().replace(" ", "-")
        parts.append(tabular(PAPER_HEADER, paper_rows(one), caption, label))
    for setting in settings:
        for what, (header, rows) in (
            ("pass@k in %, mean over seeds", accuracy_rows(setting)),
            ("difference from GRPO in points", difference_rows(setting)),
        ):
            if rows:
                label = f"{setting.slug}-{what.split()[0].replace('@', '')}"
                parts.append(tabular(header, rows, f"{setting.title}: {what}.", label))
    return "\n".join(parts)
