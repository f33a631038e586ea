"""Questions with verifiable answers: the bundled task, a JSONL file, or a hub data set.

Golds are parsed when data is loaded. One that can't be parsed would mark every answer to its
question wrong for ever: GRPO would ignore such a question, LENS would train on it. So those
questions are dropped, and counted.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lens_ref.core._checks import nearest
from lens_ref.rlvr.errors import UserError
from lens_ref.verifier import Verifier, extract_boxed


@dataclass(frozen=True)
class Question:
    """A problem and the answer that a response must box."""

    id: str
    problem: str
    answer: str
    level: int | None = None  # difficulty, 1 = easiest


@dataclass(frozen=True)
class Questions:
    """A set of questions, where it came from, and what was dropped on the way."""

    source: str
    items: tuple[Question, ...]
    unparsable: tuple[str, ...] = ()  # ids of dropped questions

    def __len__(self) -> int:
        return len(self.items)

    @property
    def sha256(self) -> str:
        """A hash of ids, problems and answers, for the manifest."""
        digest = hashlib.sha256()
        for q in self.items:
            digest.update(json.dumps([q.id, q.problem, q.answer]).encode())
        return digest.hexdigest()


def load_questions(
    source: str,
    verifier: Verifier,
    *,
    limit: int | None = None,
    split: str = "train",
    revision: str | None = None,
    seed: int = 0,
) -> Questions:
    """Load questions and drop those whose gold can't be parsed.

    Args:
        source: "tiny", a path to .jsonl or .jsonl.gz (rows with `problem`, `answer` and optionally
            `level` and `id`), or the id of a hub data set with those columns.
        verifier: parses the golds.
        limit: use the first so many (of the bundled task: generate so many).
        split: "train" or "test" of the bundled task; the split of a hub data set.
        revision: of a hub data set.
        seed: of the bundled task's training questions.

    Raises:
        UserError: no such data, a broken line (with its number), a row without problem or answer,
            no usable question.
    """
    rows = _rows(source, limit, split, revision, seed)
    questions: list[Question] = []
    seen: set[str] = set()
    for number, (row, where) in enumerate(rows):
        if limit is not None and number >= limit:
            break
        question = _question(row, where, str(number))
        if question.id in seen:
            raise UserError(f"{where}: the id {question.id!r} occurs twice")
        seen.add(question.id)
        questions.append(question)
    parsable = verifier.check_golds([question.answer for question in questions])
    kept = tuple(q for q, ok in zip(questions, parsable, strict=True) if ok)
    dropped = tuple(q.id for q, ok in zip(questions, parsable, strict=True) if not ok)
    if not kept:
        raise UserError(f"{source}: no question whose answer can be verified")
    return Questions(source, kept, dropped)


def _rows(
    source: str, limit: int | None, split: str, revision: str | None, seed: int
) -> Iterator[tuple[dict[str, Any], str]]:
    if source == "tiny":
        from lens_ref.tiny.task import test_rows, train_rows

        count = limit or 1000
        try:
            rows = train_rows(count, seed) if split == "train" else test_rows(count)
        except ValueError as error:
            raise UserError(f"{error} (data.{split}_questions)") from None
        yield from ((row, "tiny") for row in rows)
    elif Path(source).exists() or source.endswith((".jsonl", ".jsonl.gz", ".json")):
        yield from _jsonl(Path(source))
    elif "/" not in source:
        hint = nearest(source, ["tiny"])
        raise UserError(
            f"no data {source!r}: {hint}, a .jsonl or .jsonl.gz file, a hub id owner/name"
        )
    elif source.startswith((".", "/", "~")) or source.count("/") != 1:
        raise UserError(f"no data file {source} (a hub id looks like owner/name)")
    else:
        yield from _hub(source, split, revision)


def _jsonl(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    if not path.is_file():
        raise UserError(f"no data file {path}")
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                where = f"{path}, line {number}"
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:  # also endless digits or nesting
                    reason = getattr(error, "msg", None) or str(error)
                    raise UserError(f"{where} is not valid JSON: {reason}") from None
                if not isinstance(row, dict):
                    raise UserError(f"{where} must be a JSON object with problem and answer")
                yield row, where
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise UserError(f"cannot read {path}: {error}") from None


def _hub(source: str, split: str, revision: str | None) -> Iterator[tuple[dict[str, Any], str]]:
    import datasets

    logging.getLogger("datasets").setLevel(logging.ERROR)  # the import has set it to WARNING
    try:
        rows = datasets.load_dataset(source, split=split, revision=revision)
    except Exception as error:  # the hub client raises many kinds; each means no data
        raise UserError(
            f"cannot load the data set {source!r} from the hub "
            f"({type(error).__name__}); give a local file with --data FILE.jsonl"
        ) from error
    for number, row in enumerate(rows):
        yield _from_hub(dict(row)), f"{source}, row {number}"


def _from_hub(row: dict[str, Any]) -> dict[str, Any]:
    """The usual hub columns as problem and answer: a worked solution ends in a box (MATH) or in
    `#### answer` (GSM8K)."""
    row.setdefault("problem", row.get("question"))
    if "solution" in row and "answer" not in row:
        row["answer"] = extract_boxed(str(row["solution"]))
    elif "####" in str(row.get("answer")):
        row["answer"] = str(row["answer"]).rsplit("####", 1)[1].strip().replace(",", "")
    return row


def _question(row: dict[str, Any], where: str, fallback_id: str) -> Question:
    for key in ("problem", "answer"):
        value = row.get(key)
        if not isinstance(value, str | int | float) or isinstance(value, bool) or value == "":
            raise UserError(f"{where}: a row needs a non-empty {key!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{where}: {key!r} must be text or a finite number, not {value}")
    identity = " ".join(str(row.get("id", fallback_id)).split())  # one line in every log
    return Question(identity, str(row["problem"]), str(row["answer"]), _level(row, where))


def _level(row: dict[str, Any], where: str) -> int | None:
    """3, "3" or "Level 3"; None where absent or unknown ("Level ?")."""
    value = row.get("level")
    text = str(value).removeprefix("Level ").strip()
    if value is None or text == "?":
        return None
    if isinstance(value, bool) or not text.isdecimal():
        raise UserError(f"{where}: 'level' must be a whole number, not {value!r}")
    return int(text)
