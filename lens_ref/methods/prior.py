"""Baselines that remember: EBPO shrinks the group mean towards a running mean over all questions,
SPO takes a running estimate of each question alone.

    A = r − ((1−S) mean_group + S prior)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lens_ref.core.groups import Rollouts, Signal, masked_mean
from lens_ref.methods._shared import ddof_and_eps, number, prepare, question_numbers, whitened
from lens_ref.methods.registry import Method, MethodSpec, PublishedLoss, State, register

_RULE = "a running mean of rewards lies in [0, 1]"


def _method(strength: float, whiten: bool, ddof: int, eps: float) -> Method:
    if not isinstance(whiten, bool):
        raise ValueError(f"whiten = {whiten!r}: must be true or false")
    strength = number(strength, "strength", 0.0, 1.0)
    ddof, eps = ddof_and_eps(ddof, eps)

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        p = prepare(rollouts)
        prior = question_numbers(rollouts, 0.0, 1.0, _RULE, p.rewards.dtype)
        # in this order a strength of 0 or 1 leaves no rounding behind
        own = (1 - strength) * (p.rewards - masked_mean(p.rewards, p.valid))
        advantages = own + strength * (p.rewards - prior)
        return p.signal(whitened(advantages, p.valid, None, ddof, eps) if whiten else advantages)

    return method


def ebpo(strength: float = 0.5, whiten: bool = False, ddof: int = 0, eps: float = 0.0) -> Method:
    """A = r − ((1−S) mean + S μ), μ = `rollouts.prior`, the running mean over all questions.

    A negative group gets −S μ each: nothing where no question was ever solved.

    Args:
        strength: S in [0, 1]. The state's variances give S = (σ²/G) / (σ²/G + τ²), σ² the mean
            variance inside a group and τ² the variance of the group means
            (`state_hyperparameters`; the train command uses it where `strength` is left open).
        whiten: then standardise over the whole batch, as the source does.
        ddof, eps: of that standard deviation.
    """
    return _method(strength, whiten, ddof, eps)


def spo(whiten: bool = True, ddof: int = 0, eps: float = 0.0) -> Method:
    """A = r − p̂, p̂ = `rollouts.prior`, a running success rate of the question; then standardised
    over the batch.

    A negative group gets −p̂, shifted by the batch: a question that is known to be hard can get a
    positive advantage for a wrong answer. Apart from the whitening it is `ebpo` at strength 1.

    Args:
        whiten: standardise over the whole batch, as the source does.
        ddof, eps: of that standard deviation.
    """
    return _method(1.0, whiten, ddof, eps)


class RunningMeans:
    """The state of `ebpo`: Welford's running mean and spread of the group means, and the running
    mean of the variance inside a group (dividing by G − 1)."""

    def init(self) -> State:
        return {"groups": 0, "mean": 0.0, "squares": 0.0, "within_groups": 0, "within": 0.0}

    def update(self, state: State, rollouts: Rollouts, questions: Sequence[str]) -> State:
        p = prepare(rollouts)
        size = p.valid.sum(-1)
        means = masked_mean(p.rewards, p.valid)
        squares = (p.rewards - means).square().masked_fill(~p.valid, 0.0).sum(-1)
        new = {**state}
        for mean, square, n in zip(
            means.flatten().tolist(),
            squares.flatten().tolist(),
            size.flatten().tolist(),
            strict=True,
        ):
            if n == 0:
                continue
            new["groups"] += 1
            change = mean - new["mean"]
            new["mean"] += change / new["groups"]
            new["squares"] += change * (mean - new["mean"])
            if n > 1:
                new["within_groups"] += 1
                new["within"] += (square / (n - 1) - new["within"]) / new["within_groups"]
        return new

    def prior(self, state: State, questions: Sequence[str]) -> Tensor:
        mean = min(1.0, max(0.0, state["mean"]))  # rounding
        return torch.full((len(questions),), mean, dtype=torch.float64)

    def hyperparameters(self, state: State, group_size: int) -> dict[str, float]:
        if state["groups"] < 2 or not state["within_groups"]:
            return {}
        noise = state["within"] / group_size
        between = state["squares"] / (state["groups"] - 1)
        return {"strength": noise / (noise + between)} if noise + between > 0 else {}


class BetaTracker:
    """The state of `spo`: p̂ = a/(a+b) for every question.

    After a visit with s correct of G, a ← ρa + s and b ← ρb + G − s. The source draws one response
    a visit and takes ρ = clip(2^(−drift/0.06), 0.875, 0.96) from how far the policy moved on the
    question's last response, which rollouts don't hold: here ρ is a setting. A question starts with
    `weight` pseudo-observations of mean `start`; the source draws eight responses for that.
    """

    def init(self, rho: float, weight: float, start: float) -> State:
        rho, start = number(rho, "rho", 0.0, 1.0), number(start, "start", 0.0, 1.0)
        if number(weight, "weight", 0.0) == 0:
            raise ValueError(f"weight = {weight!r}: must be above 0")
        a, b = weight * start, weight * (1 - start)
        return {"rho": rho, "first": [a, b], "questions": {}}

    def update(self, state: State, rollouts: Rollouts, questions: Sequence[str]) -> State:
        p = prepare(rollouts)
        correct = p.rewards.sum(-1).flatten().tolist()
        size = p.valid.sum(-1).flatten().tolist()
        seen: dict[str, list[float]] = dict(state["questions"])
        for question, s, n in zip(questions, correct, size, strict=True):
            if n:
                a, b = seen[question] if question in seen else state["first"]
                seen[question] = [state["rho"] * a + s, state["rho"] * b + n - s]
        return {**state, "questions": seen}

    def prior(self, state: State, questions: Sequence[str]) -> Tensor:
        pairs = [state["questions"].get(q, state["first"]) for q in questions]
        return torch.tensor([a / (a + b) for a, b in pairs], dtype=torch.float64)

    def hyperparameters(self, state: State, group_size: int) -> dict[str, float]:
        return {}


register(
    MethodSpec(
        name="ebpo",
        build=ebpo,
        summary="group mean shrunk towards a running mean over all questions",
        source="arXiv:2602.05165",
        negative_class="batch_dependent",
        negative_signal="−S μ each; 0 while nothing was ever solved",
        evidence="the paper",
        cost="five numbers",
        needs=("rewards", "prior"),
        source_defaults={"whiten": True},
        memory=RunningMeans(),
    )
)
register(
    MethodSpec(
        name="spo",
        build=spo,
        summary="a running success rate of each question as baseline, whitened over the batch",
        source="arXiv:2509.13232",
        negative_class="batch_dependent",
        negative_signal="−p̂ less the batch mean: positive on questions known to be hard",
        evidence="its authors' code",
        cost="two numbers a question; as published, eight responses a question beforehand",
        needs=("rewards", "prior"),
        source_defaults={"whiten": True, "eps": 1e-8},
        loss=PublishedLoss(clip_low=0.2, clip_high=0.28),
        memory=BetaTracker(),
        state_defaults={"rho": 0.875, "weight": 8.0, "start": 0.5},
    )
)
