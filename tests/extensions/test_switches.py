"""Statements about switches of `LensConfig`: leave-one-out, the guard κ, truncation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lens_ref import LensConfig, Rollouts, lens_advantages, true_difficulty, value_mle
from tests.core.helpers import F64, assert_close, group, tensor
from tests.extensions.spaces import every_group, expected_update

LOGITS = tensor([0.2, -0.5, 0.4])
SPACES = [([0.7, 0.2, 0.4], True), ([1.0, 0.0, 0.0], True), ([0.7, 0.2, 0.4], False)]


def exact_gradient(p_star: Tensor, d: float) -> Tensor:
    leaf = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value_mle(leaf.softmax(0), p_star, d), leaf)
    return gradient


def estimate(p_star: Tensor, verdicts: bool, size: int, d: float | None, baseline: str) -> Tensor:
    """The expected update of the unstandardised, unscaled rule: Theorem 1's coefficients, centred.
    A D of 1.5 is above 2 max π, so that the guard leaves it alone."""
    pi = LOGITS.softmax(0)
    groups = every_group(pi, p_star, size, verdicts)
    rollouts = Rollouts(groups.rewards, pi.log()[groups.answers], torch.ones_like(groups.answers))
    config = LensConfig.preset("likelihood", baseline=baseline)
    log_d = None if d is None else torch.full((len(groups.answers),), d, dtype=F64).log()
    signal = lens_advantages(rollouts, config, log_d)
    if d is not None:
        assert (signal.info["log_difficulty"] - log_d).abs().max() < 1e-14
    return expected_update(pi, groups, signal.advantages)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("size", [2, 3])
def test_leave_one_out_is_unbiased_for_a_fixed_difficulty(
    space: tuple[list[float], bool], size: int
) -> None:
    """E = ∇J_MLE with the mean of the others, exactly (1 − 1/G) of it with the group's mean."""
    p_star, verdicts = tensor(space[0]), space[1]
    exact = exact_gradient(p_star, 1.5)
    assert exact.abs().max() > 0.01
    assert_close(estimate(p_star, verdicts, size, 1.5, "leave_one_out"), exact, 1e-13)
    assert_close(estimate(p_star, verdicts, size, 1.5, "group"), (1 - 1 / size) * exact, 1e-13)


def test_with_the_difficulty_of_the_same_group_neither_is() -> None:
    """Not a multiple of ∇J_MLE under the true D either: cosines below .999 and a wrong length."""
    p_star = tensor([0.7, 0.2, 0.4])
    exact = exact_gradient(p_star, true_difficulty(p_star).item())
    for baseline in ("leave_one_out", "group"):
        step = estimate(p_star, True, 3, None, baseline)
        cosine = torch.cosine_similarity(step, exact, dim=0).item()
        assert cosine < 0.999
        assert abs(step.norm() / exact.norm() - 1) > 0.1


@pytest.mark.parametrize("guard", [1.05, 1.5, 2.0, 5.0])
def test_guard_sets_the_floor_of_the_reward(guard: float) -> None:
    """−1/(κ−1), reached by the most confident answer of a negative group at any confidence."""
    config = LensConfig(guard=guard, mixed_scale=1.0, negative_scale=1.0)
    for top in (1e-6, 0.3, 0.99):
        rollouts = group([0.0] * 4, [top, top / 2, top / 3, top])
        reward = lens_advantages(rollouts, config).info["calibrated_reward"][0]
        assert reward[0].item() == pytest.approx(-1 / (guard - 1), rel=1e-9)
        assert reward.min() == reward[0]


def worst_mixed_group(size: int) -> Rollouts:
    """One unlikely correct answer, one wrong answer that owes nothing, and the rest as confident
    as can be: D_imp = G · 10⁻⁶ is below the guard."""
    return group([1.0] + [0.0] * (size - 1), [1e-6, 1e-12] + [0.8] * (size - 2))


@pytest.mark.parametrize("size", [3, 4, 8, 16, 64])
@pytest.mark.parametrize("guard", [1.1, 2.0, 5.0])
def test_sign_invariance_is_sharp_in_the_guard(size: int, guard: float) -> None:
    """A wrong answer has a negative advantage for every scale below (κ−1)/(G−2), not above."""
    bound = (guard - 1) / (size - 2)
    for factor, sign in ((1 - 1e-4, -1), (1 + 1e-4, 1)):
        config = LensConfig(
            guard=guard, mixed_scale=bound * factor, difficulty_confidence="length_normalized"
        )
        advantages = lens_advantages(worst_mixed_group(size), config).advantages[0]
        assert advantages[1].sign() == sign
        assert (advantages[2:] < 0).all()
        assert advantages[0] > 0


@pytest.mark.parametrize("guard", [1.1, 2.0, 5.0])
def test_signs_hold_below_the_bound_in_random_groups(guard: float) -> None:
    g = torch.Generator().manual_seed(0)
    rewards = (torch.rand(4000, 8, generator=g, dtype=F64) < 0.3).double()
    mixed = (rewards.sum(-1) > 0) & (rewards.sum(-1) < 8)
    log_pi = (torch.rand(4000, 8, generator=g, dtype=F64) ** 3).log()
    config = LensConfig(guard=guard, mixed_scale=0.999 * (guard - 1) / 6)
    rollouts = Rollouts(rewards[mixed], log_pi[mixed], torch.ones_like(rewards[mixed]))
    advantages = lens_advantages(rollouts, config).advantages
    assert torch.equal(advantages > 0, rollouts.rewards == 1)
    assert torch.equal(advantages < 0, rollouts.rewards == 0)


# Fifteen finished wrong answers with π̄ = .85 ± .03 (normal quantiles), and a truncated one first.
QUANTILES = torch.distributions.Normal(0.0, 1.0).icdf((torch.arange(15, dtype=F64) + 0.5) / 15)
FINISHED = (0.85 + 0.03 * QUANTILES / QUANTILES.square().mean().sqrt()).tolist()


def with_truncated(confidence: float, rule: str) -> tuple[Tensor, Tensor]:
    """Centred odds, as advantages (no 1/G, α = 1), and the odds."""
    flags = torch.arange(16)[None] == 0
    rollouts = group([0.0] * 16, [confidence, *FINISHED], truncated=flags)
    config = LensConfig(alpha=1.0, negative_scale=1.0, truncated=rule)
    signal = lens_advantages(rollouts, config)
    return signal.advantages[0], signal.info["odds"][0]


def spread(odds: Tensor) -> float:
    return odds[1:].std(correction=0).item()


def test_a_repetitive_truncated_response_under_each_rule() -> None:
    """π̄ = .99: kept, it takes the maximum, gets −.231, and shrinks what the others differ by from
    .059 to .047. Masked, it gets nothing. Out of the maximum, it pays no more than the most
    confident finished answer, and the others keep their spread."""
    advantages, odds = with_truncated(0.99, "keep")
    assert advantages[0].item() == pytest.approx(-0.231, abs=1e-3)
    assert advantages[1:].mean().item() == pytest.approx(0.0154, abs=1e-4)
    assert spread(odds) == pytest.approx(0.0466, abs=1e-4)
    advantages, odds = with_truncated(0.99, "mask")
    assert advantages[0] == 0
    assert spread(odds) == pytest.approx(0.0587, abs=1e-4)
    advantages, odds = with_truncated(0.99, "exclude_from_max")
    assert advantages[0].item() == pytest.approx(-0.110, abs=1e-3)
    assert advantages[0] == advantages[15]
    assert spread(odds) == pytest.approx(0.0587, abs=1e-4)


def test_an_unsure_truncated_response_is_rewarded_unless_masked() -> None:
    """π̄ = .70 and cut off: +.239, under "keep" and "exclude_from_max" alike."""
    for rule in ("keep", "exclude_from_max"):
        assert with_truncated(0.70, rule)[0][0].item() == pytest.approx(0.239, abs=1e-3)
    assert with_truncated(0.70, "mask")[0][0] == 0
