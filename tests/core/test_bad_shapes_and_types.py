"""Refusals of shapes, types and numbers that would otherwise end in NaN or in torch's own words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lens_ref import (
    LensConfig,
    Rollouts,
    calibrated_reward,
    difficulty,
    group_kind,
    grpo_loss,
    importance_difficulty,
    length_normalized,
    length_preference_reward,
    lens_advantages,
    log1mexp,
    methods,
    mle_loss,
    neg_to_mixed_rms,
    odds,
    pass_at_k,
    true_difficulty,
    value,
    value_mle,
    weight,
    weight_derivative,
    weight_from_log,
)
from tests.core.helpers import tensor

SQUARE, THREE, FOUR = torch.zeros(2, 2), torch.zeros(2, 3), torch.zeros(2, 4)


@pytest.mark.parametrize(
    "call",
    [
        lambda: calibrated_reward(THREE, FOUR - 1, 0.0),
        lambda: difficulty(THREE, FOUR - 1),
        lambda: importance_difficulty(THREE, FOUR - 1),
        lambda: length_normalized(THREE - 1, FOUR + 1),
        lambda: length_preference_reward(THREE - 1, FOUR + 1, 0.0, 0.9),
        lambda: true_difficulty(THREE, FOUR),
        lambda: value(THREE, FOUR),
        lambda: value_mle(THREE, FOUR, 2.0),
        lambda: mle_loss(THREE - 1, FOUR, 2.0),
        lambda: mle_loss(THREE - 1, THREE, torch.ones(2)),
        lambda: mle_loss(SQUARE - 1, SQUARE, torch.ones(2)),  # neither a question's nor a column's
        lambda: mle_loss(SQUARE - 1, SQUARE, 2.0, torch.ones(2)),
        lambda: grpo_loss(SQUARE, SQUARE, SQUARE, SQUARE.bool(), denominator=torch.ones(2)),
        lambda: pass_at_k(torch.tensor([4, 4]), torch.tensor([1, 1, 1]), 2),
    ],
)
def test_shapes_that_do_not_broadcast(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="shape"):
        call()


@pytest.mark.parametrize("scale", [math.nan, math.inf, -0.5])
def test_scale_of_calibrated_reward(scale: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        calibrated_reward(tensor([0.0, 1.0]), tensor([-1.0, -1.0]), 0.0, scale=scale)


def test_denominator_as_a_tensor() -> None:
    """What `mask.any(-1).sum()` of a fully masked batch gives."""
    mask = torch.zeros(1, 2, dtype=torch.bool)
    new = torch.zeros(1, 2)
    with pytest.raises(ValueError, match="denominator"):
        grpo_loss(new, new, torch.zeros(1), mask, denominator=mask.any(-1).sum())


@pytest.mark.parametrize("logprob", [math.nan, -math.inf, 1.0])
def test_token_logprobs_of_rollouts(logprob: float) -> None:
    tokens = torch.tensor([[[-1.0, logprob], [-1.0, math.nan]]])
    mask = torch.tensor([[[True, True], [True, False]]])
    with pytest.raises(ValueError, match=r"token_logprobs\[0, 0, 1\]"):
        Rollouts(
            torch.zeros(1, 2),
            torch.full((1, 2), -2.0),
            torch.tensor([[2, 1]]),
            token_logprobs=tokens,
            mask=mask,
        )


@pytest.mark.parametrize(
    "call",
    [lambda: LensConfig(guard="2"), lambda: methods.get("grpo", eps="small")],  # type: ignore[arg-type]
)
def test_numbers_given_as_text(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"guard|eps"):
        call()


def test_loss_of_no_sample() -> None:
    with pytest.raises(ValueError, match="log_pi"):
        mle_loss(torch.zeros(0), torch.zeros(0), 1.0)


def test_infinite_policy() -> None:
    with pytest.raises(ValueError, match=r"pi\[0\] = inf"):
        value(tensor([math.inf, 0.5]), tensor([0.0, 1.0]))


def test_infinite_length() -> None:
    with pytest.raises(ValueError, match=r"lengths\[0\] = inf"):
        length_normalized(tensor([-1.0]), tensor([math.inf]))


def test_confidence_of_a_correct_response_that_is_nan() -> None:
    with pytest.raises(ValueError, match=r"log_confidence"):
        calibrated_reward(tensor([1.0]), tensor([math.nan]), 0.0)


# --- types ----------------------------------------------------------------------------------------

ROLLOUTS = Rollouts(THREE, THREE - 1, torch.ones(2, 3))
FIELDS = {
    "rewards": THREE,
    "logprobs": THREE - 1,
    "lengths": torch.ones(2, 3),
    "token_logprobs": torch.zeros(2, 3, 4) - 1,
    "mask": torch.ones(2, 3, 4, dtype=torch.bool),
    "entropy": torch.zeros(2, 3, 4),
    "prior": torch.zeros(2),
    "valid": torch.ones(2, 3, dtype=torch.bool),
    "truncated": torch.zeros(2, 3, dtype=torch.bool),
}


def refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FIELDS)
def test_rollouts_of_lists_or_arrays(name: str) -> None:
    Rollouts(**FIELDS)
    listed = {**FIELDS, name: FIELDS[name].tolist()}
    refused(lambda: Rollouts(**listed), f"{name} is a list: a tensor is needed")
    array = {**FIELDS, name: FIELDS[name].numpy()}
    refused(lambda: Rollouts(**array), f"{name} is a ndarray: a tensor is needed")


@pytest.mark.parametrize("name", ["rewards", "logprobs", "lengths"])
def test_rollouts_without_what_they_need(name: str) -> None:
    missing = {**FIELDS, name: None}
    refused(lambda: Rollouts(**missing), f"{name} is a NoneType: a tensor is needed")


def test_a_preset_is_not_a_config() -> None:
    refused(lambda: lens_advantages(ROLLOUTS, "paper"), "config = 'paper': a LensConfig is needed")
    refused(lambda: lens_advantages(ROLLOUTS, {}), "config = {}: a LensConfig is needed")
    refused(lambda: lens_advantages([[0.0, 1.0]]), "rollouts is a list: Rollouts are needed")


@pytest.mark.parametrize("x", ["a", None, {}, [None]])
def test_what_is_no_number(x: Any) -> None:
    for function in (weight, weight_derivative, odds):
        refused(lambda f=function: f(x), f"z = {x!r}: a number or a tensor is needed")
    for function in (weight_from_log, log1mexp):
        refused(lambda f=function: f(x), f"log_z = {x!r}: a number or a tensor is needed")
    refused(lambda: length_normalized(THREE - 1, x), f"lengths = {x!r}")
    refused(
        lambda: length_preference_reward(THREE - 1, THREE + 1, x, 0.9), f"log_difficulty = {x!r}"
    )
    refused(lambda: length_preference_reward(THREE - 1, THREE + 1, 0.0, x), f"gamma = {x!r}")
    refused(lambda: difficulty(THREE, THREE - 1, guard=x), f"guard = {x!r}")


@pytest.mark.parametrize("name", ["new_logprobs", "old_logprobs", "advantages", "mask"])
@pytest.mark.parametrize("validate", [True, False])
def test_a_loss_of_lists(name: str, validate: bool) -> None:
    given = {
        "new_logprobs": THREE - 1,
        "old_logprobs": THREE - 1,
        "advantages": torch.zeros(2),
        "mask": torch.ones(2, 3, dtype=torch.bool),
    }
    listed = {**given, name: given[name].tolist()}
    refused(lambda: grpo_loss(**listed, validate=validate), f"{name} is a list: a tensor is needed")
    refused(lambda: grpo_loss(**given, clip_low="a", validate=validate), "clip_low = 'a'")
    refused(lambda: grpo_loss(**given, denominator="a", validate=validate), "denominator = 'a'")


@pytest.mark.parametrize("name", ["valid", "mask", "truncated"])
@pytest.mark.parametrize("flag", [0.5, math.nan, 2.0, -1.0])
def test_flags_between_true_and_false(name: str, flag: float) -> None:
    odd = torch.ones(FIELDS[name].shape)
    odd[1, 2] = flag
    index = "1, 2, 0" if name == "mask" else "1, 2"
    message = f"{name}[{index}] = {flag:g}: must be True or False, 1 or 0"
    refused(lambda: Rollouts(**{**FIELDS, name: odd}), message)


def test_flags_of_functions() -> None:
    half = torch.tensor([[1.0, 0.5, 1.0], [1.0, 1.0, 1.0]])
    for call, name in (
        (lambda: group_kind(THREE, half), "valid"),
        (lambda: difficulty(THREE, THREE - 1, valid=half), "valid"),
        (lambda: importance_difficulty(THREE, THREE - 1, half), "valid"),
        (lambda: grpo_loss(THREE - 1, THREE - 1, torch.zeros(2), half), "mask"),
    ):
        refused(call, f"{name}[0, 1] = 0.5: must be True or False, 1 or 0")


def test_flags_as_numbers_mean_what_they_say() -> None:
    """1 and 0, whole or not, are True and False."""
    rewards = tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    flags = torch.tensor([[1, 1, 0], [1, 1, 0]])
    for valid in (flags, flags.float(), flags.bool()):
        assert group_kind(rewards, valid).tolist() == [2, 0]
        rollouts = Rollouts(rewards, rewards - 2, rewards + 1, valid=valid)
        assert lens_advantages(rollouts).info["group_kind"].tolist() == [2, 0]
        loss = grpo_loss(THREE - 1, THREE - 1, torch.ones(2), valid).loss
        assert loss.item() == pytest.approx(-1.0)


def test_a_mask_of_another_shape_than_the_advantages() -> None:
    kind, keep = torch.tensor([0, 1]), torch.ones(2, 3, dtype=torch.bool)
    refused(
        lambda: neg_to_mixed_rms(torch.ones(2, 3, 4), kind, keep, torch.ones(2, 3, 5)),
        "mask has shape (2, 3, 5): expected (2, 3, 4)",
    )


# --- numbers of other libraries -------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float64, np.float32, torch.tensor])
def test_a_config_of_other_numbers(kind: Callable[[float], Any]) -> None:
    given = {"alpha": 0.5, "guard": 3.0, "eps": 0.0, "mixed_scale": 1.0, "negative_scale": 2.0}
    made = LensConfig(**{name: kind(x) for name, x in given.items()}, ddof=kind(1))
    assert made == LensConfig(**given, ddof=1)
    assert {type(getattr(made, name)) for name in given} == {float}
    assert type(made.ddof) is int
    assert lens_advantages(ROLLOUTS, made).advantages.shape == (2, 3)


@pytest.mark.parametrize("gamma", [np.float64(0.5), torch.tensor(0.5), np.float32(0.5)])
def test_gamma_as_another_number(gamma: Any) -> None:
    """π = 1/8, one token, D = 1: −(1/8) / (1/2 − 1/8)."""
    log_pi = tensor([math.log(1 / 8)])
    for form in ("exact", "practical"):
        found = length_preference_reward(log_pi, torch.tensor([1]), 0.0, gamma, form)
        assert found.item() == pytest.approx(-1 / 3)


def test_negative_eps_is_told_what_is_allowed() -> None:
    for name in ("grpo", "lens"):
        refused(lambda n=name: methods.get(n, eps=-1), "eps = -1: must be")
        refused(lambda n=name: methods.get(n, eps=-1), ">= 0")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"token_logprobs": 5, "mask": 4}, "mask has 4 positions, token_logprobs 5"),
        ({"token_logprobs": 5, "mask": 1}, "mask has 1 positions, token_logprobs 5"),
        ({"mask": 4, "entropy": 5}, "entropy has 5 positions, mask 4"),
        ({"token_logprobs": 2, "entropy": 3}, "entropy has 3 positions, token_logprobs 2"),
    ],
)
def test_what_is_said_a_token_has_one_width(fields: dict[str, int], message: str) -> None:
    given = {name: torch.zeros(1, 3, width) for name, width in fields.items()}
    with pytest.raises(ValueError, match=message):
        Rollouts(torch.zeros(1, 3), torch.zeros(1, 3), torch.ones(1, 3), **given)


@pytest.mark.parametrize("name", ["token_logprobs", "entropy"])
def test_a_response_has_no_more_tokens_than_positions(name: str) -> None:
    lengths, valid = torch.tensor([[3.0, 9.0]]), torch.tensor([[True, False]])
    for width in (0, 2):
        with pytest.raises(ValueError, match=f"{name} has {width} positions for a response of 3"):
            Rollouts(THREE[:1, :2], THREE[:1, :2], lengths, valid=valid, **wide(name, width))
    Rollouts(THREE[:1, :2], THREE[:1, :2], lengths, valid=valid, **wide(name, 3))
    with pytest.raises(ValueError, match="mask has 0 positions for a response of 1"):
        Rollouts(THREE[:1, :2], THREE[:1, :2], lengths, **wide("mask", 0))


def wide(name: str, width: int) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(1, 2, width)}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("lengths", torch.ones(1, 2, dtype=torch.bool), "lengths is bool; numbers are needed"),
        ("logprobs", torch.zeros(1, 2, dtype=torch.bool), "logprobs is bool; numbers are needed"),
        ("rewards", torch.zeros(1, 2, dtype=torch.complex64), "rewards is complex"),
        ("prior", torch.zeros(1, dtype=torch.complex64), "prior is complex"),
    ],
)
def test_numbers_of_a_kind_that_has_no_order(field: str, value: torch.Tensor, message: str) -> None:
    numbers = {"rewards": torch.zeros(1, 2), "logprobs": torch.zeros(1, 2)}
    numbers |= {"lengths": torch.ones(1, 2), field: value}
    with pytest.raises(ValueError, match=message):
        Rollouts(**numbers)


def test_right_answers_as_a_list() -> None:
    assert pass_at_k(16, [0, 8, 16], 1).tolist() == [0.0, 0.5, 1.0]
    assert pass_at_k([4], 1, 2).tolist() == [0.5]
    assert pass_at_k(4, 1, 2) == 0.5
