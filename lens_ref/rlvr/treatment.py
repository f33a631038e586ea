"""A method at work in a run: it sees every batch once, and what it remembers is carried along."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lens_ref import methods
from lens_ref.core import Signal
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.config import parse_method


class Treatment:
    """The method of a run with its state, which checkpoints hold; None for one without state."""

    def __init__(self, method: str) -> None:
        """
        Args:
            method: "name" or "name:key=value,key=value".
        """
        self.name, self.given = parse_method(method)
        self.spec = methods.spec(self.name)
        settings = {k: v for k, v in self.given.items() if k in self.spec.state_defaults}
        self.state: dict[str, Any] | None = (
            self.spec.init_state(**settings) if self.spec.stateful else None
        )

    def __call__(self, batch: Batch) -> Signal:
        """The advantages of a batch, which is then added to the state: the prior of a question is
        what came before."""
        rollouts = batch.rollouts()
        if self.state is None:
            return methods.get(self.name, **self.given)(rollouts)
        ids = [question.id for question in batch.questions]
        rollouts = replace(rollouts, prior=self.spec.prior(self.state, ids))
        group_size = rollouts.rewards.shape[-1]
        from_state = self.spec.state_hyperparameters(self.state, group_size)
        signal = methods.get(self.name, **{**from_state, **self.given})(rollouts)
        self.state = self.spec.update(self.state, rollouts, ids)
        return signal
