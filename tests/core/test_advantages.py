"""Hand-computed advantages: the paper's own examples, every preset, every switch.

The groups here have round numbers, so that each fraction can be checked on paper.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from lens_ref import (
    LensConfig,
    Rollouts,
    calibrated_reward,
    group_kind,
    lens_advantages,
    neg_to_mixed_rms,
)
from tests.core.helpers import F64, assert_close, group, tensor

NEGATIVE = ([0.0, 0, 0, 0], [0.9, 0.8, 0.5, 0.2])  # D = 1.8
MIXED = ([1.0, 0, 0, 0], [0.9, 0.8, 0.5, 0.2], [2, 2, 2, 2])  # π = .81, .64, .25, .04
ODDS = [1.0, 0.8, 5 / 13, 1 / 8]  # of NEGATIVE: .9/.9, .8/1.0, .5/1.3, .2/1.6


def advantages(rollouts: Rollouts, config: LensConfig | None = None, **fields: Any) -> torch.Tensor:
    return lens_advantages(rollouts, config or LensConfig(**fields)).advantages[0]


def test_negative_group() -> None:
    signal = lens_advantages(group(*NEGATIVE))
    assert signal.info["group_kind"].tolist() == [0]
    assert signal.info["log_difficulty"].exp().item() == pytest.approx(1.8)
    assert_close(signal.info["odds"][0], ODDS, 1e-14)
    assert_close(
        signal.info["calibrated_reward"][0], [-0.25, -0.2, -0.0961538461538, -0.03125], 1e-11
    )
    # De-meaned, the less confident wrong answers are *raised*.
    expected = [-0.0264122596154, -0.0139122596154, 0.0120492788462, 0.0282752403846]
    assert_close(signal.advantages[0], expected, 1e-10)


def test_mixed_group_first_correct() -> None:
    config = LensConfig.preset("normalized_difficulty")
    info = lens_advantages(group(*MIXED), config).info
    assert info["log_difficulty"].exp().item() == pytest.approx(3.6)
    assert_close(info["calibrated_reward"][0], [1, -0.0714286, -0.0403226, -0.0147059], 1e-7)


def test_mixed_group_last_correct_the_guard_decides() -> None:
    rollouts = group([0.0, 0, 0, 1], [0.9, 0.8, 0.5, 0.2])
    info = lens_advantages(rollouts, LensConfig.preset("normalized_difficulty")).info
    assert info["log_difficulty"].exp().item() == pytest.approx(1.8)
    assert_close(info["calibrated_reward"][0], [-0.25, -0.2, -0.0961538461538, 1], 1e-11)


def test_eight_responses() -> None:
    confidence = [0.9 - 0.05 * i for i in range(8)]
    expected = [-0.0096, -0.0063, -0.0033, -0.0006, 0.0018, 0.0040, 0.0061, 0.0079]
    actual = advantages(group([0.0] * 8, confidence))
    assert actual.tolist() == pytest.approx(expected, abs=5.1e-5)
    one = advantages(group([1.0] + [0.0] * 7, confidence), ddof=1)
    assert one[[0, 1, 7]].tolist() == pytest.approx([2.4748, -0.3626, -0.3447], abs=5.1e-5)
    four = advantages(group([1.0] * 4 + [0.0] * 4, confidence), ddof=1)
    assert four[3:].tolist() == pytest.approx(
        [0.9353, -0.9575, -0.9419, -0.9276, -0.9144], abs=5.1e-5
    )


@pytest.mark.parametrize(
    "config", [LensConfig(), LensConfig.preset("no_demean"), LensConfig(mixed_norm="none")]
)
def test_correct_group_is_exactly_zero(config: LensConfig) -> None:
    signal = lens_advantages(group([1.0] * 4, [0.9, 0.8, 0.5, 0.2]), config)
    assert signal.advantages.tolist() == [[0.0] * 4]
    assert signal.info["group_kind"].tolist() == [2]
    assert signal.keep.all()


def test_paper_example_needs_the_scale() -> None:
    """Calibrated [1, 0, −1, …, −1]: unscaled, the mean is −.8125 and the second response, wrong,
    gets a positive advantage. With 1/16 the mean is 1/128 and it doesn't."""
    rollouts = group([1.0] + [0.0] * 15, [0.8, 1e-30] + [0.8] * 14, [300] * 16)
    for preset, mean, penalty in (("no_scale", -0.8125, -1.0), ("paper", 0.0078125, -1 / 16)):
        signal = lens_advantages(rollouts, LensConfig.preset(preset))
        calibrated = signal.info["calibrated_reward"][0]
        assert calibrated[:3].tolist() == pytest.approx([1, 0, penalty], abs=1e-12)
        assert calibrated.mean().item() == pytest.approx(mean)
        assert (signal.advantages[0, 1] > 0).item() is (preset == "no_scale")


def test_most_confident_wrong_answer_pays_one_over_g_at_any_confidence() -> None:
    """Only relative confidence counts: π̄ = 10^-6 for the most confident changes nothing."""
    for top in (0.9, 1e-6):
        calibrated = lens_advantages(
            group([0.0] * 4, [top, top / 2, top / 3, top / 4], [7, 5, 3, 2])
        ).info["calibrated_reward"][0]
        assert_close(calibrated, [-1 / 4, -1 / 12, -1 / 20, -1 / 28], 1e-12)


def test_calibrated_reward_literals() -> None:
    half, nine = math.log(0.5), math.log(0.9)
    rewards = tensor([[1.0, 0.0, 0.5]])
    result = calibrated_reward(rewards, tensor([[nine, half, half]]), math.log(2.0))
    assert_close(result[0], [1, -1 / 3, 0.5 - 0.5 / 3], 1e-14)
    scaled = calibrated_reward(rewards, tensor([[nine, half, half]]), math.log(2.0), scale=0.25)
    assert_close(scaled[0], [1, -1 / 12, 0.5 - 0.5 / 12], 1e-14)
    # A correct answer may lie beyond D, impossible answers and D = ∞ cost nothing.
    assert calibrated_reward(tensor([1.0]), tensor([nine]), half).tolist() == [1.0]
    assert calibrated_reward(tensor([0.0]), tensor([-math.inf]), half).tolist() == [0.0]
    assert calibrated_reward(tensor([0.0]), tensor([half]), math.inf).tolist() == [0.0]


def test_scale_of_one_number_a_question() -> None:
    log_confidence = tensor([[0.5, 0.5], [0.5, 0.5]]).log()
    result = calibrated_reward(
        torch.zeros(2, 2, dtype=F64), log_confidence, tensor([1.0, 2.0]).log(), tensor([1.0, 3.0])
    )
    assert_close(result, [[-1.0, -1.0], [-1.0, -1.0]], 1e-14)


def test_group_kind() -> None:
    rewards = tensor([[0.0, 0], [0, 1], [1, 1], [0.5, 0.5], [0, 0.1], [1, 0.9]])
    assert group_kind(rewards).tolist() == [0, 1, 2, 1, 1, 1]
    assert group_kind(rewards.reshape(3, 2, 2)).shape == (3, 2)
    assert not group_kind(rewards).is_floating_point()


# Every preset on NEGATIVE and on MIXED, worked out in fractions. NEGATIVE: mean odds 1201/2080.
# MIXED, odds of the three wrong answers: D = 4·.81 = 3.24 (paper) 80/244, 50/274, 20/304;
# D = 4·.9 = 3.6 (normalized) 80/280, 50/310, 20/340; π under D = 3.24 (raw) 64/260, 25/299, 4/320.
PRESETS: dict[str, tuple[dict[str, Any], list[float], list[float]]] = {
    "paper": (
        {},
        [-0.02641225961538, -0.01391225961538, 0.01204927884615, 0.02827524038462],
        [1.7297896349674, -0.6513233730205, -0.5713340923109, -0.5071321696361],
    ),
    "normalized_difficulty": (
        {"difficulty_confidence": "length_normalized"},
        [-0.02641225961538, -0.01391225961538, 0.01204927884615, 0.02827524038462],
        [1.7303376413165, -0.6415909240985, -0.5727284818768, -0.5160182353412],
    ),
    "raw_all": (
        {"confidence": "sequence"},
        [-0.02641225961538, -0.01391225961538, 0.01204927884615, 0.02827524038462],
        [1.7300968205424, -0.6507487507482, -0.5596105223576, -0.5197375474367],
    ),
    "neg_unscaled": (
        {"negative_scale": 1.0},
        [-0.10564903846154, -0.05564903846154, 0.04819711538462, 0.11310096153846],
        [1.7297896349674, -0.6513233730205, -0.5713340923109, -0.5071321696361],
    ),
    "no_scale": (
        {"mixed_scale": 1.0, "negative_scale": 1.0},
        [-0.10564903846154, -0.05564903846154, 0.04819711538462, 0.11310096153846],
        [1.7046939979305, -0.8272091305531, -0.5499934595513, -0.3274914078261],
    ),
    "negative_std": (
        {"negative_norm": "demean_std"},
        [-0.30821871355410, -0.16234956129186, 0.14060944725278, 0.32995882759318],
        [1.7297896349674, -0.6513233730205, -0.5713340923109, -0.5071321696361],
    ),
    "no_demean": (
        {"negative_norm": "none", "negative_scale": 1.0},
        [-0.25, -0.2, -0.09615384615385, -0.03125],
        [1.7297896349674, -0.6513233730205, -0.5713340923109, -0.5071321696361],
    ),
    "likelihood": (
        {"alpha": 1.0, "mixed_scale": 1.0, "negative_scale": 1.0, "mixed_norm": "demean"},
        [-0.42259615384615, -0.22259615384615, 0.19278846153846, 0.45240384615385],
        [0.8940350194920, -0.4338338329670, -0.2884467323328, -0.1717544541922],
    ),
}


def test_presets_are_the_documented_ones() -> None:
    assert set(LensConfig.presets()) == set(PRESETS)
    default = dataclasses.asdict(LensConfig())
    assert default == {
        "alpha": 0.25,
        "guard": 2.0,
        "confidence": "length_normalized",
        "difficulty_confidence": "sequence",
        "mixed_scale": "1/G",
        "negative_scale": "1/G",
        "mixed_norm": "std",
        "negative_norm": "demean",
        "baseline": "group",
        "ddof": 0,
        "eps": 0.0,
        "truncated": "keep",
        "groups": "all",
    }
    for name, (fields, _, _) in PRESETS.items():
        assert dataclasses.asdict(LensConfig.preset(name)) == {**default, **fields}, name


@pytest.mark.parametrize("name", list(PRESETS))
def test_preset_by_hand(name: str) -> None:
    _, negative, mixed = PRESETS[name]
    config = LensConfig.preset(name)
    assert_close(advantages(group(*NEGATIVE), config), negative, 1e-12, name)
    assert_close(advantages(group(*MIXED), config), mixed, 1e-12, name)


def test_alpha_multiplies_negative_groups_alone() -> None:
    for alpha, factor in ((0.0, 0.0), (1.0, 4.0), (0.5, 2.0)):
        expected = factor * advantages(group(*NEGATIVE))
        torch.testing.assert_close(advantages(group(*NEGATIVE), alpha=alpha), expected)
        assert torch.equal(advantages(group(*MIXED), alpha=alpha), advantages(group(*MIXED)))


def test_ddof_and_eps() -> None:
    expected = [-0.26692523585961, -0.14059884437201, 0.12177135333299, 0.28575272689862]
    result = advantages(group(*NEGATIVE), negative_norm="demean_std", ddof=1)
    assert_close(result, expected, 1e-12)
    # GRPO of one correct in two: (1 − .5)/(.5 + .5), and std .7071 with ddof 1.
    grpo = {"groups": "negative", "alpha": 0.0}
    rollouts = group([1.0, 0.0], [0.5, 0.5])
    assert advantages(rollouts, eps=0.5, **grpo).tolist() == pytest.approx([0.5, -0.5])
    assert advantages(rollouts, ddof=1, **grpo).tolist() == pytest.approx([2**-0.5, -(2**-0.5)])
    # De-meaned only: neither enters.
    assert torch.equal(advantages(group(*NEGATIVE), ddof=1, eps=1.0), advantages(group(*NEGATIVE)))


def test_leave_one_out_changes_the_mean_alone() -> None:
    """x_i − mean of the other three = 4/3 of x_i − mean of all four."""
    r = [-0.25, -0.2, -5 / 52, -1 / 32]
    expected = [0.25 * (x - (sum(r) - x) / 3) for x in r]
    assert_close(advantages(group(*NEGATIVE), baseline="leave_one_out"), expected, 1e-13)
    for rollouts, norm in (
        (group(*MIXED), {}),
        (group(*NEGATIVE), {"negative_norm": "demean_std"}),
    ):
        plain = advantages(rollouts, **norm)
        result = advantages(rollouts, baseline="leave_one_out", **norm)
        torch.testing.assert_close(result, plain * 4 / 3, rtol=1e-13, atol=0)


def test_posterior_std() -> None:
    """No correct answer in four: p = 1/6 and √(p(1−p)) = √5/6."""
    expected = [-0.07087152952725, -0.03733050986475, 0.03233160789582, 0.07587043149618]
    assert_close(advantages(group(*NEGATIVE), negative_norm="posterior_std"), expected, 1e-12)
    # Four rewards of 1/4: k is their sum, 1, and p = 2/6.
    rollouts = group([0.25] * 4, [0.5, 0.5, 0.25, 0.25])
    half = 0.25 * 0.75 * (3 / 5 - 3 / 13) / 8 / (2**0.5 / 3)
    result = advantages(rollouts, negative_norm="posterior_std")
    assert_close(result, [-half, -half, half, half], 1e-13)


def test_guard() -> None:
    odds = lens_advantages(group(*NEGATIVE), LensConfig(guard=3.0)).info["odds"][0]
    assert_close(odds, [0.9 / 1.8, 0.8 / 1.9, 0.5 / 2.2, 0.2 / 2.5], 1e-13)
    odds = lens_advantages(group(*NEGATIVE), LensConfig(guard=1.5)).info["odds"][0]
    assert odds[0].item() == pytest.approx(2.0)  # 1/(guard − 1)


def test_scale_as_a_number() -> None:
    result = advantages(group(*NEGATIVE), negative_scale=0.5)
    assert_close(result, (2 * advantages(group(*NEGATIVE))).tolist(), 1e-13)
    mixed = lens_advantages(group(*MIXED), LensConfig(mixed_scale=0.5)).info["calibrated_reward"]
    assert_close(mixed[0], [1, -40 / 244, -25 / 274, -10 / 304], 1e-13)


def test_mixed_norms() -> None:
    r = [1, -20 / 244, -12.5 / 274, -5 / 304]
    assert_close(advantages(group(*MIXED), mixed_norm="none"), r, 1e-13)
    mean = sum(r) / 4
    assert_close(advantages(group(*MIXED), mixed_norm="demean"), [x - mean for x in r], 1e-13)


def test_ablation_of_group_kinds() -> None:
    """`groups` says which kinds get calibrated rewards; the others get plain GRPO, that is 0 for
    negative groups."""
    grpo = [3**0.5] + [-(3**-0.5)] * 3
    mixed_only = lens_advantages(group(*NEGATIVE), LensConfig(groups="mixed"))
    assert mixed_only.advantages.tolist() == [[0.0] * 4]
    assert mixed_only.info["calibrated_reward"].tolist() == [[0.0] * 4]
    assert torch.equal(advantages(group(*MIXED), groups="mixed"), advantages(group(*MIXED)))

    negative_only = lens_advantages(group(*MIXED), LensConfig(groups="negative"))
    assert_close(negative_only.advantages[0], grpo, 1e-14)
    assert negative_only.info["calibrated_reward"].tolist() == [[1.0, 0, 0, 0]]
    assert torch.equal(
        advantages(group(*NEGATIVE), groups="negative"), advantages(group(*NEGATIVE))
    )


def test_equal_fractions_take_the_negative_path() -> None:
    """Rewards all .25: standardising would turn pure confidence into a full-strength signal."""
    rollouts = group([0.25] * 4, [0.5, 0.5, 0.25, 0.25])
    signal = lens_advantages(rollouts)
    assert signal.info["group_kind"].tolist() == [1]
    assert signal.info["log_difficulty"].exp().item() == pytest.approx(
        4 / 3
    )  # 4/(½ + ½ + 1 + 1) > 2 · .5
    step = 0.25 * 0.75 * (3 / 5 - 3 / 13) / 8  # α (1 − r) ½ (u₁ − u₂) / G
    assert_close(signal.advantages[0], [-step, -step, step, step], 1e-13)
    unscaled = advantages(rollouts, negative_scale=1.0, mixed_scale=0.0)
    assert_close(unscaled, [-4 * step, -4 * step, 4 * step, 4 * step], 1e-13)
    assert advantages(rollouts, groups="mixed").tolist() == [0.0] * 4
    none = advantages(rollouts, negative_norm="none")
    assert_close(
        none, [0.25 * (0.25 - 0.75 * u / 4) for u in (3 / 5, 3 / 5, 3 / 13, 3 / 13)], 1e-13
    )


@pytest.mark.parametrize("rewards", [[0.7] * 12, [0.1] * 3, [0.0] * 3, [1.0] * 3])
@pytest.mark.parametrize("norm", ["demean", "demean_std", "posterior_std"])
def test_equal_rewards_and_confidences_give_exactly_zero(rewards: list[float], norm: str) -> None:
    """Means of .1 and .7 round: a rounded mean must not become a signal."""
    for dtype in (torch.float32, torch.float64):
        for confidence in (0.1, 0.2, 0.3, 0.37, 0.6, 0.7, 0.9):
            rollouts = group(rewards, [confidence] * len(rewards), dtype=dtype)
            result = advantages(rollouts, negative_norm=norm, mixed_norm="std")
            assert result.tolist() == [0.0] * len(rewards)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("reward", [0.0, 0.25])
@pytest.mark.parametrize("norm", ["demean", "demean_std", "posterior_std"])
def test_confidences_that_rounding_has_parted_are_equal(
    norm: str, reward: float, dtype: torch.dtype
) -> None:
    """Answers of .85 a token and many lengths: L log .85, rounded, over L is log .85 up to the
    last digit, whose standard deviation would divide it up to full strength."""
    random = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, 400, (200, 16), generator=random)
    logprobs = (lengths.double() * math.log(0.85)).to(dtype)
    assert (logprobs / lengths).unique().numel() > 1
    rewards = torch.full((200, 16), reward, dtype=dtype)
    config = LensConfig(negative_norm=norm)  # type: ignore[arg-type]
    assert not lens_advantages(Rollouts(rewards, logprobs, lengths), config).advantages.any()
    logprobs[:, 0] *= 1 + 8 * torch.finfo(dtype).eps
    apart = lens_advantages(Rollouts(rewards, logprobs, lengths), config).advantages
    assert apart.any(-1).all()


def test_identical_negative_group_without_demeaning_is_pushed_down() -> None:
    result = advantages(group([0.0] * 4, [0.3] * 4), LensConfig.preset("no_demean"))
    assert result.tolist() == pytest.approx([-0.25] * 4)


def test_loudness_of_negative_groups() -> None:
    keep = torch.tensor([[True, True], [True, True], [True, False]])
    result = tensor([[3.0, -3.0], [0.3, -0.3], [9.0, 9.0]])
    kind = torch.tensor([1, 0, 2])
    assert neg_to_mixed_rms(result, kind, keep).item() == pytest.approx(0.1)
    by_token = result.unsqueeze(-1).expand(3, 2, 5)
    assert neg_to_mixed_rms(by_token, kind, keep).item() == pytest.approx(0.1)
    for absent in ([1, 1, 1], [0, 0, 0], [2, 2, 2]):
        assert neg_to_mixed_rms(result, torch.tensor(absent), keep).isnan()


def test_loudness_counts_response_tokens_alone() -> None:
    """Lengths 1, 3 and 2, 4: padding, garbage too, has no say."""
    result = tensor([[[3.0, 9, 9, 9], [3, 3, 3, 0]], [[6.0, 6, math.nan, 7], [6, 6, 6, 6]]])
    mask = torch.arange(4) < torch.tensor([[1, 3], [2, 4]]).unsqueeze(-1)
    kind, keep = torch.tensor([0, 1]), torch.ones(2, 2, dtype=torch.bool)
    assert neg_to_mixed_rms(result, kind, keep, mask).item() == pytest.approx(0.5)
    one_a_response = tensor([[3.0, 3.0], [6.0, 6.0]])
    assert neg_to_mixed_rms(one_a_response, kind, keep, mask).item() == pytest.approx(0.5)


def test_printed_signal_of_negative_groups_is_a_thousandth() -> None:
    """G = 16, π̄ spread .03 around .85: about 1:1100 as printed, 1:70 without 1/G, 1:4 with std."""
    g = torch.Generator().manual_seed(0)
    confidence = 0.85 + 0.03 * torch.randn(400, 16, generator=g, dtype=F64)
    rewards = torch.zeros(400, 16, dtype=F64)
    rewards[:200, :4] = 1.0
    rollouts = Rollouts(rewards, confidence.clamp(max=1).log() * 100, torch.full((400, 16), 100))
    for preset, low, high in (
        ("paper", 1 / 1400, 1 / 900),
        ("neg_unscaled", 1 / 90, 1 / 55),
        ("negative_std", 0.2499, 0.2501),
    ):
        signal = lens_advantages(rollouts, LensConfig.preset(preset))
        ratio = neg_to_mixed_rms(signal.advantages, signal.info["group_kind"], signal.keep)
        assert low < ratio.item() < high, preset
