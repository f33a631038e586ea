"""How loud negative groups are: posterior scale, the likelihood's own scale, equivalent α's."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lens_ref import DomainError, LensConfig, Rollouts, lens_advantages, neg_to_mixed_rms
from lens_ref.extensions import equivalent_alphas, likelihood_alpha, posterior_scale
from tests.core.helpers import F64, tensor

# Sixteen normal quantiles with mean .85 and standard deviation .03, ascending.
QUANTILES = torch.distributions.Normal(0.0, 1.0).icdf((torch.arange(16, dtype=F64) + 0.5) / 16)
SPREAD = 0.85 + 0.03 * QUANTILES / QUANTILES.square().mean().sqrt()


def batch(*correct: int, confidence: Tensor = SPREAD) -> Rollouts:
    """One group of 16 a number: so many of its responses, taken from the middle, are correct."""
    rewards = torch.zeros(len(correct), 16, dtype=F64)
    for q, k in enumerate(correct):
        rewards[q, 8 - k // 2 : 8 - k // 2 + k] = 1.0
    rows = len(correct)
    return Rollouts(rewards, confidence.log().repeat(rows, 1), torch.ones(rows, 16))


def loudness(rollouts: Rollouts, config: LensConfig) -> float:
    signal = lens_advantages(rollouts, config)
    return neg_to_mixed_rms(signal.advantages, signal.info["group_kind"], signal.keep).item()


def test_posterior_scale_literals() -> None:
    """p̂ = 1/18, 2/18, ½, 17/18 of 16; 1/3 of a single wrong response."""
    k = tensor([0.0, 1, 8, 16])
    expected = [math.sqrt(17) / 18, math.sqrt(32) / 18, 0.5, math.sqrt(17) / 18]
    assert posterior_scale(k, 16).tolist() == pytest.approx(expected, rel=1e-15)
    assert posterior_scale(0, 16).item() == pytest.approx(0.229, abs=5e-4)
    assert posterior_scale(0, 1).item() == pytest.approx(math.sqrt(2) / 3, rel=1e-15)
    assert posterior_scale(0.5, tensor([1.0, 4])).tolist() == pytest.approx(
        [0.5, math.sqrt(0.25 * 0.75)]
    )


@pytest.mark.parametrize(("k", "size"), [(0, 16), (1, 16), (3, 8), (5, 5)])
def test_posterior_scale_is_that_of_a_beta_posterior(k: int, size: int) -> None:
    """The accuracy's posterior, by quadrature of a^k (1−a)^(G−k): the next verdict's std."""
    a = (torch.arange(200_000, dtype=F64) + 0.5) / 200_000
    density = a**k * (1 - a) ** (size - k)
    mean = (a * density).sum() / density.sum()  # of a verdict r; its second moment is the same
    std = (mean - mean**2).sqrt().item()
    assert posterior_scale(k, size).item() == pytest.approx(std, rel=1e-8)


def test_posterior_scale_is_continuous_where_the_std_vanishes() -> None:
    """From none correct to one: .229 to .314; GRPO's own std goes from 0 to .242."""
    near = posterior_scale(torch.linspace(0, 1, 101, dtype=F64), 16)
    assert (near.diff() > 0).all()
    assert near.diff().max() < 0.0012
    assert near[-1].item() == pytest.approx(0.3143, abs=5e-5)
    assert posterior_scale(250, 1000).item() == pytest.approx(math.sqrt(3) / 4, rel=1e-3)


def test_posterior_scale_is_the_one_in_use() -> None:
    """negative_norm="posterior_std" divides the centred odds by it."""
    rollouts = batch(0)
    config = {"negative_scale": 1.0, "alpha": 1.0}
    centred = lens_advantages(rollouts, LensConfig(**config)).advantages
    scaled = lens_advantages(rollouts, LensConfig(negative_norm="posterior_std", **config))
    assert (scaled.advantages * posterior_scale(0, 16) - centred).abs().max() < 1e-15


def test_equivalent_alphas_at_the_reference_spread() -> None:
    """π̄ = .85 ± .03, G = 16, one correct in the mixed group: .24, and .26 by the posterior."""
    rollouts = batch(0, 1)
    alphas = equivalent_alphas(rollouts)
    u = [c / (2 * SPREAD.max().item() - c) for c in SPREAD.tolist()]
    mean = sum(u) / 16
    rms = math.sqrt(sum((x - mean) ** 2 for x in u) / 16)
    assert rms == pytest.approx(0.0585, abs=5e-4)
    assert alphas["alpha_likelihood"] == pytest.approx(rms / (math.sqrt(15) / 16), rel=1e-12)
    assert alphas["alpha_likelihood"] == pytest.approx(0.242, abs=5e-4)
    assert alphas["alpha_posterior"] == pytest.approx(rms * 18 / math.sqrt(17), rel=1e-12)
    assert likelihood_alpha(rollouts) == alphas["alpha_likelihood"]


def test_equivalent_alphas_are_alphas_of_the_standardised_form() -> None:
    """demean_std at that α is as loud beside mixed groups as each scale itself; the printed form
    would need 66 instead of .25."""
    rollouts = batch(0, 1, 4, 0, 15)
    alphas = equivalent_alphas(rollouts)
    posterior = LensConfig(negative_norm="posterior_std", negative_scale=1.0, alpha=1.0)
    standard = LensConfig(negative_norm="demean_std", alpha=alphas["alpha_posterior"])
    assert loudness(rollouts, posterior) == pytest.approx(alphas["alpha_posterior"], rel=1e-12)
    assert loudness(rollouts, standard) == pytest.approx(alphas["alpha_posterior"], rel=1e-12)
    # the likelihood's scale: rewards alone in mixed groups, so that groups="negative" applies
    likelihood = LensConfig.preset("likelihood", groups="negative")
    assert loudness(rollouts, likelihood) == pytest.approx(alphas["alpha_likelihood"], rel=1e-12)
    one = batch(0, 1)
    printed = LensConfig(alpha=16 / (math.sqrt(15) / 16))
    assert printed.alpha == pytest.approx(66.1, abs=0.05)
    assert loudness(one, printed) == pytest.approx(likelihood_alpha(one), rel=1e-12)
    assert loudness(one, LensConfig()) == pytest.approx(likelihood_alpha(one) / 264, rel=0.002)


def test_the_odds_of_mixed_groups_would_lower_it_a_little() -> None:
    """With the wrong answers' odds in the mixed group too, .22 (D_imp is ≈ 16 π̄: small odds)."""
    assert loudness(batch(0, 1), LensConfig.preset("likelihood")) == pytest.approx(0.227, abs=1e-3)


def test_batches_that_lack_a_kind() -> None:
    only_mixed = equivalent_alphas(batch(3, 16))
    assert math.isnan(only_mixed["alpha_posterior"])
    assert math.isnan(only_mixed["alpha_likelihood"])
    only_negative = equivalent_alphas(batch(0, 16))
    assert only_negative["alpha_posterior"] == pytest.approx(0.2555, abs=5e-4)
    assert math.isnan(only_negative["alpha_likelihood"])
    equal = Rollouts(torch.full((1, 4), 0.3), torch.full((1, 4), -1.0), torch.ones(1, 4))
    assert all(math.isnan(alpha) for alpha in equivalent_alphas(equal).values())
    identical = batch(0, 1, confidence=torch.full((16,), 0.5, dtype=F64))
    assert equivalent_alphas(identical) == {"alpha_posterior": 0.0, "alpha_likelihood": 0.0}


def test_rows_that_do_not_count() -> None:
    """Padding and masked truncation: as the smaller group alone."""
    whole = batch(0, 1)
    rewards = torch.cat([whole.rewards, torch.full((2, 2), math.nan)], -1)
    logprobs = torch.cat([whole.logprobs, torch.full((2, 2), math.nan)], -1)
    lengths = torch.cat([whole.lengths, torch.zeros(2, 2)], -1)
    extra = torch.arange(18).expand(2, 18) >= 16
    padded = Rollouts(rewards, logprobs, lengths, valid=~extra)
    cut = Rollouts(rewards, logprobs, lengths, truncated=extra)
    expected = pytest.approx(equivalent_alphas(whole), rel=1e-12)
    assert equivalent_alphas(padded) == expected
    assert equivalent_alphas(cut, LensConfig(truncated="mask")) == expected


def test_a_group_of_two_by_hand() -> None:
    """π̄ = .4 and .2, D = .8: odds 1 and 1/3, centred ±1/3; p̂ = ¼; half of the others correct."""
    rewards = tensor([[0.0, 0.0], [1.0, 0.0]])
    log_pi = tensor([[0.4, 0.2], [0.5, 0.5]]).log()
    alphas = equivalent_alphas(Rollouts(rewards, log_pi, torch.ones(2, 2)))
    assert alphas["alpha_posterior"] == pytest.approx(4 / 3 / math.sqrt(3), rel=1e-14)
    assert alphas["alpha_likelihood"] == pytest.approx(2 / 3, rel=1e-14)


def test_guard_and_precision() -> None:
    """A guard of 3 gives smaller odds; float32 input agrees."""
    rollouts = batch(0, 1)
    wide = likelihood_alpha(rollouts, LensConfig(guard=3.0))
    u = SPREAD / (3 * SPREAD.max() - SPREAD)
    assert wide == pytest.approx(u.std(correction=0).item() * 16 / math.sqrt(15), rel=1e-12)
    single = Rollouts(rollouts.rewards.float(), rollouts.logprobs.float(), rollouts.lengths)
    assert likelihood_alpha(single) == pytest.approx(likelihood_alpha(rollouts), rel=1e-5)


def test_refusals() -> None:
    with pytest.raises(DomainError, match=r"correct\[1\] = 5: 0 <= correct <= group_size"):
        posterior_scale(tensor([1.0, 5]), 4)
    with pytest.raises(DomainError, match="group_size = 0"):
        posterior_scale(0, 0)
