"""Causal attention over packed sequences: rows laid end to end in one, nothing padded.

On a GPU in half precision several rows take torch's variable-length FlashAttention; elsewhere one
`scaled_dot_product_attention` a sequence, which is exact and slow enough to be a reference. A row
that is alone takes the latter everywhere: on a Hopper GPU that is cuDNN's kernel, which did 345
TFLOP/s in padded rows of Llama-3.1-8B, and FlashAttention 190 in packed ones of Qwen2.5-3B.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "packed"
"""Of this attention in transformers' registry."""
LENGTH_STEP = 256
"""A row that is alone is computed as if it had a multiple of so many tokens: cuDNN plans anew for
every length that it has not seen."""

# torch 2.13 asks for grouped heads by name, 2.11 takes them as they come
_GROUPED: dict[str, Any] = (
    {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
)
_ALTERS_SCORES = ("softcap", "s_aux", "position_bias")


def packed_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Every token attends to the earlier ones of its own sequence.

    Without packing arguments, as in sampling, it is transformers' own sdpa attention.

    Args:
        query: `[1, heads, T, width]`; key and value may have fewer heads.
        kwargs: transformers' packing arguments `cu_seq_lens_q` (int32 `[N + 1]`, where each
            sequence begins, and T) and `max_length_q`.

    Returns:
        `[1, T, heads, width]`, and no weights.

    Raises:
        NotImplementedError: a model that alters its attention scores (caps, sinks, biases).
    """
    if kwargs.get("cu_seq_lens_q") is None:
        return sdpa_attention_forward(  # type: ignore[return-value]
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    if any(kwargs.get(name) is not None for name in _ALTERS_SCORES):
        raise NotImplementedError("packed attention knows no capped, sunk or biased scores")
    starts, longest = kwargs["cu_seq_lens_q"], kwargs["max_length_q"]
    if query.is_cuda and torch.is_autocast_enabled("cuda"):
        half = torch.get_autocast_dtype("cuda")
        query, key, value = query.to(half), key.to(half), value.to(half)
    if len(starts) == 2 and sliding_window is None:
        return _alone(query, key, value, scaling), None
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))  # [T, heads, width]
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        window = (-1 if sliding_window is None else sliding_window - 1, 0)
        out = varlen_attn(
            q, k, v, starts, starts, longest, longest, scale=scaling, window_size=window, **_GROUPED
        )
    else:
        parts = [
            _one_sequence(q[a:b], k[a:b], v[a:b], scaling, sliding_window)
            for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        ]
        out = torch.cat(parts)
    return out.unsqueeze(0), None


def _alone(query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
    """`[1, T, heads, width]`, without grouping the heads first; tokens behind the last one, which
    no earlier one sees, make the length a round one.

    Everything that cuDNN is handed lies token by token, the gradient of what it returns too: torch
    plans a backward pass once for all inputs `[1, heads, T, width]` of the same strides, with that
    gradient's strides of the first time, and reads a later one as if it lay as the first did
    (torch 2.11: gradients of no use, silently)."""
    more = -query.shape[2] % LENGTH_STEP
    q, k, v = (
        F.pad(x.transpose(1, 2), (0, 0, 0, 0, 0, more)).contiguous().transpose(1, 2)
        for x in (query, key, value)
    )
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=True)
    out = _TokenByToken.apply(out.transpose(1, 2))  # type: ignore[no-untyped-call]
    # a slice would be compiled twice, for more = 0 and > 0
    return F.pad(out, (0, 0, 0, 0, 0, -more))


class _TokenByToken(torch.autograd.Function):
    """The tensor itself; its gradient is laid out contiguously."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:  # type: ignore[override]
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad.contiguous()


def _one_sequence(
    q: Tensor, k: Tensor, v: Tensor, scaling: float | None, window: int | None
) -> Tensor:
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
    length, mask = q.shape[2], None
    if window is not None and length > window:
        position = torch.arange(length, device=q.device)
        distance = position.unsqueeze(1) - position
        mask = (distance >= 0) & (distance < window)
    out = F.scaled_dot_product_attention(
        q, k, v, mask, is_causal=mask is None, scale=scaling, enable_gqa=True
    )
    return out[0].transpose(0, 1)


_packing = ContextVar("packing", default=False)


def _mask(*args: Any, **kwargs: Any) -> Any:
    """Packed rows need none; [tokens × tokens] would be large."""
    return None if _packing.get() else sdpa_mask(*args, **kwargs)


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, _mask)


@contextmanager
def no_mask() -> Iterator[None]:
    """Within it models with this attention build no mask. The layers themselves tell packed rows
    by their arguments: a layer that is computed again in the backward pass runs outside of it."""
    token = _packing.set(True)
    try:
        yield
    finally:
        _packing.reset(token)
