"""The registry: a method is a pure function of rollouts, with a spec that says what it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from lens_ref.core._checks import nearest
from lens_ref.core.groups import Rollouts, Signal
from lens_ref.core.loss import Aggregation

NegativeClass = Literal[
    "zero", "dropped", "zero_sum", "all_negative", "all_positive", "batch_dependent"
]


class Method(Protocol):
    """Rollouts in, advantages out; pure."""

    def __call__(self, rollouts: Rollouts) -> Signal: ...


@dataclass(frozen=True)
class PublishedLoss:
    """The clip and aggregation of a method's own paper, used only where asked for."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    aggregation: Aggregation = "sequence_mean"


@dataclass(frozen=True)
class MethodSpec:
    """What a method is, what it needs and what it does to a negative group."""

    name: str
    build: Callable[..., Method]  # hyperparameters -> method; refuses bad values
    summary: str
    source: str  # paper id
    negative_class: NegativeClass  # at the default hyperparameters
    level: Literal["sequence", "token"] = "sequence"  # shape of the advantages
    needs: tuple[str, ...] = ("rewards",)  # fields of Rollouts
    defaults: dict[str, Any] = field(default_factory=dict)  # filled from `build` where empty
    source_defaults: dict[str, Any] = field(default_factory=dict)  # what the source uses
    loss: PublishedLoss = PublishedLoss()


_REGISTRY: dict[str, MethodSpec] = {}


def register(spec: MethodSpec) -> None:
    """Add a method; hyperparameters and their defaults are the keyword arguments of `build`.

    Raises:
        ValueError: the name is taken.
    """
    if spec.name in _REGISTRY:
        raise ValueError(f"a method named {spec.name!r} is registered already")
    if not spec.defaults:
        arguments = inspect.signature(spec.build).parameters
        spec = replace(spec, defaults={key: p.default for key, p in arguments.items()})
    _REGISTRY[spec.name] = spec


def names() -> list[str]:
    """The registered names, sorted."""
    return sorted(_REGISTRY)


def spec(name: str) -> MethodSpec:
    """The spec of a method.

    Raises:
        ValueError: an unknown name, with the nearest known one.
    """
    if name not in _REGISTRY:
        raise ValueError(f"unknown method {name!r}: {nearest(name, _REGISTRY)}")
    return _REGISTRY[name]


def get(name: str, **hyperparameters: Any) -> Method:
    """The method with its hyperparameters bound.

    Raises:
        ValueError: an unknown name or hyperparameter, with the nearest known one; a bad value.
    """
    found = spec(name)
    for key in hyperparameters:
        if key not in found.defaults:
            known = nearest(key, found.defaults) if found.defaults else "it has none"
            raise ValueError(f"unknown hyperparameter {key!r} of {name}: {known}")
    return found.build(**hyperparameters)
