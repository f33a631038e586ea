"""Length preferences, ρ(q, o) = γ^|o|, of the preference-aware appendix.

    r̃ = −π / (D γ^|o| − π) = −1 / (e^s − 1),   s = log D + |o| log γ − log π          exact
    r̃ ≈ −(1/|o|) · π̄ / (γ − π̄)                                                        practical

The paper's chain from the first to the second needs |log D| ≪ s ≪ 1: the expansion of the power
needs s small, dropping D^{1/|o|} needs s large against log D. At |o| = 1000 a 1 % change of π̄ moves
s by 10. The exact form needs neither.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from lens_ref.core._checks import (
    DomainError,
    Number,
    as_float,
    common_dtype,
    nearest,
    per_question,
    require,
    require_positive,
)
from lens_ref.core.confidence import length_normalized
from lens_ref.core.weight import odds_from_log


@torch.no_grad()
def length_preference_reward(
    log_pi: Tensor,
    lengths: Tensor,
    log_difficulty: Number,
    gamma: float,
    form: Literal["exact", "practical"] = "exact",
) -> Tensor:
    """The reward of a wrong answer under the preference ρ = γ^|o|.

    Args:
        log_pi: `[..., G]` sequence log-probabilities, nats.
        lengths: `[..., G]` tokens, ≥ 1.
        log_difficulty: `[...]` log D, one a question (or a scalar, or one a response). The
            practical form does not use it.
        gamma: γ > 0; the paper takes it in (0, 1), on the scale of π̄.
        form: "exact", −1/expm1(s), or "practical", the paper's closing formula.

    Returns:
        `[..., G]`, negative, detached.

    Raises:
        DomainError: π ≥ D γ^|o| (exact), γ ≤ π̄ (practical), γ ≤ 0, a length below 1, a
            log-probability above 0 or NaN.
        ValueError: an unknown form.
    """
    require_positive(gamma, "gamma")
    log_confidence = length_normalized(log_pi, lengths)  # checks both
    if form == "practical":
        log_z = log_confidence - math.log(gamma)
        rule = f"gamma = {gamma:g} must exceed it"
        require(log_z < 0, log_confidence.exp(), "pi_bar", rule, DomainError)
        return -odds_from_log(log_z) / torch.as_tensor(lengths, device=log_z.device)
    if form != "exact":
        raise ValueError(f"unknown form {form!r}: {nearest(form, ('exact', 'practical'))}")
    log_pi = as_float(log_pi, "log_pi")
    log_difficulty = per_question(log_difficulty, log_confidence, "log_difficulty")
    dtype = common_dtype(log_pi, *(log_difficulty,) * (log_difficulty.ndim > 0))
    lengths = torch.as_tensor(lengths, device=log_pi.device).to(dtype)
    s = log_difficulty + lengths * math.log(gamma) - log_pi
    require(s > 0, s, "s = log D + L log(gamma) - log pi", "pi >= D * gamma^L", DomainError)
    return -odds_from_log(-s)
