"""Rewards in (0, 1): the likelihood's optimum, and where the group rule goes instead."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lens_ref import (
    DomainError,
    LensConfig,
    Rollouts,
    lens_advantages,
    true_difficulty,
    value,
    value_mle,
)
from lens_ref.extensions import likelihood_optimum
from tests.core.helpers import F64, assert_close, tensor
from tests.extensions.spaces import every_group, expected_update

P_STAR = tensor([0.3, 0.2, 0.1])  # true D = 5/3


def random_space(seed: int) -> tuple[Tensor, Tensor, float]:
    """p* < 1 on 2–7 answers, ρ, and a D between barely feasible and 20 times that."""
    g = torch.Generator().manual_seed(seed)
    size = 2 + seed % 6
    p_star = 0.95 * torch.rand(size, generator=g, dtype=F64)
    rho = 0.2 + torch.rand(size, generator=g, dtype=F64)
    stretch = 1.02 + 19 * torch.rand((), generator=g, dtype=F64).item() ** 3
    return p_star, rho, stretch / rho.sum().item()


def test_literals() -> None:
    """By hand, D = 10/3: two answers, λ = (20/3 − 1)/1.5 = 34/9, π = (10/3 − .7λ, 10/3 − .8λ)."""
    assert_close(likelihood_optimum(P_STAR), [1 / 2, 1 / 3, 1 / 6], 1e-15)
    assert_close(likelihood_optimum(P_STAR, 10 / 3), [31 / 45, 14 / 45, 0], 1e-14)
    # D = .4: all three, λ = (1.2 − 1)/2.4 = 1/12
    assert_close(likelihood_optimum(P_STAR, 0.4), [0.41 / 1.2, 0.4 / 1.2, 0.39 / 1.2], 1e-14)
    # ρ = (1, 2, 1) at D = 1: λ = 3/3.2, π = ρ(1 − λq)
    filled = likelihood_optimum(P_STAR, 1.0, tensor([1.0, 2, 1]))
    assert_close(filled, [1.1 / 3.2, 1.6 / 3.2, 0.5 / 3.2], 1e-14)
    # the order of the answers doesn't matter, and impossible ones get exactly nothing
    assert_close(likelihood_optimum(tensor([0, 0.2, 0.3]), 4.0), [0, 0.4 / 1.5, 1.1 / 1.5], 1e-14)
    assert likelihood_optimum(tensor([0.0, 0.2, 0.3]))[0] == 0


def test_true_difficulty_matches_probabilities() -> None:
    """π* = D ρ p*, whether D is given or not."""
    rho = tensor([1.0, 2.0, 0.5])
    for preference, expected in ((None, [3 / 6, 2 / 6, 1 / 6]), (rho, [6 / 15, 8 / 15, 1 / 15])):
        d = true_difficulty(P_STAR, preference)
        assert_close(likelihood_optimum(P_STAR, preference=preference), expected, 1e-15)
        assert_close(likelihood_optimum(P_STAR, d, preference), expected, 1e-14)


@pytest.mark.parametrize("seed", range(40))
def test_conditions_of_an_optimum(seed: int) -> None:
    """A distribution below the pole, with one slope on the support and no larger one off it; J_MLE
    is concave, so nothing else is an optimum. The slope is autograd's, of the definition."""
    p_star, rho, d = random_space(seed)
    pi = likelihood_optimum(p_star, d, rho).requires_grad_()
    assert pi.sum().item() == pytest.approx(1, abs=1e-12)
    assert (pi >= 0).all()
    assert (pi < d * rho).all()
    (slope,) = torch.autograd.grad(value_mle(pi, p_star, d, rho), pi)
    support = pi > 0
    level = slope[support].mean()
    assert (slope[support] - level).abs().max() < 1e-9 * slope.abs().max()
    assert (slope[~support] <= level + 1e-12).all()


def test_random_spaces_have_full_and_partial_supports() -> None:
    sizes = [
        (likelihood_optimum(p, d, rho) > 0).double().mean()
        for p, rho, d in map(random_space, range(40))
    ]
    assert sum(size == 1 for size in sizes) >= 5
    assert sum(size < 1 for size in sizes) >= 15


@pytest.mark.parametrize("seed", [0, 4, 9])
def test_numerical_maximum(seed: int) -> None:
    """Ascent from ρ/Σρ, autograd of the definition of J_MLE, multiplicative steps."""
    p_star, rho, d = random_space(seed)
    logits, step = rho.log(), 0.05
    for _ in range(400):
        pi = logits.softmax(-1).requires_grad_()
        j = value_mle(pi, p_star, d, rho)
        (slope,) = torch.autograd.grad(j, pi)
        while True:  # shorten the step until it stays below the pole and climbs
            moved = logits + step * slope
            new = moved.softmax(-1)
            if (new < d * rho).all() and value_mle(new, p_star, d, rho) >= j - 1e-15:
                break
            step /= 2
        logits, step = moved - moved.logsumexp(-1), min(2 * step, 20.0)
    optimum = likelihood_optimum(p_star, d, rho)
    assert (logits.exp() - optimum).abs().max() < 1e-5
    assert value_mle(optimum, p_star, d, rho) >= j - 1e-12


def test_difficulty_is_an_inverse_temperature() -> None:
    """From uniform, through probability matching, to the likeliest answer; accuracy never falls."""
    grid = 1 / 3 + torch.logspace(-9, 3, 400, dtype=F64)
    optima = likelihood_optimum(P_STAR, grid)
    assert optima.shape == (400, 3)
    accuracy = value(optima, P_STAR)
    assert (accuracy.diff() >= -1e-15).all()
    assert_close(optima[0], [1 / 3] * 3, 1e-8)
    assert optima[-1].tolist() == [1, 0, 0]
    assert likelihood_optimum(P_STAR, 7.99)[1] > 0
    assert likelihood_optimum(P_STAR, 8.01)[1] == 0
    for huge in (1e12, 1e300, math.inf):
        assert likelihood_optimum(P_STAR, huge).tolist() == [1, 0, 0]
    tied = likelihood_optimum(tensor([0.3, 0.3, 0.1]), math.inf, tensor([1.0, 3.0, 5.0]))
    assert_close(tied, [1 / 4, 3 / 4, 0], 1e-15)
    assert_close(
        likelihood_optimum(tensor([0.3, 0.3, 0.1]), 1e9, tensor([1.0, 3.0, 5.0])), tied, 1e-8
    )


@pytest.mark.parametrize("seed", range(6))
def test_accuracy_grows_with_the_difficulty_under_a_preference(seed: int) -> None:
    p_star, rho, _ = random_space(seed)
    optima = likelihood_optimum(p_star, torch.linspace(1.001, 30, 300, dtype=F64) / rho.sum(), rho)
    assert (value(optima, p_star).diff() >= -1e-13).all()


def test_certain_answers() -> None:
    """On p* = 1 nothing bounds π: J_MLE = 1 on the whole face, and D p* is below it."""
    p_star = tensor([1.0, 0.5])
    d = true_difficulty(p_star)  # 2/3
    assert likelihood_optimum(p_star).tolist() == [1, 0]
    assert value_mle(tensor([1.0, 0.0]), p_star, d) == 1
    assert value_mle(d * p_star, p_star, d).item() == pytest.approx(1 - math.log(2) / 3)
    # with π ≤ D on every answer the segment ends at D p*, and that is its best point
    on_segment = torch.linspace(0.34, 2 / 3, 200, dtype=F64)
    values = value_mle(torch.stack([on_segment, 1 - on_segment], -1), p_star, d)
    assert values.argmax() == 199
    both = tensor([[1.0, 1, 0, 0.9], [0.2, 1, 1, 1]])
    rho = tensor([1.0, 3, 1, 0])
    assert_close(
        likelihood_optimum(both, 1.0, rho), [[0.25, 0.75, 0, 0], [0, 0.75, 0.25, 0]], 1e-15
    )


def test_an_answer_without_preference_gets_nothing() -> None:
    """Certain or not; D = 1/(.5 + .25)."""
    p_star, rho = tensor([1.0, 0.5, 0.25]), tensor([0.0, 1, 1])
    assert_close(likelihood_optimum(p_star, preference=rho), [0, 2 / 3, 1 / 3], 1e-15)
    # D = 1: λ = (2 − 1)/1.25
    assert_close(likelihood_optimum(p_star, 1.0, rho), [0, 0.6, 0.4], 1e-14)
    assert likelihood_optimum(p_star, math.inf, rho).tolist() == [0, 1, 0]


def test_nothing_correct() -> None:
    """J_MLE then only spreads the mass: ρ/Σρ at every D."""
    for d in (None, 0.5, 100.0):
        assert_close(likelihood_optimum(torch.zeros(4, dtype=F64), d), [0.25] * 4, 1e-14)


def test_refusals() -> None:
    with pytest.raises(DomainError, match=r"difficulty = 0.333: too small"):
        likelihood_optimum(P_STAR, 0.333)
    with pytest.raises(DomainError, match=r"difficulty\[1\] = 0.3: too small"):
        likelihood_optimum(P_STAR.repeat(2, 1), tensor([1.0, 0.3]))
    with pytest.raises(DomainError, match=r"difficulty = -1"):
        likelihood_optimum(P_STAR, -1.0)
    with pytest.raises(DomainError, match=r"p_star\[0\] = 1.5"):
        likelihood_optimum(tensor([1.5, 0]))
    with pytest.raises(DomainError, match=r"preference\[1\] = -2"):
        likelihood_optimum(tensor([0.5, 0.5]), 1.0, tensor([1.0, -2]))
    with pytest.raises(ValueError, match=r"difficulty has shape \(2, 1\): expected one a question"):
        likelihood_optimum(P_STAR.repeat(2, 1), tensor([[1.0], [2.0]]))
    with pytest.raises(ValueError, match="line up"):
        likelihood_optimum(P_STAR.repeat(2, 1), tensor([1.0, 2, 3]))


def group_drift(
    pi: Tensor,
    p_star: Tensor,
    size: int,
    verdicts: bool,
    config: LensConfig,
    d: Tensor | None = None,
) -> Tensor:
    """The expected update of the group rule at π, every group enumerated."""
    groups = every_group(pi, p_star, size, verdicts)
    rollouts = Rollouts(groups.rewards, pi.log()[groups.answers], torch.ones_like(groups.answers))
    estimate = None if d is None else d.log().expand(len(groups.answers))
    return expected_update(pi, groups, lens_advantages(rollouts, config, estimate).advantages)


def end_of_flow(p_star: Tensor, size: int, verdicts: bool, config: LensConfig) -> Tensor:
    """Where the expected update leads from uniform."""
    logits = torch.zeros(3, dtype=F64)
    for _ in range(300):
        drift = group_drift(logits.softmax(0), p_star, size, verdicts, config)
        logits = logits + 3 * drift / max(1.0, 10 * drift.abs().max().item())
    return logits.softmax(0)


LIKELIHOOD = LensConfig.preset("likelihood")


@pytest.mark.parametrize("size", [2, 3, 4])
def test_fractional_rewards_have_the_optimum_as_a_fixed_point(size: int) -> None:
    """r/π = 1/D on every sample, so D_imp has no variance; needs guard · max p* ≤ 1."""
    optimum = likelihood_optimum(P_STAR)
    assert group_drift(optimum, P_STAR, size, False, LIKELIHOOD).abs().max() < 1e-15
    steep = tensor([0.6, 0.3, 0.1])  # D = 1, and the guard of 2 asks for 1.2
    guarded = group_drift(likelihood_optimum(steep), steep, size, False, LIKELIHOOD)
    assert guarded[0] > 0.01
    weak = LensConfig.preset("likelihood", guard=1.6)
    assert group_drift(likelihood_optimum(steep), steep, size, False, weak).abs().max() < 1e-15


def test_fractional_rewards_lead_there() -> None:
    assert (
        end_of_flow(P_STAR, 3, False, LIKELIHOOD) - likelihood_optimum(P_STAR)
    ).abs().max() < 1e-3
    steep = end_of_flow(tensor([0.6, 0.3, 0.1]), 3, False, LIKELIHOOD)
    assert steep[0].item() == pytest.approx(0.80, abs=0.01)  # and not .6


@pytest.mark.parametrize("size", [2, 3, 4])
def test_sampled_verdicts_lead_elsewhere(size: int) -> None:
    """With D from the same group; with the true D the fixed point is D p* again."""
    optimum = likelihood_optimum(P_STAR)
    assert group_drift(optimum, P_STAR, size, True, LIKELIHOOD)[0] < -0.02
    true_d = true_difficulty(P_STAR)
    assert group_drift(optimum, P_STAR, size, True, LIKELIHOOD, true_d).abs().max() < 1e-15


def test_where_sampled_verdicts_lead() -> None:
    """Too flat, and a fixed point."""
    end = end_of_flow(P_STAR, 3, True, LIKELIHOOD)
    assert end.tolist() == pytest.approx([0.385, 0.331, 0.284], abs=0.001)
    assert group_drift(end, P_STAR, 3, True, LIKELIHOOD).abs().max() < 1e-5


@pytest.mark.parametrize("p_star", [[0.3, 0.2, 0.1], [0.6, 0.3, 0.1]])
def test_the_printed_rule_maximises_reward(p_star: list[float]) -> None:
    """With std and 1/G, P(first) rises at D p*, and goes on to nearly 1 with sampled verdicts."""
    for size in (2, 3, 4):
        for verdicts in (True, False):
            optimum = likelihood_optimum(tensor(p_star))
            assert group_drift(optimum, tensor(p_star), size, verdicts, LensConfig())[0] > 0.02
    assert end_of_flow(tensor(p_star), 3, True, LensConfig())[0] > 0.98
