"""AsymRE: a baseline shifted below the group mean."""

from __future__ import annotations

import math

import torch

from lens_ref.core.groups import Rollouts, Signal, centred
from lens_ref.methods._shared import number, prepare
from lens_ref.methods.registry import Method, MethodSpec, PublishedLoss, register


def asymre(delta_v: float = -0.1) -> Method:
    """A = r − (mean + δV).

    With δV < 0 a negative group gets −δV > 0: every wrong answer is pushed *up*, the opposite of
    all other treatments. The source's objective has no importance ratio; on the first update of a
    batch that makes no difference.

    Args:
        delta_v: δV in units of the 0/1 reward; the source's rewards are ±1, its −0.1 is −0.05 here.
    """
    delta_v = number(delta_v, "delta_v")

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        p = prepare(rollouts)
        return p.signal(centred(p.rewards, p.valid) - delta_v)

    return method


register(
    MethodSpec(
        name="asymre",
        build=asymre,
        summary="rewards minus a baseline δV below the group mean",
        source="arXiv:2506.20520",
        negative_class="all_positive",
        negative_signal="+abs(δV) each: wrong answers are pushed up",
        evidence="restatements by others",
        source_defaults={"delta_v": -0.05},
        loss=PublishedLoss(clip_low=1.0, clip_high=math.inf),
    )
)
