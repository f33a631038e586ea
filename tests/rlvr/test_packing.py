"""Packed rows, fused adapters, memory that runs out: what updates compute is what it always was."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import OutOfMemoryError, Tensor, nn
from torch._dynamo.utils import counters
from transformers import AutoConfig, AutoModelForCausalLM

from lens_ref.core import Signal
from lens_ref.rlvr import attention
from lens_ref.rlvr.attention import packed_attention
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.config import LoraConfig, ModelConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.layers import (
    VARIANTS,
    checkpoint_layers,
    checkpointed,
    compile_layers,
)
from lens_ref.rlvr.logprobs import (
    LOGITS_CHUNK,
    _packed_states,
    can_pack,
    head_logprobs,
    token_logprobs,
)
from lens_ref.rlvr.policy import Policy, load_policy
from lens_ref.rlvr.update import micro_batches
from tests.rlvr.helpers import (
    BOS,
    CPU,
    EOS,
    HE,
    HELLO,
    LLO,
    load_tiny,
    sampled_batch,
    save_model,
    tiny_sampler,
    tiny_updater,
)

PROMPTS = [(BOS, HE), (BOS, HE, LLO, HELLO, HE), (HELLO,)]
RESPONSES = [torch.tensor([LLO, HE, HELLO, EOS]), torch.tensor([EOS]), torch.tensor([HE, LLO, EOS])]
LORA = LoraConfig(r=2, alpha=8.0)


def with_random_adapter(policy: Policy, scale: float = 0.5) -> Policy:
    """B is 0 at first: an adapter that does something is the better test."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in policy.trainable().items():
        if "lora_B" in name:
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return policy


@pytest.fixture(params=["llama", "qwen2"])
def adapted(request: pytest.FixtureRequest, model_folder: Callable[[str], Path]) -> Policy:
    policy = load_policy(ModelConfig(path=str(model_folder(request.param)), lora=LORA), CPU, 0)
    return with_random_adapter(policy)


def scores_and_gradients(policy: Policy, packed: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
    logprobs, entropy = token_logprobs(policy.model, PROMPTS, RESPONSES, 0.7, packed)
    flat = torch.cat(logprobs)
    gradients = torch.autograd.grad(
        (flat * torch.linspace(-1, 1, len(flat))).sum(), list(policy.trainable().values())
    )
    return flat.detach(), torch.cat(entropy), list(gradients)


def test_packed_equals_padded_equals_alone(adapted: Policy) -> None:
    assert can_pack(adapted.model)
    packed, padded = (scores_and_gradients(adapted, p) for p in (True, False))
    torch.testing.assert_close(packed, padded, rtol=0, atol=2e-6)
    assert all(gradient.abs().max() > 1e-4 for gradient in packed[2])  # they say something
    alone = [
        token_logprobs(adapted.model, [prompt], [response], 0.7, packed=True)[0][0]
        for prompt, response in zip(PROMPTS, RESPONSES, strict=True)
    ]
    torch.testing.assert_close(torch.cat(alone), packed[0], rtol=0, atol=2e-6)


def test_rows_do_not_see_each_other(adapted: Policy) -> None:
    """The neighbour is another one; the row is the same to the bit."""
    assert can_pack(adapted.model)
    neighbours = [torch.tensor([LLO, EOS]), torch.tensor([HELLO, HE])]
    first, second = (
        token_logprobs(adapted.model, [(BOS,), (BOS, HE)], [n, RESPONSES[0]], 1.0, packed=True)[0]
        for n in neighbours
    )
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], second[0])


def test_a_leak_between_rows_is_noticed(
    llama: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Were row boundaries ignored, packing would be given up, aloud, when the model is loaded."""

    def leaky(module: Any, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **kwargs: Any) -> Any:
        if "cu_seq_lens_q" not in kwargs:
            return packed_attention(module, q, k, v, *rest, **kwargs)
        whole = torch.tensor([0, q.shape[2]], dtype=torch.int32)
        return packed_attention(module, q, k, v, cu_seq_lens_q=whole, max_length_q=q.shape[2])

    monkeypatch.setitem(attention.AttentionInterface._global_mapping, attention.NAME, leaky)
    assert not can_pack(load_policy(ModelConfig(path=str(llama)), CPU, 0).model)
    assert "are padded: laid end to end they come out otherwise" in caplog.text


def test_rounding_in_a_deep_model_is_no_difference() -> None:
    """64 layers in bfloat16, by two kernels: some state is off by .07 of the largest one."""
    model = random_llama(64, 0.1, torch.bfloat16)
    ids = torch.arange(40) % 100
    with torch.no_grad():
        usual = model.base_model(input_ids=ids.unsqueeze(0), use_cache=False).last_hidden_state[0]
        model.config._attn_implementation = attention.NAME
        packed = _packed_states(model, [ids], CPU)
    assert (packed - usual).abs().max() > 0.05 * usual.abs().max()
    model.config._attn_implementation = "eager"
    assert can_pack(model)


@pytest.mark.parametrize(
    ("spread", "dtype", "factor"),
    [(0.2, torch.bfloat16, 2.0), (0.05, torch.float32, 2.0), (0.05, torch.float32, 1.25)],
)
def test_another_attention_is_noticed(
    monkeypatch: pytest.MonkeyPatch, spread: float, dtype: torch.dtype, factor: float
) -> None:
    """Another scale of the scores, in packed rows alone."""

    def flatter(*args: Any, scaling: float, **kwargs: Any) -> Any:
        return packed_attention(*args, scaling=scaling / factor, **kwargs)

    model = random_llama(4, spread, dtype)
    assert can_pack(model)
    model.config._attn_implementation = "eager"
    monkeypatch.setitem(attention.AttentionInterface._global_mapping, attention.NAME, flatter)
    assert not can_pack(model)
    assert model.config._attn_implementation == "eager"


def random_llama(layers: int, spread: float, dtype: torch.dtype) -> Any:
    """Of 4 heads and width 128, weights of this standard deviation, attention without a kernel."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 256, "vocab_size": 100}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": layers}
    config = AutoConfig.for_model("llama", **sizes, **heads, initializer_range=spread)
    config._attn_implementation = "eager"
    return AutoModelForCausalLM.from_config(config, dtype=dtype)


def test_a_model_without_packing_arguments_is_padded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = load_policy(ModelConfig(path=str(save_model(tmp_path, "falcon"))), CPU, 0)
    assert not can_pack(policy.model)
    assert "are padded: this architecture takes no packing arguments" in caplog.text
    logprobs, _ = policy.logprobs(PROMPTS, RESPONSES, 1.0)
    assert [len(row) for row in logprobs] == [4, 1, 3]


@pytest.mark.parametrize("tokens", [1, 255, 256, 257])
def test_a_row_alone_is_as_exact_as_beside_another(tokens: int) -> None:
    """What fills it up to a round length is nothing that it sees, forwards or backwards."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, heads, tokens, 8, generator=generator, dtype=torch.float64).requires_grad_()
        for heads in (4, 2, 2)
    )
    weights = torch.randn(1, tokens, 4, 8, generator=generator, dtype=torch.float64)

    def result(*bounds: int) -> tuple[Tensor, ...]:
        rows = len(bounds) - 1
        starts = torch.tensor(bounds, dtype=torch.int32)
        both = (torch.cat([x] * rows, 2) for x in (q, k, v))
        out, _ = packed_attention(
            None, *both, scaling=0.3, cu_seq_lens_q=starts, max_length_q=tokens
        )
        last = out[:, -tokens:]
        return (last, *torch.autograd.grad((last * weights).sum(), (q, k, v)))

    alone, beside = result(0, tokens), result(0, tokens, 2 * tokens)
    torch.testing.assert_close(alone, beside, rtol=0, atol=1e-12)


def test_a_row_alone_always_lies_the_same_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """One filled up to 256 tokens and one of 256, wherever they and their gradients come from:
    torch takes the plan of the first for the second, whose gradient must lie as the first's did."""
    seen: list[tuple[int, ...]] = []
    usual = attention.F.scaled_dot_product_attention

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            seen.append(grad.stride()[1:])
            return grad

    def look(q: Tensor, k: Tensor, v: Tensor, **kwargs: Any) -> Tensor:
        seen.extend(x.stride()[1:] for x in (q, k, v))
        out: Tensor = Look.apply(usual(q, k, v, **kwargs))
        return out

    monkeypatch.setattr(attention.F, "scaled_dot_product_attention", look)
    for tokens, by_token, weights_by_token in itertools.product((200, 256), *[(False, True)] * 2):

        def heads(n: int, by_token: bool) -> Tensor:
            shape = (1, tokens, n, 8) if by_token else (1, n, tokens, 8)  # noqa: B023
            x = torch.randn(shape)
            return x.transpose(1, 2) if by_token else x

        q, k, v = (heads(n, by_token).requires_grad_() for n in (4, 2, 2))
        starts = torch.tensor([0, tokens], dtype=torch.int32)
        out, _ = packed_attention(None, q, k, v, cu_seq_lens_q=starts, max_length_q=tokens)
        assert out.is_contiguous()
        out.backward(heads(4, weights_by_token).transpose(1, 2))
        assert seen == [(8, 32, 1), (8, 16, 1), (8, 16, 1), (8, 32, 1)]
        seen.clear()


def test_any_length_takes_the_same_compiled_code() -> None:
    """Of a row alone, filled up or not; several rows are another code."""
    compiled = torch.compile(packed_attention, backend="aot_eager", dynamic=True)
    counters.clear()
    torch._dynamo.reset()
    for tokens in (300, 256, 512, 1000, 77):
        q = torch.randn(1, 2, tokens, 4, requires_grad=True)
        starts = torch.tensor([0, tokens], dtype=torch.int32)
        packing = {"cu_seq_lens_q": starts, "max_length_q": tokens}
        compiled(None, q, q, q, scaling=1.0, **packing)[0].sum().backward()
    assert counters["stats"]["unique_graphs"] == 1


def test_a_block_may_have_many_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own limit is raised to the codes that a block may need, a higher one is kept."""
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 8)
    compile_layers([])
    assert torch._dynamo.config.recompile_limit == VARIANTS > 8
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 64)
    compile_layers([])
    assert torch._dynamo.config.recompile_limit == 64


def test_a_sliding_window_is_kept(tmp_path: Path) -> None:
    """Window 2: the third token of a row can't see its first, in packed rows as in padded ones."""
    window = {"use_sliding_window": True, "sliding_window": 2, "max_window_layers": 0}
    policy = load_policy(ModelConfig(path=str(save_model(tmp_path, "qwen2", **window))), CPU, 0)
    assert can_pack(policy.model)
    full = load_policy(ModelConfig(path=str(save_model(tmp_path / "full", "qwen2"))), CPU, 0)
    full.model.load_state_dict(policy.model.state_dict())
    assert can_pack(full.model)
    both = [token_logprobs(policy.model, PROMPTS, RESPONSES, 1.0, packed)[0] for packed in (1, 0)]
    torch.testing.assert_close(*both, rtol=0, atol=2e-6)
    unlimited, _ = token_logprobs(full.model, PROMPTS, RESPONSES, 1.0, True)
    assert (torch.cat(unlimited) - torch.cat(both[0])).abs().max() > 1e-5


def test_capped_scores_are_refused() -> None:
    q = torch.zeros(1, 1, 2, 4)
    with pytest.raises(NotImplementedError, match="capped"):
        packed_attention(None, q, q, q, softcap=50.0, cu_seq_lens_q=torch.tensor([0, 2]))


# --- the head -------------------------------------------------------------------------------------


@pytest.mark.parametrize("frozen", [True, False])
def test_the_head_by_hand(frozen: bool) -> None:
    """Weight = identity: the states are the logits. Entropy of [2, 1, 0] at T = 1 is 0.8324."""
    head = nn.Linear(3, 3, bias=False).requires_grad_(not frozen)
    head.weight.data.copy_(torch.eye(3))
    states = torch.tensor([[2.0, 1.0, 0.0]], requires_grad=True)
    logprobs, entropy = head_logprobs(head, states, torch.tensor([0]), 1.0)
    assert logprobs.item() == pytest.approx(-0.40760596, abs=1e-6)
    assert entropy.item() == pytest.approx(0.83239555, abs=1e-6)
    logprobs.backward()
    expected = [[1 - 0.66524096, -0.24472847, -0.09003057]]
    torch.testing.assert_close(states.grad, torch.tensor(expected), rtol=0, atol=1e-6)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_gradient_of_the_head_is_that_of_finite_differences(
    frozen: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOGITS_CHUNK, "cpu", rows * 5)
    head = nn.Linear(4, 5, dtype=torch.float64).requires_grad_(not frozen)
    states = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 4, 2])

    def value() -> Tensor:
        weights = torch.tensor([1.0, -2.0, 0.5])
        return (head_logprobs(head, states, targets, 0.6)[0].double() * weights).sum()

    leaves = [states, *([] if frozen else [head.weight, head.bias])]
    gradients = torch.autograd.grad(value(), leaves)
    for leaf, gradient in zip(leaves, gradients, strict=True):
        for index in [(0,) * leaf.ndim, tuple(n - 1 for n in leaf.shape)]:
            step = 1e-2
            with torch.no_grad():
                leaf[index] += step
                up = value()
                leaf[index] -= 2 * step
                down = value()
                leaf[index] += step
            numeric = (up - down) / (2 * step)
            assert gradient[index].item() == pytest.approx(numeric.item(), abs=2e-4)


@pytest.mark.parametrize(
    ("frozen", "expected"),
    [
        (True, [64 * 8]),  # a vector a token
        (False, [64, 64, 64 * 8, 8 * 4096]),  # targets, normalisers, states, the weight
    ],
)
def test_nothing_as_large_as_tokens_times_vocabulary_is_kept(
    frozen: bool, expected: list[int]
) -> None:
    """For the backward pass, of 64 tokens."""
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    head = nn.Linear(8, 4096, bias=False).requires_grad_(not frozen)
    states = torch.randn(64, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        head_logprobs(head, states, torch.zeros(64, dtype=torch.long), 1.0)
    assert sorted(kept) == expected


# --- adapters -------------------------------------------------------------------------------------


def test_the_fused_adapter_is_w_plus_s_b_a(llama: Path) -> None:
    """Against a plain model whose weights are W + (alpha / r)·B·A."""
    policy = with_random_adapter(load_policy(ModelConfig(path=str(llama), lora=LORA), CPU, 0))
    merged = load_policy(ModelConfig(path=str(llama)), CPU, 0)
    adapter = {n.replace("base_model.model.", ""): p for n, p in policy.trainable().items()}
    for name, weight in merged.model.named_parameters():
        stem = name.removesuffix(".weight")
        if f"{stem}.lora_A.default.weight" in adapter:
            a, b = (adapter[f"{stem}.lora_{x}.default.weight"] for x in "AB")
            weight.data += 4.0 * b.data @ a.data  # alpha / r = 8 / 2
    expected, _ = merged.logprobs(PROMPTS, RESPONSES, 1.0)
    found, _ = policy.logprobs(PROMPTS, RESPONSES, 1.0)
    torch.testing.assert_close(torch.cat(found), torch.cat(expected), rtol=0, atol=5e-6)
    plain, _ = load_policy(ModelConfig(path=str(llama)), CPU, 0).logprobs(PROMPTS, RESPONSES, 1.0)
    assert (torch.cat(found) - torch.cat(plain)).abs().max() > 0.01


def test_a_bfloat16_base_keeps_float32_adapters(llama: Path) -> None:
    """An AdamW step of 1e-5 on a weight of 0.1 is lost in bfloat16."""
    policy = load_policy(ModelConfig(path=str(llama), lora=LORA, dtype="bfloat16"), CPU, 0)
    assert {p.dtype for p in policy.trainable().values()} == {torch.float32}
    logprobs, _ = policy.logprobs(PROMPTS, RESPONSES, 1.0)
    gradients = torch.autograd.grad(torch.cat(logprobs).sum(), list(policy.trainable().values()))
    assert {g.dtype for g in gradients} == {torch.float32}
    assert any(g.abs().max() > 0 for g in gradients)


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_checkpointed_layers_change_no_gradient(adapted: Policy, layers: int) -> None:
    before = scores_and_gradients(adapted, True)
    checkpoint_layers(adapted.model, layers)
    adapted.model.train()
    assert checkpointed(adapted.model) == layers
    torch.testing.assert_close(scores_and_gradients(adapted, True), before, rtol=0, atol=1e-6)


# --- micro-batches --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("packed", "expected"),
    [
        (False, [[1, 3], [0], [2]]),  # 2·4 = 8; 3·9 > 10
        (True, [[1, 3], [0], [2]]),  # 3 + 4 = 7; 7 + 9 > 10; 9 + 12 > 10
    ],
)
def test_micro_batches_by_hand(packed: bool, expected: list[list[int]]) -> None:
    assert micro_batches([9, 3, 12, 4], 10, packed) == expected


def test_packing_leaves_out_the_padding() -> None:
    """Lengths 1, 2 and 7 in a budget of 10: together when packed, 3·7 = 21 when padded."""
    assert micro_batches([7, 1, 2], 10, packed=True) == [[1, 2, 0]]
    assert micro_batches([7, 1, 2], 10, packed=False) == [[1, 2], [0]]


# --- memory runs out ------------------------------------------------------------------------------


def signed(batch: Batch) -> Batch:
    """Every kind of advantage, for every answer."""
    values = torch.linspace(-1, 1, batch.samples.lengths.numel()).reshape_as(batch.samples.lengths)
    return replace(batch, signal=Signal(values, torch.ones_like(values, dtype=torch.bool)))


def limit_memory(policy: Policy, monkeypatch: pytest.MonkeyPatch, tokens: int) -> list[int]:
    """Fail as a GPU does, above so many tokens, after the forward pass; returns what was tried."""
    real, tried = policy.logprobs, []

    def logprobs(prompts: Any, responses: list[Tensor], temperature: float) -> Any:
        tried.append(sum(map(len, prompts)) + sum(map(len, responses)))
        result = real(prompts, responses, temperature)
        if tried[-1] > tokens:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return result

    monkeypatch.setattr(policy, "logprobs", logprobs)
    return tried


def test_a_shortage_of_memory_halves_the_budget_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain, short = load_tiny(), load_tiny()
    batch = signed(sampled_batch(plain))
    everything = slice(None)
    expected = tiny_updater(plain).step(batch, everything, 0)
    short.packed = can_pack(short.model)  # a micro-batch is what its rows add up to
    tried = limit_memory(short, monkeypatch, 300)
    updater = tiny_updater(short, micro_batch_tokens=1000)
    found = updater.step(batch, everything, 0)
    assert tried[0] > 300  # the first micro-batch failed
    assert found.token_budget == updater.token_budget <= 300
    assert found.micro_batches > expected.micro_batches
    assert found.tokens == expected.tokens
    assert found.loss == pytest.approx(expected.loss, abs=1e-6)
    assert found.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
    for name, parameter in plain.trainable().items():
        torch.testing.assert_close(short.trainable()[name], parameter, rtol=0, atol=2e-6)
    assert "out of GPU memory" in caplog.text


def test_the_old_logprobs_survive_a_shortage_too(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load_tiny()
    batch = sampled_batch(policy)
    expected = batch.old_logprobs
    tried = limit_memory(policy, monkeypatch, 200)
    found = tiny_updater(policy, micro_batch_tokens=1000).freeze_old(batch).old_logprobs
    assert tried[0] > 200
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("where", "name"),
    [(torch.autograd, "grad"), (torch, "stack")],  # the backward pass; the statistics
)
def test_a_failure_late_in_a_micro_batch_counts_no_row_twice(
    where: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, short = load_tiny(), load_tiny()
    batch = signed(sampled_batch(plain))
    expected = tiny_updater(plain).step(batch, slice(None), 0)
    updater = tiny_updater(short, micro_batch_tokens=500)
    real, calls = getattr(where, name), []

    def fails_once(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        calls.append(1)
        if len(calls) == 2:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return result

    monkeypatch.setattr(where, name, fails_once)
    found = updater.step(batch, slice(None), 0)
    assert len(calls) > 2
    assert found.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
    assert found.loss == pytest.approx(expected.loss, abs=1e-6)


def test_an_answer_that_never_fits_first_costs_activations_then_the_run(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = load_tiny()
    batch = signed(sampled_batch(policy))
    before = {n: p.clone() for n, p in policy.trainable().items()}
    limit_memory(policy, monkeypatch, 3)
    with pytest.raises(UserError, match=r"single answer of \d+ tokens.*Tried to allocate"):
        tiny_updater(policy).step(batch, slice(None), 0)
    assert checkpointed(policy.model) > 0  # that was tried before giving up
    for name, parameter in policy.trainable().items():
        assert torch.equal(parameter, before[name])


# --- a sampler that runs a rounded copy -----------------------------------------------------------


def test_the_correction_by_hand() -> None:
    """Trainer −1, sampler −1.5, −0.5 and −4: weights e^.5, e^−.5 and min(e^3, 2); padding 1."""
    policy = load_tiny()
    updater = tiny_updater(policy, sampler_correction="truncate", correction_cap=2.0)
    batch = sampled_batch(policy)
    samples = replace(
        batch.samples,
        ids=torch.zeros(1, 1, 4, dtype=torch.long),
        lengths=torch.tensor([[3]]),
        logprobs=torch.tensor([[[-1.5, -0.5, -4.0, float("nan")]]]),
        truncated=torch.zeros(1, 1, dtype=torch.bool),
    )
    old = torch.tensor([[[-1.0, -1.0, -1.0, 0.0]]])
    signal = Signal(torch.tensor([[-2.0]]), torch.ones(1, 1, dtype=torch.bool))
    weighed = updater._advantages(replace(batch, samples=samples, old_logprobs=old, signal=signal))
    expected = torch.tensor([[[-2 * 1.6487213, -2 * 0.60653067, -4.0, -2.0]]])
    torch.testing.assert_close(weighed, expected, rtol=0, atol=1e-6)
    assert torch.equal(
        tiny_updater(policy)._advantages(replace(batch, signal=signal)), signal.advantages
    )


def test_sampling_is_unmoved_by_the_packed_attention(qwen2: Path) -> None:
    """Prompts of different lengths, padded on the left, with a cache: a model that packs its
    updates samples what it would without."""
    settings = ModelConfig(path=str(qwen2), lora=LORA)
    plain, packing = (with_random_adapter(load_policy(settings, CPU, 0)) for _ in range(2))
    assert can_pack(packing.model)
    assert packing.model.config._attn_implementation != plain.model.config._attn_implementation
    expected, found = (
        tiny_sampler(policy, max_new_tokens=12).sample(PROMPTS, 3, seed=5)
        for policy in (plain, packing)
    )
    assert torch.equal(found.ids, expected.ids)
    torch.testing.assert_close(found.logprobs, expected.logprobs, rtol=0, atol=1e-6)
    rows = [p for p in PROMPTS for _ in range(3)]
    answers = zip(found.ids.flatten(0, 1), found.lengths.flatten().tolist(), strict=True)
    trainer, _ = token_logprobs(
        packing.model, rows, [ids[:length] for ids, length in answers], 1.0, packed=True
    )
    torch.testing.assert_close(
        torch.cat(trainer).detach(), found.logprobs[found.mask], rtol=0, atol=1e-5
    )
