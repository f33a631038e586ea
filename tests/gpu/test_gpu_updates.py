"""Updates on a GPU: packed FlashAttention, compiled blocks and chunked logits against the plain
float32 path, and 4-bit weights.

Bounds are for bfloat16, which rounds to 8 bits: a log-probability of a random model is off by some
hundredths of a nat, whatever computes it.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lens_ref.core import Signal
from lens_ref.rlvr.attention import _one_sequence, packed_attention
from lens_ref.rlvr.batch import Batch, Samples
from lens_ref.rlvr.config import (
    LoraConfig,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    RolloutConfig,
)
from lens_ref.rlvr.layers import checkpoint_layers
from lens_ref.rlvr.logprobs import head_logprobs, token_logprobs
from lens_ref.rlvr.policy import Policy, load_policy
from lens_ref.rlvr.tasks import Question
from lens_ref.rlvr.update import Updater
from tests.rlvr.helpers import no_stop, save_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
CUDA, CPU = torch.device("cuda"), torch.device("cpu")
MEAN_BOUND = 0.02
"""Nats a token, mean |bfloat16 − float32|."""
LENGTHS = [1, 5, 64, 200, 37]


@pytest.fixture(scope="module", params=["qwen2", "llama"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(
        tmp_path_factory.mktemp(request.param),
        request.param,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=4096,
        max_position_embeddings=1024,
        initializer_range=0.05,
    )


def adapted(folder: Path, device: torch.device, **model: Any) -> Policy:
    """The same random adapter on every device and in every precision."""
    settings = ModelConfig(path=str(folder), lora=LoraConfig(r=8, alpha=16.0), **model)
    policy = load_policy(settings, device, 0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.trainable().values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return policy


def rows() -> tuple[list[tuple[int, ...]], list[Tensor]]:
    generator = torch.Generator().manual_seed(2)
    draw = lambda n: torch.randint(3, 4096, (n,), generator=generator)  # noqa: E731
    prompts = [tuple(draw(3 + i).tolist()) for i in range(len(LENGTHS))]
    return prompts, [draw(n) for n in LENGTHS]


def scored(policy: Policy) -> tuple[Tensor, list[Tensor]]:
    """Log-probabilities, and the adapter's gradient of a weighted sum of them, on the CPU."""
    logprobs, _ = policy.logprobs(*rows(), 1.0)
    flat = torch.cat(logprobs)
    loss = (flat * torch.linspace(-1, 1, len(flat), device=flat.device)).mean()
    gradients = torch.autograd.grad(loss, list(policy.trainable().values()))
    return flat.detach().cpu(), [g.cpu() for g in gradients]


def cosine(a: list[Tensor], b: list[Tensor]) -> float:
    one, two = (torch.cat([x.flatten().double() for x in side]) for side in (a, b))
    return float(F.cosine_similarity(one, two, dim=0))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("recomputed", [0, 2])
def test_packed_compiled_bfloat16_equals_plain_float32(
    folder: Path, compiled: bool, recomputed: int
) -> None:
    plain = adapted(folder, CPU)
    plain.packed = False
    fast = adapted(folder, CUDA, compile=compiled)
    assert fast.packed
    checkpoint_layers(fast.model, recomputed)
    fast.model.train()
    (expected, slopes), (found, found_slopes) = scored(plain), scored(fast)
    assert (found - expected).abs().mean() < MEAN_BOUND
    assert cosine(slopes, found_slopes) > 0.995
    # twice, with another number of tokens in between: nothing depends on the shape that came first
    fast.logprobs([(5, 6)], [torch.tensor([7, 8, 9])], 1.0)
    again, _ = scored(fast)
    assert (again - found).abs().mean() < MEAN_BOUND


def test_packed_padded_and_single_rows_agree(folder: Path) -> None:
    policy = adapted(folder, CUDA, compile=False)
    prompts, responses = rows()
    with torch.no_grad():
        packed, padded = (
            torch.cat(token_logprobs(policy.model, prompts, responses, 0.7, packed=p)[0])
            for p in (True, False)
        )
        single = torch.cat(
            [policy.logprobs([p], [r], 0.7)[0][0] for p, r in zip(prompts, responses, strict=True)]
        )
    assert (packed - padded).abs().mean() < MEAN_BOUND
    assert (packed - single).abs().mean() < MEAN_BOUND


@pytest.mark.parametrize("bounds", [[0, 3, 70, 200], [0, 200], [0, 256]])
@pytest.mark.parametrize("window", [None, 16])
def test_attention_with_grouped_heads(window: int | None, bounds: list[int]) -> None:
    """8 query heads on 2 key heads, forwards and backwards, against one sequence at a time; rows
    of many lengths, and one that is alone."""
    generator = torch.Generator(CUDA).manual_seed(0)
    starts = torch.tensor(bounds, dtype=torch.int32, device=CUDA)

    def heads(n: int) -> Tensor:
        x = torch.randn(
            1, n, bounds[-1], 64, generator=generator, device=CUDA, dtype=torch.bfloat16
        )
        return x.requires_grad_()

    q, k, v = heads(8), heads(2), heads(2)
    packing = {"cu_seq_lens_q": starts, "max_length_q": bounds[-1], "sliding_window": window}
    out, _ = packed_attention(None, q, k, v, scaling=0.125, **packing)
    a, b, c = (x.detach().float().requires_grad_() for x in (q, k, v))
    parts = [
        _one_sequence(*(x[0].transpose(0, 1)[i:j] for x in (a, b, c)), 0.125, window)
        for i, j in itertools.pairwise(bounds)
    ]
    expected = torch.cat(parts).unsqueeze(0)
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=0.03)
    weights = torch.randn(expected.shape, generator=generator, device=CUDA)
    found = torch.autograd.grad((out.float() * weights).sum(), (q, k, v))
    wanted = torch.autograd.grad((expected * weights).sum(), (a, b, c))
    for one, two in zip(found, wanted, strict=True):
        assert cosine([one.float().cpu()], [two.cpu()]) > 0.999


def test_the_head_keeps_float32_sums() -> None:
    """bfloat16 states and weights; log-probabilities as of their exact products."""
    generator = torch.Generator(CUDA).manual_seed(0)
    head = torch.nn.Linear(512, 30_000, bias=False, device=CUDA, dtype=torch.bfloat16)
    states = torch.randn(700, 512, generator=generator, device=CUDA, dtype=torch.bfloat16) * 3
    targets = torch.randint(30_000, (700,), generator=generator, device=CUDA)
    found, entropy = head_logprobs(head, states, targets, 0.8)
    logits = states.double() @ head.weight.double().mT / 0.8
    expected = logits.log_softmax(-1)
    torch.testing.assert_close(
        found.double(), expected.gather(-1, targets[:, None])[:, 0], rtol=0, atol=1e-4
    )
    torch.testing.assert_close(
        entropy.double(), -(expected.exp() * expected).sum(-1), rtol=0, atol=1e-3
    )


def batch_of(policy: Policy) -> Batch:
    """The rows as a batch, old log-probabilities from the trainer, advantages of both signs."""
    prompts, responses = rows()
    n, width = len(prompts), max(LENGTHS)
    ids = torch.stack([F.pad(r, (0, width - len(r))) for r in responses]).unsqueeze(1)
    lengths = torch.tensor(LENGTHS).unsqueeze(1)
    samples = Samples(ids, lengths, torch.zeros(n, 1, width), torch.zeros(n, 1).bool())
    batch = Batch(0, tuple(Question(str(i), "", "") for i in range(n)), tuple(prompts), samples)
    batch = updater_of(policy).freeze_old(batch)
    signal = Signal(torch.linspace(-1, 1, n).unsqueeze(1), torch.ones(n, 1).bool())
    return replace(batch, signal=signal)


def updater_of(policy: Policy, budget: int = 256) -> Updater:
    rollout = RolloutConfig(max_new_tokens=max(LENGTHS))
    optimizer = OptimizerConfig(lr=1e-3, warmup_updates=0)
    return Updater(policy, rollout, optimizer, LossConfig(micro_batch_tokens=budget), no_stop)


def test_the_first_update_of_a_batch(folder: Path) -> None:
    """The loss is the mean advantage, here 0, whatever the policy; the gradient is not 0."""
    policy = adapted(folder, CUDA)
    updater, batch = updater_of(policy), batch_of(policy)
    first = updater.step(batch, slice(None), 0)
    assert first.mean_ratio == pytest.approx(1.0, abs=0.01)
    assert abs(first.loss) < 0.01
    assert first.grad_norm > 1e-3
    for update in range(1, 6):
        last = updater.step(batch, slice(None), update)
    assert last.loss < first.loss - 0.01


def test_memory_that_runs_out_costs_time_only(folder: Path) -> None:
    """A cap between what small and large micro-batches need: the budget falls, all rows count."""
    policy = adapted(folder, CUDA, compile=False)
    checkpoint_layers(policy.model, 0)
    policy.model.train()
    n, width = 256, 256
    ids = torch.randint(3, 4096, (n, 1, width))
    samples = Samples(
        ids, torch.full((n, 1), width), torch.full((n, 1, width), -8.0), torch.zeros(n, 1).bool()
    )
    questions = tuple(Question(str(i), "", "") for i in range(n))
    batch = Batch(0, questions, ((5, 6),) * n, samples, old_logprobs=samples.logprobs)
    signs = torch.ones(n, 1) - 2 * (torch.arange(n) % 2).unsqueeze(1)
    batch = replace(batch, signal=Signal(signs, torch.ones(n, 1).bool()))
    updater_of(policy, 2048).step(batch, slice(None), 0)  # it fits in small pieces
    torch.cuda.empty_cache()
    used = torch.cuda.max_memory_allocated() + 300_000_000
    total = torch.cuda.get_device_properties(CUDA).total_memory
    torch.cuda.set_per_process_memory_fraction(used / total)
    try:
        stats = updater_of(policy, 10**6).step(batch, slice(None), 0)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert stats.token_budget < 10**5
    assert stats.tokens == n * width


def test_all_weights_are_float32_and_compute_in_bfloat16(folder: Path) -> None:
    policy = load_policy(ModelConfig(path=str(folder)), CUDA, 0)
    assert {p.dtype for p in policy.trainable().values()} == {torch.float32}
    assert policy.autocast == torch.bfloat16
    plain = load_policy(ModelConfig(path=str(folder)), CPU, 0)
    (expected, slopes), (found, found_slopes) = scored(plain), scored(policy)
    assert (found - expected).abs().mean() < MEAN_BOUND
    assert cosine(slopes, found_slopes) > 0.99
    batch, updater = batch_of(policy), updater_of(policy)
    losses = [updater.step(batch, slice(None), i).loss for i in range(4)]
    assert losses[-1] < losses[0] - 0.01


@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="needs bitsandbytes")
def test_qlora_trains(folder: Path) -> None:
    policy = adapted(folder, CUDA, quantization="nf4")
    plain = adapted(folder, CUDA)
    base = dict(policy.model.named_parameters())
    assert any(p.dtype == torch.uint8 for p in base.values())
    (four, slopes), (full, full_slopes) = scored(policy), scored(plain)
    assert 0 < (four - full).abs().mean() < 0.5
    assert cosine(slopes, full_slopes) > 0.8
    batch, updater = batch_of(policy), updater_of(policy)
    losses = [updater.step(batch, slice(None), i).loss for i in range(6)]
    assert losses[-1] < losses[0] - 0.01
