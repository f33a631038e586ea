"""Runs that differ in method and seed alone, and what they say together: means over seeds with
95 % intervals, and differences to GRPO on the same seeds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from lens_ref.reporting import paper
from lens_ref.rlvr.report_data import (
    BASELINE,
    Committed,
    Run,
    as_committed,
    differences,
    differing_settings,
    display,
    label_order,
)
from lens_ref.rlvr.report_verdict import named_seeds, question_rates, seed_pairs
from lens_ref.rlvr.statistics import Interval, bootstrap_interval, seeds_interval
from lens_ref.rlvr.untrusted import one_line

HARD = "4-5"
LONGEST_SLUG = 100
"""Characters; a title may be as long as the path of a model."""


@dataclass(frozen=True)
class Estimate:
    """A mean, and its 95 % interval where there is one."""

    mean: float
    low: float | None
    high: float | None
    n: int
    over: str  # what the interval is over: "seeds", "questions" or, without one, ""

    @staticmethod
    def of(interval: Interval, n: int, over: str) -> Estimate:
        return Estimate(interval.mean, interval.low, interval.high, n, over)


def accuracy(runs: Sequence[Run], column: str = "pass@1", level: str = "all") -> Estimate | None:
    """pass@k in % after the last update, over some runs."""
    return over_seeds([100 * at_end(run, column, level) for run in runs], rates=True)


def over_seeds(values: Sequence[float] | np.ndarray, rates: bool = False) -> Estimate | None:
    """The mean with Student's interval, without one for a single seed or where all gave the same;
    None for none.

    Args:
        rates: the values are rates in %, and the interval is cut at 0 and 100.
    """
    array = np.asarray(values, dtype=np.float64)
    array = array[~np.isnan(array)]
    if array.size == 0:
        return None
    interval = seeds_interval(array)
    if interval is None:
        return Estimate(float(array.mean()), None, None, array.size, "")
    return Estimate.of(interval.within(0, 100) if rates else interval, array.size, "seeds")


@dataclass(frozen=True)
class Setting:
    """Finished runs that differ in method and seed alone, GRPO first."""

    title: str
    slug: str  # for file names
    runs: tuple[Run, ...]

    @property
    def labels(self) -> list[str]:
        """Methods, GRPO first, then LENS as printed."""
        return sorted({run.label for run in self.runs}, key=label_order)

    @property
    def compares(self) -> bool:
        """Whether there is GRPO and another method."""
        return BASELINE in self.labels and len(self.labels) > 1

    def of(self, label: str) -> list[Run]:
        """The runs of a method."""
        return [run for run in self.runs if run.label == label]

    def evaluated(self, label: str, level: str = "all") -> list[Run]:
        """Those that were evaluated after their last update."""
        return [run for run in self.of(label) if not np.isnan(at_end(run, "pass@1", level))]

    @cached_property
    def committed(self) -> Committed:
        """The same runs as one table of curves and one of updates."""
        return as_committed(self.runs)

    def accuracy(self, label: str, column: str = "pass@1", level: str = "all") -> Estimate | None:
        """pass@k in % after the last update, over the seeds of a method."""
        return accuracy(self.of(label), column, level)

    def difference(self, label: str, column: str = "pass@1", level: str = "all") -> Estimate | None:
        """pass@k of a method minus that of GRPO, in points, paired: over seeds, or with one common
        seed over the test questions, if the answers to each were counted."""
        pairs = self.seed_differences(label, column, level)
        if len(pairs) == 1:
            found = self.over_questions(label, int(column.split("@")[1]), level)
            if found is not None:
                return found
        return over_seeds(pairs)

    def seed_differences(
        self, label: str, column: str = "pass@1", level: str = "all"
    ) -> np.ndarray:
        """pass@k of a method minus GRPO's, in points: one number for each seed that both have."""
        pairs = seed_pairs(self.committed.curves, label, column, level)
        if label == BASELINE or pairs is None:
            return np.array([])
        _, table = pairs
        return 100 * (table[label] - table[BASELINE]).to_numpy()

    def paired(self, label: str, level: str = "all") -> list[Run]:
        """The evaluated runs of a method that have such a GRPO run of their seed."""
        return self._sharing(label, BASELINE, level)

    def partners(self, label: str, level: str = "all") -> list[Run]:
        """GRPO's evaluated runs of the seeds with which a method was evaluated too."""
        return self._sharing(BASELINE, label, level)

    def rows(self) -> list[tuple[str, list[Run]]]:
        """The runs of every method, with its name; after all of GRPO's, those of the seeds of each
        method that has fewer."""
        methods = [(display(label), self.of(label)) for label in self.labels]
        fewer = dict[str, list[Run]]()
        for label in self.labels:
            beside = self.partners(label)
            if 0 < len(beside) < len(self.of(BASELINE)):
                fewer[f"{display(BASELINE)}, {named_seeds(run.seed for run in beside)}"] = beside
        return [*methods[:1], *fewer.items(), *methods[1:]]

    def _sharing(self, label: str, other: str, level: str) -> list[Run]:
        seeds = {run.seed for run in self.evaluated(other, level)}
        return [run for run in self.evaluated(label, level) if run.seed in seeds]

    def over_questions(self, label: str, k: int = 1, level: str = "all") -> Estimate | None:
        """pass@k of a method minus that of GRPO, in points, paired by test question, in the mean
        over the seeds that both have; None where the answers to each were not counted."""
        if label == BASELINE:
            return None
        changes = []
        for run in self.paired(label):
            both = [next(base for base in self.of(BASELINE) if base.seed == run.seed), run]
            if any(one.counts.empty or one.counts["n"].min() < k for one in both):
                return None
            base, own = (_rates(one, k, level) for one in both)
            changes.append(own - base)
        if not changes:
            return None
        change = pd.concat(changes, axis=1).dropna().mean(axis=1).to_numpy()
        if len(change) < 2:
            return None
        return Estimate.of(bootstrap_interval(change).times(100), len(change), "questions")


def _rates(run: Run, k: int, level: str) -> pd.Series:
    own = run.counts["level"].isin(["4", "5"] if level == HARD else [level])
    return question_rates(run.counts[own | (level == "all")], run.step, k)


def at_end(run: Run, column: str, level: str = "all") -> float:
    """A column of the evaluation after the last update, NaN where there is none."""
    rows = run.evals[(run.evals["step"] == run.step) & (run.evals["level"] == level)]
    return float(rows[column].iloc[0]) if len(rows) else float("nan")


def quarter(run: Run, column: str, last: bool) -> float:
    """The mean of a logged quantity over the first or last quarter of the updates."""
    size = max(1, len(run.metrics) // 4)
    rows = run.metrics.sort_values("step")[column]
    return float((rows.iloc[-size:] if last else rows.iloc[:size]).mean())


def same_setting(a: Run, b: Run) -> bool:
    """Whether two runs differ in nothing but method and seed (and the machine)."""
    return not differences(a, b)


def grouped(runs: Iterable[Run]) -> list[Setting]:
    """The settings, each with its runs; in the order of their titles."""
    groups: list[list[Run]] = []
    for run in runs:
        for group in groups:
            if same_setting(group[0], run):
                group.append(run)
                break
        else:
            groups.append([run])
    titles = [_title(group[0]) for group in groups]
    settings = []
    for group, title in zip(groups, titles, strict=True):
        namesakes = [
            g for g, t in zip(groups, titles, strict=True) if t == title and g is not group
        ]
        full = title + _distinction(group[0], [other[0] for other in namesakes])
        settings.append((full, group))
    settings.sort(key=lambda pair: pair[0])
    return [
        Setting(one_line(title), _slug(title, [t for t, _ in settings[:i]]), tuple(group))
        for i, (title, group) in enumerate(settings)
    ]


def _title(run: Run) -> str:
    name = paper.model_name(run)
    policy = "the bundled policy" if name == "tiny" else name
    data = " + ".join(paper.trained_on(run)) or "unnamed data"
    questions = paper.questions_per_update(run)
    batch = f"{questions or 0:g} × {paper.setting(run, 'rollout.responses')} answers"
    policy = policy[0].upper() + policy[1:] if policy.startswith("the ") else policy
    return f"{policy} on {data}, {run.config.get('steps')} updates of {batch}"


def _distinction(run: Run, others: list[Run]) -> str:
    """What tells settings of one title apart."""
    keys = dict.fromkeys(
        k for other in others for k in differing_settings(run.config, other.config)
    )
    said = [f"{key} = {paper.setting(run, key)}" for key in keys][:3]
    if others and not said:
        test = (run.manifest.get("data", {}).get("test") or {}).get("sha256") or "none"
        said = [f"test set {test[:8]}"]
    return f" ({', '.join(said)})" if said else ""


def _slug(title: str, before: list[str]) -> str:
    def plain(text: str) -> str:
        words = re.sub(r"\b(the|on|of|answers)\b", " ", text.lower())
        return re.sub(r"[^a-z0-9.]+", "-", words).strip("-")[:LONGEST_SLUG]

    twins = sum(plain(other) == plain(title) for other in before)
    return plain(title) + (f"-{twins + 1}" if twins else "")
