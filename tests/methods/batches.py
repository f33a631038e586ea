"""Batches of groups for the methods' tests."""

from __future__ import annotations

from typing import Any

import torch

from lens_ref import Rollouts, methods
from tests.core.helpers import F64, tensor

EVERYTHING = methods.names()
STATEFUL = [name for name in EVERYTHING if methods.spec(name).stateful]
ON_ITS_OWN = [  # every group on its own
    name for name in EVERYTHING if methods.spec(name).negative_class != "batch_dependent"
]


def batch(
    rewards: list[list[float]],
    confidence: list[list[float]] | None = None,
    lengths: list[list[int]] | None = None,
    seed: int = 0,
    dtype: torch.dtype = F64,
    **fields: Any,
) -> Rollouts:
    """Rollouts that lack nothing: token fields and a prior of 0.4 unless given."""
    r = tensor(rewards, dtype)
    generator = torch.Generator().manual_seed(seed)
    n = torch.ones(r.shape, dtype=torch.int64) if lengths is None else torch.tensor(lengths)
    width = int(n.max()) if n.numel() else 1
    if confidence is None:
        token = -torch.rand((*r.shape, width), generator=generator, dtype=F64) - 0.01
    else:
        token = tensor(confidence).log().unsqueeze(-1).expand(*r.shape, width).clone()
    mask = torch.arange(width) < n.unsqueeze(-1)
    entropy = 2 * torch.rand((*r.shape, width), generator=generator, dtype=F64)
    given = {
        "token_logprobs": token.to(dtype),
        "mask": mask,
        "entropy": entropy.to(dtype),
        "prior": torch.full(r.shape[:-1], 0.4, dtype=F64),
        "truncated": torch.zeros(r.shape, dtype=torch.bool),
        **fields,
    }
    return Rollouts(r, token.masked_fill(~mask, 0.0).sum(-1).to(dtype), n, **given)


def random_batch(seed: int, dtype: torch.dtype = F64, **fields: Any) -> Rollouts:
    """Five questions of up to nine binary responses, of every kind, of different lengths."""
    g = torch.Generator().manual_seed(seed)
    size = int(torch.randint(2, 10, (), generator=g))
    rewards = (torch.rand(5, size, generator=g) < 0.4).double()
    rewards[0], rewards[1] = 0.0, 1.0
    rewards[2, 0], rewards[2, 1] = 1.0, 0.0
    lengths = torch.randint(1, 8, (5, size), generator=g)
    return batch(rewards.tolist(), None, lengths.tolist(), seed, dtype, **fields)
