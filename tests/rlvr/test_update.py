"""The clipped update: micro-batches, denominators, kept rows, frozen old log-probabilities,
gradients that are not finite, and tokens that are never re-tokenised."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from lens_ref import Signal, methods
from lens_ref.methods import registry
from lens_ref.rlvr.batch import Batch, Samples
from lens_ref.rlvr.config import LossConfig, ModelConfig, OptimizerConfig, RolloutConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.grading import grade
from lens_ref.rlvr.policy import Policy, load_policy
from lens_ref.rlvr.tasks import Question
from lens_ref.rlvr.update import Updater, UpdateStats, loss_settings, micro_batches
from tests.rlvr.helpers import (
    BOS,
    CPU,
    EOS,
    HE,
    HELLO,
    LLO,
    ExactVerifier,
    MarkovModel,
    hand_batch,
    load_tiny,
    no_stop,
    signal,
    tiny_updater,
    toy_tokenizer,
)

ALL = slice(None)


# --- cutting into micro-batches -------------------------------------------------------------------


@given(st.lists(st.integers(1, 100), max_size=40), st.integers(1, 300))
def test_micro_batches_keep_the_budget_and_cover_each_row_once(
    lengths: list[int], budget: int
) -> None:
    chunks = list(micro_batches(lengths, budget))
    assert sorted(i for chunk in chunks for i in chunk) == list(range(len(lengths)))
    for chunk in chunks:
        assert len(chunk) == 1 or len(chunk) * max(lengths[i] for i in chunk) <= budget


def test_micro_batches_by_hand() -> None:
    # sorted: 1 2 2 5 9; three rows padded to 2 are 6 tokens, a fourth of 5 would make 20
    assert list(micro_batches([5, 2, 9, 1, 2], 8)) == [[3, 1, 4], [0], [2]]
    assert list(micro_batches([], 8)) == []


# --- the weight of a token in the gradient --------------------------------------------------------


class FreeLogprobs(nn.Module):
    """A "policy" with one free parameter for each token: its log-probability."""

    def __init__(self, samples: Samples) -> None:
        super().__init__()
        self.theta = nn.Parameter(samples.logprobs.flatten(0, 1).clone())


def free_updater(
    monkeypatch: pytest.MonkeyPatch, batch: Batch, max_new_tokens: int, **loss: Any
) -> tuple[Updater, nn.Parameter]:
    """An updater whose forward pass reads the free parameters; rows are told by their first id."""
    model = FreeLogprobs(batch.samples)
    rows = {int(ids[0]): i for i, ids in enumerate(batch.samples.ids.flatten(0, 1))}

    def forward(prompts: Any, responses: list[Tensor], temperature: float) -> Any:
        picked = [model.theta[rows[int(r[0])], : len(r)] for r in responses]
        return picked, [torch.zeros(len(r)) for r in responses]

    rollout = RolloutConfig(max_new_tokens=max_new_tokens)
    settings = OptimizerConfig(lr=1.0, warmup_updates=0, grad_clip=1e9)
    policy = Policy(model, None, (EOS,), 0, CPU)
    monkeypatch.setattr(policy, "logprobs", forward)
    updater = Updater(policy, rollout, settings, LossConfig(**loss), no_stop)
    updater.optimizer = torch.optim.SGD([model.theta], lr=1.0)
    return updater, model.theta


def two_and_eight() -> Batch:
    """Answers of 2 and 8 tokens with advantages +1 and −1."""
    batch = hand_batch([[1.0, 0.0]], [[2, 8]])
    batch.samples.ids[0, :, 0] = torch.tensor([3, 4])
    keep = torch.ones(1, 2, dtype=torch.bool)
    return replace(batch, signal=Signal(torch.tensor([[1.0, -1.0]]), keep))


@pytest.mark.parametrize("budget", [1, 9, 10_000])
@pytest.mark.parametrize(
    ("aggregation", "short", "long"),
    [
        ("sequence_mean", -1 / 4, 1 / 16),  # 1/N · 1/|o|, N = 2
        ("token_mean", -0.1, 0.1),  # ten tokens
        ("constant", -0.05, 0.05),  # two rows of at most ten tokens
    ],
)
def test_the_gradient_of_a_token_by_hand(
    aggregation: str, short: float, long: float, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = two_and_eight()
    updater, theta = free_updater(
        monkeypatch, batch, 10, aggregation=aggregation, micro_batch_tokens=budget
    )
    before = theta.detach().clone()
    stats = updater.step(batch, ALL, 0)
    assert stats.micro_batches == (1 if budget == 10_000 else 2)
    assert stats.tokens == 10
    expected = torch.tensor([[short] * 2 + [0.0] * 6, [long] * 8])
    torch.testing.assert_close(theta.grad, expected, rtol=0, atol=1e-7)
    torch.testing.assert_close(theta.detach(), before - expected, rtol=0, atol=1e-6)
    norm = math.sqrt(2 * short**2 + 8 * long**2)
    assert stats.grad_norm == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "constant"])
def test_a_row_that_is_not_kept_leaves_the_others_alone(
    aggregation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its tokens nor its place in the denominator count."""
    batch = two_and_eight()
    dropped = replace(batch, signal=replace(batch.signal, keep=torch.tensor([[True, False]])))
    updater, theta = free_updater(monkeypatch, dropped, 10, aggregation=aggregation)
    stats = updater.step(dropped, ALL, 0)
    size = {"sequence_mean": 1 / 2, "token_mean": 1 / 2, "constant": 1 / 10}[aggregation]
    expected = torch.zeros(2, 8)
    expected[0, :2] = -size
    torch.testing.assert_close(theta.grad, expected)
    assert stats.tokens == 2


def test_token_level_advantages_reach_their_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = two_and_eight()
    advantages = torch.arange(16.0).reshape(1, 2, 8)
    batch = replace(batch, signal=replace(batch.signal, advantages=advantages))
    updater, theta = free_updater(
        monkeypatch, batch, 10, aggregation="token_mean", micro_batch_tokens=1
    )
    updater.step(batch, ALL, 0)
    expected = torch.tensor([[0, 1, *[0] * 6], list(range(8, 16))]) / -10
    torch.testing.assert_close(theta.grad, expected)


def test_only_the_chosen_questions_are_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = hand_batch([[1.0, 0.0]] * 3, [[2, 2]] * 3, vocabulary=100)
    batch.samples.ids[..., 0] = torch.arange(6).reshape(3, 2)
    keep = torch.ones(3, 2, dtype=torch.bool)
    batch = replace(batch, signal=Signal(torch.tensor([[1.0, -1.0]] * 3), keep))
    updater, theta = free_updater(monkeypatch, batch, 10)
    updater.step(batch, slice(1, 2), 0)
    assert theta.grad.abs().sum(-1).tolist() == [0, 0, 0.5, 0.5, 0, 0]


def gradients(policy: Policy) -> list[Tensor]:
    return [p.grad.clone() for p in policy.trainable().values()]


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean", "constant"])
def test_weights_do_not_depend_on_the_micro_batches(aggregation: str, batch: Batch) -> None:
    """The bundled policy on real answers of many lengths, one optimizer step of plain descent."""
    batch = replace(batch, signal=signal(batch, "lens", preset="likelihood"))
    weights, counts = [], []
    for budget in (1, 150, 100_000):
        policy = load_tiny()
        updater = tiny_updater(policy, aggregation=aggregation, micro_batch_tokens=budget)
        updater.optimizer = torch.optim.SGD(policy.trainable().values(), lr=0.0)
        updater.config = replace(updater.config, lr=1.0, warmup_updates=0)
        counts.append(updater.step(batch, ALL, 0).micro_batches)
        weights.append(torch.cat([p.detach().flatten() for p in policy.trainable().values()]))
    assert counts[0] == 32
    assert counts[0] > counts[1] > counts[2] == 1
    moved = (weights[2] - torch.cat([p.flatten() for p in load_tiny().trainable().values()])).abs()
    assert moved.max() > 1e-3
    for cut in weights[:2]:
        torch.testing.assert_close(cut, weights[2], rtol=0, atol=1e-6)


# --- the first update and the next ones -----------------------------------------------------------


def test_on_policy_the_loss_is_zero_and_the_gradient_is_not(batch: Batch) -> None:
    batch = replace(batch, signal=signal(batch, "grpo"))
    stats = tiny_updater(load_tiny()).step(batch, ALL, 0)
    assert abs(stats.loss) < 1e-5
    assert stats.mean_ratio == pytest.approx(1, abs=1e-6)
    assert stats.clip_fraction == 0
    assert stats.approx_kl == pytest.approx(0, abs=1e-9)
    assert stats.drift < 1e-6
    assert stats.grad_norm > 1e-3
    assert 0.1 < stats.entropy < math.log(50)


def test_old_logprobs_are_frozen_for_all_updates_of_a_batch(batch: Batch) -> None:
    batch = replace(batch, signal=signal(batch, "grpo"))
    frozen = batch.old_logprobs.clone()
    updater = tiny_updater(load_tiny())
    updater.config = replace(updater.config, lr=1e-2, warmup_updates=0)
    stats = [updater.step(batch, ALL, update) for update in range(4)]
    assert torch.equal(batch.old_logprobs, frozen)
    assert [s.clip_fraction > 0 for s in stats] == [False, True, True, True]
    assert stats[3].approx_kl > stats[0].approx_kl
    assert stats[3].drift > 0.01


def test_old_logprobs_of_the_sampler(tiny: Policy, batch: Batch) -> None:
    updater = tiny_updater(tiny, old_logprobs="sampler")
    frozen = updater.freeze_old(replace(batch, old_logprobs=None, entropy=None))
    assert torch.equal(frozen.old_logprobs, batch.samples.logprobs)
    assert frozen.entropy is None
    mask = batch.samples.mask
    gap = (frozen.old_logprobs - batch.old_logprobs).abs()[mask]
    assert 0 < gap.max() < 1e-4


def test_old_logprobs_do_not_depend_on_the_micro_batches(tiny: Policy, batch: Batch) -> None:
    again = tiny_updater(tiny, micro_batch_tokens=1).freeze_old(batch)
    torch.testing.assert_close(again.old_logprobs, batch.old_logprobs, rtol=0, atol=1e-5)
    torch.testing.assert_close(again.entropy, batch.entropy, rtol=0, atol=1e-5)


def test_grpo_learns_nothing_from_negative_groups_and_lens_does(batch: Batch) -> None:
    wrong = replace(batch, rewards=torch.zeros_like(batch.rewards))
    found = {}
    for method in ("grpo", "lens"):
        policy = load_tiny()
        before = [p.detach().clone() for p in policy.trainable().values()]
        stats = tiny_updater(policy).step(replace(wrong, signal=signal(wrong, method)), ALL, 0)
        found[method] = stats.grad_norm
        moved = any(
            not torch.equal(a, b) for a, b in zip(before, policy.trainable().values(), strict=True)
        )
        assert moved == (method == "lens")
    assert found["grpo"] == 0.0
    assert found["lens"] > 1e-6


# --- learning rate, clipping, published losses ----------------------------------------------------


def markov_update(optimizer: OptimizerConfig, updates: int) -> list[UpdateStats]:
    """A few updates of a two-token policy."""
    model = MarkovModel(torch.zeros(len("ab"), 2))
    policy = Policy(model, None, (1,), 0, CPU)
    batch = hand_batch([[1.0, 0.0]], [[1, 1]], token_logprob=-math.log(2), vocabulary=2)
    batch = replace(batch, prompts=((0,),))
    batch.samples.ids[0, :, 0] = torch.tensor([0, 1])
    keep = torch.ones(1, 2, dtype=torch.bool)
    batch = replace(batch, signal=Signal(torch.tensor([[1.0, -1.0]]), keep))
    updater = Updater(policy, RolloutConfig(), optimizer, LossConfig(), no_stop)
    return [updater.step(batch, ALL, update) for update in range(updates)]


@pytest.mark.parametrize(
    ("warmup", "rates"),
    [(4, [0.025, 0.05, 0.075, 0.1, 0.1, 0.1]), (1, [0.1] * 3), (0, [0.1] * 3)],
)
def test_warm_up_by_hand(warmup: int, rates: list[float]) -> None:
    stats = markov_update(OptimizerConfig(lr=0.1, warmup_updates=warmup), len(rates))
    assert [s.lr for s in stats] == pytest.approx(rates)


def test_the_gradient_norm_is_logged_before_clipping() -> None:
    """p = 1/2 each: dL/dlogit = −(1/2)(1 + 1)(1/2) = −1/2 and +1/2, of norm 1/√2."""
    for clip in (1e-3, 1e3):
        (stats,) = markov_update(OptimizerConfig(lr=0.1, grad_clip=clip), 1)
        assert stats.grad_norm == pytest.approx(1 / math.sqrt(2), rel=1e-6)


def test_as_published_uses_the_methods_own_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = registry.PublishedLoss(clip_high=0.28, aggregation="token_mean")
    spec = replace(methods.spec("grpo"), name="raised", loss=raised)
    monkeypatch.setitem(registry._REGISTRY, "raised", spec)
    own = LossConfig(clip_low=0.1, clip_high=0.1, aggregation="sequence_mean", as_published=True)

    def found(method: str, config: LossConfig = own) -> tuple[float, float, str]:
        used = loss_settings(config, method)
        return used.clip_low, used.clip_high, used.aggregation

    assert found("raised") == (0.2, 0.28, "token_mean")
    assert found("dr_grpo") == (0.2, 0.2, "constant")
    assert found("lens") == (0.2, 0.2, "sequence_mean")
    assert found("raised", replace(own, as_published=False)) == (0.1, 0.1, "sequence_mean")


# --- numbers that are not finite ------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(value: float, batch: Batch) -> None:
    batch = replace(batch, signal=signal(batch, "grpo"))
    policy = load_tiny()
    updater = tiny_updater(policy)
    updater.step(batch, ALL, 0)  # so that there are moments to spoil
    parameters = list(policy.trainable().values())
    kept = [p.detach().clone() for p in parameters]
    moments = [{k: v.clone() for k, v in updater.optimizer.state[p].items()} for p in parameters]
    spoiler = parameters[3].register_hook(lambda g: g * value)
    with pytest.raises(UserError, match=r"update 2: .*the weights are unchanged"):
        updater.step(batch, ALL, 1)
    assert all(torch.equal(a, b) for a, b in zip(kept, parameters, strict=True))
    for parameter, before in zip(parameters, moments, strict=True):
        after = updater.optimizer.state[parameter]
        assert all(torch.equal(after[k], before[k]) for k in before)
    spoiler.remove()
    assert updater.step(batch, ALL, 1).grad_norm > 0  # and it can go on


@pytest.mark.parametrize("spoil", ["weights", "ratio"])
def test_a_policy_that_has_blown_up_is_one_line(spoil: str, batch: Batch) -> None:
    batch = replace(batch, signal=signal(batch, "grpo"))
    policy = load_tiny()
    if spoil == "weights":
        policy.model.model.layers[0].mlp.up_proj.weight.data[0, 0] = math.nan
    else:
        batch = replace(batch, old_logprobs=batch.old_logprobs - 200)
    with pytest.raises(UserError, match=r"update 1: .*the weights are unchanged") as caught:
        tiny_updater(policy).step(batch, ALL, 0)
    assert "\n" not in str(caught.value)


def test_padding_may_hold_anything(batch: Batch) -> None:
    batch = replace(batch, signal=signal(batch, "grpo"))
    mask = batch.samples.mask
    spoilt = replace(batch, old_logprobs=batch.old_logprobs.masked_fill(~mask, math.nan))
    clean, dirty = load_tiny(), load_tiny()
    expected, found = (
        tiny_updater(clean).step(batch, ALL, 0),
        tiny_updater(dirty).step(spoilt, ALL, 0),
    )
    assert found == expected
    assert all(torch.equal(a, b) for a, b in zip(gradients(clean), gradients(dirty), strict=True))


def test_a_batch_without_a_kept_row_is_a_step_of_nothing(batch: Batch) -> None:
    nothing = replace(signal(batch, "grpo"), keep=torch.zeros(8, 4, dtype=torch.bool))
    policy = load_tiny()
    stats = tiny_updater(policy).step(replace(batch, signal=nothing), ALL, 0)
    assert (stats.loss, stats.grad_norm, stats.tokens, stats.micro_batches) == (0, 0, 0, 0)
    fresh = load_tiny().trainable()
    assert all(torch.equal(p, fresh[n]) for n, p in policy.trainable().items())


# --- tokens are kept ------------------------------------------------------------------------------


def test_sampled_ids_are_never_re_tokenised(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """he + llo reads "hello", which is one other token: what was sampled is what is trained."""
    tokenizer = toy_tokenizer()
    assert tokenizer.decode([HE, LLO]) == "hello"
    assert tokenizer("hello").input_ids == [HELLO]
    policy = load_policy(ModelConfig(path=str(llama)), CPU, 0)
    seen: list[list[int]] = []
    real = policy.logprobs

    def spy(prompts: Any, responses: list[Tensor], temperature: float) -> Any:
        seen.extend(r.tolist() for r in responses)
        return real(prompts, responses, temperature)

    monkeypatch.setattr(policy, "logprobs", spy)
    ids = torch.tensor([[[HE, LLO, EOS], [HELLO, EOS, EOS]]])
    samples = Samples(
        ids, torch.tensor([[3, 2]]), torch.zeros(1, 2, 3), torch.zeros(1, 2, dtype=torch.bool)
    )
    batch = Batch(0, (Question("q", "a", "hello"),), ((BOS,),), samples)
    batch = grade(batch, policy.tokenizer, ExactVerifier())
    assert batch.texts == (("hello", "hello"),)
    updater = tiny_updater(policy)
    batch = updater.freeze_old(batch)
    keep = torch.ones(1, 2, dtype=torch.bool)
    updater.step(replace(batch, signal=Signal(torch.tensor([[1.0, -1.0]]), keep)), ALL, 0)
    assert sorted(seen) == sorted([[HE, LLO, EOS], [HELLO, EOS]] * 2)
