"""How much of a GPU a run may use, and who gets what: no GPU is needed, the numbers are given."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lens_ref.rlvr import memory, sampler, session
from lens_ref.rlvr.config import load
from lens_ref.rlvr.layers import checkpointed
from tests.rlvr.helpers import load_tiny, save_model, small_config

CUDA = torch.device("cuda")
CARD = 80 * 10**9


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """An 80 GB card of which 70 GB are free."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (70 * 10**9, CARD))
    properties = SimpleNamespace(total_memory=CARD)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)


def test_what_a_run_may_use(card: None) -> None:
    """93 % of what is free, and what it has already; never more than memory_gb."""
    free = small_config()
    assert memory.available(free, CUDA) == int(0.93 * 70e9)
    assert memory.available(free, CUDA, 6 * 10**9) == int(0.93 * 70e9) + 6 * 10**9
    limited = small_config(model__memory_gb=24)
    assert memory.available(limited, CUDA) == int(0.93 * 24e9)
    assert memory.available(limited, CUDA, 6 * 10**9) == int(0.93 * 24e9)


@pytest.mark.parametrize("recipe", ["qwen2.5-3b-24gb", "llama3.1-8b-qlora-24gb"])
def test_the_recipes_for_24_gb_are_planned_within_24_gb(
    recipe: str, card: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "find_spec", lambda name: True)
    config = load(recipe)
    shape = memory.read_shape(config.model.path)
    assert shape is not None
    held = session.planned_sampler(config, CUDA)
    taken = int(0.45 * 24e9)  # vLLM sleeps, and keeps its graphs
    assert held == (None if "qlora" in recipe else (1_500_000_000, taken - 1_500_000_000))
    loaded = memory.make_plan(config, shape, CUDA).weights
    plan = memory.plan_for(config, shape, CUDA, memory.available(config, CUDA, loaded), held)
    assert plan.total <= 24e9


def test_the_80_gb_recipe_shares_the_card_with_vllm(
    card: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "find_spec", lambda name: True)
    config = load("qwen2.5-3b-lora")
    shape = memory.read_shape(config.model.path)
    assert shape is not None
    held = session.planned_sampler(config, CUDA)
    assert held == (int(0.45 * CARD), 0)  # room for 512 answers of 4,096 tokens would be more
    plan = memory.plan_for(config, shape, CUDA, memory.available(config, CUDA), held)
    assert plan.total <= 0.93 * 70e9
    assert plan.cache == 0  # within vLLM's share
    assert "vLLM" in str(plan)


@pytest.mark.parametrize(
    ("overrides", "with_vllm"),
    [
        ({}, True),
        ({"rollout.engine": "hf"}, False),
        ({"model.lora": None}, False),
        ({"model.dtype": "float32"}, False),
        ({"model.quantization": "nf4"}, False),
        ({"rollout.vllm": {"quantization": "bitsandbytes"}}, False),
        ({"model.quantization": "nf4", "rollout.vllm": {"quantization": "bitsandbytes"}}, True),
    ],
)
def test_what_is_planned_is_what_will_sample(
    overrides: dict[str, Any], with_vllm: bool, card: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "find_spec", lambda name: True)
    monkeypatch.setattr(sampler, "_check_bnb_plugin", lambda: None)
    config = load("qwen2.5-3b-lora", overrides)
    assert (session.planned_sampler(config, CUDA) is not None) == with_vllm


@pytest.mark.parametrize(
    ("budget", "recomputed", "less", "measured"),
    [  # one H100, torch 2.11.0: peak of an update of 4 answers, 4,096 tokens each
        (4096, 0, False, 17.90),
        (8192, 0, False, 27.07),
        (8192, 12, False, 21.37),
        (16384, 36, False, 12.31),
        (8192, 0, True, 19.38),
        (8192, 12, True, 16.26),
    ],
)
def test_the_plan_of_an_update_against_measurements(
    budget: int, recomputed: int, less: bool, measured: float
) -> None:
    config = load("qwen2.5-3b-lora", {"loss.micro_batch_tokens": budget})
    shape = memory.read_shape(config.model.path)
    assert shape is not None
    tokens = max(budget, memory.PROMPT_TOKENS + config.rollout.max_new_tokens)
    plan = memory.make_plan(config, shape, CUDA, recomputed, sampler=memory.NOTHING, less=less)
    used = (plan.activations - memory.logits_bytes(CUDA)) * budget / tokens
    total = plan.total - plan.activations + used + memory.logits_bytes(CUDA)
    assert total / 1e9 == pytest.approx(measured, rel=0.06)


def test_what_sleeps_counts_while_it_is_awake(card: None) -> None:
    """Sampling needs vLLM's weights and cache, updating the activations: never both."""
    config = load(None, {"model.lora": {"r": 32}})
    shape = memory.read_shape("Qwen/Qwen2.5-3B")
    assert shape is not None
    alone = memory.make_plan(config, shape, CUDA, 36, sampler=memory.NOTHING)
    held = alone.weights + alone.adapter + alone.optimizer
    for sampling, total in (
        (10**9, alone.total + 10**9),  # the update needs more
        (10**11, held + 10**9 + 10**11),
    ):
        plan = memory.make_plan(config, shape, CUDA, 36, memory.Share(10**9, sampling))
        assert plan.total == total
        assert "vLLM, asleep" in str(plan)
        assert "vLLM, awake: weights and cache beside that" in str(plan)


def test_a_policy_keeps_what_memory_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory: every layer is computed again; enough: none."""
    config = small_config(model__path=str(save_model(tmp_path, "llama")))
    policy = load_tiny(path=str(tmp_path))
    for free, expected in ((0, 2), (10**12, 0)):
        monkeypatch.setattr(memory, "available", lambda *_, free=free: free)
        session.keep_activations(config, policy)
        assert checkpointed(policy.model) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"model.memory_gb": 24},  # vLLM sleeps
        {"model.memory_gb": 30, "rollout.vllm.sleep": False},
    ],
)
def test_the_runs_of_a_session_are_planned_alike(
    settings: dict[str, Any], card: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether vLLM is still to take its memory or has done so for the run before: within
    model.memory_gb, too, it is there only once."""
    config = load("qwen2.5-3b-lora", settings)
    monkeypatch.setattr(sampler, "find_spec", lambda name: True)
    held = session.planned_sampler(config, CUDA)
    assert held is not None
    kept: list[int] = []
    monkeypatch.setattr(session, "checkpoint_layers", lambda model, n: kept.append(n))
    monkeypatch.setattr(session, "keep_less", lambda less: kept.append(less))
    policy: Any = SimpleNamespace(device=CUDA, model=None)
    session.keep_activations(config, policy)
    free = (70 - held.updating / 0.93e9) * 1e9
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, CARD))
    session.keep_activations(config, policy, engine_runs=True)
    assert kept[:2] == kept[2:]
