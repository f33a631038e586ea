"""Means with 95 % intervals: over test questions by bootstrap, over training seeds by Student's t.

The two answer different questions. Resampling questions says how far the result of *these* runs
could move with other test questions; only several seeds say how far it moves with other runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

RESAMPLES = 10_000
SAME = 1e-9  # rounding sets equal values no further apart
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

    def within(self, least: float, most: float) -> Interval:
        """Cut at the ends of what is possible, which Student's interval of a rate may pass; for
        rates alone, intervals of differences stay whole."""
        return Interval(self.mean, max(least, self.low), min(most, self.high))


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


def seeds_interval(values: Sequence[float] | np.ndarray) -> Interval | None:
    """`t_interval` over training seeds; None with fewer than two, or where all gave the same: an
    interval without width would claim a certainty that no few seeds give."""
    array = np.asarray(values, dtype=np.float64)
    return t_interval(array) if array.size > 1 and np.ptp(array) > SAME else None


def paired_power(effect: float, spread: float, n: int) -> float:
    """The chance that a paired two-sided t test at 5 % finds a true mean difference.

    Args:
        effect: the true mean of the n differences.
        spread: their standard deviation, in the same unit.
        n: number of pairs, at least 2.
    """
    # the square of Student's t has an F distribution, noncentral where there is an effect
    bound = stats.f.isf(0.05, 1, n - 1)
    shift = max(n * (effect / spread) ** 2, 1e-12)  # scipy 1.17 gives -.95 for exactly 0
    return float(stats.ncf.sf(bound, 1, n - 1, shift))


def detectable(spread: float, n: int, power: float = 0.8) -> float:
    """The smallest true difference that n pairs find with a chance of `power`; see `paired_power`.

    Raises:
        ValueError: fewer than two pairs, or a spread that is not positive.
    """
    if n < 2 or not spread > 0:
        raise ValueError(f"at least 2 pairs and a positive spread are needed: {n}, {spread}")
    high = 20.0  # in units of the spread: two pairs find 16 of them
    return float(spread * optimize.brentq(lambda d: paired_power(d, 1.0, n) - power, 1e-6, high))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of one family adjusted by Holm's step-down rule, in their order."""
    ranked = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(ranked):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def moving_average(values: Sequence[float] | np.ndarray, window: int) -> np.ndarray:
    """Mean of each value and up to `window` − 1 before it: nothing from the future."""
    array = np.asarray(values, dtype=np.float64)
    return np.array([array[max(0, i + 1 - window) : i + 1].mean() for i in range(array.size)])
