"""Rewards in (0, 1): what maximum likelihood then asks for, under the true D and under any other.

An answer that is correct with probability p*(o) in (0, 1) makes LENS *probability matching*: the
maximiser of the likelihood is π* = D ρ p*, not the policy that always gives the likeliest answer.

**Statement.** J_MLE(π) = 1 + D Σ ρ (1−p*) log(1 − π/(Dρ)) (Theorem 2, enumerated) is strictly
concave on {π < Dρ} where every p* < 1. Its maximiser over the simplex, for any feasible D, is

    π_o = ρ_o (D − λ (1−p*_o))₊ ,     λ such that Σ_o π_o = 1.

*Proof.* The derivative in π_o is −(1−p*) Dρ/(Dρ−π). By the Karush–Kuhn–Tucker conditions it is one
number −ν on the support, hence π = Dρ (1 − (1−p*)/ν), and at most −ν elsewhere, hence 1−p* ≥ ν
there. Put λ = D/ν. Concavity makes the conditions sufficient. Under the true D = 1/Σρp*, λ = D
gives Σ Dρp* = 1: π* = D ρ p*. ∎

**D is an inverse temperature.** As D falls to 1/Σρ, π → ρ/Σρ; at the true D it matches
probabilities; as D → ∞, π → the likeliest answer. Accuracy Σ π p* never falls as D grows: on a
fixed support λ = (D Σρ − 1)/Σρq with q = 1−p*, and the accuracy 1 − Σqπ has the slope
(Σρ · Σρq² − (Σρq)²)/Σρq ≥ 0 (Cauchy–Schwarz); π is continuous in D. For p* = (.3, .2, .1):
(.5, .333, .167) at the true D = 5/3, (.689, .311, 0) at twice that, (1, 0, 0) from D = 8 on.

**What the group rule does** (exact enumeration of all groups of 2–4 on three answers; `likelihood`
preset: no std, no 1/G). With the fractional numbers themselves as rewards, D·p* is an exact fixed
point for every G as long as guard · max p* ≤ 1: there r/π = 1/D on every sample, so D_imp has no
variance, and every calibrated reward is p* − (1−p*) p*/(1−p*) = 0. For p* = (.3, .2, .1) the flow
from uniform ends there. Where the guard is what decides, it overshoots: p* = (.6, .3, .1) ends at
P(first) = .80 instead of .6. Verdicts sampled as Bernoulli(p*) do *not* lead to D·p*: with D from
the same group, p* = (.3, .2, .1) ends at (.38–.40, .33, .27–.28), too flat; with the true D, D·p*
is a fixed point again. As printed (1/G and std) neither rule matches probabilities: with
sampled verdicts both p* end above .98 on the first answer, as in reward maximisation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lens_ref.core._checks import (
    DomainError,
    Number,
    as_float,
    broadcast,
    common_dtype,
    require,
)
from lens_ref.core.likelihood import true_difficulty


@torch.no_grad()
def likelihood_optimum(
    p_star: Tensor, difficulty: Number | None = None, preference: Tensor | None = None
) -> Tensor:
    """The policy that maximises J_MLE over the simplex (statement and proof: this module).

    Without `difficulty`, or with the true one, it is D ρ p*. Under another D it is the
    water-filling ρ (D − λ(1−p*))₊, with λ found exactly, by sorting.

    Where some p* = 1, nothing bounds π on those answers, and every distribution on them attains
    J_MLE = 1: the ρ-weighted one is returned (uniform where ρ = 1). So p* = (1, ½) gives (1, 0),
    although D p* = (⅔, ⅓): the two agree only for p* all 0 or 1, all below 1, or where π ≤ Dρ is
    enforced. D = ∞ is plain accuracy: the ρ-weighted distribution on the likeliest answers.

    Args:
        p_star: `[..., K]` probability that each answer is correct, in [0, 1].
        difficulty: `[...]` D > 0, one a question, or a scalar, +∞ allowed; default the true D. A
            single question `[K]` may be given several.
        preference: `[..., K]` ρ ≥ 0; default 1. An answer with ρ = 0 gets nothing.

    Returns:
        `[..., K]` probabilities, detached.

    Raises:
        DomainError: D Σρ ≤ 1, so that no policy has π < Dρ everywhere; an argument outside its
            domain.
        ValueError: shapes that do not line up.
    """
    p_star = as_float(p_star, "p_star")
    rho = torch.ones_like(p_star) if preference is None else as_float(preference, "preference")
    d = true_difficulty(p_star, rho)  # checks both
    if difficulty is not None:
        d = as_float(difficulty, "difficulty").detach()
        require(d > 0, d, "difficulty", "D is above 0", DomainError)
        if d.ndim >= p_star.ndim > 1:
            shape, wanted = tuple(d.shape), tuple(p_star.shape[:-1])
            raise ValueError(f"difficulty has shape {shape}: expected one a question, {wanted}")
    p_star, rho, d = broadcast(p_star.detach(), rho.detach(), d.unsqueeze(-1))
    dtype = common_dtype(p_star, rho)
    p_star, rho, d = p_star.to(dtype), rho.to(dtype), d[..., :1].to(dtype)
    p_star = torch.where(rho > 0, p_star, 0.0)

    best = p_star.amax(-1, keepdim=True)
    on_best = torch.where(p_star == best, rho, 0.0)
    on_face = (best == 1) | d.isinf()
    total = rho.sum(-1, keepdim=True)
    feasible = (on_face & (total > 0)) | (d * total > 1)
    rule = "too small: D * sum(rho) must exceed 1, or no policy has pi < D * rho on every answer"
    require(feasible.squeeze(-1), d.squeeze(-1), "difficulty", rule, DomainError)

    finite_d = torch.where(on_face, 1.0, d)
    filled = finite_d * rho * p_star if difficulty is None else _water_fill(p_star, finite_d, rho)
    return torch.where(on_face, on_best / on_best.sum(-1, keepdim=True), filled)


def _water_fill(p_star: Tensor, d: Tensor, rho: Tensor) -> Tensor:
    """ρ (D − λ(1−p*))₊ with Σ = 1, every p* < 1.

    Sorted by q = 1−p*, an answer is in the support if the answers before it, filled up to its
    level, weigh less than 1: D Σ_{j<k} ρ_j (q_k − q_j) < q_k.
    """
    q, order = (1 - p_star).sort(-1)
    weight = rho.gather(-1, order)
    steps = torch.diff(q, dim=-1, prepend=q[..., :1])
    before = weight.cumsum(-1) - weight
    below = (before * steps).cumsum(-1)  # Σ_{j<k} ρ_j (q_k − q_j)
    inside = d * below < q
    last = (inside * torch.arange(q.shape[-1], device=q.device)).amax(-1, keepdim=True)
    level = q.gather(-1, last)
    mass = torch.where(inside, weight, 0.0).sum(-1, keepdim=True)
    cost = torch.where(inside, weight * q, 0.0).sum(-1, keepdim=True)
    # D − λq with λ = (D·mass − 1)/cost, arranged so that nothing large is subtracted
    rest = level - d * below.gather(-1, last)
    height = (rest + (d * mass - 1) * (level - (1 - p_star))) / cost
    return rho * height.clamp(min=0.0)
