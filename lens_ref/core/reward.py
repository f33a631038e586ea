"""The calibrated reward: a wrong answer pays the odds that the policy gave it."""

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
    require_rewards,
)
from lens_ref.core.weight import odds_from_log


@torch.no_grad()
def calibrated_reward(
    rewards: Tensor, log_confidence: Tensor, log_difficulty: Number, scale: Number = 1.0
) -> Tensor:
    """r̃ = r − (1−r) · scale · π/(D−π), eq. (calibrated reward).

    >>> rewards, confidence = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.5, 0.5, 0.2])
    >>> calibrated_reward(rewards, confidence.log(), torch.tensor(1.0).log())
    tensor([ 1.0000, -1.0000, -0.2500])

    Args:
        rewards: `[..., G]` in [0, 1].
        log_confidence: `[..., G]` log π or log π̄, nats.
        log_difficulty: `[...]` log D, one a question (or a scalar, or one a response); +inf means
            no penalty.
        scale: the practical rule's 1/G, or 1 for the likelihood's own scale.

    Returns:
        `[..., G]`, detached.

    Raises:
        DomainError: π ≥ D where r < 1 (beyond the pole the penalty would turn into a reward); a
            reward outside [0, 1] or NaN; a NaN confidence or difficulty.
        ValueError: shapes that do not line up; a scale that is negative or not finite.
    """
    rewards = as_float(rewards, "rewards")
    log_confidence = as_float(log_confidence, "log_confidence")
    require_rewards(rewards)
    rewards, log_confidence = broadcast(rewards, log_confidence)
    log_difficulty = per_question(log_difficulty, rewards, "log_difficulty")
    scale = per_question(scale, rewards, "scale")
    require((scale >= 0) & scale.isfinite(), scale, "scale", "finite, at least 0", ValueError)
    dtype = common_dtype(rewards, log_confidence, *(log_difficulty,) * (log_difficulty.ndim > 0))
    for name, value in (("log_confidence", log_confidence), ("log_difficulty", log_difficulty)):
        require(~value.isnan(), value, name, "a number is needed", DomainError)
    log_z = (log_confidence - log_difficulty).to(dtype)
    penalised = rewards < 1
    require(
        ~penalised | (log_z < 0),
        log_confidence,
        "log_confidence",
        "pi >= D on a response with r < 1; D must exceed every wrong answer's confidence",
        DomainError,
    )
    penalty = odds_from_log(torch.where(penalised, log_z, -1.0))
    return (rewards - (1 - rewards) * scale * penalty).to(dtype)
