"""The paper as pure functions of tensors: torch alone, no model, no file, no global state."""

from lens_ref.core._checks import DomainError
from lens_ref.core.advantage import LensConfig, lens_advantages
from lens_ref.core.confidence import length_normalized
from lens_ref.core.difficulty import difficulty, importance_difficulty
from lens_ref.core.groups import Rollouts, Signal, group_kind, neg_to_mixed_rms
from lens_ref.core.likelihood import (
    bernoulli_nll,
    mle_coefficient,
    mle_loss,
    true_difficulty,
    value,
    value_mle,
    value_mle_closed_form,
    value_negative,
    value_positive,
)
from lens_ref.core.loss import LossOutput, grpo_loss
from lens_ref.core.pass_at_k import pass_at_k
from lens_ref.core.preference import length_preference_reward
from lens_ref.core.reward import calibrated_reward
from lens_ref.core.weight import (
    log1mexp,
    odds,
    odds_from_log,
    weight,
    weight_derivative,
    weight_from_log,
)

__all__ = [
    "DomainError",
    "LensConfig",
    "LossOutput",
    "Rollouts",
    "Signal",
    "bernoulli_nll",
    "calibrated_reward",
    "difficulty",
    "group_kind",
    "grpo_loss",
    "importance_difficulty",
    "length_normalized",
    "length_preference_reward",
    "lens_advantages",
    "log1mexp",
    "mle_coefficient",
    "mle_loss",
    "neg_to_mixed_rms",
    "odds",
    "odds_from_log",
    "pass_at_k",
    "true_difficulty",
    "value",
    "value_mle",
    "value_mle_closed_form",
    "value_negative",
    "value_positive",
    "weight",
    "weight_derivative",
    "weight_from_log",
]
