"""Data files as people break them, and what is promised of each: a line that says what is wrong and
where, or a set of questions in which every row of the file is accounted for."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from lens_ref.rlvr import session
from lens_ref.rlvr.config import load
from lens_ref.rlvr.console import PlainConsole
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.tasks import Questions
from lens_ref.verifier import Verifier

Row = dict[str, Any]
LONGEST_MESSAGE = 1500  # characters, paths included


@dataclass(frozen=True)
class Broken:
    """A file, and what was done to it."""

    suffix: str
    content: bytes
    what: tuple[str, ...]

    def write(self, folder: Path, name: str) -> Path:
        path = folder / (name + self.suffix)
        path.write_bytes(self.content)
        return path

    def __repr__(self) -> str:
        return f"Broken({self.suffix}, {len(self.content)} bytes, {', '.join(self.what)})"


# --- rows -----------------------------------------------------------------------------------------


def good(n: int) -> Row:
    return {"problem": f"What is {n} + 1?", "answer": str(n + 1), "level": n % 5 + 1}


ODD_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 7, 3.0, 1.5, 1e308, 10**300, float("nan"), float("inf")),
    *("", " ", "\t\n", "\u200b", "\x00", "\x1b[2J", "\u202e", "½ ⅓ é 漢字 🙂", "\ud800"),
    *([], ["2"], {}, {"text": "2"}, [{"role": "user", "content": "What?"}], [[[[]]]]),
    *("x" * 20_000, "9" * 5000, "<script>", "=1+1", "level 3", "Level ?", "Level 4", "²", "٣"),
]
ODD_GOLDS = [
    *(r"\frac{1}{", r"\frac{", " ", "∎", "proof", "{" * 1000, "9" * 5000, "10^{10^{10}}", "!" * 99),
    *(r"\boxed{}", r"\boxed{\boxed{3}}", "1,2,3", "(1,2]", "x = ", "\\", "$", "None", "nan", "1/0"),
]
OTHER_NAMES = ["question", "Problem", "prompt", "problem ", "gold", "solution", "Answer"]
RAW_LINES = [
    *("null", "[]", "42", '"text"', "{", "}", "{}", "NaN", "// note", "problem,answer", "", "   "),
    *('{"problem": "a", "problem": "b", "answer": "1"}', "[" * 100_000, '{"problem": 1e999}'),
    *('{"problem": "p", "answer": ' + "9" * 5000 + "}", "{'problem': 'a', 'answer': '1'}"),
    *('{"problem": "a", "answer": "1"},', '{"problem": "\\ud83d", "answer": "1"}', "\x0c", "\x1c"),
    '{"problem": "a", "answer": "1"} {"problem": "b", "answer": "2"}',
]


MILD = ["gold", "again", "contradicts"]  # such a file loads
CHANGES = [*MILD, "missing", "renamed", "type", "raw", "ids", "nested"]


@st.composite
def _changed(draw: st.DrawFn, rows: list[Any], what: list[str], kinds: list[str]) -> None:
    i = draw(st.integers(0, len(rows) - 1))
    row = rows[i] if isinstance(rows[i], dict) else good(i)
    kind = draw(st.sampled_from(kinds))
    what.append(kind)
    if kind == "missing":
        rows[i] = {
            k: v for k, v in row.items() if k != draw(st.sampled_from(["problem", "answer"]))
        }
    elif kind == "renamed":
        key = draw(st.sampled_from(["problem", "answer"]))
        other = draw(st.sampled_from(OTHER_NAMES))
        rows[i] = {other if k == key else k: v for k, v in row.items()}
    elif kind == "type":
        key = draw(st.sampled_from(["problem", "answer", "level", "id", "subject"]))
        rows[i] = {**row, key: draw(st.sampled_from(ODD_VALUES))}
    elif kind == "gold":
        rows[i] = {**row, "answer": draw(st.sampled_from(ODD_GOLDS))}
    elif kind == "again":
        rows.insert(draw(st.integers(0, len(rows))), dict(row))
    elif kind == "contradicts":
        rows.append({**row, "answer": "-77"})
    elif kind == "raw":
        rows.insert(i, draw(st.sampled_from(RAW_LINES)))
    elif kind == "ids":
        rows[i] = {**row, "id": draw(st.sampled_from(["a", 0, 1, "", " ", "x" * 5000, None, "é"]))}
    else:
        rows[i] = {"data": row, "answer": row.get("answer", "1")}


# --- the file -------------------------------------------------------------------------------------


def _text(rows: list[Any]) -> str:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    return "".join(line + "\n" for line in lines)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _cut(packed: bytes) -> bytes:
    return packed[: len(packed) * 2 // 3]


def _damaged(packed: bytes) -> bytes:
    middle = len(packed) // 2
    return packed[:middle] + bytes(255 - b for b in packed[middle : middle + 9]) + packed[middle:]


def _half_latin(text: str) -> bytes:
    extra = json.dumps({"problem": "Was ist ½ + ½?", "answer": "1"}, ensure_ascii=False) + "\n"
    return _utf8(text + extra) + extra.encode("latin-1")


FORMS: dict[str, tuple[str, Any]] = {
    "plain": (".jsonl", _utf8),
    "byte-order mark": (".jsonl", lambda t: b"\xef\xbb\xbf" + _utf8(t)),
    "CRLF": (".jsonl", lambda t: _utf8(t.replace("\n", "\r\n"))),
    "CR": (".jsonl", lambda t: _utf8(t.replace("\n", "\r"))),
    "no last line end": (".jsonl", lambda t: _utf8(t.rstrip("\n"))),
    "UTF-16": (".jsonl", lambda t: t.encode("utf-16", "surrogatepass")),
    "UTF-16 without a mark": (".jsonl", lambda t: t.encode("utf-16-le", "surrogatepass")),
    "UTF-32": (".jsonl", lambda t: t.encode("utf-32", "surrogatepass")),
    "two encodings": (".jsonl", _half_latin),
    "gzip": (".jsonl.gz", lambda t: gzip.compress(_utf8(t))),
    "gzip cut short": (".jsonl.gz", lambda t: _cut(gzip.compress(_utf8(t)))),
    "gzip damaged": (".jsonl.gz", lambda t: _damaged(gzip.compress(_utf8(t)))),
    "gzip by name alone": (".jsonl.gz", _utf8),
    "gzip under another name": (".jsonl", lambda t: gzip.compress(_utf8(t))),
    "an array": (".json", lambda t: _utf8("[" + ",".join(t.splitlines()) + "]")),
    "an array over lines": (".json", lambda t: _utf8("[\n" + ",\n".join(t.splitlines()) + "\n]")),
    "empty": (".jsonl", lambda t: b""),
    "null bytes": (".jsonl", lambda t: _utf8(t) + b"\x00" * 100),
}


SAME_TEXT = {"plain", "byte-order mark", "CRLF", "CR", "no last line end", "gzip"}


@st.composite
def broken(draw: st.DrawFn) -> Broken:
    """A file of a few good questions after one to three changes of rows and one of its form."""
    rows: list[Any] = [good(n) for n in range(draw(st.integers(1, 6)))]
    what: list[str] = []
    mild = draw(st.booleans())
    for _ in range(draw(st.integers(0, 3))):
        draw(_changed(rows, what, MILD if mild else CHANGES))
    form = draw(st.sampled_from(sorted(SAME_TEXT) if mild else sorted(FORMS)))
    suffix, encode = FORMS[form]
    return Broken(suffix, encode(_text(rows)), (*what, form))


def huge() -> list[Broken]:
    """Lines of ten megabytes: a problem, an answer, a number, a name, nothing but brackets."""
    ten = 10 * 2**20
    lines = {
        "a problem of 10 MB": json.dumps({"problem": "x " * (ten // 2), "answer": "1"}),
        "an answer of 10 MB": json.dumps({"problem": "p", "answer": "1+" * (ten // 2) + "1"}),
        "a number of 10 MB": '{"problem": "p", "answer": ' + "1" * ten + "}",
        "an id of 10 MB": json.dumps({"problem": "p", "answer": "1", "id": "i" * ten}),
        "a level of 10 MB": json.dumps({"problem": "p", "answer": "1", "level": "3" * ten}),
        "a name of 10 MB": json.dumps({"q" * ten: "p", "answer": "1"}),
        "brackets, 10 MB": "[" * ten,
        "spaces, 10 MB": " " * ten,
    }
    rest = _text([good(1), good(2)])
    return [Broken(".jsonl", _utf8(rest + line + "\n"), (what,)) for what, line in lines.items()]


# --- what is promised -----------------------------------------------------------------------------


def judge(train: Path, test: Path | None, overlap: str, verifier: Verifier) -> str:
    """Load the files as a run does; "refused" or "loaded".

    Raises:
        AssertionError: a promise is broken. Any other exception is a traceback that a user sees.
    """
    config = load(
        None,
        {
            "data.train": str(train),
            "data.test": str(test) if test else None,
            "data.train_questions": None,
            "data.test_questions": None,
            "data.overlap": overlap,
        },
    )
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "console", PlainConsole(file=shown, soft_wrap=True))
        try:
            data = session.load_data(config, verifier)
        except UserError as error:
            check_message(str(error), train, test)
            return "refused"
    told = " ".join(shown.getvalue().split())
    for questions, path in ((data.train, train), (data.test, test)):
        if questions is not None and path is not None:
            check_counts(questions, path, told)
    if data.test is not None:
        trained = {question.problem for question in data.train.items}
        if any(question.problem in trained for question in data.test.items):
            assert "are also trained on" in told
    return "loaded"


def check_message(text: str, *paths: Path | None) -> None:
    """One line that says which file, and where in it."""
    assert "\n" not in text
    assert text.isprintable()
    assert len(text) < LONGEST_MESSAGE
    if "test questions are also training questions" in text:
        assert "data.overlap=report" in text
        return
    assert any(str(path) in text for path in paths if path is not None)
    assert re.search(
        r"line \d|no questions|no question whose answer can be verified|no data file", text
    )


def check_counts(questions: Questions, path: Path, told: str) -> None:
    """Every row of the file is used or told of."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    rows = [json.loads(line) for line in re.split(r"\r\n|\r|\n", text) if line.strip()]
    dropped = len(questions.unparsable)
    assert len(questions) + dropped == len(rows)
    assert questions.describe()["dropped_unparsable"] == dropped
    if dropped:
        assert f"dropped {dropped} of {len(rows)} questions" in told
    for question in questions.items:
        assert question.problem.strip("\u200b \t\n")
        assert question.answer.strip()
    assert len({question.id for question in questions.items}) == len(questions)
    answers: dict[str, set[str]] = {}
    for question in questions.items:
        answers.setdefault(question.problem, set()).add(question.answer)
    repeated = Counter(question.problem for question in questions.items).most_common(1)[0][1] > 1
    if repeated:
        assert "repeat the problem of another one, and are kept: " in told
        assert any("repeat the problem" in note for note in questions.describe()["notes"])
    if any("-77" in found and len(found) > 1 for found in answers.values()):
        assert "contradict the answer" in told
