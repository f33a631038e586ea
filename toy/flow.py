"""Exact gradient flow on one question: what infinitely large groups and small steps would do.

The flow in logits is ż = π∘(c − π·c), where c(o) multiplies ∇ log π(o): c = r for REINFORCE and
c = r − (1−r) π/(D−π) for the likelihood objective J_MLE (Theorem 2, semi-gradient). Off-policy from
a uniform sampler it is ż = (c − π Σc)/K.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.integrate import solve_ivp

from lens_ref.core import mle_coefficient
from toy.spaces import Bools, Floats, accuracy, log_softmax, six_options

Coefficient = Callable[[Floats, Bools], Floats]  # log π [K], correct [K] -> c [K]
Difficulty = Callable[[Floats], float]  # π [K] -> D

TARGET = 0.9  # "solved" is P(correct) at or above this
HORIZON = 1e5


@dataclass(frozen=True)
class Objective:
    """One column of the flow table."""

    label: str
    coefficient: Coefficient
    off_policy: bool = False  # answers come from the uniform distribution, not from the policy


@dataclass(frozen=True)
class FlowResult:
    """A flow from its start until P(correct) reaches the target, or the horizon."""

    time: float  # flow time at the target; NaN if it is never reached
    final: float  # P(correct) at the end
    times: Floats  # [N]
    p_correct: Floats  # [N]

    @property
    def outcome(self) -> str:
        """ "solved", "wrong" (P(correct) fell below where it started) or "unfinished"."""
        if np.isfinite(self.time):
            return "solved"
        return "wrong" if self.final < self.p_correct[0] else "unfinished"


def reinforce(log_pi: Floats, correct: Bools) -> Floats:
    """c = r."""
    return correct.astype(float)


def likelihood(difficulty: Difficulty) -> Coefficient:
    """c of Theorem 1 under a D that may depend on the policy; detached, so it is just a number."""

    def coefficient(log_pi: Floats, correct: Bools) -> Floats:
        rewards = torch.from_numpy(correct.astype(float))
        d = difficulty(np.exp(log_pi))
        return mle_coefficient(torch.from_numpy(log_pi), rewards, d).numpy()

    return coefficient


def unguarded_half(log_pi: Floats, correct: Bools) -> Floats:
    """c with the true D = 1/2 and no guard. The library refuses π ≥ D; here one sees why: a wrong
    answer beyond the pole is *rewarded*."""
    pi = np.exp(log_pi)
    return np.where(correct, 1.0, -pi / (0.5 - pi))


def guarded(guard: float, at_least: float = 0.0) -> Difficulty:
    """D = max(at_least, guard · max π)."""
    return lambda policy: max(at_least, guard * float(policy.max()))


def constant(d: float) -> Difficulty:
    """The same D throughout."""
    return lambda policy: d


OBJECTIVES: dict[str, Objective] = {
    "reinforce": Objective("REINFORCE", reinforce),
    "mle_d1": Objective("MLE, D=1", likelihood(constant(1.0))),
    "mle_d2": Objective("MLE, D=2", likelihood(constant(2.0))),
    "mle_d4": Objective("MLE, D=4", likelihood(constant(4.0))),
    "mle_d_half_unguarded": Objective("MLE, true D=½, no guard", unguarded_half),
    "mle_guarded": Objective("MLE, D=max(½, 2 max π)", likelihood(guarded(2.0, at_least=0.5))),
    "mle_d1_uniform": Objective("MLE, D=1, uniform sampler", likelihood(constant(1.0)), True),
    "cross_entropy": Objective("cross-entropy on positives", reinforce, True),
}
GUARDS = (1.01, 1.05, 1.1, 1.5, 2.0, 5.0)


def guard_objective(guard: float) -> Objective:
    """J_MLE with D = guard · max π: the guard as a hyperparameter."""
    return Objective(f"MLE, D={guard:g} max π", likelihood(guarded(guard)))


def velocity(objective: Objective, logits: Floats, correct: Bools) -> Floats:
    """ż of one question, `[K]`."""
    log_pi = log_softmax(logits)
    pi = np.exp(log_pi)
    c = objective.coefficient(log_pi, correct)
    weighted = c / len(c) if objective.off_policy else pi * c
    return weighted - pi * weighted.sum()


def escape(objective: Objective, p_correct: float, horizon: float = HORIZON) -> FlowResult:
    """The flow on six options from P(correct) = p until it reaches 0.9.

    Returns:
        Times are flow time (one unit = one update of learning rate 1 on the exact gradient).
    """
    space = six_options(p_correct)
    start, correct = space.logits[0, 0], space.correct[0, 0]

    def right_side(_t: float, logits: Floats) -> Floats:
        return velocity(objective, logits, correct)

    def reached(_t: float, logits: Floats) -> float:
        return float(accuracy(np.exp(log_softmax(logits)), correct)) - TARGET

    reached.terminal = True  # type: ignore[attr-defined]
    solution = solve_ivp(
        right_side, (0.0, horizon), start, method="LSODA", rtol=1e-8, atol=1e-10, events=reached
    )
    p = accuracy(np.exp(log_softmax(solution.y.T)), correct)
    crossed = solution.t_events[0]
    time = float(crossed[0]) if len(crossed) else float("nan")
    return FlowResult(time, float(p[-1]), solution.t, p)
