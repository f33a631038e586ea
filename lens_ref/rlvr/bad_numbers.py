"""Numbers that can't be: where they are in a batch, whose they are, and advantages without them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from lens_ref.core import Signal
from lens_ref.core._checks import DomainError
from lens_ref.methods.treatment import Treatment
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.threads import at_most

ROUNDING = 2**-4
"""Nats by which a log-probability may exceed 0 and then counts as 0: half the distance between two
bfloat16 numbers from 16 to 32, where logits lie. More is no rounding."""
NAMED = 3  # questions in a message
THREADS = 4
"""That compute advantages. Beside another run on the same card, those of 1,024 answers of up to 320
tokens took 7 ms with four (of 32 CPUs) and 20 ms with one (of 16); those of 512 answers of 512
tokens, .13 s with 32."""
Faults = Mapping[int, str]
"""Index of a question in its batch → which of its numbers can't be."""
Numbers = Iterator[tuple[str, Tensor, Callable[[Tensor], Tensor], Tensor | None]]
"""(name, numbers `[B, G]` or `[B, G, T]`, which are possible, which responses count)."""


class BadNumbers(UserError):  # noqa: N818  (as `Interrupted`: what happened)
    """An update was not made: some numbers of its questions are not finite, or impossible."""

    def __init__(self, update: int, batch: Batch, faults: Faults) -> None:
        """
        Args:
            update: counted from 1.
            faults: at least one.
        """
        self.faults = {batch.questions[i].id: what for i, what in sorted(faults.items())}
        (first, what), *others = self.faults.items()
        more = ", ".join(map(repr, [name for name, _ in others][: NAMED - 1]))
        if len(others) >= NAMED:
            more += f" and {len(others) - NAMED + 1} more"
        also = f" (so it is with {more})" if more else ""
        super().__init__(
            f"update {update}: question {first!r}: {what}{also}; the weights are unchanged"
        )


def without_rounding(logprobs: Tensor) -> Tensor:
    """The same log-probabilities, those above 0 by no more than `ROUNDING` set to 0."""
    return torch.where((logprobs > 0) & (logprobs <= ROUNDING), 0.0, logprobs)


def _numbers(batch: Batch) -> Numbers:
    """All numbers of a batch that are there."""

    def logprob(x: Tensor) -> Tensor:
        return x.isfinite() & (x <= ROUNDING)

    yield "the sampler's log-probability", batch.samples.logprobs, logprob, batch.samples.scored
    if batch.rewards is not None:
        yield "the reward", batch.rewards, lambda x: (x >= 0) & (x <= 1), None
    if batch.old_logprobs is not None:
        yield "the old log-probability", batch.old_logprobs, logprob, None
    if batch.entropy is not None:
        yield "the entropy", batch.entropy, torch.isfinite, None
    yield from _of_signal(batch)


def _of_signal(batch: Batch) -> Numbers:
    if batch.signal is not None:
        yield "the advantage", batch.signal.advantages, torch.isfinite, batch.signal.keep


def find(
    batch: Batch,
    questions: slice = slice(None),
    numbers: Callable[[Batch], Numbers] = _numbers,
) -> dict[int, str]:
    """The first impossible number of every question that has one, among some of the questions.

    Log-probabilities must be finite and at most `ROUNDING`, on response tokens; rewards lie in
    [0, 1]; entropies and the advantages of kept responses are finite.
    """
    found: dict[int, str] = {}
    mask = batch.samples.mask[questions]
    first = range(len(batch.questions))[questions].start
    for name, values, possible, counted in numbers(batch):
        value = values[questions]
        bad = ~possible(value)
        if counted is not None:
            bad &= counted[questions] if value.ndim == 2 else counted[questions].unsqueeze(-1)
        if value.ndim == 3:
            bad &= mask
        for b in bad.flatten(1).any(-1).nonzero().flatten().tolist():
            g, *token = bad[b].nonzero()[0].tolist()
            place = f"answer {g}" + (f", token {token[0]}" if token else "")
            number = float(value[(b, g, *token)])
            found.setdefault(first + b, f"{name} of {place} (from 0) is {number:g}")
    return found


def without(batch: Batch, faults: Iterable[int]) -> Batch | None:
    """The batch of the other questions; None where there is none."""
    kept = sorted(set(range(len(batch.questions))) - set(faults))
    if len(kept) == len(batch.questions):
        return batch
    return batch.select(kept) if kept else None


@at_most(THREADS)
def value(batch: Batch, treatment: Treatment) -> tuple[Batch, dict[int, str]]:
    """The batch with its advantages.

    Questions with impossible numbers have no say in the others' advantages, nor in what the method
    remembers. Where the method itself has no advantage, since a number is outside its domain
    (π ≥ D on a wrong answer), the question's are NaN.

    Returns:
        The batch, and why the method refused a question.
    """
    good = torch.ones(len(batch.questions), dtype=torch.bool)
    good[list(find(batch))] = False
    before = treatment.state
    refused: dict[int, str] = {}
    try:
        signal = _advantages(batch, treatment, good)
    except DomainError as error:
        for i in good.nonzero().flatten().tolist():
            reason = _refusal(batch, treatment, i)
            if reason is not None:
                refused[i] = reason
        refused = refused or dict.fromkeys(good.nonzero().flatten().tolist(), str(error))
        good[list(refused)] = False
        signal = _advantages(batch, treatment, good)
    for i in refused:
        signal.advantages[i] = torch.nan
        signal.keep[i] = True  # so that `find` finds it again, in a resumed run too
    batch = replace(batch, signal=signal)
    if find(batch, numbers=_of_signal).keys() - (~good).nonzero().flatten().tolist():
        treatment.state = before  # an advantage that is not finite: nothing of this is kept
    return batch, refused


def _advantages(batch: Batch, treatment: Treatment, good: Tensor) -> Signal:
    assert batch.rewards is not None
    shape = batch.rewards.shape
    if not good.any():
        return Signal(torch.zeros(shape), torch.zeros(shape, dtype=torch.bool))
    valid = None if good.all() else good.unsqueeze(-1).expand(shape).clone()
    return treatment(batch.rollouts(valid=valid), [question.id for question in batch.questions])


def _refusal(batch: Batch, treatment: Treatment, i: int) -> str | None:
    """Why the method has no advantage for this question alone; None where it has."""
    try:
        treatment(batch.rollouts(slice(i, i + 1)), [batch.questions[i].id], learn=False)
    except DomainError as error:
        return f"the method has no advantage: {error}"
    return None
