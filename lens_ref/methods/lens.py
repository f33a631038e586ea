"""LENS: wrong answers pay the odds that the policy gave them, in negative groups too."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lens_ref.core.advantage import LensConfig, lens_advantages
from lens_ref.core.groups import Rollouts, Signal
from lens_ref.methods.registry import Method, MethodSpec, register


def lens(preset: str = "paper", **fields: Any) -> Method:
    """`lens_advantages` under a preset of `LensConfig`, any field changed where given."""
    config = LensConfig.preset(preset, **fields)

    def method(rollouts: Rollouts) -> Signal:
        return lens_advantages(rollouts, config)

    return method


register(
    MethodSpec(
        name="lens",
        build=lens,
        summary="calibrated rewards, centred in negative groups at weight alpha",
        source="arXiv:2510.08696",
        negative_class="zero_sum",
        needs=("rewards", "logprobs", "lengths"),
        defaults={"preset": "paper", **asdict(LensConfig())},
        source_defaults=asdict(LensConfig()),
    )
)
