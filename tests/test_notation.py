"""docs/notation.md and docs/glossary.md: names that exist, one table in two places, live links."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import tokenize
from pathlib import Path

import pytest

import lens_ref

ROOT = Path(__file__).resolve().parent.parent
NOTATION = (ROOT / "docs/notation.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
TABLE = NOTATION.split("<!-- table: begin -->\n")[1].split("<!-- table: end -->")[0]
ROWS = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in TABLE.splitlines()[2:]]


def names(path: Path) -> set[str]:
    """The identifiers of a source file; those in strings and comments do not count."""
    source = io.StringIO(path.read_text(encoding="utf-8"))
    return {t.string for t in tokenize.generate_tokens(source.readline) if t.type == tokenize.NAME}


PACKAGE = set().union(*(names(path) for path in (ROOT / "lens_ref").rglob("*.py")))


def code_names() -> list[str]:
    """Every name that the table's code column gives, `Class.field` as one."""
    quoted = " ".join(part for row in ROWS for part in re.findall(r"`([^`]+)`", row[1]))
    return sorted(set(re.findall(r"[A-Za-z_]\w+(?:\.\w+)?", quoted)))


def test_every_row_has_four_cells() -> None:
    assert len(ROWS) > 30
    assert all(len(row) == 4 and all(row) for row in ROWS)


@pytest.mark.parametrize("name", code_names())
def test_code_names_exist(name: str) -> None:
    owner, _, field = name.rpartition(".")
    if not owner:
        assert name in PACKAGE
    elif dataclasses.is_dataclass(cls := getattr(lens_ref, owner)):
        assert field in {f.name for f in dataclasses.fields(cls)}
    else:
        assert field in cls._fields


def test_the_ratio_is_never_called_rho() -> None:
    for path in ("core/loss.py", "rlvr/update.py", "rlvr/logprobs.py"):
        assert not {"rho", "ρ"} & names(ROOT / "lens_ref" / path), path


def test_the_notebook_shows_the_same_table() -> None:
    stored = ROOT / "notebooks/02_likelihood.ipynb"
    notebook = json.loads(stored.read_text(encoding="utf-8"))
    shown = [
        "".join(output["data"]["text/markdown"])
        for cell in notebook["cells"]
        for output in cell.get("outputs", [])
        if "text/markdown" in output.get("data", {})
    ]
    expected = TABLE.strip().replace("(extensions.md)", "(../docs/extensions.md)")
    assert [text.strip() for text in shown] == [expected], "run python notebooks/build.py 02"


def test_the_glossary_is_in_order() -> None:
    headings = [h.lower() for h in re.findall(r"^### (.*)$", GLOSSARY, re.M)]
    assert headings == sorted(set(headings))
    wanted = "group|on-policy|semi-gradient|calibrated|guard|pole|advantage|rollout|pass@k|odds"
    assert set(wanted.split("|")) <= set(headings)
