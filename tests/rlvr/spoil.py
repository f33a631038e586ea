"""Bad numbers in a small run, where a broken machine or policy would put them: at one question, and
so that a resumed run meets them again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from lens_ref.core import calibrated_reward
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.config import Config
from lens_ref.rlvr.prompts import question_order
from lens_ref.rlvr.run_folder import RunFolder
from lens_ref.rlvr.trainer import Trainer
from tests.rlvr import runs
from tests.rlvr.helpers import small_config

STEP = 6
"""The update that meets it: the second of four on the second rollout batch of 16 questions."""
Spoil = Callable[[Trainer, int, float], None]


def config(**overrides: Any) -> Config:
    """Eight updates, saved at every second."""
    return small_config(
        **{"checkpoint__every": 2, "eval__every": 0, "data__test": None} | overrides
    )


def target(of: Config) -> int:
    """The training question that is spoilt, the sixth of the second batch."""
    assert of.data.train_questions is not None
    return question_order(1, of.rollout.questions, of.data.train_questions, of.seed)[5]


def trainer(folder: RunFolder, place: str, value: float, **how: Any) -> Trainer:
    """A fresh trainer with a bad number in its way."""
    made = runs.trainer(folder, **how)
    PLACES[place][0](made, target(made.config), value)
    return made


# --- where ----------------------------------------------------------------------------------------


def _sampler(made: Trainer, index: int, value: float) -> None:
    sample, prompt = made.sampler.sample, made.train_prompts[index]

    def spoilt(prompts: Any, responses: int, seed: int) -> Any:
        samples = sample(prompts, responses, seed)
        for b, one in enumerate(prompts):
            if one == prompt:
                samples.logprobs[b, 1, 0] = value
        return samples

    made.sampler.sample = spoilt  # type: ignore[method-assign]


def _frozen(field: str) -> Spoil:
    def spoil(made: Trainer, index: int, value: float) -> None:
        freeze, question = made.updater.freeze_old, made.data.train.items[index]

        def spoilt(batch: Batch) -> Batch:
            batch = freeze(batch)
            numbers = getattr(batch, field).clone()
            for b, one in enumerate(batch.questions):
                if one == question:
                    numbers[(b, 1, 0)[: numbers.ndim]] = value
            return replace(batch, **{field: numbers})

        made.updater.freeze_old = spoilt  # type: ignore[method-assign]

    return spoil


class _Treatment:
    """A method whose signal is changed behind it."""

    def __init__(self, made: Trainer, change: Callable[[Any, int, Any], None], index: int) -> None:
        self.inner, self.change = made.treatment, change
        self.name = made.data.train.items[index].id

    @property
    def state(self) -> Any:
        return self.inner.state

    @state.setter
    def state(self, value: Any) -> None:
        self.inner.state = value

    def __call__(self, rollouts: Any, questions: list[str], learn: bool = True) -> Any:
        signal = self.inner(rollouts, questions, learn)
        for b, question in enumerate(questions):
            if question == self.name and bool(rollouts.valid_rows()[b].all()):
                self.change(signal, b, rollouts)
        return signal


def _advantage(made: Trainer, index: int, value: float) -> None:
    def change(signal: Any, b: int, rollouts: Any) -> None:
        signal.advantages[b, 1] = value

    made.treatment = _Treatment(made, change, index)  # type: ignore[assignment]


def _beyond(made: Trainer, index: int, value: float) -> None:
    """A difficulty of the most confident wrong answer's own confidence: π = D."""

    def change(signal: Any, b: int, rollouts: Any) -> None:
        confidence = rollouts.logprobs[b] / rollouts.lengths[b]
        calibrated_reward(torch.zeros(len(confidence)), confidence, confidence.max())

    made.treatment = _Treatment(made, change, index)  # type: ignore[assignment]


def _forward(change: Callable[[Any, float], Any]) -> Spoil:
    def spoil(made: Trainer, index: int, value: float) -> None:
        forward, prompt = made.policy.logprobs, made.train_prompts[index]

        def spoilt(prompts: Any, responses: Any, temperature: float) -> Any:
            logprobs, entropies = forward(prompts, responses, temperature)
            if torch.is_grad_enabled():  # an update, not the old log-probabilities
                logprobs = [
                    change(x, value) if one == prompt else x
                    for x, one in zip(logprobs, prompts, strict=True)
                ]
            return logprobs, entropies

        object.__setattr__(made.policy, "logprobs", spoilt)

    return spoil


def _hooked(logprobs: Any, value: float) -> Any:
    logprobs = logprobs.clone()
    logprobs.register_hook(lambda gradient: gradient * value)
    return logprobs


NOT_FINITE = (math.nan, math.inf, -math.inf)
PLACES: dict[str, tuple[Spoil, tuple[float, ...], str]] = {
    "sampler": (_sampler, (*NOT_FINITE, 0.5), "the sampler's log-probability of answer 1, token 0"),
    "old": (
        _frozen("old_logprobs"),
        (*NOT_FINITE, 0.5),
        "the old log-probability of answer 1, token 0",
    ),
    "entropy": (_frozen("entropy"), NOT_FINITE, "the entropy of answer 1, token 0"),
    "reward": (_frozen("rewards"), (*NOT_FINITE, 2.0, -1.0), "the reward of answer 1"),
    "advantage": (_advantage, NOT_FINITE, "the advantage of answer 1"),
    "confidence": (_beyond, (1.0,), "pi >= D on a response with r < 1"),
    "new": (_forward(lambda x, v: x + v), NOT_FINITE, "the new log-probability of answer"),
    "ratio": (
        _forward(lambda x, v: x + v),
        (200.0,),
        "the new ratio to the old probability of answer",
    ),
    "gradient": (_forward(_hooked), NOT_FINITE, "the norm of the gradient is"),
}
"""Place → how to spoil it, with which numbers, and what the message must call it."""
CASES = [(place, value) for place, (_, values, _) in PLACES.items() for value in values]
