"""The table and the comparisons, as text for people and as CSV for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lens_ref.evaluating.columns import aligned, as_csv
from lens_ref.evaluating.estimates import (
    CLEAN,
    HARD,
    PARTS,
    TRAINED,
    Comparison,
    Estimate,
    Evaluated,
    Group,
    Overlap,
    trained_apart,
)
from lens_ref.rlvr.evaluation import KS
from lens_ref.rlvr.report_verdict import counted, signed
from lens_ref.rlvr.statistics import RESAMPLES, Interval
from lens_ref.rlvr.untrusted import one_line, printable

TABLE_COLUMNS = (
    "name", "runs", "set", "questions", "k", "pass@k", "low", "high", "seeds_low", "seeds_high",
    "truncated",
)  # fmt: skip
COMPARISON_COLUMNS = (
    "name", "baseline", "pairs", "set", "questions", "k", "difference", "low", "high", "p",
    "seeds_low", "seeds_high",
)  # fmt: skip
LEGEND = (
    "pass@k in %, unbiased; pass@1 is the accuracy averaged over all answers. In brackets: 95 % "
    f"intervals, over questions by bootstrap ({RESAMPLES:,} resamples)"
)
SEEDS_LEGEND = (
    ", on a line of their own over training seeds by Student's t, cut at 0 and 100 %, none "
    "where all gave the same"
)
COMPARISON_LEGEND = (
    "Differences on the same questions, in percentage points, with 95 % intervals over questions "
    "(paired bootstrap); p: sign-flip test of the differences by question, not corrected for the "
    "number of comparisons. Levels and subjects: comparisons.csv."
)


def text(
    groups: Sequence[Group], comparisons: Sequence[Comparison], overlap: Overlap | None
) -> str:
    """Everything that is printed."""
    parts = [_table(group) for group in groups]
    if len(groups) > 1:
        parts.insert(0, _overview(groups))
    if overlap is not None:
        parts += [_side_by_side(group, overlap) for group in groups]
    several = any(len(group.runs) > 1 for group in groups)
    parts.append(LEGEND + (SEEDS_LEGEND if several else "") + ".")
    if comparisons:
        parts += [*map(_comparison, comparisons), COMPARISON_LEGEND]
    return printable("\n\n".join(parts)) + "\n"


def notes(
    evaluated: Sequence[Evaluated], groups: Sequence[Group], comparisons: Sequence[Comparison] = ()
) -> list[str]:
    """What a reader must know to trust the numbers."""
    lines = []
    used = len(groups[0].runs[0].counts)
    for run in evaluated:
        if run.asked is not None and len(run.counts) < run.asked:
            lines.append(f"{run.name} is not finished: {len(run.counts)} of {run.asked} questions")
        elif len(run.counts) > used:
            lines.append(
                f"{run.name}: only the {used} of its {len(run.counts)} questions that all have"
            )
    for number in sorted({run.dropped for run in evaluated} - {0}):
        lines.append(f"left out, for an answer that can't be parsed: {counted(number, 'question')}")
    for run in evaluated:
        told = run.trained.seed if run.trained else None
        if type(told) is int and run.seed not in (None, told):
            lines.append(f"{run.name} was trained with seed {told}, as its settings say")
    unknown = [run.name for run in evaluated if run.data is None]
    if unknown and len(evaluated) > 1:
        lines.append(
            f"nothing tells on which questions {some(unknown)} was evaluated: questions of the "
            "same id are taken for the same, and an id may be no more than the number of a row"
        )
    if len({run.how for run in evaluated if run.how is not None}) > 1:
        lines.append("the policies were asked with different prompts or length limits")
    steps: dict[int, list[str]] = {}
    for run in evaluated:
        if run.step is not None:
            steps.setdefault(run.step, []).append(run.name)
    if len(steps) > 1:
        each = (f"{at} ({some(names)})" for at, names in steps.items())
        lines.append(f"the runs were evaluated after different updates: {', '.join(each)}")
    few: dict[int, list[str]] = {}
    for group in groups:
        if group.ks != KS:
            few.setdefault(group.least, []).append(group.method)
    for n, names in few.items():
        lines.append(f"{some(names)}: {counted(n, 'answer')} a question, too few for a larger k")
    of = {group.method: group.runs for group in groups}
    for comparison in comparisons:
        lines += _of_comparison(comparison, of)
    return list(map(one_line, lines))


def _of_comparison(c: Comparison, of: Mapping[str, Sequence[Evaluated]]) -> Iterator[str]:
    """Which runs a difference leaves out, and what two methods differ in besides themselves."""
    ours, theirs = of[c.method], of[c.baseline]
    named = {run.name: run for run in (*ours, *theirs)}
    paired = {name for pair in c.pairs for name in pair}
    alone = [name for name in named if name not in paired]
    if paired and alone:
        shown = some([f"{a} and {b}" for a, b in c.pairs])
        yield (
            f"{c.method} minus {c.baseline} is of the runs that share a seed ({shown}); the tables "
            f"count {', '.join(alone)} too"
        )
    seeds = [{run.seed for run in runs} for runs in (ours, theirs)]
    if None not in seeds[0] | seeds[1] and not seeds[0] & seeds[1]:
        yield f"{c.method} and {c.baseline} share no seed: their differences are not paired by it"
    pairs = [(named[a], named[b]) for a, b in c.pairs] or [(ours[0], theirs[0])]
    apart = dict.fromkeys(key for a, b in pairs for key in trained_apart(a, b))
    if apart:
        yield f"{c.method} and {c.baseline} differ in more than the method: {', '.join(apart)}"


def some(names: Sequence[str]) -> str:
    """The first of them, and whether there are more."""
    return names[0] + " …" * (len(names) > 1)


def table_csv(groups: Iterable[Group]) -> str:
    """A row a method (and, of several, each of its runs), set of questions and k."""
    rows: list[list[Any]] = []
    for group in groups:
        singles = [Group(run.name, (run,), group.sets) for run in group.runs]
        for one in [group, *(singles if len(singles) > 1 else [])]:
            for (name, k), found in one.estimates.items():
                head = [one.method, len(one.runs), name, len(one.sets[name]), k]
                rows.append([*head, *_numbers(found), *_bounds(found.seeds), one.truncated(name)])
    return as_csv(TABLE_COLUMNS, rows)


def comparison_csv(comparisons: Iterable[Comparison], groups: Sequence[Group]) -> str:
    """A row a pair of methods, set of questions and k."""
    sizes = {name: len(chosen) for name, chosen in groups[0].sets.items()}
    rows = [
        [
            *(c.method, c.baseline, len(c.pairs), name, sizes[name], k),
            *(*_numbers(found), found.p, *_bounds(found.seeds)),
        ]
        for c in comparisons
        for (name, k), found in c.estimates.items()
    ]
    return as_csv(COMPARISON_COLUMNS, rows)


# --- text -----------------------------------------------------------------------------------------


def _overview(groups: Sequence[Group]) -> str:
    rows = [["", *(f"pass@{k}" for k in KS)]]
    for group in groups:
        for run, rates in zip(group.runs, 100 * group.rates.mean(axis=1), strict=True):
            cells = [f"{rate:.1f}" for rate in rates]
            rows.append([run.name, *cells, *[""] * (len(KS) - len(cells))])
    return aligned(rows)


def _table(group: Group) -> str:
    estimates = group.estimates
    rows = [["", "questions", *(f"pass@{k}" for k in group.ks), "truncated"]]
    for name, chosen in group.sets.items():
        if name in PARTS:
            continue
        found = [estimates[name, k] for k in group.ks]
        cells = [_cell(one.mean, one.questions) for one in found]
        cut = group.truncated(name)
        rows.append([name, f"{len(chosen):,}", *cells, "" if cut is None else f"{100 * cut:.1f}"])
        if len(group.runs) > 1:
            rows.append(["  over seeds", "", *(_brackets(one.seeds) for one in found), ""])
    runs = f" ({len(group.runs)} runs)" if len(group.runs) > 1 else ""
    return f"{group.method}{runs}\n{aligned(rows)}"


def _side_by_side(group: Group, overlap: Overlap) -> str:
    """The three numbers: all questions, without those trained on, only those."""
    estimates = group.estimates
    rows = [["", "all", "of", "without them", "of", "only them", "of"]]
    for name in ("all", HARD):
        for k in group.ks if name in group.sets else ():
            row = [f"{name}, pass@{k}"]
            for suffix in ("", CLEAN, TRAINED):
                found = estimates.get((name + suffix, k))
                row.append(_cell(found.mean, found.questions) if found else "–")
                row.append(f"{len(group.sets.get(name + suffix, ())):,}")
            rows.append(row)
    title = f"{group.method}, with and without the questions that are in {overlap.source}"
    return f"{title}\n{aligned(rows)}"


def _comparison(comparison: Comparison) -> str:
    shown = [name + suffix for name in ("all", HARD) for suffix in ("", CLEAN, TRAINED)]
    several = len(comparison.pairs) > 1
    rows = [["", "", "difference", "", "p", "over seeds" if several else ""]]
    for (name, k), found in comparison.estimates.items():
        if name in shown:
            numbers = [signed(100 * found.mean), _range(found.questions), f"{found.p:.4f}"]
            rows.append([name, f"pass@{k}", *numbers, _range(found.seeds)])
    pairs = len(comparison.pairs)
    how = f" ({pairs} pairs of runs)" if several else "" if pairs else " (averages over runs)"
    return f"{comparison.method} minus {comparison.baseline}{how}\n{aligned(rows)}"


def _cell(mean: float, interval: Interval | None) -> str:
    return f"{100 * mean:.1f} {_brackets(interval)}".rstrip()


def _brackets(interval: Interval | None) -> str:
    return "" if interval is None else f"[{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def _range(interval: Interval | None) -> str:
    """In percentage points."""
    if interval is None:
        return ""
    return f"[{signed(100 * interval.low)}, {signed(100 * interval.high)}]"


# --- CSV ------------------------------------------------------------------------------------------


def _numbers(found: Estimate) -> list[float | None]:
    return [_rounded(found.mean), *_bounds(found.questions)]


def _bounds(interval: Interval | None) -> list[float | None]:
    return [None, None] if interval is None else [_rounded(interval.low), _rounded(interval.high)]


def _rounded(share: float) -> float:
    """The last digits depend on the order of a sum, which numpy does not promise."""
    return round(share, 10)
