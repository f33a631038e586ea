"""Which rows count: ragged groups, truncated responses, groups of one, empty batches."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lens_ref import LensConfig, Rollouts, Signal, group_kind, lens_advantages, methods
from tests.core.helpers import (
    F64,
    GOLDEN,
    Group,
    assert_close,
    configs,
    group,
    groups,
    tensor,
)

CONFIDENCE = [0.99, 0.8, 0.5, 0.2]  # the first or the last one is truncated below
ROW_INFO = ("log_confidence", "odds", "calibrated_reward")


def padded(members: list[Group], pattern: list[list[bool]]) -> Rollouts:
    """The groups in one batch; where the pattern is False stand rows of garbage."""
    shape = (len(members), len(pattern[0]))
    rewards = torch.full(shape, math.nan, dtype=F64)
    logprobs = torch.full(shape, math.nan, dtype=F64)
    logprobs[:, ::2] = 5.0
    lengths = torch.zeros(shape, dtype=torch.long)
    truncated = torch.ones(shape, dtype=torch.bool)
    valid = torch.tensor(pattern)
    for q, member in enumerate(members):
        rewards[q, valid[q]] = tensor(member.rewards)
        logprobs[q, valid[q]] = tensor(member.logprobs)
        lengths[q, valid[q]] = torch.tensor(member.lengths)
        truncated[q, valid[q]] = torch.tensor(member.truncated)
    return Rollouts(rewards, logprobs, lengths, valid=valid, truncated=truncated)


def assert_equals_alone(signal: Signal, alone: Signal, q: int, rows: Tensor) -> None:
    """Question q of a batch, its valid rows, against the same group by itself; zeros elsewhere."""
    assert_close(signal.advantages[q, rows], alone.advantages[0], 1e-11)
    assert torch.equal(signal.keep[q, rows], alone.keep[0])
    for name in ROW_INFO:
        assert_close(signal.info[name][q, rows], alone.info[name][0], 1e-13, name)
        assert (signal.info[name][q, ~rows] == 0).all()
    assert signal.info["group_kind"][q] == alone.info["group_kind"][0]
    gap = signal.info["log_difficulty"][q] - alone.info["log_difficulty"][0]
    assert gap.abs() < 1e-12
    assert (signal.advantages[q, ~rows] == 0).all()
    assert not signal.keep[q, ~rows].any()


@given(st.lists(groups(), min_size=1, max_size=4), configs(), st.randoms(use_true_random=False))
def test_a_batch_equals_each_group_alone(
    members: list[Group], config: LensConfig, rng: Any
) -> None:
    """Ragged groups at scattered rows: each gives what the smaller group gives by itself."""
    width = max(len(m.rewards) for m in members) + 1
    pattern = []
    for member in members:
        row = [i < len(member.rewards) for i in range(width)]
        rng.shuffle(row)
        pattern.append(row)
    signal = lens_advantages(padded(members, pattern), config)
    for q, member in enumerate(members):
        alone = lens_advantages(member.rollouts(), config)
        assert_equals_alone(signal, alone, q, torch.tensor(pattern[q]))


def test_golden_groups_in_one_batch() -> None:
    members = [
        Group(g["rewards"], g["logprobs"], g["lengths"], [False] * len(g["rewards"]))
        for g in GOLDEN["groups"]
    ]
    pattern = [[i < len(m.rewards) for i in range(16)] for m in members]
    signal = lens_advantages(padded(members, pattern))
    for q, case in enumerate(GOLDEN["groups"]):
        if case["alpha"] == 0.25:
            expected = case["readings"]["dimp_raw"]["advantages"]
            assert_close(signal.advantages[q, : len(expected)], expected, 1e-12, case["id"])


@given(groups(), configs(truncated="keep"))
def test_masked_truncation_is_the_same_as_not_valid(member: Group, config: LensConfig) -> None:
    rollouts = member.rollouts()
    masked = lens_advantages(rollouts, LensConfig(**{**config.__dict__, "truncated": "mask"}))
    invalid = Rollouts(
        rollouts.rewards, rollouts.logprobs, rollouts.lengths, valid=~rollouts.truncated
    )
    expected = lens_advantages(invalid, config)
    assert torch.equal(masked.advantages, expected.advantages)
    assert torch.equal(masked.keep, expected.keep)
    for name, values in expected.info.items():
        assert torch.equal(masked.info[name], values)


def truncated_group(*flags: bool) -> Rollouts:
    return group([0.0] * 4, CONFIDENCE, truncated=torch.tensor([list(flags)]))


def test_truncation_rules_by_hand() -> None:
    """A repetitive response of π̄ = .99 that ran into the limit sets D = 1.98, unless left out."""
    rollouts = truncated_group(True, False, False, False)
    kept = lens_advantages(rollouts)
    assert_close(kept.info["odds"][0], [1, 0.8 / 1.18, 0.5 / 1.48, 0.2 / 1.78], 1e-13)

    masked = lens_advantages(rollouts, LensConfig(truncated="mask"))
    odds = [1, 0.5 / 1.1, 0.2 / 1.4]  # D = 1.6, G = 3
    mean = sum(odds) / 3
    assert_close(masked.info["odds"][0], [0, *odds], 1e-13)
    assert_close(masked.advantages[0], [0, *(0.25 * (mean - u) / 3 for u in odds)], 1e-13)
    assert masked.keep.tolist() == [[False, True, True, True]]

    capped = lens_advantages(rollouts, LensConfig(truncated="exclude_from_max"))
    odds = [1, 1, 0.5 / 1.1, 0.2 / 1.4]  # D = 1.6, and .99 counts as .8
    mean = sum(odds) / 4
    assert_close(capped.info["odds"][0], odds, 1e-13)
    assert capped.info["log_confidence"].exp()[0, :2].tolist() == pytest.approx([0.8, 0.8])
    assert_close(capped.advantages[0], [0.25 * (mean - u) / 4 for u in odds], 1e-13)
    assert capped.keep.all()


def test_a_truncated_response_below_the_maximum_keeps_its_confidence() -> None:
    rollouts = truncated_group(False, False, False, True)
    capped = lens_advantages(rollouts, LensConfig(truncated="exclude_from_max"))
    assert_close(capped.advantages[0], lens_advantages(rollouts).advantages[0], 0.0)


def test_all_truncated() -> None:
    rollouts = truncated_group(True, True, True, True)
    capped = lens_advantages(rollouts, LensConfig(truncated="exclude_from_max"))
    assert_close(capped.advantages[0], lens_advantages(rollouts).advantages[0], 0.0)
    masked = lens_advantages(rollouts, LensConfig(truncated="mask"))
    assert masked.advantages.tolist() == [[0.0] * 4]
    assert not masked.keep.any()
    assert all((values == 0).all() for values in masked.info.values())


def test_masked_rows_may_hold_anything() -> None:
    rollouts = Rollouts(
        tensor([[math.nan, 0.0, 0.0]]),
        tensor([[-math.inf, -1.0, -2.0]]),
        torch.tensor([[0, 1, 1]]),
        truncated=torch.tensor([[True, False, False]]),
    )
    signal = lens_advantages(rollouts, LensConfig(truncated="mask"))
    alone = lens_advantages(
        Rollouts(tensor([[0.0, 0.0]]), tensor([[-1.0, -2.0]]), torch.ones(1, 2))
    )
    assert signal.advantages[0, 1:].tolist() == alone.advantages[0].tolist()
    with pytest.raises(ValueError, match=r"rewards\[0, 0\] = nan"):
        lens_advantages(rollouts)  # kept, the row must be in order


@pytest.mark.parametrize("method", ["grpo", "dr_grpo", "lens"])
def test_no_valid_row(method: str) -> None:
    rollouts = Rollouts(
        tensor([[math.nan, 7.0], [1.0, 0.0]]),
        tensor([[math.nan, 7.0], [-1.0, -1.0]]),
        torch.tensor([[0, -3], [1, 1]]),
        valid=torch.tensor([[False, False], [True, True]]),
    )
    signal = methods.get(method)(rollouts)
    assert signal.advantages[0].tolist() == [0.0, 0.0]
    assert signal.keep.tolist() == [[False, False], [True, True]]
    assert all((values[0] == 0).all() for values in signal.info.values())
    assert signal.advantages[1, 0] > 0


@pytest.mark.parametrize("reward", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("norm", ["demean", "demean_std", "posterior_std"])
@pytest.mark.parametrize("baseline", ["group", "leave_one_out"])
@pytest.mark.parametrize("ddof", [0, 1])
def test_group_of_one(reward: float, norm: str, baseline: str, ddof: int) -> None:
    config = LensConfig(negative_norm=norm, baseline=baseline, ddof=ddof)  # type: ignore[arg-type]
    rollouts = group([reward], [0.5])
    assert lens_advantages(rollouts, config).advantages.tolist() == [[0.0]]
    assert methods.get("grpo", ddof=ddof)(rollouts).advantages.tolist() == [[0.0]]
    ragged = Rollouts(
        tensor([[math.nan, reward]]),
        tensor([[0.0, -1.0]]),
        torch.ones(1, 2),
        valid=torch.tensor([[False, True]]),
    )
    assert lens_advantages(ragged, config).advantages.tolist() == [[0.0, 0.0]]


def test_empty_batch_and_other_leading_axes() -> None:
    empty = Rollouts(torch.zeros(0, 4), torch.zeros(0, 4), torch.ones(0, 4))
    assert lens_advantages(empty).advantages.shape == (0, 4)
    rewards = tensor([[0.0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1], [0.5, 0, 0, 1]])
    logprobs = tensor([CONFIDENCE] * 4).log()
    lengths = torch.ones(4, 4)
    flat = lens_advantages(Rollouts(rewards, logprobs, lengths))
    for shape in ((2, 2, 4), (4, 1, 4)):
        deep = lens_advantages(
            Rollouts(rewards.view(shape), logprobs.view(shape), lengths.view(shape))
        )
        assert torch.equal(deep.advantages, flat.advantages.view(shape))
        assert deep.info["group_kind"].shape == shape[:-1]
    single = lens_advantages(Rollouts(rewards[1], logprobs[1], lengths[1]))
    assert torch.equal(single.advantages, flat.advantages[1])
    assert single.info["group_kind"].shape == ()


def test_kind_counts_valid_rows_only() -> None:
    rewards = tensor([[0.0, 1.0], [1.0, 0.0], [math.nan, 1.0], [math.nan, math.nan]])
    valid = torch.tensor([[True, False], [True, False], [False, True], [False, False]])
    assert group_kind(rewards, valid).tolist() == [0, 2, 2, 0]
