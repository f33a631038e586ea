"""Confidence and difficulty: D_imp, the guard, and what each reading of the paper makes of them."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from lens_ref import (
    LensConfig,
    difficulty,
    importance_difficulty,
    length_normalized,
    lens_advantages,
    true_difficulty,
)
from tests.core.helpers import F64, assert_relative, group, tensor

PI = [0.4, 0.3, 0.2, 0.1]


def test_confidence_literals() -> None:
    logprobs = tensor([[-6.0, -6.0, 0.0]])
    confidence = length_normalized(logprobs, torch.tensor([[3, 1, 5]]))
    assert confidence.tolist() == [[-2.0, -6.0, 0.0]]
    # Samplers round: a hair above 0 is probability 1, not an error.
    assert length_normalized(tensor([5e-7]), torch.tensor([2])).tolist() == [0.0]


def test_difficulty_literals() -> None:
    log_confidence = tensor([0.9, 0.8, 0.5, 0.2]).log()
    for rewards, importance, expected in (
        ([0.0, 0, 0, 0], math.inf, 1.8),  # negative: the guard alone
        ([1.0, 0, 0, 0], 3.6, 3.6),  # 4 · .9
        ([0.0, 0, 0, 1], 0.8, 1.8),  # 4 · .2, below the guard
        ([1.0, 1, 1, 1], 4 / (1 / 0.9 + 1 / 0.8 + 1 / 0.5 + 1 / 0.2), 1.8),
        ([0.5, 0, 0, 0], 7.2, 7.2),
    ):
        estimate = importance_difficulty(tensor(rewards), log_confidence)
        assert estimate.exp().item() == pytest.approx(importance, rel=1e-14)
        log_difficulty = difficulty(tensor(rewards), log_confidence)
        assert log_difficulty.exp().item() == pytest.approx(expected, rel=1e-14)


def test_guard_multiplies_the_most_confident_response() -> None:
    log_confidence = tensor([[0.2, 0.6], [0.3, 0.1]]).log()
    for guard in (1.5, 2.0, 3.0):
        log_difficulty = difficulty(torch.zeros(2, 2, dtype=F64), log_confidence, guard=guard)
        assert_relative(log_difficulty.exp(), [guard * 0.6, guard * 0.3], 1e-14)


def test_importance_confidence_enters_d_imp_alone() -> None:
    rewards, confidence = tensor([1.0, 0.0]), tensor([0.5, 0.9]).log()
    log_difficulty = difficulty(
        rewards, confidence, importance_log_confidence=tensor([3.0, 0.9]).log()
    )
    assert log_difficulty.exp().item() == pytest.approx(6.0)  # 2 · 3 beats 2 · .9
    log_difficulty = difficulty(
        rewards, confidence, importance_log_confidence=tensor([1e-9, 9.0]).log()
    )
    assert log_difficulty.exp().item() == pytest.approx(1.8)


def test_sequence_probabilities_below_the_smallest_float() -> None:
    rewards = tensor([[1.0] + [0.0] * 15], torch.float32)
    logprobs = tensor([[-4000.0] + [-5000.0] * 15], torch.float32)
    log_difficulty = importance_difficulty(rewards, logprobs)
    assert log_difficulty.item() == pytest.approx(-4000 + math.log(16), rel=1e-6)


@pytest.mark.parametrize("p_star", [[1, 0, 1, 0], [0, 0, 0, 1], [0.9, 0.5, 0.0, 0.2]])
def test_one_over_d_imp_is_unbiased(p_star: list[float]) -> None:
    """Exact expectation over all 4^5 samples of a group of five."""
    answers = torch.tensor(list(itertools.product(range(4), repeat=5)))
    probability = tensor(PI)[answers].prod(-1)
    assert probability.sum().item() == pytest.approx(1.0)
    log_difficulty = importance_difficulty(tensor(p_star)[answers], tensor(PI)[answers].log())
    inverse = (-log_difficulty).exp()
    expected = 1 / true_difficulty(tensor(p_star)).item()
    assert (probability * inverse).sum().item() == pytest.approx(expected, rel=1e-13)


def test_d_imp_itself_is_biased() -> None:
    """Given one correct answer at least, E[D_imp] misses the true D = 1/2 even at G = 5."""
    answers = torch.tensor(list(itertools.product(range(4), repeat=5)))
    rewards = tensor([1.0, 0.0, 1.0, 0.0])[answers]
    probability = tensor(PI)[answers].prod(-1)
    defined = rewards.sum(-1) > 0
    mean = (probability * importance_difficulty(rewards, tensor(PI)[answers].log()).exp())[defined]
    assert mean.sum().item() / probability[defined].sum().item() > 0.55


def test_normalized_d_imp_estimates_the_difficulty_with_preference() -> None:
    """On π̄ the estimate is unbiased for 1/D with ρ = π^(1−1/L): Σ p* π/π̄."""
    lengths, p_star = torch.tensor([3, 1, 2, 5]), tensor([1.0, 0.0, 1.0, 0.4])
    answers = torch.tensor(list(itertools.product(range(4), repeat=4)))
    log_confidence = length_normalized(tensor(PI).log(), lengths)
    log_difficulty = importance_difficulty(p_star[answers], log_confidence[answers])
    mean = (tensor(PI)[answers].prod(-1) * (-log_difficulty).exp()).sum()
    rho = tensor(PI) ** (1 - 1 / lengths.double())
    assert mean.item() == pytest.approx(1 / true_difficulty(p_star, rho).item(), rel=1e-13)


def test_true_difficulty_literals() -> None:
    assert true_difficulty(tensor([1.0, 1, 0, 0])).item() == 0.5
    assert true_difficulty(tensor([0.3, 0.2, 0.1])).item() == pytest.approx(1 / 0.6)
    assert true_difficulty(tensor([0.0, 0.0])).item() == math.inf
    assert true_difficulty(tensor([1.0, 1.0]), tensor([0.5, 1.5])).item() == pytest.approx(0.5)
    assert true_difficulty(tensor([[1.0, 0.0], [1.0, 1.0]])).tolist() == [1.0, 0.5]


@pytest.mark.parametrize(("size", "odds"), [(16, 0.8 / 12), (4, 0.8 / 2.4)])
def test_printed_reading_ignores_accuracy_on_long_answers(size: int, odds: float) -> None:
    """One correct answer, all π̄ = .8, 1344 tokens of .223 nats: π = e^-300."""
    rollouts = group([1.0] + [0.0] * (size - 1), [0.8] * size, [1344] * size)
    printed = lens_advantages(rollouts).info
    assert printed["odds"][0, 1].item() == pytest.approx(1.0)  # the guard, whatever G
    normalized = lens_advantages(rollouts, LensConfig.preset("normalized_difficulty")).info
    assert normalized["odds"][0, 1].item() == pytest.approx(odds)


def test_fallback_jumps_at_no_correct_answer() -> None:
    """Identical π̄ = .85, G = 16: the odds fall with k, and are largest of all at k = 0."""
    config = LensConfig.preset("normalized_difficulty")
    for correct, odds in ((4, 1 / 3), (2, 1 / 7), (1, 1 / 15), (0, 1.0)):
        rollouts = group([1.0] * correct + [0.0] * (16 - correct), [0.85] * 16, [8] * 16)
        assert lens_advantages(rollouts, config).info["odds"][0, -1].item() == pytest.approx(odds)
