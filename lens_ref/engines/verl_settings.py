"""What of verl's configuration makes a method of `lens_ref.methods`, and what contradicts one.

    algorithm.lens.method            a name of `lens_ref.methods.names()`; default lens
    algorithm.lens.<hyperparameter>  any of the method's: for lens `preset`, any `LensConfig` field
    algorithm.lens.allow             settings below that would be refused but are meant

A setting is refused where it would change without a word what is learnt from negative groups: throw
their signal away, drown it, or compute it from other numbers than the paper's. Nothing here imports
verl or omegaconf: a configuration is anything with `get`, as OmegaConf's are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from lens_ref.methods.treatment import Treatment

ESTIMATOR = "lens"
TRAINER_MODE = "lens_sync"
SUPPORTED = ("0.9.1", "0.10")
"""The releases of verl this was tested with: from the first, below the second."""


@dataclass(frozen=True)
class Refusal:
    """A setting, the values that pass, why no other one, and what to write instead."""

    path: str
    passes: Callable[[Any], bool]
    why: str
    mend: str
    allowable: bool = True  # whether `algorithm.lens.allow` may let it pass

    @property
    def name(self) -> str:
        """What `allow` calls it: the last part of its path."""
        return self.path.rpartition(".")[2]


REFUSALS = (
    Refusal(
        "algorithm.adv_estimator",
        lambda value: value == ESTIMATOR,
        f"trainer mode {TRAINER_MODE} serves that estimator alone",
        f"algorithm.adv_estimator={ESTIMATOR} (and the method in algorithm.lens.method)",
        allowable=False,
    ),
    Refusal(
        "actor_rollout_ref.rollout.n",
        lambda value: value is not None and value >= 2,
        "a group of one response has nothing to compare",
        "actor_rollout_ref.rollout.n=16",
        allowable=False,
    ),
    Refusal(
        "algorithm.filter_groups.enable",
        lambda value: not value,
        "it removes the groups whose raw rewards are all equal, negative ones first",
        "algorithm.filter_groups.enable=False",
        allowable=False,
    ),
    Refusal(
        "algorithm.use_kl_in_reward",
        lambda value: not value,
        "a reward with a KL penalty in it is no longer in [0, 1]",
        "algorithm.use_kl_in_reward=False",
        allowable=False,
    ),
    Refusal(
        "actor_rollout_ref.actor.use_kl_loss",
        lambda value: not value,
        "a KL term drowns the signal from negative groups, and the objective has none",
        "actor_rollout_ref.actor.use_kl_loss=False",
    ),
    Refusal(
        "actor_rollout_ref.actor.loss_agg_mode",
        lambda value: value == "seq-mean-token-mean",
        "the objective is the mean over each response's tokens, then over responses",
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean (not verl's default)",
    ),
    Refusal(
        "actor_rollout_ref.actor.policy_loss.loss_mode",
        lambda value: value == "vanilla",
        "the objective clips the ratio of each token",
        "actor_rollout_ref.actor.policy_loss.loss_mode=vanilla",
    ),
    Refusal(
        "algorithm.rollout_correction.rollout_rs",
        lambda value: value is None,
        "rejection drops responses or tokens by their ratio, which grows with the length",
        "algorithm.rollout_correction.rollout_rs=null",
    ),
    Refusal(
        "algorithm.rollout_correction.rollout_is_threshold",
        lambda value: not (isinstance(value, str) and "_" in value),
        "two bounds set the weight of every token outside them to 0 (IcePop); one bound truncates",
        "algorithm.rollout_correction.rollout_is_threshold=2.0",
    ),
    Refusal(
        "trainer.v1.sampler.custom_sampler.path",
        lambda value: value is None,
        "a sampler of one's own may drop groups by their raw rewards",
        "trainer.v1.sampler.custom_sampler.path=null",
    ),
)

NEUTRAL = {"top_p": 1.0, "top_k": -1}
"""Sampling settings that leave the policy's distribution whole."""


def treatment(algorithm: Any) -> tuple[Treatment, tuple[str, ...]]:
    """The method that `algorithm.lens` asks for, and the settings it allows.

    Raises:
        ValueError: an unknown method or hyperparameter, with the nearest known one; a bad value.
    """
    lens = algorithm.get("lens") or {}
    if not hasattr(lens, "keys"):
        raise ValueError(
            f"algorithm.lens={lens}: choose a method with algorithm.lens.method={lens}"
        )
    given = dict(lens)
    method, allow = given.pop("method", None) or "lens", given.pop("allow", None) or ()
    allow = (allow,) if isinstance(allow, str) else allow
    if not isinstance(allow, Sequence) or not all(isinstance(name, str) for name in allow):
        raise ValueError(f"algorithm.lens.allow={allow}: write a list, allow=[use_kl_loss]")
    try:
        return Treatment(method, hyperparameters=given), tuple(allow)
    except (TypeError, ValueError) as error:
        raise ValueError(f"algorithm.lens: {error}") from None


def check(config: Any, method: Treatment, allow: Collection[str] = ()) -> None:
    """Refuse what contradicts the method, before a model is loaded; warn of what blurs it.

    Args:
        config: verl's whole configuration.

    Raises:
        ValueError: one line that names the setting, the reason and the mend.
    """
    known = [refusal.name for refusal in REFUSALS if refusal.allowable]
    for name in allow:
        if name not in known:
            raise ValueError(f"algorithm.lens.allow: {name!r} is not one of {', '.join(known)}")
    for refusal in REFUSALS:
        value = lookup(config, refusal.path)
        if refusal.passes(value) or refusal.name in allow:
            continue
        unless = (
            f", or +algorithm.lens.allow=[{refusal.name}] if it is meant"
            if refusal.allowable
            else ""
        )
        raise ValueError(f"{refusal.path}={value}: {refusal.why}; set {refusal.mend}{unless}")
    bypass = lookup(config, "algorithm.rollout_correction.bypass_mode")
    if bypass and method.needs("entropy"):
        raise ValueError(
            f"algorithm.rollout_correction.bypass_mode=True: {method.spec.name} needs the token "
            "entropies of the forward pass that it leaves out; set it to False"
        )
    if bypass and not lookup(config, "actor_rollout_ref.rollout.calculate_log_probs"):
        raise ValueError(
            "algorithm.rollout_correction.bypass_mode=True takes the rollout engine's "
            "log-probabilities; set actor_rollout_ref.rollout.calculate_log_probs=True"
        )
    _check_shares(config)
    for name, neutral in NEUTRAL.items():
        value = lookup(config, f"actor_rollout_ref.rollout.{name}")
        if value != neutral:
            warnings.warn(
                f"actor_rollout_ref.rollout.{name}={value}: confidences are those of the policy at "
                f"its temperature, not of the truncated distribution; {name}={neutral} makes them "
                "agree",
                stacklevel=3,
            )


def _check_shares(config: Any) -> None:
    """verl finds this out after a whole batch has been sampled."""
    questions = lookup(config, "actor_rollout_ref.actor.ppo_mini_batch_size")
    responses = questions * lookup(config, "actor_rollout_ref.rollout.n")
    gpus = lookup(config, "trainer.nnodes") * lookup(config, "trainer.n_gpus_per_node")
    actor = "actor_rollout_ref.actor"
    together = max(
        lookup(config, f"{actor}.{place}ulysses_sequence_parallel_size") or 1
        for place in ("", "fsdp_config.")
    )
    if responses * together % gpus:
        raise ValueError(
            f"an update of {responses} responses can't be shared equally by {gpus} GPUs: choose "
            "trainer.nnodes and trainer.n_gpus_per_node whose product divides it, or another "
            "actor_rollout_ref.actor.ppo_mini_batch_size"
        )


def lookup(config: Any, path: str) -> Any:
    """The value at a dotted path; None where a part of it is missing."""
    for name in path.split("."):
        if config is None:
            return None
        config = config.get(name)
    return config


def check_version(version: str) -> None:
    """Warn where this release of verl was not tested."""
    low, high = (_numbers(bound) for bound in SUPPORTED)
    if not low <= _numbers(version) < high:
        warnings.warn(
            f"verl {version} is outside {SUPPORTED[0]} <= version < {SUPPORTED[1]}, which lens_ref "
            "was tested with: a private method of its trainer is overridden here",
            stacklevel=3,
        )


def _numbers(version: str) -> tuple[int, ...]:
    """ "0.9.1.dev3" → (0, 9, 1): the leading numbers."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
