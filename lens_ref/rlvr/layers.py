"""The transformer blocks of a policy: compiled, and what they keep for the backward pass."""

from __future__ import annotations

from typing import Any

import torch._dynamo.config as dynamo_config
import torch._functorch.config as functorch_config
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

VARIANTS = 16
"""Of a block's compiled code: with gradients or without, of a row alone or several, recomputed or
kept; twice that, since a length that equals a width makes one of its own. Beyond torch's limit,
which is 8, blocks run uncompiled after a mere warning."""


def layers_of(model: nn.Module) -> list[Any]:
    """The transformer blocks."""
    return [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]


def checkpoint_layers(model: Any, count: int) -> None:
    """Compute the activations of the first `count` blocks again in the backward pass instead of
    keeping them. Not reentrant: with frozen embeddings the other kind finds no gradient."""
    if count:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    else:
        model.gradient_checkpointing_disable()
    for i, layer in enumerate(layers_of(model)):
        layer.gradient_checkpointing = i < count


def checkpointed(model: nn.Module) -> int:
    """How many blocks recompute their activations."""
    return sum(layer.gradient_checkpointing for layer in layers_of(model))


def compile_layers(layers: list[Any]) -> None:
    """Fuse what is between the matrix products of a block; every block shares the code."""
    keep_less(False)
    dynamo_config.recompile_limit = max(dynamo_config.recompile_limit, VARIANTS)
    for layer in layers:
        layer.compile(dynamic=True)


def keep_less(products: bool) -> None:
    """What compiled blocks keep for their backward pass; decided before the first update.

    Args:
        products: True: compute one of the two large products of the gated MLP again: a third less
            is kept, for an eighth of the speed. False: again only what lies between the products,
            which costs next to nothing: it is read from memory either way.
    """
    functorch_config.activation_memory_budget = 0.5 if products else 0.7
