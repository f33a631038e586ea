"""What these tests share: every group that a policy can draw from a few answers, with its
probability, and the exact expectation of an update over them."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

from tests.core.helpers import F64


class Groups(NamedTuple):
    """Every group of G answers (and verdicts): N of them."""

    answers: Tensor  # [N, G]
    rewards: Tensor  # [N, G]
    probability: Tensor  # [N]


def every_group(pi: Tensor, p_star: Tensor, size: int, verdicts: bool) -> Groups:
    """All groups of `size` draws from π. Rewards are p* itself or, with `verdicts`, every pattern
    of Bernoulli(p*) draws."""
    answers = torch.tensor(list(itertools.product(range(len(pi)), repeat=size)))
    probability = pi[answers].prod(-1)
    if not verdicts:
        return Groups(answers, p_star[answers], probability)
    patterns = torch.tensor(list(itertools.product([0.0, 1.0], repeat=size)), dtype=F64)
    rows = len(answers)
    answers = answers.repeat_interleave(len(patterns), 0)
    rewards = patterns.repeat(rows, 1)
    chance = torch.where(rewards > 0, p_star[answers], 1 - p_star[answers]).prod(-1)
    return Groups(answers, rewards, probability.repeat_interleave(len(patterns)) * chance)


def expected_update(pi: Tensor, groups: Groups, advantages: Tensor) -> Tensor:
    """`[K]` E[(1/G) Σ_i A_i ∇ log π(o_i)] in softmax logits, where ∇ log π(o) = e_o − π."""
    slopes = torch.eye(len(pi), dtype=F64)[groups.answers] - pi
    return (groups.probability[:, None] * (advantages[..., None] * slopes).mean(1)).sum(0)
