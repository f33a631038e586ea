"""What is logged, on a batch made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from lens_ref import Signal
from lens_ref.rlvr import metrics
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.logs import GROUP_COLUMNS
from tests.rlvr.helpers import hand_batch, signal

# question 0: all wrong · 1: one right · 2: all right · 3: all wrong
REWARDS = [[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]]
REASONS = [
    ["wrong", "no_answer", "no_answer", "timeout"],
    ["wrong", "correct", "unparsable", "error"],
    ["correct"] * 4,
    ["wrong", "wrong", "unparsable", "error"],
]
LENGTHS = [[1, 2, 3, 4], [2, 2, 2, 2], [1, 1, 1, 1], [4, 4, 4, 4]]
CONFIDENCE = [[0.5, 0.5, 0.5, 0.9], [0.2, 0.4, 0.6, 0.8], [1.0] * 4, [0.3, 0.3, 0.5, 0.5]]
TRUNCATED = [[False, True, True, False], [True] * 4, [False] * 4, [False] * 4]
ALL = slice(None)


@pytest.fixture
def batch() -> Batch:
    made = hand_batch(REWARDS, LENGTHS, torch.tensor(CONFIDENCE).log(), REASONS, TRUNCATED)
    return replace(made, signal=signal(made, "grpo"))


def test_a_batch_by_hand(batch: Batch) -> None:
    row = metrics.group_metrics(batch, ALL)
    expected = {
        "reward": 5 / 16,
        "negative_share": 1 / 2,
        "mixed_share": 1 / 4,
        "correct_share": 1 / 4,
        "predicted_negative_share": 0.22340393,  # (11/16)^4
        "neg_to_mixed_rms": 0.0,
        # odds .3846 (thrice), 1 and .4286, 1 (twice each): centred, RMS .2762595
        "alpha_posterior": 0.7412819,  # over √(1/6 · 5/6)
        "alpha_likelihood": 0.6379938,  # over √(1/4 · 3/4)
        "confidence": 0.625,  # (2.4 + 2.0 + 4.0 + 1.6) / 16
        "negative_confidence_spread": 0.13660254,  # (√3/10 + 1/10) / 2
        "truncated_share": 6 / 16,
        "mean_length": 38 / 16,
        "neg_wrong": 3 / 8,
        "neg_no_answer": 2 / 8,
        "neg_unparsable": 1 / 8,
        "neg_timeout": 1 / 8,
        "neg_error": 1 / 8,
        "neg_truncated": 2 / 8,
    }
    assert row == pytest.approx(expected, abs=1e-7)
    assert sum(row[f"neg_{reason}"] for reason in metrics.REASONS) == 1


def test_only_the_questions_of_the_update_count(batch: Batch) -> None:
    row = metrics.group_metrics(batch, slice(1, 3))
    assert (row["negative_share"], row["mixed_share"], row["correct_share"]) == (0, 0.5, 0.5)
    assert row["reward"] == 5 / 8
    assert row["predicted_negative_share"] == pytest.approx(0.01977539)  # (3/8)^4
    absent = ["neg_to_mixed_rms", "negative_confidence_spread", "neg_truncated"]
    absent += ["alpha_posterior", "alpha_likelihood"]
    absent += [f"neg_{reason}" for reason in metrics.REASONS]
    assert {name for name, value in row.items() if value is None} == set(absent)


def test_the_ratio_of_signals(batch: Batch) -> None:
    """RMS of ±0.01 in the negative groups over RMS of (3, −1, −1, −1) = √3 in the mixed one."""
    advantages = torch.tensor([[0.01, -0.01, 0.01, -0.01]] * 4)
    advantages[1] = torch.tensor([-1.0, 3.0, -1.0, -1.0])
    keep = torch.ones(4, 4, dtype=torch.bool)
    made = replace(batch, signal=Signal(advantages, keep))
    row = metrics.group_metrics(made, ALL)
    assert row["neg_to_mixed_rms"] == pytest.approx(0.01 / math.sqrt(3), rel=1e-6)
    for questions in (slice(0, 1), slice(1, 2), slice(2, 3)):  # one kind only
        assert metrics.group_metrics(made, questions)["neg_to_mixed_rms"] is None


def test_a_group_is_a_row(batch: Batch) -> None:
    rows = metrics.group_rows(batch, 12)
    assert [row["kind"] for row in rows] == ["negative", "mixed", "correct", "negative"]
    assert [row["correct"] for row in rows] == [0, 1, 4, 0]
    assert [row["confidence"] for row in rows] == pytest.approx([0.6, 0.5, 1.0, 0.4])
    assert rows[1] | {"confidence": None} == {
        "step": 12,
        "question": "q1",
        "level": 2,
        "responses": 4,
        "correct": 1,
        "kind": "mixed",
        "confidence": None,
    }
    assert list(rows[0]) == GROUP_COLUMNS


def test_samples_are_shown_with_grade_confidence_and_advantage(batch: Batch) -> None:
    rows = metrics.sample_rows(batch, 4, questions=2, responses=3)
    assert [(r["question"], r["response"]) for r in rows] == [
        (f"q{b}", f"text {b}.{g}") for b in range(2) for g in range(3)
    ]
    shown = rows[4]
    assert (shown["group"], shown["reward"], shown["reason"]) == ("mixed", 1.0, "correct")
    assert shown["confidence"] == pytest.approx(0.4)
    assert shown["advantage"] == pytest.approx(math.sqrt(3))  # (1 − 1/4) / (√3/4)
    assert (shown["length"], shown["truncated"]) == (2, True)


def test_token_level_advantages_are_shown_by_their_mean(batch: Batch) -> None:
    advantages = torch.arange(4.0).expand(4, 4, 4)
    made = replace(batch, signal=Signal(advantages, torch.ones(4, 4, dtype=torch.bool)))
    rows = metrics.sample_rows(made, 0, 1, 4)
    assert [row["advantage"] for row in rows] == [0.0, 0.5, 1.0, 1.5]  # lengths 1 2 3 4


def test_the_drift_counts_response_tokens_only(batch: Batch) -> None:
    off = batch.old_logprobs + 0.25
    off[~batch.samples.mask] = math.nan
    total, tokens = metrics.sampler_drift(replace(batch, old_logprobs=off))
    assert total.tolist() == pytest.approx([2.5, 2.0, 1.0, 4.0])
    assert tokens.tolist() == [10, 8, 4, 16]


def test_the_drift_counts_what_the_sampler_told(batch: Batch) -> None:
    """The first answers, of 1 to 4 tokens; the others' log-probabilities are unknown."""
    scored = torch.zeros(4, 4, dtype=torch.bool)
    scored[:, 0] = True
    told = batch.samples.logprobs.clone()
    told[:, 1:] = math.nan
    told[:, 0] -= 0.25
    batch = replace(batch, samples=replace(batch.samples, logprobs=told, scored=scored))
    total, tokens = metrics.sampler_drift(batch)
    lengths = batch.samples.lengths[:, 0].tolist()
    assert tokens.tolist() == lengths
    assert total.tolist() == pytest.approx([0.25 * length for length in lengths])
    assert metrics.mean_drift(batch) == pytest.approx(0.25)


def test_what_a_method_sees(batch: Batch) -> None:
    """Sequence log-probabilities are sums over the answer's own tokens, whatever pads them."""
    old = batch.old_logprobs.clone()
    old[~batch.samples.mask] = math.nan
    seen = replace(batch, old_logprobs=old).rollouts()
    wanted = torch.tensor(LENGTHS) * torch.tensor(CONFIDENCE).log()
    torch.testing.assert_close(seen.logprobs, wanted)
    assert torch.equal(seen.lengths, torch.tensor(LENGTHS))
    assert torch.equal(seen.truncated, torch.tensor(TRUNCATED))


def test_every_column_is_explained() -> None:
    wanted = (
        "step reward negative_share mixed_share correct_share neg_to_mixed_rms confidence entropy "
        "clip_fraction logprob_drift grad_norm truncated_share mean_length tokens_per_second "
        "seconds predicted_negative_share neg_wrong neg_no_answer neg_unparsable neg_timeout "
        "neg_error neg_truncated adapter sync_seconds sample_seconds grade_seconds old_seconds "
        "advantage_seconds update_seconds peak_gb token_budget"
    )
    assert set(wanted.split()) <= set(metrics.METRICS)
    assert all(len(meaning) > 10 for meaning in metrics.METRICS.values())
    assert set(metrics.TIMING) <= set(metrics.METRICS)
