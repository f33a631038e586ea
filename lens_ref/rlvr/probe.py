"""Does a sampler with its own copy of the weights run the policy that is trained?

Small adapters hide the answer: at the start B = 0, and a sampler that leaves the adapter out gives
the right numbers. So a large random adapter is put in for a moment, and the sampler's
log-probabilities must move as the trainer's do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from lens_ref.rlvr.batch import Samples
from lens_ref.rlvr.config import Config
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.policy import Policy

QUESTIONS, ANSWERS, TOKENS = 8, 2, 32
"""How many answers are compared, and their length at most."""
STRENGTH = 0.3
"""Of the probe: what it adds to a layer's output, about, for inputs of unit size."""
CORRELATION = 0.99
COARSE_CORRELATION = 0.9
"""Between the changes; the second for a sampler with other bits, whose answers are corrected."""
MOVED = 0.02
"""Nats a token that the probe must move the trainer by to tell anything."""


class Scorer(Protocol):
    """What the probe needs of a sampler."""

    def sync(self) -> None: ...

    def draw(
        self, prompts: Sequence[tuple[int, ...]], responses: int, seed: int, max_tokens: int
    ) -> Samples: ...

    def score(self, sequences: Sequence[tuple[int, ...]]) -> list[Tensor]: ...


def verify(
    sampler: Scorer, policy: Policy, config: Config, prompts: Sequence[tuple[int, ...]]
) -> None:
    """Check the sampler's numbers as it is, and its moves under a probe; leaves it synced.

    Raises:
        UserError: it runs other weights or another temperature than the trainer.
    """
    sampler.sync()
    rollout = config.rollout
    picked = list(prompts[:QUESTIONS])
    tokens = max(1, min(TOKENS, rollout.max_new_tokens - 1))  # scoring needs room for one more
    samples = sampler.draw(picked, ANSWERS, 0, tokens)
    repeated = [prompt for prompt in picked for _ in range(ANSWERS)]
    rows = zip(samples.ids.flatten(0, 1), samples.lengths.flatten().tolist(), strict=True)
    answers = [ids[:length] for ids, length in rows]

    def trainer(temperature: float) -> Tensor:
        """`[all tokens of the answers]`"""
        with torch.no_grad():
            logprobs, _ = policy.logprobs(repeated, answers, temperature)
        return torch.cat(logprobs).cpu()

    def sampled() -> Tensor:
        """The same, by the sampler, at temperature 1."""
        sequences = [p + tuple(a.tolist()) for p, a in zip(repeated, answers, strict=True)]
        found = sampler.score(sequences)
        return torch.cat([f[-len(a) :] for f, a in zip(found, answers, strict=True)])

    own = samples.logprobs[samples.mask]
    _agree(own, trainer(rollout.temperature), rollout.max_drift, "as it samples")
    before = sampled(), trainer(1.0)
    _agree(*before, rollout.max_drift, "before the probe")
    with probing(policy):
        sampler.sync()
        _follows(sampled() - before[0], trainer(1.0) - before[1], _threshold(config))
    sampler.sync()
    _agree(sampled(), trainer(1.0), rollout.max_drift, "after the probe")


def _threshold(config: Config) -> float:
    return CORRELATION if config.same_bits else COARSE_CORRELATION


@contextmanager
def probing(policy: Policy) -> Iterator[None]:
    """Within it every B of the adapter is random; afterwards it is what it was, to the bit."""
    matrices = {n: p for n, p in policy.trainable().items() if "lora_B" in n}
    kept = {name: matrix.detach().clone() for name, matrix in matrices.items()}
    generator = torch.Generator().manual_seed(0)  # its own: no other random number depends on it
    (config,) = policy.model.peft_config.values()
    scale = STRENGTH / (config.lora_alpha / config.r * math.sqrt(config.r))
    try:
        for matrix in matrices.values():
            _fill(matrix, torch.randn(matrix.shape, generator=generator) * scale)
        yield
    finally:
        for name, matrix in matrices.items():
            _fill(matrix, kept[name])


@torch.no_grad()
def _fill(matrix: Tensor, values: Tensor) -> None:
    matrix.copy_(values)


def _agree(sampler: Tensor, trainer: Tensor, bound: float, when: str) -> None:
    gap = float((sampler - trainer).abs().mean())
    if not gap <= bound:
        raise UserError(
            f"the sampler does not run the trainer's policy: {when}, its log-probabilities are off "
            f"by {gap:.3f} nats a token (rollout.max_drift = {bound}); set rollout.engine to hf"
        )


def _follows(sampler: Tensor, trainer: Tensor, threshold: float) -> None:
    moved = float(trainer.abs().mean())
    if not moved >= MOVED:
        raise UserError(
            f"the probe moved the policy by {moved:.4f} nats a token only: too little to check the "
            "sampler by; set rollout.engine to hf"
        )
    correlation = float(torch.corrcoef(torch.stack([sampler, trainer]).double())[0, 1])
    if not correlation >= threshold:  # NaN: the sampler did not move at all
        raise UserError(
            f"the sampler does not follow the adapter: a probe moved the trainer by {moved:.2f} "
            f"nats a token and the sampler by {float(sampler.abs().mean()):.2f}, correlation "
            f"{correlation:.3f} instead of {threshold}; set rollout.engine to hf"
        )
