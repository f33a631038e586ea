"""What the numbers of logs can be: whatever lies outside was not written by a run."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pandas as pd

from lens_ref.rlvr.evaluation import KS
from lens_ref.rlvr.metrics import REASONS, TIMING

SLACK = 1e-6
"""A mean of ones may exceed 1 by its rounding."""


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`; NaN, an empty cell, is in every range."""

    low: float
    high: float = sys.float_info.max  # so that infinity is none of them
    whole: bool = False

    def __str__(self) -> str:
        kind = "whole number" if self.whole else "finite number"
        return f"a {kind} from {self.low:g}" + (f" to {self.high:g}" if self.high == 1 else "")

    def __contains__(self, value: float) -> bool:
        within = self.low - SLACK <= value <= self.high + SLACK
        return value != value or (within and (not self.whole or value % 1 == 0))

    def outside(self, values: pd.Series) -> pd.Series:
        """Which of them are not in it."""
        return ~values.map(self.__contains__).astype(bool)


SHARE = Range(0, 1)
SIZE = Range(0)
COUNT = Range(0, 999_999_999, whole=True)  # of the digits that a step may have, see `logs.Table`
SEED = Range(0, sys.maxsize, whole=True)
SOME = Range(1, 999_999_999, whole=True)

RANGES = {
    **dict.fromkeys(
        (
            "reward", "negative_share", "mixed_share", "correct_share", "predicted_negative_share",
            "confidence", "clip_fraction", "truncated_share", "neg_truncated",
            *(f"neg_{reason}" for reason in REASONS),
            *(f"pass@{k}" for k in KS),
        ),
        SHARE,
    ),
    **dict.fromkeys(
        (
            "neg_to_mixed_rms", "negative_confidence_spread", "entropy", "logprob_drift",
            "grad_norm", "lr", "mean_length", *TIMING,
        ),
        SIZE,
    ),
    **dict.fromkeys(("step", "correct", "questions", "length"), COUNT),
    **dict.fromkeys(("n", "responses"), SOME),
    "seed": SEED,
}  # fmt: skip
"""By the column of any log. The others (`loss`, `approx_kl`, `mean_ratio`, the α) have no bound."""

AT_MOST = {"correct": ("n", "responses")}
"""A column that no row has more in than in these."""
