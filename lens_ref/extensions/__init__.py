"""Extensions of LENS beyond the paper, each with its statement, derivation and test: pure functions
of tensors, torch alone. Neither the core nor the methods use them.

    fractional     rewards in (0, 1): the likelihood's optimum under any difficulty
    off_policy     samples from another policy
    preferences    the preference-aware appendix as functions
    scale          how loud a negative group should be, without tuning α
"""

from lens_ref.extensions.fractional import likelihood_optimum
from lens_ref.extensions.off_policy import (
    bounded_coefficient,
    inverse_sampling_weights,
    off_policy_coefficient,
)
from lens_ref.extensions.preferences import (
    data_preference,
    length_preference,
    policy_preference,
    practical_preference,
    preference_difficulty,
    preference_reward,
)
from lens_ref.extensions.scale import equivalent_alphas, likelihood_alpha, posterior_scale

__all__ = [
    "bounded_coefficient",
    "data_preference",
    "equivalent_alphas",
    "inverse_sampling_weights",
    "length_preference",
    "likelihood_alpha",
    "likelihood_optimum",
    "off_policy_coefficient",
    "policy_preference",
    "posterior_scale",
    "practical_preference",
    "preference_difficulty",
    "preference_reward",
]
