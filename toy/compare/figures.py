"""The figures of the comparison, drawn from its CSVs. Methods keep their order and their marker."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from scipy import stats

from toy.compare.language import METHODS, against_grpo
from toy.compare.treatments import TREATMENTS
from toy.figures import DASHES, plt
from toy.tables import NORMAL_95

SIZE_LABELS = {"published": "its own size", "equal_size": "equal size"}
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam"}
LINES = [name for name in TREATMENTS if name in METHODS]  # every method that is drawn as a line
COLOURS = (
    *("#000000", "#c0392b", "#e08214", "#b05fc2", "#1f4e9c", "#4ea1d3", "#0a7e6e", "#5b8c2a"),
    *("#8a6d00", "#7f8c8d", "#d4348d"),
)
MARKERS = "os^DvPX*<>h"
INTERVAL = "mean and 95 % interval over seeds"


def draw(frames: dict[str, pd.DataFrame], summaries: dict[str, pd.DataFrame]) -> dict[str, Figure]:
    """The figures of the parts that are there, by file name."""
    drawn: dict[str, Figure] = {}
    if "signal" in summaries:
        drawn |= _signal(summaries["signal"])
    if "many_questions" in frames:
        drawn |= _many_questions(frames["many_questions"])
    curves: dict[str, Callable[[pd.DataFrame], Figure]] = {
        "mislabelled": _mislabelled,
        "sequences": _sequences,
    }
    drawn |= {part: make(frames[part]) for part, make in curves.items() if part in frames}
    if "shared_features" in frames:
        drawn["shared_features"] = _shared(summaries["harms"])
    if "unsolvable" in frames:
        drawn["unsolvable"] = _unsolvable(summaries["harms"])
    if "language" in frames:
        drawn["language"] = _language(summaries["language"])
        drawn["language_training"] = _language_training(frames["language"])
    return drawn


def label(method: str) -> str:
    """The name of a method in figures and tables."""
    return TREATMENTS[method].label


def _in_order(methods: pd.Series) -> list[str]:
    return [name for name in TREATMENTS if name in set(methods)]


def _forest(
    axes: Axes, rows: pd.DataFrame, order: list[str], settings: list[str], names: bool
) -> None:
    """A line a method, a marker a setting; a seed that never solved makes the mean a lower bound,
    drawn as an open arrow."""
    for j, setting in enumerate(settings):
        part = rows[rows["setting"] == setting].set_index("method").reindex(order)
        y = np.arange(len(order)) + 0.18 * (2 * j - len(settings) + 1)
        bound = part["solved"] < part["n"]
        look = {"color": ("black", "#c0392b", "#3b3b98")[j], "markersize": 5}
        known = ~bound
        axes.errorbar(
            part["mean"][known],
            y[known],
            xerr=part["ci95"][known],
            fmt="os^"[j],
            markerfacecolor=None if j == 0 else "white",
            linewidth=1,
            label=SIZE_LABELS.get(setting, setting),
            **look,
        )
        axes.plot(part["mean"][bound], y[bound], ">", markerfacecolor="white", **look)
    axes.set_yticks(range(len(order)), [label(m) for m in order] if names else [])
    axes.set_ylim(len(order) - 0.5, -0.5)
    for edge in range(0, len(order), 2):
        axes.axhspan(edge - 0.5, edge + 0.5, color="0.95", zorder=-1)


def _log_steps(axes: Axes) -> None:
    """A logarithmic axis of plain numbers: 10, 20, 50, 100, …"""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params("x", labelrotation=30)


def _signal(summary: pd.DataFrame) -> dict[str, Figure]:
    drawn = {}
    settings = [s for s in SIZE_LABELS if s in set(summary["setting"])]
    escape = summary[summary["experiment"] == "six_options"]
    if not escape.empty:
        order = _in_order(escape["method"])
        starts, kinds = sorted(escape["p_c"].unique())[::-1], [*dict.fromkeys(escape["optimizer"])]
        figure, grid = plt.subplots(
            len(kinds),
            len(starts),
            figsize=(3 + 3.6 * len(starts), 1 + 0.32 * len(order) * len(kinds)),
            layout="constrained",
            squeeze=False,
        )
        for i, kind in enumerate(kinds):
            for j, start in enumerate(starts):
                axes = grid[i, j]
                rows = escape[(escape["optimizer"] == kind) & (escape["p_c"] == start)]
                _forest(axes, rows, order, settings, names=j == 0)
                _log_steps(axes)
                axes.set_title(f"{OPTIMIZERS[kind]}, from P(correct) = {start:g}")
        figure.supxlabel("updates to P(correct) = 0.9 (open arrow: not solved by all seeds)")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside right center")
        figure.suptitle(f"Six options, G = 16; {INTERVAL}")
        drawn["six_options"] = figure
    curves = summary[summary["quantity"].isin(("accuracy", "entropy"))]
    if not curves.empty:
        last = curves[curves["step"] == curves["step"].max()]
        order, kinds = _in_order(last["method"]), [*dict.fromkeys(last["optimizer"])]
        figure, grid = plt.subplots(
            1,
            2 * len(kinds),
            figsize=(3 + 2.9 * 2 * len(kinds), 1 + 0.32 * len(order)),
            layout="constrained",
            squeeze=False,
        )
        for i, kind in enumerate(kinds):
            for j, quantity in enumerate(("accuracy", "entropy")):
                rows = last[(last["optimizer"] == kind) & (last["quantity"] == quantity)]
                axes = grid[0, 2 * i + j]
                _forest(axes, rows, order, settings, names=i == j == 0)
                unit = "" if quantity == "accuracy" else ", nats (uniform: 4.6)"
                title = f"{OPTIMIZERS[kind]}, after {int(last['step'].max())} updates"
                axes.set(xlabel=f"{quantity}{unit}", title=title)
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        questions = last["experiment"].iloc[0].removeprefix("questions_").replace("x", " × ")
        figure.suptitle(f"{questions} options, 98 % negative groups at the start; {INTERVAL}")
        drawn["many_questions"] = figure
    return drawn


def _many_questions(frame: pd.DataFrame) -> dict[str, Figure]:
    """Accuracy and entropy on the way, a figure an optimizer, a panel a method."""
    order, drawn = _in_order(frame["method"]), {}
    across = min(5, len(order))
    down = -(-len(order) // across)
    looks = {  # size, quantity: colour and marker tell the size, the dash the quantity
        (size, quantity): {"color": colour, "marker": marker, "linestyle": dash}
        for size, colour, marker in (("published", "black", "o"), ("equal_size", "#c0392b", "s"))
        for quantity, dash in (("accuracy", "-"), ("entropy", (0, (4, 2))))
    }
    for kind, runs in frame.groupby("optimizer", sort=False):
        figure, grid = plt.subplots(
            *(down, across),
            figsize=(3 + 2.4 * across, 1.2 + 2.1 * down),
            layout="constrained",
            squeeze=False,
            sharex=True,
            sharey=True,
        )
        for axes, method in zip(grid.flat, order, strict=False):
            for (size, quantity), look in looks.items():
                rows = runs[(runs["method"] == method) & (runs["setting"] == size)]
                if rows.empty:
                    continue
                points = rows.groupby("step")[quantity].agg(["mean", "std", "count"])
                points = points.assign(half=NORMAL_95 * points["std"] / np.sqrt(points["count"]))
                unit = np.log(100) if quantity == "entropy" else 1.0
                few = max(1, len(points) // 4)
                axes.errorbar(
                    points.index,
                    points["mean"] / unit,
                    yerr=points["half"] / unit,
                    **{"errorevery": few, "markevery": few, "markersize": 4, "linewidth": 1.2},
                    label=f"{quantity}, {SIZE_LABELS[size]}",
                    markerfacecolor=None if size == "published" else "white",
                    **look,
                )
            axes.set(title=label(method), ylim=(0, 1.02))
            axes.title.set_fontsize(10)
        for axes in list(grid.flat)[len(order) :]:
            axes.set_visible(False)
        questions = runs["experiment"].iloc[0].removeprefix("questions_").replace("x", " × ")
        figure.supxlabel("update")
        figure.supylabel("accuracy; entropy / log 100")
        figure.suptitle(f"{questions} options, {OPTIMIZERS[str(kind)]}; {INTERVAL}")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center", fontsize=9)
        drawn[f"many_questions_{kind}"] = figure
    return drawn


def _lines(axes: Axes, frame: pd.DataFrame, quantity: str, quantile: float = NORMAL_95) -> None:
    """Mean over seeds against the step, with bars of so many standard errors at a few places."""
    for method in _in_order(frame["method"]):
        same = frame[frame["method"] == method]
        rows = same.groupby("step")[quantity].agg(["mean", "std", "count"])
        half = quantile * rows["std"] / np.sqrt(rows["count"])
        i = LINES.index(method)
        axes.errorbar(
            rows.index,
            rows["mean"],
            yerr=half,
            errorevery=(i % 4, max(4, len(rows) // 4)),
            markevery=(i % 4, max(4, len(rows) // 4)),
            label=label(method),
            linewidth=1.3,
            markersize=5,
            color=COLOURS[i],
            marker=MARKERS[i],
            linestyle=DASHES[i % len(DASHES)],
        )


def _mislabelled(frame: pd.DataFrame) -> Figure:
    kinds = [*dict.fromkeys(frame["optimizer"])]
    columns = {
        "accuracy": "true accuracy on the mislabelled questions",
        "other_accuracy": "accuracy on the other questions",
        "entropy": "entropy on the mislabelled questions, nats",
    }
    figure, grid = plt.subplots(
        len(kinds), 3, figsize=(14, 0.6 + 3.4 * len(kinds)), layout="constrained", squeeze=False
    )
    for i, kind in enumerate(kinds):
        for j, (quantity, text) in enumerate(columns.items()):
            _lines(grid[i, j], frame[frame["optimizer"] == kind], quantity)
            grid[i, j].set(ylabel=text, xlabel="update", title=OPTIMIZERS[kind])
    figure.suptitle(
        "20 % of the questions are always marked wrong, and the policy had them right; GRPO never "
        f"touches those; {INTERVAL}"
    )
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8)
    return figure


def _sequences(frame: pd.DataFrame) -> Figure:
    panels = [
        ("unsolvable", "length", "mean length, tokens (limit 12)"),
        ("unsolvable", "token_entropy", "entropy, nats a token (uniform: 1.1)"),
        ("unsolvable", "truncated", "share truncated"),
        ("solvable", "accuracy", "accuracy"),
        ("solvable", "length", "mean length, tokens"),
        ("solvable", "token_entropy", "entropy, nats a token"),
    ]
    figure, grid = plt.subplots(2, 3, figsize=(14, 7.4), layout="constrained")
    for axes, (setting, quantity, text) in zip(grid.flat, panels, strict=True):
        _lines(axes, frame[frame["setting"] == setting], quantity)
        axes.set(xlabel="update", ylabel=text, title=f"{setting} question")
    figure.suptitle(f"Sequences of up to 12 tokens, SGD, G = 16; {INTERVAL}")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8)
    return figure


def _shared(summary: pd.DataFrame) -> Figure:
    rows = summary[summary["experiment"] == "shared_features"]
    order = _in_order(rows["method"])
    settings = sorted(set(rows["setting"]), key=lambda s: float(s.removeprefix("rho=")))
    figure, grid = plt.subplots(
        1,
        len(settings),
        figsize=(3 + 3 * len(settings), 3.8),
        layout="constrained",
        squeeze=False,
        sharex=True,
    )
    for j, setting in enumerate(settings):
        part = rows[rows["setting"] == setting].set_index("method").reindex(order)
        _forest(grid[0, j], part.reset_index(), order, [setting], names=j == 0)
        for y, row in enumerate(part.itertuples()):
            if row.solved < row.n:
                text = f"{row.solved:.0f}/{row.n:.0f}  "
                grid[0, j].text(row.mean, y, text, ha="right", va="center", fontsize=8)
        rho = setting.removeprefix("rho=")
        _log_steps(grid[0, j])
        grid[0, j].set(title=f"correlation {rho}", xlabel="updates to P(correct) = 0.9")
    figure.suptitle(
        "The right answer shares features with the confident mistake (open arrow: how many seeds "
        f"solved it, the others count as {rows['cap'].max():,.0f}); {INTERVAL}"
    )
    return figure


def _unsolvable(summary: pd.DataFrame) -> Figure:
    rows = summary[summary["experiment"] == "unsolvable"]
    order, settings = _in_order(rows["method"]), []
    for (setting, kind), part in rows.groupby(["setting", "optimizer"], sort=False):
        settings.append((setting, kind, part["step"].max()))
    quantities = {
        "accuracy": "accuracy on the solvable half",
        "entropy": "entropy on the solvable half, nats",
        "unsolvable_entropy": "entropy on the unsolvable half, nats",
    }
    figure, grid = plt.subplots(
        3, len(settings), figsize=(3 + 3.4 * len(settings), 9.4), layout="constrained"
    )
    for j, (setting, kind, step) in enumerate(settings):
        part = rows[
            (rows["setting"] == setting) & (rows["optimizer"] == kind) & (rows["step"] == step)
        ]
        for i, (quantity, text) in enumerate(quantities.items()):
            _forest(grid[i, j], part[part["quantity"] == quantity], order, [setting], names=j == 0)
            title = f"{setting}, {OPTIMIZERS[kind]}, {int(step)} updates"
            grid[i, j].set(xlabel=text, title=title if i == 0 else "")
    figure.suptitle(
        f"Half of the questions can't be solved, and all share d parameters; {INTERVAL}"
    )
    return figure


def _language(summary: pd.DataFrame) -> Figure:
    """The difference to GRPO by level, at the end."""
    rows = summary[summary["quantity"].isin(("pass@1 minus GRPO", "pass@16 minus GRPO"))]
    updates = rows["step"].max()
    rows = rows[(rows["step"] == updates) & (rows["setting"] != "4-5")]
    levels = sorted(set(rows["setting"]), key=lambda s: (s != "all", s))
    order = _in_order(rows["method"])
    quantities = [*dict.fromkeys(rows["quantity"])]
    figure, grid = plt.subplots(
        len(quantities),
        len(levels),
        figsize=(3 + 2.2 * len(levels), 0.6 + 3.7 * len(quantities)),
        layout="constrained",
        squeeze=False,
        sharex="row",
    )
    for i, quantity in enumerate(quantities):
        for j, level in enumerate(levels):
            part = rows[(rows["setting"] == level) & (rows["quantity"] == quantity)]
            part = part.assign(mean=100 * part["mean"], ci95=100 * part["ci95"])
            _forest(grid[i, j], part, order, [level], names=j == 0)
            grid[i, j].axvline(0, color="0.4", linewidth=0.8)
            linear = 3 if quantity.startswith("pass@1 ") else 10  # one method may fall far
            grid[i, j].set_xscale("symlog", linthresh=linear, linscale=2)
            grid[i, j].set_xticks(ticks := [-50, -linear, 0, linear], map(str, ticks))
            title = "all levels" if level == "all" else f"level {level}"
            grid[i, j].set(title=f"{quantity.split()[0]}, {title}", xlabel="points against GRPO")
    figure.suptitle(
        f"Bundled language model, {int(updates)} updates: difference to GRPO with the same seed "
        "and questions; mean and 95 % t-interval over seeds"
    )
    return figure


def _language_training(frame: pd.DataFrame) -> Figure:
    log = frame[frame["level"] == "training"]
    means = {
        "entropy": "entropy, nats a token",
        "mean_length": "mean length, tokens",
        "neg_to_mixed_rms": "RMS advantage, negative to mixed groups",
    }
    differences = {  # and up to where the scale is linear
        "entropy": ("entropy, nats, less GRPO's", 0.02),
        "mean_length": ("mean length, tokens, less GRPO's", 0.2),
        "negative_share": ("share of negative groups, less GRPO's", 0.05),
    }
    figure, grid = plt.subplots(2, 3, figsize=(14, 7.4), layout="constrained")
    for axes, (quantity, text) in zip(grid[0], means.items(), strict=True):
        rows = log[log["quantity"] == quantity]
        if quantity == "neg_to_mixed_rms":
            rows = rows[rows["value"] > 0]
            axes.set_yscale("log")
        _lines(axes, rows, "value", quantile=0.0)  # the questions differ between seeds: see below
        axes.set(xlabel="update", ylabel=text)
    paired, seeds = against_grpo(log), log["seed"].nunique()
    for axes, (quantity, (text, linear)) in zip(grid[1], differences.items(), strict=True):
        rows = paired[paired["quantity"] == quantity]
        _lines(axes, rows, "value", quantile=stats.t.ppf(0.975, seeds - 1))
        axes.axhline(0, color="0.4", linewidth=0.8)
        axes.set_yscale("symlog", linthresh=linear, linscale=2)
        axes.set(xlabel="update", ylabel=text)
    figure.suptitle(
        "Bundled language model in training. Above: means over seeds. Below: difference to GRPO "
        "with the same seed and questions; mean and 95 % t-interval over seeds"
    )
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8)
    return figure
