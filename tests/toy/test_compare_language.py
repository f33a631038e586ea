"""The language-model part: what its tables say about made-up numbers, and its runs."""

import pickle
from pathlib import Path

import pandas as pd
import pytest

from lens_ref.rlvr import trainer
from lens_ref.rlvr.config import load, parse_method
from toy.compare.cell import slug
from toy.compare.language import METHODS, LanguageModel, _log, cells, summarize
from toy.compare.treatments import TREATMENTS

RESULTS = Path(__file__).resolve().parents[2] / "results"
START = 0.25  # of both methods and all seeds
END = {"grpo": (0.40, 0.44), "lens_paper": (0.46, 0.52, 0.90)}  # by seed; GRPO lacks the last
COLUMNS = ["method", "seed", "level", "step", "quantity", "value"]


def frame(rows: list[tuple]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=COLUMNS).assign(experiment="language")


def accuracies() -> list[tuple]:
    return [
        (method, seed, "all", step, "pass@1", value)
        for method, ends in END.items()
        for seed, end in enumerate(ends)
        for step, value in ((0, START), (20, 0.3), (60, end))
    ]


def cell(table: pd.DataFrame, quantity: str, method: str, step: int) -> tuple[float, float, int]:
    same = (table["quantity"] == quantity) & (table["method"] == method) & (table["step"] == step)
    (row,) = table[same].itertuples()
    return row.mean, row.ci95, row.n


def test_the_difference_to_grpo_pairs_seeds_and_leaves_out_those_without_a_partner():
    table = summarize({"language": frame(accuracies())})
    # .06 and .08: mean .07, s / √2 = .01, and t(.975, 1) = 12.7062
    assert cell(table, "pass@1 minus GRPO", "lens_paper", 60) == (
        pytest.approx(0.07),
        pytest.approx(0.127062, abs=1e-6),
        2,
    )
    assert cell(table, "pass@1 minus GRPO", "lens_paper", 0)[:2] == (0.0, 0.0)
    differences = table[table["quantity"] == "pass@1 minus GRPO"]
    assert "grpo" not in set(differences["method"])


def test_levels_and_gains_count_all_seeds_of_a_method():
    table = summarize({"language": frame(accuracies())})
    assert cell(table, "pass@1", "grpo", 60)[::2] == (pytest.approx(0.42), 2)
    assert cell(table, "pass@1", "lens_paper", 60)[::2] == (pytest.approx(1.88 / 3), 3)
    # .15 and .19: mean .17, s / √2 = .02
    assert cell(table, "pass@1 gain", "grpo", 60) == (
        pytest.approx(0.17),
        pytest.approx(0.254124, abs=1e-6),
        2,
    )
    assert set(table["step"]) == {0, 60}


def test_a_gain_differs_from_the_level_where_seeds_start_apart():
    rows = [
        ("grpo", seed, "all", step, "pass@1", value)
        for seed, (start, end) in enumerate([(0.2, 0.5), (0.4, 0.7)])
        for step, value in ((0, start), (60, end))
    ]
    table = summarize({"language": frame(rows)})
    assert cell(table, "pass@1 gain", "grpo", 60)[:2] == pytest.approx((0.3, 0.0))
    assert cell(table, "pass@1", "grpo", 60)[1] == pytest.approx(0.1 * 12.7062, abs=1e-5)


def test_levels_and_the_log_are_summarized_apart():
    rows = [
        ("grpo", 0, "all", 0, "pass@1", 0.1),
        ("grpo", 0, "1", 0, "pass@1", 0.5),
        ("grpo", 0, "training", 4, "entropy", 0.2),
    ]
    table = summarize({"language": frame(rows)})
    found = {
        (row.setting, row.quantity, row.step): row.mean
        for row in table.itertuples()
        if "gain" not in row.quantity
    }
    assert found == {
        ("all", "pass@1", 0): 0.1,
        ("1", "pass@1", 0): 0.5,
        ("training", "entropy", 4): 0.2,
    }
    assert table["ci95"].isna().all()  # one seed tells nothing of the spread
    assert set(table["optimizer"]) == {"adamw"}


def test_no_rows_no_table():
    assert summarize({}).empty


def test_the_log_is_averaged_over_the_updates_on_a_rollout_batch(tmp_path):
    (tmp_path / "metrics.csv").write_text(
        "step,reward,negative_share,neg_to_mixed_rms,entropy,mean_length,confidence,clip_fraction\n"
        "1,0.1,0.5,,1.0,20,0.9,0\n"
        "2,0.3,0.5,0.4,2.0,22,0.9,0\n"
        "3,0.8,0.25,,3.0,21,0.7,0.5\n"
    )
    rows = {(step, quantity): value for _, step, quantity, value in _log(tmp_path, 2)}
    assert rows[2, "reward"] == pytest.approx(0.2)
    assert rows[2, "neg_to_mixed_rms"] == 0.4  # the mean of those there are
    assert rows[2, "mean_length"] == 21
    assert rows[3, "clip_fraction"] == 0.5  # the last batch was cut short
    assert (3, "neg_to_mixed_rms") not in rows


def test_the_full_version_is_five_seeds_of_every_method():
    wanted = cells(True, 7)
    assert {(c.treatment, c.seed) for c in wanted} == {
        (m, s) for m in METHODS for s in range(7, 12)
    }
    assert {c.updates for c in wanted} == {load(None, {}).steps}
    assert len({slug(c) for c in wanted}) == len(wanted) == 55
    assert pickle.loads(pickle.dumps(wanted[0])) == wanted[0]
    assert {c.treatment for c in cells(False, 0)} == {"grpo", "lens_paper"}


@pytest.mark.parametrize("name", METHODS)
def test_a_name_means_the_same_method_in_the_tables_of_the_toy(name):
    treatment = TREATMENTS[name]
    method, hyperparameters = parse_method(load(None, {"methods": [METHODS[name]]}).method)
    assert method == treatment.method
    defaults = {"preset": "paper"} if method == "lens" else {}
    assert {**defaults, **hyperparameters} == dict(treatment.hyperparameters)


@pytest.fixture(scope="module")
def committed() -> pd.DataFrame:
    return pd.read_csv(RESULTS / "compare" / "language.csv", dtype={"level": str})


def test_the_committed_rows_are_five_seeds_of_every_method_that_start_alike(committed):
    accuracy = committed[(committed["quantity"] == "pass@1") & (committed["level"] == "all")]
    assert set(accuracy["step"]) == {0, 20, 40, 60}
    seeds = accuracy.groupby("method")["seed"].agg(lambda s: sorted(set(s)))
    assert seeds.to_dict() == {method: [0, 1, 2, 3, 4] for method in METHODS}
    start = accuracy[accuracy["step"] == 0]
    assert (start.groupby("seed")["value"].nunique() == 1).all()


def test_the_committed_rows_agree_with_the_runs_of_the_training_command(committed):
    names = {"grpo": "grpo", "lens": "lens_paper"}
    curves = pd.read_csv(RESULTS / "tiny" / "curves.csv", dtype={"level": str})
    curves = curves.assign(method=curves["method"].map(names), quantity="pass@1")
    both = committed.merge(curves, on=["method", "seed", "level", "step", "quantity"])
    assert len(both) == 2 * 5 * 4 * 7  # methods, seeds, evaluations, levels (4-5 too)
    assert both["value"].to_numpy() == pytest.approx(both["pass@1"].to_numpy(), abs=1e-5)


def run(workspace: Path) -> pd.DataFrame:
    return LanguageModel("lens_pooled", "lens_pooled", seed=3, updates=2).run(
        workspace, lambda text: None
    )


class KilledError(Exception):
    """Stands in for a process that ends."""


@pytest.mark.slow
def test_a_run_that_was_cut_off_ends_like_one_that_was_not(tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    straight = run(whole)
    assert set(straight["step"]) == {0, 2}
    assert {"all", "1", "5", "training"} <= set(straight["level"])
    assert straight["value"].notna().all()

    def kill(*_args: object) -> None:
        raise KilledError

    early, late = tmp_path / "before the first update", tmp_path / "after the first update"
    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "run", kill)
        with pytest.raises(KilledError):
            run(early)
        patch.undo()
        update = trainer.Trainer._update

        def once(self: trainer.Trainer, *args: object) -> None:
            if self.step:
                raise KilledError
            update(self, *args)

        patch.setattr(trainer.Trainer, "_update", once)
        with pytest.raises(KilledError):
            run(late)
    for cut_off in (early, late):
        pd.testing.assert_frame_equal(run(cut_off), straight)
    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "run", kill)
        pd.testing.assert_frame_equal(run(whole), straight)  # a finished run is only read
