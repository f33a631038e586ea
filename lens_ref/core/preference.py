"""Length preferences, ρ(q, o) = γ^|o|, of the preference-aware appendix.

    r̃ = −π / (D γ^|o| − π) = −1 / (e^s − 1),   s = log D + |o| log γ − log π          exact
    r̃ ≈ −(1/|o|) · π̄ / (γ − π̄)                                                        practical

The paper's chain from the first to the second needs |log D| ≪ s ≪ 1: the expansion of the power
needs s small, dropping D^{1/|o|} needs s large against log D. At |o| = 1000 a 1 % change of π̄ moves
s by 10. The exact form needs neither.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
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
    require_logprobs,
    require_positive,
    work_dtype,
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

    >>> log_pi, length = torch.tensor([0.2]).log(), torch.tensor([1])
    >>> length_preference_reward(log_pi, length, 0.0, gamma=0.6)  # −0.2 / (0.6 − 0.2)
    tensor([-0.5000])

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
        DomainError: π ≥ D γ^|o| or a log D that is NaN (exact), γ ≤ π̄ (practical), γ ≤ 0, a
            length below 1 or not whole, a log-probability above 0 or NaN.
        ValueError: an unknown form; shapes that do not line up.
    """
    gamma = require_positive(gamma, "gamma")
    log_pi = as_float(log_pi, "log_pi")
    require_logprobs(log_pi, "log_pi")
    log_confidence = length_normalized(log_pi, lengths)  # checks the lengths
    if form not in ("exact", "practical"):
        raise ValueError(f"unknown form {form!r}: {nearest(form, ('exact', 'practical'))}")
    lengths = as_float(lengths, "lengths")
    log_difficulty = per_question(log_difficulty, log_confidence, "log_difficulty")
    dtype = common_dtype(log_pi, *(log_difficulty,) * (log_difficulty.ndim > 0))
    work = work_dtype(log_pi.device)
    lengths = lengths.to(log_pi.device, work)
    if form == "practical":
        log_z = log_confidence.to(work) - math.log(gamma)
        rule = f"gamma = {gamma:g} <= pi_bar"
        require(log_z < 0, log_pi.expand(log_z.shape), "log_pi", rule, DomainError)
        return (-odds_from_log(log_z) / lengths).to(dtype)
    rule = "log D is a number"
    require(~log_difficulty.isnan(), log_difficulty, "log_difficulty", rule, DomainError)
    # s is a small difference of large numbers: L log γ is taken in two parts, the first exact.
    high, low = _split_log(gamma)
    s = (lengths * high - log_pi.to(work)) + log_difficulty.to(work) + lengths * low
    require(s > 0, log_pi.expand(s.shape), "log_pi", "pi >= D * gamma^L", DomainError)
    return -odds_from_log(-s).to(dtype)


def _split_log(x: float) -> tuple[float, float]:
    """log x as high + low, high short enough that its product with a length is exact."""
    exact = Decimal(x).ln(Context(prec=40))
    high = float(torch.tensor(float(exact), dtype=torch.float32))
    return high, float(exact - Decimal(high))
