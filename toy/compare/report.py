"""What `python -m toy.compare` prints: the tables, and how they compare with the reference."""

from __future__ import annotations

import pandas as pd
from rich.console import Console
from rich.table import Table

from toy import reference
from toy.compare import REFERENCE
from toy.compare.figures import OPTIMIZERS, label
from toy.compare.treatments import TREATMENTS
from toy.report import show_agreement
from toy.tables import KEYS, compare, read_table


def show(summaries: dict[str, pd.DataFrame], console: Console) -> None:
    """A table an experiment: a row a method, a column a cell."""
    for summary in summaries.values():
        for experiment, rows in summary.groupby("experiment", sort=False):
            console.print(_table(str(experiment), rows))
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


LANGUAGE = {
    **dict.fromkeys(("pass@1", "pass@1 minus GRPO", "pass@16 minus GRPO"), "all"),
    **dict.fromkeys(("negative_share", "entropy", "mean_length"), "training"),
}
"""Of the language model's numbers, those that are printed; all are in the CSV."""


def _table(experiment: str, rows: pd.DataFrame) -> Table:
    if experiment == "language":
        rows = rows[rows["setting"].eq(rows["quantity"].map(LANGUAGE))]
    chosen = rows[
        rows["step"].isna() | (rows["step"] == rows.groupby("optimizer")["step"].transform("max"))
    ]
    table = Table(title=experiment, title_justify="left")
    table.add_column("method")
    columns = chosen[["quantity", "setting", "optimizer", "p_c"]].drop_duplicates()
    for column in columns.itertuples():
        start = "" if pd.isna(column.p_c) else f" {column.p_c:g}"
        kind = OPTIMIZERS.get(column.optimizer, "")
        table.add_column(f"{column.quantity}\n{column.setting}\n{kind}{start}", justify="right")
    for method in [m for m in TREATMENTS if m in set(chosen["method"])]:
        cells = []
        for column in columns.itertuples():
            same = (chosen["method"] == method) & (chosen["quantity"] == column.quantity)
            same &= chosen["setting"].eq(column.setting) & chosen["optimizer"].eq(column.optimizer)
            same &= chosen["p_c"].eq(column.p_c) | (chosen["p_c"].isna() & pd.isna(column.p_c))
            cells.append(_cell(chosen[same]))
        table.add_row(label(method), *cells)
    return table


def _cell(rows: pd.DataFrame) -> str:
    if rows.empty:
        return ""
    row = rows.iloc[0]
    digits = ".0f" if row["quantity"] == "steps_to_90" else ".3f"
    if row["solved"] < row["n"]:
        return f"> {row['mean']:{digits}} ({int(row['solved'])}/{int(row['n'])})"
    half = "" if pd.isna(row["ci95"]) else f" ± {row['ci95']:{digits}}"
    return f"{row['mean']:{digits}}{half}"
