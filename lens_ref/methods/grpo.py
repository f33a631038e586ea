"""GRPO and Dr. GRPO: rewards centred in their group, with and without division by the std.

Both give a negative group exactly 0: the waste that LENS is about.
"""

from __future__ import annotations

import torch

from lens_ref.core._checks import require_positive
from lens_ref.core.groups import Rollouts, Signal, centred, group_kind, standardized, working_copy
from lens_ref.methods.registry import Method, MethodSpec, PublishedLoss, register


def grpo(ddof: int = 0, eps: float = 0.0) -> Method:
    """A = (r − mean) / (std + eps) in each group, 0 where all rewards are equal.

    Args:
        ddof: the std divides by G − ddof; 0 or 1.
        eps: added to the std, ≥ 0.
    """
    if ddof not in (0, 1):
        raise ValueError(f"ddof = {ddof!r}: must be 0 or 1")
    if eps != 0:
        require_positive(eps, "eps")

    def method(rollouts: Rollouts) -> Signal:
        return _centred_rewards(rollouts, divide=True, ddof=ddof, eps=eps)

    return method


def dr_grpo() -> Method:
    """A = r − mean in each group."""

    def method(rollouts: Rollouts) -> Signal:
        return _centred_rewards(rollouts, divide=False)

    return method


@torch.no_grad()
def _centred_rewards(
    rollouts: Rollouts, *, divide: bool, ddof: int = 0, eps: float = 0.0
) -> Signal:
    valid = rollouts.valid_rows()
    rollouts.check(valid)
    rewards, dtype = working_copy(rollouts)
    rewards = rewards.masked_fill(~valid, 0.0)
    advantages = standardized(rewards, valid, ddof, eps) if divide else centred(rewards, valid)
    info = {"group_kind": group_kind(rewards, valid)}
    return Signal(advantages=advantages.to(dtype), keep=valid, info=info)


register(
    MethodSpec(
        name="grpo",
        build=grpo,
        summary="rewards standardised in their group",
        source="arXiv:2402.03300",
        negative_class="zero",
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
        loss=PublishedLoss(aggregation="constant"),
    )
)
