"""RL-ZVP: groups without variance are shaped by token entropy."""

from __future__ import annotations

import torch
from torch import Tensor

from lens_ref.core._checks import DomainError, require
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
        entropy, tokens = _token_entropy(rollouts, p.valid)
        highest = entropy.masked_fill(~tokens, 0.0).amax(-1, keepdim=True)
        kind = p.kind[..., None, None]
        alphas = torch.zeros_like(kind, dtype=entropy.dtype)
        alphas = alphas.masked_fill((kind == NEGATIVE) | (kind == CORRECT), alpha)
        shift = highest.masked_fill(kind != NEGATIVE, 0.0)
        mixed = standardized(p.rewards, p.valid, ddof, eps).to(entropy.dtype).unsqueeze(-1)
        advantages = (mixed + alphas * (entropy - shift)).masked_fill(~tokens, 0.0)
        return Signal(advantages.to(p.dtype), keep=p.valid, info={"group_kind": p.kind})

    return method


def _token_entropy(rollouts: Rollouts, valid: Tensor) -> tuple[Tensor, Tensor]:
    """`[B, G, T]` entropies, ≥ 0 and at least float32, and which tokens count.

    Raises:
        DomainError: an entropy of a token that counts is negative or not finite.
    """
    entropy = rollouts.entropy
    assert entropy is not None  # the registry has looked
    entropy = entropy.detach()
    if entropy.dtype in (torch.float16, torch.bfloat16):
        entropy = entropy.float()
    tokens = rollouts.response_tokens(entropy.shape[-1]) & valid.unsqueeze(-1)
    possible = (entropy >= -ENTROPY_SLACK) & (entropy < torch.inf)
    rule = "an entropy is finite and at least 0"
    require(possible | ~tokens, entropy, "entropy", rule, DomainError)
    return entropy.clamp(min=0.0), tokens


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
