"""Batch and moments as a checkpoint holds them, checked before a run goes on with them: hashes that
match say only that somebody wrote them together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from torch import Tensor

from lens_ref.core import Signal
from lens_ref.rlvr.batch import Batch, Samples
from lens_ref.rlvr.files import first_fault
from lens_ref.rlvr.tasks import Question

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps of a parameter."""

SHAPES = {
    "samples.ids": ("BGT", "whole"),
    "samples.lengths": ("BG", "whole"),
    "samples.logprobs": ("BGT", "real"),
    "samples.truncated": ("BG", "bool"),
    "rewards": ("BG", "real"),
    "old_logprobs": ("BGT", "real"),
    "advantages": ("BG", "real"),  # or BGT
    "keep": ("BG", "bool"),
}
"""Shape and kind of number. `info.*` is the method's own."""
SOMETIMES = {
    "entropy": ("BGT", "real"),  # with old log-probabilities of the trainer
    "samples.scored": ("BG", "bool"),  # where the sampler told some answers' log-probabilities
}

Whole = Annotated[int, Field(strict=True, ge=0)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class BatchText:
    """`batch.json`."""

    index: Whole
    questions: Annotated[list[Question], Field(min_length=1)]
    prompts: list[Annotated[list[Whole], Field(min_length=1)]]
    texts: list[list[str]]
    reasons: list[list[str]]


def batch_of(text: Any, tensors: Mapping[str, Tensor], vocabulary: int) -> Batch:
    """The batch in hand. What its numbers are worth is for `bad_numbers` to say.

    Args:
        text: of `batch.json`.
        tensors: of `batch.safetensors`.
        vocabulary: tokens that the policy knows.

    Raises:
        ValueError: anything in it that no run writes.
    """
    try:
        said = TypeAdapter(BatchText).validate_python(text)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None
    samples = _samples(tensors, len(said.questions), vocabulary)
    b, g, _ = samples.ids.shape
    if any(not token < vocabulary for prompt in said.prompts for token in prompt):
        raise ValueError(f"prompts hold a token beyond the {vocabulary} of the policy")
    if len(said.prompts) != b:
        raise ValueError(f"{len(said.prompts)} prompts to {b} questions")
    for name, rows in (("texts", said.texts), ("reasons", said.reasons)):
        if [len(row) for row in rows] != [g] * b:
            raise ValueError(f"{name} are not {b} times {g}")
    info = {k.removeprefix("info."): v for k, v in tensors.items() if k.startswith("info.")}
    return Batch(
        index=said.index,
        questions=tuple(said.questions),
        prompts=tuple(map(tuple, said.prompts)),
        samples=samples,
        texts=tuple(map(tuple, said.texts)),
        reasons=tuple(map(tuple, said.reasons)),
        rewards=tensors["rewards"],
        old_logprobs=tensors["old_logprobs"],
        entropy=tensors.get("entropy"),
        signal=Signal(tensors["advantages"], tensors["keep"], info),
    )


def _samples(tensors: Mapping[str, Tensor], questions: int, vocabulary: int) -> Samples:
    """The answers, when all tensors have shapes that fit theirs."""
    wanted = SHAPES | {name: kind for name, kind in SOMETIMES.items() if name in tensors}
    if missing := sorted(wanted.keys() - tensors.keys()):
        raise ValueError(f"{missing[0]} is missing")
    whole = tensors["samples.ids"].shape
    if len(whole) != 3 or whole[0] != questions or 0 in whole:
        raise ValueError(f"samples.ids are {list(whole)}, not [{questions}, G, T]")
    for name, (axes, kind) in wanted.items():
        value, shape = tensors[name], whole[: len(axes)]
        if value.shape != shape and not (name == "advantages" and value.shape == whole):
            raise ValueError(f"{name} is {list(value.shape)} instead of {list(shape)}")
        if _kind(value) != kind:
            raise ValueError(f"{name} holds {value.dtype}")
    samples = Samples(
        *(tensors[f"samples.{k}"] for k in ("ids", "lengths", "logprobs", "truncated")),
        tensors.get("samples.scored"),
    )
    if samples.scored is not None and not samples.scored.any(-1).all():
        raise ValueError("samples.scored names no answer to a question")
    if not ((samples.lengths >= 1) & (samples.lengths <= whole[-1])).all():
        raise ValueError(f"samples.lengths are not all from 1 to {whole[-1]}")
    said = samples.ids[samples.mask]
    if not ((said >= 0) & (said < vocabulary)).all():
        raise ValueError(f"samples.ids hold a token that is none of the policy's {vocabulary}")
    return samples


def _kind(value: Tensor) -> str:
    kinds = {torch.bool: "bool", torch.int64: "whole"}
    return "real" if value.is_floating_point() else kinds.get(value.dtype, "other")


def check_moments(
    tensors: Mapping[str, Tensor], parameters: Mapping[str, Tensor], updates: int
) -> None:
    """Whether these can be the moments of an optimizer of some parameters.

    One that got no gradient yet has none.

    Args:
        tensors: by `<moment>/<parameter>`.
        updates: that were made at most.

    Raises:
        ValueError: they can't.
    """
    known = {f"{moment}/{name}" for name in parameters for moment in MOMENTS}
    if unknown := sorted(tensors.keys() - known):
        raise ValueError(f"{unknown[0]} is of no trained parameter")
    for name in sorted({key.split("/", 1)[1] for key in tensors}):
        for moment in MOMENTS:
            key = f"{moment}/{name}"
            if key not in tensors:
                raise ValueError(f"{key} is missing")
            value = tensors[key]
            shape = torch.Size() if moment == "step" else parameters[name].shape
            if value.shape != shape:
                raise ValueError(f"{key} is {list(value.shape)} instead of {list(shape)}")
            if not (value.is_floating_point() and value.isfinite().all()):
                raise ValueError(f"{key} is not finite")
            if moment != "exp_avg" and not (value >= 0).all():
                raise ValueError(f"{key} is negative")
        step = float(tensors[f"step/{name}"])
        if step % 1 or step > updates:
            raise ValueError(f"step/{name} is {step:g} after {updates} updates")
