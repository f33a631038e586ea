"""How loud a negative group should be: α without tuning.

A group in which every answer is wrong has centred odds u − ū instead of centred rewards, and α
says how loud they are beside a mixed group. Two answers need no tuning. Both are given here as
*equivalent α's*: the RMS advantage of negative groups over that of mixed ones whose advantages
have variance 1. They are thus on the scale of α under `negative_norm="demean_std"`, which has
centred odds of variance 1 too. Under the printed norm (centred, times 1/G) the same loudness takes
α · G/RMS(u−ū): for G = 16, k = 1 and a spread of π̄ of .03 that is 66, not .25.

**Posterior scale.** GRPO divides by √(p(1−p)), the standard deviation of a verdict at the group's
accuracy p = k/G, which is 0 at k = 0. Put a uniform prior Beta(1, 1) on the accuracy: after k of G
it is Beta(k+1, G−k+1), with mean p̂ = (k+1)/(G+2), and a next verdict drawn from it is Bernoulli(p̂)
with standard deviation √(p̂(1−p̂)). It is positive and continuous in k, .229 at k = 0 of 16, and
tends to GRPO's as G grows. Dividing u − ū by it needs no α:
`LensConfig(negative_norm="posterior_std", negative_scale=1, alpha=1)`.

**Likelihood scale.** Theorem 1's coefficient has neither the std nor the 1/G, and no α: a negative
group gives u − ū, a mixed one r − r̄ of RMS √(p(1−p)). Hence α = RMS(u−ū)/√(p(1−p)), .24 at
G = 16, k = 1 and a spread of .03. (In a mixed group the likelihood takes the wrong answers' odds
off as well. This measure leaves them out: it compares with verdicts alone, as GRPO has them. With
them, α is .22 for answers of one token.)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lens_ref.core._checks import DomainError, Number, as_float, require
from lens_ref.core.advantage import LensConfig, lens_advantages
from lens_ref.core.groups import MIXED, NEGATIVE, Rollouts, centred, working_copy


@torch.no_grad()
def posterior_scale(correct: Number, group_size: Number) -> Tensor:
    """√(p̂(1−p̂)), p̂ = (k+1)/(G+2) (derivation: this module).

    Args:
        correct: `[...]` k, the number (or, with fractional rewards, the sum) of rewards, 0 ≤ k ≤ G.
        group_size: `[...]` G ≥ 1.

    Returns:
        `[...]`, in (0, ½], detached.

    Raises:
        DomainError: k outside [0, G]; G below 1.
    """
    k, g = as_float(correct, "correct").detach(), as_float(group_size, "group_size").detach()
    require(
        (g >= 1) & g.isfinite(), g, "group_size", "a group has at least one response", DomainError
    )
    require((k >= 0) & (k <= g), k, "correct", "0 <= correct <= group_size", DomainError)
    p = (k + 1) / (g + 2)
    return (p * (1 - p)).sqrt()


def likelihood_alpha(rollouts: Rollouts, config: LensConfig | None = None) -> float:
    """The α, under `negative_norm="demean_std"`, at which negative groups are as loud beside mixed
    ones as in the likelihood itself: RMS(u−ū) / RMS(r−r̄). Arguments as `equivalent_alphas`.

    Returns:
        NaN where the batch lacks negative or mixed groups.
    """
    return equivalent_alphas(rollouts, config)["alpha_likelihood"]


@torch.no_grad()
def equivalent_alphas(rollouts: Rollouts, config: LensConfig | None = None) -> dict[str, float]:
    """What α would be without tuning, to be logged beside the α in use (statements: this module).

    Args:
        rollouts: `[B, G]`.
        config: what says which π enters the odds, the guard and the truncation rule; default
            `LensConfig()`. Its norms, scales and α have no effect.

    Returns:
        `alpha_posterior`, RMS of (u−ū)/√(p̂(1−p̂)) over responses of negative groups, NaN where
        there is none; `alpha_likelihood`, RMS(u−ū) over the same ones divided by RMS(r−r̄) over
        those of mixed groups (√(p(1−p)) for verdicts), NaN where either is missing. A group of
        equal fractional rewards is neither.

    Raises:
        DomainError, ValueError: as `lens_advantages`.
    """
    signal = lens_advantages(rollouts, config)
    valid, kind = signal.keep, signal.info["group_kind"].unsqueeze(-1)
    rewards, _ = working_copy(rollouts)
    spread = centred(signal.info["odds"].to(rewards.dtype), valid)
    size = valid.sum(-1, keepdim=True).clamp(min=1).to(rewards.dtype)
    scaled = spread / posterior_scale(0, size)
    centred_rewards = centred(rewards.masked_fill(~valid, 0.0), valid)
    negative = valid & (kind == NEGATIVE)
    mixed = valid & (kind == MIXED) & (centred_rewards != 0).any(-1, keepdim=True)
    loudness = _rms(spread, negative) / _rms(centred_rewards, mixed)
    return {"alpha_posterior": _rms(scaled, negative), "alpha_likelihood": loudness}


def _rms(x: Tensor, rows: Tensor) -> float:
    """Over the rows that are True; NaN where none is."""
    return math.sqrt(x[rows].square().mean().item()) if bool(rows.any()) else math.nan
