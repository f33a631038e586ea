"""From verl's rows to verl's advantages, on tensors alone; nothing here imports verl.

verl hands an advantage estimator the rewards, the mask and the uids. `Rows` holds what it keeps
back and a method may need: log-probabilities, entropies, the question, whether it was cut off.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lens_ref.engines.groups import REWARD_ROUNDING, kept_scale, scatter, to_rollouts, whole_rewards
from lens_ref.engines.statistics import group_statistics
from lens_ref.methods.treatment import Treatment


@dataclass(frozen=True)
class Rows:
    """The columns of N responses that an estimator isn't handed, in the estimator's order."""

    logprobs: Tensor  # [N, T] nats, old_log_probs
    mask: Tensor  # [N, T] 0 or 1, on every token that the policy wrote
    entropy: Tensor | None = None  # [N, T] nats
    truncated: Tensor | None = None  # [N] bool
    questions: Sequence[str] | None = None  # [N] names that stay the same over epochs


def advantages(
    treatment: Treatment,
    rows: Rows,
    uids: Sequence[str],
    token_level_rewards: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "seq-mean-token-mean",
) -> tuple[Tensor, dict[str, float]]:
    """verl's advantages `[N, T]`, 0 off the response, and the group statistics of the batch.

    Args:
        uids: N names; rows with the same one form a group, whatever their order.
        token_level_rewards: `[N, T]`, whose sums lie in [0, 1].
        response_mask: `[N, T]`, as the estimator got it: a row without a token (verl's own padding
            of the batch, a rejected response) is left out of its group.
        loss_agg_mode: how verl will average, which matters for methods that leave rows out.

    Raises:
        ValueError: a reward outside [0, 1]; a number outside its domain.
    """
    mask = response_mask.bool()
    rollouts, index = to_rollouts(
        uids,
        _rewards(token_level_rewards, uids),
        rows.logprobs,
        rows.mask,
        truncated=rows.truncated,
        entropy=rows.entropy,
        valid=mask.any(-1),
    )
    questions: Sequence[str] = [str(uid) for uid in index.uids]
    if rows.questions is not None:
        of_uid = dict(zip(uids, rows.questions, strict=True))
        questions = [of_uid[uid] for uid in index.uids]
    signal = treatment(rollouts, questions)
    by_row, keep = scatter(signal, index)
    if by_row.ndim == 1:
        by_row = by_row.unsqueeze(-1)
    by_row = by_row * _scale(keep, rows.mask.bool() & mask, loss_agg_mode)
    filled = by_row.masked_fill(~mask, 0.0).to(token_level_rewards.dtype)
    statistics = group_statistics(rollouts, signal)
    return filled, {name: x for name, x in statistics.items() if not math.isnan(x)}


def _rewards(token_level_rewards: Tensor, uids: Sequence[str]) -> Tensor:
    """`[N]`: each response's reward, whole numbers up to rounding made whole."""
    rewards = token_level_rewards.double().sum(-1)
    inside = (rewards >= -REWARD_ROUNDING) & (rewards <= 1 + REWARD_ROUNDING)
    for row in (~inside).nonzero().flatten().tolist():
        raise ValueError(
            f"the reward of response {row} (uid {uids[row]}) is {rewards[row]:g}, outside [0, 1]: "
            "let the reward function give 0 for wrong and 1 for right, for example "
            "reward.custom_reward_function.path=pkg://lens_ref.engines.verl_reward (verl's own "
            "math_dapo gives -1 and 1)"
        )
    return whole_rewards(rewards)


def _scale(keep: Tensor, tokens: Tensor, loss_agg_mode: str) -> float:
    """Makes up for rows that the method leaves out but verl's denominator counts.

    Sums over a constant (`token-sum`) have no count of rows in them.
    """
    present = tokens.any(-1)
    if loss_agg_mode == "token-mean":
        kept = int(tokens[keep].sum())
        return int(tokens.sum()) / kept if kept else 0.0
    if loss_agg_mode == "token-sum":
        return 1.0
    return kept_scale(keep[present])


def question_names(prompts: Sequence[Tensor]) -> list[str]:
    """A name for each prompt, from its token ids: verl's uids are new at every visit."""
    return [
        hashlib.sha256(prompt.to(torch.int64).cpu().numpy().tobytes()).hexdigest()[:16]
        for prompt in prompts
    ]
