"""What the methods share: checked rewards, hyperparameter checks, whitening over a batch."""

from __future__ import annotations

import math
from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor

from lens_ref.core._checks import DomainError, require
from lens_ref.core.groups import Rollouts, Signal, group_kind, working_copy


class Prepared(NamedTuple):
    """Rollouts ready to compute with."""

    rewards: Tensor  # [B, G] float64, 0 in rows that don't count
    valid: Tensor  # [B, G] bool
    kind: Tensor  # [B], see group_kind
    dtype: torch.dtype  # to hand back

    def signal(self, advantages: Tensor, keep: Tensor | None = None) -> Signal:
        """Advantages `[B, G]`, 0 in rows that don't count; `keep` is `valid` unless given."""
        advantages = advantages.masked_fill(~self.valid, 0.0).to(self.dtype)
        keep = self.valid if keep is None else keep & self.valid
        return Signal(advantages=advantages, keep=keep, info={"group_kind": self.kind})


def prepare(rollouts: Rollouts) -> Prepared:
    """Check the rows that count and copy their rewards."""
    valid = rollouts.valid_rows()
    rollouts.check_truncated(valid)
    rewards, dtype = working_copy(rollouts)
    rewards = rewards.masked_fill(~valid, 0.0)
    return Prepared(rewards, valid, group_kind(rewards, valid), dtype)


def number(value: object, name: str, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite hyperparameter in [low, high].

    Raises:
        ValueError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{name} = {value!r}: must be a finite number")
    x = float(value)
    if not low <= x <= high:
        rule = f"be >= {low:g}" if high == math.inf else f"lie in [{low:g}, {high:g}]"
        raise ValueError(f"{name} = {value!r}: must {rule}")
    return x


def whole(value: object, name: str, low: int) -> int:
    """A whole number ≥ low.

    Raises:
        ValueError: anything else.
    """
    x = number(value, name, low)
    if int(x) != x:
        raise ValueError(f"{name} = {value!r}: must be a whole number")
    return int(x)


def ddof_and_eps(ddof: object, eps: object) -> tuple[int, float]:
    """Check the two numbers of a standard deviation: it divides by n − ddof, and eps is added."""
    divisor = whole(ddof, "ddof", 0)
    if divisor > 1:
        raise ValueError(f"ddof = {ddof!r}: must be 0 or 1")
    return divisor, number(eps, "eps", 0.0)


def question_numbers(
    rollouts: Rollouts, low: float, high: float, rule: str, dtype: torch.dtype
) -> Tensor:
    """`[B, 1]`: `rollouts.prior`, every number in [low, high].

    Raises:
        DomainError: another number.
    """
    assert rollouts.prior is not None  # the registry has looked
    prior = rollouts.prior.detach().to(dtype)
    require((prior >= low) & (prior <= high), prior, "prior", rule, DomainError)
    return prior.unsqueeze(-1)


def whitened(
    x: Tensor, valid: Tensor, weights: Tensor | None = None, ddof: int = 0, eps: float = 0.0
) -> Tensor:
    """`[B, G]`: (x − mean) / (std + eps) over the whole batch; 0 where all numbers are equal.

    Args:
        weights: `[B, G]` how much each row counts, for example its tokens; default 1.
        ddof: the variance divides by Σ weights − ddof.
    """
    count = valid.to(x.dtype) if weights is None else weights.masked_fill(~valid, 0).to(x.dtype)
    counted = x[count > 0]
    if not len(counted):
        return torch.zeros_like(x)
    rounding = 1e-12 * counted.abs().max()  # equal but for that: no signal, not full strength
    if bool((counted - counted[0]).abs().max() <= rounding):
        return torch.zeros_like(x)
    total = count.sum()
    difference = x - (x * count).sum() / total
    variance = (difference.square() * count).sum() / (total - ddof).clamp(min=1)
    return (difference / (variance.sqrt() + eps)).masked_fill(~valid, 0.0)
