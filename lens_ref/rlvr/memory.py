"""The memory plan: what a run will need at its worst moment, before anything is loaded."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from lens_ref.rlvr.config import Config
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.logprobs import LOGITS_CHUNK
from lens_ref.rlvr.policy import model_folder, resolve_dtype

PROMPT_TOKENS = 512
"""Assumed length of the longest prompt."""

# Shapes of the models that the recipes name, so that a plan needs no download.
_KNOWN: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-3B": {
        "hidden_size": 2048,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "intermediate_size": 11008,
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


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama-like transformer that decide its memory."""

    hidden: int
    layers: int
    key_value: int  # width of keys (and of values)
    intermediate: int
    vocabulary: int
    tied: bool

    @property
    def linears(self) -> list[tuple[int, int]]:
        """(inputs, outputs) of the seven linear layers of a block."""
        h, kv, m = self.hidden, self.key_value, self.intermediate
        return [(h, h), (h, kv), (h, kv), (h, h), (h, m), (h, m), (m, h)]

    @property
    def parameters(self) -> int:
        """Weights, without biases and norms (below 0.1 %)."""
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * sum(a * b for a, b in self.linears) + embeddings

    def adapter(self, r: int) -> int:
        """Weights of a LoRA adapter on all linear layers."""
        return self.layers * sum(r * (a + b) for a, b in self.linears)


def read_shape(path: str) -> Shape | None:
    """The shape of a local or known Llama-like model; None where it can't be told."""
    folder = Path(model_folder(path))
    if folder.is_dir():
        try:
            raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(f"{folder / 'config.json'} is not valid JSON: {error}") from None
    elif path in _KNOWN:
        raw = _KNOWN[path]
    else:
        return None
    if not {"num_attention_heads", "hidden_size", "intermediate_size"} <= raw.keys():
        return None  # not Llama-like
    heads = raw["num_attention_heads"]
    head_width = raw.get("head_dim") or raw["hidden_size"] // heads
    return Shape(
        hidden=raw["hidden_size"],
        layers=raw["num_hidden_layers"],
        key_value=raw.get("num_key_value_heads", heads) * head_width,
        intermediate=raw["intermediate_size"],
        vocabulary=raw["vocab_size"],
        tied=bool(raw.get("tie_word_embeddings", False)),
    )


@dataclass(frozen=True)
class Plan:
    """Bytes by purpose; sampling and updating alternate, so only the larger of them counts."""

    weights: int
    adapter: int
    gradients: int
    optimizer: int
    activations: int  # one micro-batch, logits chunk included
    cache: int  # keys and values of one sampling chunk

    @property
    def total(self) -> int:
        """The peak."""
        held = self.weights + self.adapter + self.optimizer
        return held + max(self.gradients + self.activations, self.cache)

    def __str__(self) -> str:
        rows = [
            ("weights", self.weights),
            ("adapter", self.adapter),
            ("gradients", self.gradients),
            ("optimizer state", self.optimizer),
            ("activations of the largest micro-batch", self.activations),
            ("key-value cache of a sampling chunk", self.cache),
            ("peak (updating and sampling alternate)", self.total),
        ]
        return "\n".join(f"  {name:<42}{gigabytes(size):>10}" for name, size in rows)


def make_plan(config: Config, shape: Shape, device: torch.device) -> Plan:
    """Estimate the peak of a run with the longest answers everywhere."""
    size = 4 if resolve_dtype(config.model, device) is torch.float32 else 2
    lora = config.model.lora
    adapter = shape.adapter(lora.r) if lora else 0
    trained = adapter or shape.parameters
    trained_size = 4 if lora else size  # peft keeps adapters in float32
    longest = PROMPT_TOKENS + config.rollout.max_new_tokens
    tokens = max(config.loss.micro_batch_tokens, longest)
    # What a block keeps for the backward pass: its inputs, the attention's and the MLP's.
    block = (8 * shape.hidden + 2 * shape.key_value + 4 * shape.intermediate) * size
    if config.model.gradient_checkpointing:
        kept = shape.layers * shape.hidden * size + block
    else:
        kept = shape.layers * block
    rows = min(config.rollout.batch_rows, config.rollout.questions * config.rollout.responses)
    return Plan(
        weights=shape.parameters * size,
        adapter=adapter * 4,
        gradients=trained * trained_size,
        optimizer=2 * trained * trained_size,
        activations=tokens * kept + 4 * 4 * LOGITS_CHUNK.get(device.type, LOGITS_CHUNK["cpu"]),
        cache=rows * longest * shape.layers * 2 * shape.key_value * size,
    )


def available(device: torch.device) -> int:
    """Bytes free on the device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


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
