"""A cell: one method in one setting, all seeds. The unit of work, resuming and parallelism."""

from __future__ import annotations

import ast
import hashlib
import re
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from toy.sampled import Report

ROOT = Path(__file__).resolve().parents[2]
LIBRARY_SOURCES = ("lens_ref/core", "lens_ref/methods")
TOY_SOURCES = (
    *LIBRARY_SOURCES,
    *("toy/flow.py", "toy/rules.py", "toy/sampled.py", "toy/spaces.py"),
    *("toy/compare/treatments.py", "toy/compare/training.py"),
)


class Cell(Protocol):
    """A frozen dataclass that can be pickled."""

    @property
    def part(self) -> str:
        """The name of the CSV that its rows go into."""

    @property
    def name(self) -> str:
        """Unique and readable."""

    @property
    def cost(self) -> float:
        """About how long it takes on one core, in seconds: long ones start first."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Files and folders, from the repository's root, whose code its numbers depend on."""

    def run(self, workspace: Path, report: Report) -> pd.DataFrame:
        """The rows: one a seed, or a seed and step.

        `workspace` is a folder of the cell's own, there again when a cut-off run is taken up.
        """


def slug(cell: Cell) -> str:
    """A file name for a cell."""
    return re.sub(r"[^\w.=-]+", "_", f"{cell.part}-{cell.name}")


def fingerprint(cell: Cell) -> str:
    """What the rows of a cell depend on: its settings and the code, comments and docstrings left
    out. A cell that was run by other code is run again."""
    settings = asdict(cell)  # type: ignore[call-overload]
    text = repr(sorted(settings.items())) + "".join(map(code, cell.sources))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def code(source: str) -> str:
    """The syntax trees of a file, or of all files of a folder."""
    path = ROOT / source
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return "".join(_tree(file) for file in files)


def _tree(file: Path) -> str:
    tree: Any = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            node.body = body[1:]
    return _dump(tree)


def _dump(node: Any) -> str:
    """`ast.dump` of Python 3.11, on any version: a run that moves to another machine goes on."""
    if isinstance(node, list):
        return f"[{', '.join(map(_dump, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {
        name: value
        for name, value in ast.iter_fields(node)
        if not (value is None and getattr(type(node), name, ...) is None)  # optional and absent
        and not (name == "type_params" and not value)  # since 3.12
    }
    if isinstance(node, ast.JoinedStr):  # some 3.12 put empty texts into nested ones
        fields["values"] = [v for v in node.values if getattr(v, "value", None) != ""]
    return f"{type(node).__name__}({', '.join(f'{k}={_dump(v)}' for k, v in fields.items())})"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
