"""J_MLE over random answer spaces, pass@k by enumeration, length preferences."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from lens_ref import (
    Rollouts,
    bernoulli_nll,
    length_normalized,
    length_preference_reward,
    lens_advantages,
    mle_coefficient,
    mle_loss,
    pass_at_k,
    true_difficulty,
    value,
    value_mle,
    value_mle_closed_form,
    value_negative,
)
from lens_ref.core import LensConfig
from tests.core.helpers import assert_relative, tensor

_UNIT = st.integers(0, 64).map(lambda n: n / 64)


@st.composite
def spaces(draw: st.DrawFn) -> tuple[Tensor, Tensor, float, Tensor]:
    """π on the simplex, p* with certain and impossible answers, ρ, and D above every wrong π/ρ."""
    size = draw(st.integers(2, 8))
    mass = draw(st.lists(st.integers(0, 1000), min_size=size, max_size=size))
    assume(sum(mass) > 0)
    pi = tensor(mass) / sum(mass)
    p_star = tensor(draw(st.lists(_UNIT, min_size=size, max_size=size)))
    rho = tensor(draw(st.lists(st.integers(8, 128), min_size=size, max_size=size))) / 64
    bound = ((pi / rho) * (p_star < 1)).max().item()
    margin = draw(st.sampled_from([1.001, 1.5, 4.0, 100.0]))
    return pi, p_star, max(bound, 0.01) * margin, rho


@given(spaces())
def test_closed_form_equals_the_definition(space: tuple[Tensor, Tensor, float, Tensor]) -> None:
    pi, p_star, difficulty, rho = space
    definition = value_mle(pi, p_star, difficulty, rho).item()
    closed = value_mle_closed_form(pi, p_star, difficulty, rho).item()
    scale = 1 + abs(definition)
    assert closed == pytest.approx(definition, abs=1e-13 * scale)

    with mpmath.workdps(40):  # J₊ − J₋ with w as an integral of the odds, answer by answer
        expected = mpmath.mpf(0)
        for p, good, preference in zip(pi.tolist(), p_star.tolist(), rho.tolist(), strict=True):
            expected += mpmath.mpf(p) * good
            if good < 1 and p > 0:
                bound = mpmath.mpf(difficulty) * preference
                z = p / bound
                # π w(z) = D ρ ∫₀ᶻ u/(1−u) du = Dρ (−z − log(1−z))
                expected -= (1 - mpmath.mpf(good)) * bound * (-z - mpmath.log(1 - z))
    assert definition == pytest.approx(float(expected), abs=1e-12 * scale)


@given(spaces())
def test_j_mle_is_a_lower_bound_on_accuracy(space: tuple[Tensor, Tensor, float, Tensor]) -> None:
    pi, p_star, difficulty, _ = space
    wrong = pi * (p_star < 1)
    difficulty = max(difficulty, 1.001 * wrong.max().item(), 0.01)
    accuracy = value(pi, p_star).item()
    lower = value_mle(pi, p_star, difficulty).item()
    assert lower <= accuracy + 1e-15
    assert accuracy <= 1 + 1e-15
    assert value_negative(pi, p_star, difficulty).item() >= 0
    # Larger D, smaller penalty; the gap is at most Σ (1−p*) π² / (2 (D − max)).
    assert value_mle(pi, p_star, 2 * difficulty).item() >= lower - 1e-15
    gap = ((1 - p_star) * pi**2).sum().item() / (2 * (difficulty - wrong.max().item()))
    assert lower >= accuracy - gap - 1e-14


@given(spaces(), st.integers(0, 1000), _UNIT)
def test_closed_form_is_concave(
    space: tuple[Tensor, Tensor, float, Tensor], seed: int, mix: float
) -> None:
    pi, p_star, _, rho = space
    other = torch.rand(len(pi), generator=torch.Generator().manual_seed(seed)).double()
    other = other / other.sum()
    difficulty = 1.01 * torch.maximum(pi / rho, other / rho).max().item()

    def objective(x: Tensor) -> float:
        return value_mle_closed_form(x, p_star, difficulty, rho).item()

    between = objective(mix * pi + (1 - mix) * other)
    assert between >= mix * objective(pi) + (1 - mix) * objective(other) - 1e-12


def test_batches_of_questions() -> None:
    pi = tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    p_star = tensor([[1.0, 0, 0], [0, 0, 1.0]])
    difficulty = tensor([0.9, 1.7])
    for function in (value_negative, value_mle, value_mle_closed_form):
        both = function(pi, p_star, difficulty)
        assert both.shape == (2,)
        for q in range(2):
            assert both[q].item() == pytest.approx(
                function(pi[q], p_star[q], difficulty[q]).item(), rel=1e-15
            )


def test_float32_and_half_inputs() -> None:
    pi, p_star = tensor([0.5, 0.3, 0.2]), tensor([1.0, 0, 0])
    exact = value_mle(pi, p_star, 1.0).item()
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 1e-2)):
        result = value_mle(pi.to(dtype), p_star.to(dtype), 1.0)
        assert result.dtype == torch.float32
        assert result.item() == pytest.approx(exact, rel=tolerance)


@pytest.mark.parametrize("n", [1, 4, 7])
def test_pass_at_k_by_enumeration(n: int) -> None:
    """The share of k-subsets of n graded answers that hold a correct one."""
    for c in range(n + 1):
        graded = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            subsets = list(itertools.combinations(graded, k))
            share = sum(any(s) for s in subsets) / len(subsets)
            assert pass_at_k(n, c, k) == pytest.approx(share, abs=1e-15)


def test_pass_at_k_literals() -> None:
    # Outcomes [0, 0, 1, 0], k = 2: "the first k" would give 0, 1 − (1 − c/n)^k would give .4375.
    assert pass_at_k(4, 1, 2) == pytest.approx(0.5)
    assert pass_at_k(1_200, 1, 600) == pytest.approx(0.5)  # no overflow of the binomials
    table = pass_at_k(torch.tensor([[4], [8]]), torch.tensor([0, 1, 4]), 4)
    assert_relative(table, [[0, 1, 1], [0, 0.5, 1 - 1 / 70]], 1e-14)


def test_length_preference_forms() -> None:
    log_pi, lengths = tensor([[-1.0, -3.0], [-2.0, -8.0]]), torch.tensor([[5, 10], [4, 16]])
    difficulty = tensor([1.0, 0.7])
    exact = length_preference_reward(log_pi, lengths, difficulty.log(), 0.95)
    practical = length_preference_reward(log_pi, lengths, difficulty.log(), 0.95, "practical")
    for q, i in itertools.product(range(2), range(2)):
        pi, n = math.exp(log_pi[q, i].item()), int(lengths[q, i])
        bound = difficulty[q].item() * 0.95**n
        assert exact[q, i].item() == pytest.approx(-pi / (bound - pi), rel=1e-12)
        mean = pi ** (1 / n)
        assert practical[q, i].item() == pytest.approx(-mean / (0.95 - mean) / n, rel=1e-12)


def test_the_two_length_forms_disagree_on_long_answers() -> None:
    """At 1000 tokens the paper's chain is off by 70 times one way and by 20 orders the other."""
    for s, exact, practical in ((0.01, -99.5, -1.42), (50.0, -1.9e-22, -0.0192)):
        log_pi = -160.0
        gamma = math.exp((s - math.log(0.5) + log_pi) / 1000)
        arguments = (tensor([log_pi]), torch.tensor([1000]), math.log(0.5), gamma)
        assert length_preference_reward(*arguments).item() == pytest.approx(exact, rel=0.02)
        closing = length_preference_reward(*arguments, "practical").item()
        assert closing == pytest.approx(practical, rel=0.02)


def test_exact_length_form_near_its_pole() -> None:
    log_pi, gamma = -160.0, 0.8527437
    with mpmath.workdps(40):
        pi, bound = mpmath.exp(log_pi), mpmath.mpf(gamma) ** 1000 / 2
        expected = float(-pi / (bound - pi))
    reward = length_preference_reward(tensor([log_pi]), torch.tensor([1000]), math.log(0.5), gamma)
    assert_relative(reward, [expected], 1e-12)


def test_sequences_beyond_the_float_range() -> None:
    log_pi, lengths = tensor([-5000.0]), torch.tensor([9000])
    assert length_preference_reward(log_pi, lengths, 0.0, 0.9).item() == 0.0
    rollouts = Rollouts(tensor([[0.0, 0.0]]), tensor([[-5000.0, -9000.0]]), torch.ones(1, 2))
    config = LensConfig.preset("raw_all")
    odds = lens_advantages(rollouts, config).info["odds"][0].tolist()
    assert odds == pytest.approx([1.0, 0.0], abs=1e-12)


@pytest.mark.parametrize("function", [mle_coefficient, mle_loss, bernoulli_nll])
@pytest.mark.parametrize("narrow", [torch.float32, torch.int64])
def test_digits_that_a_narrow_difficulty_or_preference_does_not_cost(
    function: Callable[..., Tensor], narrow: torch.dtype
) -> None:
    """3 and 2 are exact in all of them; their logarithms and the product are not."""
    log_pi, rewards = tensor([-1.0, -2.0]), tensor([0.0, 1.0])
    expected = function(log_pi, rewards, tensor([3.0, 3.0]), tensor([2.0, 2.0]))
    wholes = torch.tensor([3, 3], dtype=narrow), torch.tensor([2, 2], dtype=narrow)
    assert_relative(function(log_pi, rewards, *wholes), expected, 1e-15)
    assert_relative(function(log_pi, rewards, wholes[0][0], wholes[1][0]), expected, 1e-15)


def test_a_difficulty_for_all_or_for_each_question() -> None:
    log_pi, rewards = tensor([[-1.0, -2.0], [-3.0, -1.5]]), tensor([[0.0, 1.0], [1.0, 0.0]])
    for all_of_them in (tensor(2.0), tensor([2.0]), tensor([[2.0]]), 2.0):
        expected = mle_loss(log_pi, rewards, torch.full_like(log_pi, 2.0))
        assert torch.equal(mle_loss(log_pi, rewards, all_of_them), expected)
    by_question = tensor([[2.0], [4.0]])
    expected = mle_coefficient(log_pi, rewards, tensor([[2.0, 2.0], [4.0, 4.0]]))
    assert torch.equal(mle_coefficient(log_pi, rewards, by_question), expected)


def test_a_bound_is_multiplied_in_the_wider_dtype() -> None:
    pi, p_star = tensor([0.5, 0.5]), tensor([1.0, 0.0])
    difficulty, rho = torch.tensor([1.1]), torch.tensor([0.7, 1.3])
    expected = value_negative(pi[None], p_star, difficulty.double(), rho.double())
    assert_relative(value_negative(pi[None], p_star, difficulty, rho), expected, 1e-15)


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float16])
def test_whole_numbers_whatever_the_default_dtype(default: torch.dtype) -> None:
    """Of 1,001 tokens bfloat16 makes 1,000, and 70,000 are beyond float16."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        logprobs = torch.tensor([-901.0, -7.0], dtype=torch.float32)
        confidence = length_normalized(logprobs, torch.tensor([1001, 70_000]))
        assert true_difficulty(torch.tensor([1, 1, 1])).dtype == torch.float32
    finally:
        torch.set_default_dtype(before)
    assert confidence.tolist() == pytest.approx([-901 / 1001, -7 / 70_000], rel=1e-7)
