"""Bad input is refused in one line with the argument, the first offending index and its value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from lens_ref import (
    DomainError,
    LensConfig,
    Rollouts,
    bernoulli_nll,
    calibrated_reward,
    difficulty,
    group_kind,
    grpo_loss,
    importance_difficulty,
    length_normalized,
    length_preference_reward,
    lens_advantages,
    log1mexp,
    mle_coefficient,
    mle_loss,
    odds,
    odds_from_log,
    pass_at_k,
    true_difficulty,
    value,
    value_mle,
    value_mle_closed_form,
    value_negative,
    weight,
    weight_derivative,
    weight_from_log,
)
from tests.core.helpers import tensor

NAN, INF = math.nan, math.inf
ZERO = tensor([[0.0, 0.0], [0.0, 0.0]])
ONES = torch.ones(2, 2, dtype=torch.bool)


def at(x: float, fill: float = 0.0) -> torch.Tensor:
    """`[2, 2]` with one odd number at [1, 0]."""
    return tensor([[fill, fill], [x, fill]])


def rollouts(**odd: torch.Tensor) -> Rollouts:
    fields = {"rewards": ZERO, "logprobs": ZERO - 1, "lengths": torch.ones(2, 2)}
    return Rollouts(**{**fields, **odd})


def refused(call: Callable[[], Any], message: str, error: type[ValueError] = DomainError) -> None:
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("function", [weight, weight_derivative, odds])
@pytest.mark.parametrize("z", [-1e-300, 1.0, 2.0, NAN, INF])
def test_z(function: Callable[..., Any], z: float) -> None:
    refused(lambda: function(at(z, 0.5)), f"z[1, 0] = {z:g}")
    refused(lambda: function(z), f"z = {z:g}")


@pytest.mark.parametrize("function", [weight_from_log, odds_from_log, log1mexp])
@pytest.mark.parametrize("t", [0.0, 1e-300, 5.0, NAN, INF])
def test_log_z(function: Callable[..., Any], t: float) -> None:
    refused(lambda: function(at(t, -1.0)), f"log_z[1, 0] = {t:g}")


@pytest.mark.parametrize("reward", [-0.1, 1.5, NAN, INF])
def test_rewards(reward: float) -> None:
    bad, message = at(reward), f"rewards[1, 0] = {reward:g}"
    for call in (
        lambda: rollouts(rewards=bad),
        lambda: group_kind(bad),
        lambda: importance_difficulty(bad, ZERO),
        lambda: difficulty(bad, ZERO),
        lambda: calibrated_reward(bad, ZERO - 2, 0.0),
        lambda: mle_loss(ZERO - 2, bad, 1.0),
        lambda: bernoulli_nll(ZERO - 2, bad, 1.0),
        lambda: mle_coefficient(ZERO - 2, bad, 1.0),
    ):
        refused(call, message)


def test_rewards_as_integers() -> None:
    refused(lambda: rollouts(rewards=torch.tensor([[0, 1], [2, 0]])), "rewards[1, 0] = 2")


@pytest.mark.parametrize("logprob", [NAN, -INF, INF, 2e-6, 1.0])
def test_logprobs_of_rollouts(logprob: float) -> None:
    refused(lambda: rollouts(logprobs=at(logprob, -1.0)), f"logprobs[1, 0] = {logprob:g}")


def test_logprobs_that_samplers_round_above_zero() -> None:
    """Between 0 and 1e-6 a log-probability counts as 0."""
    rounded = lens_advantages(rollouts(logprobs=at(9e-7, -1.0)))
    exact = lens_advantages(rollouts(logprobs=at(0.0, -1.0)))
    assert torch.equal(rounded.advantages, exact.advantages)
    assert rounded.info["log_confidence"][1, 0] == 0


@pytest.mark.parametrize("logprob", [NAN, INF, 1.0])
def test_logprobs_of_confidence(logprob: float) -> None:
    message = f"logprobs[1, 0] = {logprob:g}"
    refused(lambda: length_normalized(at(logprob, -1.0), torch.ones(2, 2)), message)


@pytest.mark.parametrize("length", [0.0, -3.0, 0.5, 2.5, NAN, INF])
def test_lengths(length: float) -> None:
    message = f"lengths[1, 0] = {length:g}"
    refused(lambda: rollouts(lengths=at(length, 1.0)), message)
    refused(lambda: length_normalized(ZERO - 1, at(length, 1.0)), message)
    refused(lambda: length_preference_reward(ZERO - 1, at(length, 1.0), 0.0, 0.9), message)


def test_only_valid_rows_are_checked() -> None:
    bad = rollouts(
        rewards=at(NAN), logprobs=at(7.0, -1.0), lengths=at(0.0, 1.0), valid=at(0.0, 1.0).bool()
    )
    assert lens_advantages(bad).advantages.isfinite().all()
    with pytest.raises(DomainError, match=r"rewards\[0, 1\] = 3"):
        rollouts(rewards=tensor([[0.0, 3.0], [NAN, 0.0]]), valid=at(0.0, 1.0).bool())


@pytest.mark.parametrize("guard", [1.0, 0.5, 0.0, -2.0, NAN, INF])
def test_guard(guard: float) -> None:
    refused(lambda: difficulty(ZERO, ZERO - 1, guard=guard), f"guard = {guard:g}")
    refused(lambda: LensConfig(guard=guard), f"guard = {guard:g}")


@pytest.mark.parametrize("confidence", [NAN, INF])
def test_log_confidence(confidence: float) -> None:
    bad, message = at(confidence, -1.0), f"log_confidence[1, 0] = {confidence:g}"
    refused(lambda: importance_difficulty(ZERO, bad), message, ValueError)
    refused(lambda: difficulty(ZERO, bad), message, ValueError)
    named = f"importance_{message}"
    refused(lambda: difficulty(ZERO, ZERO, 2.0, bad), named, ValueError)


@pytest.mark.parametrize("log_difficulty", [-1.0, -2.0, NAN, -INF])
def test_calibrated_reward_beyond_the_pole(log_difficulty: float) -> None:
    """π ≥ D where r < 1: raised, never the +2.25 that the formula would pay at π = .9, D = ½."""
    shared = tensor([5.0, log_difficulty])
    if math.isnan(log_difficulty):
        refused(lambda: calibrated_reward(ZERO + 1, ZERO - 1, shared), "log_difficulty[1, 0] = nan")
    else:
        refused(
            lambda: calibrated_reward(ZERO, ZERO - 1, shared), "log_confidence[1, 0] = -1: pi >= D"
        )
        assert torch.equal(calibrated_reward(ZERO + 1, ZERO - 1, shared), ZERO + 1)
    with pytest.raises(DomainError):
        calibrated_reward(tensor([0.0]), tensor([0.9]).log(), math.log(0.5))
    with pytest.raises(DomainError):  # a hair below 1 is still punished
        calibrated_reward(tensor([1 - 1e-12]), tensor([0.9]).log(), math.log(0.5))


@pytest.mark.parametrize("pi", [0.5, 0.7, NAN, -0.1])
def test_enumerated_policy(pi: float) -> None:
    """D = ½ and p* = 0: every answer counts, sampled or not."""
    for function in (value_negative, value_mle, value_mle_closed_form):
        refused(lambda f=function: f(at(pi, 0.1), ZERO, 0.5), f"pi[1, 0] = {pi:g}")


@pytest.mark.parametrize("p_star", [-0.1, 1.1, NAN])
def test_p_star(p_star: float) -> None:
    bad, message = at(p_star), f"p_star[1, 0] = {p_star:g}"
    refused(lambda: true_difficulty(bad), message)
    refused(lambda: value(ZERO + 0.5, bad), message)
    refused(lambda: value_mle(ZERO + 0.5, bad, 2.0), message)
    refused(lambda: value_mle_closed_form(ZERO + 0.5, bad, 2.0), message)


@pytest.mark.parametrize("function", [mle_loss, bernoulli_nll, mle_coefficient])
def test_samples_beyond_the_pole(function: Callable[..., Any]) -> None:
    """The D of each sample's own question, and ρ too, decide."""
    log_pi = tensor([[0.4, 0.4], [0.4, 0.4]]).log()
    bad = f"log_pi[1, 0] = {math.log(0.4):.9g}: pi >= D"
    refused(lambda: function(log_pi, ZERO, at(0.4, 0.9)), bad)
    refused(lambda: function(log_pi, ZERO, 0.9, at(0.4, 1.0)), bad)
    refused(lambda: function(at(NAN, -1.0), ZERO, 0.9), "log_pi[1, 0] = nan")
    refused(lambda: function(at(0.5, -1.0), ZERO + 1, 0.9), "log_pi[1, 0] = 0.5")
    refused(lambda: function(at(-INF, -1.0), ZERO + 1, 0.9), "log_pi[1, 0] = -inf")
    refused(lambda: function(log_pi, ZERO, at(0.0, 0.9)), "difficulty[1, 0] = 0")
    refused(lambda: function(log_pi, ZERO, at(NAN, 0.9)), "difficulty[1, 0] = nan")
    refused(lambda: function(log_pi, ZERO, 0.9, at(-1.0, 1.0)), "preference[1, 0] = -1")
    refused(lambda: function(log_pi, ZERO, 0.9, at(NAN, 1.0)), "preference[1, 0] = nan")


def test_initial_loss_needs_a_finite_bound_on_correct_samples() -> None:
    refused(lambda: bernoulli_nll(ZERO - 1, ZERO + 1, INF), "log(difficulty * preference)[0, 0]")


@pytest.mark.parametrize("preference", [-1.0, NAN, INF])
def test_preference(preference: float) -> None:
    refused(
        lambda: true_difficulty(ZERO, at(preference, 1.0)), f"preference[1, 0] = {preference:g}"
    )


def test_length_preference() -> None:
    lengths = torch.full((2, 2), 2)
    # Exact: π = e^-1 on [1, 0] against D γ² = .9². Practical: π̄ = e^-½ against γ.
    refused(
        lambda: length_preference_reward(at(-0.1, -1.0), lengths, 0.0, 0.9), "log_pi[1, 0] = -0.1"
    )
    refused(
        lambda: length_preference_reward(at(-0.1, -1.0), lengths, 0.0, 0.9, "practical"),
        "log_pi[1, 0] = -0.1: gamma = 0.9 <= pi_bar",
    )
    refused(
        lambda: length_preference_reward(at(NAN, -1.0), lengths, 0.0, 0.9), "log_pi[1, 0] = nan"
    )
    equal = tensor([2 * math.log(0.9)])  # γ = π̄ is outside too
    refused(
        lambda: length_preference_reward(equal, torch.tensor([2]), 0.0, 0.9, "practical"),
        "log_pi[0] = -0.210721",
    )
    refused(
        lambda: length_preference_reward(ZERO - 9, lengths, tensor([0.0, NAN]), 0.9),
        "log_difficulty[1, 0] = nan",
    )
    for gamma in (0.0, -1.0, NAN, INF):
        refused(
            lambda g=gamma: length_preference_reward(ZERO - 1, lengths, 0.0, g),
            f"gamma = {gamma:g}",
        )
    refused(
        lambda: length_preference_reward(ZERO - 9, lengths, 0.0, 0.9, "practicle"),
        "'practicle': did you mean 'practical'?",
        ValueError,
    )


def loss(**odd: Any) -> Any:
    fields = {
        "new_logprobs": ZERO - 1,
        "old_logprobs": ZERO - 1,
        "advantages": ZERO,
        "mask": ONES,
    }
    return grpo_loss(**{**fields, **odd})


@pytest.mark.parametrize("x", [NAN, INF, -INF])
def test_unmasked_numbers_of_the_loss(x: float) -> None:
    for name in ("new_logprobs", "old_logprobs", "advantages"):
        refused(lambda n=name: loss(**{n: at(x, -1.0)}), f"{name}[1, 0] = {x:g}", ValueError)
        output = loss(**{name: at(x, -1.0)}, mask=at(0.0, 1.0).bool())
        assert output.loss.isfinite()
    refused(lambda: loss(advantages=tensor([0.0, x])), f"advantages[1, 0] = {x:g}", ValueError)


def test_validation_of_the_loss_can_be_skipped() -> None:
    assert not loss(new_logprobs=at(NAN), advantages=ZERO + 1, validate=False).loss.isfinite()


def test_a_ratio_that_overflows() -> None:
    refused(lambda: loss(new_logprobs=at(800.0, -1.0)), "log ratio[1, 0] = 801", ValueError)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"aggregation": "sequence"}, "unknown aggregation 'sequence'"),
        ({"aggregation": "token-mean"}, "did you mean 'token_mean'?"),
        ({"aggregation": "constant"}, "needs a denominator"),
        ({"denominator": 0}, "denominator = 0"),
        ({"denominator": -3.0}, "denominator = -3"),
        ({"denominator": NAN}, "denominator = nan"),
        ({"clip_low": -0.1}, "clip_low = -0.1"),
        ({"clip_high": NAN}, "clip_high = nan"),
        ({"new_logprobs": torch.zeros(4)}, "new_logprobs has shape (4,)"),
        ({"old_logprobs": torch.zeros(2, 3)}, "old_logprobs has shape (2, 3)"),
        ({"mask": torch.ones(2, 3)}, "mask has shape (2, 3)"),
        ({"advantages": torch.zeros(3)}, "advantages has shape (3,)"),
    ],
)
def test_arguments_of_the_loss(fields: dict[str, Any], message: str) -> None:
    refused(lambda: loss(**fields), message, ValueError)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rewards": torch.zeros(2, 0)}, "rewards has shape (2, 0)"),
        ({"rewards": torch.tensor(1.0)}, "rewards has shape ()"),
        ({"logprobs": torch.zeros(2, 3)}, "logprobs has shape (2, 3): expected (2, 2)"),
        ({"lengths": torch.ones(2)}, "lengths has shape (2,)"),
        ({"valid": torch.ones(2, 1)}, "valid has shape (2, 1)"),
        ({"truncated": torch.ones(3, 2)}, "truncated has shape (3, 2)"),
        ({"mask": torch.ones(2, 2)}, "mask has shape (2, 2): expected (2, 2, 'T')"),
        ({"token_logprobs": torch.ones(2, 3, 9)}, "token_logprobs has shape (2, 3, 9)"),
        ({"entropy": torch.ones(2)}, "entropy has shape (2,)"),
        ({"prior": torch.ones(2, 2)}, "prior has shape (2, 2): expected (2,)"),
    ],
)
def test_shapes_of_rollouts(fields: dict[str, Any], message: str) -> None:
    refused(lambda: rollouts(**fields), message, ValueError)


def test_shapes_that_do_not_line_up() -> None:
    three = torch.zeros(3)
    refused(
        lambda: calibrated_reward(ZERO, ZERO - 1, three),
        "log_difficulty has shape (3,): expected one number a question, (2,)",
        ValueError,
    )
    refused(
        lambda: calibrated_reward(ZERO, ZERO - 1, 0.0, scale=three),
        "scale has shape (3,)",
        ValueError,
    )
    refused(lambda: value_mle(ZERO, ZERO, three + 1), "difficulty has shape (3,)", ValueError)
    refused(lambda: group_kind(torch.zeros(2, 0)), "rewards has shape (2, 0)", ValueError)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"alpha": -0.1}, "alpha = -0.1"),
        ({"alpha": NAN}, "alpha = nan"),
        ({"alpha": None}, "alpha = None"),
        ({"eps": -1e-9}, "eps = -1e-09"),
        ({"eps": tensor(-1.0)}, "eps = tensor(-1., dtype=torch.float64): must be a finite number"),
        ({"alpha": True}, "alpha = True"),
        ({"alpha": tensor([0.5])}, "alpha = tensor([0.5000]"),
        ({"guard": True}, "guard = True"),
        ({"ddof": True}, "ddof = True"),
        ({"ddof": "0"}, "ddof = '0'"),
        ({"ddof": 2}, "ddof = 2"),
        ({"mixed_scale": "1/g"}, "mixed_scale = '1/g'"),
        ({"negative_scale": -1.0}, "negative_scale = -1.0"),
        ({"negative_scale": INF}, "negative_scale = inf"),
        ({"confidence": "raw"}, "confidence = 'raw'"),
        ({"difficulty_confidence": "sequences"}, "did you mean 'sequence'?"),
        ({"mixed_norm": "demean_std"}, "mixed_norm = 'demean_std'"),
        ({"negative_norm": "std"}, "negative_norm = 'std'"),
        ({"baseline": "none"}, "baseline = 'none'"),
        ({"truncated": "drop"}, "truncated = 'drop'"),
        ({"groups": "correct"}, "groups = 'correct'"),
    ],
)
def test_config(fields: dict[str, Any], message: str) -> None:
    refused(lambda: LensConfig(**fields), message, ValueError)


def test_preset_names_and_fields() -> None:
    refused(lambda: LensConfig.preset("papper"), "'papper': did you mean 'paper'?", ValueError)
    refused(lambda: LensConfig.preset("paper", alfa=1), "'alfa'", ValueError)
    refused(lambda: LensConfig.preset("paper", alpha=-1), "alpha = -1", ValueError)


@pytest.mark.parametrize("rule", ["mask", "exclude_from_max"])
def test_truncation_rule_without_flags(rule: Any) -> None:
    refused(
        lambda: lens_advantages(rollouts(), LensConfig(truncated=rule)),
        "needs rollouts.truncated",
        ValueError,
    )


@pytest.mark.parametrize(
    ("n", "c", "k", "message"),
    [
        (4, 1, 5, "k must not exceed n"),
        (4, 1, 0, "k must be at least 1"),
        (4, 5, 2, "c must lie between 0 and n"),
        (4, -1, 2, "c must lie between 0 and n"),
        (4, 1.5, 2, "c = 1.5: must be a whole number"),
        (4, tensor([1.0, NAN]), 2, "c[1] = nan: must be a whole number"),
        (INF, 1, 2, "n = inf: must be a whole number"),
        ("4", 2, 1, "n = '4': a number or a tensor is needed"),
        (4, None, 1, "c = None: a number or a tensor is needed"),
        (
            torch.tensor([4, 2]),
            torch.tensor([1, 1]),
            3,
            "k must not exceed n: sample more answers (n = 2, c = 1, k = 3) at [1]",
        ),
        (4, torch.tensor([[1, 1], [7, 9]]), 2, "(n = 4, c = 7, k = 2) at [1, 0]"),
    ],
)
def test_pass_at_k(n: Any, c: Any, k: Any, message: str) -> None:
    refused(lambda: pass_at_k(n, c, k), message, ValueError)
