"""docs/teaching.md adds up: minutes, marks, and the answers to the exam questions."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
import torch
from scipy import stats

from lens_ref import Rollouts, calibrated_reward, lens_advantages, pass_at_k
from notebooks.exercises import checks  # noqa: F401  (it fills EXERCISES)
from notebooks.exercises.checking import EXERCISES
from tests.pages.reading import ROOT

PAGE = (ROOT / "docs/teaching.md").read_text(encoding="utf-8")
EXAM = PAGE.split("## Exam questions")[1]
QUESTIONS = re.split(r"(?m)^(?=\d+\. \(\d+\))", EXAM)[1:]


def rows(section: str) -> list[list[str]]:
    """The cells of the table of a section, without its head."""
    lines = PAGE.split(f"## {section}")[1].split("\n## ")[0].splitlines()
    table = [line for line in lines if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


def minutes() -> dict[int, int]:
    return {int(row[0]): int(row[2]) for row in rows("What students get wrong")}


def numbers(text: str) -> list[int]:
    """ "4 to 7" is 4, 5, 6, 7."""
    text = re.sub(
        r"(\d+) to (\d+)", lambda m: " ".join(map(str, range(int(m[1]), int(m[2]) + 1))), text
    )
    return [int(n) for n in re.findall(r"\d+", text)]


def test_every_exercise_has_a_row() -> None:
    assert list(minutes()) == sorted(EXERCISES)


def test_every_exercise_belongs_to_a_notebook() -> None:
    named = [n for row in rows("Which notebook when") for n in numbers(row[2].strip("| "))]
    assert sorted(named) == sorted(EXERCISES)


def test_the_lesson_has_90_minutes_without_a_gap() -> None:
    times = [tuple(map(int, row[0].split("–"))) for row in rows("90 minutes")]
    assert times[0][0] == 0
    assert times[-1][1] == 90
    assert all(end == start for (_, end), (start, _) in pairwise(times))


def test_the_exercises_of_a_day_take_50_minutes_at_most() -> None:
    for row in rows("A week"):
        in_class = re.sub(r"; (?:[\d ]+ at home|then .*)|; begin 16.*", "", row[2])
        assert sum(minutes()[n] for n in numbers(in_class)) <= 50, row[0]


def test_marks_add_up() -> None:
    points = [int(q.split("(")[1].split(")")[0]) for q in QUESTIONS]
    assert f"{sum(points)} points, in brackets" in EXAM
    for question, wanted in zip(QUESTIONS, points, strict=True):
        marks = question.split("*Marks:")[1]
        given = [int(m) for m in re.findall(r"\((\d)\)", marks)]
        assert sum(given) == wanted, question[:60]


def test_the_answers_are_right() -> None:
    assert f"{1 - 0.9**4 - 0.1**4:.4f} (1)" in QUESTIONS[0]
    assert f"= +{-0.9 / (0.5 - 0.9):.2f} (2)" in QUESTIONS[2]
    confidence = torch.tensor([[0.6, 0.6, 0.3, 0.3]]).double()
    signal = lens_advantages(Rollouts(torch.zeros(1, 4), confidence.log(), torch.ones(1, 4)))
    assert signal.advantages[0].tolist() == pytest.approx([-1 / 48, -1 / 48, 1 / 48, 1 / 48])
    assert signal.info["calibrated_reward"].mean().item() == pytest.approx(-1 / 6)
    assert "−1/48, −1/48, +1/48, +1/48" in QUESTIONS[3]
    assert pass_at_k(16, 4, 4) > 1 - (12 / 16) ** 4  # "too low"
    factor = stats.t.ppf(0.975, 4)
    assert f"t = {factor:.2f}" in QUESTIONS[8]
    assert f"0.6 ± {factor * 0.5 / math.sqrt(5):.2f}" in QUESTIONS[8]


def test_scaling_all_confidences_changes_no_calibrated_reward() -> None:
    """Question 5."""
    confidence = torch.tensor([0.9, 0.5, 0.2]).double()
    rewards = torch.zeros(3).double()
    for scale in (1.0, 0.01):
        log_d = (2 * scale * confidence.max()).log()
        found = calibrated_reward(rewards, (scale * confidence).log(), log_d)
        assert found.tolist() == pytest.approx([-1.0, -5 / 13, -1 / 8])
