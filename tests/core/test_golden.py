"""The golden table: values that were computed in 30-digit arithmetic, apart from this package.

float64 holds to 1e-12 and float32 to 1e-5 (5e-5 where raw sequence probabilities enter) of the
largest |A| of the group. The weight's float32 is measured in test_weight.py, at the input as
rounded to float32.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from lens_ref import (
    DomainError,
    LensConfig,
    Rollouts,
    bernoulli_nll,
    grpo_loss,
    length_preference_reward,
    lens_advantages,
    mle_coefficient,
    mle_loss,
    odds,
    odds_from_log,
    true_difficulty,
    value,
    value_mle,
    value_mle_closed_form,
    value_negative,
    value_positive,
    weight,
    weight_derivative,
    weight_from_log,
)
from lens_ref.core import log1mexp
from tests.core.helpers import F64, GOLDEN, assert_close, assert_relative, tensor

READINGS = {
    "default": LensConfig(difficulty_confidence="length_normalized"),
    "dimp_raw": LensConfig(),
    "raw_all": LensConfig(confidence="sequence"),
    "neg_unscaled": LensConfig(difficulty_confidence="length_normalized", negative_scale=1.0),
    "no_scale": LensConfig(
        difficulty_confidence="length_normalized", negative_scale=1.0, mixed_scale=1.0
    ),
    "unbiased_std": LensConfig(difficulty_confidence="length_normalized", ddof=1),
    "eps_1e-6": LensConfig(difficulty_confidence="length_normalized", eps=1e-6),
    "neg_meanstd": LensConfig(
        difficulty_confidence="length_normalized", negative_norm="demean_std"
    ),
    "grpo": LensConfig(groups="negative", alpha=0.0),
}
RAW = ("dimp_raw", "raw_all")
KINDS = {"negative": 0, "mixed": 1, "correct": 2}


def by_id(case: dict[str, Any]) -> str:
    return str(case.get("id", ""))


def test_table_is_complete() -> None:
    sizes = {name: len(cases) for name, cases in GOLDEN.items() if isinstance(cases, list)}
    assert sizes == {
        "weight": 14,
        "weight_from_log": 10,
        "groups": 19,
        "toy": 7,
        "mle": 3,
        "length_preference": 3,
        "ppo": 2,
    }
    assert all(set(g["readings"]) == set(READINGS) for g in GOLDEN["groups"])


def test_weight_table() -> None:
    z = tensor([case["z"] for case in GOLDEN["weight"]])
    for name, function in (("w", weight), ("dw", weight_derivative), ("odds", odds)):
        expected = [case[name] for case in GOLDEN["weight"]]
        assert_relative(function(z), expected, 1e-12, name)


def test_weight_from_log_table() -> None:
    t = tensor([case["t"] for case in GOLDEN["weight_from_log"]])
    for name, function in (
        ("w", weight_from_log),
        ("odds", odds_from_log),
        ("log1mexp", log1mexp),
    ):
        expected = tensor([case[name] for case in GOLDEN["weight_from_log"]])
        normal = expected.abs() > torch.finfo(F64).tiny
        actual = function(t)
        assert_relative(actual[normal], expected[normal], 1e-12, name)
        assert (actual[~normal].abs() <= torch.finfo(F64).tiny).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("case", GOLDEN["groups"], ids=by_id)
def test_groups(case: dict[str, Any], dtype: torch.dtype) -> None:
    rollouts = Rollouts(
        rewards=tensor([case["rewards"]], dtype),
        logprobs=tensor([case["logprobs"]], dtype),
        lengths=torch.tensor([case["lengths"]]),
    )
    for reading, expected in case["readings"].items():
        alpha = 0.0 if reading == "grpo" else case["alpha"]
        config = LensConfig(**{**READINGS[reading].__dict__, "alpha": alpha})
        signal = lens_advantages(rollouts, config)
        label = f"{case['id']} {reading}"
        tolerance = 1e-12 if dtype == F64 else 5e-5 if reading in RAW else 1e-5
        assert signal.advantages.dtype == dtype
        assert signal.keep.all()
        assert signal.info["group_kind"].item() == KINDS[case["kind"]]
        assert_close(signal.advantages[0], expected["advantages"], tolerance, label)
        if reading == "grpo":
            continue
        info = {name: value.squeeze(0) for name, value in signal.info.items()}
        assert_close(info["calibrated_reward"], expected["calibrated"], tolerance, label)
        assert_close(info["odds"], expected["u"], tolerance, label)
        assert_close(info["log_difficulty"], expected["log_D"], tolerance, label)
        if reading != "raw_all":
            assert_close(info["log_confidence"], case["log_confidence"], tolerance, label)


@pytest.mark.parametrize("case", GOLDEN["toy"], ids=by_id)
def test_toy(case: dict[str, Any]) -> None:
    expected = case["expected"]
    logits = tensor(case["logits"]).requires_grad_()
    p_star = tensor(case["p_star"])
    rho = None if case["rho"] is None else tensor(case["rho"])
    pi = logits.softmax(-1)
    difficulty = true_difficulty(p_star, rho)
    assert_relative(difficulty, expected["D_true"], 1e-12, "D")
    if case["D"] is not None:
        difficulty = tensor(case["D"])

    assert_relative(value(pi, p_star), expected["J"], 1e-12, "J")
    (gradient,) = torch.autograd.grad(value(pi, p_star), logits, retain_graph=True)
    torch.testing.assert_close(gradient, tensor(expected["grad_J"]), rtol=0, atol=1e-14)

    if case["domain"]:
        with pytest.raises(DomainError, match=rf"pi\[{case['domain'][0]}\]"):
            value_mle(pi, p_star, difficulty, rho)
        return
    assert_relative(value_positive(pi, p_star), expected["J"], 1e-12, "J+")
    negative = value_negative(pi, p_star, difficulty, rho)
    assert_relative(negative.detach(), expected["J_neg"], 1e-12, "J-")
    for function in (value_mle, value_mle_closed_form):
        objective = function(pi, p_star, difficulty, rho)
        assert_relative(objective.detach(), expected["J_MLE"], 1e-12, "J_MLE")
        (gradient,) = torch.autograd.grad(objective, logits, retain_graph=True)
        torch.testing.assert_close(gradient, tensor(expected["grad_J_MLE"]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("case", GOLDEN["mle"], ids=by_id)
def test_mle(case: dict[str, Any]) -> None:
    expected = case["expected"]
    logits = tensor(case["logits"]).requires_grad_()
    question, answer = case["q"], case["o"]
    log_pi = logits.log_softmax(-1)[question, answer]
    rewards = tensor(case["r"])
    difficulty = tensor(case["D"])[question]
    rho = None if case["rho"] is None else tensor(case["rho"])[question, answer]

    loss = mle_loss(log_pi, rewards, difficulty, rho)
    assert_relative(loss.detach(), expected["loss"], 1e-12, "loss")
    initial = bernoulli_nll(log_pi, rewards, difficulty, rho)
    assert_relative(initial.detach(), expected["loss0"], 1e-12, "loss0")
    coefficient = mle_coefficient(log_pi, rewards, difficulty, rho)
    assert_relative(coefficient, expected["coef"], 1e-12, "coefficient")
    for objective in (loss, initial):
        (gradient,) = torch.autograd.grad(objective, logits, retain_graph=True)
        torch.testing.assert_close(gradient, tensor(expected["grad_logits"]), rtol=0, atol=1e-14)


@pytest.mark.parametrize("case", GOLDEN["length_preference"])
def test_length_preference(case: dict[str, Any]) -> None:
    log_pi, lengths = tensor([case["log_pi"]]), torch.tensor([case["length"]])
    arguments = (log_pi, lengths, math.log(case["D"]), case["gamma"])
    practical = length_preference_reward(*arguments, form="practical")
    assert_relative(practical, [case["practical"]], 1e-12, "practical")
    if case["exact"] == "domain":
        with pytest.raises(DomainError, match=r"\[0\]"):
            length_preference_reward(*arguments)
    else:
        assert_relative(length_preference_reward(*arguments), [case["exact"]], 1e-12, "exact")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("case", GOLDEN["ppo"], ids=by_id)
def test_clipped_surrogate(case: dict[str, Any], dtype: torch.dtype) -> None:
    rows, longest = len(case["new"]), max(map(len, case["new"]))

    def padded(ragged: list[list[float]], fill: float) -> torch.Tensor:
        return tensor([[*row, *[fill] * (longest - len(row))] for row in ragged], dtype)

    old = padded(case["old"], math.nan)
    mask = ~old.isnan()
    tolerance = 1e-12 if dtype == F64 else 1e-5
    largest = max(map(abs, case["advantages"]))
    for name, aggregation, denominator in (
        ("seq_mean", "sequence_mean", None),
        ("token_mean", "token_mean", None),
        ("seq_sum_const", "constant", rows * longest),
    ):
        new = padded(case["new"], math.nan).requires_grad_()
        output = grpo_loss(
            new,
            old,
            tensor(case["advantages"], dtype),
            mask,
            clip_low=case["clip"],
            clip_high=case["clip"],
            aggregation=aggregation,
            denominator=denominator,
        )
        output.loss.backward()
        expected = case["expected"][name]
        assert abs(output.loss.item() - expected["loss"]) <= tolerance * largest
        assert_close(new.grad, padded(expected["gradient"], 0.0).double(), tolerance, name)
