"""`docs/verifier.md`: the verdicts that its tables state are those that both graders give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from math_verify import parse, verify

from lens_ref.verifier import Verifier

PAGE = Path(__file__).parents[1] / "docs/verifier.md"
WORDS = {True: "yes", False: "no"}


def tables() -> list[tuple[str, str, str, str]]:
    """(gold, response, math-verify's verdict, ours) of each row."""
    found, boxed = [], True
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("| class"):
            boxed = "| response |" not in line
        cells = re.findall(r"`([^`]+)` \| `([^`]+)` \| (yes|no) \| (yes|no) \|", line)
        for gold, answer, theirs, ours in cells:
            response = rf"\boxed{{{answer}}}" if boxed else answer
            found.append((gold, response, theirs, ours))
    return found


def test_every_row_of_the_tables_is_read():
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if re.match(r"\| [a-z]", line)]
    heads = sum(row.startswith("| class") for row in rows)
    assert len(tables()) == len(rows) - heads > 35


@pytest.mark.filterwarnings("ignore")
def test_what_math_verify_says():
    stated = {(gold, response): theirs for gold, response, theirs, _ in tables()}
    found = {
        (gold, response): WORDS[
            verify(
                parse(rf"\boxed{{{gold}}}", parsing_timeout=None),
                parse(response, parsing_timeout=None),
                timeout_seconds=None,
            )
        ]
        for gold, response in stated
    }
    assert found == stated


def test_what_this_verifier_says():
    rows = tables()
    with Verifier(workers=2, timeout=60.0) as verifier:
        verdicts = verifier.grade([row[0] for row in rows], [row[1] for row in rows])
    found = [(*row[:2], WORDS[v.reward == 1.0]) for row, v in zip(rows, verdicts, strict=True)]
    assert found == [(gold, response, ours) for gold, response, _, ours in rows]
