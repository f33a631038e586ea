"""Samples from μ instead of the policy π: two different objectives, and how to mend each.

**The on-policy objective from samples of μ.** Theorem 2 gives ∇J_MLE = E_π[c ∇log π] with Theorem
1's coefficient c = r − (1−r) π/(Dρ−π), so for any μ > 0 where π > 0

    ∇J_MLE = E_μ[(π/μ) c ∇log π]

exactly. Cutting the ratio at `cap` changes this by −E_μ[(π/μ − cap)₊ c ∇log π]: nothing where
π ≤ cap · μ, and otherwise too little on the answers that μ sees too rarely.

**The likelihood under μ itself**, L(π) = E_μ[r log π + (1−r) log(1 − π/D)], needs no ratio. Where
0 < p* < 1 on every answer, π* = D p* is stationary whatever μ is: c averages to p* − p* = 0. But
where p* is 0 or 1 it is a maximiser only if μ is uniform on the correct answers: c is then 1 on
every correct answer, not 0, and the likelihood wants π ∝ μ on them. Six options, two correct, μ =
(.4, .1, …), D = ½: L(½, ½) = −.347, below L(.8, .2) = −.250. (The consistency proof multiplies
1−p* = 0 by the infinite odds at π = D.) Two mends, each of which makes π* a maximiser again:

- weigh correct samples by 1/μ (`inverse_sampling_weights`): they then add Σ_correct log π,
  greatest where π is uniform on them, and wrong samples are least costly at π = 0;
- keep π ≤ Dρ on correct answers too (`bounded_coefficient`): at π* all of them sit on the bound,
  with multipliers μ/D > 0, and the slope on wrong answers is −μ/D < 0 (KKT with Σπ = 1 slack).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lens_ref.core._checks import (
    DomainError,
    Number,
    as_float,
    broadcast,
    common_dtype,
    require,
    require_positive,
    require_rewards,
)
from lens_ref.core.likelihood import mle_coefficient
from lens_ref.extensions.preferences import data_preference


@torch.no_grad()
def off_policy_coefficient(
    log_pi: Tensor,
    log_mu: Tensor,
    rewards: Tensor,
    difficulty: Number,
    preference: Tensor | None = None,
    cap: float | None = None,
) -> Tensor:
    """(π/μ) · (r − (1−r) π/(Dρ−π)): E_μ[this · ∇log π] = ∇J_MLE (statement: this module).

    Args:
        log_pi: `[...]` log π of each sample under the current policy, nats.
        log_mu: `[...]` log μ of each sample under the policy that drew it, nats.
        rewards: `[...]` in [0, 1].
        difficulty: D of each sample's question, or a scalar; +∞ allowed.
        preference: ρ of each sample ≥ 0; default 1.
        cap: the largest ratio π/μ that counts, > 0; default none. Biased where it is reached.

    Returns:
        `[...]`, detached.

    Raises:
        DomainError: π ≥ Dρ on a sample with r < 1; μ = 0; a ratio too large for the dtype, without
            a cap; an argument outside its domain.
    """
    coefficient = mle_coefficient(log_pi, rewards, difficulty, preference)  # checks all but μ
    log_pi = as_float(log_pi, "log_pi").clamp(max=0.0)
    log_pi, log_mu, coefficient = broadcast(log_pi, data_preference(log_mu), coefficient)
    log_ratio = log_pi - log_mu
    if cap is not None:
        require_positive(cap, "cap")
        log_ratio = log_ratio.clamp(max=math.log(cap))
    dtype = common_dtype(coefficient, log_mu)
    ratio = log_ratio.to(dtype).exp()
    rule = "pi/mu overflows; pass a cap"
    require(ratio.isfinite(), log_ratio, "log_pi - log_mu", rule, DomainError)
    return ratio * coefficient


@torch.no_grad()
def inverse_sampling_weights(log_mu: Tensor, rewards: Tensor) -> Tensor:
    """1/μ on samples with r = 1, and 1 on the others: the first mend of this module.

    For verdicts that are certain, p* in {0, 1}. Where 0 < p* < 1 no weights are needed, and these
    would be wrong: both verdicts of an answer must weigh the same for p* − p* to cancel.

    Args:
        log_mu: `[...]` log μ of each sample under the policy that drew it, nats. A number added to
            log μ of a whole question leaves the maximiser where it is.
        rewards: `[...]` in [0, 1].

    Returns:
        `[...]`, detached; multiplies the sample's log-likelihood, or its coefficient.

    Raises:
        DomainError: μ = 0; 1/μ too large for the dtype; an argument outside its domain.
    """
    log_mu, rewards = broadcast(data_preference(log_mu), as_float(rewards, "rewards"))
    require_rewards(rewards)
    dtype = common_dtype(log_mu, rewards)
    weights = torch.where(rewards == 1, -log_mu, 0.0).to(dtype).exp()
    rule = "1/mu overflows; first subtract each question's largest log mu from its log_mu"
    require(weights.isfinite(), log_mu, "log_mu", rule, DomainError)
    return weights


@torch.no_grad()
def bounded_coefficient(
    log_pi: Tensor, rewards: Tensor, difficulty: Number, preference: Tensor | None = None
) -> Tensor:
    """Theorem 1's coefficient under the constraint π ≤ Dρ: a correct answer that has reached Dρ is
    pushed no further. The second mend of this module.

    Arguments and errors as `mle_coefficient`. Returns `[...]`, detached.
    """
    coefficient = mle_coefficient(log_pi, rewards, difficulty, preference)
    log_bound = as_float(difficulty, "difficulty").log()
    if preference is not None:
        log_bound = log_bound + as_float(preference, "preference").log()
    # where r < 1 this has been refused already
    return coefficient.masked_fill(as_float(log_pi, "log_pi") >= log_bound, 0.0)
