"""What a run was made with, for its `manifest.json`: all that stays the same until its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lens_ref.rlvr.config import Config
from lens_ref.rlvr.policy import Policy
from lens_ref.rlvr.run_folder import environment
from lens_ref.rlvr.sampler import Sampler
from lens_ref.rlvr.stopwatch import describe_gpu
from lens_ref.rlvr.tasks import Questions


def describe(
    config: Config, policy: Policy, sampler: Sampler, train: Questions, test: Questions | None
) -> dict[str, Any]:
    """Method, policy, sampler, data, versions and hardware."""
    return {
        "method": config.method,
        "seed": config.seed,
        "steps": config.steps,
        "parameters": {
            "total": sum(p.numel() for p in policy.model.parameters()),
            "trainable": sum(p.numel() for p in policy.trainable().values()),
        },
        "policy": {"source": config.model.path, **policy_entry(policy)},
        "device": str(policy.device),
        "sampler": {"engine": sampler.engine, "version": sampler.version},
        "gpu": describe_gpu(policy.device),
        "data": {
            "train": train.describe(),
            "test": None if test is None else test.describe(),
        },
        **environment(),
    }


def policy_entry(policy: Policy) -> dict[str, str | None]:
    """Which weights were loaded: their hash from a folder, the commit from the hub."""
    commit = getattr(policy.model.config, "_commit_hash", None)
    return {"sha256": policy.sha256, "commit": commit if isinstance(commit, str) else None}


def comparable(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What both of two entries `policy` tell of their weights, "sha256" or "commit"."""
    return [name for name in ("sha256", "commit") if then.get(name) and now.get(name)]


def other_weights(then: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """By what two entries `policy` are of other weights, in words; None where nothing says so."""
    for name in comparable(then, now):
        if then[name] != now[name]:
            return f"{name} {then[name][:12]}… then, {now[name][:12]}… now"
    return None
