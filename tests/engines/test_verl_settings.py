"""What `lens_ref.engines.verl` takes from verl's configuration, and refuses; needs no verl."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from lens_ref.engines.verl_settings import REFUSALS, check, check_version, lookup, treatment
from lens_ref.methods.treatment import Treatment

GOOD: dict[str, Any] = {
    "algorithm": {
        "adv_estimator": "lens",
        "filter_groups": {"enable": False},
        "use_kl_in_reward": False,
        "rollout_correction": {
            "rollout_rs": None,
            "rollout_is_threshold": 2.0,
            "bypass_mode": False,
        },
    },
    "actor_rollout_ref": {
        "actor": {
            "use_kl_loss": False,
            "loss_agg_mode": "seq-mean-token-mean",
            "policy_loss": {"loss_mode": "vanilla"},
            "ppo_mini_batch_size": 32,
            "ulysses_sequence_parallel_size": 1,
            "fsdp_config": {"ulysses_sequence_parallel_size": 1},
        },
        "rollout": {"n": 16, "top_p": 1, "top_k": -1, "calculate_log_probs": True},
    },
    "trainer": {
        "nnodes": 1,
        "n_gpus_per_node": 8,
        "v1": {"sampler": {"custom_sampler": {"path": None}}},
    },
}

BAD = {
    "algorithm.adv_estimator": "grpo",
    "actor_rollout_ref.rollout.n": 1,
    "algorithm.filter_groups.enable": True,
    "algorithm.use_kl_in_reward": True,
    "actor_rollout_ref.actor.use_kl_loss": True,
    "actor_rollout_ref.actor.loss_agg_mode": "token-mean",
    "actor_rollout_ref.actor.policy_loss.loss_mode": "gspo",
    "algorithm.rollout_correction.rollout_rs": "seq_mean_k1",
    "algorithm.rollout_correction.rollout_is_threshold": "0.5_2.0",
    "trainer.v1.sampler.custom_sampler.path": "mine.py",
}
ALLOWABLE = [refusal.path for refusal in REFUSALS if refusal.allowable]


def changed(path: str, value: object, start: dict[str, Any] = GOOD) -> dict[str, Any]:
    """A copy with the value at a dotted path set."""
    name, _, rest = path.partition(".")
    return {**start, name: changed(rest, value, start[name]) if rest else value}


def test_the_papers_settings_pass_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(GOOD, Treatment())


def test_every_refusal_is_listed_here() -> None:
    assert set(BAD) == {refusal.path for refusal in REFUSALS}


@pytest.mark.parametrize("path", BAD)
def test_a_setting_that_works_against_the_method_is_refused_with_the_mend(path: str) -> None:
    with pytest.raises(ValueError, match="; set ") as caught:
        check(changed(path, BAD[path]), Treatment())
    message = str(caught.value)
    assert message.startswith(f"{path}={BAD[path]}: ")
    assert f"set {path}=" in message
    assert "\n" not in message
    assert ("algorithm.lens.allow" in message) == (path in ALLOWABLE)


@pytest.mark.parametrize("path", ALLOWABLE)
def test_what_is_meant_is_allowed(path: str) -> None:
    check(changed(path, BAD[path]), Treatment(), allow=[path.rpartition(".")[2]])


@pytest.mark.parametrize("name", ["enable", "n", "kl"])
def test_the_rest_cannot_be_allowed(name: str) -> None:
    with pytest.raises(ValueError, match=f"allow: '{name}' is not one of use_kl_loss, "):
        check(GOOD, Treatment(), allow=[name])


def test_a_method_on_entropies_needs_verls_own_forward_pass() -> None:
    bypass = changed("algorithm.rollout_correction.bypass_mode", True)
    check(bypass, Treatment("lens"))
    with pytest.raises(ValueError, match="bypass_mode=True: rl_zvp needs the token entropies"):
        check(bypass, Treatment("rl_zvp"))


@pytest.mark.parametrize(("name", "value"), [("top_p", 0.9), ("top_k", 20)])
def test_a_truncated_distribution_is_warned_of(name: str, value: float) -> None:
    with pytest.warns(UserWarning, match=f"rollout.{name}={value}: confidences are those of"):
        check(changed(f"actor_rollout_ref.rollout.{name}", value), Treatment())


@pytest.mark.parametrize(("nodes", "fits"), [(1, True), (2, True), (3, False), (5, False)])
def test_an_update_must_be_shared_equally(nodes: int, fits: bool) -> None:
    settings = changed("trainer.nnodes", nodes)
    if fits:
        check(settings, Treatment())
    else:
        with pytest.raises(
            ValueError, match=f"512 responses can't be shared .* by {8 * nodes} GPU"
        ):
            check(settings, Treatment())
    # three nodes in pairs of GPUs make 12 shares; of 384 responses that works
    pairs = changed("actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size", 2)
    pairs = changed("actor_rollout_ref.actor.ppo_mini_batch_size", 24, pairs)
    check(changed("trainer.nnodes", 3, pairs), Treatment())


def test_the_engines_log_probabilities_must_be_there() -> None:
    settings = changed("algorithm.rollout_correction.bypass_mode", True)
    check(settings, Treatment())
    settings = changed("actor_rollout_ref.rollout.calculate_log_probs", False, settings)
    with pytest.raises(ValueError, match=r"set actor_rollout_ref\.rollout\.calculate_log_probs="):
        check(settings, Treatment())


def test_lens_is_the_method_unless_another_is_named() -> None:
    for algorithm in ({}, {"lens": None}, {"lens": {}}):
        found, allow = treatment(algorithm)
        assert found.label == "lens"
        assert allow == ()


def test_every_key_but_method_and_allow_is_a_hyperparameter() -> None:
    found, allow = treatment({"lens": {"method": "passk", "k": 2, "allow": ["use_kl_loss"]}})
    assert found.label == "passk(k=2)"
    assert allow == ("use_kl_loss",)
    found, _ = treatment({"lens": {"preset": "no_scale", "guard": 3, "mixed_scale": "1/G"}})
    assert found.label == "lens(preset=no_scale, guard=3)"
    found, _ = treatment({"lens": {"method": "spo", "rho": 0.9}})
    assert found.state["rho"] == 0.9


@pytest.mark.parametrize(
    ("lens", "message"),
    [
        ({"method": "lenz"}, "algorithm.lens: unknown method 'lenz': did you mean 'lens'"),
        (
            {"alfa": 1},
            "algorithm.lens: unknown hyperparameter 'alfa' of lens: did you mean",
        ),
        ({"guard": 1}, "algorithm.lens: guard = 1"),
        ({"method": "grpo", "alpha": 1}, "algorithm.lens: unknown hyperparameter 'alpha' of grpo"),
        ("grpo", "algorithm.lens=grpo: choose a method with algorithm.lens.method=grpo"),
        ({"allow": True}, "algorithm.lens.allow=True: write a list"),
        ({"allow": [1]}, r"algorithm.lens.allow=\[1\]: write a list"),
    ],
)
def test_bad_keys_are_refused_with_the_nearest(lens: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        treatment({"lens": lens})


def test_a_path_that_is_not_there_is_none() -> None:
    assert lookup({"a": {"b": None}}, "a.b.c") is None
    assert lookup({}, "a") is None
    assert lookup({"a": {"b": 3}}, "a.b") == 3


@pytest.mark.parametrize("version", ["0.9.1", "0.9.2.dev0", "0.9.10"])
def test_tested_releases_pass(version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_version(version)


@pytest.mark.parametrize("version", ["0.9.0", "0.10.0", "1.0"])
def test_other_releases_are_warned_of(version: str) -> None:
    with pytest.warns(UserWarning, match=f"verl {version} is outside 0.9.1 <= version < 0.10"):
        check_version(version)
