"""The practical LENS algorithm: groups in, advantages out.

    π̄_i = π(o_i)^{1/|o_i|}                                       confidence
    D   = max(D_imp, 2 max_j π̄_j), or the guard alone            difficulty
    r̃_i = r_i − (1−r_i) (1/G) π̄_i / (D − π̄_i)                     calibrated reward
    A_i = (r̃_i − mean) / std        mixed group
    A_i = α (r̃_i − mean)            negative group
    A_i = 0                         correct group

α multiplies the advantage, which is the same as multiplying the objective: the clipped surrogate
is positively homogeneous in A. Every place where the paper can be read in two ways is a field of
`LensConfig`, whose default is the paper as printed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lens_ref.core._checks import (
    as_number,
    common_dtype,
    nearest,
    require_at_least,
    require_positive,
)
from lens_ref.core.confidence import length_normalized
from lens_ref.core.difficulty import difficulty
from lens_ref.core.groups import (
    CORRECT,
    NEGATIVE,
    Rollouts,
    Signal,
    all_equal,
    centred,
    group_kind,
    standardized,
    working_copy,
)
from lens_ref.core.reward import calibrated_reward
from lens_ref.core.weight import odds_from_log

Confidence = Literal["length_normalized", "sequence"]
MixedNorm = Literal["std", "demean", "none"]
NegativeNorm = Literal["demean", "demean_std", "posterior_std", "none"]
Baseline = Literal["group", "leave_one_out"]
Truncation = Literal["keep", "mask", "exclude_from_max"]
Groups = Literal["all", "mixed", "negative"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "confidence": get_args(Confidence),
    "difficulty_confidence": get_args(Confidence),
    "mixed_norm": get_args(MixedNorm),
    "negative_norm": get_args(NegativeNorm),
    "baseline": get_args(Baseline),
    "truncated": get_args(Truncation),
    "groups": get_args(Groups),
}

_PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    # D_imp on π̄: the reading for which the practical rule is exactly the preference framework.
    "normalized_difficulty": {"difficulty_confidence": "length_normalized"},
    "raw_all": {"confidence": "sequence"},
    "neg_unscaled": {"negative_scale": 1.0},
    "no_scale": {"mixed_scale": 1.0, "negative_scale": 1.0},
    "negative_std": {"negative_norm": "demean_std"},
    "no_demean": {"negative_norm": "none", "negative_scale": 1.0},
    # The scale that maximum likelihood itself implies.
    "likelihood": {
        "alpha": 1.0,
        "mixed_scale": 1.0,
        "negative_scale": 1.0,
        "mixed_norm": "demean",
    },
}


@dataclass(frozen=True)
class LensConfig:
    """Every reading of the algorithm; the default is the paper as printed.

    As printed, D_imp takes the raw sequence probability. For responses of more than a few tokens
    it is then practically 0, D is 2 max π̄ in mixed groups too, and the calibrated rewards of a
    mixed group look like the paper's own example [1, 0, −1, …, −1] before the 1/G.

    What is known of the switches:

    - `baseline`: hold D fixed and leave out std and 1/G. Then (1/G) Σ A_i ∇ log π(o_i), with the
      mean of the *others* taken off, is unbiased for ∇J_MLE: that mean does not depend on o_i, and
      E[∇ log π] = 0. The group's mean holds i itself at weight 1/G, which takes exactly 1/G of the
      gradient away. With D from the same group neither is unbiased. Either way identical wrong
      answers give 0.
    - `guard` κ: π/(D−π) ≤ 1/(κ−1), so rewards stay above −scale/(κ−1). After centring, correct
      answers are above 0 and wrong ones below in every mixed group if scale < (κ−1)/(G−2). This is
      sharp: one correct answer, one wrong with odds 0 and G−2 at the floor have the mean
      (1 − (G−2)·scale/(κ−1))/G. For 1/G it asks for κ > 2 − 2/G.
    - `negative_norm="posterior_std"`: p = (k+1)/(G+2) is the posterior mean of the accuracy under a
      uniform prior; see `lens_ref.extensions.posterior_scale`.
    - `truncated`: fifteen wrong answers of π̄ = .85 ± .03 and a repetitive one of .99 that ran into
      the limit. "keep" lets it set D, and shrinks the spread of the others' odds from .059 to .047;
      "exclude_from_max" leaves them as they were. An *unsure* truncated answer, π̄ = .70, is pushed
      up under both; under "mask" it has no say.

    Raises:
        ValueError: a value outside its choices or range, naming the field.
    """

    alpha: float = 0.25  # weight of negative groups
    guard: float = 2.0  # D ≥ guard · max confidence; the paper's factor 2
    confidence: Confidence = "length_normalized"  # π in the odds π/(D−π) and in the guard
    difficulty_confidence: Confidence = "sequence"  # π in D_imp
    mixed_scale: Literal["1/G"] | float = "1/G"  # factor of the penalty in mixed groups
    negative_scale: Literal["1/G"] | float = "1/G"  # … and in negative groups
    mixed_norm: MixedNorm = "std"
    # posterior_std: de-mean and divide by √(p(1−p)), p = (k+1)/(G+2), continuous in k
    negative_norm: NegativeNorm = "demean"
    baseline: Baseline = "group"  # leave_one_out changes the mean alone; std and D stay the group's
    ddof: int = 0  # the paper doesn't say; torch.std's default would be 1
    eps: float = 0.0  # added to the std
    truncated: Truncation = "keep"
    groups: Groups = "all"  # which kinds get calibrated rewards: the paper's ablation

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} = {value!r}: {nearest(value, choices)}")
        plain: dict[str, float] = {"guard": require_positive(self.guard, "guard", above=1.0)}
        for name in ("alpha", "eps", "mixed_scale", "negative_scale"):
            value = getattr(self, name)
            if name.endswith("_scale") and isinstance(value, str) and value == "1/G":
                continue
            plain[name] = require_at_least(value, name, 0.0)
        ddof = as_number(self.ddof)
        if ddof not in (0, 1):
            raise ValueError(f"ddof = {self.ddof!r}: must be 0 or 1")
        for name, number in {**plain, "ddof": int(ddof)}.items():
            object.__setattr__(self, name, number)  # numbers of other libraries become Python's

    @staticmethod
    def preset(name: str, **changes: Any) -> LensConfig:
        """A named reading of the paper, with further fields changed where given.

        >>> LensConfig.preset("likelihood", alpha=0.5).mixed_norm
        'demean'

        Raises:
            ValueError: an unknown preset or field, with the nearest known one.
        """
        if name not in _PRESETS:
            raise ValueError(f"unknown preset {name!r}: {nearest(name, _PRESETS)}")
        known = [field.name for field in fields(LensConfig)]
        for key in changes:
            if key not in known:
                raise ValueError(f"unknown field {key!r} of LensConfig: {nearest(key, known)}")
        return LensConfig(**{**_PRESETS[name], **changes})

    @staticmethod
    def presets() -> list[str]:
        """The names that `preset` knows."""
        return list(_PRESETS)


@torch.no_grad()
def lens_advantages(
    rollouts: Rollouts, config: LensConfig | None = None, log_estimate: Tensor | None = None
) -> Signal:
    """The LENS advantages of a batch of groups, each group on its own.

    >>> confidence = torch.tensor([[0.6, 0.6, 0.3, 0.3]])  # four wrong answers of one token
    >>> wrong = Rollouts(torch.zeros(1, 4), confidence.log(), torch.ones(1, 4))
    >>> signal = lens_advantages(wrong)
    >>> signal.info["odds"]  # D = 1.2
    tensor([[1.0000, 1.0000, 0.3333, 0.3333]])
    >>> signal.info["calibrated_reward"]  # a quarter of them
    tensor([[-0.2500, -0.2500, -0.0833, -0.0833]])
    >>> signal.advantages  # the mean is −1/6, α is 1/4: ∓1/48
    tensor([[-0.0208, -0.0208,  0.0208,  0.0208]])

    Args:
        rollouts: `[B, G]` rewards, sequence log-probabilities and lengths.
        config: the reading; default `LensConfig()`, the paper as printed.
        log_estimate: `[B]` an estimate of log D from elsewhere, such as one pooled over past
            batches, in place of log D_imp and in negative groups too; the guard stays on top.

    Returns:
        Advantages `[B, G]` with α folded in; `keep` (False for rows that are not valid, or masked
        as truncated); `info` with `group_kind` and `log_difficulty` `[B]`, `log_confidence`,
        `odds` (u, before scaling) and `calibrated_reward` (what entered the normalisation)
        `[B, G]`. All detached. A row that doesn't count is 0 everywhere.

    Raises:
        DomainError: a number outside its domain in a row that counts (see `Rollouts`).
        ValueError: a truncation rule other than "keep" on rollouts that don't say which responses
            were truncated; an argument of another type.
    """
    config = LensConfig() if config is None else config
    if not isinstance(rollouts, Rollouts):
        raise ValueError(f"rollouts is a {type(rollouts).__name__}: Rollouts are needed")
    if not isinstance(config, LensConfig):
        raise ValueError(f"config = {config!r}: a LensConfig is needed, or LensConfig.preset(name)")
    valid = _rows_that_count(rollouts, config)
    rewards, dtype = working_copy(rollouts)
    rewards = rewards.masked_fill(~valid, 0.0)
    count = valid.sum(-1, keepdim=True).clamp(min=1).to(rewards.dtype)  # G, valid rows only

    log_pi = rollouts.logprobs.detach().to(rewards.dtype).masked_fill(~valid, 0.0)
    lengths = rollouts.lengths.detach().to(rewards.dtype).masked_fill(~valid, 1.0)
    readings = {
        "sequence": log_pi.clamp(max=0.0),
        "length_normalized": length_normalized(log_pi, lengths),
    }
    # Rows that don't count have confidence 0: no say in the maximum, odds 0.
    log_confidence = readings[config.confidence].masked_fill(~valid, -math.inf)
    if config.truncated == "exclude_from_max":
        log_confidence = _cap_truncated(log_confidence, rollouts, valid)

    # Only π/D matters, so everything is taken relative to the group's most confident response:
    # log-probabilities of −10⁴ keep their digits.
    top = log_confidence.amax(-1, keepdim=True).masked_fill(~valid.any(-1, keepdim=True), 0.0)
    # Confidences that rounding alone can have parted are equal: their spread, standardised, would
    # be a full-strength signal.
    size = log_confidence.abs().masked_fill(~valid, 0.0).amax(-1, keepdim=True)
    equal = all_equal(log_confidence, valid, _rounding(rollouts.logprobs) * size)
    relative = (log_confidence - top).masked_fill(equal & valid, 0.0)
    importance = readings[config.difficulty_confidence] - top
    log_difficulty = difficulty(rewards, relative, config.guard, importance, valid)
    if log_estimate is not None:
        estimate = log_estimate.detach().to(rewards.dtype) - top.squeeze(-1)
        floor = difficulty(torch.zeros_like(rewards), relative, config.guard, valid=valid)
        log_difficulty = torch.maximum(estimate, floor)
    log_difficulty = log_difficulty.masked_fill(~valid.any(-1), 0.0)

    # A fractional group of equal rewards carries no more verdict than a negative one: standardising
    # it would blow pure confidence up to full strength.
    kind = group_kind(rewards, valid)
    correct = (kind == CORRECT).unsqueeze(-1)
    negative = (kind == NEGATIVE).unsqueeze(-1) | (all_equal(rewards, valid) & ~correct)
    calibrate = negative if config.groups == "negative" else ~negative
    if config.groups == "all":
        calibrate = torch.ones_like(negative)

    scale = torch.where(
        negative, _scale(config.negative_scale, count), _scale(config.mixed_scale, count)
    )
    calibrated = calibrated_reward(rewards, relative, log_difficulty, scale)
    entered = torch.where(calibrate, calibrated, rewards)

    mixed_part = _normalize(entered, rewards, valid, config.mixed_norm, config)
    negative_part = config.alpha * _normalize(entered, rewards, valid, config.negative_norm, config)
    if config.groups == "mixed":
        negative_part = torch.zeros_like(negative_part)
    advantages = torch.where(negative, negative_part, mixed_part)

    def returned(x: Tensor) -> Tensor:
        return x.masked_fill(~valid, 0.0).to(dtype)

    return Signal(
        advantages=returned(advantages.masked_fill(correct, 0.0)),
        keep=valid,
        info={
            "group_kind": kind,
            "log_difficulty": (log_difficulty + top.squeeze(-1)).to(dtype),
            "log_confidence": returned(log_confidence),
            "odds": returned(odds_from_log(relative - log_difficulty.unsqueeze(-1))),
            "calibrated_reward": returned(entered),
        },
    )


def _rounding(log_pi: Tensor) -> float:
    """How far, of their size, two equal confidences may lie apart: log π is known to half an eps of
    its dtype, the quotient by the length to half an eps of a wider one."""
    wide = common_dtype(log_pi)
    own = log_pi.dtype if log_pi.is_floating_point() else wide
    return max(torch.finfo(own).eps, 2 * torch.finfo(wide).eps)


def _rows_that_count(rollouts: Rollouts, config: LensConfig) -> Tensor:
    valid = rollouts.valid_rows()
    if config.truncated != "keep" and rollouts.truncated is None:
        raise ValueError(
            f"truncated={config.truncated!r} needs rollouts.truncated [B, G]: "
            "which responses the length limit stopped"
        )
    if config.truncated == "mask":
        valid = valid & ~rollouts.truncated.bool()  # type: ignore[union-attr]
    rollouts.check_truncated(valid)
    return valid


def _cap_truncated(log_confidence: Tensor, rollouts: Rollouts, valid: Tensor) -> Tensor:
    """Truncated rows do not set the group's maximum, and are capped at it; where every row is
    truncated there is nothing else to take the maximum over."""
    truncated = valid & rollouts.truncated.bool()  # type: ignore[union-attr]
    finished = valid & ~truncated
    finished = torch.where(finished.any(-1, keepdim=True), finished, valid)
    cap = log_confidence.masked_fill(~finished, -math.inf).amax(-1, keepdim=True)
    return torch.where(truncated, torch.minimum(log_confidence, cap), log_confidence)


def _scale(scale: str | float, count: Tensor) -> Tensor:
    return 1.0 / count if isinstance(scale, str) else torch.full_like(count, scale)


def _normalize(
    x: Tensor, rewards: Tensor, valid: Tensor, norm: MixedNorm | NegativeNorm, config: LensConfig
) -> Tensor:
    leave_one_out = config.baseline == "leave_one_out"
    if norm == "none":
        return x
    if norm in ("std", "demean_std"):
        return standardized(x, valid, config.ddof, config.eps, leave_one_out)
    difference = centred(x, valid, leave_one_out)
    if norm == "posterior_std":
        p = (rewards.sum(-1, keepdim=True) + 1) / (valid.sum(-1, keepdim=True) + 2)
        return difference / (p * (1 - p)).sqrt()
    return difference
