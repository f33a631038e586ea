"""The GPU benchmark's baselines: both must compute the loss and gradients they are timed for.

The reference is each row alone, unpadded, in float32, with the logits of every position.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks import gpu_baselines, gpu_rollouts
from benchmarks.gpu_baselines import (
    SHAPES,
    Rows,
    build_random_model,
    hf_peft_step,
    lora_config,
    make_trl,
    measure,
    random_rows,
    save_random_model,
    trl_step,
)
from lens_ref import grpo_loss

TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 160,
}
ARCHITECTURES = {"qwen2": "qwen2.5-3b", "llama": "llama-3.1-8b"}
CPU = torch.device("cpu")


def tiny(architecture: str) -> dict[str, Any]:
    return {**SHAPES[ARCHITECTURES[architecture]], **TINY}


def trained_model(architecture: str) -> Any:
    """With a B that is not 0, else half of the adapter's gradients would vanish."""
    model = build_random_model(tiny(architecture), "cpu", torch.float32, lora_config(4))
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0, 0.1, generator=generator)
        elif not parameter.requires_grad:
            parameter.data.mul_(3)  # peaked distributions: log-probabilities that differ
    return model


def gradients(model: Any) -> dict[str, Tensor]:
    found = {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
    assert all(gradient is not None for gradient in found.values())
    return {name: gradient.clone() for name, gradient in found.items()}


def ragged_rows() -> Rows:
    long, short = random_rows(7, [9, 3], 160, seed=2), random_rows(4, [12, 1], 160, seed=3)
    return Rows(long.prompts + short.prompts, long.responses + short.responses)


def reference(model: Any, rows: Rows) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """`(advantages, old log-probs [N, T] with NaN on padding, loss, adapter gradients)`."""
    width = max(map(len, rows.responses))
    new, mask = [], torch.zeros(len(rows.responses), width, dtype=torch.bool)
    for i, (prompt, response) in enumerate(zip(rows.prompts, rows.responses, strict=True)):
        logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
        logprobs = logits.log_softmax(-1)[torch.arange(len(response)), response]
        new.append(torch.nn.functional.pad(logprobs, (0, width - len(response))))
        mask[i, : len(response)] = True
    stacked = torch.stack(new)
    generator = torch.Generator().manual_seed(4)
    # ratios on both sides of both clips
    old = stacked.detach() + 0.3 * torch.randn(stacked.shape, generator=generator)
    advantages = torch.tensor([1.5, -0.5, -2.0, 0.7])
    out = grpo_loss(stacked, old, advantages, mask)
    assert 0.1 < out.clip_fraction < 0.9
    model.zero_grad()
    out.loss.backward()
    return advantages, old.masked_fill(~mask, torch.nan), out.loss.detach(), gradients(model)


def assert_same(
    loss: Tensor, model: Any, expected: Tensor, wanted: dict[str, Tensor], tolerance: float
) -> None:
    """Gradients are compared in units of the largest one."""
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    assert largest > 0.01
    torch.testing.assert_close(loss, expected, atol=tolerance, rtol=0)
    found = gradients(model)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(
            found[name],
            gradient,
            atol=tolerance * largest,
            rtol=0,
            msg=lambda text, n=name: f"{n}: {text}",
        )


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("micro_batch", [1, 3, 4])
def test_hf_peft_step_is_the_loss_of_each_row_alone(
    chunked: bool, micro_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_baselines, "CHUNK", 5)  # chunks that end inside a row
    model, rows = trained_model("qwen2"), ragged_rows()
    advantages, old, loss, wanted = reference(model, rows)
    found = hf_peft_step(model, rows, advantages, old, micro_batch, chunked=chunked)
    assert_same(found, model, loss, wanted, 1e-5)
    # a second step starts from zero
    found = hf_peft_step(model, rows, advantages, old, micro_batch, chunked=chunked)
    assert_same(found, model, loss, wanted, 1e-5)


def test_hf_peft_step_checkpoints_the_layers_and_holds_no_full_logits() -> None:
    model, rows = trained_model("llama"), ragged_rows()
    advantages, old, *_ = reference(model, rows)
    base = model.get_base_model()
    calls = {"layer": 0}
    heads: list[int] = []

    def count(*_: Any) -> None:
        calls["layer"] += 1

    base.model.layers[0].mlp.register_forward_pre_hook(count)
    base.lm_head.register_forward_pre_hook(lambda _, args: heads.append(args[0].shape[:-1].numel()))
    hf_peft_step(model, rows, advantages, old, 4)
    assert calls["layer"] == 2  # forward, and again in backward
    assert heads == [4 * (12 + 1)]
    heads.clear()
    many = random_rows(2, [700, 700], 160)
    hf_peft_step(model, many, torch.ones(2), torch.zeros(2, 700), 2, chunked=True)
    assert sorted(heads) == [376, 376, 1024, 1024]  # forward and backward of two chunks


def test_autocast_changes_the_numbers_by_rounding_only() -> None:
    model, rows = trained_model("qwen2"), ragged_rows()
    advantages, old, loss, wanted = reference(model, rows)
    for chunked in (False, True):
        found = hf_peft_step(model, rows, advantages, old, 4, chunked=chunked, autocast=True)
        assert 0 < abs(found - loss) < 0.05
        flat = [
            torch.cat([g.flatten() for g in each.values()]) for each in (gradients(model), wanted)
        ]
        # not closer: rounding carries some of the 25 tokens over the edge of the clip
        assert torch.nn.functional.cosine_similarity(*flat, dim=0) > 0.9


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("micro_batch", [2, 4])
def test_trl_step_is_the_loss_of_each_row_alone(
    architecture: str, micro_batch: int, tmp_path: Path
) -> None:
    pytest.importorskip("trl", reason="TRL is not installed")
    model, rows = trained_model(architecture), ragged_rows()
    advantages, old, loss, wanted = reference(model, rows)
    trainer = make_trl(model, len(rows.prompts), micro_batch, tmp_path / "trl")
    old = old.nan_to_num(0.0)  # TRL multiplies by its mask
    for _ in range(2):
        found = trl_step(trainer, rows, advantages, old, micro_batch)
        assert_same(found, model, loss, wanted, 1e-4)
    assert not list(tmp_path.glob("trl/*"))


def test_trl_over_a_bfloat16_base_is_the_autocast_baseline(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="TRL is not installed")
    model = build_random_model(tiny("llama"), "cpu", torch.bfloat16, lora_config(4))
    rows, advantages = ragged_rows(), torch.tensor([1.5, -0.5, -2.0, 0.7])
    old = torch.full((4, 12), -5.0)  # about -log 160: near the new ones
    wanted = hf_peft_step(model, rows, advantages, old, 2, autocast=True)
    flat = [torch.cat([g.flatten() for g in gradients(model).values()])]
    trainer = make_trl(model, 4, 2, tmp_path)
    assert trainer.accelerator.mixed_precision == "bf16"
    found = trl_step(trainer, rows, advantages, old, 2)
    flat.append(torch.cat([g.flatten() for g in gradients(model).values()]))
    assert abs(found - wanted) < 0.01
    assert torch.nn.functional.cosine_similarity(*flat, dim=0) > 0.99


def test_trl_attaches_an_adapter_and_refuses_other_rows(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="TRL is not installed")
    model = build_random_model(tiny("qwen2"), "cpu", torch.float32)
    trainer = make_trl(model, 4, 2, tmp_path, lora_config(4))
    rows, advantages = random_rows(3, [5, 5, 5, 5], 160), torch.tensor([1.0, -1.0, 1.0, -1.0])
    trl_step(trainer, rows, advantages, torch.zeros(4, 5), 2)
    kinds = {name.split(".")[-3] for name in gradients(trainer.model)}
    assert kinds == {"lora_A", "lora_B"}
    with pytest.raises(ValueError, match=r"4 rows in micro-batches of 2, not for 4 .* of 4"):
        trl_step(trainer, rows, advantages, torch.zeros(4, 5), 4)
    with pytest.raises(ValueError, match="micro_batch = 3 does not divide 4 rows"):
        make_trl(model, 4, 3, tmp_path)


@pytest.mark.parametrize(
    ("name", "parameters"), [("qwen2.5-3b", 3_085_938_688), ("llama-3.1-8b", 8_030_261_248)]
)
def test_random_models_have_the_public_parameter_counts(name: str, parameters: int) -> None:
    model = build_random_model(name, "meta", torch.bfloat16)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model.config._attn_implementation == "sdpa"


def test_the_adapter_covers_all_linear_layers_but_the_head() -> None:
    model = build_random_model("qwen2.5-3b", "meta", torch.bfloat16, lora_config())
    # r (in + out) of q, o; k, v; gate, up, down; 36 layers
    per_layer = 32 * (2 * (2048 + 2048) + 2 * (2048 + 256) + 3 * (2048 + 11008))
    trained = [p for p in model.parameters() if p.requires_grad]
    assert sum(p.numel() for p in trained) == 36 * per_layer
    assert {p.dtype for p in trained} == {torch.float32}
    assert model.peft_config["default"].lora_alpha == 64
    assert model.is_gradient_checkpointing


def test_an_unknown_shape_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown shape 'qwen': one of qwen2.5-3b, llama-3.1-8b"):
        build_random_model("qwen", "cpu", torch.float32)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_saved_random_model_loads_as_a_folder(architecture: str, tmp_path: Path) -> None:
    save_random_model(tiny(architecture), tmp_path, seed=5)
    built = build_random_model(tiny(architecture), "cpu", torch.bfloat16, seed=5)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto")
    ids = random_rows(6, [1], 160).prompts[0][None]
    assert loaded.dtype == torch.bfloat16
    assert torch.equal(loaded(ids).logits, built(ids).logits)
    other = build_random_model(tiny(architecture), "cpu", torch.bfloat16, seed=6)
    assert not torch.equal(loaded(ids).logits, other(ids).logits)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1)
    assert tokenizer.decode(tokenizer("12+a").input_ids).replace(" ", "") == "12+a"
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == [type(built).__name__]
    assert (config["pad_token_id"], config["eos_token_id"]) == (0, 1)


def test_padding_and_token_counts_by_hand() -> None:
    rows = Rows(
        (torch.tensor([5, 6, 7]), torch.tensor([8])),
        (torch.tensor([9, 1]), torch.tensor([4, 3, 1])),
    )
    assert rows.tokens == 9
    prompt_ids, prompt_mask, ids, mask = rows.padded(CPU)
    assert prompt_ids.tolist() == [[5, 6, 7], [0, 0, 8]]
    assert prompt_mask.tolist() == [[1, 1, 1], [0, 0, 1]]
    assert ids.tolist() == [[9, 1, 0], [4, 3, 1]]
    assert mask.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert rows[1:].tokens == 4


def test_random_rows_hold_no_special_tokens_and_repeat_with_their_seed() -> None:
    rows = random_rows(50, [100, 20], 8, seed=1)
    assert [len(p) for p in rows.prompts] == [50, 50]
    assert [len(r) for r in rows.responses] == [100, 20]
    assert set(torch.cat(rows.prompts + rows.responses).tolist()) == {3, 4, 5, 6, 7}
    again, other = random_rows(50, [100, 20], 8, seed=1), random_rows(50, [100, 20], 8, seed=2)
    assert torch.equal(rows.responses[0], again.responses[0])
    assert not torch.equal(rows.responses[0], other.responses[0])


def test_measure_reports_the_median_of_the_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    clock = iter([0.0, 5.0, 10.0, 12.0, 20.0, 23.0])  # the repeats take 5, 2 and 3 seconds
    monkeypatch.setattr(gpu_baselines.time, "perf_counter", lambda: next(clock))
    calls: list[int] = []
    result = measure(lambda: calls.append(1), tokens=60, repeats=3, warmups=2)
    assert len(calls) == 5
    assert result == {
        "seconds": 3.0,
        "fastest": 2.0,
        "slowest": 5.0,
        "tokens_per_second": 20.0,
        "peak_gb": None,
    }


def test_this_projects_side_does_the_same_work() -> None:
    """The timed update and the plain baseline: the same loss, and gradients of one direction (the
    update clips their length)."""
    from benchmarks import gpu_updates

    device = torch.device("cpu")
    work = gpu_updates.Work.of([5, 1, 9, 4], 50, device)
    shape = {**gpu_updates.TINY, "vocab_size": 50}
    policy = gpu_updates.own_policy(shape, device, compiled=False)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    loss = hf_peft_step(policy.model, work.rows, work.advantages, work.old, 4)
    plain = torch.cat([p.grad.flatten() for p in policy.trainable().values()])
    stats: Any = gpu_updates.Own(policy, work, 300)()
    own = torch.cat([p.grad.flatten() for p in policy.trainable().values()])
    assert stats.loss == pytest.approx(float(loss), abs=1e-5)
    assert stats.micro_batches > 1
    assert torch.nn.functional.cosine_similarity(own, plain, dim=0) > 0.99999


def test_a_step_is_measured_with_either_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainer and sampler in turn, four times; the first ones compile and are left out."""
    sampler = SimpleNamespace(close=lambda: closed.append(1))
    closed, took = list[int](), iter(range(8))
    started = (None, None, sampler, {"engine_start_seconds": 9.0})
    monkeypatch.setattr(gpu_rollouts, "engine", lambda work: started)
    monkeypatch.setattr(gpu_rollouts, "some_prompts", lambda: ())
    monkeypatch.setattr(
        gpu_rollouts, "whole_step", lambda *rest: {"side": rest[-1], "n": next(took)}
    )
    saved = list[Any]()
    gpu_rollouts.step(Path(), saved.append)
    assert len(saved) == 3  # what a time limit cuts is not lost
    assert saved[-1]["engine_start_seconds"] == 9.0
    for side, numbers in (("trainer", [2, 4, 6]), ("sampler", [3, 5, 7])):
        assert saved[-1][f"old_from_{side}"] == [{"side": side, "n": n} for n in numbers]
    assert closed == [1]
