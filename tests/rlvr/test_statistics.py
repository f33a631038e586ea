"""Power of paired tests and adjusted p-values."""

from __future__ import annotations

import numpy as np
import pytest

from lens_ref.rlvr.statistics import detectable, holm, paired_power, seeds_interval, t_interval


@pytest.mark.parametrize("values", [[], [0.1], [0.1, 0.1, 0.1], [0.36 - 0.34, 0.27 - 0.25]])
def test_no_spread_no_interval(values: list[float]) -> None:
    assert seeds_interval(values) is None


def test_the_smallest_spread_of_real_answers_has_one() -> None:
    values = [0.5, 0.5, 0.5 + 1 / (16 * 5000)]
    assert seeds_interval(values) == t_interval(values)


def test_the_power_of_textbooks() -> None:
    """Cohen's d = .5 needs 34 pairs for a power of .80 (.808), and 20 pairs find d = .66."""
    assert paired_power(0.5, 1.0, 34) == pytest.approx(0.808, abs=5e-4)
    assert paired_power(0.5, 1.0, 33) < 0.8 < paired_power(-5.0, 10.0, 34)
    assert detectable(1.0, 20) == pytest.approx(0.660, abs=5e-4)
    assert detectable(3.0, 10) == pytest.approx(3 * 0.996, abs=2e-3)


def test_without_an_effect_the_power_is_the_level() -> None:
    for n in (2, 5, 20):
        assert paired_power(0.0, 1.0, n) == pytest.approx(0.05)


def test_the_power_is_the_share_of_simulated_tests() -> None:
    drawn = np.random.default_rng(0).normal(1.3, 2.0, (20_000, 12))
    t = drawn.mean(1) / drawn.std(1, ddof=1) * np.sqrt(12)
    assert (np.abs(t) > 2.200985).mean() == pytest.approx(paired_power(1.3, 2.0, 12), abs=0.012)


def test_few_pairs_find_large_effects_alone() -> None:
    found = [detectable(1.0, n) for n in (2, 3, 5, 20, 500)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 11


@pytest.mark.parametrize(("spread", "n"), [(1.0, 1), (0.0, 5), (float("nan"), 5)])
def test_what_has_no_power_is_refused(spread: float, n: int) -> None:
    with pytest.raises(ValueError, match="at least 2 pairs and a positive spread"):
        detectable(spread, n)


def test_holms_rule() -> None:
    """Sorted .005, .01, .03, .04, times 4, 3, 2, 1, never falling: .02, .03, .06, .06."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
