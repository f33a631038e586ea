"""`.. fields:: lens_ref.rlvr.config.LossConfig`: the fields of a dataclass as a table, with what
the comments beside them say."""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import textwrap
import tokenize
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar

from docstrings import readable
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


@dataclass(frozen=True)
class Row:
    """One field: name, type and default as written, and its comment."""

    name: str
    type: str
    default: str
    meaning: str


def comments(source: str) -> dict[int, str]:
    """Line number → text of the comment on it."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {t.start[0]: t.string.lstrip("#: ") for t in tokens if t.type == tokenize.COMMENT}


def rows(cls: type) -> list[Row]:
    """The fields of a dataclass in order. A comment belongs to the field on whose line it is, or,
    on lines of its own, to the field below it."""
    source = textwrap.dedent(inspect.getsource(cls))
    lines = source.split("\n")
    notes = comments(source)
    (body,) = ast.parse(source).body
    found = []
    for node in body.body if isinstance(body, ast.ClassDef) else []:
        if not isinstance(node, ast.AnnAssign):
            continue
        end = node.end_lineno or node.lineno
        texts = [notes[n] for n in range(node.lineno, end + 1) if n in notes]
        above = node.lineno - 1
        while lines[above - 1].strip().startswith("#"):
            texts.insert(0, notes[above])
            above -= 1
        default = ast.unparse(node.value) if node.value else "required"
        found.append(
            Row(ast.unparse(node.target), ast.unparse(node.annotation), default, " ".join(texts))
        )
    return found


class Fields(SphinxDirective):
    """A table of name, default, meaning and type; with `:docstring:`, under the class's words."""

    required_arguments = 1
    option_spec: ClassVar = {"docstring": directives.flag}

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].rpartition(".")
        cls = getattr(importlib.import_module(module), name)
        self.env.note_dependency(inspect.getfile(cls))
        head = ("field", "default", "meaning", "type")
        table = nodes.table("", classes=["fields"])
        group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
        cells = [[nodes.paragraph("", word)] for word in head]
        group += nodes.thead("", _row(cells))
        body = nodes.tbody("")
        for field in rows(cls):
            meaning = nodes.paragraph()
            children, messages = self.state.inline_text(
                field.meaning.replace("`", "``").replace("|", r"\|").replace("*", r"\*"),
                self.lineno,
            )
            meaning += children
            body += _row(
                [
                    [_code(field.name), *messages],
                    [_code(field.default)],
                    [meaning],
                    [_code(field.type)],
                ]
            )
        group += body
        table += group
        words = readable(inspect.cleandoc(cls.__doc__ or "").split("\n"))
        above = nodes.container()
        if "docstring" in self.options:
            self.state.nested_parse(StringList(words), 0, above)
        return [*above.children, table]


def _code(text: str) -> nodes.paragraph:
    return nodes.paragraph("", "", nodes.literal("", text))


def _row(cells: list[list[nodes.Node]]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", *cell) for cell in cells))


def has_fields(obj: object) -> bool:
    """A dataclass or a named tuple, of this package."""
    return isinstance(obj, type) and (is_dataclass(obj) or hasattr(obj, "_fields"))


def add_table(
    app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]
) -> None:
    """Every class with fields shows them below its docstring ..."""
    if has_fields(obj):
        lines += ["", f".. fields:: {obj.__module__}.{obj.__qualname__}", ""]


def drop_signature(
    app: Sphinx, what: str, name: str, obj: object, options: Any, signature: str, returns: str
) -> tuple[str, None] | None:
    """... and not in its signature too."""
    return ("", None) if has_fields(obj) else None


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("fields", Fields)
    app.connect("autodoc-process-docstring", add_table, priority=900)  # after napoleon
    app.connect("autodoc-process-signature", drop_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
