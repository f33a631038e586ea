"""The committed run of the harmful settings: whole, and in agreement with the reference."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from toy.compare import REFERENCE
from toy.compare.harms import HARM_TREATMENTS, Unsolvable, cells, half_unsolvable, summarize
from toy.compare.report import against_reference
from toy.compare.sequences import SEQUENCE_TREATMENTS
from toy.compare.training import Ascent, Linear, Problem, curves
from toy.compare.treatments import Teacher
from toy.sampled import streams
from toy.spaces import accuracy
from toy.tables import COLUMNS, compare, read_table

RESULTS = Path(__file__).parents[2] / "results"
PARTS = ("mislabelled", "shared_features", "unsolvable", "sequences")


@pytest.fixture(scope="module")
def frames():
    return {part: pd.read_csv(RESULTS / "compare" / f"{part}.csv") for part in PARTS}


@pytest.fixture(scope="module")
def summary():
    return pd.read_csv(RESULTS / "compare" / "summary_harms.csv")


def test_every_method_has_at_least_twenty_seeds_in_every_setting(frames):
    for part, frame in frames.items():
        wanted = SEQUENCE_TREATMENTS if part == "sequences" else HARM_TREATMENTS
        seeds = frame.groupby(["setting", "optimizer", "method"])["seed"].nunique()
        assert (seeds >= 20).all()
        for _, methods in seeds.groupby(["setting", "optimizer"]):
            assert set(methods.index.get_level_values("method")) == set(wanted)
    assert sum(len(f.groupby(["setting", "optimizer", "method"])) for f in frames.values()) == len(
        cells(True, 0)
    )


def test_summary_is_that_of_the_rows(frames, summary):
    assert set(COLUMNS) <= set(summary)
    again = summarize(frames)
    pd.testing.assert_frame_equal(again, summary, check_dtype=False, rtol=1e-3, atol=1e-5)


def test_every_method_starts_from_the_same_policies(frames):
    for part in ("mislabelled", "unsolvable", "sequences"):
        first = frames[part][frames[part]["step"] == 0]
        quantity = "entropy" if part != "sequences" else "token_entropy"
        assert (first.groupby(["setting", "seed"])[quantity].nunique() == 1).all()


def test_reference_is_met(summary):
    shared = against_reference({"harms": summary})
    agreement = compare(*shared["with the variance between sets of questions:"])
    assert len(agreement.cells) == len(read_table(REFERENCE))  # no reference cell was left out
    assert agreement.meets_rule


def test_cells_that_share_no_set_of_questions_meet_the_bare_rule(summary):
    mine, theirs = against_reference({"harms": summary})["bare intervals:"]
    agreement = compare(mine[mine["experiment"].str.startswith("shared_features")], theirs)
    assert len(agreement.cells) == 14
    assert len(agreement.uncensored) == 9
    assert (agreement.uncensored["standard_errors"].abs() <= 1.96).sum() >= 8
    assert agreement.beyond.empty


def test_differences_to_grpo_on_the_same_questions_agree_too(frames):
    """The reference's single set of questions may be a hard one, for all methods alike. So how far
    a method is from GRPO on that set must look like one draw from what the sets here show."""
    named = {
        "mislabelled": "mislabelled",
        **{f"unsolvable {s}": "unsolvable" for s in frames["unsolvable"]["setting"].unique()},
    }
    reference = read_table(REFERENCE)
    keys, z = ["experiment", "quantity", "optimizer", "step"], []
    for (experiment, quantity, optimizer, step), rows in reference.groupby(keys):
        expected = rows.set_index("method")["mean"]
        if experiment not in named or "grpo" not in expected:
            continue
        frame = frames[named[experiment]]
        frame = frame[(frame["optimizer"] == optimizer) & (frame["step"] == step)]
        frame = frame[frame["setting"] == experiment.removeprefix("unsolvable ")]
        by_seed = frame.pivot(index="seed", columns="method", values=quantity)
        for method in expected.index.drop("grpo"):
            ours = by_seed[method] - by_seed["grpo"]
            theirs = expected[method] - expected["grpo"]
            z.append((theirs - ours.mean()) / (ours.std() * np.sqrt(1 + 1 / len(ours))))
    assert len(z) == 19
    assert (np.abs(z) <= 1.96).mean() >= 0.9
    assert np.abs(z).max() <= 4


def test_sets_of_questions_differ_far_more_than_runs_on_one():
    """Why the reference's intervals, over runs on one set, are not those of a run here: at least
    four fifths of the variance between seeds is that of the questions (20 × 50 options)."""
    sets, runs, cell = 12, 4, Unsolvable("grpo", "sgd", 128, 20, 50, 100, (0, 12))
    generators = streams(range(*cell.seeds), "unsolvable")
    parts = half_unsolvable(generators, cell.questions, cell.options, cell.width)
    base, features, correct = (np.repeat(part, runs, 0) for part in parts)
    _, trace = curves(
        *(Linear(base, features), Problem(correct), Teacher("grpo"), Ascent("sgd")),
        *(streams(range(sets * runs), "runs"), 16, cell.updates, cell.updates),
        lambda policy: {"accuracy": accuracy(policy, correct)[:, :10].mean(-1)},
        lambda text: None,
    )
    found = trace["accuracy"][-1].reshape(sets, runs)
    within = found.var(1, ddof=1).mean()
    between = found.mean(1).var(ddof=1) - within / runs
    assert between > 4 * within


def test_grpo_leaves_mislabelled_and_unsolvable_questions_alone(frames):
    bad = (
        frames["mislabelled"]
        .query("method == 'grpo'")
        .pivot(index=["optimizer", "seed"], columns="step", values="accuracy")
    )
    assert bad.sub(bad[0], axis=0).abs().to_numpy().max() == 0
    never = frames["sequences"].query("method == 'grpo' and setting == 'unsolvable'")
    assert (never.groupby("seed")["length"].nunique() == 1).all()


def test_sequences_are_those_of_the_first_toy(frames):
    """The same policies, sampled anew: LENS with standardised negative groups goes uniform."""
    mine = frames["sequences"].query("method == 'lens_negative_std' and setting == 'unsolvable'")
    first = pd.read_csv(RESULTS / "toy" / "sequence.csv").query("method == 'std_normalized'")
    for quantity in ("length", "truncated", "token_entropy", "confidence"):
        a, b = (f.pivot(index="seed", columns="step", values=quantity) for f in (mine, first))
        assert a[0].to_numpy() == pytest.approx(b[0].to_numpy(), rel=1e-4)
        difference = a[1500] - b[1500]
        error = np.hypot(*(f[1500].std() / np.sqrt(len(f)) for f in (a, b)))
        assert abs(difference.mean()) < 4 * error
    end = mine[mine["step"] == 1500]
    assert end["confidence"].mean() == pytest.approx(0.335, abs=0.002)
