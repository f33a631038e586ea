"""What every method must do, and the places where two methods are one."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lens_ref import Rollouts, methods
from tests.methods.batches import EVERYTHING, ON_ITS_OWN, batch, random_batch

SEEDS = st.integers(0, 2**31)


def advantages(name: str, rollouts: Rollouts, **hyperparameters: object) -> Tensor:
    return methods.get(name, **hyperparameters)(rollouts).advantages


@settings(max_examples=60)
@given(SEEDS)
def test_reductions(seed: int) -> None:
    rollouts = random_batch(seed)
    grpo, dr_grpo = advantages("grpo", rollouts), advantages("dr_grpo", rollouts)
    g = rollouts.rewards.shape[-1]
    own_mean = dataclasses.replace(rollouts, prior=rollouts.rewards.mean(-1))
    pairs = {
        "ngrpo without a virtual sample is grpo": (
            advantages("ngrpo", rollouts, n_virtual=0),
            grpo,
        ),
        "… at either ddof": (
            advantages("ngrpo", rollouts, n_virtual=0, ddof=1, eps=0.01),
            advantages("grpo", rollouts, ddof=1, eps=0.01),
        ),
        "passk at k = 1 is grpo": (advantages("passk", rollouts, k=1), grpo),
        "w_reinforce(0) is nsr": (
            advantages("w_reinforce", rollouts, lam=0),
            advantages("nsr", rollouts),
        ),
        "w_reinforce(1) is psr + nsr": (
            advantages("w_reinforce", rollouts, lam=1),
            advantages("psr", rollouts) + advantages("nsr", rollouts),
        ),
        "asymre(0) is dr_grpo": (advantages("asymre", rollouts, delta_v=0), dr_grpo),
        "rloo is G/(G−1) dr_grpo": (advantages("rloo", rollouts), g / (g - 1) * dr_grpo),
        "ebpo(0) is dr_grpo": (advantages("ebpo", rollouts, strength=0), dr_grpo),
        "ebpo(1) is spo, raw": (
            advantages("ebpo", rollouts, strength=1),
            advantages("spo", rollouts, whiten=False),
        ),
        "… and whitened": (
            advantages("ebpo", rollouts, strength=1, whiten=True),
            advantages("spo", rollouts),
        ),
        "spo whose prior is the group mean is dr_grpo": (
            advantages("spo", own_mean, whiten=False),
            dr_grpo,
        ),
        "dapo's advantages are grpo's": (advantages("dapo", rollouts), grpo),
        "lens on mixed groups without a penalty is grpo": (
            advantages("lens", rollouts, mixed_scale=0, negative_scale=0),
            grpo,
        ),
        "a closed gate makes avspo grpo": (advantages("avspo", rollouts), grpo),
    }
    for label, (found, expected) in pairs.items():
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13, msg=label)


@settings(max_examples=40)
@given(SEEDS)
def test_one_virtual_reward_is_ngrpo_in_a_negative_group(seed: int) -> None:
    """K = 1 at a collapse rate of 0, whatever the anchor: the std scales with it."""
    rollouts = random_batch(seed)
    negative = rollouts.rewards.sum(-1) == 0
    ngrpo = advantages("ngrpo", rollouts)[negative]
    for anchor in (0.001, 0.1, 1.0):
        avspo = advantages("avspo", rollouts, acr=0, anchor=anchor)[negative]
        torch.testing.assert_close(avspo, ngrpo, rtol=1e-12, atol=0)


@settings(max_examples=60)
@given(SEEDS)
def test_a_single_group_of_reinforce_pp_is_grpo(seed: int) -> None:
    rewards = random_batch(seed).rewards[2:3]
    rollouts = batch(rewards.tolist())
    found, expected = advantages("reinforce_pp", rollouts), advantages("grpo", rollouts)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


@settings(max_examples=60)
@given(SEEDS)
def test_pooled_difficulty_with_the_groups_own_estimate_is_lens(seed: int) -> None:
    """Handed the group's own D_imp on π̄, `lens_pooled` is LENS in mixed groups; handed less than
    the guard, it is LENS in negative groups."""
    rollouts = random_batch(seed)
    fields = {"preset": "no_scale", "difficulty_confidence": "length_normalized"}
    lens = methods.get("lens", **fields)(rollouts)
    prior = lens.info["log_difficulty"].exp()
    prior[lens.info["group_kind"] == 0] = 1e-6
    pooled = advantages("lens_pooled", dataclasses.replace(rollouts, prior=prior), **fields)
    torch.testing.assert_close(pooled, lens.advantages, rtol=1e-9, atol=1e-12)


def negative_rows(name: str, rollouts: Rollouts) -> tuple[Tensor, Tensor]:
    """Advantages and keep of the negative groups, over response tokens."""
    signal = methods.get(name)(rollouts)
    negative = rollouts.rewards.sum(-1) == 0
    rows = signal.advantages[negative]
    if rows.ndim == 3:
        rows = rows[rollouts.response_tokens(rows.shape[-1])[negative]]
    return rows, signal.keep[negative]


@settings(max_examples=50)
@given(SEEDS)
def test_negative_class_is_what_happens(seed: int) -> None:
    rollouts = random_batch(seed)
    for name in EVERYTHING:
        rows, keep = negative_rows(name, rollouts)
        declared = methods.spec(name).negative_class
        assert bool(keep.any()) is (declared != "dropped"), name
        if declared in ("zero", "dropped"):
            assert (rows == 0).all(), name
        elif declared == "zero_sum":
            assert rows.sum(-1).abs().max() < 1e-12, name
            assert rows.abs().max() > 0, name
        elif declared == "all_negative":
            assert (rows <= 0).all(), name
            assert (rows < 0).any(), name
        elif declared == "all_positive":
            assert (rows > 0).all(), name


def test_batch_dependent_means_that_sign_or_presence_changes() -> None:
    negative, correct = [0.0] * 4, [1.0] * 4

    def signs(name: str, rollouts: Rollouts, **hyperparameters: object) -> set[float]:
        return set(advantages(name, rollouts, **hyperparameters)[0].sign().tolist())

    assert signs("reinforce_pp", batch([negative, negative])) == {0.0}
    assert signs("reinforce_pp", batch([negative, correct])) == {-1.0}
    hard, easy = torch.tensor([0.1, 0.9]), torch.tensor([0.9, 0.1])
    assert signs("spo", batch([negative, negative], prior=hard)) == {1.0}
    assert signs("spo", batch([negative, negative], prior=easy)) == {-1.0}
    assert signs("ebpo", batch([negative, correct], prior=torch.zeros(2))) == {0.0}
    assert signs("ebpo", batch([negative, correct], prior=hard)) == {-1.0}
    assert signs("avspo", batch([negative, correct], prior=hard)) == {0.0}
    assert signs("avspo", batch([negative, correct], prior=easy)) == {-1.0}
    assert {n for n in EVERYTHING if n not in ON_ITS_OWN} == {
        "reinforce_pp",
        "spo",
        "ebpo",
        "avspo",
    }


def take(rollouts: Rollouts, questions: list[int], rows: list[int]) -> Rollouts:
    changed = {}
    for field in dataclasses.fields(rollouts):
        value = getattr(rollouts, field.name)
        if value is not None:
            value = value[questions]
            changed[field.name] = value if field.name == "prior" else value[:, rows]
    return dataclasses.replace(rollouts, **changed)


@pytest.mark.parametrize("name", EVERYTHING)
@settings(max_examples=25)
@given(seed=SEEDS, data=st.data())
def test_the_order_of_questions_and_responses_does_not_matter(
    name: str, seed: int, data: st.DataObject
) -> None:
    rollouts = random_batch(seed)
    questions = data.draw(st.permutations(range(5)))
    rows = data.draw(st.permutations(range(rollouts.rewards.shape[-1])))
    straight = methods.get(name)(rollouts)
    shuffled = methods.get(name)(take(rollouts, questions, rows))
    expected = straight.advantages[questions][:, rows]
    torch.testing.assert_close(shuffled.advantages, expected, rtol=1e-12, atol=1e-13)
    assert torch.equal(shuffled.keep, straight.keep[questions][:, rows])


@pytest.mark.parametrize("name", ON_ITS_OWN)
def test_groups_do_not_touch_each_other(name: str) -> None:
    rollouts = random_batch(11)
    rows = list(range(rollouts.rewards.shape[-1]))
    together = advantages(name, rollouts)
    for question in range(5):
        alone = advantages(name, take(rollouts, [question], rows))
        assert torch.equal(alone[0], together[question])


@pytest.mark.parametrize("name", EVERYTHING)
def test_pure_detached_and_in_the_right_dtype(name: str) -> None:
    for dtype in (torch.float32, torch.float64):
        rollouts = random_batch(5, dtype)
        attached = dataclasses.replace(
            rollouts, logprobs=rollouts.logprobs.clone().requires_grad_()
        )
        before = {k: v.clone() for k, v in vars(rollouts).items() if v is not None}
        signal = methods.get(name)(attached)
        for tensor in (signal.advantages, signal.keep, *signal.info.values()):
            assert not tensor.requires_grad
        assert signal.advantages.dtype == dtype
        assert signal.keep.dtype == torch.bool
        assert all(torch.equal(getattr(rollouts, k), v) for k, v in before.items())
        width = rollouts.entropy.shape[-1:] if methods.spec(name).level == "token" else ()
        assert signal.advantages.shape == (*rollouts.rewards.shape, *width)
        assert torch.equal(signal.info["group_kind"][:2], torch.tensor([0, 2]))
        assert (signal.advantages[~signal.keep] == 0).all()


@pytest.mark.parametrize("name", EVERYTHING)
def test_edges(name: str) -> None:
    """Groups of one, a batch of nothing, no valid row, fractional rewards: never NaN."""
    for reward in (0.0, 1.0):
        alone = methods.get(name)(batch([[reward]] * 3))
        assert alone.advantages.isfinite().all()
    subtracting = set(EVERYTHING) - {
        *("psr", "nsr", "w_reinforce", "asymre", "ngrpo", "rl_zvp", "ebpo", "spo", "reinforce_pp")
    }
    if name in subtracting:
        for fields in ({}, {"ddof": 1}):
            if set(fields) <= set(methods.spec(name).defaults):
                for reward in (0.0, 1.0):
                    found = advantages(name, batch([[reward]]), **fields)
                    assert (found == 0).all(), (name, fields)
    empty = methods.get(name)(
        Rollouts(
            torch.zeros(0, 4),
            torch.zeros(0, 4),
            torch.ones(0, 4),
            entropy=torch.zeros(0, 4, 2),
            mask=torch.ones(0, 4, 2, dtype=torch.bool),
            prior=torch.zeros(0),
        )
    )
    assert empty.advantages.shape[0] == 0
    nobody = batch([[0.0, 1.0]], valid=torch.zeros(1, 2, dtype=torch.bool))
    signal = methods.get(name)(nobody)
    assert (signal.advantages == 0).all()
    assert not signal.keep.any()
    if name != "passk":
        fractions = methods.get(name)(batch([[0.1, 0.1, 0.1], [0.2, 0.9, 0.0]]))
        assert fractions.advantages.isfinite().all()


def test_mixed_signs_are_never_against_the_verdict() -> None:
    """In a mixed group every method pushes right answers up more than wrong ones; pass@k may have
    nothing left to say."""
    for seed in range(40):
        rollouts = random_batch(seed)
        for name in sorted({*EVERYTHING} - {"rl_zvp", "passk"}):
            found = advantages(name, rollouts)[2]
            right = rollouts.rewards[2] == 1
            assert found[right].min() > found[~right].max(), name
