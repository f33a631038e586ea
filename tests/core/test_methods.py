"""The registry, and GRPO and Dr. GRPO by hand."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

from lens_ref import LensConfig, lens_advantages, methods
from tests.core.helpers import assert_close, group, tensor

CONFIDENCE = [0.9 - 0.05 * i for i in range(8)]
CORE = ("grpo", "dr_grpo", "lens")


def test_names() -> None:
    assert set(CORE) <= set(methods.names())
    assert methods.names() == sorted(methods.names())


@pytest.mark.parametrize("name", CORE)
def test_specs(name: str) -> None:
    spec = methods.spec(name)
    assert spec.name == name
    assert spec.level == "sequence"
    assert "rewards" in spec.needs
    assert spec.source.startswith("arXiv:")
    assert set(spec.source_defaults) <= set(spec.defaults)
    signal = methods.get(name, **spec.defaults)(group([1.0, 0.0], [0.5, 0.5]))
    assert torch.equal(
        signal.advantages, methods.get(name)(group([1.0, 0.0], [0.5, 0.5])).advantages
    )


def test_defaults_compare() -> None:
    assert methods.spec("grpo").defaults == {"ddof": 0, "eps": 0.0}
    assert methods.spec("grpo").source_defaults["ddof"] == 1
    assert methods.spec("dr_grpo").defaults == {}
    assert methods.spec("dr_grpo").loss.aggregation == "constant"
    assert methods.spec("lens").defaults == {
        "preset": "paper",
        **dataclasses.asdict(LensConfig()),
    }
    assert methods.spec("lens").negative_class == "zero_sum"
    for name in ("grpo", "dr_grpo"):
        assert methods.spec(name).negative_class == "zero"


def test_negative_class_is_what_happens() -> None:
    rollouts = group([0.0] * 8, CONFIDENCE)
    for name in CORE:
        signal = methods.get(name)(rollouts)
        assert signal.keep.all()
        silent = methods.spec(name).negative_class == "zero"
        assert bool((signal.advantages == 0).all()) is silent
        assert signal.advantages.sum().abs() < 1e-15


@pytest.mark.parametrize(
    ("correct", "ddof1", "ddof0", "centred"),
    [
        (1, (2.4749, -0.3536), (2.6458, -0.3780), (0.875, -0.125)),
        (4, (0.9354, -0.9354), (1.0, -1.0), (0.5, -0.5)),
        (0, (None, 0.0), (None, 0.0), (None, 0.0)),
        (8, (0.0, None), (0.0, None), (0.0, None)),
    ],
)
def test_grpo_and_dr_grpo(
    correct: int,
    ddof1: tuple[float, float],
    ddof0: tuple[float, float],
    centred: tuple[float, float],
) -> None:
    rollouts = group([1.0] * correct + [0.0] * (8 - correct), CONFIDENCE)
    for method, (high, low) in (
        (methods.get("grpo", ddof=1), ddof1),
        (methods.get("grpo"), ddof0),
        (methods.get("dr_grpo"), centred),
    ):
        expected = [high] * correct + [low] * (8 - correct)
        assert method(rollouts).advantages[0].tolist() == pytest.approx(expected, abs=5.1e-5)


def test_grpo_divides_by_the_std_and_dr_grpo_does_not() -> None:
    small, large = group([0.0, 0.1], [0.5, 0.5]), group([0.0, 1.0], [0.5, 0.5])
    grpo, dr_grpo = methods.get("grpo"), methods.get("dr_grpo")
    assert_close(grpo(small).advantages, grpo(large).advantages, 1e-14)
    assert_close(10 * dr_grpo(small).advantages, dr_grpo(large).advantages, 1e-14)
    with_eps = methods.get("grpo", eps=0.5)(large).advantages
    assert with_eps.tolist() == [[-0.5, 0.5]]


def test_groups_are_normalised_one_by_one() -> None:
    """A negative group gets no signal from its neighbour's rewards."""
    rollouts = group([1.0, 1, 0, 0], [0.5] * 4)
    both = type(rollouts)(
        tensor([[1.0, 1, 0, 0], [0, 0, 0, 0]]), tensor([[-1.0] * 4] * 2), torch.ones(2, 4)
    )
    assert methods.get("grpo")(both).advantages.tolist() == [[1.0, 1, -1, -1], [0.0] * 4]


@pytest.mark.parametrize("rewards", [[0.7] * 12, [0.1] * 3, [0.0] * 5, [1.0] * 5])
def test_uniform_groups_are_exactly_zero(rewards: list[float]) -> None:
    for dtype in (torch.float32, torch.float64):
        rollouts = group(rewards, [0.5] * len(rewards), dtype=dtype)
        for method in (methods.get("grpo"), methods.get("grpo", ddof=1), methods.get("dr_grpo")):
            assert (method(rollouts).advantages == 0).all()


def test_lens_takes_a_preset_or_any_field() -> None:
    rollouts = group([1.0, 0, 0], [0.5, 0.6, 0.7], [3, 4, 5])
    for name in LensConfig.presets():
        expected = lens_advantages(rollouts, LensConfig.preset(name)).advantages
        assert torch.equal(methods.get("lens", preset=name)(rollouts).advantages, expected)
    expected = lens_advantages(rollouts, LensConfig.preset("no_scale", ddof=1)).advantages
    result = methods.get("lens", preset="no_scale", ddof=1)(rollouts).advantages
    assert torch.equal(result, expected)


@pytest.mark.parametrize(
    ("name", "hyperparameters", "message"),
    [
        ("gpro", {}, "unknown method 'gpro': did you mean 'grpo'?"),
        ("grpo", {"epz": 1}, "unknown hyperparameter 'epz' of grpo: did you mean 'eps'?"),
        ("dr_grpo", {"eps": 1}, "unknown hyperparameter 'eps' of dr_grpo"),
        ("lens", {"alfa": 1}, "'alfa'"),
        ("lens", {"preset": "papper"}, "did you mean 'paper'?"),
        ("grpo", {"ddof": 2}, "ddof = 2"),
        ("grpo", {"eps": -1.0}, "eps = -1"),
        ("lens", {"guard": 1.0}, "guard = 1"),
    ],
)
def test_bad_names_and_values(name: str, hyperparameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        methods.get(name, **hyperparameters)
    assert "\n" not in str(caught.value)
