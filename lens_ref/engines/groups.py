"""Rows and groups: engines keep a flat list of N responses, methods want `[B, G]`.

`to_rollouts` puts the rows that share a uid into one group, whatever their order, and `scatter`
hands each row its advantage. Groups may be of different sizes: the shorter ones are filled up with
cells that are not `valid`, which no method counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lens_ref.core.groups import Rollouts, Signal

ROUNDING = 1e-3
"""Half-precision engines report log-probabilities up to this much above 0; they count as 0."""

REWARD_ROUNDING = 1e-6
"""Rewards this close to a whole number count as it."""


@dataclass(frozen=True)
class GroupIndex:
    """Where each of the N rows went: to the cell `(group, column)` of `[B, G]`."""

    group: Tensor  # [N] int64
    column: Tensor  # [N] int64
    uids: tuple[Hashable, ...]  # [B], in order of first appearance

    def place(self, rows: Tensor) -> Tensor:
        """`[N, ...]` → `[B, G, ...]`; cells without a row hold 0 or False."""
        size = int(self.column.max()) + 1
        cells = rows.new_zeros((len(self.uids), size, *rows.shape[1:]))
        cells[self.group, self.column] = rows
        return cells


def to_rollouts(
    uids: Iterable[Any],
    rewards: Tensor,
    logprobs: Tensor,
    mask: Tensor,
    truncated: Tensor | None = None,
    entropy: Tensor | None = None,
    valid: Tensor | None = None,
) -> tuple[Rollouts, GroupIndex]:
    """Group an engine's rows.

    Args:
        uids: N names of questions, hashable or numbers; rows with the same one form a group.
        rewards: `[N]` in [0, 1].
        logprobs: `[N, T]` nats, of the policy that sampled, at the sampling temperature; padding
            may hold anything, NaN included.
        mask: `[N, T]` bool or 0 and 1, True on the response's own tokens, EOS included.
        truncated: `[N]` bool, stopped by the length limit.
        entropy: `[N, T]` nats, of the next-token distribution over the whole vocabulary.
        valid: `[N]` bool; False leaves a row out. A row without a single token is left out too: it
            has no confidence, and must not be read as one of certainty.

    Returns:
        `Rollouts` `[B, G]`, groups in order of first appearance and rows in their own order, G the
        size of the largest group; and the index that `scatter` needs. Log-probabilities are summed
        in float64.

    Raises:
        ValueError: no rows; shapes that do not line up. DomainError (a ValueError): a number
            outside its domain in a row that counts (see `Rollouts`).
    """
    index = _index(uids, mask.device)
    rows, tokens = len(index.group), tuple(mask.shape)
    if rows == 0:
        raise ValueError("uids is empty: at least one row is needed")
    if len(tokens) != 2 or tokens[0] != rows:
        raise ValueError(f"mask has shape {tokens}: expected ({rows}, T), one row a uid")
    shaped: dict[str, tuple[Tensor | None, tuple[int, ...]]] = {
        "rewards": (rewards, (rows,)),
        "logprobs": (logprobs, tokens),
        "truncated": (truncated, (rows,)),
        "entropy": (entropy, tokens),
        "valid": (valid, (rows,)),
    }
    for name, (value, shape) in shaped.items():
        if value is not None and tuple(value.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(value.shape)}: expected {shape}")

    mask = mask.bool()
    counted = mask.any(-1) if valid is None else mask.any(-1) & valid.bool()
    token_logprobs = _rounded(logprobs.detach().double()).masked_fill(~mask, 0.0)
    rollouts = Rollouts(
        rewards=index.place(rewards.detach().double()),
        logprobs=index.place(token_logprobs.sum(-1)),
        lengths=index.place(mask.sum(-1)),
        token_logprobs=index.place(token_logprobs),
        mask=index.place(mask),
        entropy=None if entropy is None else index.place(entropy.detach()),
        valid=index.place(counted),
        truncated=None if truncated is None else index.place(truncated.bool()),
    )
    return rollouts, index


def scatter(signal: Signal, index: GroupIndex) -> tuple[Tensor, Tensor]:
    """The signal row by row, in the order of `to_rollouts`.

    Returns:
        Advantages `[N]`, or `[N, T]` from a method that gives one a token, and keep `[N]` bool:
        False where the row is to be left out of the loss and of its denominator.
    """
    cell = (index.group, index.column)
    return signal.advantages[cell], signal.keep[cell]


def whole_rewards(rewards: Tensor) -> Tensor:
    """`[N]` rewards, those within `REWARD_ROUNDING` of a whole number made whole: float32 sums and
    weights give 1 ± 1e-7, which is not "correct"."""
    whole = rewards.round()
    return torch.where((rewards - whole).abs() <= REWARD_ROUNDING, whole, rewards)


def kept_scale(keep: Tensor) -> float:
    """What to multiply the advantages `[N]` by in an engine whose loss divides by all rows, so that
    it divides by the kept ones: N / kept, 0 where none is kept. The clipped surrogate is
    positively homogeneous in the advantage, so that this is exact."""
    kept = int(keep.sum())
    return keep.numel() / kept if kept else 0.0


def _index(uids: Iterable[Any], device: torch.device) -> GroupIndex:
    names = [uid.item() if isinstance(uid, Tensor) else uid for uid in uids]
    number: dict[Hashable, int] = {}
    sizes: list[int] = []
    group, column = [], []
    for name in names:
        g = number.setdefault(name, len(number))
        if g == len(sizes):
            sizes.append(0)
        group.append(g)
        column.append(sizes[g])
        sizes[g] += 1
    return GroupIndex(
        group=torch.tensor(group, dtype=torch.int64, device=device),
        column=torch.tensor(column, dtype=torch.int64, device=device),
        uids=tuple(number),
    )


def _rounded(logprobs: Tensor) -> Tensor:
    """Rounding above 0 taken off; what lies higher stays, for `Rollouts` to refuse."""
    return torch.where(logprobs <= ROUNDING, logprobs.clamp(max=0.0), logprobs)
