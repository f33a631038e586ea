"""How far a mean over questions could move: the bootstrap and the sign-flip test, for many
statistics of the same questions at once."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np

from lens_ref.rlvr.statistics import RESAMPLES, Interval

FEW_ROWS = 64
"""Up to so many distinct rows, a resample is one multinomial draw of how often each occurs."""
ENUMERATED = 14
"""Up to so many questions that differ, every sign pattern is tried: the test is exact."""
CHUNK = 2_000_000  # random numbers in hand at once


def bootstrap(values: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> list[Interval]:
    """Percentile bootstrap of the means of columns, one resample of questions for all of them.

    For two policies on the same questions, pass their differences: that pairs them.

    Args:
        values: `[Q, K]`: K statistics of Q questions.
        resamples: how many times Q questions are drawn with replacement.
        seed: of the draws; the same seed gives the same intervals.

    Returns:
        K means with their 95 % intervals.

    Raises:
        ValueError: fewer than two questions.
    """
    questions = len(values)
    if questions < 2:
        raise ValueError(f"values: an interval needs at least two questions, got {questions}")
    generator = np.random.default_rng(seed)
    distinct, counts = np.unique(values, axis=0, return_counts=True)
    if len(distinct) <= FEW_ROWS:  # pass@k depends on the count of correct answers alone
        drawn = generator.multinomial(questions, counts / questions, size=resamples)
        means = drawn @ distinct / questions
    else:
        means = _draw(values, resamples, generator)
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    centre = values.mean(axis=0)
    return [
        Interval(float(m), float(a), float(b)) for m, a, b in zip(centre, low, high, strict=True)
    ]


def _draw(values: np.ndarray, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """`[resamples, K]` means of resampled rows."""
    questions, rows = len(values), max(1, CHUNK // len(values))
    means = []
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        picked = generator.integers(0, questions, (size, questions))
        picked += np.arange(size)[:, None] * questions  # one bincount for all resamples in hand
        often = np.bincount(picked.ravel(), minlength=size * questions).reshape(size, questions)
        means.append(often @ values / questions)
    return np.concatenate(means)


def sign_flip_p(differences: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Two-sided paired permutation test of mean difference 0.

    If the two policies were exchangeable on every question, each difference could as well have the
    other sign. p is the share of sign patterns whose mean is at least as far from 0 as the observed
    one: of all patterns where few questions of a column differ, else (1 + b) / (1 + resamples) with
    b of that many random ones.

    Args:
        differences: `[Q, K]`.

    Returns:
        K p-values.
    """
    few = np.count_nonzero(differences, axis=0) <= ENUMERATED
    ps = np.empty(len(few))
    ps[few] = [_exact(column[column != 0]) for column in differences.T[few]]
    if not few.all():
        ps[~few] = _random(differences[:, ~few], resamples, seed)
    return ps


def _exact(moving: np.ndarray) -> float:
    signs, bound = _patterns(len(moving)), _bound(moving)
    return float((np.abs(signs @ moving) >= bound).mean())


@cache
def _patterns(length: int) -> np.ndarray:
    return np.array(list(product((1.0, -1.0), repeat=length)))


def _bound(moving: np.ndarray) -> np.ndarray:
    observed = np.abs(moving.sum(axis=0))
    return np.asarray(observed - 1e-9 * (1 + observed))  # the same numbers in another order


def _random(differences: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """The same signs for all columns."""
    moving = differences[np.any(differences != 0, axis=1)]
    bound = _bound(moving)
    generator = np.random.default_rng(seed)
    extreme = np.zeros(moving.shape[1])
    rows = max(1, CHUNK // len(moving))
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        signs = 2.0 * generator.integers(0, 2, (size, len(moving)), dtype=np.int8) - 1.0
        extreme += (np.abs(signs @ moving) >= bound).sum(axis=0)
    return np.asarray((1 + extreme) / (1 + resamples))
