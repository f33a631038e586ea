"""Right and wrong answers weighted apart, without a group statistic: PSR, NSR, W-REINFORCE.

A negative group is treated like any other wrong answer: −1 for everybody, which pushes the whole
set down, confident or not.
"""

from __future__ import annotations

import torch

from lens_ref.core.groups import Rollouts, Signal
from lens_ref.methods._shared import number, prepare
from lens_ref.methods.registry import Method, MethodSpec, PublishedLoss, register

_SOURCE = "arXiv:2506.01347"
_EVIDENCE = "its authors' code"
_LOSS = PublishedLoss(aggregation="token_mean")


def psr() -> Method:
    """A = r; responses of reward 0 leave the loss and its denominator."""

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        p = prepare(rollouts)
        return p.signal(p.rewards, keep=p.rewards > 0)

    return method


def nsr() -> Method:
    """A = r − 1; responses of reward 1 leave the loss and its denominator."""

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        p = prepare(rollouts)
        return p.signal(p.rewards - 1, keep=p.rewards < 1)

    return method


def w_reinforce(lam: float = 0.1) -> Method:
    """A = λ r − (1−r): λ for a correct answer, −1 for a wrong one.

    Args:
        lam: λ ≥ 0. At 0 the advantages are those of `nsr`, but correct answers stay counted.
    """
    lam = number(lam, "lam", 0.0)

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        p = prepare(rollouts)
        return p.signal(lam * p.rewards - (1 - p.rewards))

    return method


register(
    MethodSpec(
        name="psr",
        build=psr,
        summary="right answers only, weight 1",
        source=_SOURCE,
        negative_class="dropped",
        negative_signal="left out of the loss and of its denominator",
        evidence=_EVIDENCE,
        loss=_LOSS,
    )
)
register(
    MethodSpec(
        name="nsr",
        build=nsr,
        summary="wrong answers only, weight −1",
        source=_SOURCE,
        negative_class="all_negative",
        negative_signal="−1 each",
        evidence=_EVIDENCE,
        loss=_LOSS,
    )
)
register(
    MethodSpec(
        name="w_reinforce",
        build=w_reinforce,
        summary="λ for right answers, −1 for wrong ones",
        source=_SOURCE,
        negative_class="all_negative",
        negative_signal="−1 each",
        evidence=_EVIDENCE,
        source_defaults={"lam": 0.1},
        loss=_LOSS,
    )
)
