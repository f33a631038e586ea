"""The weight function w(z) of Theorem 2, its derivative, the odds, and their log-space forms.

    w(z) = (1/z) log(1/(1−z)) − 1 = Σ_{k≥1} z^k / (k+1)            0 ≤ z < 1, w(0) = 0
    w(z) + z w′(z) = z/(1−z)                                        the odds

The odds are what multiplies ∇ log π of a wrong answer; w is their running mean,
w(z) = (1/z) ∫₀ᶻ u/(1−u) du, and so much smaller near z = 1: at z = .99 the odds are 99, w is 3.65.

The printed formula loses every digit near z = 0 (a difference of two numbers near 1), so small z
take the power series; near z = 1 pass log z to the `…_from_log` forms, which keep 1 − z exact.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lens_ref.core._checks import DomainError, Number, as_float, require

# Below these z the series with so many terms is exact to the last bit of a float64.
_SERIES_BELOW, _TERMS = 0.25, 32
_SLOPE_SERIES_BELOW, _SLOPE_TERMS = 0.35, 44


def weight(z: Number) -> Tensor:
    """w(z) of Theorem 2, elementwise; differentiable.

    >>> weight(torch.tensor([0.0, 0.5]))  # 0, and 2 log 2 − 1
    tensor([0.0000, 0.3863])

    Args:
        z: π/D, any shape, 0 ≤ z < 1. float64 in, float64 out; half precision is upcast.

    Raises:
        DomainError: z < 0, z ≥ 1 or NaN.
    """
    z = _unit_interval(z)
    small = z < _SERIES_BELOW
    safe = torch.where(small, 0.5, z)  # keeps 0/0 out of the branch that is not taken
    return torch.where(small, _weight_series(z), -torch.log1p(-safe) / safe - 1)


def weight_derivative(z: Number) -> Tensor:
    """w′(z) = (z/(1−z) + log(1−z)) / z², with w′(0) = 1/2, elementwise.

    The appendix of the paper prints D·log(1−z) in the numerator; the D does not belong there.

    >>> weight_derivative(torch.tensor([0.0, 0.5]))  # 1/2, and 4 (1 − log 2)
    tensor([0.5000, 1.2274])

    Raises:
        DomainError: z < 0, z ≥ 1 or NaN.
    """
    z = _unit_interval(z)
    small = z < _SLOPE_SERIES_BELOW
    series = torch.zeros_like(z)
    for k in range(_SLOPE_TERMS, 0, -1):  # Σ k z^(k−1) / (k+1), Horner
        series = series * z + k / (k + 1)
    safe = torch.where(small, 0.5, z)
    direct = (safe / (1 - safe) + torch.log1p(-safe)) / safe**2
    return torch.where(small, series, direct)


def odds(z: Number) -> Tensor:
    """z/(1−z) = w(z) + z·w′(z), elementwise.

    >>> odds(torch.tensor([0.2, 0.5, 0.8]))
    tensor([0.2500, 1.0000, 4.0000])

    Raises:
        DomainError: z < 0, z ≥ 1 or NaN.
    """
    z = _unit_interval(z)
    return z / (1 - z)


def weight_from_log(log_z: Number) -> Tensor:
    """w(z) from log z < 0 (nats), accurate as z → 0 and as z → 1.

    >>> weight_from_log(torch.tensor([0.5]).log())
    tensor([0.3863])

    Raises:
        DomainError: log z ≥ 0 or NaN.
    """
    log_z = _below_zero(log_z)
    z = log_z.exp()
    small = z < _SERIES_BELOW
    safe = torch.where(small, math.log(0.5), log_z)
    return torch.where(small, _weight_series(z), -_log1mexp(safe) * torch.exp(-safe) - 1)


def odds_from_log(log_z: Number) -> Tensor:
    """z/(1−z) from log z < 0 (nats).

    >>> odds_from_log(torch.tensor([0.2, 0.5, 0.8]).log())
    tensor([0.2500, 1.0000, 4.0000])

    Raises:
        DomainError: log z ≥ 0 or NaN.
    """
    log_z = _below_zero(log_z)
    return log_z.exp() / -torch.expm1(log_z)


def log1mexp(log_z: Number) -> Tensor:
    """log(1 − z) from log z < 0 (nats): log(1 − e^t).

    >>> log1mexp(torch.tensor([0.75]).log()).exp()
    tensor([0.2500])

    Raises:
        DomainError: log z ≥ 0 or NaN.
    """
    return _log1mexp(_below_zero(log_z))


def _weight_series(z: Tensor) -> Tensor:
    series = torch.zeros_like(z)
    for k in range(_TERMS, 0, -1):  # Σ z^k / (k+1), Horner
        series = (series + 1 / (k + 1)) * z
    return series


def _log1mexp(t: Tensor) -> Tensor:
    near_zero = t > -math.log(2)  # z > 1/2
    safe_near = torch.where(near_zero, t, -1.0)
    safe_far = torch.where(near_zero, -1.0, t)
    return torch.where(
        near_zero, torch.log(-torch.expm1(safe_near)), torch.log1p(-torch.exp(safe_far))
    )


def _unit_interval(z: Number) -> Tensor:
    z = as_float(z, "z")
    require((z >= 0) & (z < 1), z, "z", "0 <= z < 1 is needed, that is pi < D", DomainError)
    return z


def _below_zero(log_z: Number) -> Tensor:
    log_z = as_float(log_z, "log_z")
    require(log_z < 0, log_z, "log_z", "log z must be below 0, that is pi < D", DomainError)
    return log_z
