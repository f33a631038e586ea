"""The figures of a report, each readable in grey: every method has its own line, marker and shade.

Each function takes the runs (and what it needs of the committed ones) and returns a matplotlib
figure, or the sentence that says why there is nothing to draw.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from lens_ref.rlvr.evaluation import KS
from lens_ref.rlvr.report_data import Committed, Run, display, label_order, look_name
from lens_ref.rlvr.report_verdict import named_seeds, question_rates
from lens_ref.rlvr.statistics import Interval, bootstrap_interval, moving_average
from lens_ref.rlvr.untrusted import printable

WINDOW = 8  # updates in a moving average: two rollout batches of four
COLUMN = 36  # characters of a legend's column
WIDTH, HEIGHT, DPI = 5.8, 3.9, 160  # inches; small, so that the letters stay large on a phone


@dataclass(frozen=True)
class Style:
    """How a method is drawn; the colours differ in lightness too."""

    color: str
    line: str | tuple[int, tuple[int, ...]]
    marker: str


STYLES = (
    Style("#222222", "-", "o"),
    Style("#0072b2", "--", "s"),
    Style("#d55e00", "-.", "^"),
    Style("#56b4e9", ":", "D"),
    Style("#8a6d00", (0, (5, 1, 1, 1, 1, 1)), "v"),
    Style("#cc79a7", (0, (1, 3)), "P"),
    Style("#009e73", (0, (8, 2)), "X"),
    Style("#7a2a6e", (0, (3, 1, 1, 1)), "*"),
)


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """One style a method; they repeat after eight."""
    ordered = sorted(set(labels), key=label_order)
    return {label: STYLES[i % len(STYLES)] for i, label in enumerate(ordered)}


def reward(runs: list[Run], committed: Committed | None, style: dict[str, Style]) -> Figure | str:
    """Mean reward of an update, its moving averages, the committed bands."""
    runs = [run for run in runs if len(run.metrics)]
    if not runs:
        return "No update has been done yet, so there is no reward to draw."
    figure, (axes,) = frame()
    if committed is not None:
        bands = _smoothed(committed.updates, "reward")
        for label in dict.fromkeys(run.label for run in runs):
            _band(axes, bands[bands["method"] == label], "reward", style[label])
    _over_updates(axes, runs, style, _reward, _moving_mean)
    label_updates(axes, "mean reward (share of answers right)")
    legend(figure, axes)
    return figure


def _over_updates(
    axes: Axes,
    runs: Sequence[Run],
    style: dict[str, Style],
    measure: Callable[[Run], pd.Series],
    smoothed: Callable[[pd.Series], pd.Series],
) -> None:
    """Thin, what was measured at every update or, where there are several seeds, each of them
    smoothed; thick, that smoothed: its mean over the common seeds, or over all of a method that has
    none of them. Beside means over seeds, a single run is less thick."""
    common = common_seeds(runs)
    several = len({run.seed for run in runs}) > 1
    for label in dict.fromkeys(run.label for run in runs):
        look, its = style[label], [run for run in runs if run.label == label]
        measured = [measure(run) for run in its]
        smooth = [smoothed(values) for values in measured]
        for thin in smooth if several else measured:
            axes.plot(thin.index, thin, color=look.color, lw=0.6, alpha=0.3)
        seeds = shared_seeds(its, common)
        shared = [x for run, x in zip(its, smooth, strict=True) if run.seed in seeds]
        thick = pd.concat(shared, axis=1, join="inner").mean(axis=1)
        name = look_name(its[0], runs)
        if len(shared) < len(its) or (len(its) > 1 and not common):
            name += f", mean of {named_seeds(seeds)}"
        width = 1.2 if beside_means(its, common) else 2.0
        axes.plot(
            thick.index, thick,
            color=look.color, ls=look.line, marker=look.marker, markevery=0.15, ms=4, lw=width,
            label=name,
        )  # fmt: skip


def common_seeds(runs: Iterable[Run]) -> set[int]:
    """Those that every method has; where two methods have several, those of one seed are left out:
    a single run shall not make means over seeds into single runs."""
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.label, set()).add(run.seed)
    several = [its for its in seeds.values() if len(its) > 1]
    return set.intersection(*(several if len(several) > 1 else seeds.values()))


def shared_seeds(its: Iterable[Run], common: Collection[int]) -> list[int]:
    """Those whose mean the line of a method is: its common seeds, or all where it has none."""
    seeds = sorted({run.seed for run in its})
    return [seed for seed in seeds if seed in common] or seeds


def beside_means(its: Sequence[Run], common: Collection[int]) -> bool:
    """Whether the only run of a method stands beside means over several seeds."""
    return len(its) == 1 and len(common) > 1


def pass_at_1(
    runs: list[Run], committed: Committed | None, style: dict[str, Style]
) -> Figure | str:
    """pass@1 on the test questions, intervals over questions, over bands over seeds. Between a
    first and a last evaluation alone the line is faint: it only says which two belong together."""
    runs = [run for run in runs if len(run.counts)]
    if not runs:
        return "No run was evaluated on test questions, so there is no pass@1 curve."
    figure, (axes,) = frame()
    if committed is not None:
        whole = committed.curves[committed.curves["level"] == "all"]
        for label in sorted(set(whole["method"]), key=label_order):
            rows = whole[whole["method"] == label]
            _band(axes, rows.assign(shown=100 * rows["pass@1"]), "shown", style[label], mean=True)
    evaluated = sorted({step for run in runs for step in run.counts["step"]})
    n = len(runs)  # side by side, in 6 % of the axis; in 40 % between two evaluations alone
    shift = evaluated[-1] * (0.06 / max(4, n) if len(evaluated) > 2 else 0.4 / max(12, n))
    for i, run in enumerate(runs):
        look, steps = style[run.label], sorted(set(run.counts["step"]))
        intervals = [_interval(question_rates(run.counts, step)) for step in steps]
        x = np.array(steps) + shift * (i - (n - 1) / 2)
        means, joined = [one.mean for one in intervals], len(steps) > 2
        if not joined:
            axes.plot(x, means, color=look.color, ls=look.line, lw=0.8, alpha=0.35)
        axes.errorbar(
            x, means, yerr=arms(intervals),
            color=look.color, ls=look.line if joined else "", marker=look.marker, ms=5, lw=1.8,
            elinewidth=0.9, capsize=3,
            label=look_name(run, runs),
        )  # fmt: skip
    label_updates(axes, "pass@1 on test questions (%)")
    if len(evaluated) <= 2:
        axes.set_xticks(evaluated)
    legend(figure, axes)
    return figure


def levels(runs: list[Run], style: dict[str, Style]) -> Figure | str:
    """pass@1 and pass@16 (or the largest k there is) by level, before and after training."""
    runs = [run for run in runs if len(run.counts)]
    if not runs:
        return "No run was evaluated on test questions, so there is no pass@k by level."
    n = int(min(run.counts["n"].min() for run in runs))
    ks = sorted({1, max(k for k in KS if k <= n)})
    figure, panels = frame(rows=len(ks))
    names = _level_names(run.counts for run in runs)
    for axes, k in zip(panels, ks, strict=True):

        def measure(run: Run, level: str, last: bool, k: int = k) -> Interval | None:
            rows = run.counts if level == "all" else run.counts[run.counts["level"] == level]
            step = run.counts["step"].max() if last else run.counts["step"].min()
            rates = question_rates(rows, int(step), k)
            return _interval(rates) if len(rates) else None

        _dumbbells(axes, runs, style, names, measure)
        axes.set(ylabel=f"pass@{k} (%)")
    panels[-1].set(xlabel="level of the test question")
    _before_after(figure, panels[0], "first evaluation", "last evaluation")
    return figure


def negative_share(runs: list[Run], style: dict[str, Style]) -> Figure | str:
    """Share of groups with no right answer by level, in the first and last quarter of a run."""
    if any(run.finished and run.groups.empty for run in runs):
        return "Not every run kept its groups (groups.csv), so they are counted for none."
    runs = [run for run in runs if len(run.groups)]
    if not runs:
        return "No rollout batch was finished, so there are no groups to count."
    figure, (axes,) = frame()

    def measure(run: Run, level: str, last: bool) -> Interval | None:
        share = quarter_share(run.groups, last, level)
        return None if share is None else Interval(100 * share, 100 * share, 100 * share)

    _dumbbells(axes, runs, style, _level_names(run.groups for run in runs), measure)
    axes.set(xlabel="level of the training question", ylabel="negative groups (%)")
    _before_after(figure, axes, "first quarter of the run", "last quarter of the run")
    return figure


def quarter_share(groups: pd.DataFrame, last: bool, level: str = "all") -> float | None:
    """Share of negative groups in the first or last quarter of the rollout batches (at least one),
    None where that quarter has no question of the level."""
    batches = sorted(set(groups["step"]))
    size = max(1, len(batches) // 4)
    rows = groups[groups["step"].isin(batches[-size:] if last else batches[:size])]
    rows = rows if level == "all" else rows[rows["level"] == level]
    return float((rows["kind"] == "negative").mean()) if len(rows) else None


def signal(runs: list[Run], committed: Committed | None, style: dict[str, Style]) -> Figure | str:
    """RMS advantage of negative groups over that of mixed groups, on a log axis, and its moving
    medians: one update with few groups is far out."""
    runs = [run for run in runs if run.metrics["neg_to_mixed_rms"].notna().any()]
    if not runs:
        return "No update held both negative and mixed groups, so their signals have no ratio."
    loud = [run for run in runs if (run.metrics["neg_to_mixed_rms"] > 0).any()]
    silent = dict.fromkeys(display(run.label) for run in runs if run not in loud)
    if not loud:
        return (
            f"{'; '.join(silent)}: negative groups carry no signal at all "
            "(the ratio is 0 at every update, which a log axis can't show)."
        )
    figure, (axes,) = frame()
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")  # words of figures are drawn as they stand
    if committed is not None:
        positive = committed.updates[committed.updates["neg_to_mixed_rms"] > 0]
        for label in sorted(set(positive["method"]), key=label_order):
            rows = positive[positive["method"] == label]
            _band(axes, rows, "neg_to_mixed_rms", style[label])
    _over_updates(axes, loud, style, _positive_ratio, _moving_median)
    axes.axhline(1, color="0.5", lw=0.8)
    axes.annotate(
        "1: negative groups as loud as mixed ones", (0.01, 1), xycoords=("axes fraction", "data"),
        xytext=(0, -3), textcoords="offset points", va="top", fontsize=8, color="0.3",
    )  # fmt: skip
    if silent:
        said = f"{'; '.join(silent)}: 0 at every update (not on a log axis)"
        axes.plot([], [], " ", label=fill(said, COLUMN))
    label_updates(axes, "RMS advantage,\nnegative / mixed groups (ratio)")
    legend(figure, axes)
    return figure


def _reward(run: Run) -> pd.Series:
    return run.metrics.set_index("step")["reward"]


def _moving_mean(values: pd.Series) -> pd.Series:
    return pd.Series(moving_average(values.to_numpy(), WINDOW), values.index)


def _moving_median(values: pd.Series) -> pd.Series:
    return values.rolling(WINDOW, min_periods=1).median()


def _positive_ratio(run: Run) -> pd.Series:
    ratio = run.metrics.set_index("step")["neg_to_mixed_rms"]
    return ratio.where(ratio > 0)


def png(figure: Figure, dpi: int = DPI) -> bytes:
    """The figure as a PNG file, with so many dots an inch; its words are drawn as they stand, a
    dollar sign begins no formula, and a letter that the font lacks is a box."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)
        text.set_text(printable(text.get_text()))
    file = io.BytesIO()
    with rc_context({"text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure.savefig(file, format="png", dpi=dpi, metadata={"Software": None})
    return file.getvalue()


def frame(
    rows: int = 1, columns: int = 1, width: float = WIDTH, height: float = HEIGHT
) -> tuple[Figure, list[Axes]]:
    """An empty figure and its panels, row by row; width of all and height of the first row in
    inches."""
    figure = Figure(figsize=(width, height * (1 + 0.75 * (rows - 1))), layout="constrained")
    panels = list(figure.subplots(rows, columns, sharex=True, squeeze=False).flat)
    for axes in panels:
        axes.grid(alpha=0.25, lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _smoothed(updates: pd.DataFrame, column: str) -> pd.DataFrame:
    smooth = updates.sort_values("step").copy()
    smooth[column] = smooth.groupby(["method", "seed"])[column].transform(
        lambda values: moving_average(values.to_numpy(), WINDOW)
    )
    return smooth


def _band(axes: Axes, rows: pd.DataFrame, column: str, look: Style, mean: bool = False) -> None:
    """Lowest to highest value over seeds at every step, and the mean as a thin line."""
    by_step = rows.groupby("step")[column].agg(["min", "max", "mean"])
    seeds = rows["seed"].nunique()
    if seeds < 2:
        return
    label = f"{display(rows['method'].iloc[0])}, {seeds} committed seeds"
    axes.fill_between(
        by_step.index, by_step["min"], by_step["max"],
        facecolor=(look.color, 0.14), edgecolor=(look.color, 0.6), ls=look.line, lw=0.8,
        label=label,
    )  # fmt: skip
    if mean:
        axes.plot(by_step.index, by_step["mean"], color=look.color, ls=look.line, lw=0.8)


def _interval(rates: pd.Series) -> Interval:
    """In percent; a single question has no interval."""
    if len(rates) < 2:
        return Interval(*[100 * float(rates.iloc[0])] * 3)
    return bootstrap_interval(rates.to_numpy()).times(100)


def arms(intervals: Sequence[Interval]) -> np.ndarray:
    """`[2, N]` lengths of the error bars below and above."""
    return np.array([[x.mean - x.low, x.high - x.mean] for x in intervals]).T.clip(min=0)


def _level_names(tables: Iterable[pd.DataFrame]) -> list[str]:
    known = {level for table in tables for level in table["level"]} - {""}
    return [*sorted(known, key=lambda level: (len(level), level)), "all"]


def _dumbbells(
    axes: Axes,
    runs: list[Run],
    style: dict[str, Style],
    names: list[str],
    measure: Callable[[Run, str, bool], Interval | None],
) -> None:
    """For every level and run: hollow marker before, filled marker after, a line between them."""
    step = 0.7 / len(runs)
    for i, run in enumerate(runs):
        look = style[run.label]
        pairs = [(measure(run, name, False), measure(run, name, True)) for name in names]
        x = np.arange(len(names)) + step * (i - (len(runs) - 1) / 2)
        common: dict[str, Any] = {
            "color": look.color,
            "marker": look.marker,
            "ls": "",
            "ms": 6,
            "zorder": 3,
        }
        for position, (before, after) in zip(x, pairs, strict=True):
            if before is not None and after is not None:
                axes.plot(
                    [position] * 2, [before.mean, after.mean], color=look.color, lw=4, alpha=0.3
                )
            if before is not None:
                axes.plot(position, before.mean, mfc="white", **common)
            if after is not None:
                axes.vlines(position, after.low, after.high, color=look.color, lw=0.9)
                axes.plot(position, after.mean, **common)
        axes.plot([], [], label=look_name(run, runs), **common)
    axes.set_xticks(range(len(names)), names)
    top = max(5.0, 1.06 * axes.dataLim.y1)
    axes.set_ylim(-0.03 * top, top)  # a marker at 0 is drawn whole


def label_updates(axes: Axes, quantity: str, ticks: int = 10) -> None:
    """The axes of a curve over a run; `ticks`: at most so many updates are named, and one more."""
    axes.set(xlabel="gradient updates", ylabel=quantity)
    axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=True, steps=[1, 2, 5, 10]))


def _before_after(figure: Figure, axes: Axes, before: str, after: str) -> None:
    common: dict[str, Any] = {"color": "0.4", "marker": "h", "ls": ""}
    axes.plot([], [], mfc="white", label=before, **common)
    axes.plot([], [], label=after, **common)
    legend(figure, axes)


def legend(figure: Figure, *panels: Axes, columns: int = 2, size: float = 8) -> None:
    """Above the panels, so that it hides nothing; what several of them name is named once."""
    pairs = [
        pair for axes in panels for pair in zip(*axes.get_legend_handles_labels(), strict=True)
    ]
    once = {label: handle for handle, label in reversed(pairs)}
    ordered = {label: once[label] for _, label in pairs}
    figure.legend(
        list(ordered.values()), list(ordered), loc="outside upper center", ncols=columns,
        fontsize=size, frameon=False,
    )  # fmt: skip
