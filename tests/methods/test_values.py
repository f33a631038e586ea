"""Advantages by hand and from published worked examples: G = 8, π̄ = .90, .85, …, .55."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from lens_ref import methods
from tests.core.helpers import tensor
from tests.methods.batches import batch

CONFIDENCE = [[0.9 - 0.05 * i for i in range(8)]]
LENS = {"ddof": 1, "difficulty_confidence": "length_normalized"}


def advantages(name: str, correct: int, **hyperparameters: Any) -> list[float]:
    rollouts = batch([[1.0] * correct + [0.0] * (8 - correct)], CONFIDENCE)
    return methods.get(name, **hyperparameters)(rollouts).advantages[0].tolist()


@pytest.mark.parametrize(
    ("name", "hyperparameters", "negative", "one", "four", "correct"),
    [
        ("grpo", {"ddof": 1}, 0, (2.4749, -0.3536), (0.9354, -0.9354), 0),
        ("rloo", {}, 0, (1, -0.1429), (0.5714, -0.5714), 0),
        ("dapo", {"ddof": 1}, 0, (2.4749, -0.3536), (0.9354, -0.9354), 0),
        ("dr_grpo", {}, 0, (0.875, -0.125), (0.5, -0.5), 0),
        ("ngrpo", {"ddof": 1}, -0.3333, (1.7638, -0.5040), (0.8433, -1.0541), 0),
        ("ngrpo", {}, -0.3536, (1.8708, -0.5345), (0.8944, -1.1180), 0),
        ("w_reinforce", {}, -1, (0.1, -1), (0.1, -1), 0.1),
        ("psr", {}, 0, (1, 0), (1, 0), 1),
        ("nsr", {}, -1, (0, -1), (0, -1), 0),
        ("asymre", {}, 0.1, (0.975, -0.025), (0.6, -0.4), 0.1),
        ("passk", {}, 0, (1, -0.1429), (0.1204, -0.1204), 0),
        ("avspo", {"acr": 0.5}, -0.7276, (2.6458, -0.3780), (1, -1), 0.7276),
        ("reinforce_pp", {}, 0, (2.6458, -0.3780), (1, -1), 0),
        ("ebpo", {}, -0.2, (0.7375, -0.2625), (0.55, -0.45), 0.3),
        ("ebpo", {"strength": 1.0}, -0.4, (0.6, -0.4), (0.6, -0.4), 0.6),
    ],
)
def test_table(
    name: str,
    hyperparameters: dict[str, Any],
    negative: float,
    one: tuple[float, float],
    four: tuple[float, float],
    correct: float,
) -> None:
    for k, (high, low) in (
        (0, (math.nan, negative)),
        (1, one),
        (4, four),
        (8, (correct, math.nan)),
    ):
        expected = [high] * k + [low] * (8 - k)
        found = advantages(name, k, **hyperparameters)
        assert found == pytest.approx(expected, abs=5.1e-5), (name, k)


def test_lens() -> None:
    expected = [-0.0096, -0.0063, -0.0033, -0.0006, 0.0018, 0.0040, 0.0061, 0.0079]
    assert advantages("lens", 0, **LENS) == pytest.approx(expected, abs=5.1e-5)
    one = advantages("lens", 1, **LENS)
    assert [one[0], one[1], one[7]] == pytest.approx([2.4748, -0.3626, -0.3447], abs=5.1e-5)
    four = advantages("lens", 4, **LENS)
    wrong = [-0.9575, -0.9419, -0.9276, -0.9144]
    assert four == pytest.approx([0.9353] * 4 + wrong, abs=5.1e-5)
    assert advantages("lens", 8, **LENS) == [0.0] * 8


def test_rl_zvp() -> None:
    entropy = tensor([[[0.1, 1.2, 0.3, 2.0, 0.0], [0.5, 0.25, 9.0, 9.0, 9.0]]])
    lengths = [[5, 2]]
    method = methods.get("rl_zvp")
    negative = method(batch([[0.0, 0.0]], None, lengths, entropy=entropy)).advantages[0].tolist()
    assert negative[0] == pytest.approx([-0.19, -0.08, -0.17, 0.0, -0.20])
    assert negative[1] == pytest.approx([0.0, -0.025, 0.0, 0.0, 0.0])  # its own maximum, its mask
    correct = method(batch([[1.0, 1.0]], None, lengths, entropy=entropy)).advantages[0].tolist()
    assert correct[0] == pytest.approx([0.01, 0.12, 0.03, 0.2, 0.0])
    assert correct[1] == pytest.approx([0.05, 0.025, 0.0, 0.0, 0.0])
    mixed = method(batch([[1.0, 0.0]], None, lengths, entropy=entropy)).advantages[0].tolist()
    assert mixed == [[1.0] * 5, [-1.0, -1.0, 0.0, 0.0, 0.0]]


def test_reinforce_pp_over_the_batch() -> None:
    """Accuracy 3/8: mean .375, std √(.375 · .625)."""
    rollouts = batch([[1.0, 1, 1, 0], [0.0] * 4])
    std = math.sqrt(0.375 * 0.625)
    found = methods.get("reinforce_pp")(rollouts).advantages
    assert found[1].tolist() == pytest.approx([-0.375 / std] * 4)
    assert found[0].tolist() == pytest.approx([0.625 / std] * 3 + [-0.375 / std])


def test_reinforce_pp_leaks_a_constant_where_wrong_answers_are_longer() -> None:
    """Group baseline, then token whitening: correct 50 tokens, wrong 150. With ±½ in the mixed
    group the token mean is (2·50·½ − 2·150·½)/1000 = −.1; mean square (100+300)·¼/1000 = .1, so
    every response of the uniform group gets .1/√(.1 − .01) = 1/3."""
    rewards = [[1.0, 1, 0, 0], [0.0] * 4]
    lengths = [[50, 50, 150, 150], [150] * 4]
    rollouts = batch(rewards, None, lengths)
    leaking = methods.get("reinforce_pp", baseline="group", weighting="token")(rollouts)
    assert leaking.advantages[1].tolist() == pytest.approx([1 / 3] * 4)
    even = methods.get("reinforce_pp", baseline="group")(rollouts)
    assert even.advantages[1].tolist() == [0.0] * 4


def test_spo_is_whitened_over_the_batch() -> None:
    """Two wrong groups with p̂ = .1 and .5: raw −.1 and −.5, mean −.3, std .2: the hard question's
    wrong answers get +1."""
    rollouts = batch([[0.0, 0.0], [0.0, 0.0]], prior=tensor([0.1, 0.5]))
    found = methods.get("spo")(rollouts).advantages
    assert found.tolist() == [pytest.approx([1.0, 1.0]), pytest.approx([-1.0, -1.0])]
    raw = methods.get("spo", whiten=False)(rollouts).advantages
    assert raw.tolist() == [pytest.approx([-0.1, -0.1]), pytest.approx([-0.5, -0.5])]


def test_whitening_does_not_blow_up_rounding() -> None:
    """Two raw advantages of −.3 that differ in the last bit are no signal."""
    rollouts = batch([[0.0], [0.0]], prior=tensor([0.3, 0.1 + 0.2]))
    assert methods.get("spo")(rollouts).advantages.tolist() == [[0.0], [0.0]]


def test_avspo_gate_and_count() -> None:
    """At G = 4 and rate .25, K = 2: virtual rewards .1 and .05 among four zeros: mean .025, mean
    square .0125/6, so A = −.025/√(.0125/6 − .000625)."""
    expected = -0.025 / math.sqrt(0.0125 / 6 - 0.000625)
    group = [[0.0] * 4]
    ungated = methods.get("avspo", acr=0.25)(batch(group))
    assert ungated.advantages[0].tolist() == pytest.approx([expected] * 4)
    gated = methods.get("avspo")(batch(group, prior=tensor([0.25])))
    assert gated.advantages[0].tolist() == [0.0] * 4
    opened = methods.get("avspo", tau=0.2)(batch(group, prior=tensor([0.25])))
    assert opened.advantages[0].tolist() == pytest.approx([expected] * 4)
    at_tau = methods.get("avspo")(batch(group, prior=tensor([0.5])))
    assert at_tau.advantages[0].tolist() == [0.0] * 4


def test_lens_pooled() -> None:
    """π̄ = .8, .4 with D̂ = 3.2: odds 1/3 and 1/7, mean 5/21; times α = .25. The guard 1.6 wins over
    D̂ = 1: odds 1 and 1/3."""
    pair = [[0.0, 0.0]]
    found = methods.get("lens_pooled")(batch(pair, [[0.8, 0.4]], prior=tensor([3.2])))
    assert found.advantages[0].tolist() == pytest.approx([-0.25 * 2 / 21, 0.25 * 2 / 21])
    assert found.info["log_difficulty"].exp().tolist() == pytest.approx([3.2])
    guarded = methods.get("lens_pooled")(batch(pair, [[0.8, 0.4]], prior=tensor([1.0])))
    assert guarded.advantages[0].tolist() == pytest.approx([-0.25 / 3, 0.25 / 3])
    # mixed groups take D̂ too, not their own D_imp = .8: 1 − (−½ · ⅓) at scale 1/G
    mixed = methods.get("lens_pooled", mixed_norm="none")(
        batch([[1.0, 0.0]], [[0.4, 0.8]], prior=tensor([3.2]))
    )
    assert mixed.advantages[0].tolist() == pytest.approx([1.0, -1 / 6])


def test_kept_rows() -> None:
    rewards = [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    keeps = {
        "psr": rewards,
        "nsr": [[1 - r for r in row] for row in rewards],
        "dapo": [[1.0] * 3, [0.0] * 3, [0.0] * 3],
    }
    for name in methods.names():
        keep = methods.get(name)(batch(rewards)).keep
        assert torch.equal(keep, tensor(keeps.get(name, [[1.0] * 3] * 3)).bool()), name


def test_ragged_groups_count_valid_rows_only() -> None:
    """Eight rows of which five count give what a group of five gives."""
    rewards = [1.0, 0, 0, 1, 0]
    confidence = [0.9, 0.8, 0.7, 0.6, 0.5]
    valid = torch.tensor([[True, False, True, True, False, True, False, True]])
    padded_rewards, padded_confidence = torch.full((1, 8), torch.nan), torch.full((1, 8), 0.5)
    padded_rewards[valid] = torch.tensor(rewards)
    padded_confidence[valid] = torch.tensor(confidence)
    prior = tensor([0.4])
    for name in methods.names():
        if name == "rl_zvp":  # its entropies are drawn at random: below
            continue
        small = methods.get(name)(batch([rewards], [confidence], prior=prior))
        padded = methods.get(name)(
            batch(padded_rewards.tolist(), padded_confidence.tolist(), prior=prior, valid=valid)
        )
        found = padded.advantages[valid]
        torch.testing.assert_close(found, small.advantages[0], rtol=1e-6, atol=1e-9)
        assert (padded.advantages[~valid] == 0).all()
        assert not padded.keep[~valid].any()
    entropy = torch.rand(1, 8, 3, dtype=torch.float64)
    nan_where_empty = entropy.masked_fill(~valid.unsqueeze(-1), torch.nan)
    lengths = [[3] * 8]
    padded = methods.get("rl_zvp")(
        batch([[0.0] * 8], None, lengths, entropy=nan_where_empty, valid=valid)
    )
    full = methods.get("rl_zvp")(batch([[0.0] * 8], None, lengths, entropy=entropy))
    assert torch.equal(padded.advantages[valid], full.advantages[valid])
    assert (padded.advantages[~valid] == 0).all()
