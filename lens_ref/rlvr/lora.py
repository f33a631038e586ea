"""LoRA layers that compute in the model's precision.

peft keeps adapters in float32, which is right for AdamW at small learning rates, and computes in
float32 too: it copies every activation and multiplies without tensor cores. Here the float32
masters are rounded as the sampler rounds them; the sum is fused into what follows when compiled.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch.nn.functional as F
from peft.tuners.lora import LoraLayer
from torch import Tensor

from lens_ref.rlvr.adapter import ADAPTER


def fuse(model: Any) -> int:
    """Give every LoRA layer over a linear one the forward below; returns how many."""
    found = 0
    for module in model.modules():
        if isinstance(module, LoraLayer) and hasattr(module.base_layer, "in_features"):
            module.forward = MethodType(_forward, module)
            found += 1
    return found


def _forward(self: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """y = W x + s·B(A x), s = alpha / r."""
    base: Tensor = self.base_layer(x, *args, **kwargs)
    if self.disable_adapters:
        return base
    a, b = self.lora_A[ADAPTER].weight, self.lora_B[ADAPTER].weight
    small = F.linear(x.to(base.dtype), a.to(base.dtype)) * self.scaling[ADAPTER]
    return base + F.linear(small, b.to(base.dtype))
