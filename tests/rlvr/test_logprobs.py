"""Log-probabilities of sampled tokens: temperature, slicing, chunks, padding, entropy."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lens_ref.rlvr.config import ModelConfig
from lens_ref.rlvr.logprobs import LOGITS_CHUNK, token_logprobs
from lens_ref.rlvr.policy import Policy, load_policy
from tests.rlvr.helpers import BOS, CPU, EOS, HE, HELLO, LLO, MarkovModel

# prompts and responses of different lengths, one answer of a single token
PROMPTS = [(BOS, HE), (BOS, HE, LLO, HELLO, HE), (HELLO,)]
RESPONSES = [torch.tensor([LLO, HE, HELLO, EOS]), torch.tensor([EOS]), torch.tensor([HE, LLO, EOS])]


def of_next_token(logits: list[float], token: int, temperature: float) -> tuple[float, float]:
    """Log-probability and entropy of a token drawn from these logits."""
    model = MarkovModel([logits] * len(logits))
    logprobs, entropy = token_logprobs(model, [(0,)], [torch.tensor([token])], temperature)
    return logprobs[0].item(), entropy[0].item()


def test_the_logits_are_divided_by_the_temperature() -> None:
    assert of_next_token([2.0, 1.0, 0.0], 0, 0.6)[0] == pytest.approx(-0.2026, abs=5e-5)
    assert of_next_token([2.0, 1.0, 0.0], 0, 1.0)[0] == pytest.approx(-0.4076, abs=5e-5)


def test_the_whole_vocabulary_is_counted() -> None:
    """The two likeliest of four tokens, renormalised, would give −0.3133."""
    assert of_next_token([2.0, 1.0, 0.0, -1.0], 0, 1.0)[0] == pytest.approx(-0.4402, abs=5e-5)


@pytest.mark.parametrize(
    ("logits", "temperature", "nats"),
    [
        ([0.0, 0.0, 0.0, 0.0], 1.0, math.log(4)),
        ([math.log(3), 0.0], 1.0, 0.562335),  # p = 3/4, 1/4
        ([math.log(3), 0.0], 0.5, 0.325083),  # p = 9/10, 1/10
        ([0.0, -1e30], 1.0, 0.0),  # p = 1, 0
    ],
)
def test_entropy(logits: list[float], temperature: float, nats: float) -> None:
    assert of_next_token(logits, 0, temperature)[1] == pytest.approx(nats, abs=1e-6)


def test_a_token_is_scored_by_the_position_before_it() -> None:
    """All mass on id + 1: in 0 1 2 3 every token is certain, one position off none is."""
    table = torch.full((5, 5), -50.0)
    table[range(4), range(1, 5)] = 50.0
    for cut in (1, 2, 3):
        (logprobs,), _ = token_logprobs(
            MarkovModel(table), [tuple(range(cut))], [torch.arange(cut, 4)], 1.0
        )
        assert len(logprobs) == 4 - cut
        assert logprobs.abs().max() < 1e-6


def test_every_token_of_a_response_counts_once() -> None:
    """A table of distinct numbers: the sum over a response is the sum of its transitions."""
    log_p = torch.log_softmax(torch.arange(36.0).reshape(6, 6).sin() * 3, dim=-1)
    (logprobs,), _ = token_logprobs(MarkovModel(log_p), [(4, 2)], [torch.tensor([3, 3, 0, 5])], 1.0)
    wanted = torch.stack([log_p[2, 3], log_p[3, 3], log_p[3, 0], log_p[0, 5]])
    torch.testing.assert_close(logprobs, wanted)


@pytest.fixture(params=["llama", "qwen2"])
def random_policy(request: pytest.FixtureRequest, model_folder: Callable[[str], Path]) -> Policy:
    return load_policy(ModelConfig(path=str(model_folder(request.param))), CPU, 0)


def value_and_gradient(policy: Policy) -> tuple[Tensor, Tensor, list[Tensor]]:
    policy.model.zero_grad()
    logprobs, entropy = token_logprobs(policy.model, PROMPTS, RESPONSES, 0.7)
    weights = torch.linspace(-1, 1, len(torch.cat(logprobs)))
    (torch.cat(logprobs) * weights).sum().backward()
    gradient = [p.grad.clone() for p in policy.trainable().values()]
    return torch.cat(logprobs).detach(), torch.cat(entropy), gradient


def test_chunks_change_neither_value_nor_gradient(
    random_policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = value_and_gradient(random_policy)
    for tokens in (1, 3):
        monkeypatch.setitem(LOGITS_CHUNK, "cpu", tokens * 13)
        chunked = value_and_gradient(random_policy)
        torch.testing.assert_close(chunked, whole, rtol=0, atol=1e-6)


def test_a_row_alone_equals_the_row_in_a_padded_batch(random_policy: Policy) -> None:
    random_policy.model.train()
    together, entropies = token_logprobs(random_policy.model, PROMPTS, RESPONSES, 0.7)
    for i, (prompt, response) in enumerate(zip(PROMPTS, RESPONSES, strict=True)):
        (alone,), (entropy,) = token_logprobs(random_policy.model, [prompt], [response], 0.7)
        assert alone.shape == response.shape
        torch.testing.assert_close(together[i], alone, rtol=0, atol=1e-6)
        torch.testing.assert_close(entropies[i], entropy, rtol=0, atol=1e-6)


def test_the_entropy_carries_no_gradient(random_policy: Policy) -> None:
    logprobs, entropy = token_logprobs(random_policy.model, PROMPTS, RESPONSES, 1.0)
    assert logprobs[0].requires_grad
    assert not entropy[0].requires_grad


def test_a_half_precision_model_is_scored_in_float32(llama: Path) -> None:
    policy = load_policy(ModelConfig(path=str(llama), dtype="bfloat16"), CPU, 0)
    assert next(policy.model.parameters()).dtype == torch.bfloat16
    logprobs, entropy = token_logprobs(policy.model, PROMPTS, RESPONSES, 1.0)
    assert {logprobs[0].dtype, entropy[0].dtype} == {torch.float32}
