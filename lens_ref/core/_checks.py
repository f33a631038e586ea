"""Input checks shared by the core: a refusal names the argument, the first index and its value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real

import torch
from torch import Tensor

Number = float | int | Tensor

LOGPROB_SLACK = 1e-6
"""A log-probability may exceed 0 by this much (samplers round); it then counts as 0."""


class DomainError(ValueError):
    """A probability lies where the formula has no value, for example π ≥ D on a wrong answer."""


def as_float(x: Number, name: str) -> Tensor:
    """`x` as a floating tensor of at least float32; Python numbers become float64.

    Raises:
        ValueError: neither a number nor a tensor; a complex one.
    """
    if isinstance(x, Tensor):
        require_real(x, name)
        if not x.is_floating_point():
            return x.to(torch.promote_types(torch.get_default_dtype(), torch.float32))
        return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    try:
        return torch.as_tensor(x, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} = {x!r}: a number or a tensor is needed") from None


def require_tensor(x: object, name: str) -> None:
    """A tensor, not a list or an array."""
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} is a {type(x).__name__}: a tensor is needed")


def require_real(x: Tensor, name: str) -> None:
    """A tensor without an imaginary part."""
    if x.is_complex():
        raise ValueError(f"{name} is complex; real numbers are needed")


def as_flags(x: Tensor, name: str) -> Tensor:
    """`x` as a bool tensor; numbers must be 0 or 1.

    Raises:
        ValueError: not a tensor; another number.
    """
    require_tensor(x, name)
    if x.dtype != torch.bool:
        require((x == 0) | (x == 1), x, name, "must be True or False, 1 or 0", ValueError)
    return x.bool()


def as_number(x: object) -> float | None:
    """A number of any library, or a tensor of no axes, as a float; None for anything else."""
    if isinstance(x, Tensor) and x.ndim == 0:
        x = x.item()
    return float(x) if isinstance(x, Real) and not isinstance(x, bool) else None


def common_dtype(*tensors: Tensor) -> torch.dtype:
    """float64 if any floating input is float64, else float32: never half precision."""
    dtype = torch.float32
    for tensor in tensors:
        if tensor.is_floating_point():
            dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def broadcast(*tensors: Tensor) -> list[Tensor]:
    """The tensors at their common shape.

    Raises:
        ValueError: there is none.
    """
    try:
        return list(torch.broadcast_tensors(*tensors))  # type: ignore[no-untyped-call]
    except RuntimeError:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise ValueError(f"shapes that do not line up: {shapes}") from None


def work_dtype(device: torch.device) -> torch.dtype:
    """float64, or float32 where a device has none: for the few numbers of a batch of groups."""
    return torch.float32 if device.type == "mps" else torch.float64


def require(ok: Tensor, value: Tensor, name: str, rule: str, error: type[ValueError]) -> None:
    """Raise `error` at the first element where `ok` is False (one synchronisation on a GPU)."""
    if bool(ok.all()):
        return
    ok, value = broadcast(ok, value)
    index = tuple(int(i) for i in (~ok).nonzero()[0])
    where = f"{name}[{', '.join(map(str, index))}]" if index else name
    raise error(f"{where} = {value[index].item():.9g}: {rule}")


def require_rewards(rewards: Tensor, valid: Tensor | None = None) -> None:
    """Rewards are numbers in [0, 1]; NaN is refused."""
    inside = (rewards >= 0) & (rewards <= 1)
    ok = inside if valid is None else inside | ~valid
    require(ok, rewards, "rewards", "a reward must lie in [0, 1]", DomainError)


def require_logprobs(logprobs: Tensor, name: str) -> None:
    """Log-probabilities are at most 0, up to rounding; NaN is refused."""
    possible = logprobs <= LOGPROB_SLACK
    require(possible, logprobs, name, "a log-probability is at most 0", DomainError)


def require_lengths(lengths: Tensor, rows: Tensor | None = None) -> None:
    """In these rows (default: all) a response has at least one token, and a whole number."""
    ok = (lengths >= 1) & (lengths < torch.inf) & (lengths == lengths.floor())
    ok = ok if rows is None else ok | ~rows
    rule = "a response has a whole number of tokens, at least 1"
    require(ok, lengths, "lengths", rule, DomainError)


def require_positive(value: object, name: str, *, above: float = 0.0) -> float:
    """A finite number strictly above `above`, as a float."""
    number = as_number(value)
    if number is None or not above < number < math.inf:
        raise DomainError(f"{name} = {value!r}: must be a finite number above {above:g}")
    return number


def require_at_least(value: object, name: str, low: float) -> float:
    """A finite number ≥ `low`, as a float."""
    number = as_number(value)
    if number is None or not low <= number < math.inf:
        raise ValueError(f"{name} = {value!r}: must be a finite number >= {low:g}")
    return number


def require_group_axis(tensor: Tensor, name: str) -> None:
    """The last axis holds the G ≥ 1 responses of a question."""
    if tensor.ndim == 0 or tensor.shape[-1] == 0:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}: the last axis must hold G >= 1")


def per_question(x: Number, like: Tensor, name: str) -> Tensor:
    """Line up a per-question number `[...]` with per-response numbers `[..., G]`.

    Scalars and tensors that already have one value a response pass through.
    """
    value = as_float(x, name).to(like.device)
    if value.ndim == 0 or value.shape == like.shape:
        return value
    if value.shape == like.shape[:-1]:
        return value.unsqueeze(-1)
    if value.shape == (*like.shape[:-1], 1):
        return value
    raise ValueError(
        f"{name} has shape {tuple(value.shape)}: expected one number a question, "
        f"{tuple(like.shape[:-1])}, or one a response, {tuple(like.shape)}"
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the closest known one and the whole list."""
    import difflib

    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}known: {', '.join(names)}"
