"""What learns in a cell: tabular logits, or logits with shared parameters, under a teacher."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from toy.compare.treatments import Teacher
from toy.rules import Draws
from toy.sampled import (
    Measure,
    Problem,
    Report,
    policy_gradient,
    run_curves,
    run_to_target,
)
from toy.spaces import Bools, Floats


class Policies(Protocol):
    """S policies over Q questions of K options, as functions of their parameters."""

    parameters: Floats  # [S, …]

    def logits(self) -> Floats:
        """`[S, Q, K]`."""

    def pull_back(self, gradient: Floats) -> Floats:
        """From the gradient in the logits `[S, Q, K]` to that in the parameters."""

    def keep(self, rows: Bools) -> None:
        """Go on with these seeds only. `rows`: `[S]`."""


class Tabular:
    """Every logit is a parameter."""

    def __init__(self, logits: Floats) -> None:
        self.parameters = logits

    def logits(self) -> Floats:
        return self.parameters

    def pull_back(self, gradient: Floats) -> Floats:
        return gradient

    def keep(self, rows: Bools) -> None:
        self.parameters = self.parameters[rows]


class Linear:
    """logits = base + features · θ, θ from 0: questions and options share their parameters."""

    def __init__(self, base: Floats, features: Floats) -> None:
        """`base`: `[S, Q, K]`; `features`: `[S, Q, K, d]`."""
        self._base, self._features = base, features
        self.parameters = np.zeros((len(base), features.shape[-1]))

    def logits(self) -> Floats:
        flat = self._features.reshape(len(self._base), -1, self.parameters.shape[1])
        moved = np.matmul(flat, self.parameters[..., None])
        return self._base + moved.reshape(self._base.shape)

    def pull_back(self, gradient: Floats) -> Floats:
        flat = self._features.reshape(len(self._base), -1, self.parameters.shape[1])
        return np.matmul(gradient.reshape(len(gradient), 1, -1), flat)[:, 0]

    def keep(self, rows: Bools) -> None:
        self._base, self._features = self._base[rows], self._features[rows]
        self.parameters = self.parameters[rows]


class Ascent:
    """Gradient ascent on all seeds at once, SGD or Adam; a seed that learns nothing in a step is
    passed over, moments and step counter included."""

    def __init__(self, optimizer: str, lr: float | None = None) -> None:
        self._adam = optimizer == "adam"
        self._lr = lr if lr is not None else (0.02 if self._adam else 0.5)
        self._m = self._v = self._t = np.zeros(1)

    def step(self, parameters: Floats, gradient: Floats, learns: Bools) -> Floats:
        """The next parameters. `parameters`, `gradient`: `[S, …]`; `learns`: `[S]`."""
        rows = learns.reshape(-1, *[1] * (parameters.ndim - 1))
        if not self._adam:
            return parameters + np.where(rows, self._lr * gradient, 0.0)
        if self._m.shape != parameters.shape:
            self._m, self._v, self._t = (np.zeros(s) for s in (*[parameters.shape] * 2, rows.shape))
        self._t = self._t + rows
        self._m = np.where(rows, 0.9 * self._m + 0.1 * gradient, self._m)
        self._v = np.where(rows, 0.999 * self._v + 0.001 * gradient**2, self._v)
        t = np.maximum(self._t, 1)
        mean, spread = self._m / (1 - 0.9**t), np.sqrt(self._v / (1 - 0.999**t))
        return parameters + np.where(rows, self._lr * mean / (spread + 1e-8), 0.0)

    def keep(self, rows: Bools) -> None:
        """Go on with these seeds only."""
        if self._adam and len(self._m) == len(rows):
            self._m, self._v, self._t = self._m[rows], self._v[rows], self._t[rows]


class _ByTeacher:
    """Policies that learn what a teacher makes of their draws."""

    def __init__(self, policies: Policies, teacher: Teacher, ascent: Ascent) -> None:
        self._policies, self._teacher, self._ascent = policies, teacher, ascent

    def logits(self) -> Floats:
        return self._policies.logits()

    def learn(self, draws: Draws) -> None:
        lesson = self._teacher(draws)
        gradient = self._policies.pull_back(policy_gradient(draws, lesson.advantages))
        self._policies.parameters = self._ascent.step(
            self._policies.parameters, gradient, lesson.learns
        )

    def keep(self, rows: Bools) -> None:
        for part in (self._policies, self._ascent, self._teacher):
            part.keep(rows)


def steps_to_target(
    policies: Policies,
    problem: Problem,
    teacher: Teacher,
    ascent: Ascent,
    generators: list[np.random.Generator],
    group_size: int,
    cap: int,
    report: Report,
) -> tuple[np.ndarray, Bools]:
    """Updates until the mean P(correct) over a seed's questions reaches 0.9.

    Returns:
        `[S]` steps, the cap where that never came, and `[S]` solved.
    """
    learner = _ByTeacher(policies, teacher, ascent)
    found = run_to_target(learner, problem, generators, group_size, cap, report)
    return found.steps, found.solved


def curves(
    policies: Policies,
    problem: Problem,
    teacher: Teacher,
    ascent: Ascent,
    generators: list[np.random.Generator],
    group_size: int,
    updates: int,
    every: int,
    measure: Measure,
    report: Report,
) -> tuple[np.ndarray, dict[str, Floats]]:
    """Train for a number of updates, measuring every so many.

    Returns:
        `[N]` steps and the measured numbers, each `[N, S]`.
    """
    learner = _ByTeacher(policies, teacher, ascent)
    return run_curves(learner, problem, generators, group_size, updates, every, measure, report)
