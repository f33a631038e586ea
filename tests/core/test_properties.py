"""Properties of the advantages over random groups and readings."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lens_ref import (
    LensConfig,
    Rollouts,
    Signal,
    calibrated_reward,
    difficulty,
    importance_difficulty,
    length_normalized,
    length_preference_reward,
    lens_advantages,
    methods,
    mle_coefficient,
    true_difficulty,
)
from tests.core.helpers import F64, Group, assert_close, configs, group, groups, tensor

SCALED = ("paper", "normalized_difficulty", "raw_all", "neg_unscaled", "negative_std")


def advantages(member: Group, config: LensConfig) -> Tensor:
    return lens_advantages(member.rollouts(), config).advantages[0]


@given(groups(), configs())
def test_finite_and_detached(member: Group, config: LensConfig) -> None:
    signal = lens_advantages(member.rollouts(), config)
    for values in (signal.advantages, *signal.info.values()):
        assert values.isfinite().all()


@given(groups(["mixed"]), st.sampled_from(SCALED), st.sampled_from([0, 1]))
def test_sign_invariance(member: Group, preset: str, ddof: int) -> None:
    """Binary rewards, 1/G: correct responses get a positive advantage and wrong ones a negative."""
    result = advantages(member, LensConfig.preset(preset, ddof=ddof))
    correct = tensor(member.rewards) == 1
    assert (result[correct] > 0).all()
    assert (result[~correct] < 0).all()


@pytest.mark.parametrize("preset", ["paper", "normalized_difficulty"])
def test_sign_invariance_in_twenty_thousand_groups(preset: str) -> None:
    g = torch.Generator().manual_seed(0)
    size = (20_000, 16)
    share = torch.rand(size[0], 1, generator=g)
    rewards = (torch.rand(size, generator=g) < share).double()
    lengths = torch.randint(1, 300, size, generator=g)
    logprobs = -torch.rand(size, generator=g, dtype=F64) * lengths
    violations = {}
    for scale in ("1/G", 1.0):
        config = LensConfig.preset(preset, mixed_scale=scale)
        signal = lens_advantages(Rollouts(rewards, logprobs, lengths), config)
        mixed = (signal.info["group_kind"] == 1).unsqueeze(-1)
        wrong_sign = (signal.advantages > 0) != (rewards == 1)
        violations[scale] = int((wrong_sign & mixed).sum())
    assert violations["1/G"] == 0
    assert violations[1.0] > 0  # the scale is what does it


@pytest.mark.parametrize("size", [4, 8, 16])
def test_sign_invariance_is_sharp(size: int) -> None:
    """Worst case: one correct answer, one wrong one of confidence 0, all others at the maximum.
    The factor may reach 1/(G−2) and no further: 1/G is sufficient, not necessary."""
    rollouts = group([1.0] + [0.0] * (size - 1), [0.8, 1e-30] + [0.8] * (size - 2), [300] * size)
    for factor, negative in ((1 / size, True), (0.999, True), (1.001, False)):
        scale = factor if factor < 0.5 else factor / (size - 2)
        signal = lens_advantages(rollouts, LensConfig(mixed_scale=scale, mixed_norm="demean"))
        assert (signal.advantages[0, 1] < 0).item() is negative
    gap = -lens_advantages(rollouts, LensConfig(mixed_norm="demean")).advantages[0, 1].item()
    assert gap == pytest.approx(2 / size**2, rel=1e-10)


@given(groups(["negative", "mixed", "correct"]), st.sampled_from(SCALED[:3]))
def test_binary_calibrated_rewards(member: Group, preset: str) -> None:
    """In [−1/G, 0] for a wrong response, 1 for a correct one."""
    info = lens_advantages(member.rollouts(), LensConfig.preset(preset)).info
    calibrated, correct = info["calibrated_reward"][0], tensor(member.rewards) == 1
    assert (calibrated[correct] == 1).all()
    assert (calibrated[~correct] <= 0).all()
    assert (calibrated >= -1 / len(correct) - 1e-12).all()
    assert (info["odds"] <= 1 + 1e-12).all()


@given(groups(["fractional", "equal_fractions"]), st.sampled_from(SCALED[:3]))
def test_fractional_calibrated_rewards(member: Group, preset: str) -> None:
    info = lens_advantages(member.rollouts(), LensConfig.preset(preset)).info
    calibrated, rewards = info["calibrated_reward"][0], tensor(member.rewards)
    assert (calibrated <= rewards).all()
    assert (calibrated >= -1 / len(rewards) - 1e-12).all()


@given(groups(), configs(), st.randoms(use_true_random=False))
def test_permutation_equivariance(member: Group, config: LensConfig, rng: Any) -> None:
    order = list(range(len(member.rewards)))
    rng.shuffle(order)
    expected = advantages(member, config)[order]
    assert_close(advantages(member.take(order), config), expected, 1e-11)


@given(
    groups(["negative"], min_size=2),
    st.integers(1, 2000),
    configs(confidence="length_normalized"),
)
def test_negative_groups_know_relative_confidence_only(
    member: Group, nats: int, config: LensConfig
) -> None:
    """Every π̄ times e^-c leaves a negative group's advantages as they are."""
    expected = advantages(member, config)
    assert_close(advantages(member.shifted(-nats / 64), config), expected, 1e-11)


@given(groups(min_size=2), st.integers(1, 2000))
def test_scale_invariance_of_the_normalized_difficulty(member: Group, nats: int) -> None:
    """With D_imp on π̄ too, it holds for every kind of group."""
    config = LensConfig.preset("normalized_difficulty")
    expected = advantages(member, config)
    assert_close(advantages(member.shifted(-nats / 64), config), expected, 1e-11)


def test_printed_difficulty_is_not_scale_invariant() -> None:
    member = Group([1.0, 0.0, 0.0], [-0.1, -2.0, -3.0], [2, 1, 2], [False] * 3)
    change = advantages(member.shifted(-1.0), LensConfig()) - advantages(member, LensConfig())
    assert change.abs().max() > 1e-3


@given(groups(), configs())
def test_zero_mean(member: Group, config: LensConfig) -> None:
    """Every normalisation but "none" sums to 0 over the rows that count."""
    if "none" in (config.mixed_norm, config.negative_norm):
        return
    result = advantages(member, config)
    assert result.sum().abs() <= 1e-11 * result.abs().max()


@given(groups(["mixed"]), st.sampled_from(LensConfig.presets()))
def test_mixed_variance_is_one(member: Group, preset: str) -> None:
    if preset != "likelihood":
        result = advantages(member, LensConfig.preset(preset))
        assert result.square().mean().item() == pytest.approx(1, rel=1e-11)


@given(
    st.integers(2, 17),
    st.sampled_from(["paper", "normalized_difficulty", "no_scale", "raw_all"]),
    st.data(),
)
def test_equal_odds_give_the_advantages_of_grpo(
    size: int, preset: str, data: st.DataObject
) -> None:
    """Where all wrong answers are equally confident, mixed LENS is GRPO exactly."""
    correct = data.draw(st.integers(1, size - 1))
    token = -data.draw(st.integers(1, 700)) / 256
    rewards = [1.0] * correct + [0.0] * (size - correct)
    rollouts = Group(rewards, [4 * token] * size, [4] * size, [False] * size).rollouts()
    p = correct / size
    high, low = math.sqrt((1 - p) / p), -math.sqrt(p / (1 - p))  # of a standardised 0/1 reward
    expected = [high] * correct + [low] * (size - correct)
    result = lens_advantages(rollouts, LensConfig.preset(preset)).advantages[0]
    assert_close(result, expected, 1e-12)
    assert_close(methods.get("grpo")(rollouts).advantages[0], expected, 1e-12)


@given(
    st.floats(-30, 0),
    st.integers(1, 5000),
    st.integers(1, 24),
    st.sampled_from([0.0, 0.1, 0.7]),
    configs(),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_identical_groups_are_exactly_zero(
    logprob: float, length: int, size: int, reward: float, config: LensConfig, dtype: torch.dtype
) -> None:
    """With eps = 0 and under every norm that de-means, whatever the numbers round to."""
    shape = (1, size)
    rollouts = Rollouts(
        torch.full(shape, reward, dtype=dtype),
        torch.full(shape, logprob, dtype=dtype),
        torch.full(shape, length),
        truncated=torch.zeros(shape, dtype=torch.bool),
    )
    if config.negative_norm != "none":
        assert (lens_advantages(rollouts, config).advantages == 0).all()


@given(groups(), configs(groups="all", negative_norm="demean"))
def test_alpha_zero_is_mixed_only(member: Group, config: LensConfig) -> None:
    silent = LensConfig(**{**config.__dict__, "alpha": 0.0})
    mixed_only = LensConfig(**{**config.__dict__, "groups": "mixed"})
    assert (advantages(member, silent) == advantages(member, mixed_only)).all()


@given(groups(), st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([0, 1]))
def test_negative_only_is_grpo_plus_the_negative_groups(
    member: Group, alpha: float, ddof: int
) -> None:
    result = advantages(member, LensConfig(groups="negative", alpha=alpha, ddof=ddof))
    if len(set(member.rewards)) == 1:
        expected = advantages(member, LensConfig(alpha=alpha))
    else:
        expected = methods.get("grpo", ddof=ddof)(member.rollouts()).advantages[0]
    assert torch.equal(result, expected)


@given(groups(), st.sampled_from([0, 1]), st.sampled_from([0.0, 1e-6]))
def test_grpo_is_a_lens_config(member: Group, ddof: int, eps: float) -> None:
    as_lens = LensConfig(groups="negative", alpha=0.0, ddof=ddof, eps=eps)
    expected = methods.get("grpo", ddof=ddof, eps=eps)(member.rollouts()).advantages[0]
    assert (advantages(member, as_lens) == expected).all()


@given(groups(), st.sampled_from(LensConfig.presets()))
def test_float32_input(member: Group, preset: str) -> None:
    """float32 in, float32 out, and only the rounding of the inputs is lost."""
    config = LensConfig.preset(preset)
    rounded = member.rollouts(torch.float32)
    widened = Rollouts(rounded.rewards.double(), rounded.logprobs.double(), rounded.lengths)
    signal = lens_advantages(rounded, config)
    assert signal.advantages.dtype == torch.float32
    expected = lens_advantages(widened, config).advantages
    assert_close(signal.advantages, expected, 1e-6)


def test_float32_at_4096_tokens() -> None:
    """Sums of 4096 token log-probabilities, kept in float32."""
    g = torch.Generator().manual_seed(0)
    tokens = -torch.rand(8, 16, 4096, generator=g, dtype=F64).square()
    lengths = torch.randint(2048, 4097, (8, 16), generator=g)
    tokens = tokens.where(torch.arange(4096) < lengths.unsqueeze(-1), 0.0)
    rewards = (torch.rand(8, 16, generator=g) < torch.linspace(0, 0.6, 8).unsqueeze(-1)).double()
    exact = lens_advantages(Rollouts(rewards, tokens.sum(-1), lengths))
    single = lens_advantages(Rollouts(rewards.float(), tokens.float().sum(-1), lengths))
    for q in range(8):
        assert_close(single.advantages[q], exact.advantages[q], 5e-5)
    assert_close(single.info["odds"], exact.info["odds"], 1e-5)


def test_half_precision_rewards_do_not_merge_close_confidences() -> None:
    confidence = [0.80, 0.801, 0.802, 0.803, 0.81]
    logprobs = tensor([confidence], torch.float32).log()
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        rollouts = Rollouts(torch.zeros(1, 5, dtype=dtype), logprobs, torch.ones(1, 5))
        result = lens_advantages(rollouts).advantages[0]
        assert result.dtype == torch.float32
        assert len(set(result.tolist())) == 5
        assert (result.diff() < 0).all()


def test_nothing_carries_a_gradient() -> None:
    rewards = tensor([[0.0, 0.0], [1.0, 0.0]]).requires_grad_()
    logprobs = tensor([[-1.0, -2.0], [-1.0, -2.0]]).requires_grad_()
    rollouts = Rollouts(rewards, logprobs, torch.ones(2, 2))
    signals: list[Signal] = [methods.get(name)(rollouts) for name in ("grpo", "dr_grpo", "lens")]
    signals += [lens_advantages(rollouts, LensConfig.preset(name)) for name in LensConfig.presets()]
    for signal in signals:
        assert not signal.advantages.requires_grad
        assert not any(values.requires_grad for values in signal.info.values())


def test_reward_side_functions_carry_no_gradient() -> None:
    live = tensor([[-1.0, -2.0], [-1.0, -3.0]]).requires_grad_()
    rewards = tensor([[0.0, 1.0], [0.0, 0.0]]).requires_grad_()
    bound = tensor([0.5, 0.7]).requires_grad_()
    results = (
        length_normalized(live, torch.ones(2, 2)),
        importance_difficulty(rewards, live),
        difficulty(rewards, live),
        calibrated_reward(rewards, live, bound, scale=bound),
        mle_coefficient(live, rewards, bound.exp().unsqueeze(-1)),
        true_difficulty(rewards, rewards),
        length_preference_reward(live, torch.ones(2, 2), bound, 0.9),
        length_preference_reward(live, torch.ones(2, 2), bound, 0.9, "practical"),
    )
    assert not any(result.requires_grad for result in results)


def test_inputs_are_left_alone() -> None:
    rollouts = group(
        [0.0, 1.0, 0.0], [0.5, 0.6, 0.7], truncated=torch.tensor([[True, False, False]])
    )
    before = [rollouts.rewards.clone(), rollouts.logprobs.clone(), rollouts.truncated.clone()]
    for truncated in ("keep", "mask", "exclude_from_max"):
        lens_advantages(rollouts, LensConfig(truncated=truncated))  # type: ignore[arg-type]
    after = (rollouts.rewards, rollouts.logprobs, rollouts.truncated)
    assert all(torch.equal(x, y) for x, y in zip(before, after, strict=True))
