"""One batch on its way through the system: sampled, graded, valued. It grows and keeps its shape:
`[B, G]` for responses and `[B, G, T]` for tokens, B questions, G responses, T tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lens_ref.core import Rollouts, Signal
from lens_ref.rlvr.tasks import Question


@dataclass(frozen=True)
class Samples:
    """What a sampler hands back. The token ids are the sampler's own: nothing is re-tokenised."""

    ids: Tensor  # [B, G, T] int64, anything after a response's end
    lengths: Tensor  # [B, G] int64, end-of-sequence token included
    logprobs: Tensor  # [B, G, T] float32 nats, of the sampler at the sampling temperature
    truncated: Tensor  # [B, G] bool, stopped by the length limit
    # [B, G] bool, the answers whose log-probabilities were asked for: NaN elsewhere. None: all
    scored: Tensor | None = None

    @property
    def mask(self) -> Tensor:
        """`[B, G, T]` bool, True on response tokens; from lengths, never from token ids, so that
        a pad token that equals the end-of-sequence token hides nothing."""
        return torch.arange(self.ids.shape[-1]) < self.lengths.unsqueeze(-1)

    @property
    def scored_mask(self) -> Tensor:
        """`mask` on the answers whose log-probabilities the sampler told."""
        return self.mask if self.scored is None else self.mask & self.scored.unsqueeze(-1)


@dataclass(frozen=True)
class Batch:
    """A rollout batch: `sampled`, then `graded`, then `valued`."""

    index: int  # counts rollout batches
    questions: tuple[Question, ...]  # B
    prompts: tuple[tuple[int, ...], ...]  # B token id sequences
    samples: Samples
    texts: tuple[tuple[str, ...], ...] = ()  # [B][G]
    reasons: tuple[tuple[str, ...], ...] = ()  # [B][G], the verifier's
    rewards: Tensor | None = None  # [B, G]
    old_logprobs: Tensor | None = None  # [B, G, T], frozen for every update on this batch
    entropy: Tensor | None = None  # [B, G, T] nats
    signal: Signal | None = None

    def sequence_logprobs(self, questions: slice = slice(None)) -> Tensor:
        """`[B, G]` float32 nats: the sum of the old log-probabilities over an answer's tokens, of
        some of the questions."""
        assert self.old_logprobs is not None
        kept = torch.where(self.samples.mask[questions], self.old_logprobs[questions], 0.0)
        return kept.double().sum(-1).float()

    def confidence(self, questions: slice = slice(None)) -> Tensor:
        """`[B, G]` float64: the geometric-mean token probability π̄, of some of the questions."""
        logprobs = self.sequence_logprobs(questions).double()
        return (logprobs / self.samples.lengths[questions]).exp()

    def rollouts(self, questions: slice = slice(None), valid: Tensor | None = None) -> Rollouts:
        """The pure numbers that a method sees, of some of the questions.

        Args:
            valid: `[B, G]` bool, the responses that count; default all.
        """
        assert self.rewards is not None
        assert self.old_logprobs is not None
        return Rollouts(
            rewards=self.rewards[questions],
            logprobs=self.sequence_logprobs(questions),
            lengths=self.samples.lengths[questions],
            token_logprobs=self.old_logprobs[questions],
            mask=self.samples.mask[questions],
            entropy=None if self.entropy is None else self.entropy[questions],
            truncated=self.samples.truncated[questions],
            valid=None if valid is None else valid[questions],
        )

    def select(self, questions: list[int]) -> Batch:
        """The batch of some of its questions, without what the method told beside advantages."""

        def rows(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[questions]

        samples, signal = self.samples, self.signal
        return replace(
            self,
            questions=tuple(self.questions[i] for i in questions),
            prompts=tuple(self.prompts[i] for i in questions),
            samples=Samples(
                samples.ids[questions],
                samples.lengths[questions],
                samples.logprobs[questions],
                samples.truncated[questions],
                rows(samples.scored),
            ),
            texts=tuple(self.texts[i] for i in questions) if self.texts else (),
            reasons=tuple(self.reasons[i] for i in questions) if self.reasons else (),
            rewards=rows(self.rewards),
            old_logprobs=rows(self.old_logprobs),
            entropy=rows(self.entropy),
            signal=signal and Signal(signal.advantages[questions], signal.keep[questions]),
        )
