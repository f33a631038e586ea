"""What of TRL's `GRPOConfig` goes together with a treatment of negative groups, and what doesn't.

A setting is refused where it would change without a word what is learnt from negative groups:
throw their signal away, drown it, or compute it from other probabilities than the sampler's.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

SUPPORTED = "trl>=1.12,!=1.15.0,<1.17"
"""The releases of TRL that the tests run against, ends included."""


@dataclass(frozen=True)
class Refusal:
    """A setting, when it is refused, why, and what to write instead."""

    name: str
    refused: Callable[[Any], bool]  # the GRPOConfig → whether its value is refused
    why: str
    mend: str
    allowable: bool = True  # whether `allow=` may let it pass


REFUSALS = (
    Refusal(
        "loss_type",
        lambda args: args.loss_type != "grpo",
        "the objective is the mean over each response's tokens, then over responses",
        'loss_type="grpo" (not TRL\'s default)',
        allowable=False,
    ),
    Refusal(
        "beta",
        lambda args: args.beta != 0.0,
        "a KL term drowns the signal from negative groups, and the objective has none",
        "beta=0.0",
    ),
    Refusal(
        "entropy_coef",
        lambda args: getattr(args, "entropy_coef", 0.0) != 0.0,
        "an entropy term drowns the signal from negative groups, and the objective has none",
        "entropy_coef=0.0",
    ),
    Refusal(
        "use_adaptive_entropy",
        lambda args: getattr(args, "use_adaptive_entropy", False),
        "an entropy term drowns the signal from negative groups, and the objective has none",
        "use_adaptive_entropy=False",
    ),
    Refusal(
        "mask_truncated_completions",
        lambda args: args.mask_truncated_completions,
        "it empties truncated responses, which then seem to be certain",
        'mask_truncated_completions=False, and truncated="mask" of LensConfig to leave them out',
        allowable=False,
    ),
    Refusal(
        "multi_objective_aggregation",
        lambda args: args.multi_objective_aggregation != "sum_then_normalize",
        "standardised rewards are no longer in [0, 1]",
        'multi_objective_aggregation="sum_then_normalize"',
        allowable=False,
    ),
    Refusal(
        "generation_kwargs",
        lambda args: (
            (args.generation_kwargs or {}).get("temperature", args.temperature) != args.temperature
        ),
        "it samples at another temperature than log-probabilities are computed at",
        "temperature in GRPOConfig itself",
        allowable=False,
    ),
    Refusal(
        "off_policy_mask_threshold",
        lambda args: args.off_policy_mask_threshold is not None,
        "it drops responses with a negative advantage alone, so that negative groups push upwards",
        "off_policy_mask_threshold=None",
    ),
    Refusal(
        "top_entropy_quantile",
        lambda args: args.top_entropy_quantile < 1.0,
        "it drops the tokens that the policy is sure of: where confident mistakes are",
        "top_entropy_quantile=1.0",
    ),
    Refusal(
        "importance_sampling_level",
        lambda args: args.importance_sampling_level != "token",
        "the objective clips the ratio of each token",
        'importance_sampling_level="token"',
    ),
    Refusal(
        "vllm_importance_sampling_mode",
        lambda args: (
            args.use_vllm
            and args.vllm_importance_sampling_correction
            and args.vllm_importance_sampling_mode != "token_truncate"
        ),
        "it drops or weighs responses by a ratio that moves away from 1 with their length",
        'vllm_importance_sampling_mode="token_truncate" or '
        "vllm_importance_sampling_correction=False",
    ),
)


NEUTRAL = {
    "top_p": (1.0,),
    "top_k": (0, None, -1),
    "min_p": (None, 0.0),
    "repetition_penalty": (1.0,),
}
"""Sampling settings of `GRPOConfig`, and the values that leave the policy's distribution whole."""

NEUTRAL_UNNAMED = {
    "do_sample": (True,),
    "num_beams": (1,),
    "no_repeat_ngram_size": (0,),
    "typical_p": (1.0,),
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
}
"""The same of settings that `generation_kwargs` or a model's `generation_config` can hold."""


def check(args: Any, method: str, allow: Collection[str] = ()) -> None:
    """Refuse what contradicts a method, warn of what has no effect.

    Args:
        args: a `GRPOConfig`.
        method: as it is named in messages.
        allow: settings that are meant although they would be refused.

    Raises:
        ValueError: one line that names the setting, the reason and the mend.
    """
    known = [refusal.name for refusal in REFUSALS if refusal.allowable]
    for name in allow:
        if name not in known:
            raise ValueError(f"allow: {name!r} is not one of {', '.join(known)}")
    for refusal in REFUSALS:
        if refusal.name in allow or not refusal.refused(args):
            continue
        value = getattr(args, refusal.name)
        unless = f', or allow=["{refusal.name}"] if it is meant' if refusal.allowable else ""
        raise ValueError(f"{refusal.name} = {value!r}: {refusal.why}; set {refusal.mend}{unless}")
    _warn(args, method)


def _warn(args: Any, method: str) -> None:
    if args.scale_rewards != "none":
        warnings.warn(
            f"scale_rewards = {args.scale_rewards!r} has no effect: {method} scales the advantages "
            'itself; set scale_rewards="none"',
            stacklevel=4,
        )
    given = args.generation_kwargs or {}
    for name, values in {**NEUTRAL, **NEUTRAL_UNNAMED}.items():
        value = given.get(name, getattr(args, name, values[0]))
        if value not in values:
            warnings.warn(
                f"{name} = {value!r}: confidences are those of the policy at its "
                f"temperature, not of the truncated distribution; {name}={values[0]!r} makes "
                "them agree",
                stacklevel=4,
            )
    passes, each = args.steps_per_generation * args.num_iterations, args.gradient_accumulation_steps
    if args.save_strategy == "steps" and (args.save_steps * each) % passes:
        whole = passes // math.gcd(passes, each)
        warnings.warn(
            f"save_steps = {args.save_steps} falls inside a batch of responses: a resumed run "
            f"samples that batch anew; make it a multiple of {whole} to resume exactly",
            stacklevel=4,
        )


def check_model(model: Any, args: Any) -> None:
    """Warn of what a model brings along that blurs confidences.

    Args:
        model: the policy that is trained.
        args: a `GRPOConfig`.
    """
    rates = [m.p for m in model.modules() if type(m).__name__.startswith("Dropout") and m.p > 0]
    rates += [rate for rate in (getattr(model.config, "attention_dropout", 0.0),) if rate]
    if rates and not args.disable_dropout:
        warnings.warn(
            f"dropout of {max(rates):g}: log-probabilities, and so confidences, are those of a "
            "policy with units left out at random; set disable_dropout=True (and lora_dropout=0)",
            stacklevel=3,
        )
    own = getattr(model, "generation_config", None)
    for name, values in NEUTRAL_UNNAMED.items():
        value = getattr(own, name, None)
        if name != "do_sample" and not args.use_vllm and value not in (None, *values):
            warnings.warn(
                f"generation_config.{name} = {value!r} of the model reaches the sampler: "
                "confidences are not those of its distribution; set "
                f"model.generation_config.{name} = {values[0]!r}",
                stacklevel=3,
            )


def check_version(version: str) -> None:
    """Warn where this release of TRL was not tested."""
    from packaging.requirements import Requirement  # comes with TRL

    if not Requirement(SUPPORTED).specifier.contains(version, prereleases=True):
        warnings.warn(
            f"TRL {version} is outside {SUPPORTED}, which lens_ref was tested with: two private "
            "methods of its trainer are overridden here",
            stacklevel=3,
        )
