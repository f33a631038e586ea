"""The option spaces: a softmax over K options for each question, some of them correct.

Arrays are `[S, Q, K]`: S seeds (independent repetitions), Q questions, K options.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

OPTIONS = "ABCDEF"  # of the six-option question: A and B are correct, C is what the policy believes


@dataclass(frozen=True)
class Space:
    """Questions with their options and the policy's first logits."""

    logits: Floats  # [S, Q, K]
    correct: Bools  # [S, Q, K]


def six_options(p_correct: float, seeds: int = 1) -> Space:
    """One question: A and B correct, C confidently wrong, D, E, F as unlikely as A and B.

    The logits are 0 but for C's log(2/p − 5), which makes P(correct) = p.

    Args:
        p_correct: the policy's first P(A or B), in (0, 0.4).
        seeds: S, that many equal copies.

    Raises:
        ValueError: p outside (0, 0.4): C would have no positive weight.
    """
    if not 0 < p_correct < 0.4:
        raise ValueError(f"p_correct = {p_correct}: must lie in (0, 0.4)")
    logits = np.zeros((seeds, 1, 6))
    logits[..., 2] = np.log(2 / p_correct - 5)
    correct = np.zeros((seeds, 1, 6), dtype=bool)
    correct[..., :2] = True
    return Space(logits, correct)


def many_questions(
    streams: list[np.random.Generator], questions: int = 50, options: int = 100
) -> Space:
    """Many questions of many options: 1 to 3 are correct and start three logits behind.

    Logits are N(0, 2²), minus 3 on the correct options: an accuracy of about 0.001.

    Args:
        streams: one generator a seed; every seed has questions of its own, so that intervals over
            seeds hold for other questions too.
    """
    logits = np.empty((len(streams), questions, options))
    correct = np.zeros(logits.shape, dtype=bool)
    for s, rng in enumerate(streams):
        logits[s] = rng.normal(0.0, 2.0, (questions, options))
        for q in range(questions):
            right = rng.choice(options, size=rng.integers(1, 4), replace=False)
            correct[s, q, right] = True
    return Space(logits - 3.0 * correct, correct)


def log_softmax(logits: Floats) -> Floats:
    """`[..., K]` → `[..., K]` log-probabilities, nats."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def accuracy(policy: Floats, correct: Bools) -> Floats:
    """`[..., K]` → `[...]`: P(correct), the exact accuracy."""
    return np.where(correct, policy, 0.0).sum(-1)


def entropy(policy: Floats) -> Floats:
    """`[..., K]` → `[...]`, nats; an option of probability 0 adds 0."""
    return -(policy * np.log(np.where(policy > 0, policy, 1.0))).sum(-1)
