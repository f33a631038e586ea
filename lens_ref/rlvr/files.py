"""Files of runs as they lie on a disk, read: JSON, lines of JSON, CSV, YAML.

A disk, a copy or an editor may have done anything to them. Whatever is wrong with one is one line,
"<path> is damaged: <why>; <what to do>", whoever reads it: training that goes on, the reports, the
evaluation, the collection.
"""

from __future__ import annotations

import csv
import errno
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import ValidationError

from lens_ref.rlvr.errors import UserError

COPY_AGAIN = "copy that run again, or move it away"
"""What to do, for a command that only reads runs."""


class Line(NamedTuple):
    """A row of a CSV, or an object of a file of JSON lines."""

    number: int  # of its last line in the file, from 1
    value: Any


def damaged(path: Path, why: object, then: str) -> UserError:
    """The error that says so."""
    return UserError(f"{path} is damaged: {' '.join(str(why).split())}; {then}")


def first_fault(error: ValidationError) -> str:
    """In a few words, as `data.test is not a valid dictionary`."""
    first = error.errors()[0]
    where, what = ".".join(map(str, first["loc"])), first["msg"].partition(" or instance of ")[0]
    should = "Input should be "
    return f"{where} is not {what.removeprefix(should)}" if should in what else f"{where}: {what}"


def read_bytes(path: Path) -> bytes:
    """What a regular file holds, or one that a link leads to: a pipe may never end.

    Raises:
        OSError: it is none, or can't be read.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return path.read_bytes()


def read_text(path: Path, then: str, a_log: bool = False) -> str:
    """The text of a file, without the mark (BOM) that some editors put before it.

    Args:
        then: what to do where it is damaged.
        a_log: it may not be there yet, and ends in its last whole line.

    Raises:
        UserError.
    """
    try:
        content = b"" if a_log and not path.exists() else read_bytes(path)
        text = decoded(content[: content.rfind(b"\n") + 1] if a_log else content)
        return text.removeprefix("\ufeff")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}; {then}") from None
    except ValueError as error:
        raise damaged(path, error, then) from None


def read_json(path: Path, then: str) -> Any:
    """The value of a JSON file.

    Raises:
        UserError: see `read_text`.
    """
    try:
        return parse_json(read_text(path, then))
    except ValueError as error:
        raise damaged(path, error, then) from None


def read_object(path: Path, then: str) -> dict[str, Any]:
    """`read_json`, of an object alone."""
    return _object(read_json(path, then), path, then)


def read_jsonl(path: Path, then: str) -> list[Line]:
    """The objects of a log with one a line; [] where there is no such file. Half a last line, which
    a kill leaves, is passed over.

    Raises:
        UserError: see `read_text`.
    """
    # not splitlines: an answer may hold a character that it takes for a line end
    *lines, _ = read_text(path, then, a_log=True).split("\n")
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            value = parse_json(line)
            if not isinstance(value, dict):
                raise ValueError("no JSON object")
        except ValueError as error:
            raise damaged(path, f"line {number}: {error}", then) from None
        found.append(Line(number, value))
    return found


def read_csv(path: Path, then: str, complete: bool = False) -> tuple[list[str], list[Line]]:
    """Header and rows of a CSV, every row as long as the header, which names no column twice; ([],
    []) for an empty file.

    Args:
        complete: False for a log, which may not be there yet, and whose last row a kill may have
            cut short: it is passed over. Else a last line without its end is damage: 1 may be all
            that is left of 16.

    Raises:
        UserError: see `read_text`.
    """
    text = read_text(path, then, a_log=not complete)
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise damaged(path, f"line {line} holds a NUL character", then)
    reader = csv.reader(io.StringIO(text, newline=""), strict=complete)
    try:
        header, *rows = [Line(reader.line_num, row) for row in reader if row] or [Line(1, [])]
    except csv.Error as error:
        raise damaged(path, f"line {reader.line_num}: {error}", then) from None
    twice = [name for name in header.value if header.value.count(name) > 1]
    if twice:
        raise damaged(path, f"two columns are called {twice[0][:40]!r}", then)
    width = len(header.value)
    if rows and not complete and len(rows[-1].value) != width:
        rows.pop()
    for row in rows:
        if len(row.value) != width:
            why = f"line {row.number} has {len(row.value)} cells instead of {width}"
            raise damaged(path, why, then)
    if complete and text and text[-1] not in "\r\n":
        raise damaged(path, "its last line has no end and may be cut short", then)
    return header.value, rows


def read_yaml(path: Path, then: str) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        UserError: see `read_text`.
    """
    try:
        return _object(parse_yaml(read_text(path, then)), path, then)
    except ValueError as error:
        raise damaged(path, error, then) from None


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """The text of a CSV with these rows, its header among them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


# --- texts ----------------------------------------------------------------------------------------


def decoded(content: bytes) -> str:
    """UTF-8 as text.

    Raises:
        ValueError: it is none, with line and byte.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise ValueError(f"line {line} is not UTF-8 text (byte 0x{byte:02x})") from None


def parse_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is none, or beyond what Python reads, in plain words.
    """
    try:
        return json.loads(text, parse_int=_whole, object_pairs_hook=_once_each)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, " if "\n" in text.strip() else ""
        raise ValueError(f"no JSON ({where}character {error.colno}: {error.msg})") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:40]!r} occurs twice")
        found[key] = value
    return found


def _whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # beyond what Python converts
        raise ValueError(f"a number of {len(digits.lstrip('-'))} digits") from None


class _EachKeyOnce(yaml.SafeLoader):
    """YAML's own loader takes the last of two values silently."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set[tuple[str, str]]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (its := (key.tag, key.value)) in seen:
                    where = f"line {key.start_mark.line + 1}"
                    raise ValueError(f"the key {key.value[:40]!r} occurs twice ({where})")
                seen.add(its)
        return node


def parse_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        ValueError: as `parse_json`.
    """
    try:
        loader = _EachKeyOnce(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (yaml.YAMLError, ValueError, LookupError) as error:  # also a 30th of February
        raise ValueError(" ".join(str(error).split())) from None


def _object(value: Any, path: Path, then: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise damaged(path, f"a mapping is needed, not {type(value).__name__}", then)
    return value
