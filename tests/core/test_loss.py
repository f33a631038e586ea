"""The clipped surrogate: hand literals, and what may not change loss or gradient."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lens_ref import LossOutput, Rollouts, grpo_loss, lens_advantages
from tests.core.helpers import F64, assert_close, tensor

AGGREGATIONS = ("sequence_mean", "token_mean", "constant")


def run(
    new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, **options: Any
) -> tuple[LossOutput, Tensor]:
    """The loss and its gradient in the new log-probabilities."""
    new = new.detach().clone().requires_grad_()
    output = grpo_loss(new, old, advantages, mask, **options)
    output.loss.backward()
    return output, new.grad


def ones(*lengths: int, width: int = 0) -> Tensor:
    """A mask of rows of these lengths."""
    width = width or max(lengths)
    return torch.arange(width) < torch.tensor(lengths).unsqueeze(-1)


def test_gradient_on_policy_is_the_advantage_over_n_and_length() -> None:
    """Ratio 1: −A/(N·|o|) a token. The loss is 0 where advantages sum to 0; the gradient isn't."""
    logprobs = torch.full((2, 4), -1.0, dtype=F64)
    output, gradient = run(logprobs, logprobs, tensor([3.0, -1.0]), ones(2, 4))
    assert gradient.tolist() == [[-0.75, -0.75, 0, 0], [0.125] * 4]
    assert output.loss.item() == -1.0
    output, gradient = run(logprobs, logprobs, tensor([1.0, -1.0]), ones(2, 4))
    assert abs(output.loss.item()) < 1e-12
    assert gradient.norm() > 0.1
    assert output.mean_ratio.item() == 1.0
    assert output.clip_fraction.item() == 0.0
    assert output.approx_kl.item() == 0.0


def test_four_quadrants_of_the_clip() -> None:
    """Ratio 1.5 and .5 against advantages of either sign, clip .2: the pessimistic branch."""
    new = tensor([1.5, 1.5, 0.5, 0.5]).log().unsqueeze(-1)
    output, gradient = run(
        new, torch.zeros(4, 1, dtype=F64), tensor([1.0, -1, 1, -1]), ones(1, 1, 1, 1), denominator=1
    )
    # min(1.5, 1.2) = 1.2; min(−1.5, −1.2) = −1.5; min(.5, .8) = .5; min(−.5, −.8) = −.8
    assert output.loss.item() == pytest.approx(-(1.2 - 1.5 + 0.5 - 0.8))
    assert gradient.flatten().tolist() == pytest.approx([0, 1.5, -0.5, 0])
    assert output.clip_fraction.item() == 0.5
    assert output.mean_ratio.item() == pytest.approx(1.0)
    assert output.approx_kl.item() == pytest.approx(-math.log(0.75) / 2)


def test_asymmetric_clip() -> None:
    new = tensor([[1.25], [1.25], [0.75], [0.75]]).log()
    advantages, mask = tensor([1.0, -1, 1, -1]), ones(1, 1, 1, 1)
    old = torch.zeros(4, 1, dtype=F64)
    _, gradient = run(new, old, advantages, mask, clip_high=0.28, denominator=1)
    assert gradient.flatten().tolist() == pytest.approx([-1.25, 1.25, -0.75, 0])
    _, gradient = run(new, old, advantages, mask, clip_low=0.3, denominator=1)
    assert gradient.flatten().tolist() == pytest.approx([0, 1.25, -0.75, 0.75])


def test_aggregations_by_hand() -> None:
    """Lengths 2 and 8, advantages +1 and −1, ratio 1."""
    logprobs = torch.full((2, 8), -0.5, dtype=F64)
    arguments = (logprobs, logprobs, tensor([1.0, -1.0]), ones(2, 8))
    for options, loss, weights in (
        ({"aggregation": "sequence_mean"}, 0.0, (-1 / 4, 1 / 16)),
        ({"aggregation": "token_mean"}, 0.6, (-0.1, 0.1)),
        ({"aggregation": "constant", "denominator": 2 * 8}, 6 / 16, (-1 / 16, 1 / 16)),
        ({"aggregation": "sequence_mean", "denominator": 8}, 0.0, (-1 / 16, 1 / 64)),
    ):
        output, gradient = run(*arguments, **options)
        assert output.loss.item() == pytest.approx(loss, abs=1e-15)
        assert gradient[:, 0].tolist() == pytest.approx(list(weights))
    # Lengths 1 and 99: the mean over tokens is carried by the long response.
    logprobs = torch.zeros(2, 99, dtype=F64)
    output, _ = run(logprobs, logprobs, tensor([1.0, -1.0]), ones(1, 99), aggregation="token_mean")
    assert output.loss.item() == pytest.approx(0.98)


def test_advantages_of_each_token() -> None:
    logprobs = torch.zeros(1, 3, dtype=F64)
    output, gradient = run(logprobs, logprobs, tensor([[1.0, 2.0, 4.0]]), ones(2, width=3))
    assert output.loss.item() == -1.5
    assert gradient.tolist() == [[-0.5, -1.0, 0.0]]


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Tensor]:
    """Rows of 0 to 5 tokens, off-policy so that some tokens are clipped."""
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    g = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    shape = (len(lengths), 5)
    old = -torch.rand(shape, generator=g, dtype=F64)
    new = old + 0.4 * torch.randn(shape, generator=g, dtype=F64)
    advantages = torch.randn(shape[0], generator=g, dtype=F64)
    return {
        "new": new,
        "old": old,
        "advantages": advantages.where(torch.rand(shape[0], generator=g) < 0.8, 0.0),
        "mask": ones(*lengths, width=5),
    }


def whole_denominator(aggregation: str, mask: Tensor) -> dict[str, Any]:
    if aggregation == "constant":
        return {"aggregation": aggregation, "denominator": mask.numel()}
    return {"aggregation": aggregation}


@given(batches(), st.sampled_from(AGGREGATIONS), st.integers(1, 4))
def test_padding_and_masked_garbage_do_not_matter(
    batch: dict[str, Tensor], aggregation: str, extra: int
) -> None:
    """More columns, a fully masked row and NaN or −inf behind the mask change nothing."""
    options = whole_denominator(aggregation, batch["mask"])
    plain, gradient = run(**batch, **options)
    rows, width = batch["new"].shape

    def grown(x: Tensor, garbage: float) -> Tensor:
        larger = torch.full((rows + 1, width + extra), garbage, dtype=F64)
        larger[:rows, :width] = x.where(batch["mask"], garbage)
        return larger

    mask = torch.zeros(rows + 1, width + extra, dtype=torch.bool)
    mask[:rows, :width] = batch["mask"]
    for garbage in (math.nan, -math.inf, math.inf):
        output, larger_gradient = run(
            grown(batch["new"], garbage),
            grown(batch["old"], math.nan),
            torch.cat([batch["advantages"], tensor([math.nan])]),
            mask,
            **options,
        )
        for name, value in output._asdict().items():
            assert value.item() == pytest.approx(getattr(plain, name).item(), abs=1e-14), name
        torch.testing.assert_close(larger_gradient[:rows, :width], gradient, rtol=0, atol=1e-15)
        assert (larger_gradient[~mask] == 0).all()


@given(batches(), st.sampled_from(AGGREGATIONS), st.integers(1, 3))
def test_cutting_a_batch_does_not_matter(
    batch: dict[str, Tensor], aggregation: str, size: int
) -> None:
    """Micro-batches that pass the whole batch's denominator add up to its loss and gradient."""
    mask = batch["mask"]
    whole, gradient = run(**batch, **whole_denominator(aggregation, mask))
    rows = [i for i, tokens in enumerate(mask.sum(-1).tolist()) if tokens]
    denominator = {
        "sequence_mean": max(len(rows), 1),
        "token_mean": max(int(mask.sum()), 1),
        "constant": mask.numel(),
    }[aggregation]
    loss, pieces = 0.0, []
    for start in range(0, len(mask), size):
        part = {name: value[start : start + size] for name, value in batch.items()}
        output, piece = run(**part, aggregation=aggregation, denominator=denominator)
        loss += output.loss.item()
        pieces.append(piece)
    assert loss == pytest.approx(whole.loss.item(), abs=1e-13)
    torch.testing.assert_close(torch.cat(pieces), gradient, rtol=0, atol=1e-14)


def test_micro_batch_denominator_by_hand() -> None:
    """Lengths 2 and 8 cut apart: each token still weighs 1/10, not 1/2 and 1/8."""
    logprobs = torch.zeros(1, 8, dtype=F64)
    for length, advantage, weight in ((2, 1.0, -0.1), (8, -1.0, 0.1)):
        _, gradient = run(
            logprobs,
            logprobs,
            tensor([advantage]),
            ones(length, width=8),
            aggregation="token_mean",
            denominator=10,
        )
        assert gradient[0, 0].item() == pytest.approx(weight)


@given(batches(), st.sampled_from(AGGREGATIONS), st.sampled_from([0.25, 3.0]))
def test_alpha_on_the_advantage_is_alpha_on_the_loss(
    batch: dict[str, Tensor], aggregation: str, alpha: float
) -> None:
    """The clipped surrogate is positively homogeneous in A."""
    options = whole_denominator(aggregation, batch["mask"])
    output, gradient = run(**batch, **options)
    scaled = {**batch, "advantages": alpha * batch["advantages"]}
    scaled_output, scaled_gradient = run(**scaled, **options)
    assert scaled_output.loss.item() == pytest.approx(alpha * output.loss.item(), abs=1e-14)
    torch.testing.assert_close(scaled_gradient, alpha * gradient, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_fully_masked_batch(aggregation: str) -> None:
    garbage = torch.full((2, 3), math.nan)
    options = {"denominator": 6} if aggregation == "constant" else {}
    output, gradient = run(
        garbage,
        garbage,
        tensor([math.nan, 1.0]),
        torch.zeros(2, 3, dtype=torch.bool),
        aggregation=aggregation,
        **options,
    )
    assert [value.item() for value in output] == [0.0, 0.0, 0.0, 0.0]
    assert (gradient == 0).all()


def test_masked_garbage_without_validation() -> None:
    """The mask selects; it doesn't multiply, for 0 · NaN is NaN."""
    new = tensor([[-1.0, math.nan], [-1.0, math.inf]])
    output, gradient = run(new, new, tensor([1.0, 2.0]), ones(1, 1, width=2), validate=False)
    assert output.loss.item() == pytest.approx(-1.5)
    assert gradient.tolist() == [[-0.5, 0.0], [-1.0, 0.0]]


def test_what_counts_in_the_denominator() -> None:
    """A masked row leaves it, a row of advantage 0 (a correct group) stays in it."""
    logprobs = torch.zeros(3, 4, dtype=F64)
    for aggregation in ("sequence_mean", "token_mean"):
        alone, _ = run(logprobs[:1], logprobs[:1], tensor([2.0]), ones(4), aggregation=aggregation)
        assert alone.loss.item() == -2.0
        masked, _ = run(
            logprobs[:2], logprobs[:2], tensor([2.0, 5.0]), ones(4, 0), aggregation=aggregation
        )
        assert masked.loss.item() == -2.0
        diluted, _ = run(
            logprobs[:2], logprobs[:2], tensor([2.0, 0.0]), ones(4, 4), aggregation=aggregation
        )
        assert diluted.loss.item() == -1.0


def test_gradient_flows_into_the_new_policy_alone() -> None:
    new, old = torch.zeros(1, 2).requires_grad_(), torch.full((1, 2), -0.1).requires_grad_()
    advantages = torch.ones(1).requires_grad_()
    output = grpo_loss(new, old, advantages, ones(2))
    output.loss.backward()
    assert new.grad is not None
    assert old.grad is None
    assert advantages.grad is None
    assert not any(value.requires_grad for value in output[1:])


def test_half_precision_is_upcast() -> None:
    new = torch.tensor([[-0.5, -0.25]], dtype=torch.bfloat16).requires_grad_()
    output = grpo_loss(new, torch.tensor([[-0.5, -0.5]]).bfloat16(), torch.ones(1), ones(2))
    assert output.loss.dtype == torch.float32
    assert output.loss.item() == pytest.approx(-(1 + 1.2) / 2)
    output.loss.backward()
    assert new.grad.dtype == torch.bfloat16
    # Advantages in float64 leave a float32 model in float32.
    assert grpo_loss(*[torch.zeros(1, 2)] * 2, tensor([1.0]), ones(2)).loss.dtype == torch.float32


def test_float32_at_4096_tokens() -> None:
    g = torch.Generator().manual_seed(0)
    old = -torch.rand(4, 4096, generator=g, dtype=F64)
    new = old + 0.1 * torch.randn(4, 4096, generator=g, dtype=F64)
    advantages, mask = tensor([1.0, -0.5, 0.3, -0.01]), ones(4096, 4000, 10, 4096)
    for aggregation in AGGREGATIONS:
        options = whole_denominator(aggregation, mask)
        exact, exact_gradient = run(new, old, advantages, mask, **options)
        single, gradient = run(new.float(), old.float(), advantages.float(), mask, **options)
        assert single.loss.item() == pytest.approx(exact.loss.item(), rel=1e-5, abs=1e-6)
        assert_close(gradient, exact_gradient, 1e-6)
        assert single.approx_kl.item() == pytest.approx(exact.approx_kl.item(), rel=1e-3)


def test_one_step_raises_correct_responses_and_lowers_confident_wrong_ones() -> None:
    """From rollouts to the sign of the update, on-policy, in one mixed and one negative group."""
    rewards = tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    tokens = tensor([[[-0.1, -0.2]] * 3, [[-0.1, -0.1], [-0.5, -0.5], [-1.0, -1.0]]])
    rollouts = Rollouts(rewards, tokens.sum(-1), torch.full((2, 3), 2))
    advantages = lens_advantages(rollouts).advantages.flatten()
    flat = tokens.reshape(6, 2)
    _, gradient = run(flat, flat, advantages, ones(*[2] * 6))
    assert (-gradient[:, 0]).sign().tolist() == [1, -1, -1, -1, 1, 1]
