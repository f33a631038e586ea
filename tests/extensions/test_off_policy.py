"""Samples from μ ≠ π, on six options with exact expectations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lens_ref import DomainError, mle_coefficient, mle_loss, value_mle
from lens_ref.extensions import (
    bounded_coefficient,
    inverse_sampling_weights,
    likelihood_optimum,
    off_policy_coefficient,
)
from tests.core.helpers import F64, assert_close, tensor

MU = tensor([0.4, 0.1, 0.2, 0.15, 0.1, 0.05])
CERTAIN = tensor([1.0, 1, 0, 0, 0, 0])  # D = 1/2, π* = (½, ½, 0, …)
OPTIMUM = tensor([0.5, 0.5, 0, 0, 0, 0])


def expected_step(pi: Tensor, mu: Tensor, coefficient: Tensor) -> Tensor:
    """E_μ[c ∇ log π] in softmax logits."""
    return (mu * coefficient)[:, None].mul(torch.eye(len(pi), dtype=F64) - pi).sum(0)


def spaces(seed: int) -> tuple[Tensor, Tensor, Tensor, float]:
    """Logits, p* with certain and impossible answers, ρ, D above every wrong π/ρ."""
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(6, generator=g, dtype=F64)
    p_star = torch.rand(6, generator=g, dtype=F64)
    p_star[0], p_star[1] = 1.0, 0.0
    rho = 0.5 + torch.rand(6, generator=g, dtype=F64)
    pole = (logits.softmax(0) / rho)[1:].max().item()
    return logits, p_star, rho, 1.3 * pole


@pytest.mark.parametrize("seed", range(5))
def test_ratio_gives_the_gradient_of_the_objective(seed: int) -> None:
    """Autograd of J_MLE by enumeration. Verdicts drawn from p* give the same: c is linear in r."""
    logits, p_star, rho, d = spaces(seed)
    leaf = logits.clone().requires_grad_()
    (exact,) = torch.autograd.grad(value_mle(leaf.softmax(0), p_star, d, rho), leaf)
    pi = logits.softmax(0)
    arguments = (pi.log(), MU.log(), p_star, d, rho)
    assert_close(expected_step(pi, MU, off_policy_coefficient(*arguments)), exact, 1e-13)
    loose = off_policy_coefficient(*arguments, cap=(pi / MU).max().item() * 1.001)
    assert_close(expected_step(pi, MU, loose), exact, 1e-13)
    without = expected_step(pi, MU, mle_coefficient(pi.log(), p_star, d, rho))
    assert (without - exact).abs().max() > 0.01
    by_verdict = torch.zeros(6, dtype=F64)
    for r, chance in ((torch.ones(6), p_star), (torch.zeros(6), 1 - p_star)):
        drawn = chance > 0  # a certain answer is never seen wrong
        c = torch.zeros(6, dtype=F64)
        c[drawn] = off_policy_coefficient(pi[drawn].log(), MU[drawn].log(), r[drawn], d, rho[drawn])
        by_verdict += expected_step(pi, MU, chance * c)
    assert_close(by_verdict, exact, 1e-12)


def test_coefficient_by_hand() -> None:
    """Ratios 2, 1/2, 5; D = 1: coefficients 1, −.25/.75, −1."""
    pi, mu = tensor([0.5, 0.25, 0.5]), tensor([0.25, 0.5, 0.1])
    rewards = tensor([1.0, 0, 0])
    assert_close(off_policy_coefficient(pi.log(), mu.log(), rewards, 1.0), [2, -1 / 6, -5], 1e-15)
    capped = off_policy_coefficient(pi.log(), mu.log(), rewards, 1.0, cap=1.5)
    assert_close(capped, [1.5, -1 / 6, -1.5], 1e-15)
    halved = off_policy_coefficient(pi.log(), mu.log(), rewards, 1.0, tensor([1.0, 0.5, 2]))
    assert_close(halved, [2, -0.5, -5 / 3], 1e-15)


def test_cap_biases_towards_what_was_sampled_often() -> None:
    """π uniform, μ = (.4, .1, …), D = 1/2: answer B has the ratio 5/3. A cap of 1 takes 2/3 of its
    weight in μ, .0667, off its pull, so that A and B are no longer treated alike."""
    pi = torch.full((6,), 1 / 6, dtype=F64)
    exact = expected_step(pi, MU, off_policy_coefficient(pi.log(), MU.log(), CERTAIN, 0.5))
    assert exact[0].item() == pytest.approx(exact[1].item(), abs=1e-16)
    mu = tensor([0.4, 0.1, 0.125, 0.125, 0.125, 0.125])
    c = off_policy_coefficient(pi.log(), mu.log(), CERTAIN, 0.5, cap=1.0)
    # c = (5/12, 1, −½, …): each wrong answer loses 1/24 of its weight, and pays the odds ½
    pull = tensor([1 / 6, 1 / 10, -1 / 16, -1 / 16, -1 / 16, -1 / 16])
    assert_close(mu * c, pull, 1e-14)
    bias = expected_step(pi, mu, c) - exact
    missing = tensor([0, -1 / 15, *[1 / 48] * 4])
    assert_close(bias, missing - missing.sum() / 6, 1e-13)


def test_sequences_beyond_the_float_range() -> None:
    c = off_policy_coefficient(tensor([-10_000.0]), tensor([-10_000.5]), tensor([1.0]), 1.0)
    assert c.item() == pytest.approx(math.exp(0.5), rel=1e-12)
    with pytest.raises(DomainError, match=r"log_pi - log_mu\[0\] = 9000: pi/mu overflows"):
        off_policy_coefficient(tensor([-1.0]), tensor([-9001.0]), tensor([1.0]), 1.0)
    capped = off_policy_coefficient(tensor([-1.0]), tensor([-9001.0]), tensor([1.0]), 1.0, cap=3)
    assert capped.item() == pytest.approx(3)
    shifted = inverse_sampling_weights(tensor([-9001.0, -9000]) + 9000, tensor([1.0, 1]))
    assert shifted.tolist() == pytest.approx([math.e, 1])
    with pytest.raises(DomainError, match=r"log_mu\[1\] = -9000: 1/mu overflows"):
        inverse_sampling_weights(tensor([-1.0, -9000]), tensor([1.0, 1]))


def log_likelihood(pi: Tensor) -> float:
    """E_μ of the log-likelihood with certain verdicts, for π on the two correct answers."""
    return (MU[:2] * pi.log()).sum().item()


def test_the_likelihood_under_mu_prefers_another_policy() -> None:
    other = tensor([0.8, 0.2])
    assert log_likelihood(OPTIMUM[:2]) == pytest.approx(-0.3466, abs=5e-5)
    assert log_likelihood(other) == pytest.approx(-0.2502, abs=5e-5)
    weights = MU / MU.sum()  # the library's own loss, samples in the proportions of μ
    pi = tensor([0.8, 0.2, 0, 0, 0, 0])
    losses = [mle_loss(p.log(), r, 0.5) for p, r in zip(pi[:2], CERTAIN[:2], strict=True)]
    assert -(weights[:2] * torch.stack(losses)).sum().item() == pytest.approx(-0.2502, abs=5e-5)
    slope = expected_step(OPTIMUM, MU, mle_coefficient(OPTIMUM.log(), CERTAIN, 0.5))
    assert_close(slope, [0.15, -0.15, 0, 0, 0, 0], 1e-15)


def test_each_mend_makes_the_optimum_stationary() -> None:
    log_pi = OPTIMUM.log()
    plain = mle_coefficient(log_pi, CERTAIN, 0.5)
    weighted = inverse_sampling_weights(MU.log(), CERTAIN) * plain
    assert inverse_sampling_weights(MU.log(), CERTAIN).tolist() == pytest.approx(
        [2.5, 10, 1, 1, 1, 1]
    )
    bounded = bounded_coefficient(log_pi, CERTAIN, 0.5)
    assert bounded.tolist() == [0] * 6
    ratio = off_policy_coefficient(log_pi, MU.log(), CERTAIN, 0.5)
    for coefficient in (weighted, bounded, ratio):
        assert expected_step(OPTIMUM, MU, coefficient).abs().max() < 1e-15


@pytest.mark.parametrize(("mend", "share"), [("none", 0.8), ("weights", 0.5), ("bound", 0.5)])
def test_where_each_rule_leads(mend: str, share: float) -> None:
    """From uniform, exact expected steps in softmax logits: A's share of the correct mass."""
    logits = torch.zeros(6, dtype=F64)
    for _ in range(1500):
        log_pi = logits.log_softmax(0)
        if mend == "bound":
            coefficient = bounded_coefficient(log_pi, CERTAIN, 0.5)
        else:
            coefficient = mle_coefficient(log_pi, CERTAIN, 0.5)
        if mend == "weights":
            coefficient = coefficient * inverse_sampling_weights(MU.log(), CERTAIN)
        logits = logits + 0.3 * expected_step(log_pi.exp(), MU, coefficient)
    pi = logits.softmax(0)
    assert pi[:2].sum() > 0.97
    assert (pi[0] / pi[:2].sum()).item() == pytest.approx(share, abs=0.01)


def test_uncertain_verdicts_need_no_weights() -> None:
    """0 < p* < 1: c averages to 0 at D p* under any μ; 1/μ on positives alone would move it."""
    p_star = tensor([0.9, 0.5, 0.3, 0.1, 0.6, 0.2])
    pi = likelihood_optimum(p_star)
    d = 1 / p_star.sum().item()
    weights = inverse_sampling_weights(MU.log(), torch.ones(6))
    plain, weighted = torch.zeros(6, dtype=F64), torch.zeros(6, dtype=F64)
    for r, chance in ((1.0, p_star), (0.0, 1 - p_star)):
        c = mle_coefficient(pi.log(), torch.full((6,), r), d)
        plain += expected_step(pi, MU, chance * c)
        weighted += expected_step(pi, MU, chance * c * (weights if r else 1))
    assert plain.abs().max() < 1e-15
    assert weighted.abs().max() > 0.05


def test_bounded_coefficient_by_hand() -> None:
    pi = tensor([0.4, 0.5, 0.6, 0.2])
    rewards = tensor([1.0, 1, 1, 0])
    assert_close(bounded_coefficient(pi.log(), rewards, 0.5), [1, 0, 0, -2 / 3], 1e-15)
    rho = tensor([0.7, 1.1, 1.3, 1.0])  # D ρ = .35, .55, .65, .5
    assert_close(bounded_coefficient(pi.log(), rewards, 0.5, rho), [0, 1, 1, -2 / 3], 1e-15)
    assert bounded_coefficient(pi.log(), tensor([0.5]), 1.0)[0] == pytest.approx(0.5 - 0.5 * 2 / 3)


def test_refusals() -> None:
    log_pi, rewards = tensor([-1.0, -1]), tensor([1.0, 0])
    with pytest.raises(DomainError, match=r"log_mu\[1\] = -inf: what was sampled"):
        off_policy_coefficient(log_pi, tensor([-1.0, -math.inf]), rewards, 1.0)
    with pytest.raises(DomainError, match=r"log_mu\[0\] = 0.5"):
        inverse_sampling_weights(tensor([0.5, -1]), rewards)
    with pytest.raises(DomainError, match="cap = 0"):
        off_policy_coefficient(log_pi, log_pi, rewards, 1.0, cap=0)
    with pytest.raises(DomainError, match=r"pi >= D \* rho"):
        off_policy_coefficient(log_pi, log_pi, rewards, 0.3)
    with pytest.raises(DomainError, match=r"rewards\[0\] = 2"):
        inverse_sampling_weights(log_pi, tensor([2.0, 0]))


def test_nothing_carries_a_gradient() -> None:
    log_pi = tensor([-1.0, -2]).requires_grad_()
    rewards = tensor([1.0, 0])
    assert not off_policy_coefficient(log_pi, log_pi, rewards, 1.0).requires_grad
    assert not bounded_coefficient(log_pi, rewards, 1.0).requires_grad
    assert not inverse_sampling_weights(log_pi, rewards).requires_grad
