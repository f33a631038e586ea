"""Preferences ρ(q, o) as functions, and the three examples of the preference-aware appendix.

With p_θ = π/(Dρ) and D = {Σ p* ρ}⁻¹ a wrong answer earns −π/(Dρ−π), and the optimum is π* = D ρ p*:
correct answers in proportion to ρ (equal to ρ only if ρ sums to 1 over them). Every function here
works in logs, so that log π = −10⁴ is ordinary, and hands back what is *held fixed*.

    ρ                          D                        a wrong answer earns
    μ, what drew the data      1/E_μ[r]                 −π/(Dμ−π)
    the policy, frozen         1/accuracy               −acc/(1−acc), where π is still ρ
    γ^length                   {Σ p* γ^length}⁻¹        −1/(e^s−1), s = log D + log ρ − log π
    π^(1−1/length), frozen     {mean r/π̄}⁻¹             −π̄/(D−π̄), at the frozen policy

**Data.** D = 1/E_μ[r] averages over *samples*, with multiplicity. The appendix's average over the
set of observed answers is another number: for μ = (.6, .3, .1) and only the first correct, D is
1/.6 = 1.667, and the set {1, 2, 3} gives 3.

**Frozen policy.** With D = 1/acc the weight of a wrong answer is 1/(D−1) = acc/(1−acc), the *odds*
of the accuracy: 4 at acc = .8, 19 at .95. It is not "exactly the correction rate", as the appendix
has it. So r̃ = (r−acc)/(1−acc), and Dr. GRPO's r − acc is (1−acc) r̃: r̃ weighs easy questions up by
1/(1−acc). ρ must be frozen: were it the live policy, π/(Dρ) = 1/D would not depend on θ, and the
gradient of the Bernoulli likelihood would be exactly 0.

**Length.** The exact form is Bose–Einstein's; the appendix's closing formula
−(1/L) π̄/(γ−π̄) drops log D and expands e^s. At 1000 tokens and D = ½ it reads −1.42 where the exact
value is −99.5 (s = .01), and −.019 where that is −2·10⁻²² (s = 50); at s = 1 and D = 1, where only
the expansion acts, −1.0 instead of −.58.

**Practical rule.** `LensConfig.preset("normalized_difficulty", mixed_scale=1, negative_scale=1)` is
this framework exactly, with ρ = π_old^(1−1/length): π/(Dρ) = π̄/D on the policy that sampled, and
{Σ p* ρ}⁻¹ = {E[r ρ/π]}⁻¹ = {E[r/π̄]}⁻¹ is D_imp on π̄. (The guard and the 1/G come on top of it.)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lens_ref.core._checks import (
    LOGPROB_SLACK,
    DomainError,
    Number,
    as_float,
    broadcast,
    require,
    require_lengths,
    require_logprobs,
    require_positive,
    work_dtype,
)
from lens_ref.core.confidence import length_normalized
from lens_ref.core.difficulty import importance_difficulty
from lens_ref.core.reward import calibrated_reward


@torch.no_grad()
def data_preference(log_mu: Tensor) -> Tensor:
    """log ρ of ρ = μ, the distribution that drew the data: `[...]` nats in, the same detached.

    Raises:
        DomainError: a log-probability that is NaN, −∞ or above 1e-6.
    """
    log_mu = as_float(log_mu, "log_mu")
    inside = (log_mu <= LOGPROB_SLACK) & (log_mu > -torch.inf)
    rule = "what was sampled has a log-probability that is finite and at most 0"
    require(inside, log_mu, "log_mu", rule, DomainError)
    return log_mu.detach().clamp(max=0.0)


@torch.no_grad()
def policy_preference(log_pi_frozen: Tensor) -> Tensor:
    """log ρ of ρ = a frozen policy, such as the one that sampled. Shapes and errors as
    `data_preference`. On samples of that policy `preference_difficulty` is log(1/accuracy), and a
    wrong answer weighs acc/(1−acc)."""
    return data_preference(log_pi_frozen)


@torch.no_grad()
def length_preference(lengths: Tensor, gamma: float) -> Tensor:
    """log ρ = length · log γ of ρ = γ^length, the appendix's preference for short answers.

    Args:
        lengths: `[...]` tokens, ≥ 1.
        gamma: γ > 0; the appendix takes it in (0, 1), on the scale of π̄.

    Returns:
        `[...]` float64 nats, float32 on devices without it.

    Raises:
        DomainError: a length below 1; γ ≤ 0.
    """
    require_positive(gamma, "gamma")
    lengths = torch.as_tensor(lengths)
    require_lengths(lengths)
    return lengths.to(work_dtype(lengths.device)) * math.log(gamma)


@torch.no_grad()
def practical_preference(log_pi_old: Tensor, lengths: Tensor) -> Tensor:
    """log ρ = (1 − 1/length) log π_old, the preference for which the practical rule is exact.

    Args:
        log_pi_old: `[...]` sequence log-probabilities under the policy that sampled, nats.
        lengths: `[...]` tokens, ≥ 1.

    Returns:
        `[...]` nats, detached; 0 for a single token.

    Raises:
        DomainError: a length below 1; a log-probability that is NaN, −∞ or above 1e-6.
    """
    return data_preference(log_pi_old) - length_normalized(log_pi_old, lengths)


@torch.no_grad()
def preference_difficulty(rewards: Tensor, log_mu: Tensor, log_rho: Tensor) -> Tensor:
    """log D from samples of μ: D = {mean r ρ/μ}⁻¹ estimates {Σ p* ρ}⁻¹, eq. (difficulty with
    preference); 1/D is unbiased. ρ = μ gives one over the mean reward, over samples.

    Args:
        rewards: `[..., G]` in [0, 1].
        log_mu: `[..., G]` log-probabilities of the samples under what drew them, nats.
        log_rho: `[..., G]` log ρ.

    Returns:
        `[...]`, detached; +∞ where every reward is 0.

    Raises:
        DomainError: an argument outside its domain.
        ValueError: an empty group axis; a NaN or −∞ preference.
    """
    return importance_difficulty(rewards, data_preference(log_mu) - as_float(log_rho, "log_rho"))


@torch.no_grad()
def preference_reward(
    log_pi: Tensor, log_rho: Tensor, rewards: Tensor, log_difficulty: Number
) -> Tensor:
    """r − (1−r) π/(Dρ−π), the calibrated reward with a preference, from logs alone.

    Args:
        log_pi: `[..., G]` log π, nats.
        log_rho: `[..., G]` log ρ; +∞ is refused.
        rewards: `[..., G]` in [0, 1].
        log_difficulty: `[...]` log D, one a question (or a scalar, or one a response); +∞ means no
            penalty.

    Returns:
        `[..., G]`, detached: `calibrated_reward` at the confidence π/ρ. Logs are subtracted, so a
        relative error of 10⁻¹⁶ in log π = −10⁴ is one of 10⁻¹² here.

    Raises:
        DomainError: π ≥ Dρ where r < 1 (named as `log_confidence`, log π − log ρ); a log π above
            1e-6 or NaN; ρ = 0 where r < 1; a reward outside [0, 1].
        ValueError: shapes that do not line up.
    """
    log_pi, log_rho = broadcast(as_float(log_pi, "log_pi"), as_float(log_rho, "log_rho"))
    require_logprobs(log_pi, "log_pi")
    return calibrated_reward(rewards, log_pi.clamp(max=0.0) - log_rho, log_difficulty)
