"""The report beside the paper: published values, which run stands in which row, intervals,
what has not been run, bad input."""

from __future__ import annotations

import csv
import itertools
import re
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from lens_ref import report
from lens_ref.reporting import document, paper, run_figures, tables
from lens_ref.reporting.find import find
from lens_ref.reporting.settings import Setting, grouped
from lens_ref.rlvr import collect, report_figures
from lens_ref.rlvr.errors import UserError
from tests.report_runs import DAPO, LLAMA, MATH, NUMINA, make_run, paper_run


@pytest.fixture(autouse=True)
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are composed but not rendered, which takes most of a report's time."""
    monkeypatch.setattr(report_figures, "png", lambda figure: b"PNG")


@pytest.fixture
def drawn() -> None:
    """For tests that are about the figures of a whole report."""


@pytest.fixture(autouse=True)
def undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are they composed, except where a test is about them."""
    if "drawn" not in request.fixturenames:
        names = ("overview", "negative_groups", "optimal_policy", "weight")
        names += ("curves_dapo", "curves_numina")
        none = dict.fromkeys(names, ("no figure", ""))
        monkeypatch.setattr(document.Reproduction, "paper_drawings", lambda self: none)
        monkeypatch.setattr(document.Reproduction, "setting_drawings", lambda self, setting: {})


def written(out: Path, *runs: Path) -> str:
    """The text of the page of a report, in one line."""
    page = document.write(document.reproduction(runs), out).read_text(encoding="utf-8")
    page = re.sub(r"<style>.*?</style>|<img[^>]*>", "", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def cells(runs: Path, table: str) -> dict[tuple[str, str], tables.Cell]:
    """(row, column) → cell of a table of the paper."""
    filled = next(t for t in document.reproduction([runs]).tables if t.table.name == table)
    return {(line.row.label, cell.column): cell for line in filled.lines for cell in line.cells}


def only_setting(runs: Path) -> Setting:
    (setting,) = grouped(find([runs]).finished)
    return setting


# --- the published values


@pytest.mark.parametrize(
    ("table", "row", "column", "value"),
    [
        ("Table 1", "Llama-3.1-8B-Instruct: GRPO baseline", "pass@1", "54.09"),
        ("Table 1", "Llama-3.1-8B-Instruct: LENS (Ours)", "pass@16", "75.34"),
        ("Table 1", "Qwen-2.5-3B-Base: LENS (Ours)", "pass@4", "79.33"),
        ("Table 2", "Llama-3.1-8B-Instruct: LENS with only mixed groups", "pass@8", "78.80"),
        ("Table 2", "Llama-3.1-8B-Instruct: LENS with only negative groups", "pass@2", "66.48"),
        ("Table 3", "Llama-3.1-8B-Instruct: GRPO baseline", "pass@16", "82.80"),
        ("Table 3", "Qwen-2.5-3B-Base: GRPO baseline", "pass@1", "65.88"),
        ("Negative groups", "Llama-3.1-8B-Instruct: GRPO baseline", "early", "45"),
    ],
)
def test_published_values_are_digit_by_digit(table: str, row: str, column: str, value: str) -> None:
    assert paper.published()[table, row, column] == value


def test_every_cell_of_every_table_is_published_and_nothing_else() -> None:
    wanted = {(t.name, row.label, c) for t in paper.TABLES for row in t.rows for c in paper.PASS}
    wanted |= {("Negative groups", paper.NEGATIVE_GROUPS.label, c) for c in ("early", "end")}
    assert set(paper.published()) == wanted
    assert len(wanted) == 62


# --- which run is which


@pytest.mark.parametrize(
    ("method", "role"),
    [
        ("grpo", "grpo"),
        ("grpo:ddof=1", None),
        ("lens", "lens"),
        ("lens:preset=paper", "lens"),
        ("lens:alpha=0.25", "lens"),
        ("lens:alpha=0.5", None),
        ("lens:preset=normalized_difficulty", None),
        ("lens:groups=mixed", "mixed"),
        ("lens:preset=paper,groups=negative", "negative"),
        ("nsr", None),
        ("a_method_of_tomorrow", None),
    ],
)
def test_a_method_is_known_by_what_it_does(method: str, role: str | None) -> None:
    assert paper.role(method) == role


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (MATH, "MATH"),
        (DAPO, "DAPO"),
        (NUMINA, "Numina"),
        ("data/dapo_math_17k.jsonl.gz", "DAPO"),
        ("math_test.jsonl", "MATH"),
        ("openai/gsm8k", "GSM8K"),
        ("tiny", "the bundled task"),
        ("my_math.jsonl", "my_math"),
        ("math500.jsonl", "math500"),
    ],
)
def test_data_are_known_by_their_names(source: str, name: str) -> None:
    assert paper.short(source) == name


def test_runs_stand_in_their_rows_whatever_their_folders_are_called(tmp_path: Path) -> None:
    paper_run(tmp_path / "a" / "lens-seed7", "grpo", 0.66, seed=0)
    paper_run(tmp_path / "b" / "x", "grpo", 0.68, seed=1)
    paper_run(tmp_path / "b" / "deep" / "er", "lens:preset=paper", 0.67, seed=0)
    paper_run(tmp_path / "b" / "y", "lens", 0.71, seed=1)
    found = cells(tmp_path, "Table 1")
    grpo = found["Qwen-2.5-3B-Base: GRPO baseline", "pass@1"]
    assert grpo.published == "67.06"
    assert grpo.ours is not None
    # s = √2, t(0.975; 1) = 12.7062: 67 ± 12.7062 · √2 / √2
    assert grpo.ours.mean == pytest.approx(67.0)
    assert (grpo.ours.low, grpo.ours.high) == pytest.approx((54.2938, 79.7062), abs=1e-3)
    sixteen = found["Qwen-2.5-3B-Base: LENS (Ours)", "pass@16"].ours
    assert sixteen is not None
    assert sixteen.mean == pytest.approx(69.0 + 15.0)
    assert all(c.ours is None for (row, _), c in found.items() if row.startswith("Llama"))
    *_, lens = document.reproduction([tmp_path]).tables[0].lines  # 2 ± 12.7062 · √2 / √2
    assert lens.gain is not None
    assert (lens.gain.low, lens.gain.high) == pytest.approx((-10.7062, 14.7062), abs=1e-3)
    text = written(tmp_path / "out", tmp_path)
    assert "2 were run at the paper's setting" in text
    # the paper's row and its difference; ours, differences +1 and +3 by seed; their intervals
    assert (
        "paper 68.59 74.79 79.33 82.62 84.44 +1.53 ours (2 runs) 69.0 70.0 72.0 76.0 84.0 +2.0"
        in (text)
    )
    assert "[−10.7, +14.7]" in text


def test_table_2_and_3_share_the_runs_that_they_share(tmp_path: Path) -> None:
    common: dict[str, Any] = {"model": LLAMA, "train": f"{MATH} + {NUMINA}"}
    common["changes"] = {"optimizer.lr": 3e-7}
    for name, method in (("a", "grpo"), ("b", "lens"), ("c", "lens:groups=mixed")):
        paper_run(tmp_path / name, method, 0.5, **common)
    second, third = (cells(tmp_path, f"Table {n}") for n in (2, 3))
    llama = "Llama-3.1-8B-Instruct"
    assert second[f"{llama}: LENS (Ours)", "pass@1"].ours is not None
    assert third[f"{llama}: LENS (Ours)", "pass@1"].ours is not None
    assert second[f"{llama}: LENS with only mixed groups", "pass@1"].ours is not None
    assert second[f"{llama}: LENS with only negative groups", "pass@1"].ours is None
    assert "differ from the paper's" not in written(tmp_path / "out", tmp_path)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"steps": 200}, "200 updates instead of 1,000 or more"),
        ({"changes": {"rollout.responses": 8}}, "rollout.responses = 8 instead of 16"),
        ({"changes": {"rollout.questions": 64}}, "16 questions an update instead of 32"),
        (
            {"changes": {"rollout.max_new_tokens": 1024}},
            "rollout.max_new_tokens = 1024 instead of 4096",
        ),
        ({"changes": {"eval.n": 4}}, "4 answers a test question instead of 16"),
        ({"questions": (24_024, 5000)}, "24,024 training questions instead of 25,000"),
        ({"questions": (25_000, 500)}, "tested on 500 questions of MATH instead of 5,000"),
        ({"test": "openai/gsm8k"}, "not tested on MATH"),
    ],
)
def test_a_run_off_the_protocol_fills_no_cell_and_says_why(
    tmp_path: Path, other: dict[str, Any], reason: str
) -> None:
    paper_run(tmp_path / "r" / "one", "grpo", 0.6, **other)
    found = document.reproduction([tmp_path / "r"])
    assert [one.run for one in found.tables] == [0, 0, 0]
    assert found.tables[0].remarks == [f"r/one is not counted here: {reason}."]
    assert "none was run at the paper's setting" in found.coverage()
    assert len(found.settings) == 1


def test_an_adapter_and_its_rate_are_said(tmp_path: Path) -> None:
    changes = {"model.lora": {"r": 32}, "optimizer.lr": 1e-5}
    paper_run(tmp_path / "r", "grpo", 0.6, changes=changes)
    text = written(tmp_path / "out", tmp_path / "r")
    assert "LoRA of rank 32 (the paper trained all weights)" in text
    assert "learning rate 1e-05 (the paper: 1e-06)" in text


def test_the_rows_of_a_model_are_of_one_setting(tmp_path: Path) -> None:
    """Two adapters under GRPO are more runs, but the pair of a seed is what compares."""
    adapter = {"changes": {"model.lora": {"r": 32}, "optimizer.lr": 3e-6}}
    for seed in (0, 1):
        paper_run(tmp_path / "r" / f"adapter{seed}", "grpo", 0.54 + 0.01 * seed, seed, **adapter)
    paper_run(tmp_path / "r" / "g", "grpo", 0.40)
    paper_run(tmp_path / "r" / "l", "lens", 0.42)
    first = document.reproduction([tmp_path / "r"]).tables[0]
    grpo, lens = (line for line in first.lines if line.row.model.startswith("Qwen"))
    assert [run.path.name for line in (grpo, lens) for run in line.runs] == ["g", "l"]
    assert lens.gain is not None
    assert lens.gain.mean == pytest.approx(2.0)
    left_out = "is not counted here: other settings than the runs that are counted."
    assert first.remarks == [f"r/adapter0 {left_out}", f"r/adapter1 {left_out}"]
    for seed in (0, 1):
        paper_run(tmp_path / "r" / f"lens{seed}", "lens", 0.56 + 0.01 * seed, seed, **adapter)
    first = document.reproduction([tmp_path / "r"]).tables[0]
    grpo, lens = (line for line in first.lines if line.row.model.startswith("Qwen"))
    assert [len(line.runs) for line in (grpo, lens)] == [2, 2]
    assert first.remarks[0] == (
        "Qwen-2.5-3B-Base: ours differ from the paper's in LoRA of rank 32 (the paper trained all "
        "weights); learning rate 3e-06 (the paper: 1e-06)."
    )


def test_rows_without_a_pair_are_of_what_was_run_and_do_not_compare(tmp_path: Path) -> None:
    adapter = {"changes": {"model.lora": {"r": 32}, "optimizer.lr": 3e-6}}
    for seed in (0, 1):
        paper_run(tmp_path / "r" / f"g{seed}", "grpo", 0.54, seed, **adapter)
    paper_run(tmp_path / "r" / "l", "lens", 0.42)
    first = document.reproduction([tmp_path / "r"]).tables[0]
    grpo, lens = (line for line in first.lines if line.row.model.startswith("Qwen"))
    assert [len(line.runs) for line in (grpo, lens)] == [2, 1]
    assert lens.gain is None
    said = "Qwen-2.5-3B-Base: our rows are of different settings; don't compare them."
    assert first.remarks[1:] == [said]


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_of_settings_with_as_many_pairs_the_papers_own_stands(tmp_path: Path, names: str) -> None:
    adapter = {"model.lora": {"r": 32}, "optimizer.lr": 3e-6}
    for name, changes in zip(names, (adapter, {"model.lora": None}), strict=True):
        for method in ("grpo", "lens"):
            paper_run(tmp_path / name / method, method, 0.5, changes=changes)
    first = document.reproduction([tmp_path]).tables[0]
    runs = [run for line in first.lines for run in line.runs]
    assert [run.path.parent.name for run in runs] == [names[1]] * 2


def test_of_two_copies_of_a_run_the_evaluated_one_counts(tmp_path: Path) -> None:
    never = make_run(tmp_path / "a" / "g", "grpo", 0.5, changes={"eval.every": 0})
    head = (never / "eval.csv").read_text().splitlines()[0]
    (never / "eval.csv").write_text(head + "\n")
    make_run(tmp_path / "b" / "g", "grpo", 0.5, changes={"eval.every": 1})
    found = find([tmp_path])
    assert [run.path.parent.name for run in found.finished] == ["b"]
    assert [run.path.parent.name for run, _ in found.double] == ["a"]


def test_manifests_of_another_program_are_passed_over(tmp_path: Path) -> None:
    make_run(tmp_path / "r" / "g", "grpo", 0.5)
    (tmp_path / "r" / "k8s").mkdir()
    (tmp_path / "r" / "k8s" / "manifests.json").write_text("// none of ours\n{}")
    assert len(find([tmp_path / "r"]).finished) == 1


def test_a_method_beyond_the_papers_stands_beside_grpo_of_its_setting(tmp_path: Path) -> None:
    for seed in (0, 1):
        paper_run(tmp_path / "r" / f"g{seed}", "grpo", 0.5, seed)
        paper_run(tmp_path / "r" / f"l{seed}", "lens", 0.5, seed)
    alone = document.reproduction([tmp_path / "r"])
    assert [len(setting.runs) for setting in alone.settings] == [4]
    assert alone.coverage().endswith("; 0 runs of 0 other settings below.")
    paper_run(tmp_path / "r" / "n", "nsr", 0.45, 1)
    found = document.reproduction([tmp_path / "r"])
    (setting,) = found.settings
    change = setting.difference("nsr")
    assert change is not None
    assert change.mean == pytest.approx(-5.0)
    assert found.coverage().endswith("; 1 run of 1 other setting below.")
    assert "nothing to compare" not in written(tmp_path / "out", tmp_path / "r")


def test_how_often_a_run_was_evaluated_sets_none_apart(tmp_path: Path) -> None:
    for seed, every in ((0, 1), (1, 2)):
        make_run(tmp_path / f"g{seed}", "grpo", 0.5, seed, changes={"eval.every": every})
        make_run(tmp_path / f"l{seed}", "lens", 0.6, seed, changes={"eval.every": 1})
    assert len(only_setting(tmp_path).paired("lens")) == 2


@pytest.mark.usefixtures("drawn")
def test_figures_of_an_earlier_report_go_with_it(tmp_path: Path) -> None:
    for name, changes in (("a", {}), ("b", {"optimizer.lr": 1e-3})):
        for method in ("grpo", "lens"):
            make_run(tmp_path / name / method, method, 0.5, changes=changes)
    out = tmp_path / "out"
    written(out, tmp_path / "a", tmp_path / "b")
    (out / "mine_curves.png").touch()
    both = {path.name for path in out.glob("*.png")}
    written(out, tmp_path / "a")
    one = {path.name for path in out.glob("*.png")}
    assert "mine_curves.png" in one
    assert len(both) == len(one) + 3  # the figures of the other setting
    fresh = tmp_path / "fresh"
    written(fresh, tmp_path / "a")
    assert {path.name for path in fresh.glob("*.png")} == one - {"mine_curves.png"}


def test_another_reading_of_lens_is_not_the_papers(tmp_path: Path) -> None:
    paper_run(tmp_path / "r", "lens:preset=normalized_difficulty", 0.6)
    assert all(cell.ours is None for cell in cells(tmp_path, "Table 1").values())
    assert "LENS normalized_difficulty" in written(tmp_path / "out", tmp_path)


# --- what has not been run


def test_what_was_not_run_is_never_a_number(tmp_path: Path) -> None:
    make_run(tmp_path / "r", "grpo", 0.3)
    text = written(tmp_path / "out", tmp_path / "r")
    assert text.count("ours " + "not run " * 5) == 12
    with (tmp_path / "out" / "tables.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60
    assert {(r["ours"], r["low"], r["high"], r["runs"], r["state"]) for r in rows} == {
        ("", "", "", "0", "not run")
    }
    assert rows[0]["published"] == "54.09"
    tex = (tmp_path / "out" / "tables.tex").read_text(encoding="utf-8")
    assert tex.count(r"\textit{not run}") == 12 * 5 + 7  # and seven differences to GRPO
    assert tex.count(r"\begin{table}") == tex.count(r"\end{table}") == 4


# --- our own settings


def test_means_and_paired_differences_over_seeds(tmp_path: Path) -> None:
    # LENS − GRPO: 25, 0, −25 points: mean 0, s = 25, ± 4.302653 · 25 / √3 = 62.1
    for seed, (grpo, lens) in enumerate(((0.25, 0.5), (0.25, 0.25), (0.5, 0.25))):
        make_run(tmp_path / "r" / f"g{seed}", "grpo", grpo, seed)
        make_run(tmp_path / "r" / f"l{seed}", "lens", lens, seed)
    setting = only_setting(tmp_path / "r")
    assert setting.title == "The bundled policy on the bundled task, 4 updates of 32 × 16 answers"
    change = setting.difference("lens")
    assert change is not None
    assert (change.mean, change.low, change.high) == pytest.approx((0, -62.1035, 62.1035), abs=1e-3)
    assert (change.n, change.over) == (3, "seeds")
    mean = setting.accuracy("grpo", "pass@16", "4-5")  # ± 4.302653 · 25 / √12 = 35.9
    assert mean is not None
    assert mean.mean == pytest.approx(100 / 3 - 5 + 15)
    assert (mean.low, mean.high) == pytest.approx((7.4778, 79.1889), abs=1e-3)
    low = setting.accuracy("grpo", "pass@1")  # 33.3 ± 35.9: a rate has no interval below 0
    assert low is not None
    assert (low.low, low.high) == pytest.approx((0, 69.1889), abs=1e-3)
    drawn = run_figures.curve(setting.of("grpo"), "all")
    assert (drawn[2][-1], drawn[3][-1]) == pytest.approx((0, 69.1889), abs=1e-3)
    text = written(tmp_path / "out", tmp_path / "r")
    assert "Over 3 seeds, LENS as printed does not beat GRPO, nor GRPO it" in text
    assert "over seeds (these runs, update 4)" in text
    # negative groups 50 % in the first of four updates and 25 % in the last
    assert "LENS as printed 50.0 25.0 1:500 1.500 1.500 20.0 20.0" in text
    csv_file = pd.read_csv(tmp_path / "out" / "our_runs.csv")
    row = csv_file[(csv_file["quantity"] == "difference from GRPO") & (csv_file["level"] == "all")]
    assert row["low"].iloc[0] == pytest.approx(-62.1035, abs=1e-3)


def test_one_seed_is_paired_over_questions(tmp_path: Path) -> None:
    # two questions, differences +50 and 0 points: resampled means 0, 25, 50 by enumeration
    make_run(tmp_path / "r" / "g", "grpo", 0.5, correct=[0, 4])
    make_run(tmp_path / "r" / "l", "lens", 0.75, correct=[2, 4])
    change = only_setting(tmp_path / "r").difference("lens")
    assert change is not None
    assert (change.mean, change.low, change.high) == (25.0, 0.0, 50.0)
    assert (change.n, change.over) == (2, "questions")
    of_level = only_setting(tmp_path / "r").over_questions("lens", level="4")
    assert of_level is None  # one question, the other one is of level 5
    both = only_setting(tmp_path / "r").over_questions("lens", level="4-5")
    assert both == change
    assert "paired bootstrap over questions" in written(tmp_path / "out", tmp_path / "r")


def test_one_seed_beside_several_tells_no_method_from_another(tmp_path: Path) -> None:
    """NGRPO gains 50 points on both questions with its one seed. With GRPO's second seed beside it
    that is no verdict, whatever the interval over questions is; GRPO of its seed has a row."""
    make_run(tmp_path / "r" / "g0", "grpo", 0.5, correct=[0, 2])
    make_run(tmp_path / "r" / "n0", "ngrpo", 0.75, correct=[2, 4])
    assert "NGRPO is better than GRPO on these questions." in written(
        tmp_path / "out", tmp_path / "r"
    )
    make_run(tmp_path / "r" / "g1", "grpo", 0.5, 1, correct=[3, 3])
    text = written(tmp_path / "out", tmp_path / "r")
    assert "NGRPO against GRPO, seed 0: one seed is too few to tell the methods apart." in text
    assert "is better than" not in text
    assert "Of a single seed: Such a comparison is of single training runs." in text
    assert "GRPO, seed 0 1 25.0 " in text


def test_one_seed_without_counts_has_no_interval(tmp_path: Path) -> None:
    make_run(tmp_path / "g", "grpo", 0.5)
    make_run(tmp_path / "l", "lens", 0.75)
    change = only_setting(tmp_path).difference("lens")
    assert change is not None
    assert (change.mean, change.low, change.n) == (25.0, None, 1)


def test_seeds_that_all_agree_have_no_interval(tmp_path: Path) -> None:
    for seed, grpo in enumerate((0.25, 0.36)):
        make_run(tmp_path / "r" / f"g{seed}", "grpo", grpo, seed)
        make_run(tmp_path / "r" / f"l{seed}", "lens", grpo + 0.02, seed)
    change = only_setting(tmp_path / "r").difference("lens")
    assert change is not None
    assert (change.low, change.high, change.n, change.over) == (None, None, 2, "")
    text = written(tmp_path / "out", tmp_path / "r")
    assert "LENS as printed 2 seeds +2.0 +2.0" in text
    assert "LENS as printed: no interval over 2 seeds, since each of them gives +2.0 points" in text
    assert "[+2.0, +2.0]" not in text
    row = pd.read_csv(tmp_path / "out" / "our_runs.csv").iloc[-1]
    assert (row["quantity"], row["interval over"]) == ("difference from GRPO", "none")
    assert row[["low", "high"]].isna().all()


def test_runs_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "grpo", 0.5)
    make_run(tmp_path / "b", "lens", 0.6, changes={"optimizer.lr": 1e-3})
    make_run(tmp_path / "c", "lens", 0.7, steps=8)
    settings = document.reproduction([tmp_path]).settings
    assert [len(s.runs) for s in settings] == [1, 1, 1]
    assert [s.title.split(" answers")[1] for s in settings] == [
        " (optimizer.lr = 0.001)",
        " (optimizer.lr = 1e-06)",
        "",
    ]
    assert len({s.slug for s in settings}) == 3
    assert "nothing to compare them with" in written(tmp_path / "out", tmp_path)


def test_a_collected_folder_says_what_its_runs_say(tmp_path: Path) -> None:
    for seed in (0, 1):
        for method, final in (("grpo", 0.25), ("lens", 0.5)):
            name = f"{method}-seed{seed}"
            make_run(tmp_path / "r" / name, method, final + seed / 8, seed)
    collect.collect([tmp_path / "r"], tmp_path / "collected")
    ours = [only_setting(tmp_path / folder) for folder in ("r", "collected")]
    assert ours[0].title == ours[1].title
    assert ours[0].labels == ours[1].labels == ["grpo", "lens"]
    assert ours[0].difference("lens") == ours[1].difference("lens")
    assert tables.training_rows(ours[0]) == tables.training_rows(ours[1])


def test_a_method_of_fewer_seeds_stands_beside_grpo_of_these(tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run(tmp_path / f"grpo-seed{seed}", "grpo", 0.5, seed)
    make_run(tmp_path / "lens-seed0", "lens", 0.5, 0)
    make_run(tmp_path / "nsr-seed0", "nsr", 0.5, 0)
    make_run(tmp_path / "psr-seed7", "psr", 0.5, 7)
    rows = tables.training_rows(only_setting(tmp_path))
    assert [row[0] for row in rows] == ["GRPO", "GRPO, seed 0", "LENS as printed", "NSR", "PSR"]


# --- finding runs


def test_unfinished_and_double_runs_are_named_and_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "far" / "away")
    make_run(tmp_path / "a", "grpo", 0.5)
    make_run(tmp_path / "b", "grpo", 0.7)
    make_run(tmp_path / "c", "lens", 0.7, status="interrupted")
    found = document.reproduction([tmp_path])
    assert len(found.found.finished) == 1
    late, double = found.notes()
    assert late == f"{tmp_path / 'c'} is not finished (3 of 4 updates) and is not counted"
    others = "others of the same method, seed and settings"
    assert double == f"1 run of {tmp_path} left out, as {tmp_path} has {others}: b"
    assert late in written(tmp_path / "out", tmp_path)


def test_reruns_of_a_folder_are_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By paths from the working folder, or the one above it."""
    for parent, seed in (("a", 0), ("a", 1), ("b", 0), ("b", 1)):
        make_run(tmp_path / "runs" / parent / f"grpo-seed{seed}", "grpo", 0.5, seed)
    others = "others of the same method, seed and settings: grpo-seed0, grpo-seed1"
    for where, first, second in (
        (".", "runs/a", "runs/b"), ("runs", "a", "b"), ("runs/a", ".", "../b"),
    ):  # fmt: skip
        monkeypatch.chdir(tmp_path / where)
        (said,) = document.reproduction([tmp_path / "runs"]).notes()
        assert said == f"2 runs of {second} left out, as {first} has {others}"
    (tmp_path / "far" / "away").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "far" / "away")
    (said,) = document.reproduction([tmp_path / "runs"]).notes()
    assert said.startswith(f"2 runs of {tmp_path / 'runs' / 'b'} left out")


def test_pieces_and_other_manifests_are_passed_over(tmp_path: Path) -> None:
    make_run(tmp_path / "results" / "compare" / "cells" / "x", "grpo", 0.5)
    (tmp_path / "results" / "toy").mkdir()
    (tmp_path / "results" / "toy" / "manifest.json").write_text('{"seconds": 3}')
    assert find(results=tmp_path / "results").finished == ()
    text = written(tmp_path / "out")
    assert "No other finished run was found." in text


@pytest.mark.parametrize("whole", [".", "a", "z"])
def test_whole_runs_win_over_collected_ones(
    whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever folder's name comes first, and where both lie in one."""
    for method, correct in (("grpo", [1, 2]), ("lens", [2, 4])):
        make_run(tmp_path / "m" / whole / f"{method}-seed0", method, 0.5, correct=correct)
    collect.collect([tmp_path / "m" / whole], tmp_path / "collected")
    (tmp_path / "collected").rename(tmp_path / "k")
    for file in (tmp_path / "k").iterdir():
        file.rename(tmp_path / "m" / file.name)
    monkeypatch.chdir(tmp_path)
    found = document.reproduction([Path("m")])
    assert [run.whole for run in found.found.finished] == [True, True]
    assert only_setting(tmp_path / "m").over_questions("lens") is not None
    (said,) = found.notes()
    others = f"{Path('m') / whole} has whole ones of the same method, seed and settings"
    assert said == f"2 collected runs of m left out, as {others}: grpo-seed0, lens-seed0"


def test_the_same_questions_from_another_place_are_the_same(tmp_path: Path) -> None:
    """Collecting cuts paths: the run and its copy are one. Other hashes are other questions."""
    path = make_run(tmp_path / "r" / "grpo-seed0", "grpo", 0.5, correct=[1, 2])
    config = yaml.safe_load((path / "config.yaml").read_text())
    config["data"] = {"train": "/data/train.jsonl.gz", "test": "/data/test.jsonl.gz"}
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    collect.copy_whole([tmp_path / "r"], tmp_path / "kept")
    copied = (tmp_path / "kept/grpo-seed0/config.yaml").read_text()
    assert "train: train.jsonl.gz" in copied
    found = find([tmp_path / "r", tmp_path / "kept"])
    assert (len(found.finished), len(found.double)) == (1, 1)
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"sha256": "test"', '"sha256": "others"'))
    assert len(find([tmp_path / "r", tmp_path / "kept"]).finished) == 2


def test_a_run_named_twice_is_read_once(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a", "grpo", 0.5)
    found = find([path, tmp_path], tmp_path)
    assert len(found.finished) == 1
    assert found.double == ()


def test_the_report_of_a_training_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "r" / "grpo-seed0", "grpo", 0.5)
    (tmp_path / "r" / "report.html").write_text("with samples")
    assert report.main([str(tmp_path / "r"), "--out", str(tmp_path / "r")]) == 2
    assert "holds training runs, with a report of their own" in capsys.readouterr().err
    assert (tmp_path / "r" / "report.html").read_text() == "with samples"
    collect.collect([tmp_path / "r"], tmp_path / "c")
    assert report.main(["--results", str(tmp_path / "c"), "--out", str(tmp_path / "c")]) == 2
    assert "holds collected runs" in capsys.readouterr().err
    assert not (tmp_path / "c" / "report.html").exists()


def test_bad_input_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(path: Path) -> str:
        assert report.main([str(path), "--out", str(tmp_path / "out")]) == 2
        output = capsys.readouterr()
        assert output.out == ""
        (line,) = output.err.splitlines()
        return line

    assert refused(tmp_path / "nowhere") == f"error: no folder {tmp_path / 'nowhere'}"
    (tmp_path / "empty").mkdir()
    assert "empty holds no training run: a run is a folder with" in refused(tmp_path / "empty")
    (tmp_path / "empty" / "notes.txt").write_text("no run")
    assert "holds no training run" in refused(tmp_path / "empty")
    assert "notes.txt is not a folder" in refused(tmp_path / "empty" / "notes.txt")
    half = make_run(tmp_path / "half", "grpo", 0.5)
    (half / "metrics.csv").write_text("step,reward\n1,0.1\n")
    assert "its manifest says 4 updates, its metrics.csv 1; copy it again" in refused(half)
    (half / "manifest.json").unlink()
    said = "half is half a run: it has no manifest.json"
    assert said in refused(half)
    for more in ([], ["--whole"]):  # in the same words
        assert collect.main([str(half), "--out", str(tmp_path / "collected"), *more]) == 2
        assert said in capsys.readouterr().err
    (half / "manifest.json").write_text('{"status": "fin')
    assert "manifest.json is damaged" in refused(half)
    (half / "manifest.json").unlink()
    assert "is half a run: it has no manifest.json" in refused(half)
    bare = make_run(tmp_path / "bare", "grpo", 0.5)
    (bare / "config.yaml").unlink()
    assert "is half a run: it has no config.yaml" in refused(bare)
    assert not (tmp_path / "out").exists()


def test_the_command(drawn: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "r" / "g", "grpo", 0.5)
    make_run(tmp_path / "r" / "l", "lens", 0.5)
    assert report.main([str(tmp_path / "r"), "--out", str(tmp_path / "out")]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert "2 runs of 1 other setting" in first
    assert last == f"report: {tmp_path / 'out' / 'report.html'}"
    made = {path.name for path in (tmp_path / "out").iterdir()}
    names = {"overview", "negative_groups", "optimal_policy", "weight"}
    names |= {"curves_dapo", "curves_numina"}
    ours = "bundled-policy-bundled-task-4-updates-32-16"
    names |= {f"{ours}_curves", f"{ours}_curves_hard", f"{ours}_differences"}
    assert {path for path in made if path.endswith(".png")} == {f"{name}.png" for name in names}
    assert {"report.html", "tables.csv", "our_runs.csv", "tables.tex"} <= made
    (tmp_path / "file").write_text("")
    assert report.main([str(tmp_path / "r"), "--out", str(tmp_path / "file")]) == 2
    assert f"cannot write {tmp_path / 'file'}: File exists" in capsys.readouterr().err


# --- odd runs


def test_a_run_without_evaluation_is_shown_without_numbers(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", "grpo", 0.5)
    (path / "eval.csv").unlink()
    text = written(tmp_path / "out", tmp_path / "r")
    assert "1 run of 1 other setting" in text


def test_damage_in_a_log_is_said(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", "grpo", 0.5)
    (path / "eval.csv").write_text("step,level,pass@1\n4,all,high\n")
    with pytest.raises(UserError, match=r"eval\.csv is damaged: column pass@1"):
        find([tmp_path / "r"])


def test_means_say_over_how_many_runs_they_are_and_go_up_to_the_largest_k(tmp_path: Path) -> None:
    """A run that lost its last evaluation counts in no mean; with four answers k ends at 4."""
    for method, seed in itertools.product(("grpo", "lens"), (0, 1)):
        path = make_run(tmp_path / "r" / f"{method}-seed{seed}", method, 0.3, seed)
        rows = [row.split(",") for row in (path / "eval.csv").read_text().splitlines()]
        cut = [[*row[:5], "", "", *row[7:]] if row[0] != "step" else row for row in rows]
        if (method, seed) == ("lens", 1):
            cut = [row for row in cut if row[0] in ("step", "0")]
        (path / "eval.csv").write_text("\n".join(map(",".join, cut)) + "\n")
    (setting,) = grouped(find([tmp_path / "r"]).finished)
    (note,) = document.reproduction([tmp_path / "r"]).notes()
    assert note.endswith("/r without an evaluation after the last update, in no mean: lens-seed1")
    hard = [("pass@1", "4-5"), ("pass@4", "4-5")]
    assert tables.measured(setting) == [("pass@1", "all"), ("pass@4", "all"), *hard]
    _, rows = tables.accuracy_rows(setting)
    its = [["GRPO", "2"], ["GRPO, seed 0", "1"], ["LENS as printed", "1 of 2"]]
    assert [row[:2] for row in rows] == its
    _, rows = tables.lone_rows([setting])
    assert [row[2] for row in rows] == ["2", "1 of 2"]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (["4,q0,4,4,1"], "update 4 has 1 questions, eval.csv 3"),
        (["0,q0,4,10,1", "0,q1,4,10,1", "0,q2,4,10,1"], "update 4 has 0 questions, eval.csv 3"),
        (["4,q0,4,4,1", "4,q0,4,4,1"], "line 3: the same step and question again"),
        (
            ["4,q0,4,4,1", "4,q1,5,4,2", "4,q2,4,4,4"],
            "pass@1 after update 4 is 0.5833, in eval.csv 0.25",
        ),
    ],
)
def test_counts_that_are_not_those_of_the_evaluation(
    tmp_path: Path, rows: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_run(tmp_path / "r/grpo-seed0", "grpo", 0.25, correct=[1, 2, 0])
    (path / "eval_counts.csv").write_text("\n".join(["step,question,level,n,correct", *rows, ""]))
    assert report.main([str(tmp_path / "r"), "--out", str(tmp_path / "out")]) == 2
    assert f"eval_counts.csv is damaged: {why}; copy" in capsys.readouterr().err


@pytest.mark.parametrize("table", ["curves.csv", "updates.csv"])
def test_a_table_of_a_collection_with_rows_twice_or_that_is_not_there(
    tmp_path: Path, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "r/grpo-seed0", "grpo", 0.25)
    collect.collect([tmp_path / "r"], tmp_path / "c")
    path = tmp_path / "c" / table
    asked = ["--results", str(tmp_path / "c"), "--out", str(tmp_path / "out")]
    path.write_text(path.read_text() + path.read_text().splitlines()[1] + "\n")
    assert report.main(asked) == 2
    assert "the same method and seed and step" in capsys.readouterr().err
    path.unlink()
    assert report.main(asked) == 2
    said = f"error: {tmp_path / 'c'} is half a collection: it has no {table}; copy it again\n"
    assert capsys.readouterr().err == said


def test_a_run_that_was_not_begun_is_told_and_not_counted(tmp_path: Path) -> None:
    """The session was stopped during the run before it: there are its settings alone."""
    make_run(tmp_path / "r/grpo-seed0", "grpo", 0.25)
    later = make_run(tmp_path / "r/lens-seed0", "lens", 0.5)
    for name in ("manifest.json", "metrics.csv", "eval.csv"):
        (later / name).unlink()
    found = document.reproduction([tmp_path / "r"])
    assert [run.label for run in found.found.finished] == ["grpo"]
    (note,) = found.notes()
    assert note.endswith("lens-seed0 is not finished (0 of 4 updates) and is not counted")
