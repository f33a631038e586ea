"""The measured parts of docs/reproduction.md and its figure, from results/tiny_study."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

from lens_ref.rlvr.report_data import BASELINE, display
from lens_ref.rlvr.report_verdict import bounds, listed, percent, points, seed_pairs, signed
from lens_ref.rlvr.statistics import Interval, detectable, holm, t_interval

ARMS = {
    "lens": "calibrated rewards in all groups, as printed",
    "lens-groupsmixed": "… in mixed groups alone; negative ones teach nothing, as in GRPO",
    "lens-groupsnegative": "… in negative groups alone; mixed ones as in GRPO",
    "lens-no_demean": "… without the de-meaning of negative groups",
    "nsr": "wrong answers down by one, right ones ignored",
}
"""The method's label, and what it does to GRPO."""
MORE = ("pass@2", "pass@4", "pass@8", "pass@16")
"""What is told beside pass@1, for which the study was planned."""
LEVELS = ("all", "1", "2", "3", "4", "5")
LINES = {
    "lens": ("tab:blue", "-", "s"),
    "lens-groupsmixed": ("tab:orange", "--", "^"),
    "lens-groupsnegative": ("tab:red", ":", "v"),
    "lens-no_demean": ("tab:green", "-.", "D"),
}
KEPT = (
    "; entropy is that of the answers that a method keeps, of NSR the wrong ones: its level is no "
    "other arm's"
)
DRAWN = tuple(LINES)
"""NSR falls out of the frame: it is in the table."""


def read_curves(folder: Path) -> pd.DataFrame:
    """pass@k by method, seed, step and level, which is text: "all", "1", …, "4-5"."""
    return pd.read_csv(folder / "curves.csv", dtype={"level": str})


def differences(
    curves: pd.DataFrame, label: str, level: str = "all", column: str = "pass@1"
) -> np.ndarray:
    """Points of pass@k against GRPO at the end, one a seed."""
    pairs = seed_pairs(curves, label, column, level)
    if pairs is None:
        raise ValueError(f"no seed has both {label} and {BASELINE}")
    _, last = pairs
    return 100 * (last[label] - last[BASELINE]).to_numpy()


def interval(found: Interval) -> str:
    """+0.3 [−0.1, +0.7]."""
    return f"{signed(found.mean)} {bounds(found)}"


UNTOLD = "no difference from GRPO can be told"


def in_words(found: Interval) -> str:
    """+0.3 points, 95 % interval […], and what can be said."""
    if found.covers_zero:
        return f"{points(found)}: {UNTOLD}"
    return f"{points(found)}: {'better' if found.mean > 0 else 'worse'} than GRPO"


def together_in_words(named: Mapping[str, Interval]) -> str:
    """What can be said of several arms; of those of which nothing can, once."""
    untold = [f"{name}: {points(it)}" for name, it in named.items() if it.covers_zero]
    said = [f"{name}: {in_words(it)}" for name, it in named.items() if not it.covers_zero]
    return "; ".join([*said, *([f"{'; '.join(untold)}: {UNTOLD}"] if untold else [])])


def study(folder: Path) -> str:
    """Everything that the page says about the tiny policy's runs."""
    curves = read_curves(folder)
    updates = pd.read_csv(folder / "updates.csv")
    runs = json.loads((folder / "manifests.json").read_text(encoding="utf-8"))
    sections = (
        sizes(curves, runs),
        by_arm(curves, updates),
        by_level(curves),
        by_k(curves),
        signals({display(x): updates[updates["method"] == x] for x in (BASELINE, *ARMS)}),
        "![Left: difference from GRPO over the updates. Right: at the end, by level.]"
        "(reproduction.png)",
        "NSR lies far below the frame of the figure.",
        conclusion(curves),
    )
    return "\n\n".join(sections)


def sizes(curves: pd.DataFrame, runs: list[dict[str, Any]]) -> str:
    """What was run, and what so many seeds can find."""
    seeds, steps = curves["seed"].nunique(), curves["step"].max()
    start = curves[(curves["step"] == 0) & (curves["level"] == "all")]["pass@1"].mean()
    spreads = {label: differences(curves, label).std(ddof=1) for label in DRAWN}
    smallest = ", ".join(
        f"{display(label)} {detectable(spread, seeds):.1f} (spread {spread:.1f})"
        for label, spread in spreads.items()
    )
    hours = sum(run["wall_seconds"] for run in runs) / 3600
    return (
        f"{len(runs)} runs: {len(ARMS) + 1} arms, {seeds} seeds, {steps} updates of 32 questions × "
        f"16 answers from one start (pass@1 {percent(start)}); {hours:.0f} hours of one "
        f"thread in all; commits {commits(runs)}. The arms of a seed see the same questions, "
        "so differences are paired by seed.\n\n"
        f"**What {seeds} seeds can find.** With the spread of the paired differences over seeds as "
        "it was measured, a true difference is found (two-sided test at 5 %) with a chance of 80 % "
        f"from so many points of pass@1 on: {smallest}."
    )


def commits(manifests: Iterable[dict[str, Any]]) -> str:
    """Of the code that ran, in short."""
    return ", ".join(sorted(set(map(code_of, manifests))))


def code_of(manifest: dict[str, Any]) -> str:
    """A copy without its repository does not know the commit, but may know the hash of its modules;
    one with changes is not what was committed."""
    digits, plus, changes = (manifest["commit"] or "").partition("+")
    if digits:
        return f"{digits[:7]}{plus}{changes}"
    package = manifest.get("package")
    return f"package {package[:7]}" if package else "unknown"


def by_arm(curves: pd.DataFrame, updates: pd.DataFrame) -> str:
    """pass@1 at the end, the difference from GRPO, and whether it survives five comparisons."""
    last = curves[(curves["level"] == "all") & (curves["step"] == curves["step"].max())]
    final = last.set_index(["method", "seed"])["pass@1"]
    found = {label: differences(curves, label) for label in ARMS}
    adjusted = dict(zip(found, together(found.values()), strict=True))
    rows = [
        "| arm | what it does | pass@1 | minus GRPO, points [95 %] | p, Holm |",
        "|---|---|---|---|---|",
        f"| GRPO | negative groups teach nothing | {mean(final[BASELINE])} | | |",
    ]
    for label, what in ARMS.items():
        difference = interval(t_interval(found[label]))
        rows.append(
            f"| {display(label)} | {what} | {mean(final[label])} | {difference} | "
            f"{p_value(adjusted[label])} |"
        )
    return "\n".join(rows)


def together(differences: Iterable[np.ndarray]) -> list[float]:
    """p of several comparisons, by Holm's method for all of them at once."""
    return holm(
        [
            float(stats.ttest_1samp(values, 0.0).pvalue) if values.any() else 1.0
            for values in differences
        ]
    )


def by_k(curves: pd.DataFrame) -> str:
    """The differences in pass@k beyond k = 1; what they can and can't say."""
    cells = side_by_side(MORE, lambda label, k: differences(curves, label, column=k))
    said = "Points of pass@k minus GRPO, with 95 % intervals of each alone:"
    return "\n\n".join(filter(None, (said, cells, beyond(curves))))


def by_level(curves: pd.DataFrame) -> str:
    """The differences by number of steps of the question."""
    cells = side_by_side(LEVELS[1:], lambda label, level: differences(curves, label, level))
    return f"Points of pass@1 minus GRPO by level, with 95 % intervals of each alone:\n\n{cells}"


def side_by_side(columns: Sequence[str], of: Callable[[str, str], np.ndarray]) -> str:
    """A table of intervals, a row an arm; `of(label, column)`: the differences."""
    rows = [f"| arm | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for label in ARMS:
        cells = [interval(t_interval(of(label, column))) for column in columns]
        rows.append(f"| {display(label)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def beyond(curves: pd.DataFrame) -> str:
    """Which intervals, NSR's and those planned for aside, leave 0 out, and whether that outlives
    all comparisons of the page together; empty where none does."""
    found = compared(curves)
    adjusted = dict(zip(found, together(found.values()), strict=True))
    apart = {
        key: values.mean()
        for key, values in found.items()
        if key[0] != "nsr" and key[1] != "pass@1" and not t_interval(values).covers_zero
    }
    if not apart:
        return ""
    sides = {
        "above": {key: mean for key, mean in apart.items() if mean > 0},
        "below": {key: mean for key, mean in apart.items() if mean < 0},
    }
    named = [f"{side} 0: {by_name(means)}" for side, means in sides.items() if means]
    least = min(adjusted[key] for key in apart)
    return (
        "Beyond pass@1 of all questions at the end, for which the study was planned, intervals lie "
        f"{'; '.join(named)}. Among all {len(found)} comparisons, NSR's too, the smallest p of "
        f"these is {p_value(least)} (Holm)" + (": a hint, not a result." if least > 0.05 else ".")
    )


def by_name(means: Mapping[tuple[str, str], float]) -> str:
    """Differences by arm and what is compared, and their range."""
    named = [
        f"{display(arm)} in {listed([what for label, what in means if label == arm])}"
        for arm in dict.fromkeys(label for label, _ in means)
    ]
    low, high = map(signed, (min(means.values()), max(means.values())))
    return f"{', and '.join(named)} ({low if low == high else f'{low} to {high}'} points)"


def compared(curves: pd.DataFrame) -> dict[tuple[str, str], np.ndarray]:
    """Every comparison with GRPO in the page's tables and figure, by arm and what is compared."""
    steps = sorted(curves["step"].unique())[1:-1]
    ways = {
        **{k: (curves, "all", k) for k in ("pass@1", *MORE)},
        **{f"pass@1 at level {level}": (curves, level, "pass@1") for level in LEVELS[1:]},
        **{
            f"pass@1 after update {step}": (curves[curves["step"] <= step], "all", "pass@1")
            for step in steps
        },
    }
    return {
        (label, what): differences(rows, label, level, column)
        for what, (rows, level, column) in ways.items()
        for label in ARMS
    }


def signals(arms: Mapping[str, pd.DataFrame], over: str = "seeds") -> str:
    """Negative groups, loudness, entropy and length: first and last quarter of the updates of all
    runs of an arm; `arms` by the names that the table shows."""
    steps = max(updates["step"].max() for updates in arms.values())
    quarter = steps // 4
    rows = [
        f"First → last {quarter} updates, means over {over}; the last column over all updates with "
        f"both kinds of groups, a median{KEPT if display('nsr') in arms else ''}:",
        "",
        "| arm | negative groups | entropy, nats | tokens an answer | RMS advantage, negative : "
        "mixed groups |",
        "|---|---|---|---|---|",
    ]
    for name, updates in arms.items():
        first = updates[updates["step"] <= quarter]
        last = updates[updates["step"] > steps - quarter]
        shares, entropy, length = (
            (first[column].mean(), last[column].mean())
            for column in ("negative_share", "entropy", "mean_length")
        )
        ratios = updates["neg_to_mixed_rms"]
        size = loudness(ratios[ratios > 0].median() if (ratios > 0).any() else None)
        rows.append(
            f"| {name} | {percent(shares[0])} → {percent(shares[1])} | "
            f"{entropy[0]:.3f} → {entropy[1]:.3f} | {length[0]:.1f} → {length[1]:.1f} | {size} |"
        )
    return "\n".join(rows)


def loudness(ratio: float | None) -> str:
    """1 : 517; 0 where negative groups are silent."""
    if ratio is None:
        return "0"
    return f"1 : {1 / ratio:,.0f}" if ratio < 1 else f"{ratio:.1f} : 1"


def conclusion(curves: pd.DataFrame) -> str:
    """What follows, in the words that the numbers allow."""
    found = {label: t_interval(differences(curves, label)) for label in ARMS}
    seeds = curves["seed"].nunique()
    limit = detectable(differences(curves, "lens").std(ddof=1), seeds)
    lines = [f"**Does LENS as printed help here?** {verdict('lens', found['lens'])}"]
    if found["lens"].covers_zero:
        lines[0] += (
            f" An effect of {limit:.1f} points or more would probably have shown; a smaller one, "
            "in either direction, is not excluded."
        )
    parts = [verdict(label, found[label]) for label in DRAWN[1:]]
    lines.append(f"**Which ingredient carries what there is?** {' '.join(parts)}")
    lines.append(f"**Negative samples alone:** {verdict('nsr', found['nsr'])}")
    return "\n\n".join(lines)


def verdict(label: str, found: Interval) -> str:
    """One sentence with its interval."""
    name = display(label)
    if found.covers_zero:
        return f"{name}: no difference from GRPO in pass@1 can be told, {interval(found)} points."
    side = "better" if found.mean > 0 else "worse"
    return f"{name} ends {side} than GRPO in pass@1, {interval(found)} points."


def mean(values: pd.Series) -> str:
    """A mean share over seeds with its half interval, in percent."""
    found = t_interval(values.to_numpy()).times(100)
    return f"{found.mean:.1f} ± {found.high - found.mean:.1f} %"


def p_value(p: float) -> str:
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def figure(folder: Path, path: Path) -> None:
    """The differences to GRPO, over the updates and by level."""
    curves = read_curves(folder)
    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.1), layout="constrained", sharey=True)
    for i, label in enumerate(DRAWN):
        color, _, marker = LINES[label]
        table = curves[curves["level"] == "all"].pivot_table(
            index="seed", columns=["method", "step"], values="pass@1"
        )
        change = 100 * (table[label] - table[BASELINE])
        kinds = [t_interval(change[step]) for step in change.columns if step > 0]
        draw(left, [s + 0.8 * (i - 1.5) for s in change.columns if s > 0], kinds, LINES[label])
        kinds = [t_interval(differences(curves, label, level)) for level in LEVELS]
        places = [j + 0.16 * (i - 1.5) for j in range(len(LEVELS))]
        draw(right, places, kinds, (color, "", marker), display(label))
    left.set(xlabel="updates", ylabel="pass@1 minus GRPO, points", title="all test questions")
    right.set(xlabel="steps of the question", title="after the last update")
    right.set_xticks(range(len(LEVELS)), LEVELS)
    handles, names = right.get_legend_handles_labels()
    fig.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=9)
    for ax in (left, right):
        ax.axhline(0, color="black", linewidth=0.8)
        ax.grid(alpha=0.3)
    fig.savefig(path, dpi=110)
    plt.close(fig)


def draw(
    ax: plt.Axes,
    places: list[float],
    found: list[Interval],
    line: tuple[str, str, str],
    label: str | None = None,
) -> None:
    """Means with error bars."""
    color, dash, marker = line
    means = [x.mean for x in found]
    ax.errorbar(
        places,
        means,
        [x.high - x.mean for x in found],
        color=color,
        linestyle=dash or "none",
        marker=marker,
        markersize=4,
        capsize=2,
        linewidth=1.2,
        label=label,
    )
