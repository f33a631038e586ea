"""Questions with verifiable answers, from one source or several.

Golds are parsed when data is loaded. One that can't be parsed would mark every answer to its
question wrong for ever: GRPO would ignore such a question, LENS would train on it. So those
questions are dropped, and counted.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import reprlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from lens_ref import tasks as registered
from lens_ref.rlvr import sources
from lens_ref.rlvr.data_config import SourceConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.untrusted import one_line
from lens_ref.verifier import Verifier

LONGEST_ID, LONGEST_LEVEL = 1000, 9  # characters
SHOWN = 5  # names of columns in a message


@dataclass(frozen=True)
class Question:
    """A problem and the answer that a response must box."""

    id: str
    problem: str
    answer: str
    level: int | None = None  # difficulty, 1 = easiest
    subject: str | None = None  # "Algebra", …


@dataclass(frozen=True)
class Questions:
    """A set of questions, where it came from, and what was dropped on the way."""

    source: str
    items: tuple[Question, ...]
    unparsable: tuple[str, ...] = ()  # ids of dropped questions
    notes: tuple[str, ...] = ()  # a line for everything else that was left out
    places: tuple[str, ...] = ()  # of the items in their source ("q.jsonl, line 3"), if known

    def __len__(self) -> int:
        return len(self.items)

    @property
    def sha256(self) -> str:
        """Their `digest`, for the manifest."""
        return digest(self.items)

    def lines(self) -> list[str]:
        """What was left out, and what is odd about the rest, for the console."""
        if not self.unparsable:
            return list(self.notes)
        dropped, shown = len(self.unparsable), ", ".join(self.unparsable[:3])
        return [
            *self.notes,
            f"{self.source}: dropped {dropped} of {dropped + len(self)} questions whose answer "
            f"can't be parsed ({shown}{' …' if dropped > 3 else ''})",
        ]

    def place(self, i: int) -> str:
        """Item i and where it stands, for messages."""
        where = f"{self.places[i]}: " if self.places else ""
        return f"{where}question {self.items[i].id!r}"

    def describe(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "source": self.source,
            "questions": len(self),
            "dropped_unparsable": len(self.unparsable),
            "notes": list(self.notes),
            "sha256": self.sha256,
        }


def digest(questions: Iterable[Question]) -> str:
    """A hash of ids, problems and answers."""
    found = hashlib.sha256()
    for q in questions:
        found.update(json.dumps([q.id, q.problem, q.answer]).encode())
    return found.hexdigest()


def load_questions(
    source: str | SourceConfig | tuple[SourceConfig, ...],
    verifier: Verifier,
    *,
    limit: int | None = None,
    split: str = "train",
    revision: str | None = None,
    seed: int = 0,
    test: Questions | None = None,
) -> Questions:
    """Load questions and drop those whose gold can't be parsed.

    Args:
        source: a registered task ("tiny"), a path to .jsonl or .jsonl.gz (rows with `problem`,
            `answer` and optionally `level`, `subject` and `id`), the id of a hub data set with
            those columns, a description of a source, or several of these, whose ids then begin
            with the source's name.
        verifier: parses the golds.
        limit: use the first so many (of a task: make so many).
        split: "train" or "test" of a task; the split of a hub data set named by its id.
        revision: of a hub data set named by its id.
        seed: of a task's training questions.
        test: the test set, for sources that leave its questions out.

    Raises:
        UserError: no such data, a broken line (with its number), a row without problem or answer,
            another number of rows than a source expects, no usable question.
    """
    if isinstance(source, str):
        source = SourceConfig(source, split=split, revision=revision)
    parts = source if isinstance(source, tuple) else (source,)
    names = _names(parts)
    tested = [question.problem for question in test.items] if test is not None else []
    notes: list[str] = []
    questions: list[Question] = []
    places: list[str] = []
    seen: set[str] = set()
    rows = (
        (f"{name}/" if len(parts) > 1 else "", row)
        for part, name in zip(parts, names, strict=True)
        for row in sources.read(part, count=limit, seed=seed, tested=tested, notes=notes)
    )
    subjects = 0
    for prefix, row in islice(rows, limit):
        question = question_of(row.values, row.where, prefix)
        if question.id in seen:
            raise UserError(f"{row.where}: the id {question.id!r} occurs twice")
        seen.add(question.id)
        questions.append(question)
        places.append(row.where)
        subjects += question.subject is None and row.values.get("subject") not in (None, "")
    rows.close()  # so that what was left out up to a limit is counted
    label = " + ".join(part.source for part in parts)
    if len(questions) == limit and label not in registered.names():
        notes.append(f"{label}: only the first {limit} questions are read, as the settings say")
    if subjects:
        notes.append(f"{label}: subjects that are no text are left out: {subjects}")
    if not questions:
        raise UserError(f"{label}: no questions")
    parsable = verifier.check_golds([question.answer for question in questions])
    kept = tuple(q for q, ok in zip(questions, parsable, strict=True) if ok)
    dropped = tuple(q.id for q, ok in zip(questions, parsable, strict=True) if not ok)
    if not kept:
        raise UserError(f"{label}: no question whose answer can be verified")
    notes += [f"{label}: {note}" for note in _repetitions(kept, verifier)]
    where = tuple(place for place, ok in zip(places, parsable, strict=True) if ok)
    return Questions(label, kept, dropped, tuple(notes), where)


def common_ids(train: Questions, test: Questions) -> tuple[str, ...]:
    """Ids of the test questions that are also trained on, up to spacing and punctuation."""
    trained = {sources.bare(q.problem) for q in train.items}
    return tuple(
        question.id for question in test.items if sources.bare(question.problem) in trained
    )


def check_disjoint(train: Questions, test: Questions) -> None:
    """Refuse a test question that is also trained on.

    Raises:
        UserError: with the number of common problems and one id.
    """
    common = common_ids(train, test)
    if common:
        raise UserError(
            f"{len(common)} of {len(test)} test questions are also training questions "
            f"(for example {common[0]!r}); leave them out of a source of data.train with "
            "where: [not_in_test], or accept them with data.overlap=report"
        )


def _repetitions(questions: Sequence[Question], verifier: Verifier) -> list[str]:
    """What to say of problems that occur more than once, up to spacing and punctuation, and of
    those among them whose answers are not the same: at most one of these can be right."""
    groups = defaultdict[str, list[Question]](list)
    for question in questions:
        groups[sources.bare(question.problem) or question.problem].append(question)
    pairs = [(first, other) for first, *others in groups.values() for other in others]
    if not pairs:
        return []
    told = [
        f"questions that repeat the problem of another one, and are kept: {len(pairs)} (for "
        f"example {_ids(*pairs[0])})"
    ]
    differing = [(a, b) for a, b in pairs if a.answer.strip() != b.answer.strip()]
    verdicts = verifier.grade(
        [a.answer for a, _ in differing], [f"\\boxed{{{b.answer}}}" for _, b in differing]
    )
    bad = [pair for pair, v in zip(differing, verdicts, strict=True) if v.reason == "wrong"]
    if bad:
        told.append(
            f"{len(bad)} of them contradict the answer that stands there first (for example "
            f"{_ids(*bad[0])}): one of the two is wrong; mend or leave out these questions"
        )
    return told


def _ids(one: Question, other: Question) -> str:
    return f"{one.id!r} and {other.id!r}"


def _names(parts: tuple[SourceConfig, ...]) -> list[str]:
    """A short name a source, numbered where two would share one."""
    names = [short_name(part.source) for part in parts]
    return [f"{n}-{i}" if names.count(n) > 1 else n for i, n in enumerate(names, start=1)]


def short_name(source: str) -> str:
    """The name of a file without its ending, or what a hub id ends in."""
    return re.sub(r"\.jsonl?(\.gz)?$", "", Path(source).name)


def question_of(row: dict[str, Any], where: str, prefix: str = "") -> Question:
    """The question of a row, its id with a prefix.

    Raises:
        UserError: no problem or answer, or a cell that can't be one.
    """
    problem, answer = problem_of(row, where), _text_of(row, "answer", where)
    try:
        str(row.get("subject")).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: text that is not valid Unicode: {error.reason}") from None
    return Question(
        prefix + id_of(row, where),
        problem,
        answer,
        level_of(row, where),
        _subject(row),
    )


def id_of(row: dict[str, Any], where: str) -> str:
    """A row's id as one line: it is in every log.

    Raises:
        UserError: nothing of it can be seen, or too much.
    """
    try:
        str(row["id"]).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: an id that is not valid Unicode: {error.reason}") from None
    identity = one_line(row["id"])
    if not 0 < len(identity) <= LONGEST_ID:
        raise UserError(f"{where}: an id has 1 to {LONGEST_ID} characters, not {len(identity)}")
    return identity


def problem_of(row: dict[str, Any], where: str) -> str:
    """The text of a row's problem; a number is text too.

    Raises:
        UserError: there is none, or nothing of it can be seen.
    """
    text = _text_of(row, "problem", where)
    if not any(letter.isprintable() and not letter.isspace() for letter in text):
        raise UserError(f"{where}: 'problem' holds nothing but white space")
    return text


def _text_of(row: dict[str, Any], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str | int | float) or isinstance(value, bool) or value == "":
        raise UserError(f"{where}: a row needs a non-empty {key!r}{_columns(row, key)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where}: {key!r} must be text or a finite number, not {value}")
    try:
        str(value).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: text that is not valid Unicode: {error.reason}") from None
    return str(value)


def _columns(row: dict[str, Any], missing: str) -> str:
    """A hint to a column of another name."""
    names = [reprlib.repr(name) for name in row if name not in ("id", "problem", "answer")]
    if row.get(missing) is not None or not names:
        return ""
    more = " …" if len(names) > SHOWN else ""
    return f"; if it is in {', '.join(names[:SHOWN])}{more}, say so with columns.{missing}"


def level_of(row: dict[str, Any], where: str) -> int | None:
    """3, "3" or "Level 3"; None where absent, empty or unknown ("Level ?")."""
    value = row.get("level")
    if isinstance(value, float) and value.is_integer():  # a column with gaps
        value = int(value)
    text = str(value).removeprefix("Level ").strip()
    if value is None or text in ("", "?"):
        return None
    if isinstance(value, bool) or not text.isdecimal() or len(text) > LONGEST_LEVEL:
        raise UserError(f"{where}: 'level' must be a whole number, not {reprlib.repr(value)}")
    return int(text)


def _subject(row: dict[str, Any]) -> str | None:
    """In one line; None where absent or no text."""
    value = row.get("subject")
    return one_line(value) or None if isinstance(value, str) else None
