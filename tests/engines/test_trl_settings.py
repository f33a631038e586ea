"""Settings of TRL that contradict a method: one clear line each, before a model is loaded."""

from __future__ import annotations

import tomllib
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed: `make test-trl` has an environment of it")

import trl
from packaging.requirements import Requirement
from peft import LoraConfig
from trl import GRPOConfig

from lens_ref import LensConfig
from lens_ref.engines.trl import LensGRPOTrainer
from lens_ref.engines.trl_settings import REFUSALS, SUPPORTED, check_version
from tests.engines.trl_helpers import grade, policy, questions, settings, trainer

pytestmark = pytest.mark.trl

VLLM = {"use_vllm": True, "vllm_importance_sampling_mode": "sequence_mask"}
REFUSED = {
    "loss_type": {"loss_type": "dapo"},
    "beta": {"beta": 0.04},
    "entropy_coef": {"entropy_coef": 0.01},
    "use_adaptive_entropy": {"use_adaptive_entropy": True},
    "mask_truncated_completions": {"mask_truncated_completions": True},
    "multi_objective_aggregation": {"multi_objective_aggregation": "normalize_then_sum"},
    "generation_kwargs": {"generation_kwargs": {"temperature": 1.0}},
    "off_policy_mask_threshold": {"off_policy_mask_threshold": 0.5},
    "top_entropy_quantile": {"top_entropy_quantile": 0.2},
    "importance_sampling_level": {"importance_sampling_level": "sequence"},
    "vllm_importance_sampling_mode": VLLM,
}


def refuse(tmp_path: Path, changes: dict[str, Any], **arguments: Any) -> str:
    args = settings(tmp_path, **changes)
    with pytest.raises(ValueError) as error:  # noqa: PT011  (the caller looks at the line)
        LensGRPOTrainer("no-such-model", None, args, **arguments)
    return str(error.value)


@pytest.mark.parametrize("name", REFUSED)
def test_a_setting_that_deletes_the_signal_is_refused(tmp_path: Path, name: str) -> None:
    if name not in {field.name for field in fields(GRPOConfig)}:
        pytest.skip(f"TRL {trl.__version__} has no {name}")
    line = refuse(tmp_path, REFUSED[name])
    assert line.startswith(f"{name} = ")
    assert "; set " in line
    assert "\n" not in line


def test_every_refusal_is_tested() -> None:
    assert [refusal.name for refusal in REFUSALS] == list(REFUSED)


def test_what_is_meant_may_pass(tmp_path: Path) -> None:
    run = trainer(tmp_path, {"allow": ["beta"]}, beta=0.04, max_steps=1)
    run.train()
    assert run.state.log_history[0]["kl"] >= 0
    allowed = refuse(tmp_path, {"loss_type": "dapo"}, allow=["loss_type"])
    assert allowed.startswith("allow: 'loss_type' is not one of beta, ")


def test_default_arguments_are_the_papers(tmp_path: Path, monkeypatch: Any) -> None:
    made: list[dict[str, Any]] = []

    def on_a_cpu(**given: Any) -> GRPOConfig:
        made.append(given)
        return GRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **given)

    monkeypatch.setattr("lens_ref.engines.trl.GRPOConfig", on_a_cpu)
    with pytest.raises(OSError, match="no-such-model"):
        LensGRPOTrainer(str(tmp_path / "no-such-model"))
    assert made == [{"loss_type": "grpo", "scale_rewards": "none"}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "lense"}, "did you mean 'lens'"),
        ({"method": "grpo", "config": LensConfig()}, "takes no LensConfig"),
        ({"hyperparameters": {"alpah": 0.5}}, "did you mean 'alpha'"),
    ],
)
def test_a_bad_method_is_refused_first(tmp_path: Path, arguments: dict, message: str) -> None:
    assert message in refuse(tmp_path, {}, **arguments)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"scale_rewards": "group"}, "scale_rewards = 'group' has no effect: lens scales"),
        ({"scale_rewards": "batch"}, "scale_rewards = 'batch' has no effect: lens scales"),
        ({"top_p": 0.9}, r"top_p = 0\.9: confidences are those of the policy"),
        ({"generation_kwargs": {"top_k": 20}}, "top_k = 20: confidences are those"),
        (
            {"save_strategy": "steps", "save_steps": 3, "num_iterations": 2},
            "save_steps = 3 falls inside a batch of responses: .* a multiple of 2 to",
        ),
        (
            {
                "save_strategy": "steps",
                "save_steps": 2,
                "steps_per_generation": 3,
                "gradient_accumulation_steps": 2,
                "per_device_train_batch_size": 4,
            },
            "save_steps = 2 falls inside a batch of responses: .* a multiple of 3 to",
        ),
        ({"generation_kwargs": {"do_sample": False}}, "do_sample = False: confidences are those"),
    ],
)
def test_what_has_no_effect_or_is_inexact_is_said(
    tmp_path: Path, changes: dict[str, Any], line: str
) -> None:
    with pytest.warns(UserWarning, match=line):
        trainer(tmp_path, **changes)


def test_what_a_model_brings_along_is_said(tmp_path: Path) -> None:
    def made(arguments: dict[str, Any], **changes: Any) -> LensGRPOTrainer:
        model, tokenizer = policy(tmp_path / "policy")
        model.generation_config.update(**arguments)
        args = settings(tmp_path, **changes)
        return LensGRPOTrainer(
            model, grade, args, questions(), processing_class=tokenizer, peft_config=adapter
        )

    adapter = LoraConfig(r=2, target_modules="all-linear", lora_dropout=0.1)
    with pytest.warns(UserWarning, match=r"dropout of 0\.1: log-probabilities, and so confidences"):
        made({})
    with pytest.warns(UserWarning, match=r"generation_config\.num_beams = 3 of the model reaches"):
        made({"num_beams": 3}, disable_dropout=True)


def test_nothing_is_said_where_nothing_is_wrong(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        trainer(tmp_path, save_strategy="steps", save_steps=4, num_iterations=2)


def test_the_range_of_trl_is_the_extras() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert SUPPORTED in project["optional-dependencies"]["trl"]
    assert Requirement(SUPPORTED).specifier.contains(trl.__version__)


def test_another_release_is_warned_of() -> None:
    for version in ("1.11.0", "1.15.0", "1.17.0", "2.0"):
        with pytest.warns(UserWarning, match=f"TRL {version} is outside trl>=1.12"):
            check_version(version)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for version in ("1.12.0", "1.14.1", "1.16.0"):
            check_version(version)


def test_a_plain_config_of_trl_needs_one_change() -> None:
    with pytest.raises(ValueError, match=r'set loss_type="grpo" \(not TRL\'s default\)'):
        LensGRPOTrainer("no-such-model", args=GRPOConfig(use_cpu=True, bf16=False))
