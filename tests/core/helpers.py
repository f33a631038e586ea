"""What the core's tests share: the golden table, small groups, random groups."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from lens_ref import LensConfig, Rollouts

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "data" / "golden.json").read_text(encoding="utf-8")
)
F64 = torch.float64


def tensor(x: Any, dtype: torch.dtype = F64) -> Tensor:
    return torch.tensor(x, dtype=dtype)


def group(
    rewards: Sequence[float],
    confidence: Sequence[float],
    lengths: Sequence[int] | None = None,
    dtype: torch.dtype = F64,
    **fields: Any,
) -> Rollouts:
    """One question `[1, G]` whose responses have these geometric-mean token probabilities."""
    lengths = lengths or [1] * len(rewards)
    logprobs = [n * math.log(c) for n, c in zip(lengths, confidence, strict=True)]
    return Rollouts(
        rewards=tensor([list(rewards)], dtype),
        logprobs=tensor([logprobs], dtype),
        lengths=torch.tensor([list(lengths)]),
        **fields,
    )


def assert_close(actual: Tensor, expected: Any, rtol: float, label: str = "") -> None:
    """Every element within `rtol` of the largest |expected| (exactly equal where that is 0)."""
    expected = torch.as_tensor(expected, dtype=F64)
    assert actual.shape == expected.shape, f"{label}: {actual.shape} != {expected.shape}"
    if not expected.numel():
        return
    error = (actual.double() - expected).abs().max()
    bound = rtol * expected.abs().max()
    assert bool(error <= bound), f"{label}: off by {error:.3g}, allowed {bound:.3g}"


def assert_relative(actual: Tensor, expected: Any, rtol: float, label: str = "") -> None:
    """Every element within `rtol` of its own expected value."""
    expected = torch.as_tensor(expected, dtype=F64)
    torch.testing.assert_close(
        actual.double(), expected, rtol=rtol, atol=0.0, msg=lambda m: f"{label}: {m}"
    )


class Group(NamedTuple):
    """Plain numbers of one question's responses."""

    rewards: list[float]
    logprobs: list[float]
    lengths: list[int]
    truncated: list[bool]

    def take(self, rows: Sequence[int]) -> Group:
        return Group(*([column[i] for i in rows] for column in self))

    def shifted(self, nats: float) -> Group:
        """Every geometric-mean token probability multiplied by e^nats."""
        moved = [p + nats * n for p, n in zip(self.logprobs, self.lengths, strict=True)]
        return self._replace(logprobs=moved)

    def rollouts(self, dtype: torch.dtype = F64) -> Rollouts:
        return Rollouts(
            rewards=tensor([self.rewards], dtype),
            logprobs=tensor([self.logprobs], dtype),
            lengths=torch.tensor([self.lengths]),
            truncated=torch.tensor([self.truncated]),
        )


# Token log-probabilities are multiples of 2^-8 and lengths powers of 2: equal confidences are then
# equal to the last bit at every length, so that a group is either identical or clearly is not.
_TOKEN_LOGPROB = st.integers(1, 700).map(lambda n: -n / 256)
_LENGTH = st.sampled_from([1, 2, 4, 8, 32, 256])
_FRACTION = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.7, 1.0])

KINDS = ("negative", "mixed", "correct", "fractional", "equal_fractions")


@st.composite
def groups(draw: st.DrawFn, kinds: Sequence[str] = KINDS, min_size: int = 1) -> Group:
    """A group of up to 17 responses; `mixed` ones are binary with both verdicts present."""
    kind = draw(st.sampled_from(list(kinds)))
    size = draw(st.integers(max(min_size, 2 if kind == "mixed" else 1), 17))
    if kind == "mixed":
        correct = draw(st.integers(1, size - 1))
        rewards = draw(st.permutations([1.0] * correct + [0.0] * (size - correct)))
    elif kind == "fractional":
        rewards = draw(st.lists(_FRACTION, min_size=size, max_size=size))
    elif kind == "equal_fractions":
        rewards = [draw(st.sampled_from([0.1, 0.3, 0.7]))] * size
    else:
        rewards = [1.0 if kind == "correct" else 0.0] * size
    lengths = draw(st.lists(_LENGTH, min_size=size, max_size=size))
    tokens = draw(st.lists(_TOKEN_LOGPROB, min_size=size, max_size=size))
    truncated = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    logprobs = [t * n for t, n in zip(tokens, lengths, strict=True)]
    return Group(list(rewards), logprobs, lengths, truncated)


@st.composite
def configs(draw: st.DrawFn, **fixed: Any) -> LensConfig:
    """Any reading of the algorithm."""
    fields = {
        "alpha": draw(st.sampled_from([0.0, 0.25, 1.0])),
        "guard": draw(st.sampled_from([1.1, 2.0, 5.0])),
        "confidence": draw(st.sampled_from(["length_normalized", "sequence"])),
        "difficulty_confidence": draw(st.sampled_from(["length_normalized", "sequence"])),
        "mixed_scale": draw(st.sampled_from(["1/G", 1.0, 0.5])),
        "negative_scale": draw(st.sampled_from(["1/G", 1.0, 0.5])),
        "mixed_norm": draw(st.sampled_from(["std", "demean", "none"])),
        "negative_norm": draw(st.sampled_from(["demean", "demean_std", "posterior_std", "none"])),
        "baseline": draw(st.sampled_from(["group", "leave_one_out"])),
        "ddof": draw(st.sampled_from([0, 1])),
        "eps": draw(st.sampled_from([0.0, 1e-6])),
        "truncated": draw(st.sampled_from(["keep", "mask", "exclude_from_max"])),
        "groups": draw(st.sampled_from(["all", "mixed", "negative"])),
    }
    return LensConfig(**{**fields, **fixed})
