"""The paper's tables with our runs beside the published values, and the table of our own settings,
each as rows that HTML, CSV and LaTeX are written from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lens_ref.reporting import paper
from lens_ref.reporting.settings import (
    HARD,
    Estimate,
    Setting,
    accuracy,
    at_end,
    over_seeds,
    quarter,
    same_setting,
)
from lens_ref.rlvr.report_data import PASS_COLUMNS, Run, display
from lens_ref.rlvr.report_page import MISSING, NOT_RUN
from lens_ref.rlvr.report_verdict import counted, signed


@dataclass(frozen=True)
class Cell:
    """A published number and ours, None where we have not run it; both in %."""

    column: str
    published: str
    ours: Estimate | None


@dataclass(frozen=True)
class Line:
    """A row of a table of the paper."""

    row: paper.Row
    cells: tuple[Cell, ...]
    runs: tuple[Run, ...]  # that stand in it
    gain: Estimate | None  # pass@1 against our GRPO row on the same seeds, points
    published_gain: float | None
    left_out: tuple[str, ...]  # runs that belong here but not at the paper's protocol, and why


@dataclass(frozen=True)
class Filled:
    """A table of the paper."""

    table: paper.PaperTable
    lines: tuple[Line, ...]

    @property
    def run(self) -> int:
        """How many of its rows were run."""
        return sum(bool(line.runs) for line in self.lines)

    @property
    def remarks(self) -> list[str]:
        """What is to be said about the runs that stand in it, and those that do not."""
        differing = []
        for model in self.table.models:
            rows = [line for line in self.lines if line.row.model == model]
            runs = [run for line in rows for run in line.runs]
            if said := paper.remarks(runs):
                differing.append(f"{model}: ours differ from the paper's in {'; '.join(said)}.")
            if not all(same_setting(runs[0], run) for run in runs):
                differing.append(
                    f"{model}: our rows are of different settings; don't compare them."
                )
        return [*differing, *(reason for line in self.lines for reason in line.left_out)]


def fill(table: paper.PaperTable, runs: Sequence[Run]) -> Filled:
    """A table of the paper with the runs that stand in its rows."""
    standing = standing_in(table, runs)
    baseline = {row.model: row for row in table.rows if row.role == "grpo"}
    published = paper.published()
    lines = []
    for row in table.rows:
        base = baseline[row.model]
        cells = tuple(
            Cell(
                column,
                published[table.name, row.label, column],
                over_seeds([100 * at_end(run, column) for run in standing[row]], rates=True),
            )
            for column in paper.PASS
        )
        first = published[table.name, base.label, paper.PASS[0]]
        lines.append(
            Line(
                row,
                cells,
                tuple(standing[row]),
                _gain(standing[row], standing[base]) if row != base else None,
                float(cells[0].published) - float(first) if row != base else None,
                tuple(
                    f"{run.path.parent.name}/{run.path.name} is not counted here: {reason}."
                    for run in runs
                    if paper.belongs(run, table, row) and (reason := _reason(run, standing[row]))
                ),
            )
        )
    return Filled(table, tuple(lines))


def standing_in(table: paper.PaperTable, runs: Sequence[Run]) -> dict[paper.Row, list[Run]]:
    """The runs of every row. Those of one model are of one setting, so that they compare: the one
    with the most pairs of a seed, then runs, then of the paper's own. Where nothing pairs, each row
    has those of the setting with the most runs in it."""
    found = {
        row: [r for r in runs if paper.belongs(r, table, row) and not paper.deviations(r)]
        for row in table.rows
    }
    for model in table.models:
        rows = [row for row in table.rows if row.model == model]
        settings = [
            {row: [r for r in found[row] if same_setting(first, r)] for row in rows}
            for row in rows
            for first in found[row]
        ]
        best = max(settings, key=_merits, default={})
        if best and not _merits(best)[0]:
            best = {row: max((s[row] for s in settings), key=len) for row in rows}
        found |= best
    return found


def _merits(rows: dict[paper.Row, list[Run]]) -> tuple[int, int, int]:
    """Pairs with GRPO of a seed, runs, and in how little they differ from the paper's setting."""
    base = {run.seed for row, runs in rows.items() if row.role == "grpo" for run in runs}
    others = [run.seed for row, runs in rows.items() if row.role != "grpo" for run in runs]
    every = [run for runs in rows.values() for run in runs]
    return sum(seed in base for seed in others), len(every), -len(paper.remarks(every))


def _reason(run: Run, standing: Sequence[Run]) -> str:
    """Why a run is not among those that stand in its row; "" if it is."""
    if any(run is other for other in standing):
        return ""
    return "; ".join(paper.deviations(run)) or "other settings than the runs that are counted"


def _gain(runs: Sequence[Run], baseline: Sequence[Run]) -> Estimate | None:
    pairs = [
        100 * (at_end(run, "pass@1") - at_end(base, "pass@1"))
        for run in runs
        for base in baseline
        if run.seed == base.seed and same_setting(run, base)
    ]
    return over_seeds(pairs)


def frame(filled: Filled) -> pd.DataFrame:
    """One line a number: table, row, column, published, ours, 95 % interval, runs, state."""
    return pd.DataFrame(
        [
            {
                "table": filled.table.name,
                "row": line.row.label,
                "column": cell.column,
                "published": cell.published,
                "ours": None if cell.ours is None else round(cell.ours.mean, 4),
                "low": None if cell.ours is None else _rounded(cell.ours.low),
                "high": None if cell.ours is None else _rounded(cell.ours.high),
                "runs": 0 if cell.ours is None else cell.ours.n,
                "state": NOT_RUN if cell.ours is None else "run",
            }
            for line in filled.lines
            for cell in line.cells
        ]
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


PAPER_HEADER = ["model", "algorithm", "", *paper.PASS, "− GRPO, pass@1"]


def paper_rows(filled: Filled) -> list[list[str]]:
    """Rows of text for every row of the paper: the published values, ours, their interval."""
    rows = []
    for line in filled.lines:
        model, algorithm = line.row.label.removesuffix(" (Ours)").split(": ", 1)
        gain = "" if line.published_gain is None else f"{line.published_gain:+.2f}"
        rows.append(
            [model, algorithm, "paper", *(cell.published for cell in line.cells), _minus(gain)]
        )
        ours = [cell.ours for cell in line.cells]
        if not line.runs:
            own_gain = "" if line.row.role == "grpo" else NOT_RUN
            rows.append(["", "", "ours", *[NOT_RUN] * len(ours), own_gain])
            continue
        own_gain = "" if line.row.role == "grpo" else _middle(line.gain, sign=True)
        count = counted(len(line.runs), "run")
        rows.append(["", "", f"ours ({count})", *map(_middle, ours), own_gain])
        if len(line.runs) > 1:
            rows.append(["", "", "95 % interval", *map(_ends, ours), _ends(line.gain, sign=True)])
    return rows


def _middle(estimate: Estimate | None, sign: bool = False) -> str:
    form = signed if sign else "{:.1f}".format
    return MISSING if estimate is None else form(estimate.mean)


def _ends(estimate: Estimate | None, sign: bool = False) -> str:
    form = signed if sign else "{:.1f}".format
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    return f"[{form(estimate.low)}, {form(estimate.high)}]"


def _minus(text: str) -> str:
    return text.replace("-", "−")


def shown(estimate: Estimate | None, sign: bool = False) -> str:
    """ "54.2 [53.0, 55.4]", "54.2" without an interval, "–" for nothing."""
    return f"{_middle(estimate, sign)} {_ends(estimate, sign)}".strip()


# --- our own settings


def _quantity(column: str, level: str) -> str:
    return column if level == "all" else f"{column}, levels {level.replace('-', '–')}"


def measured(setting: Setting) -> list[tuple[str, str]]:
    """(column, level): the smallest and largest k, of all questions and levels 4–5, that some run
    of a setting was evaluated with at its end."""
    found = []
    for level in ("all", HARD):
        columns = [
            column
            for column in PASS_COLUMNS
            if any(not np.isnan(at_end(run, column, level)) for run in setting.runs)
        ]
        found += [(column, level) for column in dict.fromkeys([*columns[:1], *columns[-1:]])]
    return found


def _seeds(setting: Setting, label: str) -> str:
    """How many runs of a method its means are over; "1 of 2" where some were never evaluated."""
    runs, evaluated = len(setting.of(label)), len(setting.evaluated(label))
    return str(runs) if evaluated == runs else f"{evaluated} of {runs}"


def accuracy_rows(setting: Setting) -> tuple[list[str], list[list[str]]]:
    """Header and a row a method, and GRPO's of fewer seeds beside methods that have fewer: pass@k
    after the last update, in %."""
    columns = measured(setting)
    header = ["method", "seeds", *(_quantity(*c) for c in columns)]
    rows = []
    for name, runs in setting.rows():
        label = runs[0].label
        whole = len(runs) == len(setting.of(label))
        seeds = _seeds(setting, label) if whole else str(len(runs))
        rows.append([name, seeds, *(shown(accuracy(runs, *c)) for c in columns)])
    return header, rows


def difference_rows(setting: Setting) -> tuple[list[str], list[list[str]]]:
    """Header and a row a method: pass@k minus GRPO's on the same seeds, in points."""
    columns = measured(setting)
    header = ["method − GRPO", "paired over", *(_quantity(*c) for c in columns)]
    rows = []
    for label in setting.labels:
        found = [setting.difference(label, *c) for c in columns]
        first = next((e for e in found if e is not None), None)
        if first is None:
            continue
        over = counted(first.n, "seed") if first.over != "questions" else f"{first.n:,} questions"
        rows.append([display(label), over, *(shown(e, sign=True) for e in found)])
    return header, rows


def lone_rows(settings: Sequence[Setting]) -> tuple[list[str], list[list[str]]]:
    """Header and a row a setting and method, for settings that compare nothing with GRPO."""
    of_each = [measured(setting) for setting in settings]
    every = [(column, level) for level in ("all", HARD) for column in PASS_COLUMNS]
    columns = [c for c in every if any(c in its for its in of_each)]
    rows = [
        [
            setting.title,
            display(label),
            _seeds(setting, label),
            *(shown(setting.accuracy(label, *c)) for c in columns),
        ]
        for setting in settings
        for label in setting.labels
    ]
    return ["setting", "method", "seeds", *(_quantity(*c) for c in columns)], rows


TRAINING_HEADER = [
    "method",
    "negative groups, %: first quarter",
    "last quarter",
    "their signal",
    "entropy, nats: first quarter",
    "last quarter",
    "length, tokens: first quarter",
    "last quarter",
]
TRAINING_NOTE = (
    "Means over the seeds of what each update logged, in the first and the last quarter of the "
    "updates. Signal: RMS advantage of negative groups over that of mixed groups, median over "
    "updates. Entropy is that of the answers that a method keeps, so its level can't be compared "
    "between methods that leave some out."
)


def training_rows(setting: Setting) -> list[list[str]]:
    """A row a method, and GRPO's of fewer seeds beside methods that have fewer: negative groups,
    their signal, entropy and length while training."""
    return [
        [
            name,
            *_quarters(runs, "negative_share", "{:.1f}", 100),
            signal(runs),
            *_quarters(runs, "entropy", "{:.3f}"),
            *_quarters(runs, "mean_length", "{:.1f}"),
        ]
        for name, runs in setting.rows()
    ]


def _quarters(runs: Sequence[Run], column: str, form: str, factor: float = 1) -> tuple[str, str]:
    def text(last: bool) -> str:
        estimate = over_seeds([factor * quarter(run, column, last) for run in runs])
        return MISSING if estimate is None else form.format(estimate.mean)

    return text(False), text(True)


def signal(runs: Sequence[Run]) -> str:
    """ "1:830": how much quieter negative groups are than mixed ones; "0" for no signal."""
    ratios = pd.concat([run.metrics["neg_to_mixed_rms"] for run in runs]).dropna()
    if ratios.empty:
        return MISSING
    ratio = float(ratios.median())
    if ratio == 0:
        return "0"
    return f"1:{1 / ratio:,.0f}" if ratio < 0.5 else f"{ratio:.2f}"


def our_frame(settings: Sequence[Setting]) -> pd.DataFrame:
    """One line a number of our own settings: means, and differences to GRPO."""
    rows = []
    for setting in settings:
        for label in setting.labels:
            for column, level in measured(setting):
                found = {
                    "mean": setting.accuracy(label, column, level),
                    "difference from GRPO": setting.difference(label, column, level),
                }
                rows += [
                    {
                        "setting": setting.title,
                        "method": label,
                        "level": level,
                        "column": column,
                        "quantity": quantity,
                        "value": _rounded(estimate.mean),
                        "low": _rounded(estimate.low),
                        "high": _rounded(estimate.high),
                        "n": estimate.n,
                        "interval over": estimate.over or "none",
                    }
                    for quantity, estimate in found.items()
                    if estimate is not None
                ]
    columns = ["setting", "method", "level", "column", "quantity", "value", "low", "high", "n"]
    return pd.DataFrame(rows, columns=[*columns, "interval over"])
