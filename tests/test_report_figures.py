"""The report's figures hold what they are about, LaTeX is LaTeX and names of users stay text."""

from __future__ import annotations

from math import nan
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from lens_ref.reporting import document, latex, pictures, run_figures
from lens_ref.rlvr import report_figures
from lens_ref.rlvr.report_data import Run, read_run
from tests.report_runs import DAPO, LLAMA, MATH, make_run, paper_run


def test_figures_say_what_was_not_run(tmp_path: Path) -> None:
    make_run(tmp_path / "r", "grpo", 0.3)
    found = document.reproduction([tmp_path / "r"])
    ratio = run_figures.negative_ratio(found.found.finished, found.settings)
    bars = [line.get_ydata() for line in ratio.axes[0].lines if line.get_linewidth() == 5]
    assert [list(bar) for bar in bars] == [[45, 45], [35, 35]]
    paper, ours = (text.get_text() for text in ratio.legends[0].texts[:2])
    assert paper.endswith(" on MATH + Numina: 45 % at the beginning, 35 % at the end")
    assert ours == "our run of that setting: not run"
    assert not ratio.axes[0].texts
    curves = run_figures.training_curves(found.tables[0])
    said = [text.get_text() for axes in curves.axes for text in axes.texts]
    assert len(said) == 4
    assert all("our runs: not run" in text for text in said)
    levels = [line.get_ydata()[0] for line in curves.axes[0].lines]
    assert levels == [54.09, 56.63]


def test_a_model_that_was_not_run_leaves_the_others_their_updates(tmp_path: Path) -> None:
    """The panels share an axis; each is read by itself."""
    train = f"{DAPO} + {MATH}"
    paper_run(tmp_path / "g", "grpo", 0.5, model=LLAMA, train=train)
    figure = run_figures.training_curves(document.reproduction([tmp_path]).tables[0])
    figure.draw_without_rendering()
    named = [
        [label.get_text() for label in axes.get_xticklabels() if label.get_visible()]
        for axes in figure.axes
    ]
    assert "0" in named[0]
    assert "1000" in named[0]
    assert named[1] == named[0]
    assert named[2] == named[3] == []


def test_the_figure_of_negative_groups_grows_with_its_legend(tmp_path: Path) -> None:
    for i in range(10):
        for method in ("grpo", "lens"):
            path = tmp_path / f"{method}{i}"
            make_run(path, method, 0.5, changes={"optimizer.lr": (i + 1) * 1e-4})
    found = document.reproduction([tmp_path])
    figure = run_figures.negative_ratio(found.found.finished, found.settings)
    figure.draw_without_rendering()
    (legend,), (axes,) = figure.legends, figure.axes
    drawn = len(report_figures.STYLES)
    assert legend.texts[-1].get_text() == f"{10 - drawn} more settings: not drawn"
    assert axes.get_window_extent().height > 2 * figure.dpi
    assert legend.get_window_extent().y0 > axes.get_window_extent().y1


def test_grpo_is_drawn_where_no_method_shares_its_seeds(tmp_path: Path) -> None:
    for method, seed in (("grpo", 0), ("grpo", 1), ("lens", 2)):
        make_run(tmp_path / f"{method}{seed}", method, 0.5, seed)
    (setting,) = document.reproduction([tmp_path]).settings
    figure = run_figures.setting_curves(setting, "all")
    assert [axes.get_title() for axes in figure.axes if axes.get_visible()] == [
        "GRPO\n2 seeds", "LENS as printed\n1 seed",
    ]  # fmt: skip
    named = [text.get_text() for text in figure.legends[0].texts]
    assert named == ["GRPO, 2 seeds", "the method that the panel names"]


@pytest.mark.filterwarnings("error")
def test_a_letter_that_the_font_lacks_is_no_warning() -> None:
    figure, (axes,) = report_figures.frame()
    axes.set_title("模型")
    assert report_figures.png(figure).startswith(b"\x89PNG")


def test_the_overview_is_computed() -> None:
    group = pictures.one_negative_group()
    assert group["grpo_reward"] == group["grpo_advantage"] == [0.0] * 8
    # D = 2 · 0.95, so the odds are 0.95/0.95 = 1 and 0.9/(1.9 − 0.9) = 0.9; times 1/G = 1/8
    assert group["lens_reward"][:2] == pytest.approx([-0.125, -0.1125])
    assert sum(group["lens_advantage"]) == pytest.approx(0.0, abs=1e-15)
    assert group["lens_advantage"][0] < 0 < group["lens_advantage"][-1]
    heights = [patch.get_height() for patch in pictures.overview().axes[1].patches]
    assert heights == group["lens_reward"]


def test_the_optimal_policy_is_computed() -> None:
    p_star, pi_star = pictures.optimal_policy().axes
    assert [bar.get_height() for bar in p_star.patches] == [1, 1, 0, 0, 0, 0]
    assert [bar.get_height() for bar in pi_star.patches] == [0.5, 0.5, 0, 0, 0, 0]


def test_the_weight_is_drawn_from_the_library() -> None:
    w, odds, _ = pictures.weight_function().axes[0].lines
    # at z = 1/2: 2 log 2 − 1 and 1; the grid has 0.999 · i / 999 = 0.5 at i = 500
    assert w.get_ydata()[500] == pytest.approx(0.386294, abs=1e-6)
    assert odds.get_ydata()[500] == pytest.approx(1.0)
    assert w.get_ydata()[0] == 0.0


def test_latex_special_letters_are_escaped() -> None:
    assert latex.text("a_b & 5 % − {x}") == r"a\_b \& 5 \% $-$ \{x\}"
    assert latex.text("not run") == r"\textit{not run}"


def test_names_of_users_stay_text(tmp_path: Path) -> None:
    make_run(tmp_path / "r" / "g", "grpo", 0.5, model="<script>x")
    make_run(tmp_path / "r" / "l", "lens", 0.5, model="<script>x")
    document.write(document.reproduction([tmp_path / "r"]), tmp_path / "out")
    assert "<script" not in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_runs_that_look_alike_are_named_once(tmp_path: Path) -> None:
    """Two seeds of GRPO are two lines of one look; the only LENS run keeps its seed."""
    paths = [
        make_run(tmp_path / f"{method}-seed{seed}", method, 0.5, seed, correct=(1, 2))
        for method, seed in (("grpo", 0), ("grpo", 1), ("lens", 1))
    ]
    runs = [read_run(path) for path in paths]
    drawn = report_figures.pass_at_1(runs, None, report_figures.styles(r.label for r in runs))
    assert isinstance(drawn, Figure)
    names = [text.get_text() for text in drawn.legends[0].texts]
    assert names == ["GRPO, 2 seeds", "LENS as printed, seed 1"]
    assert len(drawn.axes[0].containers) == 3
    drawn = report_figures.reward(runs, None, report_figures.styles(r.label for r in runs))
    assert isinstance(drawn, Figure)
    names = [text.get_text() for text in drawn.legends[0].texts]
    assert names == ["GRPO, 2 seeds, mean of seed 1", "LENS as printed, seed 1"]


def test_means_are_of_the_seeds_that_methods_of_several_share(tmp_path: Path) -> None:
    """GRPO of seeds 0 to 2 and LENS of 0 and 1 are means of 0 and 1; NGRPO's one seed, 2, changes
    nothing, and its line is itself."""
    seeds = [("grpo", 0), ("grpo", 1), ("grpo", 2), ("lens", 0), ("lens", 1), ("ngrpo", 2)]
    runs = [
        read_run(make_run(tmp_path / f"{method}-seed{seed}", method, 0.5, seed))
        for method, seed in seeds
    ]
    assert report_figures.common_seeds(runs) == {0, 1}
    assert report_figures.common_seeds(runs[:3]) == {0, 1, 2}
    apart = [*runs[1:3], runs[3], runs[5]]
    assert report_figures.common_seeds(apart) == set()
    drawn = report_figures.reward(apart, None, report_figures.styles(r.label for r in apart))
    assert isinstance(drawn, Figure)
    names = [text.get_text() for text in drawn.legends[0].texts]
    assert names[0] == "GRPO, 2 seeds, mean of seeds 1 and 2"
    drawn = report_figures.reward(runs, None, report_figures.styles(r.label for r in runs))
    assert isinstance(drawn, Figure)
    names = [text.get_text() for text in drawn.legends[0].texts]
    assert names == [
        "GRPO, 3 seeds, mean of seeds 0 and 1",
        "LENS as printed, 2 seeds",
        "NGRPO, seed 2",
    ]


def test_single_runs_are_drawn_as_others_are(tmp_path: Path) -> None:
    """Beside smoothed lines no raw one, which would look the noisier; less thick than means."""
    for method, seed in (("grpo", 0), ("grpo", 1), ("lens", 0), ("lens", 1), ("ngrpo", 0)):
        make_run(tmp_path / f"{method}-seed{seed}", method, 0.5, seed)
    runs = [read_run(path) for path in sorted(tmp_path.iterdir())]
    drawn = report_figures.reward(runs, None, report_figures.styles(r.label for r in runs))
    assert isinstance(drawn, Figure)
    *_, thin, line = drawn.axes[0].lines
    assert line.get_label() == "NGRPO, seed 0"
    assert list(thin.get_ydata()) == list(line.get_ydata())
    widths = {each.get_linewidth() for each in drawn.axes[0].lines[:-1]}
    assert line.get_linewidth() == 1.2
    assert widths == {0.6, 2.0}


def test_nothing_is_shaded_between_two_evaluations(tmp_path: Path) -> None:
    for method, seed in (("grpo", 0), ("grpo", 1), ("lens", 0), ("lens", 1)):
        make_run(tmp_path / f"{method}-seed{seed}", method, 0.5 + seed / 10, seed)
    (setting,) = document.reproduction([tmp_path]).settings
    (axes,) = run_figures.setting_curves(setting, "all").axes
    assert len(axes.containers) == 2  # error bars
    assert all(line.get_alpha() == 0.5 for line in axes.lines if line.get_linestyle() != "None")


def test_a_figure_has_a_look_for_each_of_eight_methods() -> None:
    looks = report_figures.styles(f"method{i}" for i in range(8)).values()
    for part in ("color", "line", "marker"):
        assert len({getattr(look, part) for look in looks}) == 8


def with_ratios(path: Path, ratios: list[float | str]) -> Run:
    """The run, its negative groups that loud at each update; "" where it has no ratio."""
    head, *rows = (path / "metrics.csv").read_text().splitlines()
    changed = [row.replace(",0.002,", f",{x},") for row, x in zip(rows, ratios, strict=True)]
    (path / "metrics.csv").write_text("\n".join((head, *changed)) + "\n")
    return read_run(path)


def test_the_loudness_of_negative_groups_is_drawn_by_its_moving_median(tmp_path: Path) -> None:
    """LENS alone: .1, none, .3, .8: the median so far is .1, .1, .2, .3. With seed 1 at .4
    throughout: the mean of the two. GRPO and PSR are 0, which the legend says inside its column."""
    paths = {
        (method, seed): make_run(tmp_path / f"{method}-seed{seed}", method, 0.3, seed)
        for method, seed in (("lens", 0), ("lens", 1), ("grpo", 0), ("psr", 0))
    }
    lens = with_ratios(paths["lens", 0], [0.1, "", 0.3, 0.8])
    silent = [with_ratios(paths[method, 0], [0.0] * 4) for method in ("grpo", "psr")]

    def lines(*runs: Run) -> list[list[float]]:
        drawn = report_figures.signal(
            list(runs), None, report_figures.styles(r.label for r in runs)
        )
        assert isinstance(drawn, Figure)
        names = [text.get_text() for text in drawn.legends[0].texts]
        assert max(len(line) for name in names for line in name.split("\n")) <= 40
        assert "GRPO; PSR: 0 at every update" in names[-1]
        return [list(line.get_ydata()) for line in drawn.axes[0].lines]

    thin, thick, *_ = lines(lens, *silent)
    assert thin == pytest.approx([0.1, nan, 0.3, 0.8], nan_ok=True)
    assert thick == pytest.approx([0.1, 0.1, 0.2, 0.3])
    other = with_ratios(paths["lens", 1], [0.4] * 4)
    *thins, thick, _, _ = lines(lens, other, *silent)
    assert thins == [pytest.approx([0.1, 0.1, 0.2, 0.3]), pytest.approx([0.4] * 4)]
    assert thick == pytest.approx([0.25, 0.25, 0.3, 0.35])


def test_a_panel_shows_grpo_of_its_methods_seeds(tmp_path: Path) -> None:
    """GRPO ends at 30 and 50 %: 40 beside both seeds, 30 beside the first, and not at all beside a
    seed that it lacks, where the other method is (10 %). Of equal seeds the legend counts them."""
    finals = [("grpo", 0, 0.3), ("grpo", 1, 0.5), ("lens", 0, 0.3), ("lens", 1, 0.3)]
    for method, seed, final in finals:
        make_run(tmp_path / f"{method}-seed{seed}", method, final, seed)

    def drawn() -> tuple[list[float], list[str]]:
        (setting,) = document.reproduction([tmp_path]).settings
        figure = run_figures.setting_curves(setting, "all")
        ends = [a.lines[0].get_ydata()[-1] for a in figure.axes if a.get_visible()]
        others = [a.lines[-1].get_ydata()[-1] for a in figure.axes if a.get_visible()]
        assert others == pytest.approx([30.0, 10.0, 10.0][: len(others)])  # NSR of its seed 0
        return ends, [text.get_text() for text in figure.legends[0].texts]

    ends, names = drawn()
    assert ends == pytest.approx([40.0])
    assert names == ["GRPO, 2 seeds", "the method that the panel names"]
    make_run(tmp_path / "nsr-seed0", "nsr", 0.1, 0)
    make_run(tmp_path / "nsr-seed9", "nsr", 0.7, 9)
    make_run(tmp_path / "psr-seed7", "psr", 0.1, 7)
    ends, names = drawn()
    assert ends == pytest.approx([40.0, 30.0, 10.0])
    assert names[0] == "GRPO, the seeds that the panel's method has too"


def test_every_column_of_panels_ends_in_a_scale(tmp_path: Path) -> None:
    """Four methods in three columns: the second and third of them end in the first row."""
    for method in ("grpo", "lens", "lens:groups=mixed", "nsr", "ngrpo"):
        make_run(tmp_path / method.replace(":groups=", "-groups"), method, 0.3)
    (setting,) = document.reproduction([tmp_path]).settings
    panels = [a for a in run_figures.setting_curves(setting, "all").axes if a.get_visible()]
    below = [a.xaxis.get_tick_params()["labelbottom"] for a in panels]
    assert below == [bool(a.get_xlabel()) for a in panels] == [False, True, True, True]


def test_what_lies_far_off_is_written_and_not_drawn(tmp_path: Path) -> None:
    """LENS gains 6.25 points with two seeds of three: −4.8 to +13.1 by Student; NGRPO's one seed
    has an interval over questions, 0 to +18.75, dotted, in pass@1 and at levels 4–5; NSR loses
    68.75, 62.5 and 68.75: −75.6 to −57.7, beyond three times that."""
    rows = [
        ("grpo", 0, (3, 3, 3, 3)), ("grpo", 1, (3, 3, 3, 3)), ("grpo", 2, (3, 3, 3, 3)),
        ("lens", 0, (3, 3, 3, 4)), ("lens", 1, (3, 3, 3, 4)), ("lens", 2, (3, 3, 3, 3)),
        ("ngrpo", 0, (3, 4, 3, 3)),
    ]  # fmt: skip
    for method, seed, correct in rows:
        make_run(tmp_path / f"{method}-seed{seed}", method, 0.5, seed, correct=correct)

    def drawn() -> tuple[list[str], list[float], list[str]]:
        (setting,) = document.reproduction([tmp_path]).settings
        figure = run_figures.differences(setting)
        assert isinstance(figure, Figure)
        (axes,) = figure.axes
        dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
        spans = [x for line in axes.lines for x in line.get_xdata() if len(line.get_ydata()) == 2]
        names = [text.get_text() for text in figure.legends[0].texts]
        assert len(dotted) == 2 + names.count("one seed: over questions alone") == 3
        return [text.get_text() for text in axes.texts], spans, names

    said, spans, names = drawn()
    assert said == []
    reach = max(map(abs, spans))
    for seed in (0, 1, 2):
        make_run(tmp_path / f"nsr-seed{seed}", "nsr", 0.5, seed, correct=(1, 0, 0, seed % 2))
    said, spans, _ = drawn()
    assert max(map(abs, spans)) == reach
    assert len(said) == len(names) - 1
    assert all(text.startswith("← −") for text in said)


def test_a_long_title_stays_inside_the_figure(tmp_path: Path) -> None:
    make_run(tmp_path / "r", "grpo", 0.3, model="/models/" + "a_model_of_a_long_name-" * 5)
    found = document.reproduction([tmp_path / "r"])
    figure = run_figures.negative_ratio(found.found.finished, found.settings)
    figure.canvas.draw()
    right = max(text.get_window_extent().x1 for text in figure.legends[0].texts)
    assert right <= figure.bbox.x1
