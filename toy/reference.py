"""Reference numbers: an independent simulation of the same set-up, with its own code and seeds.

The sampled cells are `reference.csv`, in the columns of a run's `summary.csv`. A blank `ci95` was
not reported; the interval of the run that is compared with it is then taken for both.

The 50 × 100 cells are marked `one_question_set`: their intervals are as narrow as those of runs
that differ in the sampling alone, all on one set of questions, which is not published. A run here
draws new questions for every seed. The difference of the two then also holds how hard that one set
happens to be, and `tables.compare` adds the variance of that.
"""

from __future__ import annotations

from pathlib import Path

SAMPLED = Path(__file__).with_name("reference.csv")

# Flow time to P(correct) = 0.9 from p = 1e-1, 1e-2, 1e-3, 1e-4; None: goes to a wrong answer.
FLOW: dict[str, tuple[float | None, ...]] = {
    "reinforce": (28.9, 90.6, 692, 6693),
    "mle_d1": (22.7, 24.8, 26.8, 28.7),
    "mle_d2": (25.4, 48.5, 258, 2340),
    "mle_d4": (27.1, 66.5, 441, 4179),
    "mle_d_half_unguarded": (None, None, None, None),
    "mle_guarded": (22.2, 43.9, 252, 2333),
    "mle_d1_uniform": (34.4, 34.4, 33.7, 33.1),
    "cross_entropy": (47.2, 46.5, 45.6, 45.8),
}
# Flow time from p = 1e-4 under D = guard · max π.
GUARD: dict[float, float] = {1.01: 49, 1.05: 180, 1.1: 338, 1.5: 1394, 2.0: 2333, 5.0: 4619}
