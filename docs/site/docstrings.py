"""Docstrings are written to be read in an editor; here they become what Sphinx can read.

`name` is code, *word* and **word** are stressed, |o| and a* are meant as they stand, and what is
indented below a paragraph, or stands at Python's prompt, is shown as written.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

CODE = r"``.+?``|`[^`]+`"
STRESS = r"(?<![\w*])(?:\*\*[A-Za-z][^*]*[\w.]\*\*|\*[A-Za-z][^*]*[\w.]\*)(?![\w*])"
KEPT = re.compile(f"({CODE}|{STRESS})", re.S)
MARKUP = re.compile(r"([*|\\]|(?<=\w)_(?!\w))")


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def marked_blocks(lines: list[str]) -> list[str]:
    """`::` before every block that is indented below a blank line: formulas, commands, tables. Such
    lines, and examples at Python's prompt, are marked by a null byte."""
    out: list[str] = []
    block: int | None = None  # indentation of the block that a line is in
    before = 0  # indentation of the last line with text
    example = False  # within what Python's prompt shows
    for i, line in enumerate(lines):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if example:
            out.append("\0" + line)
            continue
        if not line.strip():
            out.append(line)
            continue
        if block is not None and indent(line) < block:
            block = None
        above = i > 0 and not lines[i - 1].strip()
        if block is None and above and indent(line) > before and out[:-1]:
            block = indent(line)
            out += [" " * before + "::", ""]
        if block is None:
            before = indent(line)
        out.append(line if block is None else "\0" + line)
    return out


def readable(lines: list[str]) -> list[str]:
    """The docstring in reStructuredText."""
    text = "\n".join(marked_blocks(lines))
    parts = KEPT.split(text)  # every second one matches
    for i, part in enumerate(parts):
        if i % 2 == 0:
            parts[i] = MARKUP.sub(r"\\\1", part)
        elif part.startswith("`"):
            parts[i] = f"``{part.strip('`')}``"
    escaped = "".join(parts).split("\n")
    marked = text.split("\n")
    return [
        plain[1:] if plain.startswith("\0") else line
        for plain, line in zip(marked, escaped, strict=True)
    ]


def process(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    lines[:] = readable(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", process, priority=100)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
