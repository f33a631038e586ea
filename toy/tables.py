"""From runs to tables: means with 95 % intervals, and whether two tables agree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

KEYS = ["experiment", "quantity", "method", "optimizer", "p_c", "group_size", "step"]
COLUMNS = [*KEYS, "mean", "ci95", "n", "solved", "cap"]
NORMAL_95 = 1.96
MAX_STANDARD_ERRORS = 4.0
MIN_COVERED = 0.9


def long_frame(
    cell: dict[str, object], steps: np.ndarray, seeds: range, traces: dict[str, np.ndarray]
) -> pd.DataFrame:
    """`[N, S]` traces as one row a seed and step, the cell's own columns first."""
    index = pd.MultiIndex.from_product([list(seeds), steps], names=["seed", "step"])
    frame = pd.DataFrame({k: v.T.ravel() for k, v in traces.items()}, index=index).reset_index()
    return frame.assign(**cell)[[*cell, *frame.columns]]


def summarize_escapes(runs: pd.DataFrame) -> pd.DataFrame:
    """Steps to 90 % per cell; a censored seed counts as the cap, so that where `solved` < `n` the
    mean is a lower bound."""
    cell = ["experiment", "method", "optimizer", "p_c", "group_size", "cap"]
    table = _mean_and_interval(runs, cell, "steps")
    solved = (
        (~runs["censored"].astype(bool))
        .groupby([runs[c] for c in cell], sort=False, dropna=False)
        .sum()
    )
    return table.assign(quantity="steps_to_90", solved=solved.to_numpy()).reindex(columns=COLUMNS)


def summarize_curves(
    runs: pd.DataFrame, quantities: tuple[str, ...], read_at: dict[str, tuple[int, ...]]
) -> pd.DataFrame:
    """Means of the quantities at the updates `read_at[optimizer]`."""
    wanted = [step in read_at[o] for o, step in zip(runs["optimizer"], runs["step"], strict=True)]
    cell = ["experiment", "method", "optimizer", "group_size", "step"]
    tables = [
        _mean_and_interval(runs[wanted], cell, name).assign(quantity=name) for name in quantities
    ]
    return pd.concat(tables, ignore_index=True).reindex(columns=COLUMNS)


def _mean_and_interval(runs: pd.DataFrame, cell: list[str], column: str) -> pd.DataFrame:
    table = (
        runs.groupby(cell, sort=False, dropna=False)[column]
        .agg(["mean", "std", "count"])
        .reset_index()
    )
    table["ci95"] = NORMAL_95 * table["std"] / np.sqrt(table["count"])
    return table.rename(columns={"count": "n"}).drop(columns="std")


@dataclass(frozen=True)
class Agreement:
    """Two tables, cell by cell."""

    cells: pd.DataFrame  # KEYS, mean_a, mean_b, standard_errors (of the difference), censored

    @property
    def uncensored(self) -> pd.DataFrame:
        """The cells in which every seed of both tables reached the target."""
        return self.cells[~self.cells["censored"]]

    @property
    def covered(self) -> float:
        """Share of uncensored cells whose 95 % interval of the difference covers 0."""
        return float((self.uncensored["standard_errors"].abs() <= NORMAL_95).mean())

    @property
    def beyond(self) -> pd.DataFrame:
        """The cells, censored ones too, that differ by more than four standard errors."""
        return self.cells[self.cells["standard_errors"].abs() > MAX_STANDARD_ERRORS]

    @property
    def agrees(self) -> bool:
        """No cell beyond four standard errors."""
        return self.beyond.empty

    @property
    def meets_rule(self) -> bool:
        """At least 90 % of the uncensored intervals cover 0, none beyond four standard errors."""
        return self.covered >= MIN_COVERED and self.agrees


def compare(a: pd.DataFrame, b: pd.DataFrame) -> Agreement:
    """Compare the cells that both tables have.

    Args:
        a, b: tables in the columns of `summary.csv`, `b` with `one_question_set` where that
            applies. Where one gives no interval, the other's is taken for both.

    Raises:
        ValueError: no cell in common.
    """
    both = a.merge(b, on=KEYS, suffixes=("_a", "_b"))
    if both.empty:
        raise ValueError("the two tables have no cell in common")
    ci_a, ci_b = both["ci95_a"].fillna(both["ci95_b"]), both["ci95_b"].fillna(both["ci95_a"])
    variance = (ci_a**2 + ci_b**2) / NORMAL_95**2 + _question_set_variance(both)
    difference = both["mean_a"] - both["mean_b"]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(difference == 0, 0.0, difference / np.sqrt(variance))
    z = np.where(np.isnan(z), np.inf, z)  # different, and neither says how far it may be off
    censored = (both["solved_a"] < both["n_a"]) | (both["solved_b"] < both["n_b"])
    cells = both[[*KEYS, "mean_a", "mean_b"]].assign(standard_errors=z, censored=censored)
    return Agreement(cells)


def _question_set_variance(both: pd.DataFrame) -> pd.Series:
    """The variance that the hardness of one set of questions adds to a mean of `b`, whose interval
    does not hold it: what the seeds of `a`, each with questions of its own, vary more than those
    of `b`. 0 where `b` is not from one set; where it gives no interval, all that `a` varies."""
    if "one_question_set" not in both:
        return pd.Series(0.0, index=both.index)
    per_seed_a = both["ci95_a"] ** 2 * both["n_a"] / NORMAL_95**2
    per_seed_b = both["ci95_b"].fillna(0.0) ** 2 * both["n_b"] / NORMAL_95**2
    between = (per_seed_a - per_seed_b).clip(lower=0.0)
    return between.where(both["one_question_set"].astype(bool), 0.0)


def read_table(path: Path) -> pd.DataFrame:
    """A `summary.csv`.

    Raises:
        ValueError: the file can't be read, lacks a column, or holds what no run writes.
    """
    try:
        table = pd.read_csv(path)
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ValueError(f"{path}: not a readable CSV ({error})") from None
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise ValueError(f"{path}: no column {missing[0]!r}; give the summary.csv of a run")
    for name in COLUMNS:
        if name in ("experiment", "quantity", "method", "optimizer"):
            continue
        try:
            table[name] = pd.to_numeric(table[name]).astype(float)
        except ValueError as error:
            raise ValueError(f"{path}: column {name!r}: {error}") from None
    for wrong, what in (
        (table["mean"].isna(), "has no mean"),
        (table["ci95"] < 0, "has a ci95 below 0"),
        (~(table["n"] >= 1), "has no n of at least 1"),
        (table.duplicated(KEYS), "is of the same cell as an earlier one"),
    ):
        if wrong.any():
            raise ValueError(f"{path}: line {int(wrong.to_numpy().argmax()) + 2} {what}")
    return table
