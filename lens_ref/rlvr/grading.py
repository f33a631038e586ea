"""From sampled tokens to rewards: decode, grade the last balanced box, in worker processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from lens_ref.rlvr.batch import Batch, Samples
from lens_ref.verifier import Verdict, Verifier


def decode(tokenizer: Any, samples: Samples) -> tuple[tuple[str, ...], ...]:
    """`[B][G]` texts, special tokens dropped."""
    return tuple(
        tuple(
            tokenizer.decode(ids[:length].tolist(), skip_special_tokens=True)
            for ids, length in zip(group_ids, group_lengths.tolist(), strict=True)
        )
        for group_ids, group_lengths in zip(samples.ids, samples.lengths, strict=True)
    )


def grade_texts(
    verifier: Verifier, golds: list[str], texts: tuple[tuple[str, ...], ...]
) -> list[list[Verdict]]:
    """`[B][G]` verdicts for texts `[B][G]` against one gold a question."""
    repeated = [gold for gold, group in zip(golds, texts, strict=True) for _ in group]
    verdicts = iter(verifier.grade(repeated, [text for group in texts for text in group]))
    return [[next(verdicts) for _ in group] for group in texts]


def grade(batch: Batch, tokenizer: Any, verifier: Verifier) -> Batch:
    """The batch with texts, rewards `[B, G]` in {0, 1} and the verifier's reasons."""
    texts = decode(tokenizer, batch.samples)
    verdicts = grade_texts(verifier, [question.answer for question in batch.questions], texts)
    rewards = torch.tensor([[verdict.reward for verdict in group] for group in verdicts])
    reasons = tuple(tuple(verdict.reason for verdict in group) for group in verdicts)
    return replace(batch, texts=texts, rewards=rewards, reasons=reasons)
