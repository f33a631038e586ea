"""The preference-aware appendix: its three examples, and the practical rule as a fourth."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch

from lens_ref import (
    DomainError,
    LensConfig,
    Rollouts,
    length_preference_reward,
    lens_advantages,
    methods,
    mle_coefficient,
    true_difficulty,
    value_mle,
)
from lens_ref.extensions import (
    data_preference,
    length_preference,
    likelihood_optimum,
    policy_preference,
    practical_preference,
    preference_difficulty,
    preference_reward,
)
from tests.core.helpers import F64, assert_close, assert_relative, tensor
from tests.extensions.spaces import every_group

MU = tensor([0.6, 0.3, 0.1])
CORRECT = tensor([1.0, 0.0, 0.0])


def test_data_preference_averages_over_samples() -> None:
    """D = 1/E_μ[r] = 1.667 with multiplicity; the set of distinct answers gives 3."""
    groups = every_group(MU, CORRECT, 6, verdicts=False)
    log_mu = MU.log()[groups.answers]
    d = preference_difficulty(groups.rewards, log_mu, data_preference(log_mu)).exp()
    assert (1 / ((1 / d) * groups.probability).sum()).item() == pytest.approx(5 / 3, rel=1e-13)
    assert true_difficulty(CORRECT, MU).item() == pytest.approx(5 / 3, rel=1e-15)
    rates = []
    for answers in groups.answers.tolist():
        seen = set(answers)
        rates.append(sum(CORRECT[o].item() for o in seen) / len(seen))
    over_sets = (tensor(rates) * groups.probability).sum().item()
    all_three = [len(set(answers)) == 3 for answers in groups.answers.tolist()]
    assert {rate for rate, full in zip(rates, all_three, strict=True) if full} == {1 / 3}
    assert 1 / over_sets == pytest.approx(2.195, abs=0.001)  # on its way to 3


def test_data_preference_optimum() -> None:
    """π* = D ρ p*: the data's own proportions among the correct answers."""
    both = tensor([1.0, 1, 0])
    assert_close(likelihood_optimum(both, preference=MU), [2 / 3, 1 / 3, 0], 1e-15)
    uncertain = tensor([0.5, 0.2, 0.9])
    d = true_difficulty(uncertain, MU)  # Σ p*ρ = .45
    assert_close(likelihood_optimum(uncertain, preference=MU), [30 / 45, 6 / 45, 9 / 45], 1e-14)
    assert_close(likelihood_optimum(uncertain, d, MU), d * MU * uncertain, 1e-13)


@pytest.mark.parametrize(("accuracy", "weight"), [(0.2, 0.25), (0.5, 1), (0.8, 4), (0.95, 19)])
def test_policy_preference_weighs_by_the_odds(accuracy: float, weight: float) -> None:
    """The odds acc/(1−acc), not the correction rate; r̃ = (r−acc)/(1−acc)."""
    pi = tensor([0.75 * accuracy, 0.25 * accuracy, 0.9 * (1 - accuracy), 0.1 * (1 - accuracy)])
    rewards = tensor([1.0, 1, 0, 0])
    d = true_difficulty(rewards, pi)
    assert d.item() == pytest.approx(1 / accuracy)
    reward = preference_reward(pi.log(), policy_preference(pi.log()), rewards, d.log())
    assert reward.tolist() == pytest.approx([1, 1, -weight, -weight], rel=1e-12)
    assert abs(weight - accuracy) > 0.04
    assert_close(reward, mle_coefficient(pi.log(), rewards, d, pi), 1e-12)
    assert_close(reward, (rewards - accuracy) / (1 - accuracy), 1e-12)


def test_policy_preference_on_a_group_is_dr_grpo_rescaled() -> None:
    """Twelve of 16 right: Dr. GRPO's ¼ and −¾ are (1−acc) times 1 and −3."""
    rewards = tensor([[1.0] * 12 + [0.0] * 4])
    log_pi = torch.linspace(-900, -3, 16, dtype=F64)[None]
    log_rho = policy_preference(log_pi)
    log_d = preference_difficulty(rewards, log_pi, log_rho)
    assert log_d.exp().item() == pytest.approx(4 / 3, rel=1e-13)
    reward = preference_reward(log_pi, log_rho, rewards, log_d)
    assert_close(reward, [[1.0] * 12 + [-3.0] * 4], 1e-12)
    dr_grpo = methods.get("dr_grpo")(Rollouts(rewards, log_pi, torch.ones(1, 16)))
    assert_close(dr_grpo.advantages, 0.25 * reward, 1e-12)


def test_the_policy_has_to_be_frozen() -> None:
    """p = π/(Dρ): with ρ the live policy it is 1/D, and nothing is learnt; frozen, the gradient of
    the Bernoulli likelihood is r̃'s."""
    logits = tensor([0.3, -0.2, 0.9, 0.1]).requires_grad_()
    rewards = tensor([1.0, 0, 1, 0])

    def nll(log_p: torch.Tensor) -> torch.Tensor:
        return -(rewards * log_p + (1 - rewards) * torch.log1p(-log_p.exp())).mean()

    log_pi = logits.log_softmax(0)
    log_d = math.log(1 / 0.6)
    (live,) = torch.autograd.grad(nll(log_pi - log_d - log_pi), logits, retain_graph=True)
    assert live.abs().max() < 1e-16
    frozen = policy_preference(log_pi)
    assert not frozen.requires_grad
    (moving,) = torch.autograd.grad(nll(log_pi - log_d - frozen), logits)
    expected = torch.zeros(4, dtype=F64)
    for i, reward in enumerate([1.0, -1.5, 1.0, -1.5]):  # 1/(D−1) = .6/.4
        expected -= reward * (torch.eye(4, dtype=F64)[i] - log_pi.detach().exp()) / 4
    assert_close(moving, expected, 1e-13)


def test_policy_preference_optimum() -> None:
    """π* = ρ p*/accuracy: the frozen policy, conditioned on being right."""
    pi = tensor([0.1, 0.3, 0.6])
    assert_close(likelihood_optimum(tensor([1.0, 1, 0]), preference=pi), [0.25, 0.75, 0], 1e-15)


def test_length_preference_is_the_exact_form() -> None:
    log_pi = tensor([[-1.0, -3.0, -160.0], [-2.0, -8.0, -400.0]])
    lengths = torch.tensor([[5, 10, 1000], [4, 16, 3000]])
    log_d = tensor([1.0, 0.7]).log()
    log_rho = length_preference(lengths, 0.95)
    assert log_rho[0, 1].item() == pytest.approx(10 * math.log(0.95), rel=1e-15)
    reward = preference_reward(log_pi, log_rho, torch.zeros(2, 3), log_d)
    assert_relative(reward, length_preference_reward(log_pi, lengths, log_d, 0.95), 1e-11)


def test_how_far_the_closing_formula_is() -> None:
    """The exact −1/(e^s−1) and the appendix's −π̄/(γ−π̄)/L, at 1000 tokens."""
    lengths, log_pi = torch.tensor([1000]), tensor([-160.0])
    for d, s, exact, closing in (
        (0.5, 0.01, -99.50, -1.421),
        (0.5, 1.0, -0.5820, -0.5901),
        (0.5, 50.0, -1.929e-22, -0.01922),
        (1.0, 0.01, -99.50, -100.0),
        (1.0, 1.0, -0.5820, -0.9995),
    ):
        gamma = math.exp((s - math.log(d) - 160) / 1000)
        log_rho = length_preference(lengths, gamma)
        reward = preference_reward(log_pi, log_rho, tensor([0.0]), math.log(d))
        assert reward.item() == pytest.approx(exact, rel=1e-3)
        practical = length_preference_reward(log_pi, lengths, math.log(d), gamma, "practical")
        assert practical.item() == pytest.approx(closing, rel=1e-3)


def test_length_preference_optimum() -> None:
    """Three correct answers of 1, 2 and 4 tokens at γ = ½: 8 : 4 : 1."""
    rho = length_preference(torch.tensor([1, 2, 4, 1]), 0.5).exp()
    optimum = likelihood_optimum(tensor([1.0, 1, 1, 0]), preference=rho)
    assert_close(optimum, [8 / 13, 4 / 13, 1 / 13, 0], 1e-15)


@pytest.mark.parametrize("seed", range(4))
def test_practical_rule_is_this_framework(seed: int) -> None:
    """Odds, difficulty and rewards of mixed groups whose D the guard leaves alone."""
    g = torch.Generator().manual_seed(seed)
    rewards = tensor([[1.0, 0, 0, 0, 0, 0, 0, 0]])
    lengths = torch.randint(1, 60, (1, 8), generator=g)
    log_pi = (0.3 + 0.6 * torch.rand(1, 8, generator=g, dtype=F64)).log() * lengths
    config = LensConfig.preset("normalized_difficulty", mixed_scale=1.0, negative_scale=1.0)
    info = lens_advantages(Rollouts(rewards, log_pi, lengths), config).info
    log_rho = practical_preference(log_pi, lengths)
    log_d = preference_difficulty(rewards, log_pi, log_rho)
    assert_close(log_d, info["log_difficulty"], 1e-13)
    mean_inverse = math.exp(-log_pi[0, 0].item() / lengths[0, 0].item()) / 8
    assert log_d.exp().item() == pytest.approx(1 / mean_inverse, rel=1e-12)
    exact = mle_coefficient(log_pi[0], rewards[0], log_d.exp(), log_rho.exp()[0])
    assert_close(info["calibrated_reward"][0], exact, 1e-13)
    assert_close(preference_reward(log_pi, log_rho, rewards, log_d)[0], exact, 1e-13)


def test_practical_difficulty_is_unbiased() -> None:
    """E[r ρ/π] = Σ p* ρ with ρ = π^(1−1/L), every group enumerated."""
    pi, p_star = tensor([0.2, 0.5, 0.3]), tensor([0.7, 0.1, 0.4])
    lengths = torch.tensor([1, 3, 5])
    log_rho = practical_preference(pi.log(), lengths)
    groups = every_group(pi, p_star, 3, verdicts=True)
    rows = groups.answers
    log_d = preference_difficulty(groups.rewards, pi.log()[rows], log_rho[rows])
    expected = 0.7 + 0.1 * 0.5 ** (2 / 3) + 0.4 * 0.3 ** (4 / 5)
    assert ((-log_d).exp() * groups.probability).sum().item() == pytest.approx(expected, rel=1e-13)


def test_practical_preference_optimum() -> None:
    """Two correct answers, π = ¼ both: one token has ρ = 1 whatever π is, two have ρ = ½. At equal
    π the shorter answer is preferred."""
    rho = practical_preference(tensor([0.25, 0.25, 0.5]).log(), torch.tensor([1, 2, 1])).exp()
    assert_close(rho, [1, 0.5, 1], 1e-15)
    optimum = likelihood_optimum(tensor([1.0, 1, 0]), preference=rho)
    assert_close(optimum, [2 / 3, 1 / 3, 0], 1e-15)


def test_optima_are_stationary_under_each_preference() -> None:
    """Autograd of J_MLE, by its definition, has one slope at D ρ p*."""
    old, lengths = tensor([0.4, 0.3, 0.2, 0.1]), torch.tensor([1, 2, 3, 4])
    p_star = tensor([0.9, 0.2, 0.5, 0.7])
    for log_rho in (
        data_preference(old.log()),
        length_preference(lengths, 0.8),
        practical_preference(old.log(), lengths),
    ):
        rho = log_rho.exp()
        pi = likelihood_optimum(p_star, preference=rho).requires_grad_()
        (slope,) = torch.autograd.grad(value_mle(pi, p_star, true_difficulty(p_star, rho), rho), pi)
        assert (slope - slope.mean()).abs().max() < 1e-14


@pytest.mark.parametrize("log_pi", [-1e4, -37.5])
@pytest.mark.parametrize("gap", [1e-3, 0.7, 30.0])
def test_log_space(log_pi: float, gap: float) -> None:
    """log π = −10⁴ against 40 digits."""
    log_rho, log_d = log_pi + gap + math.log(2), -math.log(2)
    with mpmath.workdps(40):
        s = mpmath.mpf(log_rho) + mpmath.mpf(log_d) - mpmath.mpf(log_pi)
        expected = float(-1 / mpmath.expm1(s))
    reward = preference_reward(tensor([log_pi]), tensor([log_rho]), tensor([0.0]), log_d)
    assert reward.item() == pytest.approx(expected, rel=1e-12)
    half = preference_reward(tensor([log_pi]), tensor([log_rho]), tensor([0.5]), log_d)
    assert half.item() == pytest.approx(0.5 + 0.5 * expected, rel=1e-12, abs=1e-15)


def test_edges_and_refusals() -> None:
    log_pi, log_rho = tensor([[-1.0, -2.0]]), tensor([[-1.0, -3.0]])
    assert preference_reward(log_pi, log_rho, tensor([[0.0, 1.0]]), math.inf).tolist() == [[0, 1]]
    unpenalised = preference_reward(log_pi, log_rho, tensor([[1.0, 1.0]]), 0.0)
    assert unpenalised.tolist() == [[1, 1]]  # beyond the pole, but right
    with pytest.raises(DomainError, match=r"log_confidence\[0, 1\] = 1: pi >= D"):
        preference_reward(log_pi, log_rho, tensor([[1.0, 0.0]]), 0.5)
    with pytest.raises(DomainError, match=r"log_pi\[0, 1\] = 2"):
        preference_reward(-log_pi + tensor([[-2.0, 0.0]]), log_rho, tensor([[1.0, 0.0]]), 0.5)
    with pytest.raises(DomainError, match=r"lengths\[1\] = 0"):
        length_preference(torch.tensor([3, 0]), 0.9)
    with pytest.raises(DomainError, match="gamma = 0"):
        length_preference(torch.tensor([3]), 0.0)
    with pytest.raises(DomainError, match=r"log_mu\[0\] = nan"):
        data_preference(tensor([math.nan]))
    assert preference_difficulty(torch.zeros(1, 2), log_pi, log_rho).tolist() == [math.inf]
