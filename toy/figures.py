"""The figures, drawn from the frames that are also written as CSVs. Lines differ in marker and
dash as well as in colour, so that they can be told apart in grey."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from toy import flow
from toy.experiments import SEQUENCE_CASES
from toy.rules import RULES
from toy.tables import NORMAL_95

# Dark to light, so that the order survives a black-and-white printer.
COLOURS = ("#000000", "#3b3b98", "#0a7e6e", "#c0392b", "#8a6d00", "#b05fc2", "#e08214", "#7f8c8d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
INTERVAL = "mean, 95 % interval over seeds"


def style(index: int) -> dict[str, object]:
    """Colour, marker and dash of the index-th line."""
    i = index % len(COLOURS)
    return {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": DASHES[i], "markersize": 5}


def flow_curves(curves: pd.DataFrame) -> Figure:
    """P(correct) along the exact flow."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for i, (label, curve) in enumerate(curves.groupby("curve", sort=False)):
        after_start = curve[curve["time"] > 0]
        axes.plot(
            after_start["time"], after_start["p_correct"], label=label, markevery=0.12, **style(i)
        )
    axes.axhline(flow.TARGET, color="0.6", linewidth=0.8)
    axes.set(
        xscale="log",
        xlim=(1, None),
        xlabel="flow time (updates × learning rate)",
        ylabel="P(correct)",
        title="Exact gradient flow on six options from P(correct) = 1e-4",
    )
    axes.legend(fontsize=8)
    return figure


def escape_times(times: pd.DataFrame, guards: pd.DataFrame) -> Figure:
    """Flow time to 90 % against the first P(correct), and against the guard."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    solved = times[times["time"].notna()]
    for i, (name, rows) in enumerate(solved.groupby("objective", sort=False)):
        left.plot(rows["p_c"], rows["time"], label=flow.OBJECTIVES[str(name)].label, **style(i))
    left.set(
        xscale="log",
        yscale="log",
        xlabel="first P(correct)",
        ylabel="flow time to P(correct) = 0.9",
        title="Sampling from the policy, only D=1 escapes in constant time",
    )
    left.legend(fontsize=7)
    right.plot(guards["guard"] - 1, guards["time"], **style(0))
    for guard, time in zip(guards["guard"], guards["time"], strict=True):
        right.annotate(f"{guard:g}", (guard - 1, time), (4, -10), textcoords="offset points")
    right.set(
        xscale="log",
        yscale="log",
        xlabel="guard − 1 in D = guard · max π",
        ylabel="flow time to P(correct) = 0.9",
        title="The guard is a hyperparameter (from 1e-4)",
    )
    return figure


def sampled_steps(summary: pd.DataFrame) -> Figure:
    """Updates to 90 % of every rule, a panel a column of the table."""
    cells = summary[summary["quantity"] == "steps_to_90"]
    panels = list(cells.groupby(["optimizer", "p_c", "group_size"], sort=False))
    rows = (len(panels) + 3) // 4
    per_row = -(-len(panels) // rows)
    order = [name for name in RULES if name in set(cells["method"])]
    figure, grid = plt.subplots(
        rows,
        per_row,
        figsize=(2.6 * per_row + 2, 3.4 * rows + 0.4),
        sharex=True,  # so that the panels can be compared
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axes, ((optimizer, p_c, group_size), panel) in zip(grid.flat, panels, strict=False):
        for _, cell in panel.iterrows():
            _steps_point(axes, cell, order.index(cell["method"]))
        axes.set(
            xscale="log",
            yticks=range(len(order)),
            ylim=(len(order) - 0.5, -0.5),
            yticklabels=[RULES[name].label for name in order],
        )
        axes.set_title(f"{optimizer.upper()}, p = {p_c:.0e}, G = {group_size:g}", fontsize=9)
        axes.grid(axis="x", alpha=0.3)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    figure.supxlabel(
        f"updates to P(correct) = 0.9 ({INTERVAL}; open: some seeds censored at the cap)",
        fontsize=9,
    )
    return figure


def _steps_point(axes: Axes, cell: pd.Series, row: int) -> None:
    censored = cell["solved"] < cell["n"]
    axes.errorbar(
        cell["mean"],
        row,
        xerr=cell["ci95"],
        fmt="o",
        color="black",
        markerfacecolor="white" if censored else "black",
        markersize=3.5,
        capsize=4,
    )
    if censored:
        text = f"{cell['solved']:.0f}/{cell['n']:.0f}"
        axes.annotate(
            text, (cell["mean"], row), (0, 5), textcoords="offset points", fontsize=6, ha="right"
        )


def signal_sizes(signals: pd.DataFrame) -> Figure:
    """How loud negative groups are, by preset."""
    figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for i, (preset, rows) in enumerate(signals.groupby("preset", sort=False)):
        axes.plot(rows["spread"], rows["neg_to_mixed_rms"], label=preset, **style(i))
    axes.set(
        yscale="log",
        xlabel="spread of confidence in the group (std of π̄ around 0.85)",
        ylabel="RMS advantage, negative ÷ mixed groups",
        title=f"Size of the signal from all-wrong groups (G = {signals['group_size'].iloc[0]})",
    )
    axes.set_ylim(bottom=1e-5)
    axes.legend(title="preset", loc="lower right")
    return figure


def accuracy_curves(runs: pd.DataFrame) -> Figure:
    """Accuracy and entropy on many questions, a column an optimizer."""
    optimizers = list(dict.fromkeys(runs["optimizer"]))
    order = list(dict.fromkeys(runs["method"]))
    labels = [RULES[name].label for name in order]
    figure, grid = plt.subplots(
        2, len(optimizers), figsize=(10, 6.4), sharex="col", sharey="row", layout="constrained"
    )
    for column, optimizer in enumerate(optimizers):
        part = runs[runs["optimizer"] == optimizer]
        top, bottom = grid[0, column], grid[1, column]
        _bands(top, part, "accuracy", order, labels)
        _bands(bottom, part, "entropy", order, labels)
        top.set_title({"sgd": "SGD, lr 0.5", "adam": "Adam, lr 0.02"}[optimizer])
        bottom.set_xlabel("updates (one group of 16 a question)")
    grid[0, 0].set_ylabel("P(correct), mean over questions")
    grid[1, 0].set_ylabel("entropy, nats a question")
    grid[0, -1].legend(fontsize=8)
    figure.suptitle(f"100 options a question, 1–3 correct ({INTERVAL})")
    return figure


def sequence_curves(runs: pd.DataFrame) -> Figure:
    """Length, entropy and confidence on the question that can't be solved."""
    cases = {case.name: case.label for case in SEQUENCE_CASES}
    figure, grid = plt.subplots(2, 2, figsize=(10, 6.4), sharex=True, layout="constrained")
    titles = {
        "length": "mean length, tokens (at most 12)",
        "truncated": "share without EOS",
        "token_entropy": "entropy, nats a token (uniform: 1.10)",
        "confidence": "mean confidence π̄ (uniform: 0.33)",
    }
    for axes, (quantity, label) in zip(grid.flat, titles.items(), strict=True):
        _bands(axes, runs, quantity, list(cases), list(cases.values()))
        axes.set_ylabel(label)
    for axes in grid[1]:
        axes.set_xlabel("updates (SGD, lr 0.5, G = 16)")
    grid[0, 1].legend(fontsize=8)
    figure.suptitle(f"Short sequences, every reward 0 ({INTERVAL})")
    return figure


def _bands(
    axes: Axes, runs: pd.DataFrame, quantity: str, methods: list[str], labels: list[str]
) -> None:
    """Mean over seeds with its 95 % interval, a line a method."""
    for i, (method, label) in enumerate(zip(methods, labels, strict=True)):
        grouped = runs[runs["method"] == method].groupby("step")[quantity]
        mean, half = grouped.mean(), NORMAL_95 * grouped.sem()
        if mean.empty:
            continue
        axes.plot(mean.index, mean, label=label, markevery=0.15, **style(i))
        axes.fill_between(mean.index, mean - half, mean + half, color=COLOURS[i], alpha=0.15)


def save(figures: dict[str, Figure], out: Path) -> None:
    """Write `NAME.png` for each, and close them."""
    for name, figure in figures.items():
        figure.savefig(out / f"{name}.png", dpi=130)
        plt.close(figure)
