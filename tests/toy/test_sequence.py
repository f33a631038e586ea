"""The sequence toy: exact sums against enumeration, gradients against the library's loss."""

from itertools import product

import numpy as np
import pytest
import torch

from lens_ref.core import grpo_loss
from toy.sampled import streams
from toy.sequence import (
    AGGREGATIONS,
    EOS,
    exact,
    first_logits,
    sample,
    token_gradient,
    train_unsolvable,
)
from toy.spaces import log_softmax


def every_sequence(positions):
    """Token tuples that end with EOS, or are `positions` long without it."""
    for length in range(1, positions + 1):
        for words in product((0, 1), repeat=length - 1):
            yield (*words, EOS)
    yield from product((0, 1), repeat=positions)


def test_exact_sums_are_the_enumeration():
    logits = first_logits(streams(range(2), "enumeration"), positions=4)
    found = exact(logits)
    for s, log_p in enumerate(log_softmax(logits)):
        sequences = list(every_sequence(4))
        assert len(sequences) == 31
        log_pi = np.array([sum(log_p[t, v] for t, v in enumerate(o)) for o in sequences])
        lengths = np.array([len(o) for o in sequences])
        pi = np.exp(log_pi)
        assert pi.sum() == pytest.approx(1)
        assert found.length[s] == pytest.approx(pi @ lengths)
        assert found.truncated[s] == pytest.approx(pi @ [EOS not in o for o in sequences])
        assert found.token_entropy[s] == pytest.approx(-(pi @ log_pi) / (pi @ lengths))
        assert found.confidence[s] == pytest.approx(pi @ np.exp(log_pi / lengths))


def test_samples_stop_at_eos_and_carry_their_log_probability():
    logits = np.log(np.array([[[0.2, 0.3, 0.5], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]]]))
    uniforms = np.array([[[0.6, 0.0, 0.0], [0.1, 0.75, 0.9], [0.3, 0.05, 0.3]]])
    responses = sample(logits, uniforms)
    assert responses.lengths.tolist() == [[1, 2, 3]]
    assert np.exp(responses.logprobs[0]) == pytest.approx([0.5, 0.2 * 0.3, 0.3 * 0.1 * 0.25])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_gradient_is_that_of_the_librarys_loss(aggregation):
    (rng,) = streams(range(1), "gradient")
    logits = first_logits([rng], positions=5)
    responses = sample(logits, rng.random((1, 6, 5)))
    advantages = rng.normal(size=(1, 6))
    z = torch.tensor(logits[0], requires_grad=True)
    tokens = torch.from_numpy(responses.tokens[0])
    new = z.log_softmax(-1)[torch.arange(5), tokens]  # [G, T]
    mask = torch.from_numpy(responses.mask[0])
    signal = torch.from_numpy(advantages[0])
    grpo_loss(new, new.detach(), signal, mask, aggregation=aggregation).loss.backward()
    found = token_gradient(logits, responses, advantages, aggregation)[0]
    np.testing.assert_allclose(found, -z.grad, atol=1e-14)


def curves(confidence):
    seeds = range(4)
    return train_unsolvable(
        first_logits(streams(seeds, "readings")),
        streams(seeds, "draws"),
        updates=100,
        every=50,
        preset="negative_std",
        confidence=confidence,
    )


def test_normalized_confidence_flattens_and_raw_confidence_lengthens():
    normalized, raw = curves("length_normalized"), curves("sequence")
    assert normalized.steps.tolist() == [0, 50, 100]
    assert (normalized.token_entropy[-1] > normalized.token_entropy[0]).all()
    assert (raw.length[-1] > raw.length[0] + 1).all()
    assert (abs(normalized.length[-1] - 3) < 0.6).all()
