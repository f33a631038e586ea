"""What a sampled group teaches: advantage rules over draws from an option space.

GRPO and LENS are the library's own (`lens_ref.methods`), called on responses of length 1 whose
log-probability is log π(option). REINFORCE and the likelihood objective with a *given* D need no
group statistics; they are the exact objective, sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lens_ref import methods
from lens_ref.core import Rollouts, mle_coefficient
from toy.spaces import Floats


@dataclass(frozen=True)
class Draws:
    """G sampled options of each question."""

    options: np.ndarray  # [S, Q, G] int, index of the option drawn
    log_pi: Floats  # [S, Q, G], nats
    rewards: Floats  # [S, Q, G], 0 or 1
    policy: Floats  # [S, Q, K], the π that was sampled from


Rule = Callable[[Draws], Floats]  # -> advantages [S, Q, G]


@dataclass(frozen=True)
class NamedRule:
    """A row of the sampled tables."""

    label: str
    rule: Rule


def from_library(name: str, **hyperparameters: Any) -> Rule:
    """A method of `lens_ref.methods` that treats every group on its own, so that all seeds and
    questions can go through one call. Rows it leaves out (`keep` False) get advantage 0."""
    method = methods.get(name, **hyperparameters)

    def rule(draws: Draws) -> Floats:
        shape = draws.rewards.shape
        rewards = torch.from_numpy(draws.rewards).reshape(-1, shape[-1])
        rollouts = Rollouts(
            rewards=rewards,
            logprobs=torch.from_numpy(draws.log_pi).reshape_as(rewards),
            lengths=torch.ones_like(rewards),
        )
        signal = method(rollouts)
        return signal.advantages.where(signal.keep, 0.0).reshape(shape).numpy()

    return rule


def reinforce(draws: Draws) -> Floats:
    """A = r: no baseline."""
    return draws.rewards


def likelihood(difficulty: float, floor: float = -np.inf) -> Rule:
    """A = r − (1−r) π/(D−π) of Theorem 1 under a constant D, not below `floor`."""

    def rule(draws: Draws) -> Floats:
        log_pi, rewards = torch.from_numpy(draws.log_pi), torch.from_numpy(draws.rewards)
        return np.maximum(mle_coefficient(log_pi, rewards, difficulty).numpy(), floor)

    return rule


def likelihood_guarded(draws: Draws) -> Floats:
    """A of Theorem 1 under D = max(1/2, 2 max π), the maximum over all options."""
    d = np.maximum(0.5, 2.0 * draws.policy.max(-1, keepdims=True))
    log_pi, rewards = torch.from_numpy(draws.log_pi), torch.from_numpy(draws.rewards)
    d_each = torch.from_numpy(np.broadcast_to(d, draws.log_pi.shape).copy())
    return mle_coefficient(log_pi, rewards, d_each).numpy()


def likelihood_unguarded_half(draws: Draws) -> Floats:
    """The same formula with the true D = 1/2 beyond its pole, where the library would raise: a
    confident wrong answer is rewarded."""
    pi = np.exp(draws.log_pi)
    return np.where(draws.rewards == 1, 1.0, -pi / (0.5 - pi))


def demeaned(rule: Rule) -> Rule:
    """A minus its group mean."""

    def centred(draws: Draws) -> Floats:
        advantages = rule(draws)
        return advantages - advantages.mean(-1, keepdims=True)

    return centred


RULES: dict[str, NamedRule] = {
    "reinforce": NamedRule("REINFORCE", reinforce),
    "grpo": NamedRule("GRPO", from_library("grpo")),
    "mle_d_half_unguarded": NamedRule("MLE, true D=½, no guard", likelihood_unguarded_half),
    "mle_guarded": NamedRule("MLE, D=max(½, 2 max π)", likelihood_guarded),
    "mle_d1_clipped": NamedRule("MLE, D=1, A ≥ −5", likelihood(1.0, floor=-5.0)),
    "mle_d2": NamedRule("MLE, D=2", likelihood(2.0)),
    "mle_d2_demeaned": NamedRule("MLE, D=2, de-meaned", demeaned(likelihood(2.0))),
    "lens_paper": NamedRule("LENS, paper", from_library("lens", preset="paper")),
    "lens_neg_unscaled": NamedRule(
        "LENS, neg_unscaled", from_library("lens", preset="neg_unscaled")
    ),
    "lens_negative_std": NamedRule(
        "LENS, negative_std", from_library("lens", preset="negative_std")
    ),
    "lens_no_demean": NamedRule("LENS, no_demean", from_library("lens", preset="no_demean")),
}
