"""A method at work over many batches: it sees each once and carries its state along."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from lens_ref import methods
from lens_ref.core import LensConfig, Rollouts, Signal


class Treatment:
    """A method with its hyperparameters, and `state`: plain numbers for a checkpoint, None for a
    method that keeps none."""

    def __init__(
        self,
        method: str = "lens",
        config: LensConfig | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Args:
            method: a name of `lens_ref.methods.names()`.
            config: for the methods that take the fields of `LensConfig`.
            hyperparameters: of the method and of its state.

        Raises:
            ValueError: an unknown method or hyperparameter, a bad value, a `LensConfig` for a
                method that does not take one, or for one that is given hyperparameters of its own.
        """
        self.spec = methods.spec(method)
        self.given = dict(hyperparameters or {})
        if config is not None:
            self._take(config)
        methods.get(method, **self.given)  # refuses bad ones before anything is sampled
        settings = {k: v for k, v in self.given.items() if k in self.spec.state_defaults}
        self.state: dict[str, Any] | None = (
            self.spec.init_state(**settings) if self.spec.stateful else None
        )

    def _take(self, config: LensConfig) -> None:
        if not isinstance(config, LensConfig):
            raise ValueError(f"config = {config!r}: a LensConfig is needed")
        name, fields = self.spec.name, asdict(config)
        if not fields.keys() <= self.spec.defaults.keys():
            raise ValueError(f"method {name!r} takes no LensConfig: pass hyperparameters={{...}}")
        twice = [key for key in self.given if key == "preset" or key in fields]
        if twice:
            raise ValueError(f"{twice[0]!r}: give it in hyperparameters or in config, not in both")
        self.given |= fields

    @property
    def label(self) -> str:
        """The method as one writes it: "lens", "passk(k=2)"."""
        defaults = self.spec.defaults | self.spec.state_defaults
        changed = [f"{k}={v}" for k, v in self.given.items() if v != defaults[k]]
        return f"{self.spec.name}({', '.join(changed)})" if changed else self.spec.name

    def needs(self, name: str) -> bool:
        """Whether the method needs this field of `Rollouts`."""
        return name in self.spec.needs

    def __call__(
        self, rollouts: Rollouts, questions: Sequence[Hashable], learn: bool = True
    ) -> Signal:
        """The advantages of a batch, which is then added to the state: the prior of a question is
        what came before.

        Args:
            rollouts: `[B, G]`.
            questions: B names, the same whenever a question comes again.
            learn: False leaves the state alone, as an evaluation must.
        """
        if self.state is None:
            return methods.get(self.spec.name, **self.given)(rollouts)
        prior = self.spec.prior(self.state, questions).to(rollouts.rewards.device)
        rollouts = replace(rollouts, prior=prior)
        from_state = self.spec.state_hyperparameters(self.state, rollouts.rewards.shape[-1])
        signal = methods.get(self.spec.name, **{**from_state, **self.given})(rollouts)
        if learn:
            self.state = self.spec.update(self.state, rollouts, questions)
        return signal
