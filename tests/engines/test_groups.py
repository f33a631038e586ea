"""Rows of an engine's batch become groups, and every row gets its own advantage back."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch

from lens_ref import DomainError, LensConfig, Rollouts, lens_advantages, methods
from lens_ref.core.groups import Signal
from lens_ref.engines.groups import kept_scale, scatter, to_rollouts
from lens_ref.methods.treatment import Treatment

NAN = math.nan

# Two questions, rows shuffled, a group of three and one of two; padding holds NaN.
UIDS = ["b", "a", "b", "a", "b"]
REWARDS = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
LOGPROBS = torch.tensor(
    [[-1.0, -2.0, NAN], [-0.5, NAN, NAN], [-1.0, -1.0, -4.0], [-3.0, -1.0, NAN], [-0.25, NAN, NAN]]
)
MASK = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0], [1, 0, 0]])


def test_rows_of_a_question_form_a_group_in_their_order() -> None:
    rollouts, index = to_rollouts(UIDS, REWARDS, LOGPROBS, MASK)
    assert index.uids == ("b", "a")
    assert rollouts.rewards.tolist() == [[0, 0, 0], [1, 0, 0]]
    assert rollouts.logprobs.tolist() == [[-3, -6, -0.25], [-0.5, -4, 0]]
    assert rollouts.lengths.tolist() == [[2, 3, 1], [1, 2, 0]]
    assert rollouts.valid_rows().tolist() == [[True] * 3, [True, True, False]]
    assert rollouts.token_logprobs is not None
    assert rollouts.token_logprobs[0].tolist() == [[-1, -2, 0], [-1, -1, -4], [-0.25, 0, 0]]
    assert rollouts.logprobs.dtype == torch.float64


def test_every_row_gets_its_own_advantage_back() -> None:
    _, index = to_rollouts(UIDS, REWARDS, LOGPROBS, MASK)
    signal = Signal(
        advantages=torch.tensor([[10.0, 11.0, 12.0], [20.0, 21.0, 99.0]]),
        keep=torch.tensor([[True, False, True], [True, True, False]]),
    )
    advantages, keep = scatter(signal, index)
    assert advantages.tolist() == [10, 20, 11, 21, 12]
    assert keep.tolist() == [True, True, False, True, True]


def test_token_advantages_come_back_too() -> None:
    entropy = torch.tensor([[0.5, 1.5, NAN], [1.0, 0, 0], [1.0, 2.0, 0.0], [1, 1, 0], [0.75, 0, 0]])
    rollouts, index = to_rollouts(UIDS, REWARDS, LOGPROBS, MASK, entropy=entropy)
    advantages, _ = scatter(methods.get("rl_zvp", alpha=0.1)(rollouts), index)
    # The negative group "b": −α (max H of the response − H) on its tokens, 0 on padding.
    expected = [[-0.1, 0, 0], [-0.1, 0, -0.2], [0, 0, 0]]
    torch.testing.assert_close(advantages[[0, 2, 4]], torch.tensor(expected).to(advantages))


def test_a_batch_in_another_order_gives_each_row_the_same() -> None:
    order = torch.tensor([3, 0, 4, 2, 1])
    plain, index = to_rollouts(UIDS, REWARDS, LOGPROBS, MASK)
    expected = scatter(lens_advantages(plain), index)[0]
    shuffled, index = to_rollouts(
        [UIDS[i] for i in order], REWARDS[order], LOGPROBS[order], MASK[order]
    )
    found = scatter(lens_advantages(shuffled), index)[0]
    torch.testing.assert_close(found, expected[order], rtol=0, atol=1e-15)


def test_a_ragged_group_is_the_group_alone() -> None:
    rollouts, index = to_rollouts(UIDS, REWARDS, LOGPROBS, MASK)
    advantages, _ = scatter(lens_advantages(rollouts), index)
    alone = Rollouts(
        rewards=torch.tensor([[1.0, 0.0]]).double(),
        logprobs=torch.tensor([[-0.5, -4.0]]).double(),
        lengths=torch.tensor([[1, 2]]),
    )
    expected = lens_advantages(alone).advantages[0]
    torch.testing.assert_close(advantages[[1, 3]], expected, rtol=0, atol=1e-15)


def test_a_row_without_tokens_is_left_out_and_not_read_as_certain() -> None:
    mask = MASK.clone()
    mask[4] = 0
    rollouts, index = to_rollouts(UIDS, REWARDS, LOGPROBS, mask)
    signal = lens_advantages(rollouts)
    advantages, keep = scatter(signal, index)
    assert keep.tolist() == [True, True, True, True, False]
    assert advantages[4] == 0
    # "b" has two responses left, π̄ = e^{−1.5} and e^{−2}; D = 2 e^{−1.5}, so that u = 1 and
    # e^{−0.5} / (2 − e^{−0.5}); A = ∓ α (1 − u₂) / 2 · 1/2
    u = math.exp(-0.5) / (2 - math.exp(-0.5))
    size = 0.25 * 0.5 * (1 - u) / 2
    torch.testing.assert_close(advantages[[0, 2]], torch.tensor([-size, size]).double())


def test_rows_that_are_not_valid_may_hold_anything() -> None:
    rewards = torch.tensor([0.0, NAN, 0.0, 0.0, 0.0])
    valid = torch.tensor([True, False, True, True, True])
    rollouts, index = to_rollouts(UIDS, rewards, LOGPROBS, MASK, valid=valid)
    assert scatter(lens_advantages(rollouts), index)[1].tolist() == valid.tolist()


def test_truncated_rows_are_known_to_the_method() -> None:
    truncated = torch.tensor([False, False, True, False, False])
    rollouts, index = to_rollouts(UIDS, REWARDS, LOGPROBS, MASK, truncated=truncated)
    keep = scatter(lens_advantages(rollouts, LensConfig(truncated="mask")), index)[1]
    assert keep.tolist() == [True, True, False, True, True]


def test_rounding_above_zero_counts_as_zero_and_more_is_refused() -> None:
    logprobs = torch.tensor([[2e-4], [-1.0]])
    mask = torch.ones(2, 1)
    rollouts, _ = to_rollouts([0, 0], torch.zeros(2), logprobs, mask)
    assert rollouts.logprobs.tolist() == [[0, -1]]
    with pytest.raises(DomainError, match=r"logprobs\[0, 0\] = 0\.5"):
        to_rollouts([0, 0], torch.zeros(2), torch.tensor([[0.5], [-1.0]]), mask)


def test_uids_may_be_numbers_or_tensors() -> None:
    uids = torch.tensor([7, 8, 7, 8, 7])
    assert to_rollouts(uids, REWARDS, LOGPROBS, MASK)[1].uids == (7, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"uids": []}, "uids is empty"),
        ({"uids": UIDS[:4]}, r"mask has shape \(5, 3\): expected \(4, T\)"),
        ({"rewards": torch.zeros(5, 3)}, r"rewards has shape \(5, 3\): expected \(5,\)"),
        ({"logprobs": LOGPROBS[:, :2]}, r"logprobs has shape \(5, 2\): expected \(5, 3\)"),
        ({"entropy": torch.zeros(5)}, r"entropy has shape \(5,\): expected \(5, 3\)"),
        ({"truncated": torch.zeros(4)}, r"truncated has shape \(4,\): expected \(5,\)"),
        ({"rewards": torch.full((5,), 2.0)}, r"rewards\[0, 0\] = 2: a reward must lie in \[0, 1\]"),
    ],
)
def test_what_does_not_line_up_is_refused(changes: dict, message: str) -> None:
    rows = {"uids": UIDS, "rewards": REWARDS, "logprobs": LOGPROBS, "mask": MASK}
    with pytest.raises(ValueError, match=message):
        to_rollouts(**{**rows, **changes})


def test_scale_of_the_kept_rows() -> None:
    assert kept_scale(torch.tensor([True, True, True, False])) == pytest.approx(4 / 3)
    assert kept_scale(torch.tensor([True, True])) == 1
    assert kept_scale(torch.tensor([False, False])) == 0


def test_a_treatment_carries_its_state_and_an_evaluation_leaves_it_alone() -> None:
    # Two correct of four for a question that began with 8 pseudo-observations of mean 1/2:
    # a = .875 · 4 + 2 = 5.5, b = 5.5; then four wrong answers are held against p̂ = 1/2.
    mixed = Rollouts(torch.tensor([[1.0, 1, 0, 0]]), torch.full((1, 4), -1.0), torch.ones(1, 4))
    wrong = Rollouts(torch.zeros(1, 4), torch.full((1, 4), -1.0), torch.ones(1, 4))
    spo = Treatment("spo", hyperparameters={"whiten": False})
    spo(mixed, ["q"], learn=False)
    assert spo.state is not None
    assert spo.state["questions"] == {}
    spo(mixed, ["q"])
    assert spo.state["questions"] == {"q": [5.5, 5.5]}
    assert spo(wrong, ["q"]).advantages.tolist() == [[-0.5] * 4]


def test_a_treatment_takes_a_config_or_hyperparameters() -> None:
    config = LensConfig(alpha=1.0, negative_scale=1.0)
    wrong = Rollouts(torch.zeros(1, 2), torch.tensor([[-1.0, -2.0]]), torch.ones(1, 2))
    expected = lens_advantages(wrong, config).advantages
    by_hand = Treatment("lens", hyperparameters={"alpha": 1.0, "negative_scale": 1.0})
    assert torch.equal(Treatment("lens", config)(wrong, ["q"]).advantages, expected)
    assert torch.equal(by_hand(wrong, ["q"]).advantages, expected)
    assert by_hand.label == "lens(alpha=1.0, negative_scale=1.0)"
    assert Treatment("grpo").label == "grpo"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "lense"}, "unknown method 'lense': did you mean 'lens'"),
        ({"method": "lens", "hyperparameters": {"alpah": 1}}, "alpah"),
        ({"method": "grpo", "config": LensConfig()}, "'grpo' takes no LensConfig"),
        ({"method": "lens", "config": 3}, "config = 3: a LensConfig is needed"),
        (
            {"method": "lens", "config": LensConfig(), "hyperparameters": {"alpha": 1}},
            "'alpha': give it in hyperparameters or in config",
        ),
    ],
)
def test_a_treatment_refuses_what_it_cannot_do(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Treatment(**arguments)


def test_importing_the_package_imports_no_engine() -> None:
    code = (
        "import sys, lens_ref.engines, lens_ref.engines.groups, lens_ref.methods.treatment;"
        "print([m for m in ('trl', 'verl', 'transformers', 'vllm', 'ray') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_without_trl_the_adapter_says_what_to_install() -> None:
    code = "import sys; sys.modules['trl'] = None; import lens_ref.engines.trl"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    line = result.stderr.strip().splitlines()[-1]
    assert line.startswith("ImportError: lens_ref.engines.trl needs TRL: pip install 'trl>=1.12")
