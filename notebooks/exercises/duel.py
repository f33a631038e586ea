"""LENS against GRPO on a task of your own: for the exercise that looks for harm.

Questions with logits of their own, G = 16, one group a question and update, 200 updates. Every seed
draws a new task; both methods start from the same logits and use the same random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lens_ref import LensConfig
from lens_ref.rlvr.statistics import Interval, t_interval
from toy.compare.training import Ascent, Tabular, curves
from toy.compare.treatments import TREATMENTS, Teacher
from toy.sampled import Problem, streams
from toy.spaces import Bools, Floats, accuracy

SEEDS, GROUP_SIZE, UPDATES = 8, 16, 200
MOST_QUESTIONS, MOST_OPTIONS = 20, 100
PRESETS = tuple(p for p in LensConfig.presets() if f"lens_{p}" in TREATMENTS)
OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True)
class Task:
    """Q questions of K options each.

    Raises:
        ValueError: shapes that do not line up, a task too large for a classroom, logits that are
            not finite.
    """

    logits: Floats  # [Q, K], the policy's first logits
    correct: Bools  # [Q, K], which options are right
    graded: Bools  # [Q]; where False, the verifier says "wrong" whatever the answer

    def __post_init__(self) -> None:
        logits, correct = np.asarray(self.logits, float), np.asarray(self.correct, bool)
        graded = np.asarray(self.graded, bool)
        if logits.ndim != 2 or correct.shape != logits.shape or graded.shape != logits.shape[:1]:
            shapes = f"{logits.shape}, {correct.shape}, {graded.shape}"
            raise ValueError(
                f"logits, correct, graded are {shapes}: [Q, K], [Q, K], [Q] are needed"
            )
        if logits.shape[0] > MOST_QUESTIONS or logits.shape[1] > MOST_OPTIONS:
            raise ValueError(
                f"at most {MOST_QUESTIONS} questions of {MOST_OPTIONS} options, please"
            )
        if not np.isfinite(logits).all():
            raise ValueError("a logit is not finite")
        for name, value in (("logits", logits), ("correct", correct), ("graded", graded)):
            object.__setattr__(self, name, value)


def duel(
    task: Callable[[np.random.Generator], Task], preset: str = "paper", optimizer: str = "sgd"
) -> Interval:
    """The true accuracy after training, LENS minus GRPO: mean and 95 % interval over 8 seeds.

    Args:
        task: from a random generator to a task; called once a seed.
        preset: a reading of LENS, one of `duel.PRESETS`.
        optimizer: "sgd" (learning rate 0.5) or "adam" (0.02).

    Raises:
        ValueError: an unknown preset or optimizer; something else than a `Task`; tasks of
            different shapes.
    """
    if preset not in PRESETS:
        raise ValueError(f"preset = {preset!r}: one of {', '.join(PRESETS)}")
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer = {optimizer!r}: sgd or adam")
    tasks = [task(rng) for rng in streams(range(SEEDS), "duel/tasks")]
    if not all(isinstance(t, Task) for t in tasks):
        raise ValueError("the function must return a Task(logits, correct, graded)")
    if len({t.logits.shape for t in tasks}) > 1:
        raise ValueError("the task must have the same shape for every generator")
    logits = np.stack([t.logits for t in tasks])
    problem = Problem(np.stack([t.correct for t in tasks]), np.stack([t.graded for t in tasks]))

    def final(treatment: str) -> Floats:
        _, traces = curves(
            Tabular(logits.copy()),
            problem,
            Teacher(treatment),
            Ascent(optimizer),
            streams(range(SEEDS), "duel/draws"),
            GROUP_SIZE,
            UPDATES,
            UPDATES,
            lambda policy: {"accuracy": accuracy(policy, problem.correct).mean(-1)},
            lambda text: None,
        )
        return traces["accuracy"][-1]

    return t_interval(final(f"lens_{preset}") - final("grpo"))
