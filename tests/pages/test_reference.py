"""The names that users rely on are importable and stand on the reference pages."""

from __future__ import annotations

import dataclasses
import importlib
import re

import pytest

import lens_ref
from lens_ref import LensConfig, LossOutput, Rollouts, Signal, methods
from lens_ref.verifier import Verdict, Verifier
from tests.pages.reading import ROOT

REFERENCE = ROOT / "docs/site/api"
STABLE = {
    "lens_ref": (
        "weight weight_derivative odds weight_from_log odds_from_log log1mexp length_normalized "
        "importance_difficulty difficulty calibrated_reward Rollouts Signal LensConfig DomainError "
        "lens_advantages group_kind grpo_loss LossOutput true_difficulty mle_loss bernoulli_nll "
        "mle_coefficient value value_positive value_negative value_mle value_mle_closed_form "
        "length_preference_reward pass_at_k"
    ),
    "lens_ref.methods": "names get spec",
    "lens_ref.verifier": "extract_boxed Verifier Verdict",
}
NAMES = [(module, name) for module, names in STABLE.items() for name in names.split()]
FIELDS = {
    Rollouts: "rewards logprobs lengths token_logprobs mask entropy prior valid truncated",
    Signal: "advantages keep info",
    LensConfig: (
        "alpha guard confidence difficulty_confidence mixed_scale negative_scale mixed_norm "
        "negative_norm baseline ddof eps truncated groups"
    ),
    Verdict: "reward reason",
    methods.MethodSpec: "level needs negative_class defaults source source_defaults loss",
}
PRESETS = (
    "paper normalized_difficulty raw_all neg_unscaled no_scale negative_std no_demean likelihood"
)
METHODS = (
    "grpo dr_grpo rloo dapo lens psr nsr w_reinforce ngrpo rl_zvp reinforce_pp spo ebpo asymre "
    "passk avspo"
)
REASONS = "correct wrong no_answer unparsable timeout error"


def documented() -> set[str]:
    """`module.name` of every directive of the reference."""
    found = set()
    for page in REFERENCE.glob("*.rst"):
        module = ""
        for kind, name in re.findall(
            r"(?m)^\.\. (automodule|currentmodule|auto\w+):: (\S+)", page.read_text("utf-8")
        ):
            if kind in ("automodule", "currentmodule"):
                module = name
            else:
                found.add(name if name.startswith("lens_ref.") else f"{module}.{name}")
    return found


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_stable_name_is_importable_and_documented(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)
    assert f"{module}.{name}" in documented()


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_it_says_what_it_is(module: str, name: str) -> None:
    text = getattr(importlib.import_module(module), name).__doc__
    assert text
    assert len(text.split()) > 3


@pytest.mark.parametrize("cls", FIELDS, ids=lambda cls: cls.__name__)
def test_fields(cls: type) -> None:
    assert set(FIELDS[cls].split()) <= {field.name for field in dataclasses.fields(cls)}


def test_what_the_loss_returns() -> None:
    assert LossOutput._fields == ("loss", "clip_fraction", "mean_ratio", "approx_kl")


def test_presets_and_methods() -> None:
    assert LensConfig.presets() == PRESETS.split()
    assert set(METHODS.split()) <= set(methods.names())
    for name in ("init_state", "update", "prior"):
        assert callable(getattr(methods.MethodSpec, name))


def test_the_verifier_says_why() -> None:
    from typing import get_args

    from lens_ref.verifier import Reason

    assert get_args(Reason) == tuple(REASONS.split())
    assert callable(Verifier.grade)


def test_nothing_public_is_left_out_of_the_reference() -> None:
    everything = {f"lens_ref.{name}" for name in lens_ref.core.__all__}
    for module in ("methods", "extensions", "verifier"):
        names = importlib.import_module(f"lens_ref.{module}").__all__
        everything |= {f"lens_ref.{module}.{name}" for name in names}
    renamed = {"lens_ref.methods.State": "lens_ref.methods.registry.State"}
    assert {renamed.get(name, name) for name in everything} <= documented()
