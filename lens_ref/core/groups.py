"""A batch of groups: what was sampled (`Rollouts`), what is learnt from it (`Signal`), and the
group statistics that every method shares. `[B, G]` stays two-dimensional, so that the responses of
two questions can't be mixed up; any leading axes are accepted.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor

from lens_ref.core._checks import (
    LOGPROB_SLACK,
    DomainError,
    as_flags,
    as_float,
    common_dtype,
    require,
    require_group_axis,
    require_lengths,
    require_real,
    require_rewards,
    require_tensor,
    work_dtype,
)

NEGATIVE, MIXED, CORRECT = 0, 1, 2
"""The kinds of groups: every reward 0; neither; every reward 1."""


@dataclass(frozen=True)
class Rollouts:
    """G sampled responses to each of B questions, as the sampler saw them.

    Log-probabilities are natural logs of the *sampling* policy at the sampling temperature. Rows
    that are not valid may hold anything.

    Raises:
        ValueError: something else than tensors of real numbers; shapes that do not line up; flags
            that are neither bool nor 0 or 1.
        DomainError: in a valid row, a reward outside [0, 1] or NaN, a log-probability that is NaN,
            −inf or above 1e-6 (between 0 and 1e-6 it counts as 0), of the sequence or of one of
            its tokens, a length below 1 or not whole. Rows that are `truncated` are checked when a
            method uses them.
    """

    rewards: Tensor  # [B, G], in [0, 1]
    logprobs: Tensor  # [B, G], nats, sum over the response's tokens, made in float64 if possible
    lengths: Tensor  # [B, G], response tokens, EOS included, >= 1
    token_logprobs: Tensor | None = None  # [B, G, T], nats
    mask: Tensor | None = None  # [B, G, T] bool, True on response tokens
    entropy: Tensor | None = None  # [B, G, T], nats, full vocabulary
    prior: Tensor | None = None  # [B], running estimate for methods that keep state
    valid: Tensor | None = None  # [B, G] bool, ragged groups: only valid rows count
    truncated: Tensor | None = None  # [B, G] bool, stopped by the length limit

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value is not None or entry.default is not None:
                require_tensor(value, entry.name)
                self._check_type(entry.name, value)
        require_group_axis(self.rewards, "rewards")
        group = tuple(self.rewards.shape)
        for name in ("logprobs", "lengths", "valid", "truncated"):
            self._check_shape(name, group)
        for name in ("token_logprobs", "mask", "entropy"):
            self._check_shape(name, group, tokens=True)
        self._check_shape("prior", group[:-1])
        for name in ("mask", "valid", "truncated"):
            if getattr(self, name) is not None:
                as_flags(getattr(self, name), name)
        rows = self.valid_rows()
        rows = rows if self.truncated is None else rows & ~self.truncated.bool()
        self._check_responses(rows)
        self._check_tokens(rows)
        if self.token_logprobs is not None:
            tokens = self.response_tokens(self.token_logprobs.shape[-1]) & rows.unsqueeze(-1)
            self._check_logprobs("token_logprobs", self.token_logprobs, tokens)

    def _check_shape(self, name: str, shape: tuple[int, ...], tokens: bool = False) -> None:
        value = getattr(self, name)
        if value is None:
            return
        found = tuple(value.shape[:-1]) if tokens and value.ndim else tuple(value.shape)
        if found != shape:
            wanted = (*shape, "T") if tokens else shape
            raise ValueError(f"{name} has shape {tuple(value.shape)}: expected {wanted}")

    @staticmethod
    def _check_type(name: str, value: Tensor) -> None:
        require_real(value, name)
        if value.dtype == torch.bool and name not in ("rewards", "mask", "valid", "truncated"):
            raise ValueError(f"{name} is bool; numbers are needed")

    def _check_tokens(self, rows: Tensor) -> None:
        """What is given a token has one number of positions, enough for these rows `[B, G]`."""
        named = {name: getattr(self, name) for name in ("token_logprobs", "mask", "entropy")}
        widths = {name: value.shape[-1] for name, value in named.items() if value is not None}
        for (one, width), (other, found) in itertools.pairwise(widths.items()):
            if width != found:
                raise ValueError(f"{other} has {found} positions, {one} {width}")
        if not (widths and bool(rows.any())):
            return
        longest = 1 if self.mask is not None else int(self.lengths[rows].max())
        name, width = next(iter(widths.items()))
        if width < longest:
            raise ValueError(f"{name} has {width} positions for a response of {longest} tokens")

    def valid_rows(self) -> Tensor:
        """`[B, G]` bool: `valid`, or True everywhere."""
        if self.valid is None:
            return torch.ones_like(self.rewards, dtype=torch.bool)
        return self.valid.bool().clone()

    def check_truncated(self, rows: Tensor) -> None:
        """Raise unless the responses among these rows `[B, G]` that the length limit stopped are
        in their domain too: construction leaves them to the method that uses them."""
        if self.truncated is not None:
            self._check_responses(rows & self.truncated.bool())

    def _check_responses(self, rows: Tensor) -> None:
        require_rewards(self.rewards, rows)
        self._check_logprobs("logprobs", self.logprobs, rows)
        require_lengths(self.lengths, rows)

    @staticmethod
    def _check_logprobs(name: str, logprobs: Tensor, counted: Tensor) -> None:
        inside = (logprobs <= LOGPROB_SLACK) & (logprobs > -torch.inf)
        rule = "what was sampled has a log-probability that is finite and at most 0"
        require(inside | ~counted, logprobs, name, rule, DomainError)

    def response_tokens(self, width: int) -> Tensor:
        """`[B, G, T]` bool: `mask`, or the first `lengths` of T = `width` positions."""
        if self.mask is not None:
            return self.mask.bool()
        positions = torch.arange(width, device=self.lengths.device)
        return positions < self.lengths.unsqueeze(-1)


@dataclass(frozen=True)
class Signal:
    """What a method makes of the rollouts; detached."""

    advantages: Tensor  # [B, G] or [B, G, T]; every factor (alpha too) already folded in
    keep: Tensor  # [B, G] bool; False = left out of the loss and of its denominator
    info: dict[str, Tensor] = field(default_factory=dict)  # diagnostics, [B] or [B, G]


def group_kind(rewards: Tensor, valid: Tensor | None = None) -> Tensor:
    """0 for a negative group (every reward 0), 2 for a correct one (every reward 1), else 1.

    >>> group_kind(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]))
    tensor([0, 1, 2])

    Args:
        rewards: `[..., G]` in [0, 1].
        valid: `[..., G]` bool; other rows do not count. A group without a valid row has kind 0.

    Returns:
        `[...]` int64.

    Raises:
        DomainError: a reward outside [0, 1] or NaN.
        ValueError: no group axis.
    """
    rewards = as_float(rewards, "rewards")
    require_group_axis(rewards, "rewards")
    if valid is None:
        valid = torch.ones_like(rewards, dtype=torch.bool)
    valid = as_flags(valid, "valid")
    require_rewards(rewards, valid)
    kind = torch.full(rewards.shape[:-1], MIXED, device=rewards.device)
    kind[((rewards == 1) | ~valid).all(-1)] = CORRECT
    kind[((rewards == 0) | ~valid).all(-1)] = NEGATIVE
    return kind


def working_copy(rollouts: Rollouts) -> tuple[Tensor, torch.dtype]:
    """Rewards `[B, G]` in the dtype to compute in, and the dtype to hand back: a batch has few
    group numbers, and centring them in float32 loses what a small signal is made of.
    """
    result = common_dtype(rollouts.rewards, rollouts.logprobs)
    return rollouts.rewards.detach().to(work_dtype(rollouts.rewards.device)), result


def masked_mean(x: Tensor, valid: Tensor) -> Tensor:
    """`[..., G]` → `[..., 1]`: the mean over valid rows; 0 where there is none."""
    count = valid.sum(-1, keepdim=True).clamp(min=1)
    return x.masked_fill(~valid, 0.0).sum(-1, keepdim=True) / count


def all_equal(x: Tensor, valid: Tensor, rounding: Tensor | float = 0.0) -> Tensor:
    """`[..., G]` → `[..., 1]` bool: every valid row holds the same number, up to `rounding` (true
    of none or one)."""
    low = x.masked_fill(~valid, torch.inf).amin(-1, keepdim=True)
    high = x.masked_fill(~valid, -torch.inf).amax(-1, keepdim=True)
    return low + rounding >= high


def centred(x: Tensor, valid: Tensor, leave_one_out: bool = False) -> Tensor:
    """`[..., G]`: x minus the group mean (over the others where `leave_one_out`).

    A group of equal numbers gives exactly 0: subtracting a rounded mean and dividing by the
    standard deviation of the rounding would turn noise into a full-strength signal.
    """
    difference = x - masked_mean(x, valid)
    if leave_one_out:  # x_i − mean_{j≠i} x_j = G/(G−1) (x_i − mean)
        count = valid.sum(-1, keepdim=True)
        difference = difference * count / (count - 1).clamp(min=1)
    return difference.masked_fill(~valid | all_equal(x, valid), 0.0)


def group_std(x: Tensor, valid: Tensor, ddof: int = 0) -> Tensor:
    """`[..., G]` → `[..., 1]`: the standard deviation over valid rows, dividing by G − ddof."""
    squares = centred(x, valid).square().sum(-1, keepdim=True)
    return (squares / (valid.sum(-1, keepdim=True) - ddof).clamp(min=1)).sqrt()


def standardized(
    x: Tensor, valid: Tensor, ddof: int = 0, eps: float = 0.0, leave_one_out: bool = False
) -> Tensor:
    """`[..., G]`: (x − mean) / (std + eps), the GRPO normalisation; 0 where all are equal."""
    scale = group_std(x, valid, ddof) + eps
    return centred(x, valid, leave_one_out) / scale.where(scale > 0, 1.0)


def neg_to_mixed_rms(
    advantages: Tensor, kind: Tensor, keep: Tensor, mask: Tensor | None = None
) -> Tensor:
    """RMS advantage of the negative groups over that of the mixed ones: how loud the signal from
    all-wrong groups is. As printed, LENS gives about 1:500 at G = 16 on the bundled policy.

    >>> advantages = torch.tensor([[0.1, -0.1], [1.0, -1.0]])
    >>> neg_to_mixed_rms(advantages, torch.tensor([0, 1]), advantages != 0)
    tensor(0.1000)

    Args:
        advantages: `[B, G]` or `[B, G, T]`.
        kind: `[B]` from `group_kind`.
        keep: `[B, G]` bool.
        mask: `[B, G, T]` bool, True on response tokens, the only ones that count where advantages
            are per token. Default: all count.

    Returns:
        A scalar; NaN where one of the two kinds is absent or the mixed groups carry no advantage.

    Raises:
        ValueError: a mask of another shape than token-level advantages.
    """
    if advantages.ndim > keep.ndim:
        if mask is None:
            mask = torch.ones_like(advantages, dtype=torch.bool)
        if mask.shape != advantages.shape:
            expected = tuple(advantages.shape)
            raise ValueError(f"mask has shape {tuple(mask.shape)}: expected {expected}")
        mask = as_flags(mask, "mask")
        total = advantages.masked_fill(~mask, 0.0).square().sum(-1)
        advantages = (total / mask.sum(-1).clamp(min=1)).sqrt()

    def rms(which: int) -> Tensor:
        return advantages[(kind == which).unsqueeze(-1) & keep].square().mean().sqrt()

    ratio = rms(NEGATIVE) / rms(MIXED)
    return ratio.where(ratio.isfinite(), torch.nan)
