"""The commands and the Python code of a page, as its reader would copy them."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "configs", "recipes", "notebooks", "results", "tests")
SOURCES = ("lens_ref", "toy", "benchmarks", "recipes", "docs", "notebooks", "tests")
HIDDEN = re.compile(r"(^|/)\.|/site/")

# How a code span begins that is a command; "…" stands for `python -m lens_ref.train`.
COMMAND = re.compile(
    r"(?:python3?(?:\.\d+)?|make|pip|pytest|conda|hf|ray|git|accelerate|jupyter|\S*bin/\w+"
    r"|(?:\./)?recipes/\S+\.(?:sh|py)|…) \S"
)
SHELLS = {"", "bash", "sh", "shell", "console"}


@dataclass(frozen=True)
class Block:
    """A code block, or a command within a line."""

    page: str
    line: int
    language: str  # "inline" for a command within a line
    text: str

    @property
    def where(self) -> str:
        """`README.md:31`."""
        return f"{self.page}:{self.line}"

    def statements(self) -> list[str]:
        """The shell's statements, in order: a loop or a continued line is one."""
        whole, lines = [], list[str]()
        for line in self.text.splitlines():
            lines.append(line)
            text = "\n".join(lines)
            if not text.rstrip().endswith("\\") and _complete(text):
                whole.append(text)
                lines = []
        assert not lines, f"{self.where} is no shell command: {' '.join(lines)}"
        return [text for text in whole if re.sub(r"(?m)^\s*#.*$", "", text).strip()]


def _complete(text: str) -> bool:
    return not subprocess.run(["bash", "-n", "-c", text], stderr=subprocess.DEVNULL).returncode


def pages() -> list[Path]:
    """Every Markdown page of the project."""
    found = [*ROOT.glob("*.md"), *(p for f in FOLDERS for p in (ROOT / f).rglob("*.md"))]
    return sorted(p for p in found if not HIDDEN.search(str(p.relative_to(ROOT))))


def docstrings() -> Iterator[tuple[Path, str]]:
    """The docstring of every module that has one."""
    for path in sorted(p for folder in SOURCES for p in (ROOT / folder).rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        if text and not HIDDEN.search(str(path.relative_to(ROOT))):
            yield path, text


def blocks(page: str, text: str) -> list[Block]:
    """Fenced and indented blocks, and commands within lines, from top to bottom."""
    found, prose, lines = [], list[str](), text.splitlines()
    number = 0
    while number < len(lines):
        line, start = lines[number], number + 1
        fence = re.match(r"(```+)(\S*)", line)
        block = list[str]()
        if fence:
            number += 1
            while lines[number] != fence[1]:
                block.append(lines[number])
                number += 1
            found.append(Block(page, start, fence[2], "\n".join(block)))
            prose += [""] * (len(block) + 2)
            number += 1
        elif line.startswith("    ") and (not start - 1 or not lines[number - 1].strip()):
            while number < len(lines) and (lines[number].startswith("    ") or not lines[number]):
                block.append(lines[number][4:])
                number += 1
            if _is_code(prose):
                found.append(Block(page, start, "", "\n".join(block).rstrip()))
                block = [""] * len(block)
            prose += block
        else:
            prose.append(line)
            number += 1
    found += _inline(page, "\n".join(prose))
    return sorted(found, key=lambda block: block.line)


def _is_code(prose: list[str]) -> bool:
    """Whether what is indented next is code: under an item of a list it is the item's text."""
    above = next((line for line in reversed(prose) if line.strip()), "")
    return not re.match(r"\s*(?:[-*]|\d+\.) ", above)


def _inline(page: str, prose: str) -> Iterator[Block]:
    for span in re.finditer(r"(?<!`)`([^`]+)`(?!`)", prose):
        text = " ".join(span[1].split())
        if COMMAND.match(text):
            yield Block(page, prose.count("\n", 0, span.start()) + 1, "inline", text)


def all_blocks() -> list[Block]:
    """Those of all pages."""
    read = [(str(p.relative_to(ROOT)), p.read_text(encoding="utf-8")) for p in pages()]
    return [block for page, text in read for block in blocks(page, text)]
