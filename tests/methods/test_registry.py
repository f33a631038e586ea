"""Specs, names, hyperparameters, and what a method says about rollouts that lack something."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch

from lens_ref import Rollouts, methods
from tests.methods.batches import EVERYTHING, STATEFUL, batch, random_batch

LITERATURE = [
    *("grpo", "dr_grpo", "rloo", "dapo", "lens", "psr", "nsr", "w_reinforce", "ngrpo", "rl_zvp"),
    *("reinforce_pp", "spo", "ebpo", "asymre", "passk", "avspo"),
]
CLASSES = {
    "grpo": "zero",
    "dr_grpo": "zero",
    "rloo": "zero",
    "dapo": "dropped",
    "lens": "zero_sum",
    "psr": "dropped",
    "nsr": "all_negative",
    "w_reinforce": "all_negative",
    "ngrpo": "all_negative",
    "rl_zvp": "all_negative",
    "reinforce_pp": "batch_dependent",
    "spo": "batch_dependent",
    "ebpo": "batch_dependent",
    "asymre": "all_positive",
    "passk": "zero",
    "avspo": "batch_dependent",
    "lens_pooled": "zero_sum",
}


def test_names() -> None:
    assert methods.names() == sorted([*LITERATURE, "lens_pooled"])


@pytest.mark.parametrize("name", EVERYTHING)
def test_spec(name: str) -> None:
    spec = methods.spec(name)
    assert spec.name == name
    assert spec.negative_class == CLASSES[name]
    assert spec.level == ("token" if name == "rl_zvp" else "sequence")
    assert spec.source.startswith("arXiv:") or name == "lens_pooled"
    assert set(spec.source_defaults) <= set(spec.defaults)
    assert set(spec.needs) <= {field.name for field in dataclasses.fields(Rollouts)}
    for text in (spec.summary, spec.negative_signal, spec.evidence, spec.cost):
        assert text
        assert "\n" not in text


def test_defaults() -> None:
    assert methods.spec("passk").defaults == {"k": 4}
    assert methods.spec("ngrpo").defaults == {"n_virtual": 1, "ddof": 0, "eps": 0.0}
    assert methods.spec("w_reinforce").defaults == {"lam": 0.1}
    assert methods.spec("asymre").defaults == {"delta_v": -0.1}
    assert methods.spec("rl_zvp").defaults["alpha"] == 0.1
    assert methods.spec("lens").defaults["alpha"] == 0.25
    assert methods.spec("ebpo").defaults["strength"] == 0.5
    assert methods.spec("reinforce_pp").defaults["weighting"] == "sequence"
    assert methods.spec("avspo").defaults["acr"] is None
    for name in EVERYTHING:
        defaults = methods.spec(name).defaults
        assert defaults.get("ddof", 0) == 0
        assert defaults.get("eps", 0.0) == 0.0
    assert methods.spec("ngrpo").source_defaults["ddof"] == 1


def test_published_losses() -> None:
    dapo = methods.spec("dapo").loss
    assert (dapo.clip_low, dapo.clip_high, dapo.aggregation) == (0.2, 0.28, "token_mean")
    ngrpo = methods.spec("ngrpo").loss
    assert (ngrpo.clip_low, ngrpo.clip_high, ngrpo.aggregation) == (0.16, 0.24, "token_mean")
    assert methods.spec("dr_grpo").loss.aggregation == "constant"
    assert methods.spec("grpo").loss == methods.PublishedLoss()


@pytest.mark.parametrize("name", EVERYTHING)
def test_defaults_are_what_a_bare_call_uses(name: str) -> None:
    rollouts = random_batch(3)
    spec = methods.spec(name)
    bare = methods.get(name)(rollouts)
    assert torch.equal(methods.get(name, **spec.defaults)(rollouts).advantages, bare.advantages)
    methods.get(name, **spec.source_defaults)(rollouts)
    methods.get(name, **spec.state_defaults)(rollouts)


@pytest.mark.parametrize("name", EVERYTHING)
def test_what_it_needs_is_asked_for_by_name(name: str) -> None:
    rollouts = random_batch(0)
    for need in methods.spec(name).needs:
        if need in ("rewards", "logprobs", "lengths"):
            continue
        poorer = dataclasses.replace(rollouts, **{need: None})
        with pytest.raises(ValueError, match=rf"{name} needs rollouts\.{need}: \[B"):
            methods.get(name)(poorer)
    core = Rollouts(rollouts.rewards, rollouts.logprobs, rollouts.lengths)
    if set(methods.spec(name).needs) <= {"rewards", "logprobs", "lengths"} and name != "avspo":
        methods.get(name)(core)


def test_avspo_says_what_it_lacks() -> None:
    rollouts = batch([[0.0, 0.0]], prior=None)
    with pytest.raises(ValueError, match=r"prior \[B\].*acr"):
        methods.get("avspo")(rollouts)
    methods.get("avspo", acr=0.5)(rollouts)


@pytest.mark.parametrize(
    ("name", "hyperparameters", "message"),
    [
        ("ngrpo", {"n_virtuel": 1}, "unknown hyperparameter 'n_virtuel' of ngrpo"),
        ("rloo", {"k": 1}, "unknown hyperparameter 'k' of rloo: it has none"),
        ("ngrpo", {"n_virtual": -1}, "n_virtual = -1: must be >= 0"),
        ("ngrpo", {"n_virtual": 1.5}, "n_virtual = 1.5: must be a whole number"),
        ("ngrpo", {"n_virtual": True}, "n_virtual = True"),
        ("passk", {"k": 0}, "k = 0: must be >= 1"),
        ("w_reinforce", {"lam": -0.1}, "lam = -0.1: must be >= 0"),
        ("w_reinforce", {"lam": "much"}, "lam = 'much': must be a finite number"),
        ("asymre", {"delta_v": float("nan")}, "delta_v = nan: must be a finite number"),
        ("rl_zvp", {"alpha": -1}, "alpha = -1: must be >= 0"),
        ("ebpo", {"strength": 1.5}, "strength = 1.5: must lie in [0, 1]"),
        ("ebpo", {"whiten": "no"}, "whiten = 'no'"),
        ("avspo", {"acr": 2}, "acr = 2: must lie in [0, 1]"),
        ("avspo", {"anchor": 0}, "anchor = 0"),
        ("avspo", {"window": 0}, "window = 0: must be >= 1"),
        ("reinforce_pp", {"weighting": "tokens"}, "did you mean 'token'?"),
        ("reinforce_pp", {"baseline": "batch"}, "baseline = 'batch'"),
        ("spo", {"rho": -1}, "rho = -1: must lie in [0, 1]"),
        ("lens_pooled", {"count": 0}, "count = 0: must be above 0"),
        ("lens_pooled", {"preset": "papers"}, "did you mean 'paper'?"),
        ("grpo", {"ddof": 2}, "ddof = 2: must be 0 or 1"),
        ("grpo", {"eps": -1.0}, "eps = -1.0: must be >= 0"),
    ],
)
def test_bad_values(name: str, hyperparameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        methods.get(name, **hyperparameters)


@pytest.mark.parametrize("name", STATEFUL)
def test_a_prior_out_of_range_is_named(name: str) -> None:
    for bad in (-0.5, float("nan"), float("inf")):
        rollouts = batch([[0.0, 1.0]] * 3, prior=torch.tensor([0.4, 0.4, bad]))
        with pytest.raises(ValueError, match=r"prior\[2\] = "):
            methods.get(name)(rollouts)


def test_pass_at_k_refuses_fractions() -> None:
    with pytest.raises(ValueError, match=r"rewards\[0, 1\] = 0\.5"):
        methods.get("passk")(batch([[0.0, 0.5, 1.0, 0.0]]))


def test_entropies_are_checked_where_they_count() -> None:
    entropy = torch.tensor([[[0.1, -0.5], [0.2, 0.3]]])
    lengths = [[2, 1]]
    with pytest.raises(ValueError, match=r"entropy\[0, 0, 1\] = -0\.5"):
        methods.get("rl_zvp")(batch([[0.0, 0.0]], None, lengths, entropy=entropy))
    entropy[0, 0, 1], entropy[0, 1, 1] = 0.3, torch.nan  # the second is beyond the response's end
    signal = methods.get("rl_zvp")(batch([[0.0, 0.0]], None, lengths, entropy=entropy))
    assert signal.advantages.isfinite().all()


def test_entropies_must_line_up_with_the_responses() -> None:
    rollouts = batch([[0.0, 0.0]], None, [[3, 1]])
    for changes, message in (
        ({"entropy": torch.zeros(1, 2, 2)}, "entropy has 2 positions, mask 3"),
        ({"entropy": torch.zeros(1, 2, 0)}, "entropy has 0 positions, mask 3"),
        (
            {"entropy": torch.zeros(1, 2, 2), "mask": None, "token_logprobs": None},
            "entropy has 2 positions for a response of 3 tokens",
        ),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            methods.get("rl_zvp")(dataclasses.replace(rollouts, **changes))
    whole = dataclasses.replace(rollouts, entropy=torch.ones(1, 2, 3, dtype=torch.int64))
    assert (methods.get("rl_zvp")(whole).advantages == 0).all()
