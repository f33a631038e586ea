"""Summaries and the comparison of two tables."""

import numpy as np
import pandas as pd
import pytest

from toy.__main__ import main
from toy.reference import SAMPLED
from toy.tables import COLUMNS, compare, read_table, summarize_curves, summarize_escapes


def test_summary_of_steps_by_hand():
    runs = pd.DataFrame(
        {
            "experiment": "six_options",
            "method": ["grpo"] * 3 + ["reinforce"] * 2,
            "optimizer": "sgd",
            "p_c": 0.01,
            "group_size": 4,
            "seed": [0, 1, 2, 0, 1],
            "cap": 50,
            "steps": [10, 20, 30, 50, 40],
            "censored": [False, False, False, True, False],
        }
    )
    table = summarize_escapes(runs)
    assert list(table) == COLUMNS
    assert table["mean"].tolist() == [20, 45]
    assert table["ci95"].tolist() == pytest.approx([1.96 * 10 / 3**0.5, 1.96 * 5])  # sd, ddof 1
    assert table["n"].tolist() == [3, 2]
    assert table["solved"].tolist() == [3, 1]


def test_summary_of_curves_reads_the_wanted_updates():
    runs = pd.DataFrame(
        {
            "experiment": "many_questions",
            "method": "grpo",
            "optimizer": ["sgd"] * 4 + ["adam"] * 2,
            "group_size": 16,
            "seed": [0, 0, 1, 1, 0, 1],
            "step": [5, 10, 5, 10, 5, 5],
            "accuracy": [0.1, 0.2, 0.3, 0.6, 0.5, 0.7],
        }
    )
    table = summarize_curves(runs, ("accuracy",), {"sgd": (10,), "adam": (5,)})
    assert table["mean"].tolist() == pytest.approx([0.4, 0.6])
    assert table["step"].tolist() == [10, 5]


@pytest.fixture
def table():
    return read_table(SAMPLED)


def test_a_table_agrees_with_itself(table):
    agreement = compare(table, table)
    assert agreement.agrees
    assert agreement.covered == 1
    assert len(agreement.cells) == len(table)


def test_a_shifted_cell_is_found(table):
    shifted = table.copy()
    row = shifted.index[shifted["method"] == "lens_paper"][0]
    error = np.sqrt(2) * shifted.loc[row, "ci95"] / 1.96
    shifted.loc[row, "mean"] += 3.9 * error
    assert compare(table, shifted).agrees
    shifted.loc[row, "mean"] += 0.2 * error
    agreement = compare(table, shifted)
    assert not agreement.agrees
    assert agreement.beyond["method"].tolist() == ["lens_paper"]
    assert agreement.beyond["standard_errors"].iloc[0] == pytest.approx(-4.1)


def test_a_table_shifted_by_three_errors_everywhere_fails_the_rule_only(table):
    table = table.drop(columns="one_question_set")
    shifted = table.assign(mean=table["mean"] + 3 * np.sqrt(2) * table["ci95"].fillna(0) / 1.96)
    agreement = compare(table, shifted)
    assert agreement.agrees
    assert not agreement.meets_rule


def test_constant_cells_that_differ_disagree(table):
    censored = table[table["solved"] == 0]
    assert len(censored) == 6
    assert compare(censored, censored).agrees
    assert not compare(censored, censored.assign(mean=censored["mean"] - 1)).agrees


def test_censored_cells_do_not_count_for_the_rule(table):
    agreement = compare(table, table)
    censored = (table["solved"] < table["n"]).sum()
    assert len(agreement.uncensored) == len(table) - censored


def test_one_question_set_adds_its_hardness(table):
    cell = table[(table["method"] == "grpo") & (table["step"] == 1500)]
    assert cell["one_question_set"].tolist() == [True]
    ours = cell.drop(columns="one_question_set").assign(mean=0.474, ci95=1.96 * 0.1, n=25)
    theirs = cell.assign(ci95=1.96 * 0.06, n=25)
    # Per seed .5 and .3: sets differ by .4 (3-4-5), so the difference has √(.1² + .06² + .4²).
    found = compare(ours, theirs).cells["standard_errors"].item()
    assert found == pytest.approx(0.1 / 0.1736**0.5)
    bare = compare(ours, theirs.drop(columns="one_question_set"))
    assert bare.cells["standard_errors"].item() == pytest.approx(0.1 / 0.0136**0.5)
    unknown = compare(ours, theirs.assign(ci95=float("nan")))  # √(.1² + .1² + .5²)
    assert unknown.cells["standard_errors"].item() == pytest.approx(0.1 / 0.27**0.5)
    narrow = compare(ours.assign(ci95=0.01), theirs)  # sets can't differ by less than nothing
    assert abs(narrow.cells["standard_errors"].item()) < 0.1 / 0.06


def test_tables_without_a_common_cell(table):
    with pytest.raises(ValueError, match="no cell in common"):
        compare(table[table["p_c"] == 1e-2], table[table["p_c"] == 1e-3])


def test_check_command(table, tmp_path, capsys):
    same, other = tmp_path / "same.csv", tmp_path / "other.csv"
    table.to_csv(same, index=False)
    table.assign(mean=table["mean"] * 2).to_csv(other, index=False)
    assert main(["--check", str(SAMPLED), str(same)]) == 0
    assert "agree within 4 standard errors" in capsys.readouterr().out
    assert main(["--check", str(SAMPLED), str(other)]) == 1
    out = capsys.readouterr().out
    assert "differs: six_options steps_to_90 grpo sgd" in out
    assert "do not agree" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file"),
        ("", "not a readable CSV"),
        ("seed,steps\n0,3\n", "no column 'experiment'"),
        (",".join(COLUMNS) + "\na,b,c,sgd,.1,4,,high,1,2,2,9\n", "column 'mean'"),
        (",".join(COLUMNS) + "\na,b,c,sgd,.1,4,,,1,2,2,9\n", "line 2 has no mean"),
        (",".join(COLUMNS) + "\na,b,c,sgd,.1,4,,1,-1,2,2,9\n", "line 2 has a ci95 below 0"),
        (",".join(COLUMNS) + "\na,b,c,sgd,.1,4,,1,1,0,2,9\n", "line 2 has no n of at least 1"),
        (
            ",".join(COLUMNS) + 2 * "\na,b,c,sgd,.1,4,,1,1,2,2,9" + "\n",
            "line 3 is of the same cell as an earlier one",
        ),
    ],
)
def test_check_of_a_broken_table_is_one_line(text, message, tmp_path, capsys):
    broken = tmp_path / "broken.csv"
    if text is not None:
        broken.write_text(text)
    assert main(["--check", str(SAMPLED), str(broken)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_cells_that_differ_without_any_interval_do_not_agree(table):
    bare = table.assign(ci95=float("nan"))
    assert compare(bare, bare).agrees
    assert not compare(bare, bare.assign(mean=bare["mean"] + 1)).agrees
