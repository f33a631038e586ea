"""LENS: wrong answers pay the odds that the policy gave them, in negative groups too.

`lens` estimates the difficulty D from the group alone. `lens_pooled`, an extension of this project,
pools it over the question's past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from lens_ref.core.advantage import LensConfig, lens_advantages
from lens_ref.core.confidence import length_normalized
from lens_ref.core.groups import Rollouts, Signal
from lens_ref.methods._shared import number, prepare, question_numbers
from lens_ref.methods.registry import Method, MethodSpec, State, register


def lens(preset: str = "paper", **fields: Any) -> Method:
    """`lens_advantages` under a preset of `LensConfig`, any field changed where given."""
    config = LensConfig.preset(preset, **fields)

    def method(rollouts: Rollouts) -> Signal:
        return lens_advantages(rollouts, config)

    return method


def lens_pooled(preset: str = "neg_unscaled", **fields: Any) -> Method:
    """LENS with a difficulty pooled over the question's past samples, D̂ = `rollouts.prior`:

        1/D̂ = (c/D₀ + Σ_past r/π̄) / (c + n)

    over the n responses to the question so far; the guard stays on top, D = max(D̂, guard · max π̄).

    Why: 1/D = Σ_o p*(o) ρ(o) with ρ = π^(1−1/|o|), and E[r/π̄] is that sum whatever policy drew the
    response, as long as π̄ is the policy's that drew it. So past samples stay unbiased under a
    moving policy, and c pseudo-samples of mean 1/D₀ shrink the estimate to D₀ until there are real
    ones. Two things follow. With k = 0 correct in *this* group D̂ is what the past says, so D no
    longer jumps to its smallest admissible value when the last correct response drops out. And for
    a question that is never solved D̂ = (1 + n/c) D₀: its odds fall as 1/n, so unsolvable and
    mislabelled questions fade out, as they should, since D = ∞ there.

    Args:
        preset: of `LensConfig`; the default leaves out the 1/G of negative groups, since the
            pooled D scales them itself.
        fields: any field of `LensConfig`; `difficulty_confidence` has no effect.
    """
    config = LensConfig.preset(preset, **fields)

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        rule = "a pooled difficulty is finite and above 0"
        limits = torch.finfo(torch.float64)
        pooled = question_numbers(rollouts, limits.tiny, limits.max, rule, torch.float64)
        return lens_advantages(rollouts, config, pooled.squeeze(-1).log())

    return method


class PooledDifficulty:
    """The state of `lens_pooled`: for every question [n, Σ r/π̄] over its responses so far."""

    def init(self, count: float, d0: float) -> State:
        for name, value in (("count", count), ("d0", d0)):
            if number(value, name, 0.0) == 0:
                raise ValueError(f"{name} = {value!r}: must be above 0")
        return {"count": float(count), "d0": float(d0), "questions": {}}

    def update(self, state: State, rollouts: Rollouts, questions: Sequence[str]) -> State:
        p = prepare(rollouts)
        log_pi = rollouts.logprobs.detach().to(p.rewards.dtype).masked_fill(~p.valid, 0.0)
        log_confidence = length_normalized(log_pi, rollouts.lengths.masked_fill(~p.valid, 1))
        terms = torch.where(p.rewards > 0, p.rewards * (-log_confidence).exp(), 0.0).sum(-1)
        size = p.valid.sum(-1)
        seen = dict(state["questions"])
        for question, n, term in zip(
            questions, size.flatten().tolist(), terms.flatten().tolist(), strict=True
        ):
            if n:
                before_n, before = seen.get(question, (0, 0.0))
                seen[question] = [before_n + n, before + term]
        return {**state, "questions": seen}

    def prior(self, state: State, questions: Sequence[str]) -> Tensor:
        count, mean = state["count"], state["count"] / state["d0"]
        pairs = [state["questions"].get(question, (0, 0.0)) for question in questions]
        return torch.tensor([(count + n) / (mean + s) for n, s in pairs], dtype=torch.float64)

    def hyperparameters(self, state: State, group_size: int) -> dict[str, float]:
        return {}


_NEEDS = ("rewards", "logprobs", "lengths")
_POOLED = LensConfig.preset("neg_unscaled")

register(
    MethodSpec(
        name="lens",
        build=lens,
        summary="calibrated rewards, centred in negative groups at weight α",
        source="arXiv:2510.08696",
        negative_class="zero_sum",
        negative_signal="zero-sum, confident answers down and the others up, each below α/G",
        evidence="the paper",
        needs=_NEEDS,
        defaults={"preset": "paper", **asdict(LensConfig())},
        source_defaults=asdict(LensConfig()),
    )
)
register(
    MethodSpec(
        name="lens_pooled",
        build=lens_pooled,
        summary="LENS with a difficulty pooled over the question's past",
        source="this project",
        negative_class="zero_sum",
        negative_signal="zero-sum, each below α, fading as 1/n on a question never solved",
        evidence="derived here",
        cost="two numbers a question",
        needs=(*_NEEDS, "prior"),
        defaults={"preset": "neg_unscaled", **asdict(_POOLED)},
        memory=PooledDifficulty(),
        state_defaults={"count": 16.0, "d0": 1.0},
    )
)
