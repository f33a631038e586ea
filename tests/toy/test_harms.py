"""Where negative groups hurt: the set-ups, the shared parameters, what is remembered."""

import pickle
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from lens_ref import methods
from lens_ref.core import Rollouts
from toy.compare import harms
from toy.compare.cell import slug
from toy.compare.harms import (
    HARM_TREATMENTS,
    Mislabelled,
    SharedFeatures,
    Unsolvable,
    cells,
    half_unsolvable,
    mislabelled_questions,
    shared_features,
    summarize,
)
from toy.compare.sequences import SEQUENCE_TREATMENTS, Sequences, is_right, p_right
from toy.compare.training import Ascent, Linear, Problem, Tabular, curves, steps_to_target
from toy.compare.treatments import PooledSums, Teacher, over_kept
from toy.rules import Draws
from toy.sampled import draw, policy_gradient, streams
from toy.sequence import EOS, Responses, first_logits
from toy.spaces import accuracy, log_softmax

HERE = Path()  # workspaces: these cells keep nothing there


def quiet(text: str) -> None:
    """No report."""


# The set-ups.


def test_mislabelled_questions_are_a_fifth_and_solved():
    space, trusted = mislabelled_questions(streams(range(20), "set-up"), 50)
    assert trusted.shape == (20, 50)
    assert (~trusted).sum(1).tolist() == [10] * 20
    assert not trusted[:, :10].any()
    policy = np.exp(log_softmax(space.logits))
    right = accuracy(policy, space.correct)
    assert right[:, :10].mean() == pytest.approx(0.955, abs=0.01)
    assert right[:, 10:].mean() < 0.003
    noise = (space.logits - 8.0 * space.correct)[:, :10]  # 20 000 numbers: ± 0.007
    assert noise.mean() == pytest.approx(0, abs=0.03)
    assert noise.std() == pytest.approx(1, abs=0.03)
    number = space.correct.sum(-1)
    assert (number.min(), number.max()) == (1, 3)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8, 0.95])
def test_features_of_the_answer_and_the_mistake_are_correlated(correlation):
    bias, features, correct = shared_features(streams(range(200), "set-up"), correlation)
    assert features.shape == (200, 1, 20, 40)
    answer, mistake, other = features[:, 0, 0], features[:, 0, 1], features[:, 0, 2]
    inner = (answer * mistake).sum(-1).mean()  # its spread is at most 0.22: ± 0.016
    assert inner == pytest.approx(correlation, abs=0.06)
    assert abs((answer * other).sum(-1).mean()) < 0.06
    for feature in (answer, mistake, other):
        assert (feature**2).sum(-1).mean() == pytest.approx(1, abs=0.06)
    assert correct.sum() == 200
    assert correct[..., 0].all()
    policy = np.exp(log_softmax(bias))
    e = 2.718281828459045
    assert policy[..., 0] == pytest.approx(e / (e + 1000 + 18))
    assert policy[..., 1] == pytest.approx(1000 / (e + 1000 + 18))


def test_half_of_the_questions_have_no_answer():
    base, features, correct = half_unsolvable(streams(range(20), "set-up"), 50, 100, 8)
    assert features.shape == (20, 50, 100, 8)
    assert correct[:, :25].any(-1).all()
    assert not correct[:, 25:].any()
    solvable = base[:, :25]
    answers, mistakes = solvable[correct[:, :25]], solvable[~correct[:, :25]]
    assert answers.mean() == pytest.approx(-1, abs=0.2)  # about 1000 of spread 2: ± 0.063
    assert answers.std() == pytest.approx(2, abs=0.2)
    assert mistakes.mean() == pytest.approx(0, abs=0.03)
    assert (features**2).sum(-1).mean() == pytest.approx(1, abs=0.03)


# Shared parameters.


def test_linear_logits_and_their_gradient_by_hand():
    policies = Linear(np.array([[[1.0, 0.0]]]), np.array([[[[2.0], [-1.0]]]]))
    assert policies.logits().tolist() == [[[1.0, 0.0]]]
    assert policies.pull_back(np.array([[[0.25, -0.25]]])).tolist() == [[0.75]]
    policies.parameters = np.array([[0.5]])
    assert policies.logits().tolist() == [[[2.0, -0.5]]]


def test_gradient_in_the_shared_parameters_by_finite_differences():
    (rng,) = streams(range(1), "finite differences")
    policies = Linear(rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 4, 5)))
    policies.parameters = rng.normal(size=(2, 5))
    log_policy = log_softmax(policies.logits())
    correct = np.zeros((2, 3, 4), dtype=bool)
    draws = draw(np.exp(log_policy), log_policy, correct, rng.random((2, 3, 6)))
    advantages = rng.normal(size=(2, 3, 6))

    def objective() -> np.ndarray:
        """`[S]`: the surrogate's mean over the group, summed over the questions."""
        log_pi = np.take_along_axis(log_softmax(policies.logits()), draws.options, -1)
        return (advantages * log_pi).mean(-1).sum(-1)

    found = policies.pull_back(policy_gradient(draws, advantages))
    start, step = policies.parameters, 1e-6
    for i in range(5):
        sides = []
        for sign in (1, -1):
            policies.parameters = start + sign * step * np.eye(5)[i]
            sides.append(objective())
        np.testing.assert_allclose(found[:, i], (sides[0] - sides[1]) / (2 * step), atol=1e-8)


def test_adam_is_that_of_torch_and_passes_over_steps_without_a_signal():
    (rng,) = streams(range(1), "adam")
    start, gradients = rng.normal(size=(2, 3)), rng.normal(size=(7, 2, 3))
    learns = np.array([[True, True]] * 3 + [[False, True]] * 2 + [[True, True]] * 2)
    ascent, parameters = Ascent("adam"), start
    for gradient, rows in zip(gradients, learns, strict=True):
        parameters = ascent.step(parameters, gradient, rows)
    for seed in range(2):
        weight = torch.tensor(start[seed], requires_grad=True)
        adam = torch.optim.Adam([weight], lr=0.02, maximize=True)
        for step in np.flatnonzero(learns[:, seed]):
            weight.grad = torch.from_numpy(gradients[step, seed])
            adam.step()
        np.testing.assert_allclose(parameters[seed], weight.detach(), rtol=1e-12)


# What the verifier says, and what is remembered.


def test_a_question_that_is_always_marked_wrong_teaches_grpo_nothing():
    generators = streams(range(2), "trusted")
    logits, correct = np.zeros((2, 2, 3)), np.zeros((2, 2, 3), dtype=bool)
    correct[..., 0] = True
    policies = Tabular(logits.copy())
    problem = Problem(correct, np.array([[False, True], [True, False]]))
    curves(
        *(policies, problem, Teacher("grpo"), Ascent("sgd"), generators),
        *(8, 20, 20, lambda policy: {"p": policy[:, 0, 0]}, quiet),
    )
    assert (policies.parameters[[0, 1], [0, 1]] == 0).all()
    assert (policies.parameters[[0, 1], [1, 0], 0] > 1).all()


def random_draws(rng: np.random.Generator, seeds: int) -> Draws:
    """Of three questions with eight options of unequal probability, two of them right."""
    log_policy = log_softmax(rng.normal(0, 2, (seeds, 3, 8)))
    correct = np.zeros(log_policy.shape, dtype=bool)
    correct[..., :2] = True
    return draw(np.exp(log_policy), log_policy, correct, rng.random((seeds, 3, 4)))


def test_pooled_sums_are_the_state_of_the_library():
    (rng,) = streams(range(1), "pooled")
    sums, spec = PooledSums(), methods.spec("lens_pooled")
    state = spec.init_state(count=4)
    questions = [f"{seed}/{question}" for seed in range(3) for question in range(3)]
    for step in range(6):
        draws = random_draws(rng, 3 if step < 4 else 2)
        np.testing.assert_allclose(
            sums.prior(draws).ravel(), spec.prior(state, questions), rtol=1e-12
        )
        sums.add(draws)
        rewards = torch.from_numpy(draws.rewards.reshape(-1, 4))
        log_pi = torch.from_numpy(draws.log_pi.reshape(-1, 4))
        rollouts = Rollouts(rewards=rewards, logprobs=log_pi, lengths=torch.ones(rewards.shape))
        state = spec.update(state, rollouts, questions)
        if step == 3:  # the middle seed is done
            sums.keep(np.array([True, False, True]))
            questions = questions[:3] + questions[6:]
    assert sums.prior(draws).std() > 0.1


def test_pooled_difficulty_of_a_question_never_solved_grows_without_bound():
    never = Draws(np.zeros((1, 1, 4), int), np.zeros((1, 1, 4)), np.zeros((1, 1, 4)), np.ones(1))
    sums, found = PooledSums(), []
    for _ in range(4):
        found.append(sums.prior(never).item())
        sums.add(never)
    assert found == [1, 2, 3, 4]  # (1 + n/c) D₀, c = n = G a visit


def test_teacher_hands_the_past_to_the_method():
    log_pi = np.log(np.array([[[0.5, 0.25, 0.25, 0.5]]]))
    options = np.array([[[0, 1, 1, 0]]])
    draws = Draws(options, log_pi, np.zeros((1, 1, 4)), np.array([[[0.5, 0.25, 0.25]]]))
    teacher = Teacher("lens_pooled")
    # D = 1 (at least 2 max π, too), odds 1 and 1/3, centred, α = 1/4
    first = teacher(draws).advantages[0, 0]
    assert first == pytest.approx(np.array([-1, 1, 1, -1]) / 12)
    # after four wrong answers D = 2: odds 1/3 and 1/7
    second = teacher(draws).advantages[0, 0]
    assert second == pytest.approx(np.array([-1, 1, 1, -1]) / 42)


def test_a_seed_runs_the_same_in_any_company(tmp_path):
    together = Mislabelled("lens_pooled", "adam", (3, 6), 5, 40).run(tmp_path, quiet)
    alone = Mislabelled("lens_pooled", "adam", (4, 5), 5, 40).run(tmp_path, quiet)
    same = together[together["seed"] == 4].reset_index(drop=True)
    for name in ("accuracy", "other_accuracy", "entropy"):
        np.testing.assert_allclose(same[name], alone[name], rtol=1e-12)


def test_seeds_that_are_done_leave_and_the_others_go_on_alike():
    def run(seeds: range) -> tuple[np.ndarray, np.ndarray]:
        bias, features, correct = shared_features(streams(seeds, "leave"), 0.0)
        bias[..., 1] = 3.0  # an easy question
        return steps_to_target(
            *(Linear(bias, features), Problem(correct), Teacher("lens_pooled"), Ascent("adam")),
            *(streams(seeds, "draws"), 8, 300, quiet),
        )

    steps, solved = run(range(6))
    assert solved.all()
    assert len(set(steps)) > 3
    assert np.concatenate([run(range(s, s + 1))[0] for s in range(6)]).tolist() == steps.tolist()


# Sequences.


def every_sequence(positions: int) -> list[tuple[int, ...]]:
    """Token tuples that end with EOS, or are `positions` long without it."""
    ended = [(*w, EOS) for n in range(positions) for w in product((0, 1), repeat=n)]
    return ended + list(product((0, 1), repeat=positions))


def test_probability_of_a_right_sequence_is_the_enumeration():
    logits = first_logits(streams(range(2), "right"), positions=5)
    for s, log_p in enumerate(log_softmax(logits)):
        total = 0.0
        for words in every_sequence(5):
            tokens = np.array([*words, *[0] * (5 - len(words))])[None, None]
            mask = (np.arange(5) < len(words))[None, None]
            if is_right(Responses(tokens, mask, np.zeros((1, 1))))[0, 0]:
                total += np.exp(sum(log_p[t, v] for t, v in enumerate(words)))
        assert p_right(logits)[s] == pytest.approx(total)


def test_right_sequences_begin_with_ab_and_end():
    tokens = np.array([[[0, 1, 2, 2], [0, 1, 0, 1], [0, 2, 1, 2], [1, 0, 2, 0], [0, 1, 1, 2]]])
    before = np.cumsum(tokens == EOS, -1) - (tokens == EOS)
    responses = Responses(tokens, before == 0, np.zeros((1, 5)))
    assert is_right(responses).tolist() == [[True, False, False, False, True]]


def test_rows_left_out_leave_the_mean():
    advantages = np.array([[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]])
    keep = np.array([[True, False, True, False], [False] * 4])
    assert over_kept(advantages, keep).tolist() == [[2, 0, 6, 0], [0] * 4]


@pytest.fixture(scope="module")
def short_sequences():
    return {
        (name, solvable): Sequences(name, solvable, (0, 4), 50).run(HERE, quiet)
        for name in ("grpo", "nsr", "lens_paper", "lens_normalized_difficulty", "lens_pooled")
        for solvable in (False, True)
    }


def test_an_unsolvable_sequence_teaches_grpo_nothing_and_nsr_length(short_sequences):
    for name in ("length", "truncated", "token_entropy", "confidence", "accuracy"):
        by_step = short_sequences["grpo", False].pivot(index="seed", columns="step", values=name)
        assert (by_step[50] == by_step[0]).all()
    length = short_sequences["nsr", False].pivot(index="seed", columns="step", values="length")
    assert (length[50] > length[0] + 1).all()


def test_the_readings_of_difficulty_part_where_a_group_is_mixed(short_sequences):
    printed, normalized = ("lens_paper", "lens_normalized_difficulty")
    for solvable, same in ((False, True), (True, False)):
        a, b = (short_sequences[n, solvable]["length"] for n in (printed, normalized))
        assert (a.to_numpy() == b.to_numpy()).all() == same


def test_sequences_are_learned(short_sequences):
    for (_, solvable), frame in short_sequences.items():
        accuracy_ = frame.groupby("step")["accuracy"].mean()
        assert (accuracy_[50] > accuracy_[0] + 0.2) if solvable else (accuracy_ == 0).all()


# The plan and its summary.


def test_the_full_version_is_every_method_in_every_setting():
    wanted = cells(True, 5)
    assert len({slug(cell) for cell in wanted}) == len(wanted)
    assert pickle.loads(pickle.dumps(wanted)) == wanted
    found = {cell.part: set() for cell in wanted}
    for cell in wanted:
        assert cell.seeds[0] == 5
        assert cell.seeds[1] - cell.seeds[0] >= 20
        found[cell.part].add(cell.treatment)
    for part in ("mislabelled", "shared_features", "unsolvable"):
        assert found[part] == set(HARM_TREATMENTS)
    assert found["sequences"] == {*HARM_TREATMENTS, "lens_normalized_difficulty"}
    assert set(SEQUENCE_TREATMENTS) == found["sequences"]


def test_every_kind_of_cell_is_summarized():
    seeds = (0, 3)
    small = (
        Mislabelled("grpo", "sgd", seeds, 5, 40),
        SharedFeatures("lens_paper", 0.8, seeds, cap=5),
        Unsolvable("nsr", "adam", 4, 4, 10, 100, seeds),
        Sequences("ngrpo", True, seeds, 50),
    )
    frames = {cell.part: cell.run(HERE, quiet) for cell in small}
    assert all(set(frame["seed"]) == {0, 1, 2} for frame in frames.values())
    table = summarize(frames)
    assert set(table["n"]) == {3}
    got = {
        (r.experiment, r.setting, r.quantity, r.step)
        for r in table.fillna(-1).itertuples()
        if r.step != 0
    }
    assert got == {
        ("shared_features", "rho=0.8", "steps_to_90", -1),
        ("unsolvable", "4x10 d=4", "accuracy", 100),
        ("unsolvable", "4x10 d=4", "entropy", 100),
        ("unsolvable", "4x10 d=4", "unsolvable_entropy", 100),
    }
    escape = table[table["experiment"] == "shared_features"].iloc[0]
    assert (escape["mean"], escape["solved"], escape["cap"]) == (5, 0, 5)
    assert harms.summarize({}).empty
