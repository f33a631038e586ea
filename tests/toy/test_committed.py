"""The committed long run: its tables belong together and meet the reference numbers."""

from pathlib import Path

import pandas as pd
import pytest

from toy import reference
from toy.experiments import (
    CURVE_RULES,
    FULL,
    P_CORRECT,
    SEQUENCE_QUANTITIES,
    CurveColumn,
    curve_cell,
    escape_cell,
)
from toy.tables import compare, read_table, summarize_curves, summarize_escapes

RESULTS = Path(__file__).parents[2] / "results" / "toy"
READ_AT = {column.optimizer: column.read_at for column in FULL.curves}


@pytest.fixture(scope="module")
def summary():
    return read_table(RESULTS / "summary.csv")


def test_summary_is_that_of_the_runs(summary):
    again = pd.concat(
        [
            summarize_escapes(pd.read_csv(RESULTS / "steps.csv")),
            summarize_curves(
                pd.read_csv(RESULTS / "accuracy.csv"), ("accuracy", "entropy"), READ_AT
            ),
            summarize_curves(
                pd.read_csv(RESULTS / "sequence.csv"),
                SEQUENCE_QUANTITIES,
                {"sgd": FULL.sequence_read_at},
            ),
        ],
        ignore_index=True,
    )
    pd.testing.assert_frame_equal(again, summary, check_dtype=False, rtol=1e-4, atol=1e-6)


def test_every_cell_of_the_plan_is_there(summary):
    steps = pd.read_csv(RESULTS / "steps.csv")
    assert len(steps) == 24 * sum(11 - len(column.leave_out) for column in FULL.columns)
    assert (steps["censored"] <= (steps["steps"] == steps["cap"])).all()
    accuracy = summary[summary["quantity"] == "accuracy"]
    assert len(accuracy) == len(CURVE_RULES) * sum(len(c.read_at) for c in FULL.curves)
    assert set(accuracy["n"]) == {20}


def test_long_run_meets_the_reference_rule(summary):
    expected = read_table(reference.SAMPLED)
    agreement = compare(summary, expected)
    assert len(agreement.cells) == len(expected)  # no reference cell was left out
    assert agreement.beyond.empty
    assert agreement.covered >= 0.9


def test_six_option_cells_alone_meet_the_rule(summary):
    agreement = compare(
        summary[summary["experiment"] == "six_options"], read_table(reference.SAMPLED)
    )
    assert len(agreement.uncensored) == 69
    assert agreement.meets_rule


def test_committed_flow_times_are_within_a_percent():
    times = pd.read_csv(RESULTS / "flow.csv").set_index(["objective", "p_c"])
    for name, expected in reference.FLOW.items():
        for p_c, time in zip(P_CORRECT, expected, strict=True):
            row = times.loc[(name, p_c)]
            if time is None:
                assert row["outcome"] == "wrong"
            else:
                assert row["time"] == pytest.approx(time, rel=0.01)
    guards = pd.read_csv(RESULTS / "guards.csv").set_index("guard")["time"]
    for guard, time in reference.GUARD.items():
        assert guards[guard] == pytest.approx(time, rel=0.01)


def test_as_printed_lens_is_not_told_from_grpo_under_sgd(summary):
    steps = summary[(summary["quantity"] == "steps_to_90") & (summary["optimizer"] == "sgd")]
    printed = steps[steps["method"] == "lens_paper"].assign(method="grpo")
    agreement = compare(printed, steps[steps["method"] == "grpo"])
    assert len(agreement.cells) == 6
    assert (agreement.cells["standard_errors"].abs() < 1.96).sum() >= 5


@pytest.mark.slow
def test_another_seed_base_agrees_within_four_standard_errors(summary):
    seeds = range(5000, 5024)
    columns = [c for c in FULL.columns if c.p_c == 1e-2 or c.optimizer == "adam"]
    rules = ("grpo", "mle_d1_clipped", "lens_paper", "lens_no_demean")
    parts = [
        summarize_escapes(escape_cell(column, rule, seeds, print))
        for column in columns
        for rule in rules
    ]
    curve = CurveColumn("sgd", 400, 400, (400,))
    for rule in ("grpo", "lens_negative_std"):
        runs = curve_cell(curve, rule, FULL.questions, seeds[:20], print)
        parts.append(summarize_curves(runs, ("accuracy", "entropy"), {"sgd": (400,)}))
    agreement = compare(pd.concat(parts, ignore_index=True), summary)
    assert len(agreement.cells) == 20
    assert agreement.beyond.empty
