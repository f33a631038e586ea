"""Rewards that nobody earned, put into the group's statistics: NGRPO and AVSPO.

A virtual reward above the real ones keeps the std of a negative group from vanishing, and every
wrong answer then lies below the mean: a uniform push down. The virtual rewards' size is inert
where all real rewards are 0, because the std scales with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lens_ref.core.groups import (
    CORRECT,
    NEGATIVE,
    Rollouts,
    Signal,
    all_equal,
    masked_mean,
    standardized,
)
from lens_ref.methods._shared import ddof_and_eps, number, prepare, question_numbers, whole
from lens_ref.methods.registry import Method, MethodSpec, PublishedLoss, State, register

TAU = 0.5  # the collapse rate above which avspo acts, before it has learnt one


def _standardized_with(
    rewards: Tensor, valid: Tensor, virtual: Tensor, counted: Tensor, ddof: int, eps: float
) -> Tensor:
    """`[B, G]`: the real rewards, standardised by the mean and std of real and virtual ones.

    Args:
        virtual, counted: `[B, V]` virtual rewards, and which of them are there.
    """
    everything = torch.cat([rewards, virtual], -1)
    rows = torch.cat([valid, counted & valid.any(-1, keepdim=True)], -1)
    return standardized(everything, rows, ddof, eps)[..., : rewards.shape[-1]]


def ngrpo(n_virtual: int = 1, ddof: int = 0, eps: float = 0.0) -> Method:
    """A = (r − μ′) / (σ′ + eps), mean and std over the group and `n_virtual` rewards of 1.

    A negative group gets −√(n/G) each at ddof 0 (−1/√G at n = 1), −1/√(G+1) at ddof 1 and n = 1. A
    correct group gets 0; the source draws it again.

    Args:
        n_virtual: virtual responses of reward 1, ≥ 0; 0 is GRPO.
        ddof: the std divides by G + n − ddof. The paper prints 0, its code uses 1.
        eps: added to the std, ≥ 0.
    """
    n_virtual = whole(n_virtual, "n_virtual", 0)
    ddof, eps = ddof_and_eps(ddof, eps)

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        p = prepare(rollouts)
        virtual = p.rewards.new_ones((*p.rewards.shape[:-1], n_virtual))
        there = torch.ones_like(virtual, dtype=torch.bool)
        return p.signal(_standardized_with(p.rewards, p.valid, virtual, there, ddof, eps))

    return method


def avspo(acr: float | None = None, tau: float = TAU, anchor: float = 0.1) -> Method:
    """Virtual rewards for collapsed groups, as many as the collapse rate asks for.

    With ACR the share of groups whose rewards are all equal, K = clip(⌈G √ACR⌉, 1, G). A negative
    group is standardised together with anchor·(K−j+1)/K, a correct one with 1 − j/(K+1),
    j = 1 … K, both with the population std. Mixed groups are GRPO's. Nothing is added while
    ACR ≤ τ.

    Args:
        acr: the collapse rate in [0, 1]; skips the gate. None: `rollouts.prior` holds it, a
            running mean over past batches, and the gate is in force.
        tau: τ in [0, 1].
        anchor: the largest virtual reward of a negative group, > 0; inert there (the std scales).
    """
    if acr is not None:
        acr = number(acr, "acr", 0.0, 1.0)
    tau = number(tau, "tau", 0.0, 1.0)
    if number(anchor, "anchor", 0.0, 1.0) == 0:
        raise ValueError(f"anchor = {anchor!r}: must lie in (0, 1]")

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        p = prepare(rollouts)
        rate = _collapse_rate(rollouts, acr, p.rewards)  # [B, 1]
        gate = torch.ones_like(rate, dtype=torch.bool) if acr is not None else rate > tau
        size = p.valid.sum(-1, keepdim=True).to(rate.dtype)
        # the slack keeps ⌈8 · √0.25⌉ at 4 where the root is rounded up
        k = torch.ceil(size * rate.sqrt() - 1e-9).clamp(min=1).minimum(size.clamp(min=1))
        j = torch.arange(1, p.rewards.shape[-1] + 1, device=k.device).to(k.dtype)
        negative = (p.kind == NEGATIVE).unsqueeze(-1)
        correct = (p.kind == CORRECT).unsqueeze(-1)
        virtual = torch.where(negative, anchor * (k - j + 1) / k, 1 - j / (k + 1))
        there = (j <= k) & gate & (negative | correct)
        return p.signal(_standardized_with(p.rewards, p.valid, virtual, there, 0, 0.0))

    return method


def _collapse_rate(rollouts: Rollouts, acr: float | None, like: Tensor) -> Tensor:
    """`[B, 1]`: the collapse rate, given or from the prior.

    Raises:
        ValueError: neither is there. DomainError: outside [0, 1].
    """
    if acr is not None:
        return like.new_full((*like.shape[:-1], 1), acr)
    if rollouts.prior is None:
        raise ValueError(
            "avspo needs rollouts.prior [B] with the running collapse rate, "
            "methods.spec('avspo').prior(state, question_ids), or the hyperparameter acr"
        )
    return question_numbers(rollouts, 0.0, 1.0, "a collapse rate lies in [0, 1]", like.dtype)


class CollapseRate:
    """The state of `avspo`: shares of collapsed groups and mean rewards of the last `window`
    batches, and the threshold, which moves by `step` towards what raised the mean reward."""

    def init(self, window: float, step: float) -> State:
        window, step = whole(window, "window", 1), number(step, "step", 0.0)
        return {"window": window, "step": step, "tau": TAU, "collapsed": [], "rewards": []}

    def update(self, state: State, rollouts: Rollouts, questions: Sequence[str]) -> State:
        p = prepare(rollouts)
        there = p.valid.any(-1)
        if not bool(there.any()):
            return dict(state)
        collapsed = all_equal(p.rewards, p.valid).squeeze(-1)[there].to(p.rewards.dtype).mean()
        reward = float(masked_mean(p.rewards, p.valid).squeeze(-1)[there].mean())
        tau = state["tau"]
        if state["rewards"]:
            change = reward - state["rewards"][-1]
            tau += state["step"] * ((change > 0) - (change < 0))
        keep = slice(-state["window"], None)
        return {
            **state,
            "tau": min(1.0, max(0.0, tau)),
            "collapsed": [*state["collapsed"], float(collapsed)][keep],
            "rewards": [*state["rewards"], reward][keep],
        }

    def prior(self, state: State, questions: Sequence[str]) -> Tensor:
        seen = state["collapsed"]
        rate = math.fsum(seen) / len(seen) if seen else 0.0
        return torch.full((len(questions),), rate, dtype=torch.float64)

    def hyperparameters(self, state: State, group_size: int) -> dict[str, float]:
        return {"tau": state["tau"]}


register(
    MethodSpec(
        name="ngrpo",
        build=ngrpo,
        summary="GRPO with virtual correct responses in the group's mean and std",
        source="arXiv:2509.18851",
        negative_class="all_negative",
        negative_signal="−1/√G each (its code: −1/√(G+1))",
        evidence="its authors' code",
        cost="nothing here; as published, correct groups are sampled again",
        source_defaults={"n_virtual": 1, "ddof": 1, "eps": 1e-6},
        loss=PublishedLoss(clip_low=0.16, clip_high=0.24, aggregation="token_mean"),
    )
)
register(
    MethodSpec(
        name="avspo",
        build=avspo,
        summary="virtual rewards for collapsed groups, more where more groups collapse",
        source="arXiv:2605.21125",
        negative_class="batch_dependent",
        negative_signal="0 while the collapse rate is at most τ, else uniform and negative "
        "(−0.73 at G = 8, rate 0.5)",
        evidence="one restatement by others; window and threshold rule are this project's reading",
        cost="two lists of the last batches",
        source_defaults={"tau": TAU, "anchor": 0.1},
        memory=CollapseRate(),
        state_defaults={"window": 10, "step": 0.01},
    )
)
