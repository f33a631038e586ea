"""What is logged at every update, and what each number means."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from lens_ref.core import group_kind, neg_to_mixed_rms
from lens_ref.core.groups import CORRECT, MIXED, NEGATIVE
from lens_ref.extensions import equivalent_alphas
from lens_ref.rlvr.batch import Batch

REASONS = ("wrong", "no_answer", "unparsable", "timeout", "error")

KINDS = ("negative", "mixed", "correct")
"""Names of `group_kind`'s 0, 1 and 2 in the logs."""

METRICS: dict[str, str] = {
    "step": "gradient updates done",
    "reward": "mean reward of the sampled answers: the accuracy on this update's questions",
    "negative_share": "share of groups in which every answer is wrong; GRPO learns nothing there",
    "mixed_share": "share of groups with right and wrong answers: GRPO's whole signal",
    "correct_share": "share of groups in which every answer is right; nobody learns there",
    "predicted_negative_share": "(1 − p)^G with p the mean reward: what the negative share would "
    "be if all questions were equally hard; the excess is what hard questions add",
    "neg_to_mixed_rms": "RMS advantage of negative groups over that of mixed groups: how loud the "
    "signal from negative groups is (0 for GRPO, about 0.002 for LENS as printed); empty where "
    "the update lacks one of the two kinds",
    "alpha_posterior": "the α of standardised negative groups that dividing their centred odds by "
    "√(p̂(1−p̂)), p̂ = (k+1)/(G+2), amounts to: to be held beside LENS's 0.25; empty without a "
    "negative group",
    "alpha_likelihood": "… that the likelihood's own scale (no std, no 1/G) amounts to; empty "
    "where the update lacks negative or mixed groups",
    "confidence": "mean over answers of the geometric-mean token probability, π̄",
    "negative_confidence_spread": "mean over negative groups of the standard deviation of π̄: what "
    "LENS has to work with there; empty without a negative group",
    "entropy": "mean entropy of the policy's next-token distribution, nats a token, over the "
    "answers that the method keeps: psr, nsr and dapo leave some out, so don't compare their level",
    "clip_fraction": "share of tokens whose gradient the clip cut off; 0 on a batch's first update",
    "mean_ratio": "mean of π_θ / π_old over tokens; 1 on a batch's first update",
    "approx_kl": "mean of ratio − 1 − log ratio: how far this batch's updates have gone, nats",
    "loss": "the value of −J; near 0 on a batch's first update by construction: watch the reward",
    "logprob_drift": "mean |log-probability, sampler − trainer| over tokens (with vLLM, of one "
    "answer a question, unless the loss needs all): below 1e-4 on a CPU; a jump means that the "
    "sampler runs other weights or another temperature; the run stops above `rollout.max_drift`",
    "grad_norm": "norm of the gradient before clipping; 0 where no group carries a signal",
    "lr": "learning rate",
    "adapter": "first digits of the SHA-256 of the adapter after the update, in the precision that "
    "the sampler loads; empty without an adapter",
    "truncated_share": "share of answers that the length limit stopped",
    "mean_length": "mean answer length, tokens, end-of-sequence token included",
    "neg_wrong": "inside negative groups, share of answers that are wrong",
    "neg_no_answer": "… that hold no closed box",
    "neg_unparsable": "… whose box can't be parsed",
    "neg_timeout": "… that the verifier gave up on",
    "neg_error": "… on which the verifier failed",
    "neg_truncated": "… that were truncated, whatever the verdict",
    "tokens_per_second": "answer tokens of this update over its time, sampling and grading of the "
    "whole batch included where they fell into it",
    "rollout_tokens_per_second": "answer tokens sampled a second, whole batch",
    "grade_answers_per_second": "answers graded a second, whole batch",
    "update_tokens_per_second": "answer tokens trained a second, this update",
    "sync_seconds": "time to hand the weights to the sampler and to check that it has them; this "
    "and the next four are empty where no batch was sampled for this update",
    "sample_seconds": "… to sample the batch",
    "grade_seconds": "… to grade its answers",
    "old_seconds": "… to compute their old log-probabilities",
    "advantage_seconds": "… to compute their advantages: all that a method adds",
    "update_seconds": "time of this update's gradient step",
    "peak_gb": "most GPU memory in use at once, GB of 10^9 bytes, sampling included where it fell "
    "into this update, by torch's count (what a sleeping vLLM gave back is in it); empty on a CPU",
    "token_budget": "tokens of a micro-batch, prompts included; halved whenever the GPU's memory "
    "did not suffice",
    "seconds": "wall time since the run began, all its pieces together",
}

PHASES = ("sync", "sample", "grade", "old", "advantage", "update")
"""What is timed, in its order."""

TIMING = (
    "tokens_per_second",
    "rollout_tokens_per_second",
    "grade_answers_per_second",
    "update_tokens_per_second",
    *(f"{phase}_seconds" for phase in PHASES),
    "peak_gb",
    "token_budget",
    "seconds",
)
"""The columns that differ between two runs of the same seed."""


def group_metrics(batch: Batch, questions: slice) -> dict[str, Any]:
    """The metrics that depend on the groups of one update alone; None where undefined."""
    assert batch.signal is not None
    assert batch.rewards is not None
    rewards = batch.rewards[questions]
    kind = group_kind(rewards)
    confidence = batch.confidence(questions)
    negative = kind == NEGATIVE
    signal, mask = batch.signal, batch.samples.mask[questions]
    ratio = neg_to_mixed_rms(signal.advantages[questions], kind, signal.keep[questions], mask)
    alphas = equivalent_alphas(batch.rollouts(questions))
    mean_reward = float(rewards.mean())
    spread = confidence.std(-1, correction=0)[negative]
    truncated = batch.samples.truncated[questions].double()
    reasons = batch.reasons[questions]
    in_negative = [reason for row, n in zip(reasons, negative, strict=True) if n for reason in row]
    return {
        "reward": mean_reward,
        "negative_share": _share(negative),
        "mixed_share": _share(kind == MIXED),
        "correct_share": _share(kind == CORRECT),
        "predicted_negative_share": (1 - mean_reward) ** rewards.shape[-1],
        "neg_to_mixed_rms": float(ratio) if bool(ratio.isfinite()) else None,
        **{name: None if math.isnan(a) else a for name, a in alphas.items()},
        "confidence": float(confidence.mean()),
        "negative_confidence_spread": float(spread.mean()) if len(spread) else None,
        "truncated_share": float(truncated.mean()),
        "mean_length": float(batch.samples.lengths[questions].double().mean()),
        **{
            f"neg_{reason}": in_negative.count(reason) / len(in_negative) if in_negative else None
            for reason in REASONS
        },
        "neg_truncated": float(truncated[negative].mean()) if in_negative else None,
    }


def group_rows(batch: Batch, step: int) -> list[dict[str, Any]]:
    """One row a question of a rollout batch: any share by level can be recomputed from them."""
    assert batch.rewards is not None
    kinds = group_kind(batch.rewards).tolist()
    confidence = batch.confidence().mean(-1).tolist()
    correct = batch.rewards.sum(-1).tolist()
    return [
        {
            "step": step,
            "question": question.id,
            "level": question.level,
            "responses": batch.rewards.shape[-1],
            "correct": int(correct[i]),
            "kind": KINDS[kinds[i]],
            "confidence": confidence[i],
        }
        for i, question in enumerate(batch.questions)
    ]


def sample_rows(batch: Batch, step: int, questions: int, responses: int) -> list[dict[str, Any]]:
    """The first answers of the first questions, with grades, confidences and advantages."""
    assert batch.signal is not None
    assert batch.rewards is not None
    confidence = batch.confidence()
    advantages = batch.signal.advantages
    if advantages.ndim == 3:  # token-level: show the mean over the answer
        mask = batch.samples.mask
        advantages = (advantages * mask).sum(-1) / mask.sum(-1)
    kinds = group_kind(batch.rewards)
    return [
        {
            "step": step,
            "question": question.id,
            "level": question.level,
            "problem": question.problem,
            "answer": question.answer,
            "group": KINDS[int(kinds[b])],
            "response": batch.texts[b][g],
            "reward": float(batch.rewards[b, g]),
            "reason": batch.reasons[b][g],
            "truncated": bool(batch.samples.truncated[b, g]),
            "length": int(batch.samples.lengths[b, g]),
            "confidence": float(confidence[b, g]),
            "advantage": float(advantages[b, g]),
        }
        for b, question in enumerate(batch.questions[:questions])
        for g in range(min(responses, batch.rewards.shape[-1]))
    ]


def sampler_drift(batch: Batch) -> Tensor:
    """`[2, B]`: the sum over tokens of |sampler − trainer| log-probability, and the tokens, of the
    answers that the sampler scored."""
    assert batch.old_logprobs is not None
    mask = batch.samples.scored_mask
    gap = (batch.old_logprobs - batch.samples.logprobs).abs().masked_fill(~mask, 0.0)
    return torch.stack([gap.sum((-2, -1)), mask.sum((-2, -1))])


def mean_drift(batch: Batch, questions: slice = slice(None)) -> float:
    """Mean |sampler − trainer| log-probability over the tokens of some questions, nats."""
    total, tokens = sampler_drift(batch)[:, questions].sum(-1).tolist()
    return float(total / tokens)


def _share(which: Tensor) -> float:
    return float(which.double().mean())


def markdown() -> str:
    """`docs/metrics.md`: every column of `metrics.csv`, explained."""
    lines = [
        "# What a run logs",
        "",
        "`metrics.csv` has a row an update. Shares and means are over the questions and answers of "
        "that update, and an empty cell means that the number is undefined there. An update that "
        "was left out for a bad number (`bad_numbers: skip`) has its step and times alone.",
        "",
        "| column | meaning |",
        "|---|---|",
        *(f"| `{name}` | {meaning} |" for name, meaning in METRICS.items()),
        "",
        "Beside it: `groups.csv` (a row a question of each rollout batch: level, correct answers, "
        "kind, mean confidence), `eval.csv` (pass@k by level), `eval_counts.csv` (correct answers "
        "a question, from which every statistic can be recomputed), `samples.jsonl` (answers with "
        "grade, confidence and advantage), `config.yaml` (resolved) and `manifest.json` (status: "
        "running, interrupted, finished, or stopped and why; commit, versions, hardware, data "
        "hashes, what was left out of the data, updates left out, settings changed when the run "
        "was resumed, wall time, tokens). `debug/step-<n>/` holds the batch of an update with a "
        "number that is not finite or can't be.",
        "",
        "This page is printed by `python -m lens_ref.rlvr.metrics`.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
