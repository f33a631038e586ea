"""From per-question counts to the numbers of the table: pass@k of every set of questions, of a run
and of a method over its seeds, with intervals; and one method against another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from lens_ref.core import pass_at_k
from lens_ref.evaluating.counts import Count
from lens_ref.evaluating.resampling import bootstrap, sign_flip_p
from lens_ref.evaluating.trainings import Training
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.evaluation import KS, level_groups
from lens_ref.rlvr.report_data import differences
from lens_ref.rlvr.statistics import Interval, seeds_interval

_NAME = re.compile(r"(.+)-seed(\d+)(.*)")
HARD = "level 4-5"
ASKED = ("eval", "data.test", "data.test_questions", "test questions", "rollout.batch_rows")
"""Of a run's settings and hashes: of what it was asked, and how many answers at a time."""
CLEAN, TRAINED = ", not trained on", ", trained on"
PARTS = tuple(name + suffix for name in ("all", HARD) for suffix in (CLEAN, TRAINED))
"""Sets that an overlap adds."""
_RESERVED = re.compile(rf"all|level \d+(-\d+)?|.*({CLEAN}|{TRAINED})", re.DOTALL)
Key = tuple[str, int]
"""A set of questions and k."""


@dataclass(frozen=True)
class Evaluated:
    """One policy and its counts."""

    name: str  # "lens-seed3", "tiny"
    counts: Sequence[Count]
    asked: int | None = None  # questions of the whole evaluation; None: not known
    data: str | None = None  # hash of the questions, where it is known
    how: str | None = None  # prompt and length limit, where they are known
    step: int | None = None  # of its training, where it is known
    trained: Training | None = None  # what its run says, where that is known
    dropped: int = 0  # questions that were not asked: their answers can't be parsed
    source: str | None = None  # what the questions were called, where it is known

    @property
    def method(self) -> str:
        """The name without its seed: runs of one method share it."""
        match = _NAME.fullmatch(self.name)
        return match[1] + match[3] if match else self.name

    @property
    def seed(self) -> int | None:
        """Of the training run."""
        match = _NAME.fullmatch(self.name)
        return int(match[2]) if match else None


@dataclass(frozen=True)
class Overlap:
    """Which questions the training set named `source` holds too."""

    source: str
    ids: frozenset[str]
    notes: tuple[str, ...] = ()  # what makes it doubtful


def question_sets(counts: Sequence[Count], overlap: Overlap | None = None) -> dict[str, list[int]]:
    """Name and indices of every set of questions with a line in the table.

    "all", "level 4-5", each level and each subject; with an overlap also "all" and "level 4-5"
    without the questions that were trained on, and those alone. Empty sets are left out. A subject
    with such a name itself, "all", is "subject all".
    """
    levels = level_groups(counts)
    order = sorted(levels, key=lambda name: (name != "all", name != "4-5"))
    sets = {name if name == "all" else f"level {name}": levels[name] for name in order}
    subjects = sorted({count.subject for count in counts if count.subject is not None})
    for subject in subjects:
        name = f"subject {subject}" if _RESERVED.fullmatch(subject) else subject
        while name in sets:
            name = f"subject {name}"
        sets[name] = [i for i, count in enumerate(counts) if count.subject == subject]
    if overlap is not None:
        for name in [name for name in ("all", HARD) if name in sets]:
            trained = [i for i in sets[name] if counts[i].id in overlap.ids]
            clean = [i for i in sets[name] if counts[i].id not in overlap.ids]
            sets |= {f"{name}{CLEAN}": clean, f"{name}{TRAINED}": trained}
    return {name: indices for name, indices in sets.items() if indices}


@dataclass(frozen=True)
class Estimate:
    """A share or a difference of shares, and how far to trust it."""

    mean: float
    questions: Interval | None  # over test questions; None with fewer than two
    seeds: Interval | None  # over training runs; None with fewer than two, or no spread
    p: float | None = None  # of a difference: sign-flip test over questions


@dataclass(frozen=True)
class Group:
    """The runs of a method, on the questions that all groups of a table share."""

    method: str
    runs: tuple[Evaluated, ...]
    sets: Mapping[str, list[int]] = field(repr=False)

    @cached_property
    def least(self) -> int:
        """Answers to the question with fewest."""
        return min(count.n for run in self.runs for count in run.counts)

    @property
    def ks(self) -> tuple[int, ...]:
        """Every k with enough answers to all questions."""
        return tuple(k for k in KS if k <= self.least)

    @cached_property
    def rates(self) -> np.ndarray:
        """`[R, Q, K]`: pass@k of every question in every run."""
        return np.stack([_rates(run.counts, self.ks) for run in self.runs])

    def truncated(self, name: str) -> float | None:
        """Share of the answers to a set's questions that the length limit stopped."""
        chosen = [run.counts[i] for run in self.runs for i in self.sets[name]]
        if any(count.truncated is None for count in chosen):
            return None
        return sum(count.truncated or 0 for count in chosen) / sum(count.n for count in chosen)

    @cached_property
    def estimates(self) -> dict[Key, Estimate]:
        """pass@k of every set: the mean over runs of the mean over questions."""
        return {
            (name, k): estimate
            for name, chosen in self.sets.items()
            for k, estimate in zip(self.ks, _rate_estimates(self.rates[:, chosen]), strict=True)
        }


@dataclass(frozen=True)
class Comparison:
    """A method minus the baseline, on the same questions."""

    method: str
    baseline: str
    pairs: tuple[tuple[str, str], ...]  # runs of the same seed; empty: averages are compared
    estimates: dict[Key, Estimate]


def by_method(evaluated: Iterable[Evaluated]) -> dict[str, list[Evaluated]]:
    """The runs of each method, in the order given.

    Raises:
        UserError: two of one method that are not two seeds of it, such as lens and lens-seed1, or
            that were not trained alike.
    """
    found: dict[str, list[Evaluated]] = {}
    for run in evaluated:
        others = found.setdefault(run.method, [])
        for other in others:
            if None in (run.seed, other.seed) or run.seed == other.seed:
                raise UserError(
                    f"by their names {other.name} and {run.name} are both of {run.method}, yet not "
                    "two seeds of it: rename one"
                )
            _check_alike(run, other)
        others.append(run)
    return found


def trained_apart(run: Evaluated, other: Evaluated) -> list[str]:
    """What two runs were trained with, method and seed aside, that differs, as far as it is known:
    how each evaluated itself meanwhile is no part of it."""
    if run.trained is None or other.trained is None:
        return []
    return differences(other.trained, run.trained, but=ASKED)


def _check_alike(run: Evaluated, other: Evaluated) -> None:
    different = trained_apart(run, other)
    if run.trained and other.trained:
        if run.trained.method != other.trained.method:
            different.insert(0, "method")
        if run.trained.seed is not None and run.trained.seed == other.trained.seed:
            raise UserError(
                f"{other.name} and {run.name} are no two seeds: their settings say that both were "
                f"trained with seed {run.trained.seed}"
            )
    if different:
        raise UserError(
            f"{other.name} and {run.name} are both of {run.method} by their names, yet differ in "
            f"{', '.join(different)}: rename one, or look at each alone"
        )


def groups(evaluated: Sequence[Evaluated], overlap: Overlap | None = None) -> list[Group]:
    """The runs by method, in the order given, cut to their common questions.

    Raises:
        UserError: they share no question, the same id stands for different questions, or see
            `by_method`.
    """
    aligned = _aligned(evaluated)
    sets = question_sets(aligned[0].counts, overlap)
    methods = by_method(aligned)
    return [Group(method, tuple(runs), sets) for method, runs in methods.items()]


def compare(group: Group, baseline: Group) -> Comparison:
    """Differences question by question, between runs of the same seed where there are such.

    A policy without a seed, as an untrained one, is compared with every run of the other method.
    """
    pairs = [
        (a, b)
        for a in range(len(group.runs))
        for b in range(len(baseline.runs))
        if _paired(group, baseline, a, b)
    ]
    ks = tuple(k for k in group.ks if k in baseline.ks)
    width = len(ks)
    if pairs:
        left, right = map(list, zip(*pairs, strict=True))
        differences = group.rates[left][..., :width] - baseline.rates[right][..., :width]
    else:
        ours, theirs = (g.rates.mean(axis=0, keepdims=True) for g in (group, baseline))
        differences = ours[..., :width] - theirs[..., :width]
    ps = _sign_flips(differences.mean(axis=0), group.sets)
    estimates: dict[Key, Estimate] = {}
    for name, chosen in group.sets.items():
        found = _estimates(differences[:, chosen])
        for k, one, p in zip(ks, found, ps[name], strict=True):
            estimates[name, k] = Estimate(one.mean, one.questions, one.seeds, float(p))
    named = tuple((group.runs[a].name, baseline.runs[b].name) for a, b in pairs)
    return Comparison(group.method, baseline.method, named, estimates)


def _paired(group: Group, baseline: Group, a: int, b: int) -> bool:
    ours, theirs = group.runs[a].seed, baseline.runs[b].seed
    if None in (ours, theirs) or len(group.runs) == len(baseline.runs) == 1:
        return True
    return ours == theirs


def _sign_flips(differences: np.ndarray, sets: Mapping[str, list[int]]) -> dict[str, np.ndarray]:
    """p-values of every set: the same signs serve all, with zeros outside a set."""
    width = differences.shape[1]
    spread = np.zeros((len(differences), len(sets) * width))
    for number, chosen in enumerate(sets.values()):
        spread[chosen, number * width : (number + 1) * width] = differences[chosen]
    ps = sign_flip_p(spread).reshape(len(sets), width)
    return dict(zip(sets, ps, strict=True))


def _rates(counts: Sequence[Count], ks: Iterable[int]) -> np.ndarray:
    n = torch.tensor([count.n for count in counts])
    c = torch.tensor([count.correct for count in counts])
    return np.stack([torch.as_tensor(pass_at_k(n, c, k)).numpy() for k in ks], axis=1)


def _estimates(values: np.ndarray) -> list[Estimate]:
    """Of `[R, Q, K]` rates or differences."""
    over_runs, over_questions = values.mean(axis=1), values.mean(axis=0)
    intervals: list[Interval | None] = [None] * values.shape[2]
    if len(over_questions) > 1:
        intervals = list(bootstrap(over_questions))
    return [
        Estimate(float(runs.mean()), interval, seeds_interval(runs))
        for runs, interval in zip(over_runs.T, intervals, strict=True)
    ]


def _rate_estimates(rates: np.ndarray) -> list[Estimate]:
    """Of `[R, Q, K]` rates: the intervals over seeds are cut at 0 and 1."""
    return [
        replace(one, seeds=one.seeds.within(0, 1)) if one.seeds else one
        for one in _estimates(rates)
    ]


def _aligned(evaluated: Sequence[Evaluated]) -> list[Evaluated]:
    """Every run cut to the questions that all have, in the order of the first, with every level and
    subject that one of them gives."""
    first = evaluated[0]
    known = [run for run in evaluated if run.data is not None]
    for run in known[1:]:
        if run.data != known[0].data:
            raise UserError(
                f"{known[0].name} and {run.name} were evaluated on different questions"
                f"{_sizes(known[0], run)}: evaluate both on the same, or look at each alone"
            )
    by_id = [{count.id: count for count in run.counts} for run in evaluated]
    common = [count.id for count in first.counts if all(count.id in ids for ids in by_id)]
    if not common:
        names = ", ".join(run.name for run in evaluated)
        raise UserError(f"{names}: no question that all of them were asked")
    labels = {i: _labels(evaluated, [ids[i] for ids in by_id]) for i in common}
    return [
        replace(run, counts=[replace(ids[i], **labels[i]) for i in common])
        for run, ids in zip(evaluated, by_id, strict=True)
    ]


def _labels(evaluated: Sequence[Evaluated], same: Sequence[Count]) -> dict[str, Any]:
    """Level and subject of a question, as the first runs say that give them.

    Args:
        same: its count in every run.

    Raises:
        UserError: two runs contradict each other.
    """
    found: dict[str, Any] = {}
    for key in ("level", "subject"):
        told = [(getattr(c, key), run.name) for run, c in zip(evaluated, same, strict=True)]
        given = [(value, name) for value, name in told if value is not None]
        found[key] = given[0][0] if given else None
        for value, name in given:
            if value != found[key]:
                raise UserError(
                    f"the question {same[0].id!r} has another level or subject in {name} than "
                    f"in {given[0][1]}: are these the same questions?"
                )
    return found


def _sizes(a: Evaluated, b: Evaluated) -> str:
    sizes = (a.asked, b.asked)
    return "" if None in sizes or a.asked == b.asked else f" ({a.asked} and {b.asked})"
