"""The clipped surrogate, eq. (GRPO) of the paper, as a loss to minimise.

    J = (1/N) Σ_i (1/|o_i|) Σ_t min(ratio_{i,t} A_{i,t}, clip(ratio_{i,t}, 1−ε, 1+ε) A_{i,t})

(The paper writes ρ for the ratio and for the preference; here ρ is the preference.) There is no KL
term: the paper sets β = 0. On the first update after sampling every ratio is 1 and, with group-mean
advantages, the loss is 0: what moves the policy is its gradient, −A / (N |o|) for each token.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lens_ref.core._checks import (
    as_flags,
    as_float,
    as_number,
    common_dtype,
    nearest,
    require,
    require_tensor,
)

Aggregation = Literal["sequence_mean", "token_mean", "constant"]
AGGREGATIONS: tuple[str, ...] = ("sequence_mean", "token_mean", "constant")


class LossOutput(NamedTuple):
    """The loss −J, and detached means over unmasked tokens."""

    loss: Tensor  # scalar, differentiable in the new log-probabilities
    clip_fraction: Tensor  # share of tokens whose clipped branch is strictly the smaller
    mean_ratio: Tensor  # π_θ / π_old
    approx_kl: Tensor  # mean(ratio − 1 − log ratio) ≥ 0, nats


def grpo_loss(
    new_logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    aggregation: Aggregation = "sequence_mean",
    denominator: float | Tensor | None = None,
    validate: bool = True,
) -> LossOutput:
    """The clipped policy-gradient loss over a batch of responses: −J of eq. (GRPO).

    >>> old = torch.log(torch.tensor([[0.5], [0.5]]))
    >>> new = torch.log(torch.tensor([[0.75], [0.25]]))  # ratios 1.5 and 0.5
    >>> advantages, mask = torch.tensor([1.0, -1.0]), torch.ones(2, 1, dtype=torch.bool)
    >>> out = grpo_loss(new, old, advantages, mask)
    >>> out.loss, out.clip_fraction  # −(1.2 − 0.8) / 2; both are clipped
    (tensor(-0.2000), tensor(1.))

    Args:
        new_logprobs: `[N, T]` nats, of the policy being trained, at the sampling temperature.
        old_logprobs: `[N, T]` nats, of the policy that sampled; frozen for all updates on a batch.
        advantages: `[N]` or `[N, T]`.
        mask: `[N, T]` bool, True on response tokens, EOS included. Elsewhere the tensors may hold
            anything. A row that is masked throughout adds nothing to loss or gradient.
        clip_low, clip_high: the ratio is clipped to [1 − clip_low, 1 + clip_high].
        aggregation: "sequence_mean" (the paper: mean over the tokens of each response, then over
            responses), "token_mean", or "constant" (Dr. GRPO: the sum divided by `denominator`).
        denominator: what the total is divided by. None: the number of rows with an unmasked token
            (sequence_mean) or of unmasked tokens (token_mean). A micro-batch passes the whole
            batch's number, so that gradients do not depend on how a batch is cut.
        validate: refuse NaN and infinity on unmasked tokens, and a mask of other numbers than 0
            and 1; costs a GPU synchronisation.

    Returns:
        `LossOutput`: the loss, differentiable in `new_logprobs`, and three detached means; scalars.

    Raises:
        ValueError: shapes, an unknown aggregation, a negative clip, no denominator for "constant",
            an unmasked number that is not finite, or a ratio that overflows.
    """
    if aggregation not in AGGREGATIONS:
        hint = nearest(aggregation, AGGREGATIONS)
        raise ValueError(f"unknown aggregation {aggregation!r}: {hint}")
    for name, clip in (("clip_low", clip_low), ("clip_high", clip_high)):
        number = as_number(clip)
        if number is None or not number >= 0:
            raise ValueError(f"{name} = {clip!r}: must be >= 0")
    if validate:
        as_flags(mask, "mask")
    new, old, advantage, mask = _align(new_logprobs, old_logprobs, advantages, mask)
    tokens = mask.sum()
    if denominator is None:
        if aggregation == "constant":
            raise ValueError("aggregation='constant' needs a denominator (rows x maximal length)")
        counted = mask.any(-1).sum() if aggregation == "sequence_mean" else tokens
        denominator = counted.clamp(min=1)
    elif validate or not isinstance(denominator, Tensor):
        divisor = as_float(denominator, "denominator")
        if divisor.ndim:
            raise ValueError(f"denominator has shape {tuple(divisor.shape)}: one number is needed")
        finite = (divisor > 0) & (divisor < torch.inf)
        require(finite, divisor, "denominator", "must be a finite number above 0", ValueError)
    if validate:
        rule = "not finite on an unmasked token"
        require(new.isfinite(), new, "new_logprobs", rule, ValueError)
        require(old.isfinite(), old, "old_logprobs", rule, ValueError)
        require(advantage.isfinite(), advantage, "advantages", rule, ValueError)

    log_ratio = new - old
    ratio = log_ratio.exp()
    if validate:
        require(ratio.isfinite(), log_ratio, "log ratio", "the ratio overflows", ValueError)
    unclipped = ratio * advantage
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high) * advantage
    per_token = -torch.minimum(unclipped, clipped)  # 0 on masked tokens, where A is 0
    if aggregation == "sequence_mean":
        total = (per_token.sum(-1) / mask.sum(-1).clamp(min=1)).sum()
    else:
        total = per_token.sum()

    def token_mean(x: Tensor) -> Tensor:
        return (x.detach() * mask).sum() / tokens.clamp(min=1)

    return LossOutput(
        loss=total / denominator,
        clip_fraction=token_mean((clipped < unclipped).to(per_token.dtype)),
        mean_ratio=token_mean(ratio),
        approx_kl=token_mean(torch.expm1(log_ratio) - log_ratio),
    )


def _align(
    new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Bring everything to `[N, T]` in one dtype, with 0 on masked tokens."""
    tensors = {"new_logprobs": new, "old_logprobs": old, "advantages": advantages, "mask": mask}
    for name, value in tensors.items():
        require_tensor(value, name)
    if new.ndim != 2:
        raise ValueError(f"new_logprobs has shape {tuple(new.shape)}: expected [N, T]")
    for name, value in (("old_logprobs", old), ("mask", mask)):
        if value.shape != new.shape:
            raise ValueError(f"{name} has shape {tuple(value.shape)}: expected {tuple(new.shape)}")
    if advantages.shape == new.shape[:1]:
        advantages = advantages.unsqueeze(-1)
    elif advantages.shape != new.shape:
        raise ValueError(
            f"advantages has shape {tuple(advantages.shape)}: expected "
            f"{tuple(new.shape[:1])} or {tuple(new.shape)}"
        )
    mask = mask.bool()
    advantages = as_float(advantages, "advantages").detach()
    dtype = common_dtype(new, old)  # advantages in float64 do not make the model's numbers so

    def masked(x: Tensor) -> Tensor:
        # where, not multiplication: 0 · NaN is NaN, in the gradient too
        return torch.where(mask, x.to(dtype), 0.0)

    return masked(new), masked(old.detach()), masked(advantages), mask
