"""Training loops over all seeds of a cell: tabular logits, or logits with shared parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from toy.compare.treatments import Teacher
from toy.flow import TARGET
from toy.sampled import Report, Uniforms, draw, policy_gradient
from toy.spaces import Bools, Floats, accuracy, log_softmax


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


@dataclass(frozen=True)
class Problem:
    """What is right, and what the verifier says."""

    correct: Bools  # [S, Q, K]
    trusted: Bools | None = None  # [S, Q], False where every answer is marked wrong

    def keep(self, rows: Bools) -> Problem:
        """These seeds only."""
        trusted = None if self.trusted is None else self.trusted[rows]
        return Problem(self.correct[rows], trusted)


def _update(
    policies: Policies,
    problem: Problem,
    policy: Floats,
    log_policy: Floats,
    teacher: Teacher,
    ascent: Ascent,
    uniforms: Floats,
) -> None:
    draws = draw(policy, log_policy, problem.correct, uniforms)
    if problem.trusted is not None:
        draws = replace(draws, rewards=draws.rewards * problem.trusted[..., None])
    lesson = teacher(draws)
    gradient = policies.pull_back(policy_gradient(draws, lesson.advantages))
    policies.parameters = ascent.step(policies.parameters, gradient, lesson.learns)


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
    seeds, questions, _ = problem.correct.shape
    uniforms = Uniforms(generators, questions, group_size)
    steps, active, solved = np.full(seeds, cap), np.arange(seeds), np.ones(seeds, dtype=bool)
    for step in range(cap + 1):
        log_policy = log_softmax(policies.logits())
        policy = np.exp(log_policy)
        running = accuracy(policy, problem.correct).mean(-1) < TARGET
        if not running.all():
            steps[active[~running]] = step
            active, problem = active[running], problem.keep(running)
            policy, log_policy = policy[running], log_policy[running]
            for part in (policies, uniforms, ascent, teacher):
                part.keep(running)
        if step == cap or not len(active):
            break
        if step % 200 == 0:
            report(f"step {step}, {seeds - len(active)}/{seeds} solved")
        _update(policies, problem, policy, log_policy, teacher, ascent, uniforms.next())
    solved[active] = False
    return steps, solved


Measure = Callable[[Floats], dict[str, Floats]]
"""From the policy `[S, Q, K]` to named numbers `[S]`."""


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
    uniforms = Uniforms(generators, problem.correct.shape[1], group_size)
    steps, trace = [], []
    for step in range(updates + 1):
        log_policy = log_softmax(policies.logits())
        policy = np.exp(log_policy)
        if step % every == 0:
            steps.append(step)
            trace.append(measure(policy))
            report(f"step {step}/{updates}")
        if step == updates:
            break
        _update(policies, problem, policy, log_policy, teacher, ascent, uniforms.next())
    return np.array(steps), {k: np.stack([point[k] for point in trace]) for k in trace[0]}
