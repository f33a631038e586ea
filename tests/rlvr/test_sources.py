"""Several sources, and what is taken of each: repetitions, counts, filters, samples, overlap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from lens_ref.rlvr import session
from lens_ref.rlvr.data_config import ColumnsConfig, SourceConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.sources import bare
from lens_ref.rlvr.tasks import Question, Questions, common_ids, load_questions
from tests.rlvr.helpers import ExactVerifier, small_config

BEFORE, AFTER = "Solve this. Write Answer: x.", 'Write it after "Answer:".'
CHAT = ColumnsConfig(
    problem="prompt",
    answer="reward_model.ground_truth",
    id="extra_info.index",
    prefix=BEFORE,
    suffix=AFTER,
)


def chat_row(index: str, problem: str, answer: str) -> dict[str, Any]:
    """A row in the layout of DAPO-Math-17k."""
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": f"{BEFORE}\n\n{problem}\n\n{AFTER}", "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": index},
    }


def put_on_the_hub(monkeypatch: pytest.MonkeyPatch, *rows: dict[str, Any]) -> list[Any]:
    """A data set of these rows under every name; returns what is asked for, as it is asked."""
    asked = list[Any]()

    def load_dataset(source: str, config: str | None, split: str, revision: str | None) -> Any:
        asked.append((source, config, split, revision))
        return datasets.Dataset.from_list(list(rows))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def numbered(path: Path, count: int, **more: Any) -> str:
    return write(path, *({"problem": f"p{i}", "answer": str(i), **more} for i in range(count)))


def load(*parts: SourceConfig, **options: Any) -> Questions:
    return load_questions(parts, ExactVerifier(), **options)


def refused(*parts: SourceConfig, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        load(*parts, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def questions(*problems: str) -> Questions:
    return Questions("here", tuple(Question(p, p, "1") for p in problems))


# --- columns --------------------------------------------------------------------------------------


def test_nested_columns_and_a_wrapped_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = put_on_the_hub(monkeypatch, chat_row("u-1", "What is 1+1?", "2"))
    source = SourceConfig("owner/dapo", config="main", revision="abc", columns=CHAT)
    assert load(source).items == (Question("u-1", "What is 1+1?", "2", None),)
    assert load(source).notes == ()
    assert asked[0] == ("owner/dapo", "main", "train", "abc")


def test_a_problem_without_the_wrapper_is_kept_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    bare_row = chat_row("u-2", "", "3")
    bare_row["prompt"][0]["content"] = "What is 1+2?"
    put_on_the_hub(monkeypatch, chat_row("u-1", "What is 1+1?", "2"), bare_row)
    found = load(SourceConfig("owner/dapo", columns=CHAT))
    assert [q.problem for q in found.items] == ["What is 1+1?", "What is 1+2?"]
    (note,) = found.notes
    assert "1 of 2 problems do not stand between columns.prefix and columns.suffix" in note


def test_columns_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_the_hub(monkeypatch, {"problem": "p", "answer": "1", "extra": {"a": "b"}})
    for path in ("text", "extra.index", "problem.text"):
        columns = ColumnsConfig(problem=path)
        text = refused(SourceConfig("owner/name", columns=columns))
        assert text == f"owner/name, row 0: no column {path!r}"


def test_columns_of_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", {"q": "1+1", "gold": 2, "hard": "Level 3", "key": "k"})
    columns = ColumnsConfig(problem="q", answer="gold", level="hard", id="key")
    assert load(SourceConfig(path, columns=columns)).items == (Question("k", "1+1", "2", 3),)


# --- repetitions and counts -----------------------------------------------------------------------


def test_repetitions_are_undone_by_identity_not_by_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two questions of the same text stay two; their first rows give the order."""
    texts = {"a": "same", "b": "other", "c": "same"}
    rows = [chat_row(index, texts[index], "1") for index in "abacbcab"]
    put_on_the_hub(monkeypatch, *rows)
    found = load(SourceConfig("owner/dapo", columns=CHAT, unique=True, expect=3))
    assert [(q.id, q.problem) for q in found.items] == [
        ("a", "same"),
        ("b", "other"),
        ("c", "same"),
    ]
    text = refused(SourceConfig("owner/dapo", columns=CHAT, unique=True, expect=4))
    assert text.startswith("owner/dapo: 3 rows instead of the 4 that data says to expect")
    assert "the id 'a' occurs twice" in refused(SourceConfig("owner/dapo", columns=CHAT))


def test_the_expected_count_is_before_filter_and_sample(tmp_path: Path) -> None:
    path = numbered(tmp_path / "data.jsonl", 9)
    source = SourceConfig(path, expect=9, where=("not_in_test",), sample=4)
    assert len(load(source, test=questions("p3"))) == 4
    assert "9 rows instead of the 4" in refused(SourceConfig(path, expect=4, sample=4))


# --- filters --------------------------------------------------------------------------------------


def test_verifiable_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout of NuminaMath-1.5: its flags are text, and proofs hide in two columns."""
    good = {
        "problem": "p",
        "solution": r"\boxed{5}",
        "answer": "5",
        "question_type": "math-word-problem",
        "problem_is_valid": "Yes",
        "solution_is_valid": "Yes",
    }
    bad = [
        {"answer": "proof"},
        {"answer": "notfound"},
        {"answer": " NotFound "},
        {"answer": ""},
        {"answer": None},
        {"question_type": "proof"},
        {"problem_is_valid": "Incomplete"},
        {"solution_is_valid": "Problem not solved"},
        {"solution_is_valid": "No"},
    ]
    rows = [good, *({**good, **change} for change in bad), {**good, "problem": "q", "answer": "6"}]
    put_on_the_hub(monkeypatch, *rows)
    found = load(SourceConfig("owner/numina", where=("verifiable",)))
    assert [(q.id, q.answer) for q in found.items] == [("0", "5"), ("10", "6")]
    assert found.notes == ("owner/numina: verifiable leaves out 9 of 11 questions",)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Find $x$ if  $x+1 = 2$.", "Find $x$ if\n$x + 1 = 2.$", True),
        (r"$a\,b\quad c\!d$", "$a b c d$", True),
        (r"\[x^{2}\]", "\\[x^2\\]\n", True),
        (r"$\left(1, 2\right)$", "$(1,2)$", True),
        (r"$\triangle ABC$", "triangle $ABC$", True),
        (r"$$x=1$$", r"\[x=1.\]", True),
        (r"$1440,$ $1716$", "$1440, 1716$", True),
        (r"$\tan 22.5^\circ$", r"$\tan 225^\circ$", False),
        ("$(2,3)$", "$(23)$", False),
        ("$3+4$", "$3-4$", False),
        (r"$\leftarrow$", r"$\arrow$", False),
        (r"$\frac{1}{2}$", r"$\frac 12$", True),
        (r"$\frac{1}{23}$", r"$\frac1{23}$", True),
        (r"$\dfrac{\pi}{2}$", r"$\dfrac\pi2$", True),
        (r"$\frac{m\sqrt{n}}{r}$", r"$\frac{m\sqrt n}r$", True),
        (r"$90^{\circ}, \overline{r_1}, 1{,}000$", r"$90^\circ, \overline{r}_1, 1,000$", True),
        (r"$\frac{1}{23}$", r"$\frac{12}{3}$", False),
        (r"$\frac{a}{bc}$", r"$\frac{ab}{c}$", False),
        (r"$\binom{10}{2}$", r"$\binom{1}{02}$", False),
        (r"$2^{3}4$", r"$2^{34}$", False),
    ],
)
def test_copies_of_a_problem_differ_in_spacing(one: str, other: str, same: bool) -> None:
    assert (bare(one) == bare(other)) is same
    assert bool(common_ids(questions(one), questions(other))) is same


def test_without_the_questions_of_the_test_set(tmp_path: Path) -> None:
    rows = [{"problem": p, "answer": "1"} for p in ("Find $x$.", "Find $y$.", "Find $z .$")]
    source = SourceConfig(write(tmp_path / "data.jsonl", *rows), where=("not_in_test",))
    found = load(source, test=questions("Find  $z$.", "other"))
    assert [q.id for q in found.items] == ["0", "1"]
    assert found.notes == (f"{source.source}: not_in_test leaves out 1 of 3 questions",)


# --- samples --------------------------------------------------------------------------------------


def test_a_sample_depends_on_its_own_seed_alone(tmp_path: Path) -> None:
    path = numbered(tmp_path / "data.jsonl", 50)

    def ids(seed: int, of_run: int = 0) -> list[str]:
        return [q.id for q in load(SourceConfig(path, sample=20, seed=seed), seed=of_run).items]

    first = ids(0)
    assert len(set(first)) == 20
    assert first == sorted(first, key=int)  # in the file's order
    assert ids(0, of_run=7) == first  # the seed of the run doesn't matter
    assert ids(1) != first
    # a promise to whoever draws again: the numbers of Python's own generator
    drawn = [q.id for q in load(SourceConfig(path, sample=3, seed=5)).items]
    assert drawn == ["16", "26", "48"]
    whole = [q.id for q in load(SourceConfig(path, sample=50)).items]
    assert whole == [str(i) for i in range(50)]
    assert "50 rows are too few for a sample of 51" in refused(SourceConfig(path, sample=51))


def test_every_row_is_drawn_equally_often(tmp_path: Path) -> None:
    """4 of 10, 400 seeds: each row 160 times, give or take five standard deviations (49)."""
    path = numbered(tmp_path / "data.jsonl", 10)
    counts = dict.fromkeys(map(str, range(10)), 0)
    for seed in range(400):
        for question in load(SourceConfig(path, sample=4, seed=seed)).items:
            counts[question.id] += 1
    assert all(abs(count - 160) < 49 for count in counts.values())


# --- several sources ------------------------------------------------------------------------------


def test_ids_of_several_sources(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    parts = [
        SourceConfig(numbered(tmp_path / "one.jsonl", 2)),
        SourceConfig(numbered(tmp_path / "two.jsonl", 3), sample=1),
        SourceConfig(numbered(tmp_path / "more" / "one.jsonl", 1)),
    ]
    found = load(*parts)
    ids = [q.id for q in found.items]
    assert ids[:2] == ["one-1/0", "one-1/1"]
    assert ids[2].startswith("two/")
    assert ids[3:] == ["one-3/0"]
    assert found.source == " + ".join(part.source for part in parts)
    assert [q.id for q in load(parts[0]).items] == ["0", "1"]  # alone: as in the file


def test_a_limit_does_not_touch_what_lies_behind_it(tmp_path: Path) -> None:
    parts = (SourceConfig(numbered(tmp_path / "one.jsonl", 3)), SourceConfig("absent.jsonl"))
    assert [q.id for q in load(*parts, limit=3).items] == ["one/0", "one/1", "one/2"]
    assert "no data file absent.jsonl" in refused(*parts, limit=4)


def test_the_bundled_task_as_a_source() -> None:
    alone = load_questions("tiny", ExactVerifier(), limit=5, seed=3)
    assert load(SourceConfig("tiny"), limit=5, seed=3).items == alone.items
    test = load_questions("tiny", ExactVerifier(), limit=5, split="test")
    assert load(SourceConfig("tiny", split="test"), limit=5).items == test.items


# --- train and test -------------------------------------------------------------------------------


def overlapping(tmp_path: Path, **data: Any) -> Any:
    train = [{"source": numbered(tmp_path / "train.jsonl", 4), **data.pop("train", {})}]
    test = write(tmp_path / "test.jsonl", {"problem": "p 2", "answer": "2"})
    overrides = {"data__train": train, "data__test": test, "data__train_questions": None}
    config = small_config(**overrides, **{f"data__{k}": v for k, v in data.items()})
    return session.load_data(config, ExactVerifier())


def test_an_overlap_is_reported_where_the_config_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(overlapping(tmp_path, overlap="report").train) == 4
    assert "1 of 1 test questions are also trained on" in capsys.readouterr().out


def test_an_overlap_that_is_left_out_is_no_overlap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = overlapping(tmp_path, train={"where": ["not_in_test"]})
    assert [q.id for q in data.train.items] == ["0", "1", "3"]
    out = " ".join(capsys.readouterr().out.split())
    assert "not_in_test leaves out 1 of 4 questions" in out
    assert "also trained on" not in out
