"""The commonest wrong answers to the exercises, by the words that docs/teaching.md has for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lens_ref import resources
from lens_ref.core import value_mle
from notebooks.exercises import checks


def softmax_policy(p_star: Tensor) -> tuple[Tensor, Tensor]:
    return 1 / p_star.sum(-1), p_star.softmax(-1)


def counted(p_star: Tensor) -> tuple[Tensor, Tensor]:
    some = (p_star > 0).double()
    return 1 / some.sum(-1), some / some.sum(-1, keepdim=True)


def standardised(rewards: Tensor, ddof: int) -> Tensor:
    std = rewards.std(-1, keepdim=True, correction=ddof)
    return torch.where(std > 0, (rewards - rewards.mean(-1, keepdim=True)) / std, 0.0)


def penalty(confidence: Tensor, scale: float) -> Tensor:
    d = 2 * confidence.amax(-1, keepdim=True)
    return -scale * confidence / (d - confidence)


def centred(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


def guarded(log_estimate: Tensor, logprobs: Tensor, lengths: Tensor, factor: float = 2) -> Tensor:
    log_guard = (logprobs / lengths).amax(-1) + math.log(factor)
    return torch.where(log_estimate.isinf(), log_guard, torch.maximum(log_estimate, log_guard))


def log_importance(rewards: Tensor, log_pi: Tensor, count: Tensor | None = None) -> Tensor:
    """log D_imp with another count than G where given."""
    terms = (-log_pi).masked_fill(rewards == 0, -math.inf)
    number = torch.full(rewards.shape[:-1], float(rewards.shape[-1])) if count is None else count
    return number.log() - terms.logsumexp(-1)


def exponentiated(rewards: Tensor, logprobs: Tensor, lengths: Tensor) -> Tensor:
    return guarded(-(rewards / logprobs.exp()).mean(-1).log(), logprobs, lengths)


def final_pass_at_1(method: str) -> np.ndarray:
    table = pd.read_csv(resources.find("results", "tiny", "curves.csv"), dtype={"level": str})
    rows = table[(table.level == "all") & (table.method == method)]
    return 100 * rows[rows.step == rows.step.max()].sort_values("seed")["pass@1"].to_numpy()


LENS, GRPO = final_pass_at_1("lens"), final_pass_at_1("grpo")
MEAN, SD, N = (LENS - GRPO).mean(), (LENS - GRPO).std(ddof=1), len(LENS)
T = 2.776  # Student's t, 97.5 %, four degrees of freedom
UNPAIRED = T * math.sqrt((LENS.var(ddof=1) + GRPO.var(ddof=1)) / N)


def task(right: float, graded: bool) -> Callable[[np.random.Generator], checks.Task]:
    """10 questions of 20 options, the right one's logit raised by `right`."""

    def make(rng: np.random.Generator) -> checks.Task:
        correct = np.zeros((10, 20), dtype=bool)
        correct[:, 0] = True
        return checks.Task(
            rng.normal(size=(10, 20)) + right * correct, correct, np.full(10, graded)
        )

    return make


UNIFORM = [1 / 6] * 6
MU = [0.4, 0.1, 0.125, 0.125, 0.125, 0.125]

WRONG: dict[int, dict[str, Any]] = {
    1: {
        "1 − (1−p)^G: counts all-right groups as teaching": lambda p, G: 1 - (1 - p) ** G,
        "(1−p)^G: the share that is silent": lambda p, G: (1 - p) ** G,
        "G p (1−p)^(G−1): exactly one right": lambda p, G: G * p * (1 - p) ** (G - 1),
    },
    2: {
        "`torch.std` as it is, which divides by G − 1": lambda r: standardised(r, 1),
        "NaN for a uniform group": lambda r: centred(r) / r.std(-1, keepdim=True, correction=0),
        "mean and std over the whole batch": lambda r: (r - r.mean()) / r.std(correction=0),
    },
    3: {
        "0, because the loss is 0": lambda a, mask: torch.zeros(mask.shape),
        "+A: the gradient of J, not of the loss": lambda a, mask: (
            a.unsqueeze(-1) * mask / (len(a) * mask.sum(-1, keepdim=True))
        ),
        "−A over all tokens of the batch": lambda a, mask: -a.unsqueeze(-1) * mask / mask.sum(),
    },
    4: {
        "D = Σ p\\*, the inverse forgotten": lambda p: (p.sum(-1), p / p.sum(-1, keepdim=True)),
        "D = one over the number of answers with p\\* > 0": counted,
        "π\\* = softmax of p\\*": softmax_policy,
    },
    5: {
        "the derivative by π, not by log π": lambda r, pi, D: r / pi - (1 - r) / (D - pi),
        "+ in place of −": lambda r, pi, D: r + (1 - r) * pi / (D - pi),
        "−(1−r) π/D: the logarithm's inner term as it stands": lambda r, pi, D: (
            r - (1 - r) * pi / D
        ),
    },
    6: {
        "the odds themselves": lambda z: z / (1 - z),
        "log(1/(1−z))/z, the −1 lost": lambda z: -torch.log1p(-z) / z,
        "z·w: not divided by z": lambda z: -torch.log1p(-z) - z,
    },
    7: {
        "the 1 = Σ π dropped": lambda pi, p, D: (
            D * ((1 - p) * torch.log1p(-pi / D.unsqueeze(-1))).sum(-1)
        ),
        "the factor D dropped": lambda pi, p, D: (
            1 + ((1 - p) * torch.log1p(-pi / D.unsqueeze(-1))).sum(-1)
        ),
        "the definition typed in again": value_mle,
    },
    8: {
        "a uniform μ": (UNIFORM, [0.6, 0.4, 0.0, 0.0, 0.0, 0.0]),
        "π = μ, wrong answers included": (MU, MU),
        "π tilted against μ": (MU, [0.2, 0.8, 0.0, 0.0, 0.0, 0.0]),
    },
    9: {
        "the arithmetic mean of token probabilities": lambda lp, mask: (
            (lp.exp() * mask).sum(-1) / mask.sum(-1)
        ),
        "the probability of the whole response": lambda lp, mask: (lp * mask).sum(-1).exp(),
        "padding counted as tokens": lambda lp, mask: (lp * mask).mean(-1).exp(),
    },
    10: {
        "max π̄ without the 2": lambda r, lp, n: guarded(log_importance(r, lp), lp, n, 1),
        "a mean over the k right answers, not over G": lambda r, lp, n: guarded(
            log_importance(r, lp, r.sum(-1).clamp(min=1)), lp, n
        ),
        "π̄ in D_imp": lambda r, lp, n: guarded(log_importance(r, lp / n), lp, n),
        "exp(log π), which underflows": exponentiated,
    },
    11: {
        "not de-meaned": lambda c: 0.25 * penalty(c, 1 / c.shape[-1]),
        "1/G forgotten": lambda c: 0.25 * centred(penalty(c, 1.0)),
        "divided by the std, as in a mixed group": lambda c: 0.25 * standardised(penalty(c, 1), 0),
    },
    12: {
        "0 at k = 0, as D = ∞ would give": lambda k, G: 1 / ((G / k).clamp(min=2) - 1),
        "k/(G−k), the guard forgotten": lambda k, G: torch.where(k == 0, 1.0, k / (G - k)),
        "the accuracy k/G": lambda k, G: k / G,
    },
    13: {
        "LENS, because it teaches from negative groups": {"lens", "nsr", "ngrpo", "lens no_demean"},
        "LENS with std, because std blows small things up": {
            "lens negative_std",
            "lens no_demean",
            "nsr",
            "ngrpo",
        },
        "NSR alone": {"nsr"},
    },
    14: {
        "κ = 2, as in the paper": (2.0, -1.0),
        "κ = 5: a larger guard as a stronger push": (5.0, -0.25),
        "κ near 1, and −1 still the lowest reward": (1.05, -1.0),
    },
    15: {
        "1.96 in place of Student's t": (MEAN, 1.96 * SD / math.sqrt(N), True),
        "two samples, not pairs": (MEAN, UNPAIRED, False),
        "the standard deviation for the standard error": (MEAN, T * SD, False),
    },
    16: {
        "hard questions, graded rightly": (task(-3.0, True), "negative_std", "sgd"),
        "solved questions, graded rightly": (task(8.0, True), "negative_std", "adam"),
        "as printed with SGD: too quiet to hurt": (task(8.0, False), "paper", "sgd"),
    },
}
