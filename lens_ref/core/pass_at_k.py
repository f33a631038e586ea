"""pass@k: the chance that at least one of k answers drawn from n graded ones is right."""

from __future__ import annotations

import torch
from torch import Tensor

from lens_ref.core._checks import as_float, broadcast, require


def pass_at_k(n: int | Tensor, c: int | Tensor, k: int | Tensor) -> float | Tensor:
    """The unbiased estimator 1 − C(n−c, k) / C(n, k).

    Neither "any of the first k" (which depends on the order) nor 1 − (1 − c/n)^k (biased).

    >>> pass_at_k(4, 1, 2)  # three of the six pairs hold the right one
    0.5
    >>> pass_at_k(16, torch.tensor([0, 8, 16]), 1)
    tensor([0.0000, 0.5000, 1.0000], dtype=torch.float64)

    Args:
        n: answers sampled; ints, or tensors of integers that broadcast.
        c: how many of them are correct, 0 ≤ c ≤ n.
        k: answers drawn, 1 ≤ k ≤ n.

    Returns:
        A float for ints, else a float64 tensor (for lists of ints too).

    Raises:
        ValueError: not whole numbers, or out of range, k > n above all.
    """
    named = {"n": n, "c": c, "k": k}
    tensors = [x if isinstance(x, Tensor) else as_float(x, name) for name, x in named.items()]
    for name, x in zip(named, tensors, strict=True):
        whole = (x == x.floor()) & x.isfinite()
        require(whole, x, name, "must be a whole number", ValueError)
    total, correct, draws = broadcast(*(x.to(torch.int64) for x in tensors))
    for bad, rule in (
        (draws < 1, "k must be at least 1"),
        (draws > total, "k must not exceed n: sample more answers"),
        ((correct < 0) | (correct > total), "c must lie between 0 and n"),
    ):
        if bool(bad.any()):
            index = tuple(bad.nonzero()[0].tolist())
            n_, c_, k_ = (int(x[index]) for x in (total, correct, draws))
            where = f" at {list(index)}" if index else ""
            raise ValueError(f"{rule} (n = {n_}, c = {c_}, k = {k_}){where}")
    all_wrong = torch.ones(total.shape, dtype=torch.float64, device=total.device)
    for j in range(int(draws.max()) if draws.numel() else 0):
        # C(n−c, k) / C(n, k) = Π_j (n−c−j) / (n−j); a factor reaches 0 where n − c < k
        factor = (total - correct - j).clamp(min=0) / (total - j).clamp(min=1).double()
        all_wrong = all_wrong * torch.where(j < draws, factor, 1.0)
    result = 1 - all_wrong
    alone = result.ndim == 0 and not any(isinstance(x, Tensor) for x in (n, c, k))
    return float(result) if alone else result
