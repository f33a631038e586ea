"""RL-ZVP: groups without variance are shaped by token entropy."""

from __future__ import annotations

import torch
from torch import Tensor

from lens_ref.core._checks import DomainError, as_float, require
from lens_ref.core.groups import CORRECT, NEGATIVE, Rollouts, Signal, standardized
from lens_ref.methods._shared import ddof_and_eps, number, prepare
from lens_ref.methods.registry import Method, MethodSpec, PublishedLoss, register

ENTROPY_SLACK = 1e-5  # entropies are sums of rounded terms: this far below 0 counts as 0


def rl_zvp(alpha: float = 0.1, ddof: int = 0, eps: float = 0.0) -> Method:
    """Token advantages `[B, G, T]`, with H the entropy of the policy's next-token distribution.

        mixed group      A_{i,t} = GRPO's A_i
        correct group    A_{i,t} = α H_{i,t}
        negative group   A_{i,t} = −α (max_{t'} H_{i,t'} − H_{i,t})

    The maximum runs over the response's own tokens, so that its most uncertain token gets 0 and a
    confident one is pushed down most; a response of one token gets 0.

    Args:
        alpha: α ≥ 0; the source finds 0.1 to 0.2 best.
        ddof, eps: of the mixed groups, as in `grpo`.
    """
    alpha = number(alpha, "alpha", 0.0)
    ddof, eps = ddof_and_eps(ddof, eps)

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        p = prepare(rollouts)
        entropy, other = _token_entropy(rollouts, p.valid)
        kind = p.kind[..., None, None]
        alphas = torch.zeros_like(kind, dtype=entropy.dtype)
        alphas = alphas.masked_fill((kind == NEGATIVE) | (kind == CORRECT), alpha)
        shift = entropy.amax(-1, keepdim=True).masked_fill(kind != NEGATIVE, 0.0)
        mixed = standardized(p.rewards, p.valid, ddof, eps).to(entropy.dtype).unsqueeze(-1)
        advantages = entropy.sub_(shift).mul_(alphas).add_(mixed).masked_fill_(other, 0.0)
        return Signal(advantages.to(p.dtype), keep=p.valid, info={"group_kind": p.kind})

    return method


def _token_entropy(rollouts: Rollouts, valid: Tensor) -> tuple[Tensor, Tensor]:
    """A copy `[B, G, T]` of the entropies, ≥ 0 and at least float32, 0 where no token counts; and
    where that is.

    Raises:
        DomainError: an entropy of a token that counts is negative or not finite.
    """
    assert rollouts.entropy is not None  # the registry has looked
    entropy = as_float(rollouts.entropy.detach(), "entropy")
    width = entropy.shape[-1]
    other = ~(rollouts.response_tokens(width) & valid.unsqueeze(-1))
    counted = entropy.masked_fill(other, 0.0)
    possible = (counted >= -ENTROPY_SLACK) & (counted < torch.inf)
    require(possible, entropy, "entropy", "an entropy is finite and at least 0", DomainError)
    return counted.clamp_(min=0.0), other


register(
    MethodSpec(
        name="rl_zvp",
        build=rl_zvp,
        summary="GRPO; uniform groups are shaped by token entropy",
        source="arXiv:2509.21880",
        negative_class="all_negative",
        negative_signal="−α (max H − H) a token: 0 at the most uncertain token, most where sure",
        evidence="four agreeing restatements by others",
        cost="token entropies over the whole vocabulary",
        level="token",
        needs=("rewards", "entropy"),
        source_defaults={"alpha": 0.1, "ddof": 1, "eps": 1e-6},
        loss=PublishedLoss(aggregation="token_mean"),
    )
)
