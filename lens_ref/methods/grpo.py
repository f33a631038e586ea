"""Rewards centred in their group: GRPO, Dr. GRPO, RLOO and DAPO.

A negative group gets exactly 0 from the first three and is left out by the fourth: the waste that
LENS is about.
"""

from __future__ import annotations

import torch

from lens_ref.core.groups import Rollouts, Signal, all_equal, centred, standardized
from lens_ref.methods._shared import ddof_and_eps, prepare
from lens_ref.methods.registry import Method, MethodSpec, PublishedLoss, register


def grpo(ddof: int = 0, eps: float = 0.0) -> Method:
    """A = (r − mean) / (std + eps) in each group, 0 where all rewards are equal.

    Args:
        ddof: the std divides by G − ddof; 0 or 1.
        eps: added to the std, ≥ 0.
    """
    ddof, eps = ddof_and_eps(ddof, eps)

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        p = prepare(rollouts)
        return p.signal(standardized(p.rewards, p.valid, ddof, eps))

    return method


def dr_grpo() -> Method:
    """A = r − mean in each group."""

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        p = prepare(rollouts)
        return p.signal(centred(p.rewards, p.valid))

    return method


def rloo() -> Method:
    """A = r − mean of the others = G/(G−1) (r − mean) in each group; 0 at G = 1."""

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        p = prepare(rollouts)
        return p.signal(centred(p.rewards, p.valid, leave_one_out=True))

    return method


def dapo(ddof: int = 0, eps: float = 0.0) -> Method:
    """GRPO's advantage; groups whose rewards are all equal leave the loss and its denominator.

    The other half of dynamic sampling, drawing new groups until the batch is full, needs more
    generation than fixed rollouts have: count it as cost when comparing.

    Args:
        ddof, eps: as in `grpo`.
    """
    ddof, eps = ddof_and_eps(ddof, eps)

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        p = prepare(rollouts)
        uniform = all_equal(p.rewards, p.valid)
        return p.signal(standardized(p.rewards, p.valid, ddof, eps), keep=~uniform & p.valid)

    return method


register(
    MethodSpec(
        name="grpo",
        build=grpo,
        summary="rewards standardised in their group",
        source="arXiv:2402.03300",
        negative_class="zero",
        negative_signal="0",
        evidence="code of verl and TRL",
        source_defaults={"ddof": 1, "eps": 1e-6},
    )
)
register(
    MethodSpec(
        name="dr_grpo",
        build=dr_grpo,
        summary="rewards centred in their group; sums over tokens divided by a constant",
        source="arXiv:2503.20783",
        negative_class="zero",
        negative_signal="0",
        evidence="its authors' code",
        loss=PublishedLoss(aggregation="constant"),
    )
)
register(
    MethodSpec(
        name="rloo",
        build=rloo,
        summary="rewards minus the mean of the other responses",
        source="arXiv:2402.14740",
        negative_class="zero",
        negative_signal="0",
        evidence="code of verl, TRL and OpenRLHF",
    )
)
register(
    MethodSpec(
        name="dapo",
        build=dapo,
        summary="GRPO without the groups whose rewards are all equal",
        source="arXiv:2503.14476",
        negative_class="dropped",
        negative_signal="left out of the loss and of its denominator",
        evidence="code of verl's recipe",
        cost="nothing here; as published, 1.5 to 5 times the sampling, to fill the batch",
        source_defaults={"ddof": 1, "eps": 1e-6},
        loss=PublishedLoss(clip_low=0.2, clip_high=0.28, aggregation="token_mean"),
    )
)
