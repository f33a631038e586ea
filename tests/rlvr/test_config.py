"""Configuration: defaults, files, overrides, and one line for everything that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lens_ref.command_line import settings
from lens_ref.resources import find
from lens_ref.rlvr import recipes
from lens_ref.rlvr.config import (
    PLAIN_TEMPLATE,
    Config,
    LoraConfig,
    from_dict,
    load,
    method_label,
    parse_method,
    to_dict,
)
from lens_ref.rlvr.data_config import ColumnsConfig, SourceConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.run_folder import RunFolder
from lens_ref.train import _recipe, build_parser
from tests.rlvr.helpers import small_config

RECIPES = sorted(path.stem for path in find("configs").glob("*.yaml"))
LARGE = [recipe for recipe in RECIPES if recipe.startswith(("qwen2.5-3b", "llama3.1-8b"))]


def refused(path: str | None = None, **overrides: Any) -> str:
    with pytest.raises(UserError) as caught:
        load(path, {key.replace("__", "."): value for key, value in overrides.items()})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def of_command(*arguments: str) -> Config:
    _, file, overrides = _recipe(build_parser().parse_args(list(arguments)))
    return load(file, overrides)


# --- what is read ---------------------------------------------------------------------------------


def test_the_tiny_recipe_writes_out_the_defaults() -> None:
    assert load("tiny") == load() == Config()


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_loads(recipe: str) -> None:
    assert isinstance(load(recipe), Config)


def test_the_papers_shape_is_the_default() -> None:
    """Four clipped updates a batch, per-sequence mean, clip 0.2, no dropout of tokens."""
    for recipe in ["tiny", *LARGE]:
        config = load(recipe)
        assert config.loss.updates_per_rollout == 4
        assert (config.loss.clip_low, config.loss.clip_high) == (0.2, 0.2)
        assert config.loss.aggregation == "sequence_mean"
        assert config.rollout.temperature == 1.0
        assert (config.rollout.questions, config.rollout.responses) == (128, 16)


def test_a_file_names_what_differs(tmp_path: Path) -> None:
    base, child = tmp_path / "base.yaml", tmp_path / "child.yaml"
    base.write_text("steps: 8\noptimizer: {lr: 1.0e-4, grad_clip: 2.0}\nmodel: {lora: {r: 4}}\n")
    child.write_text(f"extends: {base}\noptimizer: {{lr: 1.0e-5}}\nseed: 3\n")
    config = load(str(child))
    assert (config.steps, config.seed) == (8, 3)
    assert (config.optimizer.lr, config.optimizer.grad_clip) == (1e-5, 2.0)
    assert config.model.lora == LoraConfig(r=4)
    assert config.rollout == Config().rollout


def test_a_file_beside_the_one_that_extends_it_is_found(tmp_path: Path) -> None:
    """From any working directory, and before one of the same name in that."""
    (tmp_path / "base.yaml").write_text("steps: 8\n")
    (tmp_path / "child.yaml").write_text("extends: base.yaml\nseed: 3\n")
    config = load(str(tmp_path / "child.yaml"))
    assert (config.steps, config.seed) == (8, 3)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("prompt.template=Q: {problem}", "Q: {problem}"),
        ("prompt.template={problem}", "{problem}"),
        ("prompt.system=null", None),
        ("prompt.system='a: b'", "a: b"),
        ("model={lora: {r: 8}}", {"lora": {"r": 8}}),
        ("data.test={source: t.jsonl, columns: {problem: problem}}",
         {"source": "t.jsonl", "columns": {"problem": "problem"}}),
        ("optimizer.lr=1e-5", 1e-5),
    ],
)  # fmt: skip
def test_values_of_the_command_line(text: str, value: Any) -> None:
    assert settings([text]) == {text.partition("=")[0]: value}


def test_a_recipe_can_be_extended_by_its_name() -> None:
    small, large = load("qwen2.5-3b-lora"), load("llama3.1-8b-lora")
    assert large.model.path != small.model.path
    assert large.model.lora == small.model.lora
    assert large.rollout.max_new_tokens == small.rollout.max_new_tokens == 4096


@pytest.mark.parametrize(
    ("text", "key", "told"),
    [
        ("rollout: 3", "rollout.questions", "config: rollout: Input should be a dictionary"),
        ("rollout: hello", "rollout.vllm.eager", "(got 'hello')"),
        ("model: [7]", "model.path", "config: model: Input should be a dictionary"),
        ("rollout: {vllm: 1}", "rollout.vllm.eager", "config: rollout.vllm: Input should be"),
    ],
)
def test_a_section_that_is_none_is_told_though_an_override_is_in_it(
    tmp_path: Path, text: str, key: str, told: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    assert told in refused(str(path), **{key: 4})


@pytest.mark.parametrize("text", ["rollout:", "data: {test: tiny}", "steps: 8"])
def test_an_override_may_give_a_section_or_another_form_of_a_value(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(text)
    config = load(str(path), {"rollout.questions": 4, "data.test.source": "t.jsonl"})
    assert config.rollout.questions == 4
    assert isinstance(config.data.test, SourceConfig)


def test_settings_of_the_command_line() -> None:
    pairs = ("optimizer.lr=1e-5", "rollout.questions=8", "model.lora.r=4", "data.test=null")
    config = of_command("--set", *pairs, "rollout.stop_tokens=[a, b]", "model.dtype=bfloat16")
    assert config.optimizer.lr == 1e-5
    assert isinstance(config.optimizer.lr, float)
    assert config.rollout.questions == 8
    assert config.model.lora == LoraConfig(r=4)
    assert config.data.test is None
    assert config.rollout.stop_tokens == ("a", "b")
    assert config.model.dtype == "bfloat16"


def test_options_of_the_command_line() -> None:
    config = of_command(
        *("--method", "grpo", "lens:preset=likelihood", "--seed", "3", "--steps", "12"),
        *("--model", "folder", "--data", "x.jsonl", "--device", "cpu", "--as-published"),
    )
    assert config.methods == ("grpo", "lens:preset=likelihood")
    assert (config.seed, config.steps, config.device) == (3, 12, "cpu")
    assert (config.model.path, config.data.train) == ("folder", "x.jsonl")
    assert config.data.test is None  # another test set would be of another kind
    assert config.data.train_questions is None
    assert config.loss.as_published


def test_an_option_that_is_a_file_field_wins_over_the_file() -> None:
    assert of_command("--config", "tiny", "--steps", "3").steps == 3
    assert of_command("--lora", "--config", "tiny").model.lora == LoraConfig()


def test_the_adapter_of_the_command_line(tmp_path: Path) -> None:
    """--lora and --qlora fill in what the files leave open; --full has a recipe of its own."""
    assert of_command("--lora") == load("qwen2.5-3b-lora")
    qlora = of_command("--qlora")
    assert (qlora.model.quantization, qlora.rollout.engine) == ("nf4", "hf")
    assert qlora.model.lora == LoraConfig(r=32, alpha=64)
    assert qlora.data == of_command("--lora").data
    assert of_command("--lora", "--data", "mine.jsonl").data.overlap == "refuse"
    assert of_command("--qlora", "--engine", "vllm").rollout.engine == "vllm"
    assert of_command("--qlora", "--set", "rollout.engine=auto").rollout.engine == "auto"
    for arguments in (["--full"], ["--lora", "--full"]):
        full = of_command(*arguments)
        assert (full.model.lora, full.optimizer.lr) == (None, 1e-6)
        assert full.data == of_command("--lora").data
    assert of_command("--full", "--config", "qwen2.5-3b-lora").model.lora is None
    mine = tmp_path / "mine.yaml"
    mine.write_text("model: {lora: {r: 4}}\nrollout: {engine: vllm}\n")
    for option in ("--lora", "--qlora"):
        kept = of_command(option, "--config", str(mine))
        assert (kept.model.lora, kept.rollout.engine) == (LoraConfig(r=4), "vllm")
    with pytest.raises(UserError, match=r"--full trains all weights, --qlora .*: choose one"):
        of_command("--full", "--qlora")


def test_another_source_brings_its_own_version_and_size(tmp_path: Path) -> None:
    one, same, other = (tmp_path / f"{name}.yaml" for name in ("one", "same", "other"))
    one.write_text("data: {test: {source: a, config: main, revision: abc, expect: 3}}")
    same.write_text("data: {test: {source: a, expect: 4}}")
    other.write_text("data: {test: {source: b, split: test}}")
    merged = recipes.read([str(one), str(same)])["data"]["test"]
    assert merged == {"source": "a", "config": "main", "revision": "abc", "expect": 4}
    replaced = recipes.read([str(one), str(other)])["data"]["test"]
    assert replaced == {"source": "b", "split": "test"}


@pytest.mark.parametrize("train", ["hub/other", [{"source": "hub/other"}]])
def test_a_version_beside_the_source_is_of_that_source(train: Any, tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    data: dict[str, Any] = {"train": "hub/one", "revision": "abc", "split": "main", "test": None}
    one.write_text(yaml.safe_dump({"data": data}))
    for changes in ({}, {"split": "extra"}, {"train": "hub/one"}):
        two.write_text(yaml.safe_dump({"data": changes}))
        assert recipes.read([str(one), str(two)])["data"] == data | changes
    two.write_text(yaml.safe_dump({"data": {"train": train}}))
    assert recipes.read([str(one), str(two)])["data"] == {"train": train, "test": None}
    assert load([str(one), str(two)]).data.revision is None


def test_files_are_merged_from_left_to_right(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "v1.5.yaml"
    one.write_text("steps: 8\nseed: 3\noptimizer: {lr: 1.0e-4, grad_clip: 2.0}\n")
    two.write_text("steps: 12\noptimizer: {lr: 1.0e-5}\nmodel: {lora: {r: 4}}\n")
    both = load([str(one), str(two)])
    assert (both.steps, both.seed) == (12, 3)
    assert (both.optimizer.lr, both.optimizer.grad_clip) == (1e-5, 2.0)
    assert load([str(two), str(one)]).steps == 8
    (tmp_path / "child.yaml").write_text(f"extends: [{one}, {two}]\nseed: 4\n")
    child = load(str(tmp_path / "child.yaml"))
    assert (child.steps, child.seed, child.optimizer) == (12, 4, both.optimizer)
    name, files, _ = _recipe(build_parser().parse_args(["--config", str(one), str(two)]))
    assert (name, files) == ("one-v1.5", (str(one), str(two)))


def test_sources_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "data:\n"
        "  train:\n"
        "    - {source: a/b, config: main, revision: abc, expect: 9, sample: 5, seed: 2}\n"
        "    - {source: c.jsonl, columns: {id: key}, unique: true, where: [verifiable]}\n"
        "  test: {source: a/b, split: test}\n"
        "  overlap: report\n"
    )
    data = load(str(path)).data
    assert data.train == (
        SourceConfig("a/b", config="main", revision="abc", expect=9, sample=5, seed=2),
        SourceConfig(
            "c.jsonl", columns=ColumnsConfig(id="key"), unique=True, where=("verifiable",)
        ),
    )
    assert data.test == SourceConfig("a/b", split="test")
    other = of_command("--config", str(path), "--data", "d.jsonl").data
    assert (other.train, other.test) == ("d.jsonl", None)
    round_trip = from_dict(yaml.safe_load(yaml.safe_dump(to_dict(load(str(path))))))
    assert round_trip.data == data


def test_the_plain_template_is_written_out() -> None:
    """A run's config.yaml says what its prompts were."""
    config = of_command("--set", "prompt.template=plain")
    assert config.prompt.template == PLAIN_TEMPLATE
    assert to_dict(config)["prompt"]["template"].count("{problem}") == 1


def test_loggers_of_the_command_line() -> None:
    log = of_command("--tensorboard", "--wandb", "my-project").log
    assert (log.tensorboard, log.wandb) == (True, "my-project")
    assert of_command("--memory-gb", "24").model.memory_gb == 24


def test_round_trip_through_the_run_folder(tmp_path: Path) -> None:
    config = small_config(
        methods=["lens:preset=negative_std,alpha=0.5"],
        model__lora={"r": 3},
        rollout__stop_tokens=["<|im_end|>", "ü"],
        optimizer__lr=1e-7,
        data__test=None,
    )
    folder = RunFolder.create(tmp_path, config)
    assert folder.path.name == "lens-negative_std-alpha0.5-seed0"
    assert folder.config() == config
    assert load(str(folder.path / "config.yaml")) == config
    assert from_dict(yaml.safe_load(yaml.safe_dump(to_dict(config)))) == config


def test_methods() -> None:
    assert parse_method("grpo") == ("grpo", {})
    text = "lens:preset=negative_std, alpha=0.5,mixed_scale=1/G"
    assert parse_method(text)[1] == {"preset": "negative_std", "alpha": 0.5, "mixed_scale": "1/G"}
    assert method_label("lens:mixed_scale=1/G") == "lens-mixed_scale1_G"
    config = Config(methods=("grpo", "lens"))
    assert [config.single(m).method for m in config.methods] == ["grpo", "lens"]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("optimiser.lr", 1e-5, "unknown key 'optimiser': did you mean 'optimizer'?"),
        ("optimizer.learning", 1e-5, "unknown key 'optimizer.learning'"),
        ("rollout.temprature", 1, "'rollout.temprature': did you mean 'temperature'?"),
        ("model.lora.rank", 4, "unknown key 'model.lora.rank'"),
        ("step", 4, "unknown key 'step': did you mean 'steps'?"),
        ("", 4, "unknown key ''"),
        ("steps", 0, "steps"),
        ("steps", "many", "steps"),
        ("seed", -1, "seed"),
        ("optimizer.lr", 0, "optimizer.lr"),
        ("optimizer.lr", float("nan"), "optimizer.lr"),
        ("optimizer.lr", float("inf"), "optimizer.lr"),
        ("optimizer.betas", [0.9, 1.0], "betas"),
        ("optimizer.betas", [-0.1, 0.9], "betas"),
        ("optimizer", 3, "optimizer"),
        ("rollout.temperature", 0, "rollout.temperature"),
        ("rollout.max_new_tokens", 0, "rollout.max_new_tokens"),
        ("rollout.questions", 0, "rollout.questions"),
        ("rollout.responses", 1, "a group needs at least 2 answers"),
        ("rollout.top_p", 0.95, "training needs top_p = 1 and top_k = 0"),
        ("rollout.top_k", 20, "training needs top_p = 1 and top_k = 0"),
        ("rollout.questions", 6, "must be a multiple of loss.updates_per_rollout = 4"),
        ("loss.aggregation", "mean", "loss.aggregation"),
        ("loss.clip_low", -0.1, "loss.clip_low"),
        ("loss.micro_batch_tokens", 0, "loss.micro_batch_tokens"),
        ("loss.old_logprobs", "both", "loss.old_logprobs"),
        ("model.lora", {"r": 0}, "model.lora"),
        ("model.dtype", "float16", "model.dtype"),
        ("device", "tpu", "device"),
        ("prompt.template", "no place", 'prompt.template must be "chat" or contain {problem}'),
        ("data.train", [], "data: train: name at least one source"),
        ("data.train", [{"sorce": "x"}], "unknown key 'data.train.sorce': did you mean 'source'?"),
        ("data.train", [{"source": "x", "sample": 0}], "config: data.train.0.sample: Input should"),
        ("data.train", [{"source": "x", "where": ["odd"]}], "config: data.train.0.where.0: Input"),
        ("data.train", [{"source": "x", "unique": True}], "say which column tells rows apart"),
        ("data.train", [{"source": "x", "columns": {"text": "y"}}], "data.train.columns.text"),
        ("data.train", 3, "data.train: Input should"),
        ("data", {"train": [{"source": "x"}], "revision": "y"}, "write it beside each source"),
        (
            "data",
            {"train": [{"source": "x", "where": ["not_in_test"]}], "test": None},
            "not_in_test needs a test set",
        ),
        ("data.overlap", "allow", "data.overlap"),
        ("model.quantization", "nf4", "it needs lora"),
        ("rollout.engine", "sglang", "rollout.engine"),
        ("verifier.timeout", 0, "verifier.timeout"),
        ("verifier.memory_mb", 64, "verifier.memory_mb"),
        ("verifier.recycle", 0, "verifier.recycle"),
        ("checkpoint.keep", 0, "checkpoint.keep"),
        ("methods", [], "methods: name at least one"),
        ("methods", "grpo", "methods"),
        ("methods", ["grpo", "grpo"], "twice"),
        ("methods", ["lens", "lens:preset=paper", "lens:preset=paper"], "twice"),
        ("methods", ["lense"], "unknown method 'lense': did you mean 'lens'?"),
        ("methods", ["lens:beta=1"], "unknown hyperparameter 'beta' of lens"),
        ("methods", ["lens:alpha"], "write hyperparameters as name:key=value"),
        ("methods", ["lens:alpha=["], "alpha"),
        ("methods", ["lens:alpha=much"], "alpha"),
        ("methods", ["lens:alpha="], "alpha"),
        ("methods", ["lens:guard=1"], "guard"),
        ("methods", ["lens:preset=papr"], "papr"),
        ("methods", ["lens:preset=[1]"], "preset"),
        ("methods", ["grpo:ddof=2"], "ddof"),
        ("methods", ["grpo:eps=small"], "eps"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_value_is_one_line(key: str, value: Any, message: str) -> None:
    text = refused(**{key.replace(".", "__"): value})
    assert message in text
    assert text.startswith("config: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("steps: [", "is not valid YAML"),
        ("seed: 1\nsteps: 2\nseed: 3", "is not valid YAML: the key 'seed' occurs twice (line 3)"),
        ("model: {lora: {r: 4, r: 8}}", "the key 'r' occurs twice (line 1)"),
        ("- steps", "must hold a mapping"),
        ("", "must hold a mapping"),
        ("steps: 8\nstep: 9", "unknown key 'step'"),
        ("1: 2", "unknown key '1'"),
        ("extends: absent", "no config file 'absent'"),
        ("extends: [tiny, absent]", "no config file 'absent'"),
        ("extends: [tiny, {self}]", "extends itself"),
        ("extends: {}", "no config file"),
        ("extends: {self}", "extends itself"),
        ("rollout: {top_k: 50}", "training needs top_p = 1"),
    ],
)
def test_a_bad_file_is_one_line(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content.replace("{self}", str(path)), encoding="utf-8")
    assert message in refused(str(path))


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"steps: 8 # \xff")
    assert "is not valid YAML" in refused(str(path))


def test_an_unknown_recipe_names_the_nearest() -> None:
    text = refused("tinny")
    assert "no config file 'tinny'; recipes: did you mean 'tiny'? known: llama3.1-8b-lora" in text
    assert ", paper/grpo, " in text
    assert "did you mean 'paper/math-dapo'?" in refused("paper/math-dappo")


@pytest.mark.parametrize("pair", ["optimizer.lr", "optimizer.lr=[", "=", "rollout.top_p=.9"])
def test_a_bad_setting_is_one_line(pair: str) -> None:
    with pytest.raises(UserError) as caught:
        of_command("--set", pair)
    assert "\n" not in str(caught.value)
