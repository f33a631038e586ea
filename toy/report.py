"""What `python -m toy` prints."""

from __future__ import annotations

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from toy import flow, reference
from toy.experiments import CURVE_RULES, P_CORRECT, SEQUENCE_CASES
from toy.rules import RULES
from toy.runs import Results
from toy.sequence import POSITIONS
from toy.tables import NORMAL_95, Agreement, compare, read_table


def show(results: Results, console: Console) -> None:
    """All tables, and what they say about the printed algorithm."""
    summary = results["summary"]
    console.print(_flow_table(results["flow"], results["guards"]))
    console.print(_steps_table(summary))
    console.print(_accuracy_table(summary))
    console.print(_sequence_table(summary))
    console.print("What to take from this", style="bold")
    for line in verdict(summary, results["flow"]):
        console.print(f"• {line}", highlight=False)


def show_agreement(agreement: Agreement, console: Console) -> None:
    """How many cells agree, and which do not."""
    cells, counted = agreement.cells, agreement.uncensored
    within = (counted["standard_errors"].abs() <= NORMAL_95).sum()
    console.print(
        f"{len(cells)} cells compared, {len(counted)} of them uncensored; the 95 % interval of the "
        f"difference covers 0 in {within} ({within / max(len(counted), 1):.0%}); largest "
        f"difference {cells['standard_errors'].abs().max():.1f} standard errors",
        highlight=False,
    )
    for _, cell in agreement.beyond.iterrows():
        console.print(
            f"  differs: {_cell_name(cell)}: {cell['mean_a']:.6g} and {cell['mean_b']:.6g}, "
            f"{cell['standard_errors']:+.1f} standard errors",
            highlight=False,
        )


def show_against_reference(results: Results, console: Console) -> None:
    """The run against the reference numbers, where they have a cell in common."""
    summary, expected = results["summary"], read_table(reference.SAMPLED)
    console.print("\nAgainst an independent simulation of the same set-up:")
    show_agreement(compare(summary, expected), console)
    marked = expected.loc[expected["one_question_set"], "experiment"]
    if summary["experiment"].isin(marked).any():
        console.print(
            "Its 100-option cells seem to come from one set of questions, these from new ones for "
            "every seed; how hard one set is counts above. Left out:"
        )
        show_agreement(compare(summary, expected.drop(columns="one_question_set")), console)


def verdict(summary: pd.DataFrame, times: pd.DataFrame) -> list[str]:
    """Plain sentences, with the numbers of these tables."""
    steps = summary[summary["quantity"] == "steps_to_90"]
    lines = [
        _versus_grpo(steps, "lens_paper", "sgd", "the algorithm as printed"),
        _versus_grpo(steps, "lens_negative_std", "sgd", "negative_std"),
        _versus_grpo(steps, "lens_no_demean", "adam", "no_demean"),
        _pole_and_guard(times),
        _readings(summary),
    ]
    return [line for line in lines if line]


def _pole_and_guard(times: pd.DataFrame) -> str:
    t = times.set_index(["objective", "p_c"])["time"]
    growth = {name: t[name, 1e-4] / t[name, 1e-3] for name in ("mle_d1", "mle_guarded")}
    return (
        "Exact flow, from p = 1e-4 instead of 1e-3: the likelihood objective takes "
        f"{growth['mle_d1']:.2f} times as long with its pole kept (D = 1), "
        f"{growth['mle_guarded']:.1f} times with the guard D ≥ 2 max π. The escape in constant "
        "time comes from the pole, and the guard takes it away."
    )


def _readings(summary: pd.DataFrame) -> str:
    part = summary[summary["experiment"] == "sequence"]
    cells = part[part["step"] == part["step"].max()].set_index(["method", "quantity"])["mean"]
    return (
        "Unsolvable question, negative_std: with π̄ in the odds the policy becomes uniform "
        f"({cells['std_normalized', 'token_entropy']:.2f} of log 3 = {np.log(3):.2f} nats a token, "
        f"{cells['std_normalized', 'length']:.1f} tokens), with raw π it becomes long "
        f"({cells['std_raw', 'length']:.1f} of at most {POSITIONS} tokens, "
        f"{cells['std_raw', 'token_entropy']:.2f} nats). Neither reading is neutral."
    )


def _versus_grpo(steps: pd.DataFrame, method: str, optimizer: str, name: str) -> str:
    cell = ["p_c", "group_size"]
    mine = steps[(steps["optimizer"] == optimizer) & (steps["method"] == method)]
    base = steps[(steps["optimizer"] == optimizer) & (steps["method"] == "grpo")]
    both = mine.merge(base, on=cell, suffixes=("", "_grpo"))
    if both.empty:
        return ""
    ratio = both["mean"] / both["mean_grpo"]
    half = ratio * np.hypot(both["ci95"] / both["mean"], both["ci95_grpo"] / both["mean_grpo"])
    covers = int(((ratio - 1).abs() <= half).sum())
    listed = ", ".join(f"{r:.2f}±{h:.2f}" for r, h in zip(ratio, half, strict=True))
    if covers == len(both):
        what = "is statistically indistinguishable from GRPO on this toy"
    elif covers > 0:
        what = f"can't be told from GRPO in {covers} of {len(both)} cells"
    else:
        what = "differs from GRPO in every cell"
    return (
        f"With {optimizer.upper()}, {name} {what}: updates to 90 % over GRPO's, by column, {listed}"
        " (95 % interval)."
    )


def _cell_name(cell: pd.Series) -> str:
    parts = [str(cell["experiment"]), str(cell["quantity"]), str(cell["method"])]
    parts.append(str(cell["optimizer"]))
    for key, text in (("p_c", "p={:g}"), ("group_size", "G={:g}"), ("step", "step {:g}")):
        if pd.notna(cell[key]):
            parts.append(text.format(cell[key]))
    return " ".join(parts)


def _flow_table(times: pd.DataFrame, guards: pd.DataFrame) -> Table:
    table = Table(title="Exact flow: time to P(correct) = 0.9 on six options")
    table.add_column("objective")
    for p_c in P_CORRECT:
        table.add_column(f"p={p_c:.0e}", justify="right")
    for name, rows in times.groupby("objective", sort=False):
        cells = [
            f"{time:.1f}" if outcome == "solved" else f"never ({outcome})"
            for time, outcome in zip(rows["time"], rows["outcome"], strict=True)
        ]
        table.add_row(flow.OBJECTIVES[str(name)].label, *cells)
    for guard, time in zip(guards["guard"], guards["time"], strict=True):
        blank = [""] * (len(P_CORRECT) - 1)
        table.add_row(flow.guard_objective(guard).label, *blank, f"{time:.1f}")
    return table


def _steps_table(summary: pd.DataFrame) -> Table:
    steps = summary[summary["quantity"] == "steps_to_90"]
    n = int(steps["n"].iloc[0])
    table = Table(
        title=f"Sampled training: updates to P(correct) = 0.9, mean ± 95 % interval of {n} seeds "
        "(k/n: solved before the cap; censored seeds count as the cap)"
    )
    table.add_column("rule")
    columns = steps[["optimizer", "p_c", "group_size", "cap"]].drop_duplicates()
    for c in columns.itertuples():
        head = f"{c.optimizer.upper()} p={c.p_c:.0e}\nG={c.group_size:g} cap {c.cap:g}"
        table.add_column(head, justify="right")
    for name, rule in RULES.items():
        cells = [_steps_cell(steps, name, c) for c in columns.itertuples()]
        table.add_row(rule.label, *cells)
    return table


def _steps_cell(steps: pd.DataFrame, name: str, column: object) -> str:
    found = steps[steps["method"] == name]
    for key in ("optimizer", "p_c", "group_size"):
        found = found[found[key] == getattr(column, key)]
    if found.empty:
        return "–"
    cell = found.iloc[0]
    if cell["solved"] == 0:
        return f"0/{cell['n']:.0f}"
    text = f"{cell['mean']:.0f}±{cell['ci95']:.0f}"
    return text if cell["solved"] == cell["n"] else f"{text} ({cell['solved']:.0f}/{cell['n']:.0f})"


def _accuracy_table(summary: pd.DataFrame) -> Table:
    table = Table(title="100 options a question, G = 16: P(correct), mean ± 95 % interval")
    return _by_step(table, summary, "accuracy", [(name, RULES[name].label) for name in CURVE_RULES])


def _by_step(
    table: Table, summary: pd.DataFrame, quantity: str, rows: list[tuple[str, str]]
) -> Table:
    part = summary[summary["quantity"] == quantity]
    columns = part[["optimizer", "step"]].drop_duplicates()
    table.add_column("rule")
    for c in columns.itertuples():
        table.add_column(f"{c.optimizer.upper()}, {c.step:g} updates", justify="right")
    for method, label in rows:
        cells = []
        for c in columns.itertuples():
            found = part[
                (part["method"] == method)
                & (part["optimizer"] == c.optimizer)
                & (part["step"] == c.step)
            ]
            text = [f"{m:.3f}±{h:.3f}" for m, h in zip(found["mean"], found["ci95"], strict=True)]
            cells.append(text[0] if text else "–")
        table.add_row(label, *cells)
    return table


def _sequence_table(summary: pd.DataFrame) -> Table:
    part = summary[summary["experiment"] == "sequence"]
    last = part[part["step"] == part["step"].max()]
    table = Table(title=f"Short sequences, every reward 0, after {last['step'].iloc[0]:g} updates")
    names = {
        "length": "length, tokens",
        "truncated": "truncated",
        "token_entropy": "nats a token",
        "confidence": "π̄",
    }
    table.add_column("confidence in the odds, and preset")
    for text in names.values():
        table.add_column(text, justify="right")
    for case in SEQUENCE_CASES:
        cells = last[last["method"] == case.name].set_index("quantity")
        values = [f"{cells.loc[q, 'mean']:.3f}±{cells.loc[q, 'ci95']:.3f}" for q in names]
        table.add_row(case.label, *values)
    return table
