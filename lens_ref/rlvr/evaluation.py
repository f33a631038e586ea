"""pass@k on held-out questions while a run trains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from lens_ref.core import pass_at_k
from lens_ref.rlvr.batch import Samples
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.grading import decode, grade_texts
from lens_ref.rlvr.sampler import Sampler
from lens_ref.rlvr.tasks import Question
from lens_ref.verifier import Verifier

KS = (1, 2, 4, 8, 16)
COLUMNS = ["step", "level", *(f"pass@{k}" for k in KS), "questions", "mean_length"]
COUNT_COLUMNS = ["step", "question", "level", "n", "correct"]
HARD_LEVELS = (4, 5)


class Answered(NamedTuple):
    """Answers to some questions, graded."""

    samples: Samples  # [B, n]
    correct: list[int]  # of n, one a question
    reasons: Counter[str]  # verdicts by reason


class Evaluation(NamedTuple):
    """What one evaluation leaves."""

    rows: list[dict[str, Any]]  # of eval.csv, one a name of `level_groups`
    counts: list[dict[str, Any]]  # of eval_counts.csv, one a question
    verdicts: Counter[str]  # by reason


def level_groups(questions: Sequence[Question]) -> dict[str, list[int]]:
    """Name and indices of every set of questions that is evaluated: "all", each level, and "4-5"
    where both exist."""
    levels = sorted({question.level for question in questions if question.level is not None})
    wanted: dict[str, tuple[int, ...]] = {str(level): (level,) for level in levels}
    if set(HARD_LEVELS) <= set(levels):
        wanted["4-5"] = HARD_LEVELS
    groups = {"all": list(range(len(questions)))}
    for name, chosen in wanted.items():
        groups[name] = [i for i, question in enumerate(questions) if question.level in chosen]
    return groups


def answer(
    sampler: Sampler,
    tokenizer: Any,
    verifier: Verifier,
    questions: Sequence[Question],
    prompts: Sequence[tuple[int, ...]],
    n: int,
    seed: int,
) -> Answered:
    """Sample n answers to each question and grade them.

    Raises:
        UserError: a policy whose probabilities are not finite.
    """
    samples = sampler.sample(prompts, n, seed)
    bad = (~samples.logprobs.isfinite() & samples.scored_mask).flatten(1).any(-1)
    if bad.any():
        raise UserError(
            f"question {questions[int(bad.nonzero()[0])].id!r}: the policy's probabilities are not "
            "finite; its weights are damaged, or optimizer.lr was too high"
        )
    texts = decode(tokenizer, samples)
    verdicts = grade_texts(verifier, [question.answer for question in questions], texts)
    correct = [sum(int(v.reward) for v in group) for group in verdicts]
    return Answered(samples, correct, Counter(v.reason for group in verdicts for v in group))


def evaluate(
    sampler: Sampler,
    tokenizer: Any,
    verifier: Verifier,
    questions: Sequence[Question],
    prompts: Sequence[tuple[int, ...]],
    n: int,
    seed: int,
    step: int,
) -> Evaluation:
    """`answer`, and pass@k by level.

    pass@k is the unbiased estimator, None where k > n; from the counts every statistic can be
    recomputed.
    """
    answered = answer(sampler, tokenizer, verifier, questions, prompts, n, seed)
    correct = answered.correct
    counts = [
        {"step": step, "question": q.id, "level": q.level, "n": n, "correct": c}
        for q, c in zip(questions, correct, strict=True)
    ]
    rows = [
        _row(step, name, chosen, correct, n, answered.samples.lengths)
        for name, chosen in level_groups(questions).items()
    ]
    return Evaluation(rows, counts, answered.reasons)


def _row(
    step: int, level: str, chosen: list[int], correct: list[int], n: int, lengths: torch.Tensor
) -> dict[str, Any]:
    counts = torch.tensor([correct[i] for i in chosen])
    rates = {
        f"pass@{k}": float(torch.as_tensor(pass_at_k(n, counts, k)).mean()) if k <= n else None
        for k in KS
    }
    length = float(lengths[chosen].double().mean())
    return {
        "step": step,
        "level": level,
        **rates,
        "questions": len(chosen),
        "mean_length": length,
    }
