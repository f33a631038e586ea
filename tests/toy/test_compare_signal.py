"""How fast each method learns: what a step's draws teach, the cells, the committed run."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from lens_ref import methods
from toy.compare import figures, report
from toy.compare.cell import slug
from toy.compare.report import against_reference
from toy.compare.signal import SIZES, ManyQuestions, SixOptions, cells, summarize
from toy.compare.treatments import STATELESS, TREATMENTS, Teacher
from toy.rules import RULES, Draws
from toy.sampled import OPTIMIZERS, draw, steps_to_target, streams
from toy.spaces import log_softmax, six_options
from toy.tables import COLUMNS, compare

RESULTS = Path(__file__).parents[2] / "results" / "compare"
HERE = Path()  # workspaces: these cells keep nothing there


def quiet(text: str) -> None:
    """No report."""


def draws_of(rewards: list, log_pi: list | None = None) -> Draws:
    """Draws `[S, Q, G]` from policies over two options."""
    r = np.array(rewards, dtype=float)
    log_p = np.full(r.shape, np.log(0.5)) if log_pi is None else np.array(log_pi)
    return Draws(1 - r.astype(int), log_p, r, np.full((*r.shape[:2], 2), 0.5))


# Two seeds of two questions: one mixed and one negative group; two negative groups.
MIXED_AND_NOT = draws_of([[[1, 0, 0, 0], [0] * 4], [[0] * 4, [0] * 4]])


@pytest.mark.parametrize(
    ("name", "size", "right", "wrong", "negative"),
    [
        ("dr_grpo", "published", 0.75, -0.25, 0.0),
        ("dr_grpo", "equal_size", 2.4494897, -0.8164966, 0.0),  # RMS √(.75 / 8)
        ("grpo", "published", 1.7320508, -0.5773503, 0.0),
        ("grpo", "equal_size", 2.4494897, -0.8164966, 0.0),  # RMS √½
        # kept 4 of 8: the mean over those is the mean over all of twice as much
        ("dapo", "published", 3.4641016, -1.1547005, 0.0),
        ("dapo", "equal_size", 3.4641016, -1.1547005, 0.0),  # RMS 1
        ("psr", "published", 8.0, 0.0, 0.0),  # kept 1 of 8
        ("nsr", "published", 0.0, -8 / 7, -8 / 7),
        ("nsr", "equal_size", 0.0, -8 / 7, -8 / 7),  # RMS 1 over the seven
        ("w_reinforce", "published", 0.1, -1.0, -1.0),
        ("w_reinforce", "equal_size", 0.1068282, -1.0682822, -1.0682822),  # RMS √(7.01 / 8)
    ],
)
def test_sizes_by_hand(name, size, right, wrong, negative):
    lesson = Teacher(name, size)(MIXED_AND_NOT)
    expected = [[right, wrong, wrong, wrong], [negative] * 4]
    assert lesson.advantages[0] == pytest.approx(np.array(expected), abs=1e-6)
    assert lesson.learns[0]


@pytest.mark.parametrize(
    ("name", "learns", "negative"),
    [("grpo", True, 0), ("dapo", False, 0), ("psr", False, 0), ("nsr", True, -1)],
)
@pytest.mark.parametrize("size", SIZES)
def test_a_seed_of_negative_groups_alone_by_hand(name, learns, negative, size):
    lesson = Teacher(name, size)(MIXED_AND_NOT)  # the other seed does not matter
    assert (lesson.advantages[1] == negative).all()
    assert lesson.learns[1] == learns


def test_equal_size_is_a_mean_square_of_one_over_what_is_kept():
    policy = np.exp(log_policy := log_softmax(six_options(0.2, 5).logits))
    uniforms = np.random.default_rng(0).random((5, 1, 16))
    drawn = draw(policy, log_policy, six_options(0.2, 5).correct, uniforms)
    for name in STATELESS:
        raw, equal = Teacher(name)(drawn), Teacher(name, "equal_size")(drawn)
        signal = (raw.advantages != 0).any((1, 2))
        assert signal.any()
        _, keep = Teacher(name)._advantages(drawn)
        share = keep.mean((1, 2))
        square = (equal.advantages**2).sum((1, 2)) / 16
        # over the kept: mean square 1; the mean over all of a 1/share as large: 1/share
        assert square[signal] == pytest.approx(1 / share[signal])
        assert (equal.advantages[~signal] == 0).all()
        size = np.abs(raw.advantages).max((1, 2))[signal]
        factor = np.abs(equal.advantages).max((1, 2))[signal] / size
        assert equal.advantages[signal] == pytest.approx(
            raw.advantages[signal] * factor[:, None, None]
        )


@pytest.mark.parametrize("name", STATELESS)
def test_equal_wrong_answers_are_no_rounding_noise_blown_up(name):
    """Sixteen times the same wrong answer: what has no signal is 0, also at equal size."""
    spec = methods.spec(TREATMENTS[name].method)
    silent = spec.negative_class in ("zero", "zero_sum", "dropped", "batch_dependent")
    drawn = draws_of([[[0] * 16]], [[[-0.3] * 16]])
    advantages = Teacher(name, "equal_size")(drawn).advantages
    if name == "lens_no_demean":
        assert advantages == pytest.approx(-1)
    elif silent or name == "rl_zvp":  # the only token of a response is its most uncertain one
        assert (advantages == 0).all()
    else:
        assert np.abs(advantages) == pytest.approx(1)


def test_a_batch_is_a_seed_for_a_method_that_looks_at_the_whole_batch():
    both = Teacher("reinforce_pp")(MIXED_AND_NOT).advantages
    # rewards of mean 1/8 and standard deviation √7/8
    assert both[0, 0] == pytest.approx([2.6457513, -0.3779645, -0.3779645, -0.3779645])
    assert both[0, 1] == pytest.approx(-0.3779645)
    assert (both[1] == 0).all()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", ["grpo", "lens_paper", "lens_no_demean"])
def test_a_cell_is_what_the_first_toy_does(name, optimizer):
    cell = SixOptions(name, "published", optimizer, 1e-2, (3, 9))
    first = steps_to_target(
        six_options(1e-2, 6),
        RULES[name].rule,
        16,
        OPTIMIZERS[optimizer](),
        streams(range(3, 9), f"compare/six/{optimizer}/0.01"),
        2000,
        quiet,
    )
    rows = cell.run(HERE, quiet)
    assert rows["steps"].tolist() == first.steps.tolist()
    assert not rows["censored"].any()
    assert rows["seed"].tolist() == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("name", ["dapo", "reinforce_pp"])
@pytest.mark.parametrize("size", SIZES)
def test_a_seed_runs_the_same_in_any_company(name, size):
    many = SixOptions(name, size, "adam", 1e-2, (0, 4)).run(HERE, quiet)
    one = SixOptions(name, size, "adam", 1e-2, (2, 3)).run(HERE, quiet)
    assert one["steps"].tolist() == many["steps"].tolist()[2:3]
    many = ManyQuestions(name, size, "adam", (0, 3), 2, 8).run(HERE, quiet)
    one = ManyQuestions(name, size, "adam", (1, 2), 2, 8).run(HERE, quiet)
    alone = many[many["seed"] == 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(one, alone, rtol=1e-12)


def test_the_full_version_is_every_stateless_method_and_reading():
    wanted = cells(True, 5)
    assert len({slug(c) for c in wanted}) == len(wanted) == 19 * 2 * (6 + 2)
    assert set(STATELESS) == set(TREATMENTS) - {"lens_pooled", "lens_normalized_difficulty"}
    stateless = {name for name in methods.names() if not methods.spec(name).stateful}
    assert {TREATMENTS[name].method for name in STATELESS} == stateless
    for cell in wanted:
        assert cell.seeds[0] == 5
        assert cell.seeds[1] - cell.seeds[0] >= 20
        assert pickle.loads(pickle.dumps(cell)) == cell
    short = {slug(c) for c in cells(False, 5)}
    assert len(short) == 19 * 3


def test_tables_and_figures_of_a_small_run(capsys):
    frames = {
        "six_options": pd.concat(
            SixOptions(name, size, "sgd", 1e-2, (0, 3)).run(HERE, quiet)
            for name in ("nsr", "grpo")
            for size in SIZES
        ),
        "many_questions": pd.concat(
            ManyQuestions("grpo", "published", kind, (0, 3), 2, 800).run(HERE, quiet)
            for kind in ("sgd", "adam")
        ),
    }
    summary = summarize(frames)
    assert set(summary["quantity"]) == {"steps_to_90", "accuracy", "entropy"}
    row = summary.query("method == 'nsr' and setting == 'equal_size'").iloc[0]
    runs = frames["six_options"].query("method == 'nsr' and setting == 'equal_size'")
    a, b, c = runs["steps"]
    assert row["mean"] == pytest.approx((a + b + c) / 3)
    spread = ((a - b) ** 2 + (b - c) ** 2 + (a - c) ** 2) / 6  # n − 1 in the denominator
    assert row["ci95"] == pytest.approx(1.96 * (spread / 3) ** 0.5)
    drawn = figures.draw(frames, {"signal": summary})
    assert set(drawn) == {
        *("six_options", "many_questions", "many_questions_sgd", "many_questions_adam")
    }
    report.show({"signal": summary}, Console(width=100))
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.strip().startswith("NSR")]
    assert len(lines) == 1
    assert f"{row['mean']:.0f}±{row['ci95']:.0f}" in lines[0]


def test_a_mean_over_seeds_that_did_not_all_solve_it_is_printed_as_a_bound():
    row = {"quantity": "steps_to_90", "mean": 812.4, "ci95": 20.0, "n": 24}
    table = pd.DataFrame([{**row, "solved": solved} for solved in (24, 7, 0)])
    printed = [report._cell(table.iloc[i : i + 1]) for i in range(3)]
    assert printed == ["812±20", ">812 (7/24)", "0/24"]


# The committed run.


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    return {
        part: pd.read_csv(RESULTS / f"{part}.csv") for part in ("six_options", "many_questions")
    }


@pytest.fixture(scope="module")
def summary() -> pd.DataFrame:
    return pd.read_csv(RESULTS / "summary_signal.csv")


def test_every_committed_cell_has_its_seeds(frames):
    keys = ["method", "setting", "optimizer", "p_c"]
    seeds = frames["six_options"].groupby(keys)["seed"].nunique()
    assert len(seeds) == 19 * 2 * 6
    assert set(seeds) == {96}
    seeds = frames["many_questions"].groupby(keys[:3])["seed"].nunique()
    assert len(seeds) == 19 * 2 * 2
    assert set(seeds) == {20}
    for frame in frames.values():
        assert set(frame["method"]) == set(STATELESS)


def test_committed_summary_is_that_of_the_rows(frames, summary):
    assert set(COLUMNS) <= set(summary)
    again = summarize(frames)
    pd.testing.assert_frame_equal(again, summary, check_dtype=False, rtol=1e-3, atol=1e-5)


def test_committed_run_meets_the_reference(summary):
    shared = against_reference({"signal": summary})
    agreement = compare(*shared["with the variance between sets of questions:"])
    assert len(agreement.uncensored) == 34
    assert agreement.meets_rule
    mine, theirs = shared["bare intervals:"]
    six = compare(mine[mine["experiment"] == "six_options"], theirs)
    assert len(six.uncensored) == 20
    assert six.meets_rule


def test_methods_that_are_the_same_at_equal_size_took_the_same_steps(frames):
    steps = frames["six_options"].query("setting == 'equal_size'")
    steps = steps.pivot(index=["optimizer", "p_c", "seed"], columns="method", values="steps")
    # a group's standard deviation and the factor G / (G − 1) are sizes, and there is one group
    for name in ("dr_grpo", "rloo", "reinforce_pp"):
        assert (steps[name] - steps["grpo"]).abs().max() <= 1
