"""Models that can't be trained here, or only seem so: refused in one line when they are loaded."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lens_ref.rlvr import memory, policy
from lens_ref.rlvr.config import LoraConfig, ModelConfig, PromptConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.logprobs import reads_like_the_model
from lens_ref.rlvr.policy import Policy, limit_memory, load_policy
from lens_ref.rlvr.prompts import encode_prompt
from lens_ref.rlvr.sampler import HFSampler
from tests.rlvr.helpers import (
    BOS,
    CPU,
    EOS,
    HE,
    LLO,
    load_tiny,
    save_model,
    small_config,
    tiny_sampler,
)


def edit_config(folder: Path, **entries: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **entries}), "utf-8")


def load(folder: Path, **model: Any) -> Policy:
    return load_policy(ModelConfig(path=str(folder), **model), CPU, 0)


def test_logits_that_are_not_the_head_of_the_states(tmp_path: Path) -> None:
    """A model that doubles its logits on the way out is not what is read from its states."""
    policy = load(save_model(tmp_path, "llama", initializer_range=1.0))
    assert reads_like_the_model(policy.model)
    real = policy.model.forward

    def doubled(**inputs: Any) -> Any:
        output = real(**inputs)
        output.logits = 2 * output.logits
        return output

    policy.model.forward = doubled
    assert not reads_like_the_model(policy.model)


def test_weights_of_another_shape(tmp_path: Path) -> None:
    edit_config(save_model(tmp_path, "llama"), intermediate_size=64)
    with pytest.raises(UserError, match="cannot load the model"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["[]", "1"])
def test_a_config_that_is_no_object(text: str, tmp_path: Path) -> None:
    (save_model(tmp_path, "llama") / "config.json").write_text(text, "utf-8")
    with pytest.raises(UserError, match="cannot load the model"):
        load(tmp_path)
    with pytest.raises(UserError, match=r"config\.json is damaged: a mapping is needed"):
        memory.read_shape(str(tmp_path))


def test_code_from_the_model_folder_is_not_run(tmp_path: Path) -> None:
    """`auto_map` names a module beside the weights; it must be neither run nor asked about."""
    edit_config(
        save_model(tmp_path, "llama"),
        model_type="elsewhere",
        auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
    )
    (tmp_path / "evil.py").write_text("raise SystemExit('was run')", "utf-8")
    with pytest.raises(UserError, match="cannot load the model"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("targets", "message"),
    [("nothing_of_this_name", "target_modules"), ("([", "target_modules"), ("lm_head", "head")],
)
def test_targets_of_the_adapter(targets: str, message: str, llama: Path) -> None:
    with pytest.raises(UserError, match=message):
        load(llama, lora=LoraConfig(r=2, target_modules=targets))


def test_several_end_tokens_in_the_config(tmp_path: Path) -> None:
    """Instruct models ship a list; once in config.json alone, it must not be lost."""
    edit_config(save_model(tmp_path, "llama"), eos_token_id=[EOS, LLO])
    (tmp_path / "generation_config.json").unlink()
    assert load(tmp_path).stop_ids == (EOS, LLO)


def test_a_chat_template_that_knows_no_system_message(llama: Path) -> None:
    policy = load(llama)
    policy.tokenizer.chat_template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}he"
    )
    with pytest.raises(UserError, match=r"no system.*prompt\.system"):
        encode_prompt(policy.tokenizer, PromptConfig("chat", "be brief"), "he")
    assert encode_prompt(policy.tokenizer, PromptConfig("chat"), "he") == (HE,)


def test_shapes_that_are_not_llamas_have_no_plan(tmp_path: Path) -> None:
    """Experts multiply the MLP; a width of heads of its own changes the attention."""
    save_model(tmp_path, "llama")
    plain = memory.read_shape(str(tmp_path))
    assert plain is not None
    edit_config(tmp_path, head_dim=16)
    wide = memory.read_shape(str(tmp_path))
    assert wide is not None
    # two layers; two heads and one key-value head, each wider by 8
    assert wide.parameters - plain.parameters == 2 * (16 * 16 + 2 * 16 * 8 + 16 * 16)
    edit_config(tmp_path, num_local_experts=8)
    assert memory.read_shape(str(tmp_path)) is None


@pytest.mark.parametrize(
    "entries",
    [
        {"num_attention_heads": 0},
        {"num_attention_heads": 32, "head_dim": None},  # heads of no width
        {"num_attention_heads": "2"},
        {"num_key_value_heads": "1"},
        {"num_key_value_heads": 0},
        {"num_hidden_layers": 2.0},
        {"num_hidden_layers": True},
        {"hidden_size": [16]},
        {"intermediate_size": -32},
        {"vocab_size": None},
        {"head_dim": "8"},
        {"head_dim": 8.0},
    ],
    ids=str,
)
def test_sizes_that_no_model_has_have_no_plan(entries: dict[str, Any], tmp_path: Path) -> None:
    edit_config(save_model(tmp_path, "llama"), **entries)
    assert memory.read_shape(str(tmp_path)) is None


def test_without_a_number_of_key_value_heads_there_are_as_many_as_heads(tmp_path: Path) -> None:
    """Two heads of 8: keys 16 wide."""
    edit_config(save_model(tmp_path, "llama"), num_key_value_heads=None)
    shape = memory.read_shape(str(tmp_path))
    assert shape is not None
    assert shape.key_value == 16


def test_the_plan_computes_again_only_what_memory_asks_for(tmp_path: Path) -> None:
    """Twelve layers of 16 numbers a token, 8 keys, an MLP of 32. A layer keeps 4·16 + 2·8 + 2·32 =
    144 numbers, 112 without one product, 16 where it is computed again (and one at a time 144)."""
    model = {"model__path": str(save_model(tmp_path, "llama", num_hidden_layers=12))}
    config = small_config(**model, model__compile=True)
    shape = memory.read_shape(str(tmp_path))
    assert shape is not None
    keep = memory.make_plan(config, shape, CPU, 0).activations
    tokens = memory.PROMPT_TOKENS + 12

    def fits_with(numbers: int) -> tuple[int, bool]:
        """What is computed again if so many numbers a token less than the most may be kept."""
        free = memory.make_plan(config, shape, CPU, 0).total - 4 * tokens * numbers
        plan = memory.plan_for(config, shape, CPU, free, None)
        assert plan.total <= free or plan.recomputed == 12
        return plan.recomputed, plan.less

    assert keep - memory.logits_bytes(CPU) == 4 * tokens * 12 * 144
    assert fits_with(0) == (0, False)
    assert fits_with(1) == (0, True)
    assert fits_with(12 * 32) == (0, True)
    # two layers again: 2·16 + 10·112 + 144 = 1296 of 1344; one would need 16 + 11·112 + 144 = 1392
    assert fits_with(12 * 32 + 1) == (2, True)
    assert fits_with(10**6) == (12, True)
    always = small_config(**model, model__gradient_checkpointing=True)
    assert memory.plan_for(always, shape, CPU, 10**12, None).recomputed == 12


def test_sampling_survives_a_shortage_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight rows do not fit, four do: every answer is drawn, and four at once from then on."""
    sampler = tiny_sampler(load_tiny(), batch_rows=8)
    real, tried = HFSampler._generate, []

    def generate(self: HFSampler, rows: Any) -> Any:
        tried.append(len(rows))
        if len(rows) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return real(self, rows)

    monkeypatch.setattr(HFSampler, "_generate", generate)
    prompts = [(BOS, 5), (BOS, 6), (BOS, 7)]
    samples = sampler.sample(prompts, 4, seed=1)
    assert samples.lengths.shape == (3, 4)
    assert tried == [8, 4, 4, 4]
    assert sampler.rows == 4
    monkeypatch.setattr(
        HFSampler, "_generate", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("full"))
    )
    with pytest.raises(UserError, match="single answer"):
        sampler.sample(prompts, 4, seed=1)


@pytest.mark.parametrize(("device", "index"), [("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)])
def test_memory_limit_names_a_card_by_number(
    device: str, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch refuses a "cuda" without a number there."""
    asked: list[tuple[float, Any]] = []
    card = SimpleNamespace(total_memory=80_000_000_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda *given: asked.append(given)
    )
    limit_memory(torch.device(device), 20)
    assert asked == [(0.25, index)]
    assert all(type(number) is int for _, number in asked)


def test_memory_limit_beside_a_sleeping_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 GB beside 10 that sleep, also for the next run; 70 and 20 are more than there is. From 72
    on the card's own end is limit enough."""
    asked: list[tuple[float, Any]] = []
    card = SimpleNamespace(total_memory=80_000_000_000)
    monkeypatch.setattr(policy, "_returned", {})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, card: asked.append(share)
    )
    gpu = torch.device("cuda")
    limit_memory(gpu, 20, 10**10)
    limit_memory(gpu, 20)
    limit_memory(gpu, 70, 2 * 10**10)
    limit_memory(gpu, 20, 0)
    limit_memory(gpu, 72, 10**10)
    limit_memory(gpu, 500)
    assert asked == [0.375, 0.375, 1.0, 0.25]
