"""Exact gradient flow against reference times and against autograd."""

import numpy as np
import pytest
import torch

from lens_ref.core import DomainError, value, value_mle
from toy import flow, reference
from toy.experiments import P_CORRECT
from toy.spaces import six_options


@pytest.mark.parametrize(
    ("name", "p_correct", "expected"),
    [("reinforce", 1e-4, 6693), ("mle_d1", 1e-4, 28.7), ("mle_guarded", 1e-4, 2333)],
)
def test_headline_times(name, p_correct, expected):
    assert flow.escape(flow.OBJECTIVES[name], p_correct).time == pytest.approx(expected, rel=0.01)


def test_every_time_of_the_table(tiny_results):
    table = tiny_results["flow"].set_index(["objective", "p_c"])
    assert len(table) == 32
    for name, times in reference.FLOW.items():
        for p_correct, expected in zip(P_CORRECT, times, strict=True):
            row = table.loc[(name, p_correct)]
            if expected is None:
                assert row["outcome"] == "wrong"
                assert np.isnan(row["time"])
            else:
                assert row["outcome"] == "solved"
                assert row["time"] == pytest.approx(expected, rel=0.01)


def test_every_guard_of_the_table(tiny_results):
    table = tiny_results["guards"].set_index("guard")["time"]
    assert table.to_dict() == pytest.approx(reference.GUARD, rel=0.01)


def test_signal_of_negative_groups_by_preset(tiny_results):
    """Standardised negative groups have RMS α; the 1/G costs a factor G = 16."""
    table = tiny_results["signal_sizes"].pivot(
        index="spread", columns="preset", values="neg_to_mixed_rms"
    )
    assert table["negative_std"].to_numpy() == pytest.approx([0.25] * len(table))
    assert (table["neg_unscaled"] / table["paper"]).to_numpy() == pytest.approx([16] * len(table))
    assert table.loc[0.03, "paper"] == pytest.approx(1 / 1119, rel=0.02)


def test_an_unfinished_flow_is_not_called_wrong():
    result = flow.escape(flow.OBJECTIVES["reinforce"], 1e-2, horizon=10.0)
    assert result.outcome == "unfinished"


LOGITS = np.array([0.3, -0.4, 1.1, 0.0, -0.9, 0.2])
CORRECT = np.array([True, True, False, False, False, False])


@pytest.mark.parametrize(("name", "d"), [("mle_d1", 1.0), ("mle_d2", 2.0), ("mle_d4", 4.0)])
def test_likelihood_flow_climbs_j_mle(name, d):
    z = torch.tensor(LOGITS, requires_grad=True)
    value_mle(z.softmax(-1), torch.tensor(CORRECT, dtype=torch.float64), d).backward()
    found = flow.velocity(flow.OBJECTIVES[name], LOGITS, CORRECT)
    np.testing.assert_allclose(found, z.grad, atol=1e-14)


def test_reinforce_flow_climbs_accuracy():
    z = torch.tensor(LOGITS, requires_grad=True)
    value(z.softmax(-1), torch.tensor(CORRECT, dtype=torch.float64)).backward()
    found = flow.velocity(flow.OBJECTIVES["reinforce"], LOGITS, CORRECT)
    np.testing.assert_allclose(found, z.grad, atol=1e-14)


def test_uniform_sampler_flow_climbs_cross_entropy():
    z = torch.tensor(LOGITS, requires_grad=True)
    (z.log_softmax(-1)[:2].sum() / 6).backward()
    found = flow.velocity(flow.OBJECTIVES["cross_entropy"], LOGITS, CORRECT)
    np.testing.assert_allclose(found, z.grad, atol=1e-14)


def test_beyond_the_pole_the_library_refuses_and_the_bare_formula_rewards_the_wrong_answer():
    log_pi = np.log([0.05, 0.05, 0.9])
    correct = np.array([True, False, False])
    assert flow.unguarded_half(log_pi, correct) == pytest.approx([1.0, -1 / 9, 2.25])
    with pytest.raises(DomainError):
        flow.likelihood(flow.constant(0.5))(log_pi, correct)


@pytest.mark.parametrize("p", [1e-1, 1e-4])
def test_six_options_start_at_the_given_accuracy(p):
    space = six_options(p)
    pi = np.exp(space.logits[0, 0]) / np.exp(space.logits[0, 0]).sum()
    assert pi[:2].sum() == pytest.approx(p)
    assert pi[3:] == pytest.approx([p / 2] * 3)


def test_six_options_refuse_an_impossible_start():
    with pytest.raises(ValueError, match=r"p_correct = 0\.5"):
        six_options(0.5)
