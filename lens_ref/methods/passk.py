"""Pass@k training: the group is rewarded for its best of k."""

from __future__ import annotations

import torch
from torch import Tensor

from lens_ref.core._checks import DomainError, require
from lens_ref.core.groups import Rollouts, Signal
from lens_ref.methods._shared import prepare, whole
from lens_ref.methods.registry import Method, MethodSpec, register


def passk(k: int = 4) -> Method:
    """The advantage of pass@k over random subsets of k of the group's G responses, c correct.

        R  = 1 − C(G−c, k) / C(G, k),   s = √(R (1−R))
        A₊ = (1 − R) / s
        A₋ = (1 − R − C(G−c−1, k−1) / C(G−1, k−1)) / s

    k = 1 is GRPO with the population std. A negative group gets 0, as does every group in which
    each subset holds a correct response, or that has fewer than k responses.

    Args:
        k: ≥ 1.
    """
    k = whole(k, "k", 1)

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        p = prepare(rollouts)
        binary = (p.rewards == 0) | (p.rewards == 1)
        require(binary, p.rewards, "rewards", "passk counts correct ones: 0 or 1", DomainError)
        n = p.valid.sum(-1, keepdim=True).to(p.rewards.dtype)
        c = p.rewards.sum(-1, keepdim=True)
        miss = _ratio(n - c, n, k)  # 1 − R
        spread = (miss * (1 - miss)).sqrt()
        wrong = miss - _ratio(n - c - 1, n - 1, k - 1)
        advantages = torch.where(p.rewards == 1, miss, wrong) / spread.where(spread > 0, 1.0)
        return p.signal(advantages.masked_fill((spread == 0) | (n < k), 0.0))

    return method


def _ratio(a: Tensor, b: Tensor, k: int) -> Tensor:
    """C(a, k) / C(b, k), as a product of k factors; 0 where a < k."""
    i = torch.arange(k, device=a.device, dtype=a.dtype)
    factors = (a.unsqueeze(-1) - i).clamp(min=0.0) / (b.unsqueeze(-1) - i).clamp(min=1.0)
    return factors.prod(-1)


register(
    MethodSpec(
        name="passk",
        build=passk,
        summary="standardised advantage of pass@k",
        source="arXiv:2508.10751",
        negative_class="zero",
        negative_signal="0",
        evidence="its authors' code",
        source_defaults={"k": 4},
    )
)
