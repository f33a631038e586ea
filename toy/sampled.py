"""Sampled training: G options a question and step, advantages from a rule, one ascent step.

The seeds are the leading axis of every array, so that a rule sees all groups in one call. Each seed
draws from a generator of its own: its run is the same whatever other seeds it is batched with.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from toy.flow import TARGET
from toy.rules import Draws, Rule
from toy.spaces import Bools, Floats, Space, accuracy, entropy, log_softmax

CHUNK = 64  # steps of uniforms drawn from a generator at once
Report = Callable[[str], None]  # called now and then with what is going on


def streams(seeds: range, name: str) -> list[np.random.Generator]:
    """One generator a seed; another name gives independent ones."""
    key = zlib.crc32(name.encode())
    return [np.random.default_rng([seed, key]) for seed in seeds]


class Uniforms:
    """Uniform numbers `[S, Q, G]` a step, each seed's from its own generator."""

    def __init__(self, generators: list[np.random.Generator], questions: int, group_size: int):
        self._generators = generators
        self._shape = (CHUNK, questions, group_size)
        self._position = CHUNK
        self._buffer = np.empty((len(generators), *self._shape))

    def next(self) -> Floats:
        """The next step's numbers."""
        if self._position == CHUNK:
            self._buffer = np.stack([rng.random(self._shape) for rng in self._generators])
            self._position = 0
        self._position += 1
        return self._buffer[:, self._position - 1]

    def keep(self, rows: Bools) -> None:
        """Go on with these seeds only. `rows`: `[S]`."""
        self._generators = [g for g, kept in zip(self._generators, rows, strict=True) if kept]
        self._buffer = self._buffer[rows]


class Optimizer(Protocol):
    """Gradient ascent on logits `[S, Q, K]`."""

    def step(self, logits: Floats, gradient: Floats) -> Floats:
        """The next logits."""
        ...

    def keep(self, rows: Bools) -> None:
        """Go on with these seeds only. `rows`: `[S]`."""
        ...


class SGD:
    """z ← z + lr · g."""

    def __init__(self, lr: float = 0.5):
        self.lr = lr

    def step(self, logits: Floats, gradient: Floats) -> Floats:
        return logits + self.lr * gradient

    def keep(self, rows: Bools) -> None:
        pass  # no state


class Adam:
    """Adam, ascending, with bias correction."""

    def __init__(self, lr: float = 0.02, beta1: float = 0.9, beta2: float = 0.999):
        self.lr, self.beta1, self.beta2, self.eps = lr, beta1, beta2, 1e-8
        self._m: Floats | float = 0.0
        self._v: Floats | float = 0.0
        self._t = 0

    def step(self, logits: Floats, gradient: Floats) -> Floats:
        self._t += 1
        self._m = self.beta1 * self._m + (1 - self.beta1) * gradient
        self._v = self.beta2 * self._v + (1 - self.beta2) * gradient**2
        mean = self._m / (1 - self.beta1**self._t)
        spread = np.sqrt(self._v / (1 - self.beta2**self._t))
        return logits + self.lr * mean / (spread + self.eps)

    def keep(self, rows: Bools) -> None:
        if self._t:  # before the first step there are no moments
            self._m, self._v = self._m[rows], self._v[rows]  # type: ignore[index]


OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {"sgd": SGD, "adam": Adam}


def draw(policy: Floats, log_policy: Floats, correct: Bools, uniforms: Floats) -> Draws:
    """Sample options by inversion of the distribution function.

    Args:
        policy, log_policy, correct: `[S, Q, K]`.
        uniforms: `[S, Q, G]` in [0, 1).
    """
    edges = policy.cumsum(-1)[..., None, :-1]
    options = (uniforms[..., None] >= edges).sum(-1)
    log_pi = np.take_along_axis(log_policy, options, -1)
    rewards = np.take_along_axis(correct, options, -1).astype(float)
    return Draws(options, log_pi, rewards, policy)


def policy_gradient(draws: Draws, advantages: Floats) -> Floats:
    """(1/G) Σ_i A_i ∇ log π(o_i) in the logits of each question: s − π Σ s. `[S, Q, K]`."""
    shape, group_size = draws.policy.shape, advantages.shape[-1]
    row = np.arange(advantages.size // group_size).repeat(group_size) * shape[-1]
    flat = row + draws.options.ravel()
    size = int(np.prod(shape))
    s = np.bincount(flat, advantages.ravel(), minlength=size).reshape(shape) / group_size
    return s - draws.policy * s.sum(-1, keepdims=True)


@dataclass(frozen=True)
class Problem:
    """What is right, and what the verifier says."""

    correct: Bools  # [S, Q, K]
    trusted: Bools | None = None  # [S, Q], False where every answer is marked wrong

    def keep(self, rows: Bools) -> Problem:
        """These seeds only. `rows`: `[S]`."""
        trusted = None if self.trusted is None else self.trusted[rows]
        return Problem(self.correct[rows], trusted)


class Learner(Protocol):
    """S policies over Q questions of K options that learn from their own draws."""

    def logits(self) -> Floats:
        """`[S, Q, K]`."""
        ...

    def learn(self, draws: Draws) -> None:
        """One update."""
        ...

    def keep(self, rows: Bools) -> None:
        """Go on with these seeds only. `rows`: `[S]`."""
        ...


def _update(
    learner: Learner, problem: Problem, policy: Floats, log_policy: Floats, uniforms: Floats
) -> None:
    draws = draw(policy, log_policy, problem.correct, uniforms)
    if problem.trusted is not None:
        draws = replace(draws, rewards=draws.rewards * problem.trusted[..., None])
    learner.learn(draws)


@dataclass(frozen=True)
class Escapes:
    """When each seed solved the question."""

    steps: np.ndarray  # [S] int, updates until P(correct) ≥ 0.9; the cap where that never came
    solved: Bools  # [S]


def run_to_target(
    learner: Learner,
    problem: Problem,
    generators: list[np.random.Generator],
    group_size: int,
    cap: int,
    report: Report,
) -> Escapes:
    """Train until the mean P(correct) over a seed's questions reaches 0.9, or to the cap."""
    seeds, questions, _ = problem.correct.shape
    uniforms = Uniforms(generators, questions, group_size)
    steps, active, solved = np.full(seeds, cap), np.arange(seeds), np.ones(seeds, dtype=bool)
    for step in range(cap + 1):
        log_policy = log_softmax(learner.logits())
        policy = np.exp(log_policy)
        running = accuracy(policy, problem.correct).mean(-1) < TARGET
        if not running.all():
            steps[active[~running]] = step
            active, problem = active[running], problem.keep(running)
            policy, log_policy = policy[running], log_policy[running]
            uniforms.keep(running)
            learner.keep(running)
        if step == cap or not len(active):
            break
        if step % 200 == 0:
            report(f"step {step}, {seeds - len(active)}/{seeds} solved")
        _update(learner, problem, policy, log_policy, uniforms.next())
    solved[active] = False
    return Escapes(steps, solved)


Measure = Callable[[Floats], dict[str, Floats]]
"""From the policy `[S, Q, K]` to named numbers `[S]`."""


def run_curves(
    learner: Learner,
    problem: Problem,
    generators: list[np.random.Generator],
    group_size: int,
    updates: int,
    every: int,
    measure: Measure,
    report: Report,
) -> tuple[np.ndarray, dict[str, Floats]]:
    """Train for a number of updates, one group a question and step, measuring every so many.

    Returns:
        `[N]` steps and the measured numbers, each `[N, S]`.
    """
    uniforms = Uniforms(generators, problem.correct.shape[1], group_size)
    steps, trace = [], []
    for step in range(updates + 1):
        log_policy = log_softmax(learner.logits())
        policy = np.exp(log_policy)
        if step % every == 0:
            steps.append(step)
            trace.append(measure(policy))
            report(f"step {step}/{updates}")
        if step == updates:
            break
        _update(learner, problem, policy, log_policy, uniforms.next())
    return np.array(steps), {k: np.stack([point[k] for point in trace]) for k in trace[0]}


class _ByRule:
    """Tabular logits that learn by a rule."""

    def __init__(self, logits: Floats, rule: Rule, optimizer: Optimizer) -> None:
        self._logits, self._rule, self._optimizer = logits, rule, optimizer

    def logits(self) -> Floats:
        return self._logits

    def learn(self, draws: Draws) -> None:
        gradient = policy_gradient(draws, self._rule(draws))
        self._logits = self._optimizer.step(self._logits, gradient)

    def keep(self, rows: Bools) -> None:
        self._logits = self._logits[rows]
        self._optimizer.keep(rows)


def steps_to_target(
    space: Space,
    rule: Rule,
    group_size: int,
    optimizer: Optimizer,
    generators: list[np.random.Generator],
    cap: int,
    report: Report = lambda text: None,
) -> Escapes:
    """Train one question per seed until it is solved or the cap is reached."""
    learner = _ByRule(space.logits, rule, optimizer)
    return run_to_target(learner, Problem(space.correct), generators, group_size, cap, report)


@dataclass(frozen=True)
class Curves:
    """Means over the questions of each seed, every so many updates."""

    steps: np.ndarray  # [N] int
    accuracy: Floats  # [N, S]
    entropy: Floats  # [N, S], nats


def mean_accuracy_and_entropy(correct: Bools) -> Measure:
    """Over the questions of each seed: P(correct), and the entropy in nats."""
    return lambda policy: {
        "accuracy": accuracy(policy, correct).mean(-1),
        "entropy": entropy(policy).mean(-1),
    }


def accuracy_curves(
    space: Space,
    rule: Rule,
    group_size: int,
    optimizer: Optimizer,
    generators: list[np.random.Generator],
    updates: int,
    every: int,
    report: Report = lambda text: None,
) -> Curves:
    """Train all questions for a number of updates, one group a question and step."""
    learner, problem = _ByRule(space.logits, rule, optimizer), Problem(space.correct)
    measure = mean_accuracy_and_entropy(space.correct)
    steps, traces = run_curves(
        learner, problem, generators, group_size, updates, every, measure, report
    )
    return Curves(steps, **traces)
