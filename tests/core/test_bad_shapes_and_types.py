"""Refusals of shapes, types and numbers that would otherwise end in NaN or in torch's own words."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from lens_ref import (
    LensConfig,
    Rollouts,
    calibrated_reward,
    difficulty,
    grpo_loss,
    importance_difficulty,
    length_normalized,
    length_preference_reward,
    methods,
    mle_loss,
    pass_at_k,
    true_difficulty,
    value,
    value_mle,
)
from tests.core.helpers import tensor

THREE, FOUR = torch.zeros(2, 3), torch.zeros(2, 4)


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
