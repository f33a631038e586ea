"""Short sequences (see `toy.sequence`), where length and entropy can be exploited.

Unsolvable   every reward is 0. Whatever moves is the method's own taste.
Solvable     right are the sequences that begin with "ab" and end before the limit. Lengths differ,
             so that the two readings of D_imp, on π and on π̄, differ too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lens_ref import methods
from toy import sequence
from toy.compare.cell import TOY_SOURCES
from toy.compare.treatments import TREATMENTS, over_kept
from toy.sampled import Report, streams
from toy.spaces import Bools, Floats, log_softmax
from toy.tables import long_frame

SEQUENCE_TREATMENTS = (
    "grpo",
    "nsr",
    "ngrpo",
    "lens_paper",
    "lens_normalized_difficulty",
    "lens_neg_unscaled",
    "lens_negative_std",
    "lens_no_demean",
    "lens_pooled",
)
SEQUENCE_QUANTITIES = ("accuracy", "length", "truncated", "token_entropy", "confidence")
GROUP_SIZE = 16
SOURCES = (*TOY_SOURCES, "toy/sequence.py", "toy/compare/sequences.py")
A, B = 0, 1


def is_right(responses: sequence.Responses) -> Bools:
    """`[S, G]`: begins with "ab" and ends before the limit."""
    tokens, mask = responses.tokens, responses.mask
    ended = ((tokens == sequence.EOS) & mask).any(-1)
    return (tokens[..., 0] == A) & (tokens[..., 1] == B) & ended


def p_right(logits: Floats) -> Floats:
    """`[S]`: P(a, then b, then EOS before the limit)."""
    p = np.exp(log_softmax(logits))
    never = np.prod(1 - p[:, 2:, sequence.EOS], -1)
    return p[:, 0, A] * p[:, 1, B] * (1 - never)


@dataclass(frozen=True)
class Sequences:
    """Exact expectations under the policy; a row a seed and step."""

    treatment: str
    solvable: bool
    seeds: tuple[int, int]
    updates: int = 1_500
    part: str = "sequences"
    sources: tuple[str, ...] = SOURCES

    @property
    def setting(self) -> str:
        """Its line in the tables."""
        return "solvable" if self.solvable else "unsolvable"

    @property
    def name(self) -> str:
        return f"{self.treatment} {self.setting} {self.updates}"

    @property
    def cost(self) -> float:
        return 1.2e-3 * self.updates

    def run(self, workspace: Path, report: Report) -> pd.DataFrame:
        seeds = range(*self.seeds)
        treatment = TREATMENTS[self.treatment]
        method = methods.get(treatment.method, **dict(treatment.hyperparameters))
        spec = methods.spec(treatment.method)
        state = spec.init_state(count=GROUP_SIZE) if spec.stateful else None
        ids = [str(seed) for seed in seeds]

        def teach(responses: sequence.Responses) -> Floats:
            nonlocal state
            rewards = is_right(responses) & self.solvable
            prior = None if state is None else spec.prior(state, ids)
            rollouts = sequence.rollouts(responses, rewards, prior)
            signal = method(rollouts)
            if state is not None:
                state = spec.update(state, rollouts, ids)
            return over_kept(signal.advantages.numpy(), signal.keep.numpy())

        steps, trace = sequence.train(
            sequence.first_logits(streams(seeds, "sequence")),
            streams(seeds, f"compare/sequences/{self.setting}"),
            self.updates,
            50,
            teach,
            group_size=GROUP_SIZE,
            report=report,
        )
        points = [
            {**vars(sequence.exact(logits)), "accuracy": p_right(logits) * self.solvable}
            for logits in trace
        ]
        cell = {
            "experiment": "sequences",
            "method": self.treatment,
            "setting": self.setting,
            "optimizer": "sgd",
            "group_size": GROUP_SIZE,
        }
        traces = {k: np.stack([point[k] for point in points]) for k in SEQUENCE_QUANTITIES}
        return long_frame(cell, steps, seeds, traces)
