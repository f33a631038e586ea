"""Data files that people break: a line that names file and place, or every row accounted for."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lens_ref import evaluate, train
from lens_ref.rlvr import session
from lens_ref.rlvr.data_config import ColumnsConfig, SourceConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.policy import Policy
from lens_ref.rlvr.prompts import encode_prompts
from lens_ref.rlvr.tasks import Question, Questions, load_questions
from lens_ref.verifier import Verifier
from tests.rlvr.broken_data import Broken, broken, check_message, huge, judge
from tests.rlvr.helpers import ExactVerifier, small_config

PROFILE = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with Verifier(workers=1, timeout=2) as made:
        yield made


@PROFILE
@given(broken(), st.none() | broken(), st.sampled_from(["refuse", "report"]))
def test_every_row_is_used_or_told_of(
    verifier: Verifier, one: Broken, other: Broken | None, overlap: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = one.write(Path(folder), "train")
        test = other.write(Path(folder), "test") if other else None
        judge(path, test, overlap, verifier)


@pytest.mark.slow
@pytest.mark.parametrize("file", huge(), ids=lambda file: file.what[0])
def test_lines_of_ten_megabytes(file: Broken, verifier: Verifier, tmp_path: Path) -> None:
    judge(file.write(tmp_path, "train"), None, "refuse", verifier)


# --- faults that were found -----------------------------------------------------------------------


def load(path: Path) -> Questions:
    return load_questions(str(path), ExactVerifier())


def refused(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        load(path)
    check_message(str(caught.value), path)
    return str(caught.value)


def file(folder: Path, *rows: object) -> Path:
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


GOOD = {"problem": "1+1", "answer": "2"}


@pytest.mark.parametrize("problem", [" ", "\t\n", "\u200b", "\u00a0\ufeff", "\x00"])
def test_a_problem_that_shows_nothing_is_not_trained_on(problem: str, tmp_path: Path) -> None:
    text = refused(file(tmp_path, GOOD, {"problem": problem, "answer": "2"}))
    assert "line 2: 'problem' holds nothing but white space" in text


def test_a_column_of_another_name_is_shown(tmp_path: Path) -> None:
    text = refused(file(tmp_path, {"question": "1+1", "answer": "2"}))
    assert text.endswith(
        "line 1: a row needs a non-empty 'problem'; if it is in 'question', say so with "
        "columns.problem"
    )
    many = {f"column {n}": n for n in range(9)}
    assert "'column 4' …, say so with columns.answer" in refused(
        file(tmp_path, {"problem": "p", **many})
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**GOOD, "level": "9" * 5000}, "line 1: 'level' must be a whole number, not '99"),
        ({**GOOD, "level": -1}, "line 1: 'level' must be a whole number, not -1"),
        ({**GOOD, "id": " "}, "line 1: an id has 1 to 1000 characters, not 0"),
        ({**GOOD, "id": "x" * 1001}, "line 1: an id has 1 to 1000 characters, not 1001"),
    ],
    ids=["endless level", "negative level", "blank id", "endless id"],
)
def test_an_odd_value_is_shown_in_brief(
    row: dict[str, object], message: str, tmp_path: Path
) -> None:
    assert message in refused(file(tmp_path, row))


def test_rows_without_an_id_are_numbered(tmp_path: Path) -> None:
    """A column of ids with gaps: null is no name that two rows could share."""
    found = load(file(tmp_path, {**GOOD, "id": None}, {**GOOD, "id": "b"}, {**GOOD, "id": None}))
    assert [question.id for question in found.items] == ["0", "b", "2"]


def test_a_level_of_a_column_with_gaps(tmp_path: Path) -> None:
    assert load(file(tmp_path, {**GOOD, "level": 3.0})).items[0].level == 3


def test_a_name_twice_in_a_row_is_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"problem": "a", "problem": "b", "answer": "1"}\n')
    assert "line 1 is not valid JSON: a name occurs twice in one object" in refused(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"problem": "½", "answer": "2"}\n'.encode() * 2 + b'{"problem": "\xbd"', "line 3 "),
        (json.dumps(GOOD).encode("utf-16"), "line 1 is not UTF-8 text (byte 0xff)"),
        (b"\x1f\x8b\x08" + b"\x00" * 9, "line 1 is not UTF-8 text (byte 0x8b)"),
    ],
    ids=["Latin-1 in the third line", "UTF-16", "gzip under another name"],
)
def test_text_that_is_not_utf_8_is_named_by_its_line(
    content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "data.jsonl").write_bytes(content)
    assert message in refused(tmp_path / "data.jsonl")


@pytest.mark.parametrize("key", ["problem", "answer", "level"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_that_python_does_not_read_is_a_plain_line(
    key: str, sign: str, tmp_path: Path
) -> None:
    """As text it is read."""
    row = json.dumps({**GOOD, key: 0}).replace(": 0", f": {sign}{'9' * 5000}")
    (tmp_path / "data.jsonl").write_text(json.dumps(GOOD) + "\n" + row + "\n")
    assert refused(tmp_path / "data.jsonl") == (
        f"{tmp_path / 'data.jsonl'}, line 2 is not valid JSON: a number of 5000 digits; write it "
        "as text, in quotes"
    )


def test_endless_brackets_are_a_plain_line(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("[" * 100_000)
    text = refused(tmp_path / "data.jsonl")
    assert text.endswith("line 1 is not valid JSON: it is nested too deeply")


@pytest.mark.parametrize("problem", ["a\x00b", "a\u2028b", "a\x85\x07b", "漢字"])
def test_a_problem_that_the_policy_can_not_read_is_named_by_its_line(
    problem: str, tiny: Policy, tmp_path: Path
) -> None:
    """Lines are those of the file: no character in a text counts as the end of one. A question
    whose answer can't be parsed is left out before."""
    path = file(tmp_path, GOOD, {**GOOD, "answer": " "}, {"problem": problem, "answer": "2"})
    found = load(path)
    assert len(found) == 2
    with pytest.raises(UserError) as caught:
        encode_prompts(tiny, small_config(), found)
    assert str(caught.value) == (
        f"{path}, line 3: question '2': its prompt has no tokens; the tokenizer knows no part of it"
    )


def test_a_name_that_no_file_can_have() -> None:
    for name in ("x" * 5000, "x" * 5000 + ".jsonl", "\x00.jsonl"):
        with pytest.raises(UserError, match="no data"):
            load_questions(name, ExactVerifier())


# --- what is told ---------------------------------------------------------------------------------


def test_repeated_problems_are_told_and_kept(tmp_path: Path) -> None:
    rows = [("Find $x$.", "1"), ("y", "2"), ("Find  x", "1"), ("y", "3")]
    path = file(tmp_path, *({"problem": p, "answer": a} for p, a in rows))
    found = load(path)
    assert len(found) == 4
    assert found.notes == (
        f"{path}: questions that repeat the problem of another one, and are kept: 2 (for example "
        "'0' and '2')",
        f"{path}: 1 of them contradict the answer that stands there first (for example "
        "'1' and '3'): one of the two is wrong; mend or leave out these questions",
    )
    assert found.describe()["notes"] == list(found.notes)


def test_two_spellings_of_an_answer_are_no_contradiction(
    verifier: Verifier, tmp_path: Path
) -> None:
    path = file(tmp_path, *({"problem": "p", "answer": a} for a in ("1/2", r"\frac{1}{2}", "0.5")))
    (note,) = load_questions(str(path), verifier).notes
    assert "and are kept: 2 (for example" in note


def test_what_a_limit_a_draw_and_a_filter_leave_out_is_told(tmp_path: Path) -> None:
    path = file(
        tmp_path, *({"problem": f"p{i // 2}", "answer": "1", "k": i // 2} for i in range(12))
    )
    columns = ColumnsConfig(id="k")
    found = load_questions(
        (SourceConfig(str(path), columns=columns, unique=True, sample=4),), ExactVerifier(), limit=2
    )
    assert found.notes == (
        f"{path}: unique leaves out 6 of 12 rows",
        f"{path}: sample takes 4 of 6 questions",
        f"{path}: only the first 2 questions are read, as the settings say",
    )
    tested = Questions("t", (Question("t", "p0", "1"),))
    found = load_questions(
        (SourceConfig(str(path), where=("not_in_test",)),), ExactVerifier(), limit=3, test=tested
    )
    assert found.notes[0] == f"{path}: not_in_test leaves out 2 of 5 questions"


def test_a_subject_that_is_no_text_is_told(tmp_path: Path) -> None:
    path = file(tmp_path, {**GOOD, "subject": ["Algebra"]}, {"problem": "q", "answer": "1"})
    assert load(path).notes == (f"{path}: subjects that are no text are left out: 1",)


def test_the_test_set_tells_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twice = file(tmp_path, GOOD, GOOD)
    config = small_config(data__test=str(twice), data__test_questions=None)
    session.load_data(config, ExactVerifier())
    assert "questions that repeat the problem of another one, and are kept: 1 (" in " ".join(
        capsys.readouterr().out.split()
    )


# --- through the commands -------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_the_commands_end_in_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file(tmp_path, GOOD, {"problem": " ", "answer": "2"})
    arguments = ["--data", str(path), "--out", str(tmp_path / "out")]
    main = train.main if command == "train" else evaluate.main
    assert main([*arguments, "--dry-run"] if command == "train" else arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {path}, line 2: 'problem' holds nothing but white space")
    assert not (tmp_path / "out").exists()
