"""Sets of real numbers: unions, holes and bounds, compared exactly by the cells they cover."""

from __future__ import annotations

from functools import cmp_to_key

from . import algebra
from .kinds import Answer, Atom, Items, Quantity, Reals, Region, Tup, latex_of


def line_cells(*answers: Answer) -> list[frozenset[int]] | None:
    """Each answer as the set of cells of the real line that it covers.

    With n distinct ends in sorted order the line falls into 2n + 1 cells: open pieces (even
    numbers) and the ends themselves (odd). Set algebra on the line is then set algebra on cells.
    None where an end is not a real number.
    """
    ends: list = []
    try:
        for answer in answers:
            _collect_ends(answer, ends)
        ends.sort(key=cmp_to_key(lambda a, b: 0 if algebra.close(a, b) else (-1 if a < b else 1)))
        distinct = [e for k, e in enumerate(ends) if k == 0 or not algebra.close(ends[k - 1], e)]
        return [_cells(answer, distinct) for answer in answers]
    except _NotOnLineError:
        return None


class _NotOnLineError(Exception):
    """The answer is no set of real numbers with known ends."""


def _end(answer: Answer):
    value = algebra.real_value(latex_of(answer)) if isinstance(answer, Atom | Quantity) else None
    if value is None:
        raise _NotOnLineError
    return value


def _collect_ends(answer: Answer, ends: list) -> None:
    if isinstance(answer, Tup) and len(answer.parts) == 2 and not answer.labels:
        ends += [e for e in map(_end, answer.parts) if e.is_finite]
    elif isinstance(answer, Region):
        for part in answer.parts:
            _collect_ends(part, ends)
    elif isinstance(answer, Items):
        ends += map(_end, answer.parts)
    elif isinstance(answer, Atom):
        ends.append(_end(answer))
    elif not isinstance(answer, Reals):
        raise _NotOnLineError


def _cells(answer: Answer, ends: list) -> frozenset[int]:
    line = frozenset(range(2 * len(ends) + 1))
    if isinstance(answer, Reals):
        return line
    if isinstance(answer, Tup):
        low, high = map(_end, answer.parts)
        if not (low < high or (low.is_finite and algebra.close(low, high))):
            raise _NotOnLineError
        first = _cell(low, ends) + (answer.opening == "(") if low.is_finite else 0
        last = _cell(high, ends) - (answer.closing == ")") if high.is_finite else 2 * len(ends)
        return frozenset(range(first, last + 1))
    if isinstance(answer, Region):
        parts = [_cells(part, ends) for part in answer.parts]
        if answer.operation == "union":
            return frozenset().union(*parts)
        if answer.operation == "intersection":
            return line.intersection(*parts)
        if answer.operation == "list":
            return _listed(parts)
        return parts[0].difference(*parts[1:])
    points = answer.parts if isinstance(answer, Items) else (answer,)
    return frozenset(_cell(_end(point), ends) for point in points)


def _listed(parts: list[frozenset[int]]) -> frozenset[int]:
    """x < 1, x > 5 is a union, x > 1, x < 5 an intersection; where some overlap, neither is."""
    union = frozenset().union(*parts)
    if len(union) == sum(map(len, parts)):
        return union
    if common := union.intersection(*parts):
        return common
    raise _NotOnLineError


def _cell(value, ends: list) -> int:
    return 2 * next(k for k, end in enumerate(ends) if algebra.close(end, value)) + 1
