"""Log-probabilities and entropies of sampled tokens, without a [tokens × vocabulary] tensor."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lens_ref.rlvr.attention import NAME, no_mask

log = logging.getLogger("lens_ref")

LOGITS_CHUNK = {"cpu": 2**24, "cuda": 2**27}
"""Logits (tokens × vocabulary) computed at once: 64 MiB in float32 on a CPU, 512 MiB on a GPU."""

Rows = list[tuple[int, ...]]


def logits_chunk(device: torch.device) -> int:
    """Logits computed at once on this device."""
    return LOGITS_CHUNK.get(device.type, LOGITS_CHUNK["cpu"])


def token_logprobs(
    model: Any, prompts: Rows, responses: list[Tensor], temperature: float, packed: bool = False
) -> tuple[list[Tensor], list[Tensor]]:
    """Log-probabilities and entropies of response tokens, at the sampling temperature.

    The logits are divided by the temperature before the softmax, as the sampler did: otherwise
    confidences and ratios would be those of another policy. Only response positions reach the
    vocabulary, in chunks.

    Args:
        model: a transformers causal LM, with or without an adapter.
        prompts: N token id sequences.
        responses: N tensors `[L_i]` of token ids, end-of-sequence token included.
        packed: lay the rows end to end instead of padding them; see `can_pack`.

    Returns:
        Two lists of N tensors `[L_i]` in float32 nats: log-probabilities (differentiable where
        gradients are on) and detached entropies over the full vocabulary.
    """
    device = next(model.parameters()).device
    base = _base(model)
    rows = [torch.cat([torch.tensor(p), r.cpu()]) for p, r in zip(prompts, responses, strict=True)]
    lengths = [len(response) for response in responses]
    # the state at position t − 1 predicts token t
    spans = [(len(p) - 1, len(p) - 1 + n) for p, n in zip(prompts, lengths, strict=True)]
    if packed:
        hidden = _packed_states(base, rows, device)
        offsets = _bounds(rows)[:-1].tolist()
    else:
        # Padding on the right: causal attention never sees it, so it needs no mask.
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
        hidden = base.base_model(input_ids=ids, use_cache=False).last_hidden_state.flatten(0, 1)
        offsets = [i * ids.shape[1] for i in range(len(rows))]
    places = [torch.arange(a, b) + start for start, (a, b) in zip(offsets, spans, strict=True)]
    targets = torch.cat([r.cpu() for r in responses]).to(device)
    states = hidden.index_select(0, torch.cat(places).to(device))
    logprobs, entropy = head_logprobs(base.get_output_embeddings(), states, targets, temperature)
    return list(logprobs.split(lengths)), list(entropy.split(lengths))


def _base(model: Any) -> Any:
    """The transformers model itself, under an adapter or not."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _bounds(rows: list[Tensor]) -> Tensor:
    """int32 `[N + 1]`: where each of the packed rows begins, and where the last one ends."""
    return torch.tensor([0, *map(len, rows)]).cumsum(0).int()


def _packed_states(base: Any, rows: list[Tensor], device: Any) -> Tensor:
    """`[T, width]` last hidden states of all rows, T their tokens together."""
    position = torch.cat([torch.arange(len(row)) for row in rows]).to(device)
    bounds = _bounds(rows).to(device)
    longest = max(map(len, rows))
    with no_mask():
        output = base.base_model(
            input_ids=torch.cat(rows).to(device).unsqueeze(0),
            position_ids=position.unsqueeze(0),
            use_cache=False,
            cu_seq_lens_q=bounds,
            cu_seq_lens_k=bounds,
            max_length_q=longest,
            max_length_k=longest,
        )
    states: Tensor = output.last_hidden_state[0]
    return states


def head_logprobs(
    head: nn.Module, states: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of `targets` and entropies under softmax(head(states) / temperature).

    Args:
        head: a linear layer with weight `[V, width]`.
        states: `[M, width]`.
        targets: `[M]` token ids.

    Returns:
        Two tensors `[M]` in float32 nats; the first is differentiable.
    """
    weight, bias = head.weight, getattr(head, "bias", None)
    assert isinstance(weight, Tensor)
    device = states.device.type
    if torch.is_autocast_enabled(device):
        states = states.to(torch.get_autocast_dtype(device))
    logprobs, entropy = _HeadLogprobs.apply(states, weight, bias, targets, temperature)  # type: ignore[no-untyped-call]
    return logprobs, entropy


class _HeadLogprobs(torch.autograd.Function):
    """A log-probability's gradient at its state is a vector that the loss only scales. Under a
    frozen head the forward pass computes the M vectors while it has the logits; under one that is
    trained the backward pass computes every chunk's logits again."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
    ) -> tuple[Tensor, Tensor]:
        reduce, slope = _on(states.device, _reduce), _on(states.device, _slope)
        to_states, to_weight, to_bias, *_ = ctx.needs_input_grad
        ctx.frozen = to_states and not (to_weight or to_bias)
        found = [(states.new_zeros(0, dtype=torch.float32),) * 3]
        slopes = [states.new_zeros(0, states.shape[1])]
        for chunk, wanted in _chunks(weight, states, targets):
            logits = _logits(chunk, weight, bias)
            found.append(reduce(logits, wanted, temperature))
            if ctx.frozen:
                log_z = found[-1][2]
                one = torch.ones_like(log_z)
                slopes.append(
                    slope(logits, wanted, log_z, one, temperature, states.dtype)
                    @ weight.to(states.dtype)
                )
            del logits  # before the next ones are there
        logprobs, entropy, normaliser = (torch.cat(part) for part in zip(*found, strict=True))
        if ctx.frozen:
            ctx.save_for_backward(torch.cat(slopes))
        else:
            ctx.save_for_backward(states, weight, bias, targets, normaliser)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if ctx.frozen:
            (slopes,) = ctx.saved_tensors
            return (grad.unsqueeze(-1) * slopes).to(slopes.dtype), None, None, None, None
        states, weight, bias, targets, normaliser = ctx.saved_tensors
        to_states, to_weight, to_bias, *_ = ctx.needs_input_grad
        slope = _on(states.device, _slope)
        d_states = torch.empty_like(states) if to_states else None
        # sums over many chunks: in float32 whatever the weights are
        d_weight = torch.zeros_like(weight, dtype=torch.float32) if to_weight else None
        d_bias = torch.zeros_like(bias, dtype=torch.float32) if to_bias else None
        done = 0
        for chunk, wanted, log_z, its in _chunks(weight, states, targets, normaliser, grad):
            logits = _logits(chunk, weight, bias)
            d_logits = slope(logits, wanted, log_z, its, ctx.temperature, states.dtype)
            if d_states is not None:
                d_states[done : done + len(chunk)] = d_logits @ weight.to(states.dtype)
            if d_weight is not None:
                d_weight += (d_logits.mT @ chunk).float()
            if d_bias is not None:
                d_bias += d_logits.float().sum(0)
            done += len(chunk)
        if d_weight is not None:
            d_weight = d_weight.to(weight.dtype)
        if d_bias is not None:
            d_bias = d_bias.to(bias.dtype)
        return d_states, d_weight, d_bias, None, None


def _chunks(weight: Tensor, *columns: Tensor) -> Any:
    size = max(1, logits_chunk(weight.device) // weight.shape[0])
    return zip(*(column.split(size) for column in columns), strict=True) if len(columns[0]) else ()


def _logits(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`[C, V]` in float32: half-precision products are summed and kept in float32 on a GPU."""
    weight = weight.to(states.dtype)
    if states.is_cuda and states.dtype != torch.float32:
        logits = torch.mm(states, weight.mT, out_dtype=torch.float32)
    else:
        logits = (states @ weight.mT).float()
    return logits if bias is None else logits + bias.float()


def _reduce(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """log p(target), entropy Σ p·(log Z − x) and log Z, each `[C]`."""
    scores = logits / temperature
    log_z = scores.logsumexp(-1)
    surprise = log_z.unsqueeze(-1) - scores
    entropy = ((-surprise).exp() * surprise).sum(-1)
    return -surprise.gather(-1, targets.unsqueeze(-1)).squeeze(-1), entropy, log_z


def _slope(
    logits: Tensor,
    targets: Tensor,
    log_z: Tensor,
    grad: Tensor,
    temperature: float,
    dtype: torch.dtype,
) -> Tensor:
    """The gradient at the logits, grad · (1[target] − p) / temperature, `[C, V]` in `dtype`."""
    p = (logits / temperature - log_z.unsqueeze(-1)).exp()
    token = torch.arange(logits.shape[-1], device=logits.device)
    hit = token == targets.unsqueeze(-1)
    return ((grad / temperature).unsqueeze(-1) * (hit.float() - p)).to(dtype)


_compiled: dict[Any, Any] = {}


def _on(device: torch.device, function: Any) -> Any:
    """The function, fused into one kernel a pass on a GPU."""
    if device.type != "cuda":
        return function
    if function not in _compiled:
        _compiled[function] = torch.compile(function, dynamic=True)
    return _compiled[function]


PROBE_TOKENS = 40
"""Of a row that a model is tried with."""
ROUNDINGS = 3.0
"""Roundings times the square root of the layers by which last states may differ in the mean, in
their standard deviations. In bfloat16, one is .008, two kernels of attention differ by 1.0 of it
(.016 and .023 after 4 and 8 layers of Llama-3.1-8B's width, random weights)."""
LEAST_DIFFERENCE = 1e-3
"""… and at least by so much, for kernels that round float32 further."""


@torch.no_grad()
def reads_like_the_model(model: Any) -> bool:
    """Whether log-probabilities read here are those of the model's own logits: tried, not assumed.
    Some architectures scale, cap or mix between their last states and their logits."""
    vocabulary = model.get_input_embeddings().weight.shape[0]
    ids = torch.randint(vocabulary, (PROBE_TOKENS,), generator=torch.Generator().manual_seed(0))
    device = next(model.parameters()).device
    logits = model(input_ids=ids.unsqueeze(0).to(device), use_cache=False).logits[0, :-1].float()
    wanted = logits.log_softmax(-1).gather(-1, ids[1:].to(device).unsqueeze(-1)).squeeze(-1)
    (found,), _ = token_logprobs(model, [(int(ids[0]),)], [ids[1:]], 1.0)
    return bool((found - wanted).abs().mean() < 0.02 + 0.01 * wanted.std(correction=0))


@torch.no_grad()
def can_pack(model: Any) -> bool:
    """Whether rows laid end to end keep to themselves in this model: tried, not assumed. If they
    do, the model is left with the packed attention; if not, the log says so.

    A row behind another must not notice what the other holds, and must come out as it does alone.
    The model must be free of dropout.
    """
    base = _base(model)
    device = next(model.parameters()).device
    vocabulary = model.get_input_embeddings().weight.shape[0]
    draw = torch.Generator().manual_seed(0)
    first, other, second = (
        torch.randint(vocabulary, (PROBE_TOKENS,), generator=draw) for _ in range(3)
    )

    def states(*rows: Tensor) -> Tensor:
        return _packed_states(base, list(rows), device)[-PROBE_TOKENS:].float()

    usual_attention = base.config._attn_implementation
    packs, why = False, "laid end to end they come out otherwise"
    try:
        base.config._attn_implementation = NAME
        behind, behind_other, alone = states(first, second), states(other, second), states(second)
        base.config._attn_implementation = usual_attention
        ids = second.unsqueeze(0).to(device)
        usual = base.base_model(input_ids=ids, use_cache=False).last_hidden_state[0]
        base.config._attn_implementation = NAME
        depth = base.config.get_text_config().num_hidden_layers
        rounding = torch.finfo(usual.dtype).eps * depth**0.5
        usual = usual.float()
        off = max((behind - its).abs().mean() for its in (alone, usual)) / usual.std()
        close = off <= max(ROUNDINGS * rounding, LEAST_DIFFERENCE)
        packs = bool(close and torch.equal(behind, behind_other))
    except (NotImplementedError, TypeError, KeyError):
        why = "this architecture takes no packing arguments"
    finally:
        if not packs:
            base.config._attn_implementation = usual_attention
            log.warning("rows of an update are padded: %s", why)
    return packs
