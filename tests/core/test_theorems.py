"""The paper's theorems by exact enumeration: what holds, and where the paper claims too much."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor

from lens_ref import (
    DomainError,
    LensConfig,
    Rollouts,
    bernoulli_nll,
    lens_advantages,
    mle_coefficient,
    mle_loss,
    odds,
    true_difficulty,
    value,
    value_mle,
    value_mle_closed_form,
    value_negative,
    value_positive,
)
from tests.core.helpers import F64, assert_close, group, tensor

SIX_OPTIONS = tensor([1.0, 1, 0, 0, 0, 0])  # A and B are correct


def random_samples(questions: int, answers: int, seed: int) -> dict[str, Tensor]:
    """Samples with a D and a preference of their own, rewards binary and fractional."""
    g = torch.Generator().manual_seed(seed)
    n = 8 * questions
    question = torch.arange(n) % questions
    return {
        "logits": torch.randn(questions, answers, generator=g, dtype=F64),
        "question": question,
        "answer": torch.randint(answers, (n,), generator=g),
        "rewards": tensor([0.0, 1.0, 0.3, 0.0, 0.8])[torch.randint(5, (n,), generator=g)],
        "difficulty": (1.5 + torch.rand(questions, generator=g, dtype=F64))[question],
        "preference": 0.7 + torch.rand(n, generator=g, dtype=F64),
    }


def loss_in_plain_numbers(s: dict[str, Tensor]) -> float:
    """The boxed loss, one sample after another, with the arithmetic of the standard library."""
    total = 0.0
    for i, (q, a) in enumerate(zip(s["question"].tolist(), s["answer"].tolist(), strict=True)):
        row = s["logits"][q].tolist()
        pi = math.exp(row[a]) / sum(math.exp(x) for x in row)
        r = s["rewards"][i].item()
        z = pi / (s["difficulty"][i].item() * s["preference"][i].item())
        total += r * math.log(pi) + (1 - r) * math.log(1 - z)
    return -total / len(s["answer"])


@pytest.mark.parametrize(("questions", "answers"), [(1, 6), (7, 6), (3, 40)])
def test_theorem_1(questions: int, answers: int) -> None:
    s = random_samples(questions, answers, seed=questions + answers)
    logits = s["logits"].clone().requires_grad_()
    log_pi = logits.log_softmax(-1)[s["question"], s["answer"]]
    loss = mle_loss(log_pi, s["rewards"], s["difficulty"], s["preference"])
    assert loss.item() == pytest.approx(loss_in_plain_numbers(s), rel=1e-13)
    (gradient,) = torch.autograd.grad(loss, logits)

    coefficient = mle_coefficient(
        log_pi.detach(), s["rewards"], s["difficulty"], s["preference"]
    ).tolist()
    predicted = torch.zeros_like(s["logits"])
    pi = s["logits"].softmax(-1)
    for i, (q, a) in enumerate(zip(s["question"].tolist(), s["answer"].tolist(), strict=True)):
        predicted[q] += coefficient[i] * pi[q] / len(coefficient)  # −(e_a − π)
        predicted[q, a] -= coefficient[i] / len(coefficient)
    torch.testing.assert_close(gradient, predicted, rtol=0, atol=1e-15)

    for q, a in ((0, 0), (questions - 1, answers - 1), (questions // 2, 2)):
        step = 1e-5
        ends = []
        for sign in (1, -1):
            moved = s["logits"].clone()
            moved[q, a] += sign * step
            ends.append(loss_in_plain_numbers({**s, "logits": moved}))
        assert gradient[q, a].item() == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-9)


def test_theorem_1_needs_the_difficulty_of_each_question() -> None:
    s = random_samples(questions=7, answers=6, seed=0)
    log_pi = s["logits"].log_softmax(-1)[s["question"], s["answer"]]
    own = mle_coefficient(log_pi, s["rewards"], s["difficulty"])
    shared = mle_coefficient(log_pi, s["rewards"], s["difficulty"][0])
    assert (own - shared).abs().max() > 2e-3
    assert torch.equal(own[s["question"] == 0], shared[s["question"] == 0])


def test_correct_answers_may_lie_beyond_the_pole() -> None:
    log_pi = tensor([0.9, 0.1]).log()
    assert mle_coefficient(log_pi, tensor([1.0, 0.0]), 0.5).tolist() == pytest.approx([1, -0.25])
    with pytest.raises(DomainError, match=r"log_pi\[1\]"):
        mle_coefficient(log_pi.flip(0), tensor([1.0, 0.0]), 0.5)


def test_initial_and_boxed_loss_differ_by_a_constant() -> None:
    s = random_samples(questions=7, answers=6, seed=3)
    log_pi = s["logits"].log_softmax(-1)[s["question"], s["answer"]]
    for rho in (None, s["preference"]):
        arguments = (log_pi, s["rewards"], s["difficulty"], rho)
        gap = (bernoulli_nll(*arguments) - mle_loss(*arguments)).item()
        bounds = s["difficulty"] * (1 if rho is None else rho)
        expected = sum(
            r * math.log(b) for r, b in zip(s["rewards"].tolist(), bounds.tolist(), strict=True)
        )
        assert gap == pytest.approx(expected / len(log_pi), rel=1e-12)


def random_space(seed: int) -> tuple[Tensor, Tensor, float, Tensor]:
    """Logits and fractional p* of six answers, D above every π/ρ, a preference."""
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(6, generator=g, dtype=F64)
    p_star = torch.rand(6, generator=g, dtype=F64).round(decimals=1)
    rho = 0.5 + torch.rand(6, generator=g, dtype=F64)
    difficulty = (logits.softmax(-1) / rho).max().item() * 1.5
    return logits.requires_grad_(), p_star, difficulty, rho


def gradient_of(objective: Tensor, logits: Tensor) -> Tensor:
    return torch.autograd.grad(objective, logits, retain_graph=True)[0]


@pytest.mark.parametrize("seed", range(10))
def test_theorem_2_as_a_semi_gradient(seed: int) -> None:
    """∇J_MLE is the gradient of E_μ[log-likelihood] with the sampling policy μ = π held fixed."""
    logits, p_star, difficulty, rho = random_space(seed)
    pi, log_pi = logits.softmax(-1), logits.log_softmax(-1)
    truth = gradient_of(value_mle(pi, p_star, difficulty, rho), logits)
    population = sum(
        pi[o].detach() * -mle_loss(log_pi[o : o + 1], p_star[o], difficulty, rho[o])
        for o in range(6)
    )
    torch.testing.assert_close(gradient_of(population, logits), truth, rtol=0, atol=1e-14)

    # The policy-gradient form, E[r̃ ∇ log π].
    coefficient = mle_coefficient(log_pi, p_star, difficulty, rho)
    policy_gradient = gradient_of((pi.detach() * coefficient * log_pi).sum(), logits)
    torch.testing.assert_close(policy_gradient, truth, rtol=0, atol=1e-14)

    # It is a semi-gradient: differentiating the sampling policy too gives something else.
    total = sum(
        pi[o] * -mle_loss(log_pi[o : o + 1], p_star[o], difficulty, rho[o]) for o in range(6)
    )
    assert (gradient_of(total, logits) - truth).norm() > 0.01 * truth.norm()


def test_without_stop_gradient_the_surrogate_points_elsewhere() -> None:
    """With r̃ differentiable the surrogate's gradient is mostly *opposed* to the true one."""
    cosines = []
    for seed in range(20):
        logits, _, _, _ = random_space(seed)
        pi, log_pi = logits.softmax(-1), logits.log_softmax(-1)
        difficulty = 1.1 * pi.max().item()
        truth = gradient_of(value_mle(pi, SIX_OPTIONS, difficulty), logits)
        reward = SIX_OPTIONS - (1 - SIX_OPTIONS) * odds(pi / difficulty)

        def surrogate(reward: Tensor, pi: Tensor = pi, log_pi: Tensor = log_pi) -> Tensor:
            return (pi.detach() * reward * log_pi).sum()

        stopped = gradient_of(surrogate(reward.detach()), logits)
        torch.testing.assert_close(stopped, truth, rtol=0, atol=1e-13)
        live = gradient_of(surrogate(reward), logits)
        cosines.append(torch.cosine_similarity(live, truth, dim=0).item())
    assert sorted(cosines)[10] < -0.3


@pytest.mark.parametrize("seed", range(5))
def test_difficulty_and_preference_are_held_fixed(seed: int) -> None:
    """D = 2 max π as a live tensor: no gradient flows through it."""
    logits, p_star, _, rho = random_space(seed)
    pi, log_pi = logits.softmax(-1), logits.log_softmax(-1)
    live = 4 * pi.max()
    fixed = live.detach()
    for function in (value_mle, value_negative, value_mle_closed_form):
        torch.testing.assert_close(
            gradient_of(function(pi, p_star, live, rho * (1 + logits - logits.detach())), logits),
            gradient_of(function(pi, p_star, fixed, rho), logits),
            rtol=0,
            atol=1e-15,
        )
    for loss in (mle_loss, bernoulli_nll):
        assert torch.equal(
            gradient_of(loss(log_pi, p_star, live), logits),
            gradient_of(loss(log_pi, p_star, fixed), logits),
        )


@pytest.mark.parametrize("seed", range(5))
def test_stationary_where_nothing_is_certain(seed: int) -> None:
    """0 < p* < 1: π = D p* is stationary for any sampling policy, the strict maximum on-policy."""
    g = torch.Generator().manual_seed(seed)
    p_star = 0.05 + 0.9 * torch.rand(6, generator=g, dtype=F64)
    difficulty = true_difficulty(p_star)
    logits = p_star.log().requires_grad_()
    pi, log_pi = logits.softmax(-1), logits.log_softmax(-1)
    torch.testing.assert_close(pi.detach(), difficulty * p_star)
    on_policy = gradient_of(value_mle(pi, p_star, difficulty), logits)
    assert on_policy.abs().max() < 1e-15
    for _ in range(3):
        mu = torch.rand(6, generator=g, dtype=F64)
        off_policy = sum(
            mu[o] * mle_loss(log_pi[o : o + 1], p_star[o], difficulty) for o in range(6)
        )
        assert gradient_of(off_policy, logits).abs().max() < 1e-14

    best = value_mle(pi, p_star, difficulty).item()
    for _ in range(20):
        other = (logits.detach() + 0.3 * torch.randn(6, generator=g, dtype=F64)).softmax(-1)
        if bool((other < difficulty).all()):
            assert value_mle(other, p_star, difficulty).item() < best
    hessian = torch.autograd.functional.hessian(
        lambda x: value_mle(x, p_star, difficulty), pi.detach()
    )
    tangent = torch.linalg.qr(torch.cat([torch.ones(6, 1, dtype=F64), torch.eye(6, 5)], 1)).Q[:, 1:]
    assert torch.linalg.eigvalsh(tangent.T @ hessian @ tangent).max() < 0


def test_stationary_only_at_infinity_where_answers_are_certain() -> None:
    """Deterministic p*: |gradient| falls with the wrong mass ε, at most 2ε, and never reaches 0."""
    sizes, norms = [], []
    for exponent in range(2, 9):
        eps = 10.0**-exponent
        pi = tensor([(1 - eps) / 2] * 2 + [eps / 4] * 4)
        logits = pi.log().requires_grad_()
        gradient = gradient_of(value_mle(logits.softmax(-1), SIX_OPTIONS, 0.5), logits)
        largest = gradient.abs().max().item()
        assert 0 < largest <= 2 * eps
        sizes.append(math.log(eps))
        norms.append(math.log(largest))
    slope = (norms[-1] - norms[0]) / (sizes[-1] - sizes[0])
    assert slope == pytest.approx(1, abs=0.02)


def test_correct_face_is_flat() -> None:
    """On-policy, every policy supported on the correct answers has J_MLE = 1: π* is not unique."""
    for a in (0.5, 0.7, 0.99, 1.0):
        pi = tensor([a, 1 - a, 0, 0, 0, 0])
        assert value_mle(pi, SIX_OPTIONS, 0.5).item() == pytest.approx(1, abs=1e-15)
        assert value_mle_closed_form(pi, SIX_OPTIONS, 0.5).item() == 1.0


def test_off_policy_the_true_policy_is_no_maximiser() -> None:
    """The consistency claim fails for deterministic p* unless μ is uniform on the correct answers:
    under μ = (.4, .1, .125, …) the policy (.8, .2) beats π* = (.5, .5)."""
    counts = [16, 4, 5, 5, 5, 5]  # of 40 samples
    answers = torch.arange(6).repeat_interleave(torch.tensor(counts))
    rewards = SIX_OPTIONS[answers]

    def likelihood(log_pi: Tensor) -> Tensor:
        return -mle_loss(log_pi[answers], rewards, 0.5)

    true_policy = tensor([0.5, 0.5, 0, 0, 0, 0]).log()
    better = tensor([0.8, 0.2, 0, 0, 0, 0]).log()
    assert likelihood(true_policy).item() == pytest.approx(-0.347, abs=5e-4)
    assert likelihood(better).item() == pytest.approx(-0.250, abs=5e-4)

    logits = tensor([0.0, 0, -60, -60, -60, -60]).requires_grad_()
    gradient = gradient_of(likelihood(logits.log_softmax(-1)), logits)
    torch.testing.assert_close(gradient[:2], tensor([0.15, -0.15]), rtol=0, atol=1e-12)


def test_infinite_difficulty_is_reinforce() -> None:
    pi, log_pi = tensor([0.1, 0.2, 0.4, 0.1, 0.15, 0.05]), tensor([0.3, 0.4]).log()
    assert value_mle(pi, SIX_OPTIONS, math.inf).item() == pytest.approx(0.3, rel=1e-15)
    assert value_mle_closed_form(pi, SIX_OPTIONS, math.inf).item() == pytest.approx(0.3)
    assert mle_coefficient(log_pi, tensor([1.0, 0.0]), math.inf).tolist() == [1.0, 0.0]
    squares = 0.16 + 0.01 + 0.0225 + 0.0025  # of the wrong answers
    for difficulty in (1e2, 1e4):
        gap = (value(pi, SIX_OPTIONS) - value_mle(pi, SIX_OPTIONS, difficulty)).item()
        assert gap == pytest.approx(squares / (2 * difficulty), rel=1 / difficulty)
    logits = pi.log().requires_grad_()
    live = logits.softmax(-1)
    torch.testing.assert_close(
        gradient_of(value_mle(live, SIX_OPTIONS, math.inf), logits),
        gradient_of(value_positive(live, SIX_OPTIONS), logits),
    )


def test_practical_rule_is_the_preference_framework() -> None:
    """π̄/(D − π̄) is the exact coefficient under ρ = π^(1−1/|o|), with D_imp on π̄."""
    config = LensConfig.preset("no_scale", difficulty_confidence="length_normalized")
    for seed in range(5):
        rng = random.Random(seed)
        rewards = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]
        lengths = [rng.randint(1, 40) for _ in rewards]
        rollouts = group(rewards, [rng.uniform(0.1, 0.95) for _ in rewards], lengths)
        info = lens_advantages(rollouts, config).info
        logprobs = rollouts.logprobs[0].tolist()
        rho = tensor([math.exp(p - p / n) for p, n in zip(logprobs, lengths, strict=True)])
        exact = mle_coefficient(
            rollouts.logprobs[0], tensor(rewards), info["log_difficulty"].exp(), rho
        )
        assert_close(info["calibrated_reward"][0], exact, 1e-12)


def test_own_policy_as_preference_gives_the_odds_of_accuracy() -> None:
    """ρ = sg(π): r̃ = (r − acc)/(1 − acc), the odds and not the "correction rate"."""
    for pi, penalty in (([0.5, 0.3, 0.1, 0.1], -4.0), ([0.9, 0.05, 0.04, 0.01], -19.0)):
        rewards = tensor([1.0, 1, 0, 0])
        difficulty = true_difficulty(rewards, tensor(pi))
        coefficient = mle_coefficient(tensor(pi).log(), rewards, difficulty, tensor(pi))
        assert coefficient.tolist() == pytest.approx([1, 1, penalty, penalty], rel=1e-12)


def test_negative_group_raises_every_answer_that_was_not_sampled() -> None:
    """Chebyshev: with de-meaned odds that increase in π, the unsampled logits do not move and
    every unsampled log-probability rises, unless all sampled π are equal."""
    g = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(300, 30, generator=g, dtype=F64)
    pi = logits.softmax(-1)
    sampled = torch.multinomial(pi, 8, replacement=True, generator=g)
    logprobs = pi.log().gather(-1, sampled)
    rollouts = Rollouts(torch.zeros_like(logprobs), logprobs, lengths=torch.ones(300, 8))
    advantages = lens_advantages(rollouts).advantages
    step = torch.zeros_like(pi).scatter_add(-1, sampled, advantages)
    step = step - pi * advantages.sum(-1, keepdim=True)
    unsampled = torch.ones_like(pi).scatter(-1, sampled, 0.0) == 1
    assert step[unsampled].abs().max() < 1e-15
    rise = -(pi * step).sum(-1)  # d log π of an answer whose logit does not move
    distinct = logprobs.amax(-1) > logprobs.amin(-1)
    assert distinct.any()
    assert (~distinct).any()
    assert (rise[distinct] > 0).all()
    assert (rise[~distinct] == 0).all()
