"""A question that can't be solved, answered with short sequences: what does confidence reward then?

Tokens are a, b and EOS; position t has a softmax of its own over the three, up to 12 positions; a
sequence without EOS is truncated there. Every reward is 0, so GRPO learns nothing and LENS has its
negative groups alone. The policy is tabular and its positions are independent, so that mean length,
entropy and confidence are exact sums over all 8191 sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lens_ref import methods
from lens_ref.core import Rollouts
from toy.sampled import Report, Uniforms
from toy.spaces import Floats, entropy, log_softmax

POSITIONS, TOKENS, EOS = 12, 3, 2
AGGREGATIONS = ("sequence_mean", "token_mean")


@dataclass(frozen=True)
class Responses:
    """G sampled sequences a seed."""

    tokens: np.ndarray  # [S, G, T] int
    mask: np.ndarray  # [S, G, T] bool, True up to and including EOS
    logprobs: Floats  # [S, G], nats, EOS included

    @property
    def lengths(self) -> np.ndarray:
        """`[S, G]`, tokens, EOS included."""
        return self.mask.sum(-1)


@dataclass(frozen=True)
class Exact:
    """Expectations over every sequence of a policy; each `[S]`."""

    length: Floats  # tokens, EOS included
    truncated: Floats  # P(no EOS)
    token_entropy: Floats  # nats a token: sequence entropy / mean length
    confidence: Floats  # E[π̄], the length-normalised confidence


def first_logits(generators: list[np.random.Generator], positions: int = POSITIONS) -> Floats:
    """`[S, T, V]`: N(0, 0.65²), a policy that is mildly confident and about 3 tokens long."""
    return np.stack([rng.normal(0.0, 0.65, (positions, TOKENS)) for rng in generators])


def exact(logits: Floats) -> Exact:
    """Sum over all sequences, using that positions are independent given that one gets there."""
    log_p = log_softmax(logits)  # [S, T, V]
    p = np.exp(log_p)
    go_on = 1 - p[..., EOS]
    reach = np.cumprod(np.concatenate([np.ones_like(go_on[:, :1]), go_on], 1), 1)  # [S, T+1]
    length = reach[:, :-1].sum(1)
    sequence_entropy = (reach[:, :-1] * entropy(p)).sum(1)
    confidence = np.zeros(len(logits))
    positions = logits.shape[1]
    for n in range(1, positions + 1):  # E[π^{1/n}; |o| = n] = Σ_o π(o)^{1+1/n}
        powered = np.exp((1 + 1 / n) * log_p)
        words = powered[..., :EOS].sum(-1)  # [S, T]
        confidence += words[:, : n - 1].prod(1) * powered[:, n - 1, EOS]
        if n == positions:
            confidence += words.prod(1)
    return Exact(length, reach[:, -1], sequence_entropy / length, confidence)


def sample(logits: Floats, uniforms: Floats) -> Responses:
    """Sample sequences. `logits`: `[S, T, V]`; `uniforms`: `[S, G, T]`."""
    log_p = log_softmax(logits)
    edges = np.exp(log_p).cumsum(-1)[:, None, :, :-1]
    tokens = (uniforms[..., None] >= edges).sum(-1)
    ended_before = np.cumsum(tokens == EOS, -1) - (tokens == EOS) > 0
    each = np.take_along_axis(log_p[:, None], tokens[..., None], -1)[..., 0]
    mask = ~ended_before
    return Responses(tokens, mask, np.where(mask, each, 0.0).sum(-1))


def token_gradient(
    logits: Floats, responses: Responses, advantages: Floats, aggregation: str
) -> Floats:
    """Ascent direction `[S, T, V]` of the surrogate at ratio 1, the gradient of −`grpo_loss`.

    `sequence_mean` divides each response by its length, then by G (the paper); `token_mean` divides
    by the group's tokens.
    """
    mask = responses.mask
    if aggregation == "sequence_mean":
        weight = advantages / (responses.lengths * advantages.shape[-1])
    else:
        weight = advantages / mask.sum((1, 2))[:, None]
    per_token = np.where(mask, weight[..., None], 0.0)  # [S, G, T]
    chosen = np.eye(TOKENS)[responses.tokens]  # [S, G, T, V]
    s = np.einsum("sgt,sgtv->stv", per_token, chosen)
    return s - np.exp(log_softmax(logits)) * per_token.sum(1)[..., None]


@dataclass(frozen=True)
class SequenceCurves:
    """Exact expectations every so many updates, each `[N, S]`."""

    steps: np.ndarray  # [N] int
    length: Floats
    truncated: Floats
    token_entropy: Floats
    confidence: Floats


def train(
    logits: Floats,
    generators: list[np.random.Generator],
    updates: int,
    every: int,
    teach: Callable[[Responses], Floats],
    aggregation: str = "sequence_mean",
    group_size: int = 16,
    lr: float = 0.5,
    report: Report = lambda text: None,
) -> tuple[np.ndarray, list[Floats]]:
    """SGD on groups of sampled sequences.

    Args:
        teach: from the responses of a step to their advantages `[S, G]`.

    Returns:
        `[N]` steps, every so many updates, and the logits `[S, T, V]` at each.
    """
    uniforms = Uniforms(generators, group_size, logits.shape[1])
    steps, trace = [], []
    for step in range(updates + 1):
        if step % every == 0:
            steps.append(step)
            trace.append(logits)
            report(f"step {step}/{updates}")
        if step == updates:
            break
        responses = sample(logits, uniforms.next())
        gradient = token_gradient(logits, responses, teach(responses), aggregation)
        logits = logits + lr * gradient
    return np.array(steps), trace


def rollouts(responses: Responses, rewards: np.ndarray, prior: Tensor | None = None) -> Rollouts:
    """What a method of the library sees of them. `rewards`: `[S, G]`; `prior`: `[S]`."""
    return Rollouts(
        rewards=torch.from_numpy(rewards.astype(float)),
        logprobs=torch.from_numpy(responses.logprobs),
        lengths=torch.from_numpy(responses.lengths),
        prior=prior,
    )


def train_unsolvable(
    logits: Floats,
    generators: list[np.random.Generator],
    updates: int,
    every: int,
    aggregation: str = "sequence_mean",
    report: Report = lambda text: None,
    **lens: object,
) -> SequenceCurves:
    """LENS on negative groups alone. `lens`: `preset=` or fields of `LensConfig`."""
    method = methods.get("lens", **lens)

    def teach(responses: Responses) -> Floats:
        return method(rollouts(responses, np.zeros(responses.logprobs.shape))).advantages.numpy()

    steps, trace = train(logits, generators, updates, every, teach, aggregation, report=report)
    points = [exact(logits) for logits in trace]
    return SequenceCurves(
        steps,
        *(
            np.stack([getattr(point, name) for point in points])
            for name in ("length", "truncated", "token_entropy", "confidence")
        ),
    )
