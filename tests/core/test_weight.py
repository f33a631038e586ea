"""The weight function: accuracy against mpmath, and the identities of Theorem 2's proof."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from mpmath import mpf
from torch import Tensor

from lens_ref import (
    DomainError,
    log1mexp,
    odds,
    odds_from_log,
    weight,
    weight_derivative,
    weight_from_log,
)
from tests.core.helpers import F64, assert_relative, tensor

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
DTYPES = list(TOLERANCE)


def grid(dtype: torch.dtype) -> Tensor:
    """z from the smallest normal number to the largest below 1, with both series' borders."""
    smallest = {torch.float64: 1e-300, torch.float32: 1e-37}[dtype]
    gap = torch.finfo(dtype).eps / 2
    logs = torch.logspace(math.log10(smallest), 0, 60, dtype=F64)[:-1]
    middle = torch.linspace(0.01, 0.99, 99, dtype=F64)
    borders = tensor([0.25, 0.25 - gap, 0.35, 0.35 - gap, 0.5])
    near_one = 1 - torch.logspace(math.log10(gap), -1, 30, dtype=F64)
    z = torch.cat([logs, middle, borders, near_one]).to(dtype)
    return z[z < 1]


def log_grid(dtype: torch.dtype) -> Tensor:
    smallest, largest = {torch.float64: (1e-300, 690), torch.float32: (1e-37, 80)}[dtype]
    return -torch.logspace(math.log10(smallest), math.log10(largest), 200, dtype=F64).to(dtype)


def exactly(function: Callable[[mpf], mpf], x: Tensor) -> list[float]:
    """The formula at each number of `x` as the dtype holds it, in 700 digits."""
    with mpmath.workdps(700):
        return [float(function(mpf(value))) for value in x.tolist()]


def w(z: mpf) -> mpf:
    return mpmath.log(1 / (1 - z)) / z - 1


def w_slope(z: mpf) -> mpf:
    """The derivative of the printed formula by the quotient rule."""
    return (z / (1 - z) - mpmath.log(1 / (1 - z))) / z**2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("function", "formula"),
    [(weight, w), (weight_derivative, w_slope), (odds, lambda z: z / (1 - z))],
    ids=["weight", "weight_derivative", "odds"],
)
def test_accuracy(
    function: Callable[[Tensor], Tensor], formula: Callable[[mpf], mpf], dtype: torch.dtype
) -> None:
    z = grid(dtype)
    assert function(z).dtype == dtype
    assert_relative(function(z), exactly(formula, z), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("function", "formula"),
    [
        (weight_from_log, lambda t: w(mpmath.exp(t))),
        (odds_from_log, lambda t: mpmath.exp(t) / (1 - mpmath.exp(t))),
        (log1mexp, lambda t: mpmath.log(1 - mpmath.exp(t))),
    ],
    ids=["weight_from_log", "odds_from_log", "log1mexp"],
)
def test_accuracy_from_log(
    function: Callable[[Tensor], Tensor], formula: Callable[[mpf], mpf], dtype: torch.dtype
) -> None:
    t = log_grid(dtype)
    assert function(t).dtype == dtype
    assert_relative(function(t), exactly(formula, t), TOLERANCE[dtype])


def test_hand_literals() -> None:
    assert weight(0.0).item() == 0.0
    assert weight_derivative(0.0).item() == 0.5
    assert weight(0.5).item() == pytest.approx(2 * math.log(2) - 1, rel=1e-15)
    # Where the printed formula gives 0.192 in float32, the series gives z/2.
    assert weight(tensor(1e-7, torch.float32)).item() == pytest.approx(5e-8, rel=1e-6)
    assert weight(tensor(1e-9, torch.float32)).item() == pytest.approx(5e-10, rel=1e-6)
    # The paper calls w "the odds": at z = .99 those are 99 against 3.65.
    assert odds(0.99).item() == pytest.approx(99.0)
    assert weight(0.99).item() == pytest.approx(3.65, abs=2e-3)


def test_odds_are_w_plus_z_times_slope() -> None:
    z = torch.cat([tensor([0.0, 1e-12, 1 - 1e-12]), grid(F64)])
    assert_relative(weight(z) + z * weight_derivative(z), odds(z), 1e-12)


def test_w_is_the_running_mean_of_the_odds() -> None:
    for z in (0.1, 0.6, 0.95):
        mean = mpmath.quad(lambda u: u / (1 - u), [0, z]) / z
        assert weight(z).item() == pytest.approx(float(mean), rel=1e-12)


def test_w_is_increasing_convex_and_below_the_odds() -> None:
    z = torch.linspace(0, 0.999, 2000, dtype=F64)
    values, slopes = weight(z), weight_derivative(z)
    assert (values.diff() > 0).all()
    assert (slopes.diff() > 0).all()
    assert (values <= odds(z)).all()


def test_slope_is_the_derivative() -> None:
    z = torch.cat([tensor([0.0]), grid(F64)]).requires_grad_()
    (slope,) = torch.autograd.grad(weight(z).sum(), z)
    assert_relative(slope, weight_derivative(z.detach()), 1e-9)


def test_log_forms_agree_where_both_are_accurate() -> None:
    z = torch.linspace(0.01, 0.9, 90, dtype=F64)
    assert_relative(weight_from_log(z.log()), weight(z), 1e-13)
    assert_relative(odds_from_log(z.log()), odds(z), 1e-13)
    assert_relative(log1mexp(z.log()), (1 - z).log(), 1e-12)


def test_log_forms_at_probability_zero() -> None:
    nothing = tensor(-math.inf)
    assert weight_from_log(nothing).item() == 0
    assert odds_from_log(nothing).item() == 0
    assert log1mexp(nothing).item() == 0


def test_half_precision_is_upcast() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        for function in (weight, weight_derivative, odds):
            result = function(tensor([0.5, 0.25], dtype))
            assert result.dtype == torch.float32
            assert_relative(result, function(tensor([0.5, 0.25])), 1e-6)


def test_a_z_that_rounds_to_one_is_refused() -> None:
    z = 1 - 1e-9
    assert weight(tensor([z])).item() == pytest.approx(19.7, abs=0.1)
    with pytest.raises(DomainError, match=r"z\[0\] = 1"):
        weight(tensor([z], torch.float32))
