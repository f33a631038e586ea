"""What an adapter reports under its engine's logger, whatever the engine."""

from __future__ import annotations

from torch import Tensor

from lens_ref.core import Rollouts, Signal
from lens_ref.core.groups import CORRECT, MIXED, NEGATIVE, group_kind, neg_to_mixed_rms


def group_statistics(rollouts: Rollouts, signal: Signal) -> dict[str, float]:
    """What a batch of groups looks like to the method; see `docs/metrics.md` for the names.

    Returns:
        NaN where a number is undefined.
    """
    valid = rollouts.valid_rows()
    present = valid.any(-1)  # a group without a row that counts is of no kind
    kind = group_kind(rollouts.rewards, valid)[present]
    signal = Signal(signal.advantages[present], signal.keep[present])
    per_token = signal.advantages.ndim == 3 and rollouts.mask is not None
    mask = rollouts.mask[present] if per_token else None
    confidence = (rollouts.logprobs / rollouts.lengths.clamp(min=1)).exp()
    statistics = {
        "negative_share": share(kind == NEGATIVE),
        "mixed_share": share(kind == MIXED),
        "correct_share": share(kind == CORRECT),
        "neg_to_mixed_rms": float(neg_to_mixed_rms(signal.advantages, kind, signal.keep, mask)),
        "confidence": float(confidence[valid].mean()),
        "kept_share": share(signal.keep[valid[present]]),
    }
    if rollouts.truncated is not None:
        statistics["truncated_share"] = share(rollouts.truncated[valid])
    return statistics


def share(which: Tensor) -> float:
    """The share that is True; NaN of nothing."""
    return float(which.double().mean())
