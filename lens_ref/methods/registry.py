"""The registry: a method is a pure function of rollouts, with a spec that says what it is."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol, get_args

from torch import Tensor

from lens_ref.core._checks import nearest
from lens_ref.core.groups import Rollouts, Signal
from lens_ref.core.loss import Aggregation

NegativeClass = Literal[
    "zero", "dropped", "zero_sum", "all_negative", "all_positive", "batch_dependent"
]

State = dict[str, Any]
"""What a method keeps between batches: nested dictionaries of numbers, ready for JSON."""


class Method(Protocol):
    """Rollouts in, advantages out; pure."""

    def __call__(self, rollouts: Rollouts) -> Signal: ...


class Memory(Protocol):
    """How a method with state keeps it. Every function leaves the state that it is given alone."""

    @property
    def init(self) -> Callable[..., State]:
        """From settings to the state before the first batch."""

    def update(self, state: State, rollouts: Rollouts, questions: Sequence[str]) -> State:
        """The state after a batch."""

    def prior(self, state: State, questions: Sequence[str]) -> Tensor:
        """`[B]` float64: what goes into `Rollouts.prior`."""

    def hyperparameters(self, state: State, group_size: int) -> dict[str, float]:
        """Hyperparameters of the method that the state itself gives."""


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
    negative_signal: str  # what a negative group gets, in sign and size
    evidence: str  # where the formula was read
    cost: str = "nothing"  # beyond GRPO's sampling and update
    level: Literal["sequence", "token"] = "sequence"  # shape of the advantages
    needs: tuple[str, ...] = ("rewards",)  # fields of Rollouts
    defaults: dict[str, Any] = field(default_factory=dict)  # filled from `build` where empty
    source_defaults: dict[str, Any] = field(default_factory=dict)  # what the source uses
    loss: PublishedLoss = PublishedLoss()
    memory: Memory | None = None  # how its state is kept
    state_defaults: dict[str, float] = field(default_factory=dict)  # settings of the state

    @property
    def stateful(self) -> bool:
        """Whether it keeps numbers between batches."""
        return self.memory is not None

    def init_state(self, **settings: float) -> State:
        """The state before the first batch.

        >>> spo = spec("spo")
        >>> spo.prior(spo.init_state(start=0.25), ["a question never seen"])
        tensor([0.2500], dtype=torch.float64)

        Args:
            settings: any of `state_defaults`.

        Raises:
            ValueError: the method keeps no state; an unknown or bad setting.
        """
        memory = self._memory()
        _check_known(self.name, settings, self.state_defaults)
        return memory.init(**{**self.state_defaults, **settings})

    def update(self, state: State, rollouts: Rollouts, question_ids: Iterable[Any]) -> State:
        """The state after a batch; `state` itself is left alone.

        Args:
            rollouts: `[B, G]`.
            question_ids: B names of questions; 7 and "7" are the same.

        Raises:
            ValueError: the method keeps no state; not one id a question.
        """
        questions = _names(question_ids)
        batch = rollouts.rewards.shape[:-1].numel()
        if len(questions) != batch:
            raise ValueError(f"question_ids has {len(questions)} entries for {batch} questions")
        return self._memory().update(state, rollouts, questions)

    def prior(self, state: State, question_ids: Iterable[Any]) -> Tensor:
        """`[B]` float64: the state's number for each question, for `Rollouts.prior`.

        Raises:
            ValueError: the method keeps no state.
        """
        return self._memory().prior(state, _names(question_ids))

    def state_hyperparameters(self, state: State, group_size: int) -> dict[str, float]:
        """Hyperparameters that the state gives, for groups of this size; they fill in for those
        that the user leaves open."""
        return self._memory().hyperparameters(state, group_size)

    def _memory(self) -> Memory:
        if self.memory is None:
            raise ValueError(f"{self.name} keeps no state")
        return self.memory


def _names(question_ids: Iterable[Any]) -> list[str]:
    """Ids as text; those of a tensor are its numbers."""
    return [str(i.item()) if isinstance(i, Tensor) else str(i) for i in question_ids]


_REGISTRY: dict[str, MethodSpec] = {}


def register(spec: MethodSpec) -> None:
    """Add a method; hyperparameters and their defaults are the keyword arguments of `build`.

    Raises:
        ValueError: the name is taken, or no command line could say it; a need or a class of signal
            that does not exist.
    """
    if not re.fullmatch(r"[A-Za-z]\w*", spec.name):
        raise ValueError(f"method name {spec.name!r}: a letter, then letters, digits and _")
    if spec.name in _REGISTRY:
        raise ValueError(f"a method named {spec.name!r} is registered already")
    if unknown := set(spec.needs) - {f.name for f in fields(Rollouts)}:
        raise ValueError(f"method {spec.name!r} needs {sorted(unknown)}: no fields of Rollouts")
    if spec.negative_class not in get_args(NegativeClass):
        known = ", ".join(get_args(NegativeClass))
        raise ValueError(f"negative_class {spec.negative_class!r} is none of {known}")
    if not spec.defaults:
        arguments = inspect.signature(spec.build).parameters
        spec = replace(spec, defaults={key: p.default for key, p in arguments.items()})
    _REGISTRY[spec.name] = spec


def names() -> list[str]:
    """The registered names, sorted.

    >>> names()[:3]
    ['asymre', 'avspo', 'dapo']
    """
    return sorted(_REGISTRY)


def spec(name: str) -> MethodSpec:
    """The spec of a method.

    >>> spec("grpo").negative_class, spec("lens").negative_class
    ('zero', 'zero_sum')

    Raises:
        ValueError: an unknown name, with the nearest known one.
    """
    if name not in _REGISTRY:
        raise ValueError(f"unknown method {name!r}: {nearest(name, _REGISTRY)}")
    return _REGISTRY[name]


def get(name: str, **hyperparameters: Any) -> Method:
    """The method with its hyperparameters bound. Settings of its state are accepted and checked
    too; they take effect in `spec(name).init_state`.

    >>> import torch
    >>> mixed = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    >>> rollouts = Rollouts(mixed, torch.full((1, 4), -1.0), torch.ones(1, 4))
    >>> get("dr_grpo")(rollouts).advantages
    tensor([[ 0.7500, -0.2500, -0.2500, -0.2500]])
    >>> get("w_reinforce", lam=0.1)(rollouts).advantages
    tensor([[ 0.1000, -1.0000, -1.0000, -1.0000]])

    Raises:
        ValueError: an unknown name or hyperparameter, with the nearest known one; a bad value.
            Calling the method raises ValueError where the rollouts lack something it needs.
    """
    found = spec(name)
    _check_known(name, hyperparameters, found.defaults | found.state_defaults)
    state_settings = {k: v for k, v in hyperparameters.items() if k in found.state_defaults}
    if state_settings:
        found.init_state(**state_settings)  # refuses bad values
    method = found.build(**{k: v for k, v in hyperparameters.items() if k not in state_settings})

    def checked(rollouts: Rollouts) -> Signal:
        for need in found.needs:
            if getattr(rollouts, need) is None:
                how = _HOW.get(need, "give it with the rollouts").format(name=name)
                raise ValueError(f"{name} needs rollouts.{need}: {how}")
        return method(rollouts)

    return checked


_HOW = {
    "entropy": "[B, G, T], the policy's next-token entropy in nats over the full vocabulary; "
    "the train command records it with the old log-probabilities",
    "mask": "[B, G, T] bool, True on response tokens",
    "token_logprobs": "[B, G, T], log-probabilities of the sampled tokens, nats",
    "prior": "[B], methods.spec({name!r}).prior(state, question_ids), where state comes from "
    "init_state() and, after every batch, update(); the train command does this",
}
"""How to turn on what rollouts may lack."""


def _check_known(name: str, given: dict[str, Any], known: dict[str, Any]) -> None:
    for key in given:
        if key not in known:
            hint = nearest(key, known) if known else "it has none"
            raise ValueError(f"unknown hyperparameter {key!r} of {name}: {hint}")
