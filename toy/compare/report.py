"""What `python -m toy.compare` prints: the tables, and how they compare with the reference."""

from __future__ import annotations

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from toy import reference
from toy.compare import REFERENCE
from toy.compare.figures import OPTIMIZERS, label
from toy.compare.treatments import TREATMENTS
from toy.report import show_agreement
from toy.tables import KEYS, compare, read_table


def show(summaries: dict[str, pd.DataFrame], console: Console) -> None:
    """A table an experiment, or one a setting of it where that gets wide."""
    for summary in summaries.values():
        for experiment, rows in summary.groupby("experiment", sort=False):
            wanted = _last_steps(rows)
            if len(wanted[COLUMN].drop_duplicates()) <= WIDE:
                console.print(_table(str(experiment), wanted))
                continue
            for setting, part in wanted.groupby("setting", sort=False):
                console.print(_table(f"{experiment}, {setting}", part))
    shared = against_reference(summaries)
    if shared is not None:
        console.print("\nAgainst independent simulations of the same set-ups:")
        for title, (mine, theirs) in shared.items():
            console.print(title, highlight=False)
            show_agreement(compare(mine, theirs), console)


def against_reference(
    summaries: dict[str, pd.DataFrame],
) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]] | None:
    """The cells that have a reference: a run's own and the reference's, with and without the
    variance of the reference's single set of questions (see `toy.reference`)."""
    mine = [as_reference_keys(table) for table in summaries.values() if not table.empty]
    theirs = pd.concat([read_table(reference.SAMPLED), read_table(REFERENCE)], ignore_index=True)
    own = pd.concat(mine, ignore_index=True)
    if own.merge(theirs, on=KEYS).empty:
        return None
    bare = theirs.drop(columns="one_question_set")
    return {
        "bare intervals:": (own, bare),
        "with the variance between sets of questions:": (own, theirs),
    }


def as_reference_keys(table: pd.DataFrame) -> pd.DataFrame:
    """The cells in the reference's names: own size only, the setting as part of the experiment."""
    own = table[table["setting"] != "equal_size"].copy()
    named = ~own["setting"].isin(("published", "mislabelled"))
    own["experiment"] = own["experiment"].where(~named, own["experiment"] + " " + own["setting"])
    return own.drop(columns="setting")


COLUMN = ["quantity", "setting", "optimizer", "p_c"]
"""What a column of a printed table stands for."""

WIDE = 6  # columns, more of which don't fit a terminal

LANGUAGE = {
    **dict.fromkeys(("pass@1", "pass@1 minus GRPO", "pass@16 minus GRPO"), "all"),
    **dict.fromkeys(("entropy", "mean_length"), "training"),
}
"""Of the language model's numbers, those that are printed; all are in the CSV."""


def _last_steps(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that are printed: those at the end, and of the language model the main ones."""
    if rows["experiment"].iloc[0] == "language":
        rows = rows[rows["setting"].eq(rows["quantity"].map(LANGUAGE))]
    last = rows.groupby("optimizer")["step"].transform("max")
    return rows[rows["step"].isna() | (rows["step"] == last)]


def _table(title: str, rows: pd.DataFrame) -> Table:
    """A row a method, a column a cell."""
    look = {"box": SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False}  # six columns fit 100
    table = Table(title=title, title_justify="left", **look)  # type: ignore[arg-type]
    table.add_column("method", no_wrap=True)
    columns = rows[COLUMN].drop_duplicates()
    for column in columns.itertuples():
        start = "" if pd.isna(column.p_c) else f" {column.p_c:g}"
        lines = [column.quantity, OPTIMIZERS.get(column.optimizer, "") + start]
        if rows["setting"].nunique() > 1:
            lines.insert(1, column.setting)
        table.add_column("\n".join(lines), justify="right", overflow="fold")
    for method in [m for m in TREATMENTS if m in set(rows["method"])]:
        cells = []
        for column in columns.itertuples():
            same = (rows["method"] == method) & (rows["quantity"] == column.quantity)
            same &= rows["setting"].eq(column.setting) & rows["optimizer"].eq(column.optimizer)
            same &= rows["p_c"].eq(column.p_c) | (rows["p_c"].isna() & pd.isna(column.p_c))
            cells.append(_cell(rows[same]))
        table.add_row(label(method), *cells)
    return table


def _cell(rows: pd.DataFrame) -> str:
    """Mean and interval; how many seeds solved it where not all did, so that the mean is a lower
    bound."""
    if rows.empty:
        return ""
    row = rows.iloc[0]
    if row["solved"] == 0:
        return f"0/{row['n']:.0f}"
    digits = ".0f" if row["quantity"] == "steps_to_90" else ".3f"
    if row["solved"] < row["n"]:
        return f">{row['mean']:{digits}} ({row['solved']:.0f}/{row['n']:.0f})"
    half = "" if pd.isna(row["ci95"]) else f"±{row['ci95']:{digits}}"
    return f"{row['mean']:{digits}}{half}"
