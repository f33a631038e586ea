"""The likelihood framework as exact objects, for answer spaces that can be enumerated.

The reward model p_θ(q, o) = π_θ(o|q) / (D(q) ρ(q, o)) is fitted by maximum likelihood:

    L̂ = −(1/n) Σ_i { r_i log π_i + (1−r_i) log(1 − π_i / (D_i ρ_i)) }        eq. (boxed loss)
    ∇L̂ = −(1/n) Σ_i { r_i − (1−r_i) π_i / (D_i ρ_i − π_i) } ∇ log π_i        Theorem 1

L̂ is the *negative* log-likelihood (the theorem's text calls it the log-likelihood), and D is the D
of each sample's own question (the theorem prints D(q)). On-policy −∇L̂ is the gradient of

    J_MLE = J₊ − J₋,   J₊ = E[r*],   J₋ = E[w(π/(Dρ)) (1 − r*)]                Theorem 2

and by enumeration J_MLE = 1 + D Σ_o ρ (1 − p*) log(1 − π/(Dρ)): a log-barrier on wrong answers,
concave in π, never above J. Here `difficulty` is D itself, one or +∞, as in the paper.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lens_ref.core._checks import (
    DomainError,
    Number,
    as_float,
    broadcast,
    common_dtype,
    per_question,
    require,
    require_logprobs,
    require_rewards,
)
from lens_ref.core.weight import log1mexp, odds_from_log, weight


@torch.no_grad()
def true_difficulty(p_star: Tensor, preference: Tensor | None = None) -> Tensor:
    """D = 1 / Σ_o p*(o) ρ(o), eqs. (difficulty) and (difficulty with preference).

    >>> true_difficulty(torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]))
    tensor([1.0000, 0.5000])

    D lies in (0, 1] only if the correct answers weigh at least 1 in sum; fractional p* and other
    preferences give any positive number.

    Args:
        p_star: `[..., K]` probability that each answer is correct, in [0, 1].
        preference: `[..., K]` ρ ≥ 0; default 1.

    Returns:
        `[...]` D; +inf where nothing is correct.

    Raises:
        DomainError: p* outside [0, 1]; a negative or NaN preference.
    """
    p_star = as_float(p_star, "p_star")
    _require_p_star(p_star)
    if preference is not None:
        p_star, rho = broadcast(p_star, _preference(preference))
        p_star = p_star * rho
    return 1 / p_star.sum(-1)


def mle_loss(
    log_pi: Tensor, rewards: Tensor, difficulty: Number, preference: Tensor | None = None
) -> Tensor:
    """The boxed loss L̂, eq. (boxed loss): the mean negative log-likelihood over samples.

    >>> log_pi = torch.tensor([0.25, 0.5]).log()
    >>> mle_loss(log_pi, torch.tensor([1.0, 0.0]), 1.0)  # (log 4 + log 2) / 2
    tensor(1.0397)

    Args:
        log_pi: `[...]` log π_θ(o_i|q_i) of each sample, nats; differentiable.
        rewards: `[...]` in [0, 1].
        difficulty: `[...]` D(q_i) of each sample, `[B, 1]` one a question of `[B, G]` samples, or
            a scalar; +inf allowed; held fixed.
        preference: `[...]` ρ(q_i, o_i) of each sample ≥ 0; default 1; held fixed.

    Returns:
        A scalar, differentiable in `log_pi`.

    Raises:
        DomainError: π ≥ Dρ on a sample with r < 1; π = 0 on one with r > 0; rewards outside [0, 1];
            D ≤ 0; ρ < 0.
        ValueError: no sample; shapes that do not line up, such as one D a question.
    """
    log_pi, rewards, log_bound = _samples(log_pi, rewards, difficulty, preference)
    return _nll(log_pi, log_pi, rewards, log_bound)


def bernoulli_nll(
    log_pi: Tensor, rewards: Tensor, difficulty: Number, preference: Tensor | None = None
) -> Tensor:
    """L̂₀ of the paper: the Bernoulli negative log-likelihood under p = π/(Dρ).

    >>> log_pi = torch.tensor([0.25, 0.25]).log()
    >>> bernoulli_nll(log_pi, torch.tensor([1.0, 0.0]), 0.5)  # p = 1/2 twice
    tensor(0.6931)

    L̂₀ − L̂ = mean(r · log(Dρ)), a constant in θ. Arguments and errors as `mle_loss`; where r > 0,
    Dρ must also be finite and positive.
    """
    log_pi, rewards, log_bound = _samples(log_pi, rewards, difficulty, preference)
    rule = "D * rho must be finite and above 0 where r > 0"
    finite = log_bound.isfinite() | (rewards == 0)
    require(finite, log_bound, "log(difficulty * preference)", rule, DomainError)
    return _nll(log_pi - torch.where(rewards > 0, log_bound, 0.0), log_pi, rewards, log_bound)


@torch.no_grad()
def mle_coefficient(
    log_pi: Tensor, rewards: Tensor, difficulty: Number, preference: Tensor | None = None
) -> Tensor:
    """r − (1−r) π/(Dρ−π): Theorem 1 says ∇L̂ = −mean(coefficient · ∇ log π).

    >>> mle_coefficient(torch.tensor([0.25, 0.8]).log(), torch.tensor([1.0, 0.0]), 1.0)
    tensor([ 1.0000, -4.0000])

    Arguments and errors as `mle_loss`. Returns `[...]`, detached.
    """
    log_pi, rewards, log_bound = _samples(log_pi, rewards, difficulty, preference)
    log_z = torch.where(rewards < 1, log_pi - log_bound, -1.0)
    return rewards - (1 - rewards) * odds_from_log(log_z)


def value(pi: Tensor, p_star: Tensor) -> Tensor:
    """J(π) = Σ_o π(o) p*(o), eq. (value): the accuracy. `[..., K]` → `[...]`, differentiable.

    >>> value(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([1.0, 0.0, 0.5]))
    tensor(0.6000)

    Raises:
        DomainError: π negative or NaN (above 1 is the caller's affair: a derivative by finite
            differences steps off the simplex); p* outside [0, 1].
    """
    pi, p_star = as_float(pi, "pi"), as_float(p_star, "p_star")
    _require_p_star(p_star)
    _require_pi(pi)
    pi, p_star = broadcast(pi, p_star)
    return (pi * p_star).sum(-1)


def value_positive(pi: Tensor, p_star: Tensor) -> Tensor:
    """J₊ of Theorem 2: the same number as `value`.

    >>> value_positive(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]))
    tensor(0.5000)
    """
    return value(pi, p_star)


def value_negative(
    pi: Tensor, p_star: Tensor, difficulty: Number, preference: Tensor | None = None
) -> Tensor:
    """J₋ = Σ_o π w(π/(Dρ)) (1 − p*), the confidence-weighted penalty of Theorem 2.

    >>> value_negative(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]), 1.0)  # w(1/2) / 2
    tensor(0.1931)

    Args:
        pi: `[..., K]` the policy's probability of each answer; differentiable.
        p_star: `[..., K]` in [0, 1].
        difficulty: `[...]` D > 0, one a question, or a scalar; +inf allowed; held fixed.
        preference: `[..., K]` ρ ≥ 0; default 1; held fixed.

    Raises:
        DomainError: π ≥ Dρ on an answer with p* < 1, sampled or not: the expectation is over all.
    """
    pi, p_star, _, z = _answers(pi, p_star, difficulty, preference)
    return (pi * weight(z) * (1 - p_star)).sum(-1)


def value_mle(
    pi: Tensor, p_star: Tensor, difficulty: Number, preference: Tensor | None = None
) -> Tensor:
    """J_MLE = J₊ − J₋, Theorem 2. Arguments and errors as `value_negative`.

    >>> value_mle(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]), 1.0)  # 1 − log 2
    tensor(0.3069)
    """
    return value_positive(pi, p_star) - value_negative(pi, p_star, difficulty, preference)


def value_mle_closed_form(
    pi: Tensor, p_star: Tensor, difficulty: Number, preference: Tensor | None = None
) -> Tensor:
    """1 + D Σ_o ρ (1−p*) log(1 − π/(Dρ)): equal to `value_mle` where π sums to 1.

    >>> value_mle_closed_form(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]), 1.0)
    tensor(0.3069)

    Arguments and errors as `value_negative`.
    """
    pi, p_star, bound, z = _answers(pi, p_star, difficulty, preference)
    unbounded = bound.isinf()  # D → ∞: D log(1 − π/D) → −π
    barrier = torch.where(unbounded, -pi, torch.where(unbounded, 1.0, bound) * torch.log1p(-z))
    return 1 + ((1 - p_star) * torch.where(p_star < 1, barrier, 0.0)).sum(-1)


def _require_pi(pi: Tensor) -> None:
    finite = (pi >= 0) & pi.isfinite()
    require(finite, pi, "pi", "a probability is a finite number >= 0", DomainError)


def _require_p_star(p_star: Tensor) -> None:
    inside = (p_star >= 0) & (p_star <= 1)
    require(inside, p_star, "p_star", "a probability lies in [0, 1]", DomainError)


def _preference(preference: Number) -> Tensor:
    rho = as_float(preference, "preference").detach()
    finite = (rho >= 0) & rho.isfinite()
    require(finite, rho, "preference", "a preference is a finite number >= 0", DomainError)
    return rho


def _difficulty(difficulty: Number) -> Tensor:
    d = as_float(difficulty, "difficulty").detach()
    require(d > 0, d, "difficulty", "D is above 0", DomainError)
    return d


def _wider(x: Tensor, dtype: torch.dtype) -> Tensor:
    """In the wider of its dtype and this one: a logarithm or product keeps no more digits."""
    return x.to(torch.promote_types(x.dtype, dtype))


def _per_sample(x: Tensor, like: Tensor, name: str, dtype: torch.dtype) -> Tensor:
    """One number for all or one a sample: `[B]` of `[B, B]` could be a question's or a column's."""
    if x.numel() != 1 and x.ndim != like.ndim:
        shape, expected = tuple(x.shape), tuple(like.shape)
        raise ValueError(
            f"{name} has shape {shape}: expected one number a sample, {expected}; one a question "
            "has an axis of length 1 in the place of its samples"
        )
    return _wider(x, dtype)


def _samples(
    log_pi: Tensor, rewards: Tensor, difficulty: Number, preference: Number | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Check one value a sample; returns log π, r and log(Dρ) in one dtype and shape."""
    log_pi, rewards = as_float(log_pi, "log_pi"), as_float(rewards, "rewards").detach()
    require_rewards(rewards)
    require_logprobs(log_pi, "log_pi")
    log_pi, rewards = broadcast(log_pi, rewards)
    dtype = common_dtype(log_pi, rewards)
    log_bound = _per_sample(_difficulty(difficulty), log_pi, "difficulty", dtype).log()
    if preference is not None:
        log_rho = _per_sample(_preference(preference), log_pi, "preference", dtype).log()
        log_bound = torch.add(*broadcast(log_bound, log_rho))
    log_pi, rewards, log_bound = broadcast(log_pi, rewards, log_bound)
    if log_pi.numel() == 0:
        raise ValueError("log_pi holds no samples: a mean needs at least one")
    log_pi, rewards, log_bound = log_pi.to(dtype), rewards.to(dtype), log_bound.to(dtype)
    seen = (rewards == 0) | (log_pi > -torch.inf)
    require(seen, log_pi, "log_pi", "pi = 0 on a sample with r > 0", DomainError)
    below = (rewards == 1) | (log_pi < log_bound)
    rule = "pi >= D * rho on a sample with r < 1"
    require(below, log_pi, "log_pi", rule, DomainError)
    return log_pi, rewards, log_bound


def _nll(log_positive: Tensor, log_pi: Tensor, rewards: Tensor, log_bound: Tensor) -> Tensor:
    # where: 0 · (−inf) is NaN, and a correct answer may lie beyond the pole
    positive = rewards * torch.where(rewards > 0, log_positive, 0.0)
    log_z = torch.where(rewards < 1, log_pi - log_bound, -1.0)
    return -(positive + (1 - rewards) * log1mexp(log_z)).mean()


def _answers(
    pi: Tensor, p_star: Tensor, difficulty: Number, preference: Number | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Check every answer of the space; returns π, p*, Dρ and z = π/(Dρ), 0 where p* = 1."""
    pi, p_star = as_float(pi, "pi"), as_float(p_star, "p_star").detach()
    _require_p_star(p_star)
    _require_pi(pi)
    pi, p_star = broadcast(pi, p_star)
    dtype = common_dtype(pi, p_star)
    bound = per_question(_difficulty(difficulty), pi, "difficulty")
    if preference is not None:
        bound, rho, _ = broadcast(bound, _preference(preference), pi)
        bound = _wider(bound, dtype) * rho
    bound = bound.expand(pi.shape).to(dtype)
    below = (p_star == 1) | (pi < bound)
    require(below, pi, "pi", "pi >= D * rho on an answer with p* < 1", DomainError)
    penalised = p_star < 1
    z = torch.where(penalised, pi / torch.where(penalised, bound, 1.0), 0.0)
    return pi.to(dtype), p_star.to(dtype), bound, z.to(dtype)
