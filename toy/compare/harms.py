"""Where a signal from negative groups hurts.

Mislabelled   20 % of the questions are always marked wrong. Their logits are N(0, 1), plus 8 on the
              right options: the policy has solved them, and should be left alone.
Shared        20 options with feature vectors; the only right one's is correlated with that of the
              confident wrong one: what pushes the mistake down pushes the answer down with it.
Unsolvable    half of the questions have no right option, and all share their parameters.

The sequence toy, where length and entropy can be exploited, is in `sequences.py`.

Features are N(0, 1/d) with 1/d the variance: under SGD a scale of a half or of two moves GRPO's
accuracy on the solvable half (20 × 50 options, 300 updates) from 0.6 to 0.4 or 0.7, and the
reference has 0.58.

`reference.csv` comes from one set of questions in the first and third setting; here every seed
draws its own. The sets differ: 20 × 50 options after 100 updates of GRPO, the standard deviation is
0.15 between sets and 0.04 between runs on one; 50 × 100 options with d = 128, it is 0.03 for both.
So does what a method gains or loses against GRPO: 20 × 50 options after 100 updates, the
reference's set has the LENS variants behind, the sets here on average none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from toy.compare.cell import TOY_SOURCES
from toy.compare.sequences import SEQUENCE_QUANTITIES, SEQUENCE_TREATMENTS, Sequences
from toy.compare.signal import by_setting
from toy.compare.training import Ascent, Linear, Problem, Tabular, curves, steps_to_target
from toy.compare.treatments import Teacher
from toy.sampled import Report, streams
from toy.spaces import Bools, Floats, Space, accuracy, entropy, many_questions
from toy.tables import long_frame, summarize_curves, summarize_escapes

HARM_TREATMENTS = (
    "grpo",
    "nsr",
    "ngrpo",
    "lens_paper",
    "lens_neg_unscaled",
    "lens_negative_std",
    "lens_no_demean",
    "lens_pooled",
)
QUANTITIES = ("accuracy", "other_accuracy", "entropy")
UNSOLVABLE_QUANTITIES = ("accuracy", "entropy", "unsolvable_entropy")
SOURCES = (*TOY_SOURCES, "toy/compare/harms.py")


def mislabelled_questions(
    generators: list[np.random.Generator], questions: int, options: int = 100, share: float = 0.2
) -> tuple[Space, Bools]:
    """Questions as in `many_questions`, the first `share` of them solved: N(0, 1) plus 8 on the
    right options.

    Returns:
        The space, and `[S, Q]` whether the verifier is right about a question.
    """
    space = many_questions(generators, questions, options)
    solved = round(share * questions)
    logits = space.logits.copy()
    for s, rng in enumerate(generators):
        noise = rng.normal(0.0, 1.0, (solved, options))
        logits[s, :solved] = noise + 8.0 * space.correct[s, :solved]
    trusted = np.ones(logits.shape[:2], dtype=bool)
    trusted[:, :solved] = False
    return Space(logits, space.correct), trusted


@dataclass(frozen=True)
class Mislabelled:
    """True accuracy and entropy on the mislabelled questions, accuracy on the others; a row a seed
    and step."""

    treatment: str
    optimizer: str
    seeds: tuple[int, int]
    questions: int = 50
    updates: int = 800
    part: str = "mislabelled"
    sources: tuple[str, ...] = SOURCES

    @property
    def name(self) -> str:
        return f"{self.treatment} {self.optimizer} {self.questions}x{self.updates}"

    @property
    def cost(self) -> float:
        return 1.6e-4 * self.updates * self.questions

    def run(self, workspace: Path, report: Report) -> pd.DataFrame:
        seeds = range(*self.seeds)
        space, trusted = mislabelled_questions(streams(seeds, "mislabelled"), self.questions)
        bad = ~trusted[0]

        def measure(policy: Floats) -> dict[str, Floats]:
            right = accuracy(policy, space.correct)
            return {
                "accuracy": right[:, bad].mean(-1),
                "other_accuracy": right[:, ~bad].mean(-1),
                "entropy": entropy(policy)[:, bad].mean(-1),
            }

        steps, traces = curves(
            Tabular(space.logits),
            Problem(space.correct, trusted),
            Teacher(self.treatment),
            Ascent(self.optimizer),
            streams(seeds, f"compare/mislabelled/{self.optimizer}"),
            16,
            self.updates,
            40,
            measure,
            report,
        )
        cell = {
            "experiment": "mislabelled",
            "method": self.treatment,
            "setting": "mislabelled",
            "optimizer": self.optimizer,
            "group_size": 16,
        }
        return long_frame(cell, steps, seeds, traces)


def shared_features(
    generators: list[np.random.Generator], correlation: float, options: int = 20, width: int = 40
) -> tuple[Floats, Floats, Bools]:
    """One question a seed: option 0 is right, option 1 is the confident mistake.

    Features are N(0, 1/d) vectors, of length about 1; that of option 0 is ρ times that of option 1
    plus √(1−ρ²) times its own. The biases are log 1000 on the mistake and 1 on the right option.

    Returns:
        Biases `[S, 1, K]`, features `[S, 1, K, d]`, right options `[S, 1, K]`.
    """
    shape = (len(generators), 1, options)
    features = np.stack([rng.normal(0.0, width**-0.5, (1, options, width)) for rng in generators])
    own = np.sqrt(1 - correlation**2)
    features[:, :, 0] = correlation * features[:, :, 1] + own * features[:, :, 0]
    bias, correct = np.zeros(shape), np.zeros(shape, dtype=bool)
    bias[..., 0], bias[..., 1] = 1.0, np.log(1000.0)
    correct[..., 0] = True
    return bias, features, correct


@dataclass(frozen=True)
class SharedFeatures:
    """Updates until the question is solved; a row a seed."""

    treatment: str
    correlation: float
    seeds: tuple[int, int]
    cap: int = 4_000
    part: str = "shared_features"
    sources: tuple[str, ...] = SOURCES

    @property
    def name(self) -> str:
        return f"{self.treatment} rho={self.correlation:g} cap={self.cap}"

    @property
    def cost(self) -> float:
        return 1e-3 * self.cap

    def run(self, workspace: Path, report: Report) -> pd.DataFrame:
        seeds = range(*self.seeds)
        bias, features, correct = shared_features(streams(seeds, "shared"), self.correlation)
        steps, solved = steps_to_target(
            Linear(bias, features),
            Problem(correct),
            Teacher(self.treatment),
            Ascent("sgd"),
            streams(seeds, f"compare/shared/{self.correlation:g}"),
            8,
            self.cap,
            report,
        )
        columns = {
            "experiment": "shared_features",
            "method": self.treatment,
            "setting": f"rho={self.correlation:g}",
            "optimizer": "sgd",
            "p_c": float("nan"),
            "group_size": 8,
            "seed": list(seeds),
            "cap": self.cap,
            "steps": steps,
            "censored": ~solved,
        }
        return pd.DataFrame(columns)


def half_unsolvable(
    generators: list[np.random.Generator], questions: int, options: int, width: int
) -> tuple[Floats, Floats, Bools]:
    """Questions as in `many_questions` with 1 instead of 3 subtracted from the right options; the
    second half has no right option. Features N(0, 1/d) of every question and option.

    Returns:
        Base logits `[S, Q, K]`, features `[S, Q, K, d]`, right options `[S, Q, K]`.
    """
    space = many_questions(generators, questions, options)
    base = space.logits + 2.0 * space.correct
    correct = space.correct.copy()
    correct[:, questions // 2 :] = False
    shape = (questions, options, width)
    features = np.stack([rng.normal(0.0, width**-0.5, shape) for rng in generators])
    return base, features, correct


@dataclass(frozen=True)
class Unsolvable:
    """Accuracy and entropy on the solvable half, entropy on the other; a row a seed and step."""

    treatment: str
    optimizer: str
    width: int  # d
    questions: int
    options: int
    updates: int
    seeds: tuple[int, int]
    part: str = "unsolvable"
    sources: tuple[str, ...] = SOURCES

    @property
    def setting(self) -> str:
        """Its line in the tables."""
        return f"{self.questions}x{self.options} d={self.width}"

    @property
    def name(self) -> str:
        return f"{self.treatment} {self.optimizer} {self.setting} {self.updates}"

    @property
    def cost(self) -> float:
        return 4e-8 * self.updates * self.questions * self.options * (self.width + 20) * 20

    def run(self, workspace: Path, report: Report) -> pd.DataFrame:
        seeds = range(*self.seeds)
        base, features, correct = half_unsolvable(
            streams(seeds, "unsolvable"), self.questions, self.options, self.width
        )
        half = self.questions // 2

        def measure(policy: Floats) -> dict[str, Floats]:
            nats = entropy(policy)
            return {
                "accuracy": accuracy(policy, correct)[:, :half].mean(-1),
                "entropy": nats[:, :half].mean(-1),
                "unsolvable_entropy": nats[:, half:].mean(-1),
            }

        steps, traces = curves(
            Linear(base, features),
            Problem(correct),
            Teacher(self.treatment),
            Ascent(self.optimizer),
            streams(seeds, f"compare/unsolvable/{self.optimizer}"),
            16,
            self.updates,
            20,
            measure,
            report,
        )
        cell = {
            "experiment": "unsolvable",
            "method": self.treatment,
            "setting": self.setting,
            "optimizer": self.optimizer,
            "group_size": 16,
        }
        return long_frame(cell, steps, seeds, traces)


def cells(
    full: bool, seed_base: int
) -> list[Mislabelled | SharedFeatures | Unsolvable | Sequences]:
    """All settings for all methods; short: the mislabelled questions under SGD, few of them."""
    escape, other = (seed_base, seed_base + 24), (seed_base, seed_base + 20)
    if not full:
        few = ("grpo", "lens_paper", "lens_negative_std", "lens_pooled")
        return [Mislabelled(t, "sgd", other, 20, 400) for t in few]
    return [
        *(Mislabelled(t, o, other) for t in HARM_TREATMENTS for o in ("sgd", "adam")),
        *(SharedFeatures(t, c, escape) for t in HARM_TREATMENTS for c in (0.0, 0.5, 0.8, 0.95)),
        *(
            Unsolvable(t, o, d, q, k, n, other)
            for t in HARM_TREATMENTS
            for o, d, q, k, n in (
                ("adam", 32, 50, 100, 400),
                ("adam", 128, 50, 100, 400),
                ("sgd", 128, 20, 50, 300),
            )
        ),
        *(Sequences(t, s, other) for t in SEQUENCE_TREATMENTS for s in (False, True)),
    ]


def summarize(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Means and intervals, a row a cell."""

    def read(quantities: tuple[str, ...], *steps: int):  # type: ignore[no-untyped-def]
        at = dict.fromkeys(("sgd", "adam"), steps)
        return lambda rows: summarize_curves(rows, quantities, at)

    readers = {
        "mislabelled": read(QUANTITIES, 0, 400, 800),
        "shared_features": summarize_escapes,
        "unsolvable": read(UNSOLVABLE_QUANTITIES, 0, 100, 300, 400),
        "sequences": read(SEQUENCE_QUANTITIES, 0, 600, 1500),
    }
    tables = [by_setting(frames[part], r) for part, r in readers.items() if part in frames]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
