"""Sampled training: its expectation, its optimizers, its seeds."""

from itertools import product

import numpy as np
import pytest

from toy import flow
from toy.rules import RULES, Draws, demeaned, from_library, likelihood
from toy.sampled import (
    SGD,
    Adam,
    Uniforms,
    accuracy_curves,
    draw,
    policy_gradient,
    steps_to_target,
    streams,
)
from toy.spaces import log_softmax, many_questions, six_options

LOGITS = np.array([0.3, -0.4, 1.1, 0.0, -0.9, 0.2])
CORRECT = np.array([True, True, False, False, False, False])


def expected_gradient(rule, group_size):
    """E over all ordered groups of the sampled gradient, `[K]`."""
    log_pi = log_softmax(LOGITS)
    options = np.array(list(product(range(6), repeat=group_size)))[:, None, :]  # [S, 1, G]
    policy = np.broadcast_to(np.exp(log_pi), (len(options), 1, 6))
    draws = Draws(options, log_pi[options], CORRECT[options].astype(float), policy)
    gradient = policy_gradient(draws, rule(draws))[:, 0]
    return np.exp(draws.log_pi.sum((1, 2))) @ gradient


@pytest.mark.parametrize(
    ("rule", "objective", "factor"),
    [
        (RULES["reinforce"].rule, "reinforce", 1.0),
        (RULES["mle_d2"].rule, "mle_d2", 1.0),
        (RULES["mle_guarded"].rule, "mle_guarded", 1.0),
        (RULES["mle_d_half_unguarded"].rule, "mle_d_half_unguarded", 1.0),
        # Centring costs exactly 1 − 1/G in expectation.
        (from_library("dr_grpo"), "reinforce", 2 / 3),
        (demeaned(likelihood(2.0)), "mle_d2", 2 / 3),
    ],
)
def test_sampled_gradient_is_the_exact_one_in_expectation(rule, objective, factor):
    exact = flow.velocity(flow.OBJECTIVES[objective], LOGITS, CORRECT)
    np.testing.assert_allclose(expected_gradient(rule, 3), factor * exact, atol=1e-14)


def test_draws_invert_the_distribution_function():
    policy = np.array([[[0.5, 0.3, 0.2]]])
    correct = np.array([[[False, True, False]]])
    uniforms = np.array([[[0.0, 0.49, 0.5, 0.79, 0.81, 0.999]]])
    draws = draw(policy, np.log(policy), correct, uniforms)
    assert draws.options[0, 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert draws.rewards[0, 0].tolist() == [0, 0, 1, 1, 0, 0]
    assert np.exp(draws.log_pi[0, 0]) == pytest.approx([0.5, 0.5, 0.3, 0.3, 0.2, 0.2])


def group(pi, rewards):
    log_pi = np.log(np.array([[pi]]))
    return Draws(np.array([[range(len(pi))]]), log_pi, np.array([[rewards]]), np.exp(log_pi))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grpo", [0, 0, 0, 0]),
        # D = 1.8: u = 1, .8, .384615, .125
        ("lens_paper", [-0.026412, -0.013912, 0.012049, 0.028275]),
        ("lens_neg_unscaled", [-0.105649, -0.055649, 0.048197, 0.113101]),
        # the same divided by the standard deviation of u, .342773
        ("lens_negative_std", [-0.308219, -0.162350, 0.140609, 0.329959]),
        ("lens_no_demean", [-0.25, -0.2, -0.096154, -0.03125]),
    ],
)
def test_negative_group_by_hand(name, expected):
    draws = group([0.9, 0.8, 0.5, 0.2], [0.0, 0.0, 0.0, 0.0])
    assert RULES[name].rule(draws)[0, 0] == pytest.approx(expected, abs=1e-6)


def test_likelihood_rules_by_hand():
    draws = group([0.05, 0.9, 0.25], [1.0, 0.0, 0.0])
    assert RULES["mle_d1_clipped"].rule(draws)[0, 0] == pytest.approx([1, -5, -1 / 3])
    assert RULES["mle_d2"].rule(draws)[0, 0] == pytest.approx([1, -9 / 11, -1 / 7])
    assert RULES["mle_guarded"].rule(draws)[0, 0] == pytest.approx([1, -1, -0.25 / 1.55])
    assert RULES["mle_d_half_unguarded"].rule(draws)[0, 0] == pytest.approx([1, 2.25, -1])


def test_adam_by_hand():
    adam, logits = Adam(0.02), np.zeros((1, 1, 1))
    logits = adam.step(logits, np.full((1, 1, 1), 1.0))
    assert logits.item() == pytest.approx(0.02)  # the first step is lr · sign(g)
    # m = .9·.1 − .1·3 = −.21, over .19; v = .999·.001 + .001·9 = .009999, over .001999
    step = adam.step(logits, np.full((1, 1, 1), -3.0)) - logits
    assert step.item() == pytest.approx(-0.02 * 1.1052632 / 2.2365153, rel=1e-6)


def test_sgd_ascends():
    logits = np.zeros((1, 1, 2))
    assert SGD(0.5).step(logits, np.array([[[1.0, -1.0]]])).tolist() == [[[0.5, -0.5]]]


def run(seeds, name="lens_negative_std", optimizer=Adam, cap=2000):
    space = six_options(5e-2, len(seeds))
    return steps_to_target(space, RULES[name].rule, 4, optimizer(), streams(seeds, "a test"), cap)


def test_a_seed_runs_the_same_alone_and_in_a_batch():
    together = run(range(6))
    assert len(set(together.steps)) > 1
    assert together.solved.all()
    for seed in (0, 3, 5):
        assert run(range(seed, seed + 1)).steps[0] == together.steps[seed]


def test_curves_of_a_seed_do_not_depend_on_the_batch():
    def curves(seeds):
        space = many_questions(streams(seeds, "questions"), questions=3, options=20)
        rule = RULES["lens_paper"].rule
        return accuracy_curves(space, rule, 8, SGD(), streams(seeds, "draws"), 20, every=10)

    together, alone = curves(range(3)), curves(range(2, 3))
    assert together.steps.tolist() == [0, 10, 20]
    np.testing.assert_allclose(together.accuracy[:, 2:], alone.accuracy, rtol=1e-12)
    np.testing.assert_allclose(together.entropy[:, 2:], alone.entropy, rtol=1e-12)


def test_streams_of_another_name_or_seed_differ():
    first = streams(range(2), "a")[0].random()
    assert first == streams(range(5), "a")[0].random()
    assert first != streams(range(2), "b")[0].random()
    assert first != streams(range(2), "a")[1].random()


def test_uniforms_keep_each_seed_its_own():
    full, fewer = (Uniforms(streams(range(3), "u"), 1, 2) for _ in range(2))
    full.next(), fewer.next()
    fewer.keep(np.array([True, False, True]))
    for _ in range(130):  # across two refills
        np.testing.assert_array_equal(full.next()[[0, 2]], fewer.next())


def test_a_seed_that_needs_too_long_is_censored_at_the_cap():
    result = run(range(3), name="mle_d_half_unguarded", optimizer=SGD, cap=30)
    assert result.steps.tolist() == [30] * 3
    assert not result.solved.any()


def test_a_question_solved_from_the_start_takes_no_step():
    space = six_options(1e-2)
    solved = type(space)(np.where(space.correct, 9.0, 0.0), space.correct)
    result = steps_to_target(solved, RULES["grpo"].rule, 4, SGD(), streams(range(1), "s"), 10)
    assert result.steps.tolist() == [0]


def test_many_questions_start_hard():
    space = many_questions(streams(range(4), "q"), questions=50, options=100)
    assert set(space.correct.sum(-1).ravel()) == {1, 2, 3}
    policy = np.exp(log_softmax(space.logits))
    assert 0.0003 < policy[space.correct].sum() / (4 * 50) < 0.003
