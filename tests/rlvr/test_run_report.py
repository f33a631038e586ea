"""Reports of hand-made run folders: the verdict's numbers, what is missing, escaping, figures."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from matplotlib.figure import Figure
from PIL import Image

from lens_ref.reporting.settings import same_setting
from lens_ref.rlvr import collect, report_data, report_figures
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.report_verdict import signed
from lens_ref.rlvr.run_report import write_report
from lens_ref.rlvr.statistics import bootstrap_interval, moving_average, t_interval

PNGS = ("reward", "pass1", "levels", "negative_share", "signal")
EVIL = '<script>alert("x")</script> & <img src=x>'
RENDER = report_figures.png


@pytest.fixture(autouse=True)
def committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the project's committed results are looked for: nowhere, unless a test puts some."""
    root = tmp_path / "project"

    def find(*parts: str) -> Path | None:
        path = root.joinpath(*parts)
        return path if path.exists() else None

    monkeypatch.setattr(report_data, "find", find)
    return root / "results" / "tiny_study"


@pytest.fixture(autouse=True)
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are composed but not rendered, which takes most of a report's time."""
    monkeypatch.setattr(report_figures, "png", lambda figure: b"PNG")


def make_run(
    parent: Path,
    label: str,
    seed: int = 0,
    correct: dict[int, list[int]] | None = None,
    steps: int = 4,
    of: int = 4,
    ratio: float | str = 0.0,
    lr: float = 3e-4,
    level: Callable[[int], Any] = lambda question: question % 2 + 1,
    samples: list[dict[str, Any]] | None = None,
) -> Path:
    """A run folder. `correct[step][question]` of 4 test answers are right; rewards rise by 0.1."""
    path = parent / f"{label}-seed{seed}"
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(
        f"methods: [{label}]\nseed: {seed}\nsteps: {of}\noptimizer:\n  lr: {lr}\n"
    )
    manifest = {
        "status": "finished" if steps == of else "running",
        "wall_seconds": 8.0,
        "tokens": 4000,
        "command": "python -m lens_ref.train --out /home/ada/runs --set data.train=/data/q.jsonl",
    }
    (path / "manifest.json").write_text(json.dumps(manifest))
    lines = ["step,reward,negative_share,neg_to_mixed_rms,entropy,mean_length,seconds"]
    lines += [f"{s},{0.1 * s},0.5,{ratio if s != 2 else ''},1.5,20.0,{2 * s}" for s in _to(steps)]
    (path / "metrics.csv").write_text("\n".join(lines) + "\n")
    lines = ["step,question,level,responses,correct,kind,confidence"]
    for step in range(steps):
        for q in range(4):
            kind = "negative" if q >= 1 + step else "mixed"
            lines.append(f"{step},train-{q},{level(q)},4,{int(kind == 'mixed')},{kind},0.5")
    (path / "groups.csv").write_text("\n".join(lines) + "\n")
    if correct is not None:
        counts = ["step,question,level,n,correct"]
        evals = ["step,level,pass@1,pass@2,pass@4,pass@8,pass@16,questions,mean_length"]
        for step, cs in correct.items():
            counts += [f"{step},test-{q},{level(q)},4,{c}" for q, c in enumerate(cs)]
            evals.append(f"{step},all,{sum(cs) / len(cs) / 4},0.5,0.75,,,{len(cs)},20.0")
        (path / "eval_counts.csv").write_text("\n".join(counts) + "\n")
        (path / "eval.csv").write_text("\n".join(evals) + "\n")
    rows = samples if samples is not None else [sample()]
    (path / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sample(**changes: Any) -> dict[str, Any]:
    row = {
        "step": 0, "question": "train-0", "level": 1, "problem": "1 + 1", "answer": "2",
        "group": "mixed", "response": "\\boxed{3}", "reward": 0.0, "reason": "wrong",
        "truncated": False, "length": 7, "confidence": 0.75, "advantage": -0.5,
    }  # fmt: skip
    return {**row, **changes}


def _to(n: int) -> range:
    return range(1, n + 1)


def text_of(report: Path) -> str:
    """What a reader sees, in one line; the pictures left out."""
    page = re.sub(r"<style>.*?</style>|<img[^>]*>", "", report.read_text(), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def put_committed(where: Path, tmp_path: Path, finals: dict[str, list[int]], lr: float = 3e-4):
    """Commit runs: `finals[label][i]` of the 4 answers to each of two questions, seed 10 + i."""
    for label, cs in finals.items():
        for i, c in enumerate(cs):
            parent = tmp_path / "seeds" / str(i)
            make_run(parent, label, 10 + i, {0: [1, 1], 4: [c, c]}, ratio=0.001 * (i + 1), lr=lr)
    return collect.collect(sorted((tmp_path / "seeds").iterdir()), where)


# --- intervals


def test_bootstrap_of_two_values_is_known_by_enumeration() -> None:
    # means of two draws from {0, 1}: 0, 1/2, 1 with chances 1/4, 1/2, 1/4
    interval = bootstrap_interval([0.0, 1.0])
    assert (interval.mean, interval.low, interval.high) == (0.5, 0.0, 1.0)
    assert interval.covers_zero


def test_bootstrap_of_many_values_has_the_normal_width() -> None:
    # 400 values of mean 0 and standard deviation 1: ±1.96 / 20
    interval = bootstrap_interval([-1.0, 1.0] * 200)
    assert interval.low == pytest.approx(-0.098, abs=0.005)
    assert interval.high == pytest.approx(0.098, abs=0.005)
    assert interval == bootstrap_interval([-1.0, 1.0] * 200)


def test_t_interval_of_three_values() -> None:
    # s = 1, t(0.975; 2) = 4.302653, s / √3 = 0.577350
    interval = t_interval([1.0, 2.0, 3.0])
    assert interval.mean == 2.0
    assert interval.low == pytest.approx(2 - 2.484138, abs=1e-6)
    assert interval.high == pytest.approx(2 + 2.484138, abs=1e-6)


@pytest.mark.parametrize("interval", [bootstrap_interval, t_interval])
def test_one_value_has_no_interval(interval: Callable[[list[float]], object]) -> None:
    with pytest.raises(ValueError, match="at least two, got 1"):
        interval([0.5])


def test_moving_average_looks_back_only() -> None:
    assert moving_average([1.0, 3.0, 5.0, 7.0], 2).tolist() == [1.0, 2.0, 4.0, 6.0]


def test_numbers_that_are_not_zero_do_not_read_as_zero() -> None:
    shown = [signed(x) for x in (1.26, -0.4, 0.03, -0.03, -0.0013, 0.0, -0.0, 4e-4)]
    assert shown == ["+1.3", "−0.4", "+0.03", "−0.03", "−0.001", "0.0", "0.0", "0.0"]


# --- the verdict over questions


def test_a_constructed_difference(tmp_path: Path) -> None:
    # every question: 1 of 4 right against 2 of 4, so +25 points in every resample
    make_run(tmp_path / "r", "grpo", correct={0: [1] * 20, 4: [1] * 20})
    make_run(tmp_path / "r", "lens", correct={0: [1] * 20, 4: [2] * 20}, ratio=0.001)
    text = text_of(write_report(tmp_path / "r"))
    assert "LENS as printed is better than GRPO on these questions." in text
    assert "the same 20 test questions is 25.0 % (GRPO) and 50.0 % (LENS as printed)" in text
    assert "a difference of +25.0 points, 95 % interval [+25.0, +25.0] (paired" in text
    assert "One seed can't tell more than this." in text
    assert "no committed runs" in text
    assert "questions are few" not in text


def test_grpo_can_win(tmp_path: Path) -> None:
    make_run(tmp_path / "r", "grpo", correct={4: [2] * 20})
    make_run(tmp_path / "r", "lens", correct={4: [1] * 20})
    text = text_of(write_report(tmp_path / "r"))
    assert "GRPO is better than LENS as printed on these questions." in text
    assert "a difference of −25.0 points, 95 % interval [−25.0, −25.0]" in text


def test_an_exact_tie(tmp_path: Path) -> None:
    for label in ("grpo", "lens"):
        make_run(tmp_path / "r", label, correct={4: [0, 1, 2, 4]})
    text = text_of(write_report(tmp_path / "r"))
    assert "LENS as printed against GRPO, seed 0: no difference can be told." in text
    assert "a difference of 0.0 points, 95 % interval [0.0, 0.0]" in text
    assert "which covers 0. 4 questions are few" in text


def test_the_interval_is_paired(tmp_path: Path) -> None:
    # two questions, differences +50 and 0 points, whatever their own difficulty:
    # resampled means 0, 25, 50 points with chances 1/4, 1/2, 1/4
    make_run(tmp_path / "r", "grpo", correct={4: [0, 4]})
    make_run(tmp_path / "r", "lens", correct={4: [2, 4]})
    text = text_of(write_report(tmp_path / "r"))
    assert "a difference of +25.0 points, 95 % interval [0.0, +50.0]" in text
    assert "no difference can be told" in text


def test_questions_are_paired_by_name_and_at_the_last_common_step(tmp_path: Path) -> None:
    make_run(tmp_path / "r", "grpo", correct={0: [0] * 20, 2: [0, 2] * 10, 4: [4] * 20})
    path = make_run(tmp_path / "r", "lens", correct={0: [0] * 20, 2: [1, 3] * 10}, steps=2)
    counts = path / "eval_counts.csv"
    header, *rows = counts.read_text().splitlines()
    counts.write_text("\n".join([header, *reversed(rows)]) + "\n")
    text = text_of(write_report(tmp_path / "r"))
    assert "After 2 updates, pass@1 on the same 20 test questions is 25.0 % (GRPO) and 50.0" in text
    assert "95 % interval [+25.0, +25.0]" in text  # each question by 1 of 4 answers
    assert "LENS as printed has done 2 of 4 updates only." in text


def test_runs_of_other_seeds_are_not_compared(tmp_path: Path) -> None:
    make_run(tmp_path / "r", "grpo", 0, correct={4: [1] * 20})
    make_run(tmp_path / "r", "lens", 1, correct={4: [2] * 20})
    assert "no GRPO run of that seed" in text_of(write_report(tmp_path / "r"))


def test_different_settings_are_named(tmp_path: Path) -> None:
    make_run(tmp_path / "r", "grpo", correct={4: [1] * 20})
    make_run(tmp_path / "r", "lens", correct={4: [2] * 20}, lr=1e-3)
    text = text_of(write_report(tmp_path / "r"))
    assert "differ in more than the method. Also different: optimizer.lr." in text


# --- over seeds


def test_over_the_seeds_of_the_runs_themselves(tmp_path: Path) -> None:
    """+25, 0 and +50 points: mean 25, sd 25, t 4.303, ± 62.1."""
    for seed, right in enumerate((2, 1, 3)):
        make_run(tmp_path / "r", "grpo", seed, correct={0: [1] * 20, 4: [1] * 20})
        make_run(tmp_path / "r", "lens", seed, correct={0: [1] * 20, 4: [right] * 20})
    text = text_of(write_report(tmp_path / "r"))
    assert "Over 3 seeds, LENS as printed does not beat GRPO, nor GRPO it" in text
    assert "25.0 % (GRPO) and 50.0 % (LENS as printed), a difference of +25.0 points" in text
    assert "interval [−37.1, +87.1] over seeds (these runs, update 4)" in text
    assert "One seed" not in text


def test_seeds_that_all_agree_have_no_interval(tmp_path: Path) -> None:
    for seed, right in enumerate((1, 2)):
        make_run(tmp_path / "r", "grpo", seed, correct={0: [1] * 20, 4: [right] * 20})
        make_run(tmp_path / "r", "lens", seed, correct={0: [1] * 20, 4: [right + 1] * 20})
    text = text_of(write_report(tmp_path / "r"))
    said = "since each of them gives +25.0 points against GRPO (these runs, update 4)."
    assert f"LENS as printed: no interval over 2 seeds, {said}" in text
    assert "LENS as printed is better" not in text


def test_over_seeds(tmp_path: Path, committed: Path) -> None:
    # LENS − GRPO: 25, 0, −25 points: mean 0, s = 25, ± 4.302653 · 25 / √3 = 62.1
    # the preset: 50, 75, 50
    finals = {"grpo": [1, 1, 2], "lens": [2, 1, 1], "lens-negative_std": [3, 4, 4]}
    put_committed(committed, tmp_path, finals)
    make_run(tmp_path / "r", "grpo", correct={0: [1] * 20, 4: [1] * 20})
    make_run(tmp_path / "r", "lens", correct={0: [1] * 20, 4: [2] * 20}, ratio=0.001)
    assert "negative_std" not in text_of(write_report(tmp_path / "r"))  # of what was run alone
    make_run(tmp_path / "r", "lens-negative_std", correct={0: [1] * 20, 4: [2] * 20})
    text = text_of(write_report(tmp_path / "r"))
    assert "Over 3 seeds, LENS as printed does not beat GRPO, nor GRPO it" in text
    assert "a difference of 0.0 points, 95 % interval [−62.1, +62.1] over seeds" in text
    assert "Over 3 seeds, LENS negative_std is better than GRPO." in text
    assert "is 33.3 % (GRPO) and 91.7 % (LENS negative_std), a difference of +58.3" in text
    assert "at the same settings" in text


def test_bands_of_other_settings_are_not_drawn(tmp_path: Path, committed: Path) -> None:
    put_committed(committed, tmp_path, {"grpo": [1, 2]}, lr=1e-3)
    make_run(tmp_path / "r", "grpo", correct={4: [1] * 20})
    text = text_of(write_report(tmp_path / "r"))
    assert "had other settings (optimizer.lr), so the figures show no bands" in text


def test_bands_span_the_seeds(tmp_path: Path, committed: Path) -> None:
    put_committed(committed, tmp_path, {"grpo": [1, 4, 2]})
    make_run(tmp_path / "r", "grpo", correct={0: [1] * 20, 4: [1] * 20})
    runs, bands = report_data.read_runs(tmp_path / "r"), report_data.read_committed()
    assert bands is not None
    assert bands.seeds("grpo") == [10, 11, 12]
    figure = report_figures.pass_at_1(runs, bands, report_figures.styles(["grpo"]))
    (band,) = [c for c in figure.axes[0].collections if hasattr(c, "get_datalim") and c.get_label()
               == "GRPO, 3 committed seeds"]  # fmt: skip
    corners = band.get_paths()[0].vertices
    at_end = corners[corners[:, 0] == 4, 1]
    assert (at_end.min(), at_end.max()) == (25.0, 100.0)


# --- what is missing


def test_a_single_method_without_evaluation_or_levels(tmp_path: Path) -> None:
    make_run(tmp_path / "r", "lens", steps=2, level=lambda q: "", ratio=0.001)
    text = text_of(write_report(tmp_path / "r"))
    assert "No held-out evaluation, so no verdict" in text
    assert "no pass@1 curve" in text
    assert "no table of pass@k" in text
    assert "2 of 4" in text
    assert not (tmp_path / "r" / "pass1.png").exists()
    assert (tmp_path / "r" / "negative_share.png").exists()


def test_a_run_that_never_began(tmp_path: Path) -> None:
    path = tmp_path / "r" / "grpo-seed0"
    path.mkdir(parents=True)
    (path / "config.yaml").write_text("methods: [grpo]\nseed: 0\nsteps: 4\n")
    (path / "metrics.csv").write_text("step,reward\n")  # cut back by a resume
    text = text_of(write_report(tmp_path / "r"))
    assert "No update has been done yet" in text
    assert "No sampled answers were logged." in text
    assert "not started" in text


def test_grpo_alone(tmp_path: Path) -> None:
    make_run(tmp_path / "r", "grpo", correct={0: [1, 1], 4: [2, 3]})
    text = text_of(write_report(tmp_path / "r"))
    assert "Only GRPO was trained here" in text
    assert "went from 25.0 % to 62.5 % between update 0 and 4" in text
    assert "+37.5 points, 95 % interval [+25.0, +50.0] over questions" in text
    assert "negative groups carry no signal at all" in text


def test_half_a_last_line_is_not_read(tmp_path: Path) -> None:
    path = make_run(tmp_path / "r", "grpo", correct={4: [1, 2]})
    with (path / "metrics.csv").open("a") as file:
        file.write("5,0.")
    with (path / "samples.jsonl").open("a") as file:
        file.write('{"step": 4, "que')
    assert report_data.read_run(path).step == 4
    write_report(tmp_path / "r")


def test_damage_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nor does it hold any"):
        write_report(tmp_path)
    path = make_run(tmp_path / "r", "grpo")
    (path / "metrics.csv").write_text("step,reward\n1,high\n")
    with pytest.raises(UserError, match=r"metrics\.csv is damaged: column reward"):
        write_report(tmp_path / "r")
    (path / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"grpo-seed0/manifest\.json is damaged: no JSON"):
        write_report(tmp_path / "r")


def test_an_old_figure_goes_when_there_is_nothing_to_draw(tmp_path: Path) -> None:
    make_run(tmp_path / "r", "lens", ratio="")
    (tmp_path / "r" / "signal.png").write_bytes(b"old")
    assert "their signals have no ratio" in text_of(write_report(tmp_path / "r"))
    assert not (tmp_path / "r" / "signal.png").exists()


# --- the page


@pytest.mark.parametrize(("evaluations", "line"), [(2, 0.8), (3, 1.8)])
def test_a_line_from_before_to_after_is_faint(
    tmp_path: Path, evaluations: int, line: float
) -> None:
    """The two marked points alone were measured."""
    make_run(tmp_path, "grpo", correct={step: [1, 2] for step in range(evaluations)}, of=20)
    runs = report_data.read_runs(tmp_path)
    figure = report_figures.pass_at_1(runs, None, report_figures.styles(["grpo"]))
    assert isinstance(figure, Figure)
    curves = [x for x in figure.axes[0].lines if len(x.get_xdata()) == evaluations]
    joined = [x for x in curves if x.get_linestyle() != "None" and x.get_marker() in ("None", "o")]
    assert [x.get_linewidth() for x in joined] == [line]
    assert [x.get_alpha() for x in curves if x.get_marker() == "o"] == [None]


@pytest.mark.parametrize(("evaluations", "apart"), [(2, 0.4 / 12), (3, 0.06 * 2 / 8)])
def test_runs_stand_side_by_side_at_an_evaluation(
    tmp_path: Path, evaluations: int, apart: float
) -> None:
    """Twelve runs would share 40 % of the axis between two evaluations; these eight share 6 %
    where there are more."""
    for seed in range(8):
        make_run(tmp_path, "grpo", seed, {step: [1, 2] for step in range(evaluations)}, of=20)
    figure = report_figures.pass_at_1(
        report_data.read_runs(tmp_path), None, report_figures.styles(["grpo"])
    )
    assert isinstance(figure, Figure)
    marks = [line.get_xdata() for line in figure.axes[0].lines if line.get_marker() == "o"]
    places = apart * (np.arange(8) - 3.5)
    for step in range(evaluations):
        assert sorted(x[step] for x in marks) == pytest.approx(step + places)
    if evaluations == 2:
        assert list(figure.axes[0].get_xticks()) == [0, 1]


def test_figures_are_drawn_and_embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_figures, "png", RENDER)
    make_run(tmp_path / "r", "grpo", correct={0: [1, 1, 1, 0], 4: [2, 3, 1, 0]})
    make_run(tmp_path / "r", "lens", correct={0: [1, 1, 1, 0], 4: [2, 2, 2, 0]}, ratio=0.001)
    page = write_report(tmp_path / "r").read_text()
    embedded = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    for name, data in zip(PNGS, embedded, strict=True):
        on_disk = (tmp_path / "r" / f"{name}.png").read_bytes()
        assert base64.b64decode(data) == on_disk
        pixels = np.asarray(Image.open(io.BytesIO(on_disk)).convert("L"), dtype=float)
        assert pixels.std() > 10, f"{name} is blank"
    assert not re.search(r"<script|<link|https?://|src=\"(?!data:)", page)


def test_text_of_models_and_users_stays_text(tmp_path: Path) -> None:
    fields = ("question", "problem", "answer", "response", "reason")
    evil = sample(**{field: f"{EVIL} {field}" for field in fields})
    path = make_run(tmp_path / "r", "grpo", samples=[evil], correct={4: [1, 1]})
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "command": EVIL}))
    with (path / "config.yaml").open("a") as file:
        file.write(f"prompt: '{EVIL}'\n")
    for name in ("eval.csv", "eval_counts.csv", "groups.csv"):
        file = path / name
        text = re.sub(r"^4,all,", "4,<script>,", file.read_text(), flags=re.MULTILINE)
        file.write_text(text)
    report = write_report(tmp_path / "r")
    page = report.read_text()
    assert "<script" not in page
    assert "<img src=x" not in page
    for field in fields:
        assert f"{EVIL} {field}" in unescape(page)


def test_samples_stand_side_by_side_and_show_a_negative_group(tmp_path: Path) -> None:
    # step 4 is GRPO's alone; at step 2 the shared question is mixed; the negative one is at step 0
    shared = [
        sample(step=0, question="dark", group="negative", response="answer A", advantage=-2.5e-4),
        sample(step=2, question="bright", group="mixed", response="answer B", reward=1.0),
    ]
    late = sample(step=4, question="late", response="answer C")
    make_run(tmp_path / "r", "grpo", samples=[*shared, late])
    make_run(tmp_path / "r", "lens", samples=shared)
    text = text_of(write_report(tmp_path / "r"))
    assert "Question dark, level 1, sampled after 0 updates" in text
    assert "Question bright, level 1, sampled after 2 updates" in text
    assert text.index("Question dark") < text.index("Question bright")
    assert "answer C" not in text
    assert text.count("answer A") == text.count("answer B") == 2
    assert "GRPO: negative group" in text
    assert "LENS as printed: negative group" in text
    assert "✗ wrong · reward 0 · confidence 0.750 · advantage −0.00025 · 7 tokens" in text


def test_tables(tmp_path: Path) -> None:
    make_run(tmp_path / "r", "grpo", correct={0: [1, 1], 4: [2, 3]})
    text = text_of(write_report(tmp_path / "r"))
    assert "all GRPO 62.5 50.0 75.0 – – 2 4" in text
    # first quarter: batch 0, three of four groups negative; last: batch 3, none
    assert "GRPO finished 4 of 4 4,000 8 500 75.0 % 0.0 %" in text


# --- collecting


def test_collect(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "lens", 1, {0: [1, 1], 4: [2, 2]}, ratio=0.25)
    make_run(tmp_path / "b", "grpo", 2, {0: [1, 1], 4: [3, 2]})
    out = tmp_path / "out"
    assert collect.main([str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(out)]) == 0
    assert (out / "curves.csv").read_text().splitlines() == [
        "method,seed,step,level,pass@1,pass@2,pass@4,pass@8,pass@16",
        "grpo,2,0,all,0.25,0.5,0.75,,",
        "grpo,2,4,all,0.625,0.5,0.75,,",
        "lens,1,0,all,0.25,0.5,0.75,,",
        "lens,1,4,all,0.5,0.5,0.75,,",
    ]
    updates = (out / "updates.csv").read_text().splitlines()
    assert (
        updates[0] == "method,seed,step,reward,negative_share,neg_to_mixed_rms,entropy,mean_length"
    )
    assert updates[5:7] == ["lens,1,1,0.1,0.5,0.25,1.5,20.0", "lens,1,2,0.2,0.5,,1.5,20.0"]
    text = (out / "manifests.json").read_text()
    assert "/home" not in text
    assert "/data" not in text
    manifests = json.loads(text)
    assert [m["run"] for m in manifests] == ["grpo-seed2", "lens-seed1"]
    assert manifests[0]["command"] == "python -m lens_ref.train --out runs --set data.train=q.jsonl"


def test_collect_whole_runs(tmp_path: Path) -> None:
    """A run that was never evaluated too; no text of questions or answers, no path."""
    make_run(tmp_path / "a", "lens", 1, {0: [1, 1], 4: [2, 2]}, ratio=0.25)
    make_run(tmp_path / "b", "grpo", 2, {})
    run = next((tmp_path / "a").glob("lens-*"))
    (run / "samples.jsonl").write_text('{"step": 0, "text": "a secret"}\n', "utf-8")
    (tmp_path / "a" / "reward.png").write_bytes(b"picture of run a alone")
    out = tmp_path / "out"
    arguments = [str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(out), "--whole"]
    assert collect.main(arguments) == 0
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert {f"lens-seed1/{name}" for name in collect.TABLES} <= set(files)
    assert {"grpo-seed2/config.yaml", "grpo-seed2/manifest.json", "reward.png"} <= set(files)
    assert not [name for name in files if name.endswith((".jsonl", ".html"))]
    metrics = (out / "lens-seed1/metrics.csv").read_bytes()
    assert metrics == (run / "metrics.csv").read_bytes()
    assert "/home" not in (out / "grpo-seed2/manifest.json").read_text("utf-8")
    again = [str(tmp_path / "a"), str(tmp_path / "a"), "--out", str(out), "--whole"]
    assert collect.main(again) == 2


def test_figures_beside_whole_runs_show_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those of a report on all, however the runs lay; no figure of an earlier report."""
    monkeypatch.setattr(report_figures, "png", RENDER)
    for parent, label in (("a", "lens"), ("b", "grpo"), ("both", "lens"), ("both", "grpo")):
        make_run(tmp_path / parent, label, 0, {0: [1, 1], 4: [2, 2]}, ratio=0.25)
    (tmp_path / "a" / "signal.png").write_bytes(b"of this run alone")
    write_report(tmp_path / "both")
    out = tmp_path / "out"
    collect.copy_whole([tmp_path / "a", tmp_path / "b"], out)
    for name in PNGS:
        assert (out / f"{name}.png").read_bytes() == (tmp_path / f"both/{name}.png").read_bytes()
    (tmp_path / "a/lens-seed0/groups.csv").unlink()  # as an older version left it
    collect.copy_whole([tmp_path / "a", tmp_path / "b"], out)
    assert not (out / "negative_share.png").exists()
    assert "Not every run kept its groups" in text_of(write_report(tmp_path / "a"))


def test_another_experiments_runs_are_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs of any two experiments have the same names."""
    for parent in "abc":
        make_run(tmp_path / parent, "lens", 1, {0: [1, 1], 4: [2, 2]}, ratio=0.25)
    with_settings(tmp_path / "b/lens-seed1", optimizer={"lr": 1e-3})
    with_settings(tmp_path / "c/lens-seed1", seed=2)
    out = str(tmp_path / "out")
    again = [str(tmp_path / "a"), "--out", out, "--whole"]
    assert collect.main(again) == 0
    kept = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    for parent, what in (("b", "optimizer.lr"), ("c", "seed")):
        assert collect.main([str(tmp_path / parent), "--out", out, "--whole"]) == 2
        said = f"{out}/lens-seed1 is another run: it differs in {what}; give another --out"
        assert said in capsys.readouterr().err
        assert kept == {path: path.read_bytes() for path in kept}
    assert collect.main(again) == 0
    (tmp_path / "out/lens-seed1/config.yaml").write_text("{")
    assert collect.main(again) == 0  # a damaged copy is mended


def with_settings(run: Path, **changes: Any) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
    for key, value in changes.items():
        config[key] = {**config[key], **value} if isinstance(value, dict) else value
    (run / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")


def test_collected_runs_are_not_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for parent, label in (("a", "grpo"), ("a", "lens"), ("b", "nsr")):
        make_run(tmp_path / parent, label, 1, {0: [1, 1], 4: [2, 2]}, ratio=0.25)
    a, b, out = (str(tmp_path / name) for name in ("a", "b", "out"))
    assert collect.main([a, "--out", out]) == 0
    before = (tmp_path / "out/curves.csv").read_text()
    assert collect.main([b, "--out", out]) == 2
    said = f"{out} holds 2 runs that would be lost (grpo-seed1, lens-seed1): give them too, or"
    assert said in capsys.readouterr().err
    assert (tmp_path / "out/curves.csv").read_text() == before
    assert collect.main([a, b, "--out", out]) == 0
    assert capsys.readouterr().out.startswith(f"3 runs → {out}: ")


@pytest.mark.parametrize("whole", [[], ["--whole"]])
@pytest.mark.parametrize("out", ["r", "r/lens-seed1", "r/../r"])
def test_a_run_is_not_collected_over_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], whole: list[str], out: str
) -> None:
    """Its settings would lose their paths."""
    run = make_run(tmp_path / "r", "lens", 1, {4: [1, 1]})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert collect.main([str(tmp_path / "r"), "--out", str(tmp_path / out), *whole]) == 2
    assert f"holds {run.name}, which is to be collected" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_later_copy_joins_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures of all that is there then; no table of another run is left; with runs of other
    settings none is drawn."""
    monkeypatch.setattr(report_figures, "png", RENDER)
    for parent, label in (("a", "lens"), ("b", "grpo"), ("both", "lens"), ("both", "grpo")):
        make_run(tmp_path / parent, label, 0, {0: [1, 1], 4: [2, 2]}, ratio=0.25)
    write_report(tmp_path / "both")
    out = tmp_path / "out"
    for parent in ("a", "b"):
        collect.copy_whole([tmp_path / parent], out)
    for name in PNGS:
        assert (out / f"{name}.png").read_bytes() == (tmp_path / f"both/{name}.png").read_bytes()
    (tmp_path / "a/lens-seed0/groups.csv").unlink()
    _, said = collect.copy_whole([tmp_path / "a"], out)
    assert not (out / "lens-seed0/groups.csv").exists()
    assert said == [
        f"{out} holds 1 other run too",
        "Not every run kept its groups (groups.csv), so they are counted for none.",
    ]
    make_run(tmp_path / "c", "nsr", 0, {4: [2, 2]}, lr=1e-3)
    assert collect.main([str(tmp_path / "c"), "--out", str(out), "--whole"]) == 0
    assert f"the runs in {out} differ in optimizer.lr" in capsys.readouterr().out
    assert not list(out.glob("*.png"))


def test_a_verdict_over_several_seeds_begins_with_them(tmp_path: Path, committed: Path) -> None:
    """Of seed 0 LENS alone would be called better, of seed 1 GRPO; together neither is. Runs on
    another task, with other settings, say nothing here."""
    put_committed(committed, tmp_path, {"grpo": [1, 2], "lens": [3, 3]}, lr=1e-3)
    few, many = [0] * 30, [4] * 30
    for label, seed, right in (
        ("grpo", 0, few), ("lens", 0, many), ("grpo", 1, many), ("lens", 1, few),
    ):  # fmt: skip
        make_run(tmp_path / "r", label, seed, {4: right}, level=lambda question: 1)
    text = text_of(write_report(tmp_path / "r"))
    assert "is better than" not in text
    assert "committed runs on the bundled task" not in text
    first = text.index("Over 2 seeds, LENS as printed does not beat GRPO, nor GRPO it")
    assert first < text.index("LENS as printed against GRPO, seed 0: one seed of several.")
    make_run(tmp_path / "r", "nsr", 1, {4: few}, level=lambda question: 1)
    text = text_of(write_report(tmp_path / "r"))
    assert "is better than" not in text
    assert "NSR against GRPO, seed 1: one seed is too few to tell the methods apart." in text
    assert "NSR: one seed only," in text


def test_paths_are_cut_and_other_slashes_kept() -> None:
    texts = ["/a/b c", "x=/a/b/", "https://hub/x", "org/model", "tokens / s", "a/b"]
    assert collect.without_paths(texts) == ["b c", "x=b", "https://hub/x", "org/model",
                                            "tokens / s", "a/b"]  # fmt: skip


def test_a_samplers_memory_sets_no_runs_apart() -> None:
    """Of vLLM's settings, what it samples with does."""
    one = {"rollout": {"vllm": {"memory_share": 0.15, "cache_gb": None, "quantization": None}}}
    two = {"rollout": {"vllm": {"memory_share": "auto", "cache_gb": 6, "quantization": None}}}
    assert report_data.differing_settings(one, two) == []
    two["rollout"]["vllm"]["quantization"] = "bitsandbytes"
    assert report_data.differing_settings(one, two) == ["rollout.vllm.quantization"]
    one, two = ({"model": {"gradient_checkpointing": v}} for v in ("auto", False))
    assert report_data.differing_settings(one, two) == []


def test_collect_says_where_the_runs_of_a_study_are(tmp_path: Path) -> None:
    make_run(tmp_path / "study/seed0", "grpo")
    with pytest.raises(UserError, match=r"nor does it hold any; those below do: give .*/seed\*/$"):
        collect.collect([tmp_path / "study"], tmp_path / "out")
    (tmp_path / "study/seed0").rename(tmp_path / "study/mine")
    with pytest.raises(UserError, match=r"give .*/study/\*/$"):
        collect.collect([tmp_path / "study"], tmp_path / "out")


def test_an_adapter_sets_runs_apart() -> None:
    """None in one config, a group of settings in the other."""
    one, two = ({"model": {"path": "x", "lora": lora}} for lora in (None, {"r": 8}))
    assert report_data.differing_settings(one, two) == ["model.lora"]
    assert report_data.differing_settings(two, one) == ["model.lora"]


def _cut(path: Path) -> None:
    rows = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([*rows[:-2], rows[-1]]) + "\n", "utf-8")


def _again(path: Path) -> None:
    rows = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([*rows, rows[-1]]) + "\n", "utf-8")


def test_collecting_refuses_wrong_options_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        collect.main(["runs", "--out", "out", "--hole"])
    said = "error: unrecognized arguments: --hole (see --help)\n"
    assert (left.value.code, capsys.readouterr().err) == (2, said)


@pytest.mark.parametrize("whole", [[], ["--whole"]])
@pytest.mark.parametrize(
    ("name", "harm", "message"),
    [
        ("metrics.csv", Path.unlink, "half a run: its config asks for 4 updates, its metrics.csv"),
        ("metrics.csv", _cut, "has 3 rows; copy it again"),
        ("metrics.csv", _again, "line 6: the same step again"),
        ("eval.csv", _again, "line 3: the same step and level again"),
    ],
)
def test_collect_takes_no_half_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    whole: list[str],
    name: str,
    harm: Callable[[Path], None],
    message: str,
) -> None:
    harm(make_run(tmp_path / "runs", "lens", 1, {4: [1, 1]}) / name)
    out = tmp_path / "out"
    assert collect.main([str(tmp_path / "runs"), "--out", str(out), *whole]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("what", "seeds", "message"),
    [
        (("policy",), (1, 2), "differ in weights"),
        (("data", "test"), (1, 2), "differ in test questions"),
        (("data", "train"), (1, 1), "differ in training questions"),
        (("data", "train"), (1, 2), None),  # each seed may draw its own
    ],
)
def test_runs_of_other_weights_or_questions_do_not_stand_together(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    what: tuple[str, ...],
    seeds: tuple[int, int],
    message: str | None,
) -> None:
    """By the hashes of the manifests; one without says nothing."""
    paths = []
    for label, seed, digest in zip(("grpo", "lens"), seeds, "ab", strict=True):
        path = make_run(tmp_path / "runs", label, seed, {4: [1, 1]})
        manifest = json.loads((path / "manifest.json").read_text("utf-8"))
        part = manifest
        for key in what:
            part = part.setdefault(key, {})
        part["sha256"] = digest * 64
        (path / "manifest.json").write_text(json.dumps(manifest), "utf-8")
        paths.append(path)
    assert same_setting(*map(report_data.read_run, paths)) == (message is None)
    status = collect.main([str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    assert status == (0 if message is None else 2)
    assert message is None or message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": "grpo", "seed": 1}, "both grpo with seed 1; give each run once"),
        ({"label": "grpo", "steps": 2}, "is not finished (2 of 4 updates); go on with"),
        ({"label": "lens", "correct": None}, "was never evaluated"),
        ({"label": "lens", "lr": 1e-3}, "differ in optimizer.lr"),
        ({"label": "lens", "steps": 3, "of": 3, "correct": {3: [1, 1]}}, "differ in steps"),
        ({"label": "lens", "correct": {0: [1, 1]}}, "was not evaluated after its last update"),
    ],
)
def test_collect_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    make_run(tmp_path / "a", "grpo", 1, {4: [1, 1]})
    make_run(tmp_path / "b", **{"correct": {4: [1, 1]}, **changes})
    out = tmp_path / "out"
    assert collect.main([str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error
    assert not out.exists()
