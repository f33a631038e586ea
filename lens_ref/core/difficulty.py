"""The difficulty D(q): one over the (preference-weighted) number of correct answers, estimated.

    D_imp = { (1/G) Σ_i r_i / π(o_i) }^{-1}                eq. (D_imp)
    D     = max(D_imp, guard · max_i π̄(o_i))               mixed groups
    D     = guard · max_i π̄(o_i)                           negative groups, where D_imp is undefined

1/D_imp is unbiased for 1/D; D_imp itself is not unbiased, and its bias can have either sign. The
guard (the paper's factor 2) keeps π̄ < D, so that the odds stay at or below 1/(guard − 1). It is
also the smallest admissible D on the hardest questions, where the theory would say D = ∞.

Everything here is log D: a sequence probability of e^−4000 is ordinary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lens_ref.core._checks import (
    as_flags,
    as_float,
    broadcast,
    common_dtype,
    require,
    require_group_axis,
    require_positive,
    require_rewards,
)


@torch.no_grad()
def importance_difficulty(
    rewards: Tensor, log_confidence: Tensor, valid: Tensor | None = None
) -> Tensor:
    """log D_imp, the importance-sampling estimate of eq. (D_imp).

    >>> confidence = torch.tensor([0.5, 0.25, 0.25, 0.1])
    >>> importance_difficulty(torch.tensor([1.0, 1.0, 0.0, 0.0]), confidence.log()).exp()
    tensor(0.6667)

    That is 1 / ((2 + 4) / 4).

    Args:
        rewards: `[..., G]` in [0, 1]; fractional rewards estimate 1/Σ p*.
        log_confidence: `[..., G]` nats: log π, or log π̄ for the reading that makes the practical
            rule exact. Above 0 it is taken as it is, since π/ρ may be above 1.
        valid: `[..., G]` bool; rows that are False are left out of the mean. Default: all count.

    Returns:
        `[...]` log D_imp, detached; +inf where every reward is 0.

    Raises:
        DomainError: a reward outside [0, 1] or NaN.
        ValueError: a NaN or +inf confidence; an empty group axis.
    """
    return _log_importance(*_prepare(rewards, log_confidence, valid))


def _log_importance(rewards: Tensor, log_confidence: Tensor, valid: Tensor) -> Tensor:
    counted = valid & (rewards > 0)
    terms = torch.where(counted, rewards, 1.0).log() - log_confidence
    log_sum = torch.logsumexp(terms.masked_fill(~counted, -math.inf), dim=-1)
    log_count = valid.sum(-1).clamp(min=1).to(log_sum.dtype).log()
    return log_count - log_sum


@torch.no_grad()
def difficulty(
    rewards: Tensor,
    log_confidence: Tensor,
    guard: float = 2.0,
    importance_log_confidence: Tensor | None = None,
    valid: Tensor | None = None,
) -> Tensor:
    """log D: max(log D_imp, log(guard · max π)); a negative group takes the guard alone.

    >>> difficulty(torch.zeros(3), torch.tensor([0.9, 0.5, 0.2]).log()).exp()
    tensor(1.8000)

    Args:
        rewards: `[..., G]` in [0, 1].
        log_confidence: `[..., G]` nats, the confidence whose maximum the guard multiplies.
        guard: the factor above the most confident response, > 1; the paper's is 2.
        importance_log_confidence: `[..., G]` nats, π of D_imp; default `log_confidence`.
        valid: `[..., G]` bool; rows that are False are left out.

    Returns:
        `[...]` log D, detached; −inf for a group without a valid row.

    Raises:
        DomainError: guard ≤ 1; a reward outside [0, 1] or NaN.
        ValueError: a NaN or +inf confidence; an empty group axis.
    """
    guard = require_positive(guard, "guard", above=1.0)
    prepared = _prepare(rewards, log_confidence, valid)
    importance, name = prepared, "importance_log_confidence"
    if importance_log_confidence is not None:
        importance = _prepare(rewards, importance_log_confidence, valid, name)
    log_importance = _log_importance(*importance)
    _, log_confidence, valid = prepared
    log_floor = log_confidence.masked_fill(~valid, -math.inf).amax(-1) + math.log(guard)
    undefined = torch.isposinf(log_importance)  # no reward above 0: a negative group
    return torch.where(undefined, log_floor, torch.maximum(log_importance, log_floor))


def _prepare(
    rewards: Tensor, log_confidence: Tensor, valid: Tensor | None, name: str = "log_confidence"
) -> tuple[Tensor, Tensor, Tensor]:
    rewards = as_float(rewards, "rewards")
    log_confidence = as_float(log_confidence, name)
    require_group_axis(rewards, "rewards")
    rewards, log_confidence = broadcast(rewards, log_confidence)
    if valid is None:
        valid = torch.ones_like(rewards, dtype=torch.bool)
    valid = as_flags(valid, "valid")
    require_rewards(rewards, valid)
    require(
        (log_confidence < math.inf) | ~valid,
        log_confidence,
        name,
        "a log confidence is a number below infinity",
        ValueError,
    )
    dtype = common_dtype(rewards, log_confidence)
    return (
        rewards.to(dtype).masked_fill(~valid, 0.0),
        log_confidence.to(dtype).masked_fill(~valid, 0.0),
        valid,
    )
