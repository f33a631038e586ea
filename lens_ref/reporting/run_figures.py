"""The paper's figures that need runs, with the published numbers where there are any, and the
figures of our own settings. What has not been run says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lens_ref.reporting import paper
from lens_ref.reporting.settings import HARD, Estimate, Setting, at_end, over_seeds
from lens_ref.reporting.tables import Filled, measured, shown, standing_in
from lens_ref.rlvr.report_data import BASELINE, Run, display
from lens_ref.rlvr.report_figures import (
    STYLES,
    WINDOW,
    Style,
    frame,
    label_updates,
    legend,
)
from lens_ref.rlvr.report_verdict import counted
from lens_ref.rlvr.statistics import moving_average

WIDE = 8.4  # inches
LEGEND_WIDTH = 90  # characters, of a figure so wide
ROLES = {"grpo": (BASELINE, STYLES[0]), "lens": ("lens", STYLES[1])}
Curve = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Updates, mean, lower and upper end of the 95 % interval (the mean itself for one run)."""


def curve(runs: Sequence[Run], level: str) -> Curve:
    """pass@1 in % at every update at which all runs were evaluated."""
    tables = [run.evals[run.evals["level"] == level].set_index("step")["pass@1"] for run in runs]
    table = 100 * pd.concat(tables, axis=1, join="inner").sort_index()
    found = [over_seeds(row, rates=True) for row in table.dropna().to_numpy()]
    estimates = [e for e in found if e is not None]
    return (
        table.dropna().index.to_numpy(dtype=float),
        *_spans(estimates),
    )


def _spans(estimates: Sequence[Estimate]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, lower and upper ends of their intervals, the mean itself where there is none."""
    return (
        np.array([e.mean for e in estimates]),
        np.array([e.mean if e.low is None else e.low for e in estimates]),
        np.array([e.mean if e.high is None else e.high for e in estimates]),
    )


def _draw(axes: Axes, drawn: Curve, look: Style, label: str) -> None:
    """Between a first and a last evaluation alone the line is faint: it says which belong
    together."""
    step, mean, low, high = drawn
    color, line = look.color, look.line
    if len(step) <= 2:
        axes.plot(step, mean, color=color, ls=line, lw=0.8, alpha=0.5)
        axes.errorbar(step, mean, yerr=[mean - low, high - mean], color=color, ls="",
                      marker=look.marker, elinewidth=0.9, capsize=3, label=label)  # fmt: skip
        return
    axes.fill_between(step, low, high, color=color, alpha=0.15, lw=0)
    axes.plot(step, mean, color=color, ls=line, marker=look.marker, lw=2, label=label)


def training_curves(filled: Filled) -> Figure:
    """Accuracy of GRPO and LENS while training, on all questions and on levels 4–5, a row a model;
    the table's pass@1 as a level line, since the paper's curves are pictures without numbers."""
    models = filled.table.models
    figure, panels = frame(rows=len(models), columns=2, width=WIDE, height=3.6)
    for i, model in enumerate(models):
        for axes, level in zip(panels[2 * i : 2 * i + 2], ("all", HARD), strict=True):
            axes.set_title(f"{model}, {_words(level)}", fontsize=11)
            _panel(axes, filled, model, level)
    legend(figure, *panels, size=10)
    return figure


def _words(level: str) -> str:
    return "all questions" if level == "all" else f"levels {level.replace('-', '–')}"


def _panel(axes: Axes, filled: Filled, model: str, level: str) -> None:
    anything = False
    for line in filled.lines:
        if line.row.model != model or line.row.role not in ROLES:
            continue
        label, look = ROLES[line.row.role]
        if level == "all":
            axes.axhline(
                float(line.cells[0].published), color=look.color, ls=look.line, lw=1.2,
                label=f"{display(label)}: the paper's pass@1",
            )  # fmt: skip
        if any(not np.isnan(at_end(run, "pass@1", level)) for run in line.runs):
            anything = True
            _draw(axes, curve(line.runs, level), look, f"{display(label)}: ours")
    label_updates(axes, "pass@1 (%)")
    axes.tick_params(bottom=anything, labelbottom=anything)  # not the ticks: the panels share them
    if anything:
        return
    said = "our runs: not run"
    if level != "all":
        axes.set_yticks([])
        said += "\n(the paper prints no numbers here)"
    else:
        axes.margins(y=0.6)
    axes.text(0.5, 0.5 if level != "all" else 0.12, said, transform=axes.transAxes, ha="center",
              va="center", fontsize=11)  # fmt: skip


def negative_ratio(runs: Sequence[Run], settings: Sequence[Setting]) -> Figure:
    """Share of negative groups while GRPO trains: the paper's two numbers, our run of its setting,
    and our own settings; over the share of the updates done, since lengths differ."""
    figure, (axes,) = frame(width=WIDE, height=4.2)
    values = paper.published()
    row = paper.NEGATIVE_GROUPS
    early, end = (float(values["Negative groups", row.label, part]) for part in ("early", "end"))
    label = (
        f"paper, {row.model} on MATH + Numina: {early:g} % at the beginning, {end:g} % at the end"
    )
    for span, y, name in (((0, 10), early, label), ((90, 100), end, None)):
        axes.plot(span, [y, y], color="black", lw=5, solid_capstyle="butt", zorder=5, label=name)
    table = next(t for t in paper.TABLES if t.data == paper.NUMINA)
    ours = standing_in(table, runs)[row]
    if not ours:
        axes.plot([], [], " ", label="our run of that setting: not run")
    shown = [("our runs of that setting", ours)] if ours else []
    drawn = {id(run) for run in ours}
    others = [s for s in settings if not any(id(run) in drawn for run in s.of(BASELINE))]
    compared = [s for s in others if s.compares] or others
    shown += [(setting.title, runs) for setting in compared if (runs := setting.of(BASELINE))]
    for look, (label, members) in zip(STYLES, shown, strict=False):
        name = f"{label}, {counted(len(members), 'seed')}"
        _draw_share(axes, members, look, fill(name, LEGEND_WIDTH))
    if (beyond := len(shown) - len(STYLES)) > 0:
        axes.plot([], [], " ", label=f"{counted(beyond, 'more setting')}: not drawn")
    axes.set(
        xlabel="updates done (% of the run)", ylabel="negative groups\nunder GRPO (%)",
        xlim=(-2, 102), ylim=(0, None),
    )  # fmt: skip
    handles, labels = axes.get_legend_handles_labels()
    figure.set_figheight(3.1 + 0.22 * sum(label.count("\n") + 1 for label in labels))
    figure.legend(handles, labels, loc="outside upper left", fontsize=10, frameon=False)
    return figure


def _draw_share(axes: Axes, runs: Sequence[Run], look: Style, label: str) -> None:
    """Moving average of each run, then mean and interval over the runs."""
    smooth = [
        moving_average(100 * run.metrics["negative_share"].to_numpy(), WINDOW) for run in runs
    ]
    found = [e for x in np.array(smooth).T if (e := over_seeds(x, rates=True)) is not None]
    x = 100 * np.arange(1, len(found) + 1) / len(found)
    mean, low, high = _spans(found)
    axes.fill_between(x, low, high, color=look.color, alpha=0.15, lw=0)
    axes.plot(x, mean, color=look.color, ls=look.line, marker=look.marker, markevery=0.1, lw=1.8,
              label=label)  # fmt: skip


# --- our own settings


COLUMNS = 3


def setting_curves(setting: Setting, level: str) -> Figure:
    """pass@1 while training: a panel for each method, with GRPO of the same seeds, or alone where
    they share none; one for GRPO where it shares none with any."""
    evaluated = {label: setting.evaluated(label, level) for label in setting.labels}
    baseline = evaluated.pop(BASELINE, [])
    others = {label: runs for label, runs in evaluated.items() if runs}
    beside = {label: setting.partners(label, level) for label in others}
    others |= {label: setting.paired(label, level) for label, runs in beside.items() if runs}
    alike = all(len(runs) in (0, len(baseline)) for runs in beside.values())
    named = counted(len(baseline), "seed") if alike else "the seeds that the panel's method has too"
    if baseline and not any(beside.values()):
        others = {BASELINE: baseline, **others}
    columns = min(COLUMNS, max(1, len(others)))
    rows = -(-len(others) // columns) or 1
    figure, panels = frame(rows, columns, WIDE, 3.6 if rows == 1 else 3.0)
    for i, axes in enumerate(panels):
        axes.sharey(panels[0])
        axes.set_visible(i < max(1, len(others)))
        label_updates(axes, f"pass@1 (%),\n{_words(level)}", ticks=4)
        if i + columns < len(others):
            axes.set_xlabel("")
        else:
            axes.tick_params(labelbottom=True)
    for axes, (label, runs) in zip(panels, others.items(), strict=False):
        if its := runs if label == BASELINE else beside[label]:
            _draw(axes, curve(its, level), STYLES[0], f"GRPO, {named}")
        if label != BASELINE:
            _draw(axes, curve(runs, level), STYLES[1], "the method that the panel names")
        axes.set_title(f"{display(label)}\n{counted(len(runs), 'seed')}", fontsize=10)
    legend(figure, *panels, size=10)
    return figure


def differences(setting: Setting) -> Figure | str:
    """Every method's pass@k minus GRPO's, paired, with 95 % intervals, dotted where they are over
    questions alone; in figures, what lies so far off that the rest could not be told apart."""
    columns = measured(setting)
    found = [
        (label, [setting.difference(label, *c) for c in columns])
        for label in setting.labels
        if label != BASELINE
    ]
    found = [(label, estimates) for label, estimates in found if any(estimates)]
    if not found:
        return "No method was run on the same seed as GRPO here, so there is no difference to draw."
    far = _far_off(dict(found))
    height = 1.5 + 0.26 * len(columns) * len(found)
    figure, (axes,) = frame(height=height, width=WIDE)
    for j, (column, level) in enumerate(columns):
        look = STYLES[j]
        for i, (label, estimates) in enumerate(found):
            estimate, y = estimates[j], i + 0.7 * ((j + 0.5) / len(columns) - 0.5)
            if estimate is None:
                continue
            if label in far:
                _in_figures(axes, estimate, y, look)
                continue
            if estimate.low is not None and estimate.high is not None:
                dotted = ":" if estimate.over == "questions" else "-"
                axes.plot([estimate.low, estimate.high], [y, y], dotted, color=look.color, lw=1.6)
            axes.plot(estimate.mean, y, ls="", marker=look.marker, color=look.color, ms=6)
        name = column if level == "all" else f"{column}, {_words(level)}"
        axes.plot([], [], color=look.color, marker=look.marker, lw=1.6, label=name)
    if any(one and one.over == "questions" for _, estimates in found for one in estimates):
        axes.plot([], [], ":", color="0.4", lw=1.6, label="one seed: over questions alone")
    axes.axvline(0, color="black", lw=1)
    axes.set_yticks(range(len(found)), [display(label) for label, _ in found])
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlabel("difference from GRPO (points); bars: 95 % intervals")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7))
    legend(figure, axes, size=10)
    return figure


def _far_off(found: Mapping[str, Sequence[Estimate | None]]) -> set[str]:
    """The methods all of whose intervals lie beyond three times what those nearer to 0 reach, and
    beyond three points."""
    ends = {
        label: np.array(_spans([one for one in estimates if one])[1:])
        for label, estimates in found.items()
    }
    reach = {label: np.abs(its).max() for label, its in ends.items()}
    ordered = sorted(reach, key=lambda label: reach[label])
    for i, label in enumerate(ordered[1:], 1):
        low, high = ends[label]
        nearest = np.where(low * high > 0, np.minimum(abs(low), abs(high)), 0).min()
        if nearest > 3 * max(reach[ordered[i - 1]], 1):
            return set(ordered[i:])
    return set()


def _in_figures(axes: Axes, estimate: Estimate, y: float, look: Style) -> None:
    """At the side where it lies."""
    left = estimate.mean < 0
    words = shown(estimate, sign=True)
    axes.annotate(
        f"← {words}" if left else f"{words} →", (0.01 if left else 0.99, y),
        xycoords=("axes fraction", "data"), ha="left" if left else "right", va="center",
        fontsize=9, color=look.color,
    )  # fmt: skip
