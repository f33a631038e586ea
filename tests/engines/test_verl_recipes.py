"""`recipes/verl`: every number of the paper, as Hydra composes it for verl's own command."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

pytest.importorskip("verl", reason="verl is not installed: `make test-verl` has it")

from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.trainer.ppo.utils import create_rl_dataset, need_critic, need_reference_policy
from verl.utils.config import validate_config

from lens_ref import LensConfig
from lens_ref.engines import verl_settings
from lens_ref.rlvr.config import load
from tests.engines.verl_helpers import RECIPES, config

pytestmark = pytest.mark.verl

ROOT = RECIPES.parents[1]
BOTH = pytest.mark.parametrize("recipe", ["qwen2.5-3b", "llama3.1-8b"])

# section 5, "Training protocol", and the appendix on hyperparameters
PAPER = {
    "data.train_batch_size": 128,  # "a training batch size as 128 (4x32)"
    "actor_rollout_ref.actor.ppo_mini_batch_size": 32,  # "32 questions and 16 generations for each"
    "actor_rollout_ref.rollout.n": 16,
    "actor_rollout_ref.actor.ppo_epochs": 1,  # four off-policy updates, each row once
    "data.max_response_length": 4096,  # "cap generations at 4,096 tokens"
    "actor_rollout_ref.rollout.response_length": 4096,
    "actor_rollout_ref.rollout.temperature": 1.0,
    "actor_rollout_ref.rollout.top_p": 1.0,
    "actor_rollout_ref.rollout.top_k": -1,
    "actor_rollout_ref.rollout.val_kwargs.temperature": 1.0,
    "actor_rollout_ref.rollout.val_kwargs.top_p": 1.0,
    "actor_rollout_ref.rollout.val_kwargs.do_sample": True,
    "actor_rollout_ref.rollout.val_kwargs.n": 16,  # pass@16
    "actor_rollout_ref.actor.clip_ratio": 0.2,  # "a clipping ratio of 0.2"
    "actor_rollout_ref.actor.clip_ratio_low": 0.2,
    "actor_rollout_ref.actor.clip_ratio_high": 0.2,
    "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-mean",  # the objective J_GRPO
    "actor_rollout_ref.actor.policy_loss.loss_mode": "vanilla",
    "actor_rollout_ref.actor.use_kl_loss": False,  # "We do not add any KL regularization"
    "algorithm.use_kl_in_reward": False,
    "actor_rollout_ref.actor.entropy_coeff": 0,
    "actor_rollout_ref.model.lora_rank": 0,  # all weights
    "algorithm.filter_groups.enable": False,
    "algorithm.adv_estimator": "lens",
    "trainer.v1.trainer_mode": "lens_sync",
    "trainer.use_v1": True,
}
MODELS = {
    "qwen2.5-3b": {
        "actor_rollout_ref.model.path": "Qwen/Qwen2.5-3B",
        "actor_rollout_ref.actor.optim.lr": 1e-6,
    },
    "llama3.1-8b": {
        "actor_rollout_ref.model.path": "meta-llama/Llama-3.1-8B-Instruct",
        "actor_rollout_ref.actor.optim.lr": 3e-7,
    },
}


@BOTH
def test_the_numbers_are_the_papers(recipe: str) -> None:
    composed = config(recipe=recipe)
    wanted = {**PAPER, **MODELS[recipe]}
    found = {path: OmegaConf.select(composed, path) for path in wanted}
    assert found == wanted


@BOTH
def test_where_the_paper_is_silent_both_trainers_agree(recipe: str) -> None:
    composed, own = config(recipe=recipe), load(f"paper/{recipe}-full")
    actor = composed.actor_rollout_ref.actor
    assert actor.optim.lr == own.optimizer.lr
    assert tuple(actor.optim.betas) == own.optimizer.betas
    assert actor.optim.weight_decay == own.optimizer.weight_decay
    assert actor.optim.lr_warmup_steps == own.optimizer.warmup_updates
    assert actor.optim.lr_scheduler_type == "constant"
    assert actor.optim.clip_grad == actor.grad_clip == own.optimizer.grad_clip
    updates = composed.data.train_batch_size // actor.ppo_mini_batch_size
    assert updates == own.loss.updates_per_rollout
    assert composed.trainer.total_training_steps * updates == own.steps
    assert composed.actor_rollout_ref.model.path == own.model.path


@BOTH
def test_verls_own_checks_pass(recipe: str) -> None:
    composed = config(recipe=recipe)
    assert not need_reference_policy(composed)
    assert not need_critic(composed)
    validate_config(composed, use_reference_policy=False, use_critic=False)
    method, allow = verl_settings.treatment(composed.algorithm)
    verl_settings.check(composed, method, allow)
    longest = composed.data.max_prompt_length + composed.data.max_response_length
    assert longest <= composed.actor_rollout_ref.actor.ppo_max_token_len_per_gpu
    assert longest == composed.actor_rollout_ref.rollout.max_model_len
    assert composed.data.filter_overlong_prompts


def test_lens_is_the_paper_as_printed() -> None:
    method, _ = verl_settings.treatment(config().algorithm)
    assert method.label == "lens"
    assert LensConfig(**method.given) == LensConfig(alpha=0.25)  # "set to 0.25 for all models"


def test_a_preset_keeps_its_own_alpha() -> None:
    method, _ = verl_settings.treatment(config("+algorithm.lens.preset=likelihood").algorithm)
    assert method.label == "lens(preset=likelihood)"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("grpo", "grpo"),
        ("mixed-only", "lens(groups=mixed)"),
        ("negative-only", "lens(groups=negative)"),
    ],
)
def test_the_baseline_and_the_ablations(name: str, label: str) -> None:
    composed = config(f"method@algorithm.lens={name}")
    assert verl_settings.treatment(composed.algorithm)[0].label == label


def test_a_field_more_on_the_command_line() -> None:
    composed = config("+algorithm.lens.alpha=0.5", "+algorithm.lens.negative_norm=demean_std")
    label = verl_settings.treatment(composed.algorithm)[0].label
    assert label == "lens(alpha=0.5, negative_norm=demean_std)"


def test_every_ray_process_is_told_to_load_the_module() -> None:
    variables = config().ray_kwargs.ray_init.runtime_env.env_vars
    assert variables == {"VERL_USE_EXTERNAL_MODULES": "lens_ref.engines.verl"}


def test_verl_finds_the_reward_function() -> None:
    score = get_custom_reward_fn(config())
    given = {"data_source": "lens_ref", "ground_truth": r"\frac{1}{2}", "extra_info": {}}
    assert score(solution_str=r"so it is $\boxed{0.5}$", **given) == 1.0
    assert score(solution_str=r"first \boxed{0.5}, no: \boxed{2}", **given) == 0.0
    assert score(solution_str="it is 1/2", **given) == 0.0
    given["ground_truth"] = r"x^2 - 1"
    assert score(solution_str=r"\boxed{(x-1)(x+1)}", **given) == 1.0


def test_qwens_base_model_also_stops_where_its_chat_template_ends_a_turn() -> None:
    """<|im_end|> and <|endoftext|>, as in configs/paper/qwen2.5-3b.yaml."""
    file = RECIPES / "stop" / "qwen2.5-3b" / "generation_config.json"
    assert json.loads(file.read_text()) == {"eos_token_id": [151645, 151643]}
    assert len(load("paper/qwen2.5-3b").rollout.stop_tokens) == 2


@BOTH
def test_the_launch_command_gives_hydra_what_it_can_compose(recipe: str, tmp_path: Path) -> None:
    """A python3 that prints its arguments stands in for the real one."""
    printed = launched(tmp_path, recipe, "trainer.nnodes=2")
    assert printed[:6] == [
        *("-m", "verl.trainer.main_ppo", "--config-path", str(RECIPES)),
        *("--config-name", recipe),
    ]
    composed = config(*printed[6:], recipe=recipe)
    assert composed.trainer.nnodes == 2
    assert composed.data.train_files == str(tmp_path / "train.parquet")
    assert composed.data.val_files == str(tmp_path / "test.parquet")
    stop = composed.actor_rollout_ref.rollout.engine_kwargs.vllm.get("generation_config")
    assert (stop is not None) == (recipe == "qwen2.5-3b")
    assert composed.trainer.default_local_dir == f"checkpoints/lens_ref/{recipe}-lens-seed0"


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["method@algorithm.lens=mixed-only"], "mixed-only-seed0"),
        (["algorithm.lens.method=ngrpo", "data.seed=3"], "ngrpo-seed3"),
        (["trainer.experiment_name=mine", "data.seed=3"], None),
    ],
)
def test_every_method_and_seed_has_its_checkpoints(
    overrides: list[str], name: str | None, tmp_path: Path
) -> None:
    composed = config(*launched(tmp_path, "qwen2.5-3b", *overrides)[6:])
    expected = "mine" if name is None else f"qwen2.5-3b-{name}"
    assert composed.trainer.experiment_name == expected


def test_a_folder_without_data_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", str(RECIPES / "launch.sh"), "qwen2.5-3b", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path} holds no train.parquet")
    assert done.stderr.count("\n") == 1


def launched(folder: Path, recipe: str, *overrides: str) -> list[str]:
    """What launch.sh gives to python3, of which one that prints its arguments takes the place."""
    fake = folder / "bin" / "python3"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    (folder / "train.parquet").touch()
    return subprocess.run(
        ["bash", str(RECIPES / "launch.sh"), recipe, str(folder), *overrides],
        env={"PATH": f"{fake.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()


def script(name: str) -> ModuleType:
    """A file of the recipe's folder, which is no package."""
    spec = importlib.util.spec_from_file_location(f"verl_{name}", RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def data() -> ModuleType:
    return script("data")


def test_the_data_are_what_verl_reads(data: ModuleType, tmp_path: Path) -> None:
    for name, first in (("train", 1), ("test", 5)):
        lines = [
            {"id": f"q{i}", "problem": f"What is {i} + 1?", "answer": str(i + 1), "level": 2}
            for i in range(first, first + 3)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    own = ["--data", str(tmp_path / "train.jsonl"), "--test", str(tmp_path / "test.jsonl")]
    data.main([str(tmp_path / "out"), *own])

    train = pd.read_parquet(tmp_path / "out" / "train.parquet")
    assert list(train["data_source"]) == ["lens_ref"] * 3
    assert list(pd.read_parquet(tmp_path / "out" / "test.parquet")["data_source"]) == (
        ["lens_ref/level2"] * 3
    )
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "lens_ref" / "tiny" / "policy")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    files = str(tmp_path / "out" / "train.parquet")
    rows = create_rl_dataset(files, config().data, tokenizer, None)
    assert len(rows) == 3
    assert rows[1]["reward_model"]["ground_truth"] == "3"
    assert rows[1]["index"] == "q2"
    system, user = rows[1]["raw_prompt"]
    assert system["content"] == load("paper/common").prompt.system
    assert user == {"role": "user", "content": "What is 2 + 1?"}


def test_answers_of_an_evaluation_are_counted_by_question(
    data: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = script("counts")
    questions = [("a", "What is 1 + 1?", 4), ("b", "What is 1 + 1? And 0 + 2?", 5)]
    lines = [
        json.dumps({"id": i, "problem": p, "answer": "2", "level": n}) for i, p, n in questions
    ]
    (tmp_path / "test.jsonl").write_text("\n".join(lines))
    own = ["--data", str(tmp_path / "test.jsonl"), "--test", str(tmp_path / "test.jsonl")]
    data.main([str(tmp_path), *own])
    answers = [
        {"uid": f"u{i}_{k}_0", "input": f"system\nuser\n{problem}\n", "gts": "2", "score": score}
        for i, ((_, problem, _), scores) in enumerate(
            zip(questions, [(0.0, 1.0, 0.0), (1.0, 1.0, 0.0)], strict=True)
        )
        for k, score in enumerate(scores)
    ]
    file = tmp_path / "250.jsonl"
    file.write_text("\n".join(json.dumps(answer) for answer in reversed(answers)) + "\n")
    command = [str(file), str(tmp_path / "test.parquet"), str(tmp_path / "counts.csv")]
    assert counts.main(command) == 0
    assert (tmp_path / "counts.csv").read_text().splitlines() == [
        "id,level,subject,n,correct,truncated",
        "a,4,,3,1,",
        "b,5,,3,2,",
    ]
    for broken in ("not JSON", json.dumps({"uid": "u_0_0", "input": "?", "gts": "2", "score": 1})):
        file.write_text(broken)
        assert counts.main(command) == 2
        assert str(file) in capsys.readouterr().err


def test_a_set_that_is_not_there_is_one_line(
    data: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        data.main([str(tmp_path), "paper/nowhere"])
    assert stop.value.code == 2
    assert "paper/nowhere" in capsys.readouterr().err


def test_the_readmes_settings_are_the_recipes() -> None:
    text = (RECIPES / "README.md").read_text(encoding="utf-8")
    composed = config()
    assert f"{composed.actor_rollout_ref.rollout.gpu_memory_utilization} · 80" in text
    assert (
        f"a micro-batch of {composed.actor_rollout_ref.actor.ppo_max_token_len_per_gpu:,}" in text
    )
    assert f"{composed.trainer.total_training_steps} steps are" in text
    longest = composed.data.max_prompt_length + composed.data.max_response_length
    assert f"prompt and answer, {longest:,} tokens" in text
