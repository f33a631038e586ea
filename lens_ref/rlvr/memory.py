"""The memory plan: what a run will need at its worst moment, before anything is loaded."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch

from lens_ref.rlvr.config import Config
from lens_ref.rlvr.files import read_object
from lens_ref.rlvr.logprobs import logits_chunk
from lens_ref.rlvr.policy import compiles, model_folder, resolve_dtype

PROMPT_TOKENS = 512
"""Assumed length of the longest prompt."""
USABLE = 0.93
"""Of a GPU's memory: the rest is lost between blocks, and to CUDA itself."""

# Shapes of the models that the recipes name, so that a plan needs no download.
KNOWN: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-3B": {
        "hidden_size": 2048,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "intermediate_size": 11008,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": {
        "hidden_size": 896,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "meta-llama/Llama-3.1-8B-Instruct": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    },
}


_SIZES = {
    "num_attention_heads",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "vocab_size",
}


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama-like transformer that decide its memory."""

    hidden: int
    layers: int
    key_value: int  # width of keys (and of values)
    intermediate: int
    vocabulary: int
    tied: bool
    query: int | None = None  # width of queries; None: that of the hidden states

    @property
    def linears(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of the seven linear layers of a block."""
        h, kv, m = self.hidden, self.key_value, self.intermediate
        q = self.query or h
        return [(h, q), (h, kv), (h, kv), (q, h), (h, m), (h, m), (m, h)]

    @property
    def parameters(self) -> int:
        """Weights, without biases and norms (below 0.1 %)."""
        return self.matrices + self.embeddings

    @property
    def matrices(self) -> int:
        """Weights of the blocks' linear layers."""
        return self.layers * sum(a * b for a, b in self.linears)

    @property
    def embeddings(self) -> int:
        """Weights of the input embeddings and the head."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    def adapter(self, r: int) -> int:
        """Weights of a LoRA adapter on all linear layers."""
        return self.layers * sum(r * (a + b) for a, b in self.linears)

    def block_activations(self, fused: bool, less: bool = False) -> int:
        """Numbers a token that a block keeps for its backward pass. Fused: the residuals, queries,
        keys, values, the attention's output and the two halves of the gated MLP (less: one); else
        also what lies between them, norms in float32."""
        h, kv, m = self.hidden, self.key_value, self.intermediate
        if not fused:
            return 12 * h + 4 * kv + 4 * m
        return 4 * h + 2 * kv + (1 if less else 2) * m


def read_shape(path: str) -> Shape | None:
    """The shape of a local or known Llama-like model; None where it can't be told."""
    folder = Path(model_folder(path))
    if folder.is_dir():
        raw = read_object(folder / "config.json", "copy the model again")
    elif path in KNOWN:
        raw = KNOWN[path]
    else:
        return None
    experts = any(raw.get(name) for name in ("num_local_experts", "num_experts"))
    if experts or not raw.keys() >= _SIZES:
        return None  # not Llama-like
    heads, key_value_heads = raw["num_attention_heads"], raw.get("num_key_value_heads")
    if key_value_heads is None:
        key_value_heads = heads
    if not all(map(_is_size, [*(raw[name] for name in _SIZES), key_value_heads])):
        return None  # nor can it be loaded
    head_width = raw.get("head_dim") or raw["hidden_size"] // heads
    if not _is_size(head_width):
        return None
    return Shape(
        hidden=raw["hidden_size"],
        layers=raw["num_hidden_layers"],
        key_value=key_value_heads * head_width,
        intermediate=raw["intermediate_size"],
        vocabulary=raw["vocab_size"],
        tied=bool(raw.get("tie_word_embeddings", False)),
        query=heads * head_width,
    )


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0


class Share(NamedTuple):
    """Bytes of a GPU that vLLM takes."""

    updating: int = 0  # while the policy is updated
    sampling: int = 0  # beside those, while it samples, where it sleeps during updates


NOTHING = Share()


@dataclass(frozen=True)
class Plan:
    """Bytes by purpose; sampling and updating alternate, so only the larger of them counts."""

    weights: int
    adapter: int
    gradients: int
    optimizer: int
    activations: int  # one micro-batch, logits chunk included
    cache: int  # keys and values of one sampling chunk; with vLLM within the sampler's share
    recomputed: int  # layers that keep no activations
    layers: int
    less: bool  # the others compute one product of the MLP again
    sampler: Share = NOTHING

    @property
    def total(self) -> int:
        """The peak."""
        held = self.weights + self.adapter + self.optimizer + self.sampler.updating
        return held + max(self.gradients + self.activations, self.cache + self.sampler.sampling)

    def __str__(self) -> str:
        recomputed = f"{self.recomputed} of {self.layers} layers recomputed"
        if self.less and self.recomputed < self.layers:
            recomputed += ", a product in the others"
        sleeps = self.sampler.sampling > 0
        rows = [
            ("weights", self.weights),
            ("adapter", self.adapter),
            ("gradients", self.gradients),
            ("optimizer state", self.optimizer),
            (f"activations ({recomputed})", self.activations),
            ("key-value cache of a sampling chunk", self.cache),
            (f"vLLM{', asleep' if sleeps else ': weights and cache'}", self.sampler.updating),
            ("vLLM, awake: weights and cache beside that", self.sampler.sampling),
            ("peak (updating and sampling alternate)", self.total),
        ]
        return "\n".join(f"  {name:<68}{gigabytes(size):>10}" for name, size in rows if size)


BYTES_IN_NF4 = 0.516
"""A weight, in blocks of 64 with doubly quantised scales: 4 + 8 / 64 + 32 / (64·256) bits."""


def make_plan(
    config: Config,
    shape: Shape,
    device: torch.device,
    recomputed: int | None = None,
    sampler: Share | None = None,
    less: bool = False,
) -> Plan:
    """Estimate the peak of a run with the longest answers everywhere.

    Args:
        recomputed: layers whose activations are computed again in the backward pass; None: all or
            none, as the config says, and none under "auto".
        sampler: what vLLM takes; None: transformers samples.
        less: the layers that keep activations keep fewer; see `policy.keep_less`.
    """
    lora = config.model.lora
    size = 4 if resolve_dtype(config.model, device) is torch.float32 else 2
    computed = 2 if device.type == "cuda" else size  # float32 weights compute in bfloat16 there
    adapter = shape.adapter(lora.r) if lora else 0
    trained = 4 * (adapter or shape.parameters)  # adapters, and all weights on a GPU, in float32
    halves = 0
    if lora is None:
        trained = size * shape.parameters
        halves = shape.parameters * computed if computed != size else 0  # what autocast computes in
    longest = PROMPT_TOKENS + config.rollout.max_new_tokens
    tokens = max(config.loss.micro_batch_tokens, longest)
    if recomputed is None:
        recomputed = shape.layers if config.model.gradient_checkpointing is True else 0
    fused = compiles(config.model, device)
    block = shape.block_activations(fused, less)
    kept = recomputed * shape.hidden + (shape.layers - recomputed) * block
    kept += shape.block_activations(fused) if recomputed else 0  # one at a time
    rows = min(config.rollout.batch_rows, config.rollout.questions * config.rollout.responses)
    return Plan(
        weights=int(shape.matrices * BYTES_IN_NF4 + shape.embeddings * size)
        if config.model.quantization
        else shape.parameters * size + halves,
        adapter=adapter * 4,
        gradients=2 * trained,  # the sum, and a micro-batch's own
        optimizer=2 * trained,
        activations=tokens * kept * computed + logits_bytes(device),
        cache=rows * longest * shape.layers * 2 * shape.key_value * computed
        if sampler is None
        else 0,
        recomputed=recomputed,
        layers=shape.layers,
        less=less,
        sampler=sampler or NOTHING,
    )


def logits_bytes(device: torch.device) -> int:
    """Of one chunk: logits, their gradient, and on a CPU copies in between; whatever the model."""
    return (4 + 2 + 2 if device.type == "cuda" else 4 * 4) * logits_chunk(device)


def plan_for(
    config: Config, shape: Shape, device: torch.device, free: int, sampler: Share | None
) -> Plan:
    """What the config says of checkpointing. Under "auto" the plan that computes the least again
    among those that fit `free` bytes: nothing, then one product a layer, then whole layers; the
    leanest where none fits."""
    if config.model.gradient_checkpointing != "auto":
        return make_plan(config, shape, device, None, sampler)
    choices = [(0, False), *((n, True) for n in range(shape.layers + 1))]
    if not compiles(config.model, device):
        choices = [(n, False) for n in range(shape.layers + 1)]
    plans = [make_plan(config, shape, device, n, sampler, less) for n, less in choices]
    return next((plan for plan in plans if plan.total <= free), plans[-1])


def available(config: Config, device: torch.device, loaded: int = 0) -> int:
    """Bytes that a run may use: what is free on the device, at most `model.memory_gb` of a GPU.

    Args:
        loaded: bytes of the run's own that are on the device already.
    """
    if device.type == "cuda":
        free = USABLE * torch.cuda.mem_get_info(device)[0] + loaded
        limit = config.model.memory_gb
        return int(free if limit is None else min(free, USABLE * limit * 1e9))
    return loaded + int(psutil.virtual_memory().available)


def give_back() -> None:
    """Let go of what nobody uses, now, and give torch's unused blocks back to the GPU. Adapters and
    their layers refer to each other: only the collector finds them."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def gigabytes(size: int) -> str:
    """ "12.3 GB" """
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def cpu_seconds_per_update(config: Config, shape: Shape) -> float:
    """A rough upper bound, every answer at the length limit, from a short matmul measurement."""
    a = torch.randn(768, 768)
    started, rounds = time.perf_counter(), 0
    while time.perf_counter() - started < 0.2:
        a @ a
        rounds += 1
    flops = rounds * 2 * 768**3 / (time.perf_counter() - started)
    answers = config.rollout.questions * config.rollout.responses / config.loss.updates_per_rollout
    tokens = answers * config.rollout.max_new_tokens
    # per weight and token: 2 to sample, 2 for the old log-probabilities, 6 for the update
    return tokens * shape.parameters * (2 + 2 + 6) / flops
