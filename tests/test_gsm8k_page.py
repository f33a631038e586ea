"""The page on the runs of Qwen2.5-Coder-0.5B says what their folders say, and no more."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lens_ref.rlvr.errors import UserError
from tests.beside import imported
from tests.report_runs import make_run


@pytest.fixture(scope="module")
def page() -> Any:
    return imported("docs", "gsm8k_page")


def a_run(folder: Path, method: str, seed: int, correct: Sequence[int], ratio: str = "") -> None:
    """Eight updates with sampler, card and an adapter that changed at every one but the last;
    `correct`: right ones of 4 answers to each of four test questions, at the end."""
    path = folder / f"{method.replace(':groups=', '-groups')}-seed{seed}"
    final = sum(correct) / 16
    made = make_run(path, method, final, seed, steps=8, correct=correct)
    manifest = json.loads((made / "manifest.json").read_text())
    manifest |= {
        "commit": "abcdefg" + 33 * "0",
        "wall_seconds": 1800.0,
        "hardware": {"gpu": "a card"},
        "versions": {"torch": "2.11.0"},
        "sampler": {"engine": "vllm", "version": "0.20.2"},
    }
    (made / "manifest.json").write_text(json.dumps(manifest))
    head = "step,reward,negative_share,neg_to_mixed_rms,entropy,mean_length,adapter,logprob_drift"
    rows = [f"{head},rollout_tokens_per_second,update_seconds"]
    for step in range(1, 9):
        rows.append(
            f"{step},{step / 10},{0.5 if step <= 4 else 0.25},{ratio},{1.5 - step / 10},200.0,"
            f"a{min(step, 7)},{step / 1000},{1000 * step},{step}"
        )
    (made / "metrics.csv").write_text("\n".join(rows) + "\n")


def test_nothing_yet(page: Any, tmp_path: Path) -> None:
    assert page.page(tmp_path / "none") == "No runs are committed yet."
    assert page.headline(tmp_path / "none", "MATH") == []


def test_runs_on_another_task(page: Any, tmp_path: Path) -> None:
    a_run(tmp_path, "grpo", 0, (0, 1, 2, 1))
    a_run(tmp_path, "lens", 0, (1, 2, 3, 2), "0.002")
    text = page.page(tmp_path, "MATH")
    assert "(math.png)" in text
    assert "gsm8k" not in text
    lines = page.headline(tmp_path, "MATH")
    assert lines[0].startswith("- **Qwen2.5-Coder-0.5B on MATH** (1 seed, 8 updates, ")


def test_levels(page: Any, tmp_path: Path) -> None:
    """Test questions are of levels 4, 5, 4 and 5; those of level 4 gain all four answers and one of
    four, those of level 5 none. Three of four groups of level 4 are negative, and one of two of
    level 5: four of six."""
    a_run(tmp_path, "grpo", 0, (0, 1, 2, 1))
    a_run(tmp_path, "lens", 0, (4, 1, 3, 1), "0.002")
    assert "| 4–5 |  | 4 | 5.0 % | 20.0 % | 51.2 % | +31.2 [0.0, +75.0] |" in page.page(tmp_path)
    kinds = ("4,negative", "4,negative", "4,mixed", "4,negative", "5,negative", "5,mixed")
    for run, own in (("grpo", kinds[:2]), ("lens", kinds[2:])):
        rows = (f"0,q,{kind.replace(',', ',4,0,')},0.5" for kind in own)
        lines = ("step,question,level,responses,correct,kind,confidence", *rows)
        (tmp_path / f"{run}-seed0" / "groups.csv").write_text("\n".join(lines) + "\n")
        path = tmp_path / f"{run}-seed0" / "eval.csv"
        own_rows = [row.replace(",4-5,", ",4,") for row in path.read_text().split() if "4-5" in row]
        path.write_text(path.read_text() + "\n".join(own_rows) + "\n")
    text = page.page(tmp_path)
    head = "| level | negative groups | test questions | pass@1 before | GRPO after | "
    assert f"{head}LENS as printed after | minus GRPO, points [95 %] |\n" in text
    assert "| 4–5 | 66.7 % | 4 | 5.0 % | 20.0 % | 51.2 % | +31.2 [0.0, +75.0] |\n" in text
    assert "| 4 | 75.0 % | 4 | 5.0 % | 20.0 % | 51.2 % | +62.5 [+25.0, +100.0] |\n" in text
    a_run(tmp_path, "grpo", 1, (1, 1, 1, 1))  # in the mean, but of no difference
    assert "| level |" not in page.page(tmp_path)
    shutil.rmtree(tmp_path / "grpo-seed0")
    assert "| level |" not in page.page(tmp_path)


def test_two_runs(page: Any, tmp_path: Path) -> None:
    """Of 4 × 4 answers GRPO has 4 right and LENS 8; each question gains one of four, always."""
    a_run(tmp_path, "grpo", 0, (0, 1, 2, 1))
    a_run(tmp_path, "lens", 0, (1, 2, 3, 2), "0.002")
    text = page.page(tmp_path)
    assert text.startswith("2 runs, 8 updates each of 32 questions × 16 answers, ")
    assert "Commits:\n\n- abcdefg: GRPO (seed 0); LENS as printed (seed 0)\n\n" in text
    assert (
        "evaluated on 4 test questions × 4 answers; their wall times add up to 1.0 hours (a card)"
        in text
    )
    assert "torch 2.11.0, vLLM 0.20.2. The adapter" in text
    assert "another hash after 14 of 16 updates" in text
    assert "differed by at most 0.008 nats a token in the mean of an update" in text
    assert "sampled 4,500 tokens/s, an update took 4.5 s (medians)" in text
    assert "| GRPO | 1 | 10.0 % | 25.0 % |  | 25.0 % | 40.0 % |  |" in text
    lens = "| LENS as printed | 1 | 10.0 % | 50.0 % | +25.0 [+25.0, +25.0] | 25.0 % | 65.0 % |"
    assert lens in text
    assert "With fewer than 3 seeds the intervals are over test questions alone" in text
    by_seed = "Minus GRPO by seed:\n\n- LENS as printed, seed 0: +25.0 in pass@1; +25.0 in pass@16."
    assert by_seed in text
    assert "Two runs of one method" not in text
    assert "means over runs; the last column over all updates with both kinds of groups, " in text
    assert "| LENS as printed | 50.0 % → 25.0 % | 1.350 → 0.750 | 200.0 → 200.0 | 1 : 500 |" in text
    assert "| GRPO | 50.0 % → 25.0 % | 1.350 → 0.750 | 200.0 → 200.0 | 0 |" in text
    apart = (
        "95 % interval over questions [+25.0, +25.0]: 1 seed is too few to tell the methods apart."
    )
    assert f"LENS as printed: +25.0 points, {apart}" in text


def test_two_seeds_are_too_few_for_an_interval_over_seeds(page: Any, tmp_path: Path) -> None:
    """Every question gains one answer of four with seed 0 and none with seed 1: an eighth. Over the
    seeds 25 and 0: sd 17.68, t 12.71, ± 158.8."""
    a_run(tmp_path, "grpo", 0, (0, 1, 2, 1))
    a_run(tmp_path, "lens", 0, (1, 2, 3, 2), "0.002")
    for method in ("grpo", "lens"):
        a_run(tmp_path, method, 1, (3, 1, 2, 0), "0.002" if method == "lens" else "")
    text = page.page(tmp_path)
    assert "| +12.5 [+12.5, +12.5] |" in text
    seeds = "seeds 0 and 1: +25.0 and 0.0 in pass@1, over the seeds [−146.3, +171.3]; "
    assert f"- LENS as printed, {seeds}" in text
    assert "over questions [+12.5, +12.5], over the seeds [−146.3, +171.3]: 2 seeds are" in text
    assert "the last column by quarter: 1 : 500, 1 : 500, 1 : 500, 1 : 500." in text
    assert "second minus first: GRPO +12.5 in pass@1 and " in text  # 6 of 16 after 4 of 16
    assert "; LENS as printed −12.5 in pass@1 and " in text
    lines = page.headline(tmp_path)
    assert "(2 seeds, 8 updates, 4 test questions, " in lines[0]
    assert "GRPO takes pass@1 from 10.0 % to 31.2 %." in lines[0]
    assert "+12.5 points, 95 % interval over questions [+12.5, +12.5], over the seeds" in lines[1]


def test_nothing_is_compared_without_a_pair(page: Any, tmp_path: Path) -> None:
    assert page.headline(tmp_path / "none") == []
    a_run(tmp_path, "grpo", 0, (0, 1, 2, 1))
    assert page.headline(tmp_path) == []
    a_run(tmp_path, "lens", 1, (0, 1, 2, 1), "0.002")
    assert page.headline(tmp_path) == []
    assert "interval" not in page.page(tmp_path)


def test_an_arm_with_fewer_seeds_stands_beside_grpo_of_these(page: Any, tmp_path: Path) -> None:
    """GRPO has 4, 4, 4 and 12 of 16 right, 37.5 % in the mean; in the first three 25 %. Halves of
    LENS gain 6.25 points with seed 0 and none with 1 and 2: mean 2.1, sd 3.61, t 4.303, ± 9.0."""
    for seed, correct in enumerate(((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1), (3, 3, 3, 3))):
        a_run(tmp_path, "grpo", seed, correct)
        a_run(tmp_path, "lens", seed, correct, "0.002")
        if seed < 3:
            gain = (2, 1, 1, 1) if seed == 0 else correct
            a_run(tmp_path, "lens:groups=mixed", seed, gain)
            a_run(tmp_path, "lens:groups=negative", seed, gain)
    text = page.page(tmp_path)
    assert "| GRPO | 4 | 10.0 % | 37.5 % |" in text
    assert "| LENS, mixed groups only | 3 | 10.0 % | 27.1 % | +2.1 [−6.9, +11.0] |" in text
    fewer = "| GRPO, seeds 0, 1 and 2 | 3 | 10.0 % | 25.0 % |  | 25.0 % | 40.0 % |  |\n"
    assert f"{fewer}| LENS as printed | 4 |" in text
    assert "| GRPO, seeds 0, 1 and 2 | 50.0 % → 25.0 % | 1.350 → 0.750 |" in text
    its, untold = "+2.1 points, 95 % interval [−6.9, +11.0]", "no difference from GRPO can be told."
    halves = "LENS, mixed groups only", "LENS, negative groups only"
    assert f"\n{halves[0]}: {its}; {halves[1]}: {its}: {untold}" in text
    lines = page.headline(tmp_path)
    assert len(lines) == 3
    assert lines[2] == f"  {halves[0]} (3 seeds): {its}; {halves[1]} (3 seeds): {its}: {untold}"
    a_run(tmp_path, "ngrpo", 0, (2, 2, 1, 1))
    *_, enough, few = page.headline(tmp_path)
    assert enough == lines[2]
    assert few.startswith("  NGRPO (1 seed): +12.5 points, 95 % interval over questions [")


def test_the_headline_is_of_common_seeds(page: Any, tmp_path: Path) -> None:
    """GRPO of seed 2 has 12 of 16 right and no partner."""
    for seed in (0, 1):
        a_run(tmp_path, "grpo", seed, (0, 1, 2, 1))
        a_run(tmp_path, "lens", seed, (1, 2, 3, 2), "0.002")
    a_run(tmp_path, "grpo", 2, (3, 3, 3, 3))
    lines = page.headline(tmp_path)
    assert "(2 seeds, " in lines[0]
    assert lines[0].endswith("GRPO takes pass@1 from 10.0 % to 25.0 %.")


def test_seeds_carry_the_interval_where_there_are_some(page: Any, tmp_path: Path) -> None:
    """LENS − GRPO: 0, 12.5 and −6.25 points by seed: mean 2.083, sd 9.547, t 4.303, ± 23.7. An arm
    without GRPO of its seed is not compared."""
    others = {0: (1, 1, 1, 1), 1: (2, 2, 1, 1), 2: (1, 0, 1, 1)}
    for seed, correct in others.items():
        a_run(tmp_path, "grpo", seed, (1, 1, 1, 1))
        a_run(tmp_path, "lens", seed, correct, "0.002")
    a_run(tmp_path, "nsr", 7, (1, 0, 0, 0))
    text = page.page(tmp_path)
    assert "| LENS as printed | 3 | 10.0 % | 27.1 % | +2.1 [−21.6, +25.8] |" in text
    assert "With fewer than" not in text
    assert "Student's intervals over seeds, each alone, paired with GRPO's. Minus GRPO" in text
    assert "GRPO, seed" not in text
    said = "95 % interval [−21.6, +25.8]: no difference from GRPO can be told."
    assert f"LENS as printed: +2.1 points, {said}" in text
    assert "- LENS as printed, seeds 0, 1 and 2: 0.0, +12.5 and −6.2 in pass@1; " in text
    # noncentral t, 2 degrees of freedom: 3.264 standard deviations; √(2/χ²): 0.5207 and 6.285
    assert " in pass@16. From 31.2 points on (16.2 to 195.8).\n" in text
    assert page.headline(tmp_path)[1].endswith(" (31.2 points would probably have shown).")
    assert "| NSR | 1 | 10.0 % | 6.2 % |  | 25.0 % | 21.2 % |  |" in text
    assert "NSR:" not in text


def test_seeds_that_agree_have_no_spread(page: Any, tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        a_run(tmp_path, "grpo", seed, (1, 1, 1, 1))
        a_run(tmp_path, "lens", seed, (1, 1, 1, 1), "0.002")
    text = page.page(tmp_path)
    assert "From " not in text
    assert "| LENS as printed | 3 | 10.0 % | 25.0 % | 0.0 | 25.0 % | 40.0 % | 0.0 |" in text
    assert "No interval, as every seed gave the same difference: LENS as printed." in text
    said = page.headline(tmp_path)[1]
    assert said == "  LENS as printed: 0.0 points with each of 3 seeds: no interval."


def change_manifest(run: Path, **entries: Any) -> None:
    path = run / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def test_a_sampler_that_drifts_under_one_method_alone(page: Any, tmp_path: Path) -> None:
    """Eight updates up to .008; the method that is further off is named."""
    a_run(tmp_path, "grpo", 0, (0, 1, 2, 1))
    a_run(tmp_path, "lens", 0, (1, 2, 3, 2), "0.002")
    assert "differed by at most 0.008 nats a token" in page.page(tmp_path)
    path = tmp_path / "lens-seed0" / "metrics.csv"
    path.write_text(path.read_text().replace("a7,0.008", "a7,0.024"))
    said = "differed by at most 0.024 (LENS as printed; else 0.008) nats a token"
    assert said in page.page(tmp_path)


def test_what_a_commit_does_not_say(page: Any, tmp_path: Path) -> None:
    a_run(tmp_path, "grpo", 0, (0, 1, 2, 1))
    a_run(tmp_path, "lens", 0, (1, 2, 3, 2), "0.002")
    change_manifest(tmp_path / "grpo-seed0", commit=None)
    change_manifest(tmp_path / "lens-seed0", commit=40 * "1" + "+changes")
    ran = "- unknown: GRPO (seed 0)\n- 1111111+changes: LENS as printed (seed 0)\n"
    assert ran in page.page(tmp_path)
    change_manifest(tmp_path / "grpo-seed0", package=40 * "2")
    assert "- package 2222222: GRPO (seed 0)\n" in page.page(tmp_path)


def test_runs_that_no_table_may_hold(page: Any, tmp_path: Path) -> None:
    """One that was cut has its accuracy from before training alone, which is no result."""
    a_run(tmp_path, "grpo", 0, (0, 1, 2, 1))
    a_run(tmp_path, "lens", 0, (1, 2, 3, 2), "0.002")
    change_manifest(tmp_path / "lens-seed0", status="interrupted")
    with pytest.raises(UserError, match="lens-seed0 is not finished"):
        page.page(tmp_path)
    change_manifest(tmp_path / "lens-seed0", status="finished")
    change_manifest(tmp_path / "lens-seed0", policy={"sha256": "a"})
    with pytest.raises(UserError, match="are of other weights or questions"):
        page.page(tmp_path)
    change_manifest(tmp_path / "grpo-seed0", policy={"sha256": "a"})
    (tmp_path / "lens-seed0" / "eval_counts.csv").rename(tmp_path / "aside")
    with pytest.raises(UserError, match=r"lens-seed0 has no eval_counts\.csv"):
        page.page(tmp_path)
    (tmp_path / "aside").rename(tmp_path / "lens-seed0" / "eval_counts.csv")
    page.page(tmp_path)
    (tmp_path / "lens-seed0" / "eval.csv").unlink()
    with pytest.raises(UserError, match="lens-seed0 was never evaluated"):
        page.page(tmp_path)


def test_the_figure(page: Any, tmp_path: Path) -> None:
    """Rewards .1 to .8: means of up to eight updates end at 45 %. A legend entry a method; thick
    lines are of seed 0, which both have: GRPO of seed 1 is made lower."""
    for seed in (0, 1):
        a_run(tmp_path / "runs", "grpo", seed, (0, 1, 2, 1))
    a_run(tmp_path / "runs", "lens:groups=mixed", 0, (1, 2, 3, 2), "0.002")
    left, right = page.drawing(page.read(tmp_path / "runs")).axes
    thin_and_thick = 3 + 2
    assert [line.get_ydata()[-1] for line in left.lines] == pytest.approx([45.0] * thin_and_thick)
    assert [line.get_ydata()[-1] for line in right.lines] == pytest.approx([37.5] * thin_and_thick)
    (legend,) = left.figure.legends
    named = [text.get_text() for text in legend.texts]
    assert named == ["GRPO, seeds 0 and 1", "LENS, mixed groups only, seed 0"]
    assert legend.get_title().get_text() == "thick: mean of seed 0"
    other = tmp_path / "runs" / "grpo-seed1" / "metrics.csv"
    other.write_text(re.sub(r"(?m)^(\d),0\.", r"\1,0.0", other.read_text()))
    left, _ = page.drawing(page.read(tmp_path / "runs")).axes
    thick = [line for line in left.lines if line.get_linewidth() == 2]
    assert [line.get_ydata()[-1] for line in thick] == pytest.approx([45.0, 45.0])
    assert min(line.get_ydata()[-1] for line in left.lines) == pytest.approx(4.5)
    page.figure(tmp_path / "runs", tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_a_single_run_is_no_mean_over_seeds(page: Any, tmp_path: Path) -> None:
    """Where others have seeds 0 and 1, it is a thin line of its own and changes none of theirs."""
    for method in ("grpo", "lens:groups=mixed"):
        for seed in (0, 1):
            a_run(tmp_path, method, seed, (0, 1, 2, 1))
    a_run(tmp_path, "ngrpo", 0, (0, 1, 2, 1))
    left, _ = page.drawing(page.read(tmp_path)).axes
    (legend,) = left.figure.legends
    assert legend.get_title().get_text() == "thick: mean of seeds 0 and 1"
    widths = {line.get_label(): line.get_linewidth() for line in left.lines}
    assert widths["GRPO, seeds 0 and 1"] == widths["LENS, mixed groups only, seeds 0 and 1"] == 2
    assert widths["NGRPO, seed 0"] == 1
    assert len(left.lines) == 2 * 3 + 1


def test_a_figure_of_one_seed_holds_no_mean(page: Any, tmp_path: Path) -> None:
    for method in ("grpo", "lens:groups=mixed"):
        a_run(tmp_path, method, 0, (0, 1, 2, 1))
    left, _ = page.drawing(page.read(tmp_path)).axes
    assert left.figure.legends[0].get_title().get_text() == ""
