"""How fast each method learns: six options from P(correct) = 1e-2 to 1e-4, and 50 questions of 100
options, by SGD and Adam, at its own size and at equal size.

All methods of a column draw from the same streams, seed by seed: what they differ in is not luck.
For the same reason the luck of a column's seeds moves all its methods together, so there are many
of them where they are cheap: the first 24 alone have GRPO solve the easiest question in 51 ± 4
updates of SGD, 384 others in 59 ± 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from toy.compare.cell import TOY_SOURCES
from toy.compare.training import Ascent, Problem, Tabular, curves, steps_to_target
from toy.compare.treatments import STATELESS, Size, Teacher
from toy.sampled import Report, mean_accuracy_and_entropy, streams
from toy.spaces import many_questions, six_options
from toy.tables import long_frame, summarize_curves, summarize_escapes

GROUP_SIZE = 16
ESCAPE_SEEDS, CURVE_SEEDS = 96, 20
SIZES: tuple[Size, ...] = ("published", "equal_size")
CAPS = {("sgd", 1e-2): 2_000, ("sgd", 1e-3): 6_000, ("sgd", 1e-4): 12_000}
ADAM_CAP = 5_000
SOURCES = (*TOY_SOURCES, "toy/compare/signal.py")


@dataclass(frozen=True)
class SixOptions:
    """Updates until one six-option question is solved; a row a seed."""

    treatment: str
    size: Size
    optimizer: str
    p_c: float
    seeds: tuple[int, int]  # first, one past the last
    part: str = "six_options"
    sources: tuple[str, ...] = SOURCES

    @property
    def name(self) -> str:
        return f"{self.treatment} {self.size} {self.optimizer} {self.p_c:g}"

    @property
    def cap(self) -> int:
        """Updates; a seed that needs more is censored there."""
        return CAPS.get((self.optimizer, self.p_c), ADAM_CAP)

    @property
    def cost(self) -> float:
        return 1e-3 * self.cap * (15 if self.treatment == "reinforce_pp" else 1)

    def run(self, workspace: Path, report: Report) -> pd.DataFrame:
        seeds = range(*self.seeds)
        space = six_options(self.p_c, len(seeds))
        # one stream for all methods: they differ in what they make of the same luck
        steps, solved = steps_to_target(
            Tabular(space.logits),
            Problem(space.correct),
            Teacher(self.treatment, self.size),
            Ascent(self.optimizer),
            streams(seeds, f"compare/six/{self.optimizer}/{self.p_c:g}"),
            GROUP_SIZE,
            self.cap,
            report,
        )
        cell = {"method": self.treatment, "setting": self.size, "optimizer": self.optimizer}
        rows = {"p_c": self.p_c, "group_size": GROUP_SIZE, "seed": list(seeds), "cap": self.cap}
        columns = {"experiment": "six_options", **cell, **rows, "steps": steps, "censored": ~solved}
        return pd.DataFrame(columns)


@dataclass(frozen=True)
class ManyQuestions:
    """Accuracy and entropy over many questions of 100 options; a row a seed and step."""

    treatment: str
    size: Size
    optimizer: str
    seeds: tuple[int, int]
    questions: int = 50
    updates: int = 800
    part: str = "many_questions"
    sources: tuple[str, ...] = SOURCES

    @property
    def name(self) -> str:
        return f"{self.treatment} {self.size} {self.optimizer} {self.questions}x{self.updates}"

    @property
    def cost(self) -> float:
        slow = 2.5 if self.treatment == "reinforce_pp" else 1.0
        return 1.1e-4 * self.updates * self.questions * slow

    def run(self, workspace: Path, report: Report) -> pd.DataFrame:
        seeds = range(*self.seeds)
        space = many_questions(streams(seeds, "many_questions"), self.questions)

        steps, traces = curves(
            Tabular(space.logits),
            Problem(space.correct),
            Teacher(self.treatment, self.size),
            Ascent(self.optimizer),
            streams(seeds, f"compare/many/{self.optimizer}"),
            GROUP_SIZE,
            self.updates,
            40,
            mean_accuracy_and_entropy(space.correct),
            report,
        )
        cell = {
            "experiment": f"questions_{self.questions}x100",
            "method": self.treatment,
            "setting": self.size,
            "optimizer": self.optimizer,
            "group_size": GROUP_SIZE,
        }
        return long_frame(cell, steps, seeds, traces)


def cells(full: bool, seed_base: int) -> list[SixOptions | ManyQuestions]:
    """All methods, starts and sizes; short: one start, few questions, Adam."""
    escape, other = (seed_base, seed_base + ESCAPE_SEEDS), (seed_base, seed_base + CURVE_SEEDS)
    if not full:
        return [
            *(SixOptions(t, s, "adam", 1e-3, escape) for t in STATELESS for s in SIZES),
            *(ManyQuestions(t, "published", "adam", other, 8, 400) for t in STATELESS),
        ]
    return [
        SixOptions(treatment, size, optimizer, p_c, escape)
        for treatment in STATELESS
        for size in SIZES
        for optimizer in ("sgd", "adam")
        for p_c in (1e-2, 1e-3, 1e-4)
    ] + [
        ManyQuestions(treatment, size, optimizer, other)
        for treatment in STATELESS
        for size in SIZES
        for optimizer in ("sgd", "adam")
    ]


def summarize(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Means and intervals, a row a cell."""
    tables = []
    if "six_options" in frames:
        tables.append(by_setting(frames["six_options"], summarize_escapes))
    if "many_questions" in frames:
        tables.append(
            by_setting(
                frames["many_questions"],
                lambda rows: summarize_curves(
                    rows, ("accuracy", "entropy"), dict.fromkeys(("sgd", "adam"), (400, 800))
                ),
            )
        )
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def by_setting(
    rows: pd.DataFrame, summarize_rows: Callable[[pd.DataFrame], pd.DataFrame]
) -> pd.DataFrame:
    """Summarize each `setting` on its own, with a column that says which."""
    return pd.concat(
        [
            summarize_rows(part).assign(setting=setting)
            for setting, part in rows.groupby("setting", sort=False)
        ],
        ignore_index=True,
    )
