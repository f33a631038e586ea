"""The exercises: solutions pass, the commonest wrong answers do not, notebooks run unanswered."""

from __future__ import annotations

import math
import re
import runpy
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch

from notebooks.exercises import checking, checks
from notebooks.exercises.checking import EXERCISES, NotRightError, judge
from notebooks.exercises.duel import PRESETS, duel
from tests.wrong_answers import MEAN, SD, WRONG, N, T, task

mpl.use("Agg")
ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks" / "exercises"
SOURCES = sorted(path.name for path in FOLDER.glob("0*.py"))
TEACHING = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")

CASES = [(number, words) for number, answers in WRONG.items() for words in answers]
FUNCTIONS = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12)
PAIRS = (8, 14)


def headings(path: Path) -> list[str]:
    return re.findall(r"^# ## (Exercise .*)$", path.read_text(encoding="utf-8"), re.M)


def solution(name: str) -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / "solutions" / name))


@pytest.fixture(autouse=True)
def _fresh_session() -> Any:
    yield
    checks.begin()


def test_there_are_at_least_twelve_exercises() -> None:
    assert list(EXERCISES) == list(range(1, 17))
    assert list(WRONG) == list(EXERCISES)
    assert all(len(answers) >= 3 for answers in WRONG.values())


@pytest.mark.parametrize("name", SOURCES)
def test_solutions_are_right(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    solution(name)
    out = capsys.readouterr().out
    numbers = re.findall(r"Exercise (\d+) ", "\n".join(headings(FOLDER / name)))
    assert re.findall(r"^Exercise (\d+): right\.$", out, re.M) == numbers
    assert f"{len(numbers)} of {len(numbers)} right" in out


@pytest.mark.parametrize("name", SOURCES)
def test_exercises_run_without_answers(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(FOLDER / name))
    out = capsys.readouterr().out
    numbers = re.findall(r"Exercise (\d+) ", "\n".join(headings(FOLDER / name)))
    assert re.findall(r"^Exercise (\d+): not answered yet\.$", out, re.M) == numbers


@pytest.mark.parametrize("name", SOURCES)
def test_exercises_and_solutions_name_the_same(name: str) -> None:
    wanted = headings(FOLDER / name)
    assert wanted == headings(FOLDER / "solutions" / name)
    for heading in wanted:
        number, title = re.fullmatch(r"Exercise (\d+) · (.*)", heading).groups()  # type: ignore[union-attr]
        assert EXERCISES[int(number)].title == title


def test_every_exercise_is_in_one_notebook() -> None:
    found = [h for name in SOURCES for h in headings(FOLDER / name)]
    assert [int(h.split()[1]) for h in found] == list(EXERCISES)


@pytest.mark.parametrize(("number", "words"), CASES)
def test_the_commonest_wrong_answers_are_rejected(number: int, words: str) -> None:
    verdict = judge(number, WRONG[number][words])
    assert verdict.state == "wrong"
    hint = verdict.line.removeprefix(f"Exercise {number}: not yet. ")
    assert len(hint) > 20
    assert "\n" not in hint
    assert "Your function raises" not in hint  # the fault is in the answer, not in its code


@pytest.mark.parametrize(("number", "words"), CASES)
def test_the_teacher_finds_them_in_the_table(number: int, words: str) -> None:
    start = f"| {number} | {EXERCISES[number].title} |"
    (row,) = (line for line in TEACHING.splitlines() if line.startswith(start))
    if words != "exp(log π), which underflows":  # a fourth one
        assert words in row


@pytest.mark.parametrize("number", list(EXERCISES))
@pytest.mark.parametrize("nothing", [None, ...])
def test_nothing_is_no_answer(number: int, nothing: Any) -> None:
    assert judge(number, nothing).state == "unanswered"
    if number in FUNCTIONS:
        assert judge(number, lambda *inputs: nothing).state == "unanswered"
    if number in PAIRS:
        assert judge(number, (nothing, nothing)).state == "unanswered"
    if number in (15, 16):
        assert judge(number, (nothing, nothing, nothing)).state == "unanswered"


@pytest.mark.parametrize("number", FUNCTIONS)
def test_what_is_no_function_of_tensors_is_rejected(number: int) -> None:
    def hint(answer: Any) -> str:
        verdict = judge(number, answer)
        assert verdict.state == "wrong"
        return verdict.line

    def answer(value: Any) -> Any:
        return (lambda *_: (value, value)) if number == 4 else (lambda *_: value)

    assert "without calling it" in hint(3.0)
    assert "str" in hint(answer("1"))
    assert "shape" in hint(answer(torch.zeros(11, 13)))
    assert "shape" in hint(answer(0.5))
    assert "more than numbers" in hint(answer([object()]))
    assert "ZeroDivisionError" in hint(lambda *_: 1 / 0)
    assert "TypeError" in hint(lambda: 1.0)
    shapes = {1: (6,), 2: (7, 6), 3: (5, 7), 4: (5,), 5: (7,), 6: (8,), 7: (6,)}
    shapes |= {9: (4,), 10: (6,), 11: (3, 4), 12: (4,)}
    assert "nan" in hint(answer(torch.full(shapes[number], torch.nan))).lower()
    hint(answer(torch.zeros(shapes[number])))


@pytest.mark.parametrize(
    ("number", "answer", "part"),
    [
        (4, lambda p: p, "tuple"),
        (4, lambda p: (1 / p.sum(-1), p), "add up to 1"),
        (8, 3.0, "tuple"),
        (8, ([0.5] * 6, [1 / 6] * 6), "μ is no distribution"),
        (8, ([1 / 6] * 6, [0.7, 0.7, -0.1, -0.1, -0.1, -0.1]), "π is no distribution"),
        (8, ([1 / 6] * 6, [0.2, 0.2, 0.6, 0.0, 0.0, 0.0]), "reaches D"),
        (8, ([1 / 6] * 6, [1.0, 0, 0, 0, 0, 0]), "minus infinity"),
        (11, lambda c: 0 * c, "0 everywhere"),
        (8, ([0.5, 0.5], [0.5, 0.5]), "shape"),
        (8, ([float("nan")] * 6, [1 / 6] * 6), "nan"),
        (13, "nsr", "set of names"),
        (13, 3, "set of names"),
        (13, {"lens", "adam"}, "adam"),
        (13, {1}, "not among"),
        (13, set(), "missing"),
        (14, 1.05, "tuple"),
        (14, (1.0, -1.0), "not defined"),
        (14, (0.5, -1.0), "not defined"),
        (14, ("2", -1.0), "str"),
        (14, (float("nan"), -1.0), "nan"),
        (14, (1e9, -1e-9), "more than"),
        (15, 0.6, "Three things"),
        (15, (0.0063, 0.0064, False), "percentage points"),
        (15, ("0.6", 0.6, False), "str"),
        (16, task, "Three things"),
        (16, (3, "paper", "sgd"), "without calling it"),
        (16, (lambda rng: 3, "paper", "sgd"), "checks.Task"),
        (16, (task(8.0, False), "grpo", "sgd"), "preset"),
        (16, (task(8.0, False), "paper", "rmsprop"), "sgd or adam"),
    ],
)
def test_other_mistakes_get_a_line_of_their_own(number: int, answer: Any, part: str) -> None:
    verdict = judge(number, answer)
    assert verdict.state == "wrong"
    assert part in verdict.line


def test_the_verdict_of_the_interval_counts() -> None:
    half = T * SD / math.sqrt(N)
    assert judge(15, (MEAN, half, False)).state == "right"
    assert "contain 0" in judge(15, (MEAN, half, True)).line


def test_hostile_answers_get_one_line(recwarn: pytest.WarningsRecorder) -> None:
    class NoArray:
        def __array__(self, *arguments: Any, **options: Any) -> None:
            raise RuntimeError

    def loud(z: torch.Tensor) -> None:
        raise ValueError("first\nsecond " + 500 * "long ")

    for answer, part in (
        (lambda z: NoArray(), "more than numbers"),
        (lambda z: z.to("meta"), "more than numbers"),
        (lambda z: z.to(torch.complex128), "complex"),
        (lambda z: [1j] * 8, "complex"),
        (lambda z: ["1"] * 8, "more than numbers"),
        (lambda z: exit(3), "SystemExit: 3"),
        (loud, "ValueError: first second long"),
    ):
        verdict = judge(6, answer)
        assert verdict.state == "wrong"
        assert part in verdict.line
        assert "\n" not in verdict.line
        assert len(verdict.line) < 300
    assert not recwarn


def test_distributions_may_be_off_by_rounding_and_stay_as_they_are() -> None:
    mu, pi = torch.tensor([1 + 9e-6, 0, 0, 0, 0, 0]).double(), torch.eye(6)[0].double() * (1 + 9e-6)
    before = pi.clone()
    assert judge(8, (mu, pi)).state == "right"
    assert torch.equal(pi, before)


def test_float32_and_lists_are_answers_too() -> None:
    assert judge(6, lambda z: (-torch.log1p(-z) / z - 1).float()).state == "right"
    assert judge(6, lambda z: (-torch.log1p(-z) / z - 1).tolist()).state == "right"
    assert judge(
        6, lambda z: (-np.log1p(-z.flip(0).numpy()) / z.flip(0).numpy() - 1)[::-1]
    ).state == ("right")


def test_an_answer_may_not_change_the_inputs_of_the_check() -> None:
    def destructive(z: torch.Tensor) -> torch.Tensor:
        return z.zero_()

    assert judge(6, destructive).state == "wrong"


def test_a_strict_session_raises(capsys: pytest.CaptureFixture[str]) -> None:
    checks.begin(strict=True)
    with pytest.raises(NotRightError, match="Exercise 6: not yet"):
        checks.check_6(lambda z: z)
    with pytest.raises(NotRightError, match="not answered yet"):
        checks.check_6(None)
    with pytest.raises(NotRightError, match="2 exercises"):
        checks.summary(5, 6)
    checks.begin()
    checks.check_6(lambda z: z)
    checks.summary(5, 6)
    out = capsys.readouterr().out
    assert "Exercise 6: not yet" in out
    assert "0 of 2 right" in out


def test_hints_name_constant_factors_and_signs() -> None:
    truth = torch.tensor([1.0, -2.0, 4.0], dtype=torch.float64)
    for found, words in (
        (-truth, "sign"),
        (truth + 1, "constant is missing"),
        (truth / 4, "same factor"),
        (truth * 0, "0 everywhere"),
        (truth * torch.tensor([1.0, 1.0, 2.0]), "2 of 3"),
    ):
        with pytest.raises(checking.Hint, match=words):
            checking.agree(found, truth)
    checking.agree(truth * (1 + 1e-6), truth)


def test_tasks_for_the_duel_are_checked() -> None:
    correct = np.zeros((2, 3), dtype=bool)
    with pytest.raises(ValueError, match=r"\[Q, K\]"):
        checks.Task(np.zeros((2, 3)), correct, np.ones(3, dtype=bool))
    with pytest.raises(ValueError, match="finite"):
        checks.Task(np.full((2, 3), np.inf), correct, np.ones(2, dtype=bool))
    with pytest.raises(ValueError, match="at most"):
        checks.Task(np.zeros((21, 3)), np.zeros((21, 3), dtype=bool), np.ones(21, dtype=bool))

    def growing(rng: np.random.Generator) -> checks.Task:
        k = int(rng.integers(2, 50))
        return checks.Task(np.zeros((1, k)), np.ones((1, k), dtype=bool), np.ones(1, dtype=bool))

    with pytest.raises(ValueError, match="same shape"):
        duel(growing)
    assert "paper" in PRESETS
    assert "negative_std" in PRESETS
