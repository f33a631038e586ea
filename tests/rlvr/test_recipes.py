"""Every combination of the paper's models, data and methods is a valid recipe of the stated values;
with the real files at hand, the data sets have the stated sizes."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from lens_ref.rlvr.config import Config, LoraConfig, load
from lens_ref.rlvr.data_config import ColumnsConfig, SourceConfig
from lens_ref.rlvr.recipes import known
from lens_ref.rlvr.tasks import Questions, check_disjoint, common_ids, load_questions
from lens_ref.train import FULL_RECIPE, LORA_RECIPE
from tests.rlvr.helpers import ExactVerifier

MODELS = ["qwen2.5-3b", "llama3.1-8b"]
SETS = ["math-dapo", "math-numina", "math-dapo-clean"]
METHODS = {
    "grpo": "grpo",
    "lens": "lens",
    "mixed-only": "lens:groups=mixed",
    "negative-only": "lens:groups=negative",
}
FILES = {"MATH-lighteval": "math_{}.jsonl.gz", "DAPO-Math-17k": "dapo_math_17k.jsonl.gz"}


def composed(*pieces: str) -> Config:
    return load([f"paper/{piece}" for piece in pieces])


# --- the values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "kind", "data", "method"), list(product(MODELS, ["", "-full"], SETS, METHODS))
)
def test_every_combination(model: str, kind: str, data: str, method: str) -> None:
    config = composed(model + kind, data, method)
    assert config.methods == (METHODS[method],)
    rate = {"qwen2.5-3b": 1e-6, "llama3.1-8b": 3e-7}[model]  # the paper's, for all weights
    assert config.optimizer.lr == pytest.approx(rate if kind else 10 * rate, rel=1e-12)
    assert config.model.lora == (None if kind else LoraConfig(r=32, alpha=64))
    assert (config.optimizer.betas, config.optimizer.weight_decay) == ((0.9, 0.999), 0)
    assert (config.optimizer.warmup_updates, config.optimizer.grad_clip) == (0, 1.0)
    rollout, loss = config.rollout, config.loss
    assert (rollout.questions, rollout.responses, loss.updates_per_rollout) == (128, 16, 4)
    assert (rollout.temperature, rollout.max_new_tokens) == (1.0, 4096)
    assert (loss.clip_low, loss.clip_high, loss.aggregation) == (0.2, 0.2, "sequence_mean")
    assert config.prompt.template == "chat"
    assert config.prompt.system == (
        "Please reason step by step, and put your final answer within \\boxed{}."
    )
    assert config.eval.n == 16
    assert config.data.test == SourceConfig(
        "DigitalLearningGmbH/MATH-lighteval",
        revision="0530c78699ea5e8eb5530600900e1f328b48acad",
        split="test",
        expect=5000,
    )
    assert config.data.overlap == ("refuse" if data.endswith("clean") else "report")


def test_the_sets() -> None:
    sizes = {}
    for name in SETS:
        train = composed("qwen2.5-3b", name, "lens").data.train
        assert all(len(part.revision) == 40 for part in train)
        sizes[name] = [(p.source.split("/")[1], p.expect, p.where, p.sample) for p in train]
    math = ("MATH-lighteval", 7500)
    clean = ("not_in_test",)
    assert sizes == {
        "math-dapo": [(*math, (), None), ("DAPO-Math-17k", 17917, (), 17500)],
        "math-numina": [(*math, (), None), ("NuminaMath-1.5", 896215, ("verifiable",), 17500)],
        "math-dapo-clean": [(*math, clean, None), ("DAPO-Math-17k", 17917, clean, None)],
    }


def test_every_model_stops_at_all_of_its_ends() -> None:
    stops = {model: composed(model, "math", "lens").rollout.stop_tokens for model in MODELS}
    assert set(stops["qwen2.5-3b"]) == {"<|im_end|>", "<|endoftext|>"}
    assert set(stops["llama3.1-8b"]) == {"<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"}


def test_recipes_with_a_name_are_the_pieces_together() -> None:
    assert load(LORA_RECIPE) == composed("qwen2.5-3b", "math-dapo", "lens")
    assert load("llama3.1-8b-lora") == composed("llama3.1-8b", "math-dapo", "lens")
    assert load(FULL_RECIPE) == composed("qwen2.5-3b-full", "math-dapo", "lens")


@pytest.mark.parametrize("recipe", ["qwen2.5-3b-24gb", "llama3.1-8b-qlora-24gb"])
def test_recipes_for_24_gb(recipe: str) -> None:
    config = load(recipe)
    assert (config.model.memory_gb, config.rollout.max_new_tokens) == (24, 1024)
    assert config.loss.micro_batch_tokens < composed("qwen2.5-3b", "math").loss.micro_batch_tokens
    if "qlora" in recipe:  # the sampler runs the very weights that are trained
        assert (config.model.quantization, config.rollout.engine) == ("nf4", "hf")


def test_the_small_experiment() -> None:
    config = load("qwen2.5-coder-0.5b-gsm8k")
    assert config.data.train == (
        SourceConfig(
            "openai/gsm8k",
            config="main",
            revision="740312add88f781978c0658806c59bc2815b9866",
            expect=7473,
        ),
    )
    assert (config.rollout.questions, config.rollout.responses) == (64, 16)
    assert (config.eval.every, config.data.test) == (0, None)


def test_the_comparison_on_one_gpu() -> None:
    """Fixed before its runs: what changes here changes what was promised."""
    config = load("reproduction-0.5b")
    assert (config.methods, config.steps) == (("grpo", "lens"), 120)
    assert (config.rollout.questions, config.loss.updates_per_rollout) == (64, 4)  # 16 an update
    assert (config.rollout.responses, config.rollout.max_new_tokens) == (16, 320)
    assert (config.optimizer.lr, config.optimizer.warmup_updates) == (5e-5, 0)
    assert (config.loss.clip_low, config.loss.clip_high) == (0.2, 0.2)
    assert config.model.lora == LoraConfig(r=32, alpha=64)
    assert (config.eval.every, config.eval.n) == (120, 8)
    assert config.data.test is not None
    assert (config.data.test.expect, config.data.test_questions) == (1319, None)

    math = load("reproduction-0.5b-math")
    own = load("paper/math").data
    assert math.data == own
    assert (math.rollout.max_new_tokens, math.eval.n) == (768, 2)
    same = replace(math.rollout, max_new_tokens=320), replace(math.eval, n=8)
    assert replace(math, data=config.data, rollout=same[0], eval=same[1]) == config


def test_the_table_of_recipes_names_every_file() -> None:
    from lens_ref.resources import find

    text = find("configs", "README.md").read_text(encoding="utf-8")
    assert [name for name in known() if f"`{name}`" not in text] == []


# --- the real data --------------------------------------------------------------------------------


def local(part: SourceConfig) -> SourceConfig:
    """The same source, read from a file of LENS_REF_DATA, whose columns have the usual names."""
    folder = os.environ.get("LENS_REF_DATA")
    if not folder:
        pytest.skip("LENS_REF_DATA names no folder with the real data")
    name = FILES[part.source.split("/")[1]].format(part.split)
    columns = ColumnsConfig(id="id") if part.unique else ColumnsConfig()
    return replace(part, source=str(Path(folder) / name), revision=None, columns=columns)


def real(name: str) -> tuple[Questions, Questions]:
    data = composed("qwen2.5-3b", name, "lens").data
    assert isinstance(data.train, tuple)
    assert isinstance(data.test, SourceConfig)
    test = load_questions(local(data.test), ExactVerifier())
    parts = tuple(map(local, data.train))
    return load_questions(parts, ExactVerifier(), test=test), test


def test_the_papers_set_has_25_000_questions_and_tests_on_some_of_them() -> None:
    train, test = real("math-dapo")
    ids = [q.id for q in train.items]
    assert (len(train), len(test)) == (7500 + 17500, 5000)
    assert len(set(ids)) == 25_000
    dapo = [q.problem for q in train.items if q.id.startswith("dapo")]
    assert len(dapo) == 17500
    assert len(set(dapo)) < 17290  # repeated texts stay
    # 976 test problems occur in all of DAPO and 4 in MATH's training set
    assert 900 < len(common_ids(train, test)) < 980


def test_the_clean_set_shares_nothing_with_the_test_set() -> None:
    train, test = real("math-dapo-clean")
    assert common_ids(train, test) == ()
    check_disjoint(train, test)
    kept = [sum(q.id.startswith(name) for q in train.items) for name in ("math", "dapo")]
    assert kept == [7496, 17917 - 1032]
