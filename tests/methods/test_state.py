"""Methods that keep numbers between batches: what they remember, by hand; nothing is changed in
place; JSON holds it all."""

from __future__ import annotations

import copy
import json

import pytest
import torch

from lens_ref import Rollouts, methods
from tests.core.helpers import tensor
from tests.methods.batches import STATEFUL, batch, random_batch


def test_which() -> None:
    assert STATEFUL == ["avspo", "ebpo", "lens_pooled", "spo"]
    for name in methods.names():
        if name not in STATEFUL:
            with pytest.raises(ValueError, match=f"{name} keeps no state"):
                methods.spec(name).init_state()


@pytest.mark.parametrize("name", STATEFUL)
def test_update_is_pure_and_json_holds_the_state(name: str) -> None:
    spec = methods.spec(name)
    state = spec.init_state()
    for seed in range(4):
        rollouts = random_batch(seed)
        ids = [f"q{(seed + i) % 7}" for i in range(5)]
        before = copy.deepcopy(state)
        after = spec.update(state, rollouts, ids)
        assert state == before
        assert after != state
        assert json.loads(json.dumps(after)) == after
        prior = spec.prior(after, ids)
        assert prior.shape == (5,)
        assert prior.dtype == torch.float64
        again = spec.update(json.loads(json.dumps(state)), rollouts, ids)
        assert again == after
        state = after


@pytest.mark.parametrize("name", STATEFUL)
def test_rows_that_do_not_count_leave_no_trace(name: str) -> None:
    spec = methods.spec(name)
    valid = torch.tensor([[True, True, False], [False, False, False]])
    rewards = [[1.0, 0.0, torch.nan], [torch.nan] * 3]
    ragged = batch(rewards, [[0.5, 0.5, 0.5]] * 2, valid=valid)
    small = batch([[1.0, 0.0]], [[0.5, 0.5]])
    found = spec.update(spec.init_state(), ragged, ["a", "b"])
    assert found == spec.update(spec.init_state(), small, ["a"])


@pytest.mark.parametrize("name", STATEFUL)
def test_bad_ids_and_settings(name: str) -> None:
    spec = methods.spec(name)
    with pytest.raises(ValueError, match="question_ids has 2 entries for 5 questions"):
        spec.update(spec.init_state(), random_batch(0), ["a", "b"])
    with pytest.raises(ValueError, match="unknown hyperparameter 'speed'"):
        spec.init_state(speed=1.0)
    state = spec.update(spec.init_state(), batch([[1.0, 0.0]]), [7])
    assert torch.equal(spec.prior(state, [7]), spec.prior(state, ["7"]))


def test_lens_pooled() -> None:
    """c = 16, D₀ = 1. Three visits of G = 2: nothing correct, then one at π̄ = .25, then both at
    π̄ = .5: 1/D̂ = 16/18, (16 + 4)/20, (16 + 4 + 2 + 2)/22."""
    spec = methods.spec("lens_pooled")
    state = spec.init_state()
    visits = [([0.0, 0.0], [0.9, 0.1]), ([1.0, 0.0], [0.25, 0.9]), ([1.0, 1.0], [0.5, 0.5])]
    expected = [18 / 16, 1.0, 22 / 24]
    assert spec.prior(state, ["a"]).tolist() == [1.0]
    for (rewards, confidence), difficulty in zip(visits, expected, strict=True):
        rollouts = batch([rewards], [confidence], [[3, 5]])  # π̄, so lengths don't matter
        state = spec.update(state, rollouts, ["a"])
        assert spec.prior(state, ["a"]).tolist() == pytest.approx([difficulty])
    assert spec.prior(state, ["b", "a"]).tolist() == pytest.approx([1.0, expected[-1]])
    own = spec.init_state(count=2, d0=4)
    own = spec.update(own, batch([[1.0, 0.0]], [[0.25, 0.9]]), ["a"])
    assert spec.prior(own, ["a"]).tolist() == pytest.approx([4 / 4.5])
    same = spec.update(own, batch([[0.0], [1.0]], [[0.5], [0.5]]), ["a", "a"])
    assert spec.prior(same, ["a"]).tolist() == pytest.approx([6 / 6.5])  # an id may come twice


def test_a_question_never_solved_fades_as_one_over_n() -> None:
    """D̂ = (1 + n/c) D₀, so the odds of a wrong answer fall as 1/n, where the fallback keeps 1."""
    spec, method = methods.spec("lens_pooled"), methods.get("lens_pooled")
    state, loudest = spec.init_state(), []
    for _ in range(200):
        rollouts = batch([[0.0] * 16], [[0.9, *[0.5] * 15]], prior=spec.prior(state, ["q"]))
        signal = method(rollouts)
        loudest.append(float(signal.info["odds"].max()))
        state = spec.update(state, rollouts, ["q"])
    assert loudest[0] == pytest.approx(1.0)  # the guard: D = 2 · .9
    assert loudest[49] == pytest.approx(0.9 / (50 - 0.9))  # D̂ = 1 + 49
    assert loudest[199] / loudest[99] == pytest.approx((100 - 0.9) / (200 - 0.9))
    fallback = methods.get("lens", preset="neg_unscaled")(rollouts)
    assert float(fallback.info["odds"].max()) == pytest.approx(1.0)


def test_pooling_removes_the_jump_at_zero_correct() -> None:
    """Sixteen answers at π̄ = .85. The odds that a wrong one pays for k = 4, 2, 1 correct are
    1/3, 1/7, 1/15, and then jump to 1 at k = 0; with D pooled over a past of one correct in
    sixteen they stay near 1/15 throughout."""
    confidence = [[0.85] * 16]
    groups = {k: [[1.0] * k + [0.0] * (16 - k)] for k in (4, 2, 1, 0)}
    lens = methods.get("lens", difficulty_confidence="length_normalized")
    alone = {k: float(lens(batch(g, confidence)).info["odds"][0, -1]) for k, g in groups.items()}
    assert alone == pytest.approx({4: 1 / 3, 2: 1 / 7, 1: 1 / 15, 0: 1.0})
    spec, method = methods.spec("lens_pooled"), methods.get("lens_pooled")
    state = spec.init_state()
    for _ in range(100):
        state = spec.update(state, batch(groups[1], confidence), ["q"])
    prior = spec.prior(state, ["q"])
    pooled = {
        k: float(method(batch(g, confidence, prior=prior)).info["odds"][0, -1])
        for k, g in groups.items()
    }
    assert max(pooled.values()) - min(pooled.values()) < 1e-12
    assert pooled[0] == pytest.approx(
        1 / 15, rel=0.15
    )  # c = 16 pseudo-samples still weigh a little


def test_pooled_difficulty_is_unbiased_under_policy_drift() -> None:
    """E[r/π̄] over one response is Σ_correct π/π̄, whoever drew it, if π̄ is the drawing policy's. At
    length 1 that is the number of correct options: enumerate six options under two policies."""
    spec = methods.spec("lens_pooled")
    for policy in ([0.4, 0.1, 0.2, 0.1, 0.1, 0.1], [0.01, 0.02, 0.9, 0.03, 0.03, 0.01]):
        mean = 0.0
        for option, p in enumerate(policy):
            state = spec.init_state(count=1e-9, d0=1.0)
            rollouts = batch([[float(option < 2)]], [[p]])
            state = spec.update(state, rollouts, ["q"])
            mean += p / float(spec.prior(state, ["q"]))
        assert mean == pytest.approx(2.0)


def test_ebpo() -> None:
    """Group means 1/2, 0, 1 (Welford: mean 1/2, variance 1/4); variances inside 1/3, 0, 0."""
    spec = methods.spec("ebpo")
    state = spec.init_state()
    assert spec.prior(state, ["a", "b"]).tolist() == [0.0, 0.0]
    assert spec.state_hyperparameters(state, 4) == {}
    first = batch([[1.0, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    state = spec.update(state, first, ["a", "b", "c"])
    assert spec.prior(state, ["zzz"]).tolist() == pytest.approx([0.5])
    noise, between = (1 / 9) / 4, 1 / 4
    strength = spec.state_hyperparameters(state, 4)["strength"]
    assert strength == pytest.approx(noise / (noise + between))
    more = spec.update(state, batch([[0.0, 0, 0, 1]]), ["a"])
    assert spec.prior(more, ["a"]).tolist() == pytest.approx([1.75 / 4])
    apart = spec.update(spec.init_state(), batch([[1.0, 0.0]] * 2), ["a", "b"])
    assert spec.state_hyperparameters(apart, 2) == {"strength": 1.0}  # all means equal: pool fully
    same = spec.update(spec.init_state(), batch([[1.0, 1.0]] * 2), ["a", "b"])
    assert spec.state_hyperparameters(same, 2) == {}  # no variance at all


def test_spo() -> None:
    """Eight pseudo-observations of mean ½; then 3 of 4 correct: a = .875·4 + 3, b = .875·4 + 1."""
    spec = methods.spec("spo")
    state = spec.init_state()
    assert spec.prior(state, ["a"]).tolist() == [0.5]
    state = spec.update(state, batch([[1.0, 1, 1, 0]]), ["a"])
    assert spec.prior(state, ["a", "b"]).tolist() == pytest.approx([6.5 / 11, 0.5])
    state = spec.update(state, batch([[0.0, 0, 0, 0]]), ["a"])
    assert spec.prior(state, ["a"]).tolist() == pytest.approx([0.875 * 6.5 / (0.875 * 11 + 4)])
    other = spec.init_state(rho=1.0, weight=2.0, start=0.25)
    other = spec.update(other, batch([[1.0, 1.0]]), ["a"])
    assert spec.prior(other, ["a"]).tolist() == pytest.approx([2.5 / 4])


def test_avspo() -> None:
    """Collapsed shares 1/2, 1, 0 in a window of two; τ moves up when the mean reward rises."""
    spec = methods.spec("avspo")
    state = spec.init_state(window=2)
    assert spec.prior(state, ["a"]).tolist() == [0.0]
    assert spec.state_hyperparameters(state, 4) == {"tau": 0.5}
    state = spec.update(state, batch([[1.0, 0.0], [0.0, 0.0]]), ["a", "b"])  # mean reward ¼
    assert spec.prior(state, ["a", "b"]).tolist() == [0.5, 0.5]
    assert spec.state_hyperparameters(state, 4) == {"tau": 0.5}
    state = spec.update(state, batch([[1.0, 1.0], [0.0, 0.0]]), ["a", "b"])  # ½: up
    assert spec.prior(state, ["a"]).tolist() == [0.75]
    assert spec.state_hyperparameters(state, 4)["tau"] == pytest.approx(0.51)
    state = spec.update(state, batch([[1.0, 0.0], [0.0, 1.0]]), ["a", "b"])  # ½: the same
    assert spec.prior(state, ["a"]).tolist() == [0.5]
    assert spec.state_hyperparameters(state, 4)["tau"] == pytest.approx(0.51)
    state = spec.update(state, batch([[0.0, 0.0], [0.0, 1.0]]), ["a", "b"])  # ¼: down
    assert spec.state_hyperparameters(state, 4)["tau"] == pytest.approx(0.5)
    nobody = Rollouts(
        tensor([[0.0]]), tensor([[-1.0]]), tensor([[1.0]]), valid=torch.tensor([[False]])
    )
    assert spec.update(state, nobody, ["a"]) == state


@pytest.mark.parametrize("name", STATEFUL)
def test_ids_of_a_tensor_are_its_numbers(name: str) -> None:
    spec = methods.spec(name)
    state = spec.update(spec.init_state(), batch([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([1, 2]))
    assert torch.equal(spec.prior(state, [1, 2]), spec.prior(state, torch.tensor([1, 2])))
    if "questions" in state:
        assert set(state["questions"]) == {"1", "2"}


def test_a_pooled_difficulty_of_a_very_unlikely_answer_is_accepted() -> None:
    spec = methods.spec("lens_pooled")
    unlikely = Rollouts(tensor([[1.0]]), tensor([[-100.0]]), tensor([[1.0]]))
    state = spec.update(spec.init_state(), unlikely, ["q"])
    rollouts = batch([[0.0, 0.0]], [[0.8, 0.4]], prior=spec.prior(state, ["q"]))
    assert methods.get("lens_pooled")(rollouts).advantages.isfinite().all()
