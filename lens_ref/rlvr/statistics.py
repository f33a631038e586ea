"""Means with 95 % intervals: over test questions by bootstrap, over training seeds by Student's t.

The two answer different questions. Resampling questions says how far the result of *these* runs
could move with other test questions; only several seeds say how far it moves with other runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

RESAMPLES = 10_000
CHUNK = 4_000_000  # random indices drawn at once, 32 MB


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval, in the unit of the values."""

    mean: float
    low: float
    high: float

    @property
    def covers_zero(self) -> bool:
        """Whether no sign can be told."""
        return self.low <= 0.0 <= self.high

    def times(self, factor: float) -> Interval:
        """In another unit: 100 turns shares into percentage points."""
        return Interval(self.mean * factor, self.low * factor, self.high * factor)


def bootstrap_interval(
    values: Sequence[float] | np.ndarray, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Percentile bootstrap of the mean.

    For two runs on the same questions, pass the differences question by question: that pairs them.

    Args:
        values: `[Q]`, one number a question.
        resamples: how many times Q questions are drawn with replacement.
        seed: of the draws; the same seed gives the same interval.

    Raises:
        ValueError: fewer than two values.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size < 2:
        raise ValueError(f"values: an interval needs at least two, got {array.size}")
    generator = np.random.default_rng(seed)
    rows = max(1, CHUNK // array.size)
    means = np.concatenate(
        [
            array[
                generator.integers(0, array.size, (min(rows, resamples - start), array.size))
            ].mean(-1)
            for start in range(0, resamples, rows)
        ]
    )
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(array.mean()), float(low), float(high))


def t_interval(values: Sequence[float] | np.ndarray) -> Interval:
    """Mean ± t · s / √n, with the sample standard deviation s and n − 1 degrees of freedom.

    Raises:
        ValueError: fewer than two values.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size < 2:
        raise ValueError(f"values: an interval needs at least two, got {array.size}")
    mean = float(array.mean())
    half = float(stats.t.ppf(0.975, array.size - 1) * array.std(ddof=1) / np.sqrt(array.size))
    return Interval(mean, mean - half, mean + half)


def moving_average(values: Sequence[float] | np.ndarray, window: int) -> np.ndarray:
    """Mean of each value and up to `window` − 1 before it: nothing from the future."""
    array = np.asarray(values, dtype=np.float64)
    return np.array([array[max(0, i + 1 - window) : i + 1].mean() for i in range(array.size)])
