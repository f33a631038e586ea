"""The reproduction as a whole: what was found, every drawing with its caption, and the page."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from lens_ref.reporting import latex, paper, pictures, run_figures, tables
from lens_ref.reporting.find import Found, find
from lens_ref.reporting.settings import Setting, grouped
from lens_ref.rlvr.report_data import BASELINE, Run, label_order, lacks_last_evaluation
from lens_ref.rlvr.report_page import figure, page, table
from lens_ref.rlvr.report_verdict import (
    ONE_SEED,
    Statement,
    counted,
    over_questions,
    over_seeds,
)
from lens_ref.rlvr.run_folder import AGAIN, write_whole, writing
from lens_ref.rlvr.untrusted import as_html, to_cell

Drawing = tuple[Figure | str, str]
"""A figure, or the sentence that stands in its place, and its caption."""


@dataclass(frozen=True)
class Reproduction:
    """The paper's tables and figures beside the runs that were found."""

    found: Found

    @cached_property
    def tables(self) -> tuple[tables.Filled, ...]:
        """The paper's three tables."""
        return tuple(tables.fill(one, self.found.finished) for one in paper.TABLES)

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """The settings that were run, with methods and seeds: those that hold more than rows of
        the paper's tables, or compare something."""
        return tuple(s for s in grouped(self.found.finished) if s.compares or self._others(s))

    @cached_property
    def _standing(self) -> set[int]:
        return {id(r) for one in self.tables for line in one.lines for r in line.runs}

    def _others(self, setting: Setting) -> list[Run]:
        """The runs of a setting that stand in no row of the paper's tables."""
        return [run for run in setting.runs if id(run) not in self._standing]

    def paper_drawings(self) -> dict[str, Drawing]:
        """The paper's figures, in its order."""
        main, _, second = self.tables
        return {
            "overview": (pictures.overview(), OVERVIEW),
            "negative_groups": (
                run_figures.negative_ratio(self.found.finished, self.settings),
                NEGATIVE_GROUPS,
            ),
            "optimal_policy": (pictures.optimal_policy(), OPTIMAL_POLICY),
            "weight": (pictures.weight_function(), WEIGHT),
            "curves_dapo": (run_figures.training_curves(main), f"{CURVES} MATH + DAPO."),
            "curves_numina": (run_figures.training_curves(second), f"{CURVES} MATH + Numina 1.5."),
        }

    def setting_drawings(self, setting: Setting) -> dict[str, Drawing]:
        """The figures of one of our own settings."""
        levels = [level for column, level in tables.measured(setting) if column == "pass@1"]
        curves = {
            f"{setting.slug}_curves{'' if level == 'all' else '_hard'}": (
                run_figures.setting_curves(setting, level),
                SETTING_CURVES,
            )
            for level in levels
        }
        return curves | {
            f"{setting.slug}_differences": (run_figures.differences(setting), DIFFERENCES)
        }

    def frame(self) -> pd.DataFrame:
        """Every number of the paper's tables beside ours."""
        return pd.concat([tables.frame(one) for one in self.tables], ignore_index=True)

    def coverage(self) -> str:
        """How much of the paper was run, in one sentence."""
        rows = sum(len(one.lines) for one in self.tables)
        run = sum(one.run for one in self.tables)
        others = [runs for setting in self.settings if (runs := self._others(setting))]
        return (
            f"Of the {rows} rows of the paper's tables, {run or 'none'} "
            f"{'was' if run < 2 else 'were'} run at the paper's setting (its models and data, "
            f"{paper.STEPS:,} updates or more); {counted(sum(map(len, others)), 'run')} of "
            f"{counted(len(others), 'other setting')} below."
        )

    def verdicts(self, setting: Setting) -> list[str]:
        """What the runs of a setting say about each method against GRPO, in words."""
        if not setting.compares:
            return []
        committed = setting.committed
        statements = over_seeds(committed, "these runs")
        evaluated = set(committed.curves["method"]) - {BASELINE}
        alone = False
        for i, label in enumerate(sorted(evaluated, key=label_order)):
            estimate = setting.difference(label)
            if estimate is not None and estimate.over == "questions":
                (run,) = setting.paired(label)
                statements[i] = over_questions(run, setting.runs)
                alone = True
        if alone:
            statements.append(Statement("Of a single seed:", ONE_SEED))
        return [f"{s.conclusion} {s.numbers}" for s in statements]

    def notes(self) -> list[str]:
        """Runs that were found and are not counted."""
        unfinished = [
            f"{nearby(run.path)} is not finished ({run.step} of {run.config.get('steps')} updates) "
            "and is not counted"
            for run in self.found.unfinished
        ]
        return [*unfinished, *_not_evaluated(self.found.finished), *_left_out(self.found.double)]


def _not_evaluated(runs: Sequence[Run]) -> Iterator[str]:
    """Which runs of a folder lack their last evaluation, a sentence a folder."""
    folders: dict[Path, list[str]] = {}
    for run in runs:
        if lacks_last_evaluation(run):
            folders.setdefault(run.path.parent, []).append(run.path.name)
    for folder, names in folders.items():
        yield (
            f"{counted(len(names), 'run')} of {nearby(folder)} without an evaluation after the "
            f"last update, in no mean: {', '.join(names)}"
        )


def _left_out(double: Sequence[tuple[Run, Run]]) -> Iterator[str]:
    """Which runs were found again elsewhere, a sentence for every two folders."""
    folders: dict[tuple[Path, Path, bool], list[str]] = {}
    for run, twin in double:
        collected = twin.whole and not run.whole
        folders.setdefault((run.path.parent, twin.path.parent, collected), []).append(run.path.name)
    for (folder, other, collected), names in folders.items():
        kind, rest = ("collected run", "whole ones") if collected else ("run", "others")
        yield (
            f"{counted(len(names), kind)} of {nearby(folder)} left out, as {nearby(other)} has "
            f"{rest} of the same method, seed and settings: {', '.join(names)}"
        )


def nearby(path: Path) -> Path:
    """The path from the working folder or the one above it, where it lies below these."""
    relative = Path(os.path.relpath(path))
    return relative if relative.parts[:2].count("..") < 2 else path


def reproduction(runs: Sequence[Path] = (), results: Path | None = None) -> Reproduction:
    """Read every run below the folders; see `find` for what is refused."""
    return Reproduction(find(runs, results))


OVERVIEW = (
    "Overview: a group of eight answers, all wrong. GRPO gives each the reward 0, so every "
    "advantage is 0 and the group teaches nothing. LENS as printed takes from each the odds that "
    "the policy gave it (scaled by 1/G) and centres: the confident ones go down, the others up. "
    "The confidences are an example; rewards and advantages are computed. Mind the scale of the "
    "last panel: in a mixed group advantages are around 1."
)
NEGATIVE_GROUPS = (
    "Share of groups in which every answer is wrong while GRPO trains. Thick bars: the two numbers "
    "that the paper's text gives for its figure, near the beginning and at the end; the curve "
    "between them is a picture without numbers. Lines: our GRPO runs, averaged over the last "
    "updates; shaded: 95 % interval over seeds, cut at 0 and 100 %, none where all gave the same."
)
OPTIMAL_POLICY = (
    "From reward probabilities to an optimal policy: of six options A and B are right; "
    "normalising p* by the difficulty D = 1/Σ p* gives π*."
)
WEIGHT = (
    "The weight function w(z) of Theorem 2, and the odds z/(1−z) that multiply the gradient of a "
    "wrong answer: w is their running mean."
)
CURVES = (
    "Accuracy on the MATH test set while training, all questions and levels 4–5. Level lines: "
    "pass@1 in the paper's table, whose update the paper does not say. Training set:"
)
SETTING_CURVES = (
    "pass@1 on the test questions while training, each method beside GRPO of its seeds: mean over "
    "seeds, shaded 95 % interval over seeds, cut at 0 and 100 %, none for one seed or where all "
    "gave the same. Faint: between a first and a last evaluation nothing was measured."
)
DIFFERENCES = (
    "pass@k of each method minus GRPO's after the last update, on the same seeds; an interval that "
    "crosses the line at 0 tells no difference. Dotted: of a single seed, over test questions; it "
    "says nothing of other seeds. No bar: the answers of a single seed were not counted, or "
    "each seed gave the same. In figures: too far off to be drawn."
)
OVER_SEEDS = "95 % interval over seeds, cut at 0 and 100 %, none where all gave the same"
OVERLAP = (
    "Beware: about 1,000 questions of DAPO are problems of the MATH test set, so numbers of this "
    "table, the paper's and ours, are partly of questions trained on "
    "(configs/paper/math-dapo-clean.yaml leaves them out)."
)
TABLE_NOTE = (
    "Ours: mean over runs after the last update, with the 95 % interval over seeds in brackets "
    "(cut at 0 and 100 %) if there are several that differ; the last column pairs runs of the "
    "same seed."
)


def write(found: Reproduction, out: Path) -> Path:
    """`report.html`, a PNG a figure, `tables.csv`, `our_runs.csv` and `tables.tex`; returns the
    path of the page. Figures that an earlier report alone had are removed.

    Raises:
        UserError: a folder that can't be written.
    """
    with writing(out, AGAIN):
        out.mkdir(parents=True, exist_ok=True)
        old = out / "report.html"
        before = _figures(old.read_text("utf-8", "replace")) if old.is_file() else set()
    body = list(_body(found, out))
    for name, text in {
        "report.html": page("LENS: the paper's tables beside our runs", body, "68rem"),
        "tables.csv": found.frame().map(to_cell).to_csv(index=False),
        "our_runs.csv": tables.our_frame(found.settings).map(to_cell).to_csv(index=False),
        "tables.tex": latex.document(found.tables, found.settings),
    }.items():
        write_whole(out / name, text, AGAIN)
    with writing(out, AGAIN):
        for name in before - _figures("".join(body)):
            (out / f"{name}.png").unlink(missing_ok=True)
    return out / "report.html"


def _figures(html: str) -> set[str]:
    """The figures of a report: each lies as a PNG beside it, too."""
    return set(re.findall(r'<figure id="([a-z0-9_.-]+)">', html))


def _body(found: Reproduction, out: Path) -> Iterator[str]:
    yield "<h1>LENS: the paper's tables and figures beside our runs</h1>"
    yield f"<div class=verdict><p><strong>{as_html(found.coverage())}</strong></p></div>"
    drawings = {
        name: _figure(out / f"{name}.png", *drawing)
        for name, drawing in found.paper_drawings().items()
    }
    main, ablation, second = found.tables
    yield "<h2>The idea</h2>"
    yield drawings["overview"] + drawings["optimal_policy"] + drawings["weight"]
    yield "<h2>Negative groups</h2>" + drawings["negative_groups"]
    yield "<h2>MATH + DAPO</h2>" + _paper_table(main)
    yield f"<p class=note>{as_html(OVERLAP)}</p>" + drawings["curves_dapo"]
    yield "<h2>The ablation</h2>" + _paper_table(ablation)
    yield "<h2>MATH + Numina 1.5</h2>" + _paper_table(second) + drawings["curves_numina"]
    yield "<h2>Our runs</h2>"
    if not found.settings:
        yield "<p>No other finished run was found.</p>"
    for setting in found.settings:
        if setting.compares:
            yield from _setting(found, setting, out)
    alone = [setting for setting in found.settings if not setting.compares]
    if alone:
        yield "<h3>Runs with nothing to compare them with</h3>"
        yield table(*tables.lone_rows(alone))
    if found.notes():
        yield "<h2>Runs that are not counted</h2>"
        yield f"<ul>{''.join(f'<li>{as_html(note)}</li>' for note in found.notes())}</ul>"


def _paper_table(filled: tables.Filled) -> str:
    average = "of one run" if filled.table.runs == 1 else f"means of {filled.table.runs} runs"
    notes = [f"The paper's numbers are {average}. {TABLE_NOTE}", *filled.remarks]
    return (
        f"<h3>{as_html(filled.table.name)}: {as_html(filled.table.caption)}</h3>"
        + table(tables.PAPER_HEADER, tables.paper_rows(filled))
        + "".join(f"<p class=note>{as_html(note)}</p>" for note in notes)
    )


def _setting(found: Reproduction, setting: Setting, out: Path) -> Iterator[str]:
    yield f"<h3>{as_html(setting.title)}</h3>"
    yield "".join(f"<p>{as_html(said)}</p>" for said in found.verdicts(setting))
    yield f"<p class=note>pass@k after the last update, in %: mean and {OVER_SEEDS}.</p>"
    yield table(*tables.accuracy_rows(setting))
    header, rows = tables.difference_rows(setting)
    if rows:
        yield "<p class=note>Differences to GRPO, in points, with paired 95 % intervals.</p>"
        yield table(header, rows)
    yield "<p class=note>While training:</p>"
    yield table(tables.TRAINING_HEADER, tables.training_rows(setting))
    yield f"<p class=note>{as_html(tables.TRAINING_NOTE)}</p>"
    for name, drawing in found.setting_drawings(setting).items():
        yield _figure(out / f"{name}.png", *drawing)


def _figure(path: Path, drawing: Figure | str, caption: str) -> str:
    with writing(path, AGAIN):
        return figure(path, drawing, caption)
