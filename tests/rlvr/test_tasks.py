"""Questions: every way in which a data file can be broken, dropped golds, order, disjointness."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.prompts import question_order
from lens_ref.rlvr.tasks import Question, Questions, check_disjoint, load_questions
from lens_ref.verifier import Verifier
from tests.rlvr.helpers import ExactVerifier

GOOD = '{"problem": "1+1", "answer": "2"}'


def write(path: Path, *lines: str, ending: str = "\n") -> Path:
    path.write_bytes("".join(line + ending for line in lines).encode())
    return path


def load(path: Path | str, **options: Any) -> Questions:
    return load_questions(str(path), ExactVerifier(), **options)


def refused(path: Path | str, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        load(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- what is read ---------------------------------------------------------------------------------


def test_a_data_file(tmp_path: Path) -> None:
    lines = [
        '{"problem": "1+1", "answer": "2", "level": 3, "id": "one"}',
        "",
        '{"problem": "½ + ½", "answer": 1, "level": "Level 5", "other": []}',
        '{"problem": "0.5+1", "answer": 1.5, "level": null, "id": "a\\r\\n b"}',
    ]
    found = load(write(tmp_path / "data.jsonl", *lines))
    assert found.items == (
        Question("one", "1+1", "2", 3),
        Question("1", "½ + ½", "1", 5),
        Question("a b", "0.5+1", "1.5", None),
    )
    assert len(found) == 3
    assert found.unparsable == ()


def test_forms_of_the_same_file(tmp_path: Path) -> None:
    """A byte-order mark, Windows line ends, no last line end, gzip: the same questions."""
    rows = [{"problem": f"{i}+ä", "answer": str(i), "level": i} for i in range(1, 4)]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    text = "\n".join(lines) + "\n"
    contents = {
        "plain.jsonl": text.encode(),
        "mark.jsonl": b"\xef\xbb\xbf" + text.encode(),
        "windows.jsonl": text.replace("\n", "\r\n").encode(),
        "open.jsonl": text.rstrip("\n").encode(),
        "packed.jsonl.gz": gzip.compress(text.encode()),
        "parts.jsonl.gz": gzip.compress(text[:20].encode()) + gzip.compress(text[20:].encode()),
    }
    found = []
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        found.append(load(tmp_path / name))
    assert [q.items for q in found] == [found[0].items] * len(contents)
    assert {q.sha256 for q in found} == {found[0].sha256}


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("3", 3), ('"3"', 3), ('"Level 3"', 3),
        ("null", None), ('"Level ?"', None), ('""', None), ('" "', None),
    ],
)  # fmt: skip
def test_forms_of_a_level(level: str, expected: int | None, tmp_path: Path) -> None:
    line = f'{{"problem": "1+1", "answer": "2", "level": {level}}}'
    assert load(write(tmp_path / "data.jsonl", line)).items[0].level == expected


def test_a_limit_takes_the_first(tmp_path: Path) -> None:
    """And a fault behind the limit is not looked at."""
    lines = [f'{{"problem": "p{i}", "answer": "{i}"}}' for i in range(5)]
    path = write(tmp_path / "data.jsonl", *lines, "broken")
    assert [q.problem for q in load(path, limit=3).items] == ["p0", "p1", "p2"]


def test_the_hash_tells_data_apart(tmp_path: Path) -> None:
    other = GOOD.replace('"2"', '"3"')
    one, two = write(tmp_path / "a.jsonl", GOOD), write(tmp_path / "b.jsonl", other)
    assert load(one).sha256 != load(two).sha256


def put_on_the_hub(monkeypatch: pytest.MonkeyPatch, **sets: list[dict[str, Any]]) -> list[Any]:
    """Data sets owner/<name> of these rows; returns a list of what is asked for."""
    asked = list[Any]()

    def load_dataset(source: str, config: str | None, split: str, revision: str | None) -> Any:
        asked.append((source, config, split, revision))
        return datasets.Dataset.from_list(sets[source.removeprefix("owner/")])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


def test_hub_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worked solutions end in a box (MATH) or in #### (GSM8K)."""
    boxed = [r"so \boxed{1} or \boxed{\frac{1}{2}}", r"\boxed{}", "no box"]
    worked = [{"problem": f"p{i}", "solution": text} for i, text in enumerate(boxed)]
    put_on_the_hub(
        monkeypatch,
        math=[{**row, "level": "Level 4"} for row in worked],
        gsm8k=[{"question": "q", "answer": "so 1 + 1,233\n#### 1,234"}],
        plain=[{"problem": "p", "answer": "3", "id": "own"}],
    )
    found = load("owner/math")
    assert found.items == (Question("0", "p0", r"\frac{1}{2}", 4),)
    assert found.unparsable == ("1", "2")  # nobody could mend them: not an error
    assert load("owner/gsm8k").items == (Question("0", "q", "1234", None),)
    assert load("owner/plain").items == (Question("own", "p", "3", None),)


def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise ConnectionError("many\nlines")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    assert refused("owner/name") == (
        "cannot load the data set 'owner/name' from the hub (ConnectionError: many lines); "
        "name a local file, FILE.jsonl, in its place"
    )


def test_a_gated_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def gated(*_: object, **__: object) -> None:
        raise datasets.exceptions.DatasetNotFoundError("'owner/name' is a gated dataset")

    monkeypatch.setattr(datasets, "load_dataset", gated)
    text = refused("owner/name")
    assert "ask for access on its page and log in with `hf auth login`" in text
    assert "FILE.jsonl, in its place" in text


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2 is not valid JSON"),
        ('{"problem": "1+1"', "line 2 is not valid JSON"),
        ("problem,answer", "line 2 is not valid JSON"),
        ("[1, 2]", "line 2 must be a JSON object"),
        ('"text"', "line 2 must be a JSON object"),
        ('{"problem": "1+1"}', "line 2: a row needs a non-empty 'answer'"),
        ('{"answer": "2"}', "line 2: a row needs a non-empty 'problem'"),
        ('{"problem": "", "answer": "2"}', "line 2: a row needs a non-empty 'problem'"),
        ('{"problem": "1+1", "answer": ""}', "line 2: a row needs a non-empty 'answer'"),
        ('{"problem": "1+1", "answer": null}', "line 2: a row needs a non-empty 'answer'"),
        ('{"problem": "1+1", "answer": ["2"]}', "line 2: a row needs a non-empty 'answer'"),
        ('{"problem": "1+1", "answer": true}', "line 2: a row needs a non-empty 'answer'"),
        ('{"problem": "1+1", "answer": NaN}', "line 2: 'answer' must be text or a finite number"),
        ('{"problem": "1+1", "answer": -Infinity}', "line 2: 'answer' must be text or a finite"),
        ('{"problem": "1+1", "answer": 1e999}', "line 2: 'answer' must be text or a finite number"),
        ('{"problem": NaN, "answer": "2"}', "line 2: 'problem' must be text or a finite number"),
        ('{"problem": "p", "answer": "2", "level": "hard"}', "line 2: 'level' must be a whole"),
        ('{"problem": "p", "answer": "2", "level": "²"}', "line 2: 'level' must be a whole"),
        ('{"problem": "p", "answer": "2", "level": true}', "line 2: 'level' must be a whole"),
        ('{"problem": "p", "answer": "2", "level": 1.5}', "line 2: 'level' must be a whole"),
        ('{"problem": "p", "answer": "2", "id": 0}', "line 2: the id '0' occurs twice"),
        ('{"problem": "p", "answer": ' + "9" * 5000 + "}", "line 2 is not valid JSON"),
        ("[" * 100_000, "line 2 is not valid JSON"),
    ],
    ids=lambda value: value[:40],
)
def test_a_broken_line_is_named_by_its_number(line: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", GOOD, line)
    assert f"{path}, {message}" in refused(path)


def test_a_missing_file_is_not_looked_up_on_the_hub(tmp_path: Path) -> None:
    for name in ("absent.jsonl", "absent.jsonl.gz", "absent.json"):
        assert refused(tmp_path / name) == f"no data file {tmp_path / name}"
    assert "no data file" in refused(tmp_path)  # a folder


def test_a_name_that_cannot_be_on_the_hub_is_not_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert refused("tinyy") == (
        "no data 'tinyy': did you mean 'tiny'? known: tiny, a .jsonl or .jsonl.gz file, "
        "a hub id owner/name"
    )
    assert "did you mean" not in refused("gsm8k")
    for path in ("./absent", "/absent", "~/absent", "a/b/c"):
        assert refused(path) == f"no data file {path} (a hub id looks like owner/name)"


def test_a_file_without_questions(tmp_path: Path) -> None:
    for content in (b"", b"\n\n", b"\xef\xbb\xbf"):
        path = tmp_path / "data.jsonl"
        path.write_bytes(content)
        assert "no question" in refused(path)


def packed() -> bytes:
    return gzip.compress("".join(f'{GOOD[:-1]}, "id": {i}}}\n' for i in range(9999)).encode())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.jsonl.gz", packed()[:-2000]),
        ("damaged.jsonl.gz", packed()[:2000] + b"\xff" * 200 + packed()[2200:]),
        ("not_packed.jsonl.gz", GOOD.encode()),
    ],
)
def test_a_file_that_cannot_be_read(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert f"cannot read {tmp_path / name}" in refused(tmp_path / name)


def test_more_questions_than_the_bundled_task_has() -> None:
    assert "distinct train questions" in refused("tiny", limit=10**6)
    assert "distinct test questions" in refused("tiny", limit=10**6, split="test")


# --- golds ----------------------------------------------------------------------------------------


def test_a_gold_that_cannot_be_parsed_is_dropped_and_counted(tmp_path: Path) -> None:
    r"""Kept, it would mark every answer wrong. \dfrac{9}{7} without a box parses."""
    golds = [r"\frac{1}{", r"\dfrac{9}{7}", "3", r"\frac{"]
    lines = [json.dumps({"problem": f"p{i}", "answer": gold}) for i, gold in enumerate(golds)]
    with Verifier(workers=1) as verifier:
        found = load_questions(str(write(tmp_path / "data.jsonl", *lines)), verifier)
        assert [q.answer for q in found.items] == [r"\dfrac{9}{7}", "3"]
        assert found.unparsable == ("0", "3")
        with pytest.raises(UserError, match="no question whose answer can be verified"):
            load_questions(str(write(tmp_path / "bad.jsonl", lines[0])), verifier)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_a_line_holds_no_questions(text: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=r"data\.jsonl: no questions$"):
        load(path)


# --- train and test -------------------------------------------------------------------------------


def questions(*problems: str) -> Questions:
    return Questions("here", tuple(Question(f"id {p}", p, "1") for p in problems))


def test_a_question_in_both_sets_is_refused() -> None:
    check_disjoint(questions("a", "b c"), questions("d", "b"))
    with pytest.raises(UserError, match=r"1 of 2 test questions .* \(for example 'id b  c'\)"):
        check_disjoint(questions("a", "b c"), questions("d", "b  c"))


def test_the_bundled_sets_are_disjoint_for_every_seed() -> None:
    test = load("tiny", split="test", limit=250)
    for seed in (0, 1, 12345):
        check_disjoint(load("tiny", limit=2000, seed=seed), test)
    assert load("tiny", limit=5, seed=0).items != load("tiny", limit=5, seed=1).items
    assert load("tiny", split="test", limit=5, seed=1).items == test.items[:5]


# --- order ----------------------------------------------------------------------------------------

SIZES = st.tuples(st.integers(1, 12), st.integers(1, 30), st.integers(0, 5))


@given(SIZES)
def test_every_epoch_is_a_permutation(sizes: tuple[int, int, int]) -> None:
    """Batches laid end to end, whether or not an epoch ends inside one (or has several)."""
    batch, total, seed = sizes
    epochs = 3
    batches = -(-epochs * total // batch)
    order = [i for b in range(batches) for i in question_order(b, batch, total, seed)]
    assert len(order) == batches * batch
    for epoch in range(epochs):
        assert sorted(order[epoch * total : (epoch + 1) * total]) == list(range(total))


@given(SIZES, st.integers(0, 40))
def test_a_batch_depends_on_its_index_alone(sizes: tuple[int, int, int], index: int) -> None:
    batch, total, seed = sizes
    alone = question_order(index, batch, total, seed)
    before: Sequence[list[int]] = [question_order(b, batch, total, seed) for b in range(index)]
    assert len(before) == index
    assert question_order(index, batch, total, seed) == alone


def test_epochs_and_seeds_are_shuffled_differently() -> None:
    orders = [question_order(b, 50, 50, seed) for b in (0, 1) for seed in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    assert list(range(50)) not in orders
