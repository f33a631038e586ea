"""Where questions are read from: tasks that make them, JSONL files, hub data sets.

Every source yields rows with `id`, `problem`, `answer` and perhaps `level`, whatever its own
columns are called, and says in a line what it left out. A row without an id has its number as one.
"""

from __future__ import annotations

import gzip
import json
import logging
import random
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from lens_ref import tasks
from lens_ref.core._checks import nearest
from lens_ref.rlvr.data_config import ColumnsConfig, SourceConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.verifier import extract_boxed

UNKNOWN = " "
"""An answer that can't be verified: the question is dropped with the unparsable ones."""
USUAL_COUNT = 1000
"""Questions that a task makes where nobody says how many."""
HUB_BATCH = 1000
"""Rows decoded at once; one by one takes many times as long."""
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_NOT_ANSWERS = {"", "proof", "notfound"}
_SPACING = re.compile(
    r"\\(?:[][(),;:!> ]|(?:q?quad|(?:neg)?(?:thin|med|thick)space|enspace|left|right)(?![A-Za-z]))"
    r"|[~\s$]"
)
_FRACTION = r"\\[dt]?(?:frac|binom)(?![A-Za-z])\s*"
_GROUP = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_UNBRACED = re.compile(rf"({_FRACTION}(?:{_GROUP}\s*)?)(\\[A-Za-z]+|[^{{}}\\\s])")
"""The first or second argument of a fraction that is written without braces."""
_BOUNDARY = re.compile(r"(?<=\})\{|(?<=\d)[{}]+(?=\d)")
_PUNCTUATION = re.compile(r"[.,:;](?!\d)")


@dataclass(frozen=True)
class Row:
    """A row as its source has it, and where it stands, for error messages."""

    values: dict[str, Any]
    where: str


def bare(problem: str) -> str:
    """The problem without white space, LaTeX spacing, marks of formulas, braces, backslashes and
    punctuation (a decimal point stays): copies of a problem differ in those. A brace between two
    arguments or two digits leaves a mark: 1/23 is not 12/3, and \\frac12 is \\frac{1}{2}."""
    for _ in range(2):
        problem = _UNBRACED.sub(r"\1{\2}", problem)
    marked = _BOUNDARY.sub("\0", _SPACING.sub("", problem))
    return _PUNCTUATION.sub("", re.sub(r"[{}\\]", "", marked))


def read(
    source: SourceConfig,
    *,
    count: int | None = None,
    seed: int = 0,
    tested: Iterable[str] = (),
    notes: list[str] | None = None,
) -> Iterator[Row]:
    """The rows of a source, after `unique`, `expect`, `where` and `sample`, in that order.

    Args:
        count: how many questions a task makes, where the source is one.
        seed: of the task.
        tested: problems of the test set, for "not_in_test".
        notes: a line is added for everything that is left out.

    Raises:
        UserError: no such data, a missing column, another number of rows than expected.
    """
    notes = [] if notes is None else notes
    raw = enumerate(_raw(source, count, seed))
    rows = (Row({**row.values, "id": _id(row.values, number)}, row.where) for number, row in raw)
    if source.unique and source.columns.id is not None:
        rows = _unique(rows, source.columns.id, source, notes)
    rows = _mapped(rows, source, notes)
    if source.expect is not None:
        rows = _expected(rows, source)
    for name in source.where:
        rows = _kept(rows, _filter(name, tested), name, source, notes)
    return rows if source.sample is None else iter(_sample(list(rows), source, notes))


# --- rows as they stand ---------------------------------------------------------------------------


def _raw(source: SourceConfig, count: int | None, seed: int) -> Iterator[Row]:
    name = source.source
    if name in tasks.names():
        yield from _made(name, source.split, count or USUAL_COUNT, seed)
    elif _exists(name) or name.endswith((".jsonl", ".jsonl.gz", ".json")):
        yield from _jsonl(Path(name))
    elif "/" not in name:
        hint = nearest(name, tasks.names())
        raise UserError(
            f"no data {name!r}: {hint}, a .jsonl or .jsonl.gz file, a hub id owner/name"
        )
    elif name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise UserError(f"no data file {name} (a hub id looks like owner/name)")
    else:
        yield from _hub(source)


def _made(task: str, split: str, count: int, seed: int) -> Iterator[Row]:
    try:
        made = list(islice(tasks.rows(task, split, count, seed), count))
    except ValueError as error:
        told = f"data.{split}_questions; in an evaluation --questions"
        raise UserError(f"{error} ({told})") from None
    except Exception as error:  # code of the user's own may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"the task {task} fails: {reason} (--debug shows where)") from error
    for row in made:
        if not isinstance(row, dict):
            raise UserError(f"{task}: a row must be a dictionary with problem and answer")
        yield Row(row, task)


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # no name that a file could have
        return False


def _id(values: dict[str, Any], number: int) -> Any:
    given = values.get("id")
    return number if given is None else given


def _jsonl(path: Path) -> Iterator[Row]:
    if not _exists(str(path)) or not path.is_file():
        raise UserError(f"no data file {path}")
    opener = gzip.open if path.suffix == ".gz" else open
    number = 0
    try:
        # bytes that are no UTF-8 become lone surrogates, so that their line can be named
        with opener(path, "rt", encoding="utf-8-sig", errors="surrogateescape") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _row(line, f"{path}, line {number}")
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read {path} beyond line {number}: {error}") from None


def _row(line: str, where: str) -> Row:
    foreign = _NOT_UTF8.search(line)
    if foreign is not None:
        byte = ord(foreign[0]) - 0xDC00
        raise UserError(f"{where} is not UTF-8 text (byte 0x{byte:02x}); save the file as UTF-8")
    try:
        row = json.loads(line, object_pairs_hook=_no_name_twice, parse_int=_whole)
    except RecursionError:
        raise UserError(f"{where} is not valid JSON: it is nested too deeply") from None
    except ValueError as error:
        reason = getattr(error, "msg", None) or str(error)
        raise UserError(f"{where} is not valid JSON: {reason}") from None
    if not isinstance(row, dict):
        raise UserError(f"{where} must be a JSON object with problem and answer, one a line")
    return Row(row, where)


def _whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # beyond what Python converts
        length = len(digits.lstrip("-"))
        raise ValueError(f"a number of {length} digits; write it as text, in quotes") from None


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return row


def _hub(source: SourceConfig) -> Iterator[Row]:
    import datasets

    logging.getLogger("datasets").setLevel(logging.ERROR)  # the import has set it to WARNING
    name = source.source
    try:
        data = datasets.load_dataset(
            name, source.config, split=source.split, revision=source.revision
        )
    except Exception as error:  # the hub client raises many kinds; each means no data
        reason = " ".join(str(error).split())[:200]
        gated = "; ask for access on its page and log in with `hf auth login`, or"
        raise UserError(
            f"cannot load the data set {name!r} from the hub ({type(error).__name__}: {reason})"
            f"{gated if 'gated' in reason else ';'} name a local file, FILE.jsonl, in its place"
        ) from error
    number = 0
    for batch in data.iter(batch_size=HUB_BATCH):
        for cells in zip(*batch.values(), strict=True):
            row = dict(zip(batch, cells, strict=True))
            yield Row(_from_hub(row), f"{name}, row {number}")
            number += 1


def _from_hub(row: dict[str, Any]) -> dict[str, Any]:
    """The usual hub columns as problem and answer: a worked solution ends in a box (MATH) or in
    `#### answer` (GSM8K)."""
    row.setdefault("problem", row.get("question"))
    row.setdefault("subject", row.get("type"))
    if "solution" in row and "answer" not in row:
        # MATH has two solutions with nothing in the box: no fault that a user could mend
        row["answer"] = extract_boxed(str(row["solution"])) or UNKNOWN
    elif "####" in str(row.get("answer")):
        row["answer"] = str(row["answer"]).rsplit("####", 1)[1].strip().replace(",", "")
    return row


# --- columns --------------------------------------------------------------------------------------


def _mapped(rows: Iterator[Row], source: SourceConfig, notes: list[str]) -> Iterator[Row]:
    columns, total, unwrapped = source.columns, 0, 0
    if columns == ColumnsConfig():
        yield from rows
        return
    for row in rows:
        values = dict(row.values)
        for key in ("problem", "answer", "id", "level"):
            path = getattr(columns, key)
            if path is not None:
                values[key] = _cell(row, path)
        problem = values.get("problem")
        if isinstance(problem, list):
            problem = _user_text(problem)
        if isinstance(problem, str) and (columns.prefix or columns.suffix):
            text = problem.strip()
            head, tail = columns.prefix.strip(), columns.suffix.strip()
            unwrapped += not (text.startswith(head) and text.endswith(tail))
            problem = text.removeprefix(head).removesuffix(tail).strip()
        total += 1
        yield Row({**values, "problem": problem}, row.where)
    if unwrapped:
        notes.append(
            f"{source.source}: {unwrapped} of {total} problems do not stand between columns.prefix "
            "and columns.suffix; they are used as they are"
        )


def _cell(row: Row, path: str) -> Any:
    value: Any = row.values
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            raise UserError(f"{row.where}: no column {path!r}")
        value = value[part]
    return value


def _user_text(messages: list[Any]) -> Any:
    """What the user says in a chat."""
    said = [m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"]
    return said[0] if said else None


# --- which rows -----------------------------------------------------------------------------------


def _unique(
    rows: Iterator[Row], column: str, source: SourceConfig, notes: list[str]
) -> Iterator[Row]:
    seen, total = set[str](), 0
    try:
        for row in rows:
            total += 1
            identity = str(_cell(row, column))
            if identity not in seen:
                seen.add(identity)
                yield row
    finally:  # a limit may end it
        notes.append(f"{source.source}: unique leaves out {total - len(seen)} of {total} rows")


def _expected(rows: Iterator[Row], source: SourceConfig) -> Iterator[Row]:
    number = 0
    for row in rows:
        number += 1
        yield row
    if number != source.expect:
        raise UserError(
            f"{source.source}: {number} rows instead of the {source.expect} that data says to "
            "expect; is it another version of the data? Correct `revision` or `expect`"
        )


def _filter(name: str, tested: Iterable[str]) -> Callable[[dict[str, Any]], bool]:
    if name == "verifiable":
        return _verifiable
    problems = {bare(problem) for problem in tested}
    return lambda row: bare(str(row.get("problem"))) not in problems


def _verifiable(row: dict[str, Any]) -> bool:
    """An answer to check, as NuminaMath-1.5 says it: some proofs are known by their type, others by
    their answer alone."""
    answer = str(row.get("answer") or "").strip().lower()
    valid = all(
        row.get(flag) in (None, "Yes") for flag in ("problem_is_valid", "solution_is_valid")
    )
    return answer not in _NOT_ANSWERS and row.get("question_type") != "proof" and valid


def _kept(
    rows: Iterator[Row],
    keep: Callable[[dict[str, Any]], bool],
    name: str,
    source: SourceConfig,
    notes: list[str],
) -> Iterator[Row]:
    total = dropped = 0
    try:
        for row in rows:
            total += 1
            if keep(row.values):
                yield row
            else:
                dropped += 1
    finally:  # a limit may end it
        notes.append(f"{source.source}: {name} leaves out {dropped} of {total} questions")


def _sample(rows: list[Row], source: SourceConfig, notes: list[str]) -> list[Row]:
    """`sample` rows without replacement, in their own order. `Random.random` is the one part of
    Python's generator whose numbers are promised to stay the same."""
    size = source.sample
    if size is None or size > len(rows):
        raise UserError(f"{source.source}: {len(rows)} rows are too few for a sample of {size}")
    notes.append(f"{source.source}: sample takes {size} of {len(rows)} questions")
    generator = random.Random(source.seed)  # noqa: S311
    keys = [generator.random() for _ in rows]
    return [rows[i] for i in sorted(sorted(range(len(rows)), key=keys.__getitem__)[:size])]
