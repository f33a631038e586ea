"""The whole of docs/reliability.md, from tests/soak/*.py and results/reliability/*.json."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

TITLES = {
    "crash": "Kills and damaged checkpoints",
    "disks": "Full and read-only disks",
    "answers": "Hostile answers",
    "throughput": "Speed of grading",
    "numbers": "Bad numbers",
    "data": "Bad data",
    "pages": "Text from models in reports and on the console",
    "long": "Long runs",
    "same": "The same seed, the same run",
}
HEAD = """# Reliability

What happens when a run is killed, a disk is full, an answer is hostile, a number is not finite or
data are broken. Everything here was measured by `make soak` (or one part alone: `python -m
tests.soak crash`), whose figures lie in `results/reliability/`; smaller versions of the same checks
are in `make test`. What is trusted and what is not: [SECURITY](../SECURITY.md). How the verifier
reads answers, and what it refuses: [the verifier](verifier.md).
"""
NOT_MEASURED = "Not measured yet: `python -m tests.soak {part}`."


def page(parts: Path, results: Path) -> str:
    """A section a part: its module's docstring and the table of what was found."""
    return "\n".join([HEAD, *(section(name, parts, results) for name in TITLES)])


def section(name: str, parts: Path, results: Path) -> str:
    """Title, explanation, table."""
    explained = ast.get_docstring(ast.parse((parts / f"{name}.py").read_text(encoding="utf-8")))
    file = results / f"{name}.json"
    found = NOT_MEASURED.format(part=name)
    if file.is_file():
        found = table(json.loads(file.read_text(encoding="utf-8")))
    return f"## {TITLES[name]}\n\n{explained}\n\n{found}\n"


def table(part: dict[str, Any]) -> str:
    """What was asked for and what was found, and on what machine."""
    rows = ["| what | found | asked for |", "|---|---|---|"]
    for figure in part["figures"]:
        bound = figure["bound"] if figure["met"] else f"{figure['bound']}: **missed**"
        cells = (figure["what"], figure["found"], bound)
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    versions, machine = part["versions"], part["hardware"]
    where = f"{machine['cpus']} CPUs, Python {part['python']}, torch {versions['torch']}"
    return "\n".join([*rows, "", f"`{part['command']}`: {part['seconds']} s on {where}."])
