"""Confidence: how probable the policy found its own response, length removed or not."""

from __future__ import annotations

import torch
from torch import Tensor

from lens_ref.core._checks import (
    as_float,
    broadcast,
    common_dtype,
    require_lengths,
    require_logprobs,
)


@torch.no_grad()
def length_normalized(logprobs: Tensor, lengths: Tensor) -> Tensor:
    """log π̄ = log π / |o|: the log of the geometric-mean token probability.

    The paper, "π_θold term": raw sequence probabilities decay like γ^|o| and leave one response
    with all the weight. On π̄ the practical rule is exactly the preference framework with
    ρ = π^(1−1/|o|) held fixed, and length 1 leaves π̄ = π.

    >>> length_normalized(torch.tensor([-20.0, -32.0]), torch.tensor([80, 100]))
    tensor([-0.2500, -0.3200])

    Args:
        logprobs: `[..., G]` sequence log-probabilities in nats: the sum over response tokens, EOS
            included, of the sampling policy at the sampling temperature.
        lengths: `[..., G]` response tokens, EOS included, ≥ 1.

    Returns:
        `[..., G]`, nats per token, detached.

    Raises:
        DomainError: a length below 1 or not whole; a log-probability that is NaN or above 1e-6.
    """
    logprobs, lengths = broadcast(as_float(logprobs, "logprobs"), as_float(lengths, "lengths"))
    require_lengths(lengths)
    require_logprobs(logprobs, "logprobs")
    dtype = common_dtype(logprobs)
    return logprobs.to(dtype).clamp(max=0.0) / lengths.to(logprobs.device, dtype)
