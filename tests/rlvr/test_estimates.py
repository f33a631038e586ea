"""The numbers of an evaluation, by hand: intervals, tests, tables, counts, the overlap of sets."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from lens_ref.evaluating import overlap, pages, questions
from lens_ref.evaluating.columns import aligned
from lens_ref.evaluating.counts import Count, read, read_begun, read_last, write
from lens_ref.evaluating.estimates import PARTS, Evaluated, Overlap, compare, groups
from lens_ref.evaluating.overlap import Match, Problem, find, normalised, read_problems
from lens_ref.evaluating.resampling import bootstrap, sign_flip_p
from lens_ref.rlvr.data_config import SourceConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.tasks import load_questions
from tests.rlvr.helpers import ExactVerifier
from tests.rlvr.test_tasks import put_on_the_hub


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)[:, None]


def counts(*correct: int, n: int = 4) -> list[Count]:
    """Questions q0 … at levels 4, 5, 4, …, the first of Algebra, the others of Geometry."""
    return [
        Count(f"q{i}", 4 + i % 2, "Algebra" if i == 0 else "Geometry", n, c, n - c)
        for i, c in enumerate(correct)
    ]


# --- resampling -----------------------------------------------------------------------------------


def test_bootstrap_of_ten_questions_half_of_them_right() -> None:
    """Binomial(10, ½): P(≤ 1) = .011, P(≤ 2) = .055, so the 2.5 % quantile of the share is .2."""
    (found,) = bootstrap(column(*[0.0] * 5, *[1.0] * 5))
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.2, 0.8))


def test_many_different_rows_take_another_road_to_the_same_interval() -> None:
    """100 questions that all differ a little: Binomial(100, ½) has its 2.5 % quantile at 40."""
    values = np.repeat([0.0, 1.0], 50) + 1e-9 * np.arange(100)
    (found,) = bootstrap(values[:, None])
    assert (found.low, found.high) == pytest.approx((0.40, 0.60), abs=0.011)


def test_bootstrap_of_three_questions_is_that_of_all_27_resamples() -> None:
    values = [0.0, 0.25, 1.0]
    means = sorted(np.mean(draw) for draw in product(values, repeat=3))
    (found,) = bootstrap(column(*values))
    assert found.low == pytest.approx(means[0])  # one of 27 is more than 2.5 %
    assert found.high == pytest.approx(means[-1])


def test_the_columns_of_a_bootstrap_are_resampled_together() -> None:
    first, second = bootstrap(np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    assert first.low == pytest.approx(1 - second.high)
    assert (first.mean, second.mean) == (0.5, 0.5)
    with pytest.raises(ValueError, match="two questions"):
        bootstrap(column(1.0))


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ((1, 1, 1), 2 / 8),  # +++ and −−−
        ((3, 1), 2 / 4),  # |3 + 1| with either sign
        ((1, -1), 1.0),
        ((0.2, 0.2, -0.1), 4 / 8),  # sums .5 .3 .1 .1 with either sign; observed .3
        ((1, 1, 1, 0, 0), 2 / 8),  # what does not differ does not count
        ((0, 0), 1.0),
    ],
)
def test_sign_flips_by_enumeration(differences: tuple[float, ...], p: float) -> None:
    assert sign_flip_p(column(*differences))[0] == p


def test_sign_flips_at_random() -> None:
    """15 of 20 differences positive: P(|X − 10| ≥ 5) = 0.0414 for X ~ Binomial(20, ½)."""
    values = np.stack([[1.0] * 15 + [-1.0] * 5, [1.0] * 20], axis=1)
    found = sign_flip_p(values)
    assert found[0] == pytest.approx(0.0414, abs=0.006)
    assert found[1] == 1 / 10_001  # no random pattern is as extreme: never 0


def test_few_questions_of_one_set_are_enumerated_beside_many_of_another() -> None:
    values = np.zeros((20, 3))
    values[:, 0] = 1.0
    values[:3, 1] = 1.0
    values[:14, 2] = 1.0
    found = sign_flip_p(values)
    assert tuple(found[1:]) == (2 / 2**3, 2 / 2**14)
    assert found[0] == sign_flip_p(values[:, :1])[0]


# --- estimates ------------------------------------------------------------------------------------


def test_pass_at_k_of_every_set_by_hand() -> None:
    """n = 4 and c = 0, 1, 2, 4: pass@2 is 0, 1 − 3/6, 1 − 1/6, 1."""
    (group,) = groups([Evaluated("tiny", counts(0, 1, 2, 4))])
    assert group.ks == (1, 2, 4)
    found = {key: estimate.mean for key, estimate in group.estimates.items()}
    names = ["all", "level 4-5", "level 4", "level 5", "Algebra", "Geometry"]
    assert [name for name, k in found if k == 1] == names
    assert found["all", 1] == pytest.approx(7 / 16)  # the accuracy over all answers
    assert found["all", 2] == pytest.approx((0 + 1 / 2 + 5 / 6 + 1) / 4)
    assert found["level 4", 2] == pytest.approx(5 / 12)
    assert found["level 5", 4] == 1.0
    assert found["Geometry", 1] == pytest.approx(7 / 12)
    assert group.truncated("all") == pytest.approx(9 / 16)
    assert group.estimates["Algebra", 1].questions is None  # one question: no interval
    assert group.estimates["all", 1].seeds is None


def test_overlapping_questions_stand_apart() -> None:
    (group,) = groups(
        [Evaluated("tiny", counts(0, 1, 2, 4))], Overlap("dapo", frozenset({"q3", "q1", "other"}))
    )
    means = {name: e.mean for (name, k), e in group.estimates.items() if k == 1}
    assert means["all, not trained on"] == pytest.approx(2 / 8)
    assert means["all, trained on"] == pytest.approx(5 / 8)
    assert means["level 4-5, trained on"] == pytest.approx(5 / 8)


TAKEN = ("all", "level 4-5", "level 1", "all, trained on", "Sums, trained on", "subject all")


def test_a_subject_may_be_called_like_another_set() -> None:
    """It gets a line of its own, and hides nothing."""
    found = [Count(f"q{i}", 4 + i % 2, name, 2, i % 3, 0) for i, name in enumerate(TAKEN)]
    found.append(Count("q", 4, "Sums", 2, 2, 0))
    shared = Overlap("dapo", frozenset({"q0", "q1"}))
    (group,) = groups([Evaluated("tiny", found)], shared)
    sizes = {name: len(chosen) for name, chosen in group.sets.items()}
    assert (sizes["all"], sizes["level 4-5"], sizes["all, trained on"]) == (7, 7, 2)
    subjects = {name for name, size in sizes.items() if size == 1}
    assert subjects == {f"subject {name}" for name in TAKEN} | {"Sums"}
    shown = pages.text([group], [], shared).split("\n\n")[0]
    assert [name for name in sizes if f"\n{name} " not in shown] == list(PARTS)
    assert len(shown.splitlines()) == 2 + len(sizes) - len(PARTS)


@pytest.mark.parametrize("names", [("lens", "lens-seed1"), ("lens-seed1", "lens-seed01")])
def test_what_is_no_other_seed_is_not_pooled(names: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=f"by their names {names[0]} and {names[1]} are both of le"):
        groups([Evaluated(name, counts(1, 2)) for name in names])


def test_evaluations_after_different_updates_are_told() -> None:
    def notes(*steps: int | None) -> list[str]:
        runs = [
            Evaluated(f"m-seed{i}", counts(1, n=16), data="1", step=at)
            for i, at in enumerate(steps)
        ]
        return pages.notes(runs, groups(runs))

    assert notes(0, 120, 120, None) == [
        "the runs were evaluated after different updates: 0 (m-seed0), 120 (m-seed1 …)"
    ]
    assert notes(120, None, 120) == notes(None, None) == []


def test_the_interval_over_seeds_is_students() -> None:
    """Means .2 and .4: s/√2 = .1, and t with one degree of freedom is 12.7062: −.97 to 1.57, cut
    at 0 and 1. Of a third run with .3, s/√3 = .0577 and t is 4.3027."""
    runs = [Evaluated("lens-seed0", counts(1, 1, n=5)), Evaluated("lens-seed7", counts(2, 2, n=5))]
    (group,) = groups(runs)
    found = group.estimates["all", 1]
    assert (group.method, found.mean) == ("lens", pytest.approx(0.3))
    assert found.seeds is not None
    assert (found.seeds.low, found.seeds.high) == (0.0, 1.0)
    (group,) = groups([*runs, Evaluated("lens-seed9", counts(1, 2, n=5))])
    between = group.estimates["all", 1].seeds
    assert between is not None
    assert (between.low, between.high) == pytest.approx((0.05159, 0.54841), abs=1e-5)
    assert found.questions is not None
    assert (found.questions.low, found.questions.high) == pytest.approx((0.3, 0.3))


def test_seeds_that_all_agree_have_no_interval_over_seeds() -> None:
    runs = [Evaluated(f"lens-seed{seed}", counts(1, 2)) for seed in (0, 1)]
    (group,) = groups(runs)
    assert group.estimates["all", 1].seeds is None
    said = pages.text([group], [], None)
    assert "over training seeds by Student's t, cut at 0 and 100 %, none" in said


def test_runs_are_compared_with_those_of_their_seed() -> None:
    lens, grpo = groups(
        [
            Evaluated("lens-seed1", counts(2, 2, 2)),
            Evaluated("lens-seed2", counts(4, 4, 4)),
            Evaluated("grpo-seed2", counts(3, 3, 3)),
            Evaluated("grpo-seed3", counts(0, 0, 0)),
        ]
    )
    found = compare(lens, grpo)
    assert found.pairs == (("lens-seed2", "grpo-seed2"),)
    one = found.estimates["all", 1]
    assert (one.mean, one.p, one.seeds) == (0.25, 2 / 8, None)
    assert one.questions is not None
    assert (one.questions.low, one.questions.high) == (0.25, 0.25)  # paired: no spread
    assert found.estimates["level 5", 1].p == 1.0  # a single question has two signs


def test_a_base_model_is_compared_with_every_seed() -> None:
    base, lens = groups(
        [
            Evaluated("tiny", counts(1, 1)),
            Evaluated("lens-seed1", counts(2, 2)),
            Evaluated("lens-seed2", counts(4, 4)),
        ]
    )
    found = compare(lens, base)
    assert len(found.pairs) == 2
    one = found.estimates["all", 1]
    assert one.mean == pytest.approx(0.5)  # + ¼ and + ¾: s/√2 = ¼
    assert one.seeds is not None
    assert one.seeds.low == pytest.approx(0.5 - 12.7062 / 4, abs=1e-4)


def test_without_a_common_seed_averages_are_compared() -> None:
    lens, grpo = groups(
        [
            Evaluated("lens-seed1", counts(2, 2)),
            Evaluated("lens-seed2", counts(4, 4)),
            Evaluated("grpo-seed3", counts(1, 1)),
        ]
    )
    found = compare(lens, grpo)
    assert (found.pairs, found.estimates["all", 1].mean) == ((), pytest.approx(0.5))
    assert found.estimates["all", 1].seeds is None


def test_the_order_of_questions_does_not_matter_and_common_ones_alone_count() -> None:
    a, b = groups([Evaluated("a", counts(0, 1, 2, 4)), Evaluated("b", counts(0, 1, 2, 4, 4)[::-1])])
    assert compare(b, a).estimates["all", 1].mean == 0.0
    assert len(a.sets["all"]) == 4


def test_levels_and_subjects_are_taken_from_the_runs_that_give_them() -> None:
    """Whichever is named first."""
    bare = Evaluated("bare", [Count(f"q{i}", None, None, 4, 1, 0) for i in range(3)])
    full = Evaluated("full", counts(1, 2, 3))
    expected = ["all", "level 4-5", "level 4", "level 5", "Algebra", "Geometry"]
    for runs in ([bare, full], [full, bare]):
        for group in groups(runs):
            assert list(group.sets) == expected
            assert [count.level for count in group.runs[0].counts] == [4, 5, 4]
    other = Evaluated("other", [Count("q0", 3, None, 4, 0, 0)])
    with pytest.raises(UserError, match="'q0' has another level or subject in other than in full"):
        groups([bare, full, other])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Evaluated("b", [Count("x", 4, None, 4, 0, 0)]), "no question that all of them"),
        (Evaluated("b", [Count("q0", 3, None, 4, 0, 0)]), "another level or subject"),
        (Evaluated("b", [Count("q0", None, "Sums", 4, 0, 0)]), "another level or subject"),
        (Evaluated("b", counts(1), data="2"), "on different questions"),
    ],
)
def test_different_questions_are_not_compared(other: Evaluated, message: str) -> None:
    with pytest.raises(UserError, match=message):
        groups([Evaluated("a", counts(1), data="1"), other])


def test_columns_never_run_together() -> None:
    assert aligned([["", "a", "bb"], ["name", "100.0", ""]]) == "          a  bb\nname  100.0"


def test_columns_stand_below_each_other_under_wide_letters_and_marks() -> None:
    rows = [["", "n"], ["代数", "100"], ["Zähler", "1"], ["Za\u0308hler", "2"], ["ﾊﾝ", "각"]]
    assert aligned(rows).splitlines() == [
        "          n",
        "代数    100",
        "Zähler    1",
        "Za\u0308hler    2",
        "ﾊﾝ       각",
    ]


# --- counts ---------------------------------------------------------------------------------------


def test_counts_come_back_as_they_were_written(tmp_path: Path) -> None:
    kept = [
        Count('a, "b"', None, None, 3, 0, None),
        Count("ü", 5, "Counting & Probability", 3, 3, 1),
    ]
    write(tmp_path / "c.csv", kept)
    assert read(tmp_path / "c.csv") == kept
    with (tmp_path / "c.csv").open("a", encoding="utf-8") as file:
        file.write("half,1,Algebra,3,1")
    assert read_begun(tmp_path / "c.csv") == kept
    with pytest.raises(UserError, match="is damaged: line 4 has 5 cells instead of 6"):
        read(tmp_path / "c.csv")


def test_a_runs_own_log_gives_its_last_evaluation(tmp_path: Path) -> None:
    path = tmp_path / "eval_counts.csv"
    path.write_text("step,question,level,n,correct\n0,q,1,2,0\n20,q,1,2,2\n", encoding="utf-8")
    assert read(path) == [Count("q", 1, None, 2, 2, None)]
    assert read_last(path) == (read(path), 20)


def test_counts_that_an_editor_saved_with_a_mark(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("id,n,correct\nq,2,1\n", encoding="utf-8-sig")
    assert read(tmp_path / "c.csv") == [Count("q", None, None, 2, 1, None)]


HEAD = "id,level,subject,n,correct,truncated\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no column 'id'"),
        (b"id,n,correct,n\n", "is damaged: two columns are called 'n'"),
        (HEAD.encode() + b"q,1,s,4,5,0\n", "line 2: correct = 5 exceeds n = 4"),
        (HEAD.encode() + b"q,1,s,4,0,5\n", "truncated = 5 exceeds n = 4"),
        (HEAD.encode() + b"q,1,s,0,0,0\n", "n must be at least 1"),
        (HEAD.encode() + b"q,1,s,4,-1,0\n", "correct must be a whole number, not '-1'"),
        (HEAD.encode() + b"q,1,s,4,1.5,0\n", "correct must be a whole number, not '1.5'"),
        (HEAD.encode() + b"q,hard,s,4,1,0\n", "level must be a whole number, not 'hard'"),
        (HEAD.encode() + "q,1,s,٤,1,0\n".encode(), "n must be a whole number"),
        (HEAD.encode() + b"q,1,s," + b"9" * 5000 + b",1,0\n", "n must be a whole number"),
        (HEAD.encode() + b"q,1,s,4,1,0\n" * 2, "the question 'q' occurs twice"),
        (HEAD.encode() + b'"q,1,s,4,1,0\n', "unexpected end of data"),
        (HEAD.encode() + b"x" * 200_000 + b",1,s,4,1,0\n", "field larger than"),
        (b"\xff\xfe", "is damaged: line 1 is not UTF-8 text (byte 0xff)"),
        (HEAD.encode() + b"q\0,1,s,4,1,0\n", "is damaged: line 2 holds a NUL character"),
    ],
)
def test_hostile_counts_are_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "counts.csv"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


# --- overlap --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("What is $x + 1$?", "what is $x+1$ ?"),
        (r"Find \( \frac{1}{2} \).", r"Find $\frac12$"),
        (r"a\,b\quad c~d", "abcd"),
        (r"\left( x \right)", "(x)"),
    ],
)
def test_what_normalisation_makes_equal(a: str, b: str) -> None:
    assert normalised(a) == normalised(b)


@pytest.mark.parametrize(("a", "b"), [("1.5", "15"), ("x+1", "x-1"), ("f(x)", "f[x]")])
def test_what_it_keeps_apart(a: str, b: str) -> None:
    assert normalised(a) != normalised(b)


def test_pairs_of_copies() -> None:
    these = [Problem("a", 1, "1+1"), Problem("b", 5, "2 + 2"), Problem("c", 5, "$$")]
    others = [Problem("x", None, "2+2"), Problem("y", 3, "2 + 2"), Problem("z", 3, "{}")]
    found = [Match("b", 5, "normalised", "x"), Match("b", 5, "exact", "y")]
    assert find(these, others) == found
    rows = [line.split() for line in overlap.summary(these, others, found).splitlines()]
    assert rows[1:] == [
        ["all", "1", "1", "3", "33.3%"],
        ["level", "1", "0", "0", "1", "0.0%"],
        ["level", "5", "1", "1", "2", "50.0%"],
        ["the", "other", "way", "round", "1", "2", "3", "66.7%"],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no questions"),
        ('{"answer": "1"}\n', "line 1: a row needs a non-empty 'problem'"),
        ('{"problem": " "}\n', "line 1: 'problem' holds nothing but white space"),
        ('{"problem": true}\n', "line 1: a row needs a non-empty 'problem'"),
        ('{"problem": Infinity}\n', "line 1: 'problem' must be text or a finite number, not inf"),
        ('{"problem": "p", "level": "hard"}\n', "line 1: 'level' must be a whole number"),
        ('{"problem": "p", "id": "\\ud800"}\n', "line 1: an id that is not valid Unicode"),
        ('{"problem": "p", "id": 1}\n' * 2, "line 2: the id '1' occurs twice"),
        ('{"problem": "p"}\n\n{}\n', "line 3: a row needs a non-empty 'problem'"),
        ('{"problem": "p", "id": " "}\n', "line 1: an id has 1 to 1000 characters, not 0"),
    ],
)
def test_hostile_sets_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_problems([SourceConfig(str(path))])
    assert message in str(caught.value)


def test_a_problem_that_is_a_number_is_one_in_training_too(tmp_path: Path) -> None:
    """Both read the same files: what one accepts the other does."""
    path = tmp_path / "set.jsonl"
    path.write_text('{"problem": 12, "answer": 12}\n{"problem": 1.5, "answer": "1.5"}\n')
    found = read_problems([SourceConfig(str(path))])
    trained = load_questions(str(path), ExactVerifier())
    assert [problem.text for problem in found] == ["12", "1.5"]
    assert [question.problem for question in trained.items] == ["12", "1.5"]
    assert len(overlap.find(found, found)) == 2


def test_named_sets() -> None:
    """What stands behind each name, as the recipes have it."""
    found = {name: questions.source(name) for name in (*questions.NAMES, "tiny")}
    assert {name: (s.split, s.expect) for name, s in found.items()} == {
        "tiny": ("test", None),
        "math-test": ("test", 5000),
        "math-train": ("train", 7500),
        "math-500": ("test", 500),
        "gsm8k-test": ("test", 1319),
        "gsm8k-train": ("train", 7473),
        "dapo": ("train", 17917),
    }
    assert found["dapo"].sample is None  # all of it, not a draw
    assert questions.source("owner/name:dev") == SourceConfig("owner/name", split="dev")
    assert questions.source("owner/name", "train").split == "train"
    assert questions.source("tiny:train").split == "train"


def test_the_hubs_subjects(monkeypatch: pytest.MonkeyPatch) -> None:
    """MATH calls them `type`, MATH-500 `subject`; anything but text is none."""
    rows = [{"problem": "p", "answer": "1", **more} for more in SUBJECTS]
    put_on_the_hub(monkeypatch, **{f"set{i}": [row] for i, row in enumerate(rows)})
    found = [load_questions(f"owner/set{i}", ExactVerifier()).items[0] for i in range(len(rows))]
    assert [question.subject for question in found] == ["Algebra", "Algebra", None, None]


SUBJECTS = ({"type": "Algebra"}, {"subject": "Algebra", "type": "x"}, {"subject": 3}, {})


SHARED, HARD_SHARED, HARD = 976, 699, 2538
"""MATH test problems that DAPO holds; of levels 4 and 5; of all of those levels."""


def test_dapo_holds_976_of_the_5000_math_test_problems() -> None:
    folder = os.environ.get("LENS_REF_DATA")
    if not folder:
        pytest.skip("LENS_REF_DATA names no folder with math_test.jsonl.gz, dapo_math_17k.jsonl.gz")
    test, dapo = (
        read_problems([SourceConfig(str(Path(folder, f"{name}.jsonl.gz")))])
        for name in ("math_test", "dapo_math_17k")
    )
    found = find(test, dapo)
    ids = {match.id for match in found}
    hard = [p for p in test if p.level in (4, 5)]
    assert (len(test), len(ids)) == (5000, SHARED)
    assert len({m.id for m in found if m.kind == "exact"}) == 970
    assert (sum(p.id in ids for p in hard), len(hard)) == (HARD_SHARED, HARD)
