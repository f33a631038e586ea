"""Lists, sets and tuples: compared by name where values have names, by place, or in any order."""

from __future__ import annotations

from collections.abc import Callable

from . import algebra
from .kinds import Answer, Items, Tup, latex_of
from .labels import are_indexed, has_labels, in_order, labels_of, values_of

Same = Callable[[Answer, Answer], bool]  # of a gold and an answer


def same_several(gold: Items | Tup, answer: Items | Tup, same: Same) -> bool:
    """Compare two answers of several values each; `same` compares the values."""
    if len(gold.parts) != len(answer.parts):
        return False
    named = bool(labels_of(gold)), bool(labels_of(answer))
    if isinstance(gold, Items) and isinstance(answer, Items) and named[0] == named[1]:
        return same_in_any_order(gold.parts, answer.parts, same)
    if all(named):
        ours, theirs = (dict(zip(labels_of(a), values_of(a), strict=True)) for a in (gold, answer))
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in ours)
    if any(named):
        return _same_partly_named(gold, answer, same)
    if isinstance(gold, Tup) and isinstance(answer, Tup):
        ends = (gold.opening, gold.closing) == (answer.opening, answer.closing)
        return ends and all(map(same, gold.parts, answer.parts))
    if isinstance(gold, Items) or isinstance(answer, Tup) or has_labels(answer):
        return False
    return not answer.unordered and _is_point(gold) and all(map(same, gold.parts, answer.parts))


def same_in_any_order(gold: tuple[Answer, ...], answer: tuple[Answer, ...], same: Same) -> bool:
    """Whether each value of `gold` has a partner of its own in `answer`."""
    rest = list(answer)
    for part in gold:
        found = next((k for k, other in enumerate(rest) if same(part, other)), None)
        if found is None:
            return False
        del rest[found]
    return not rest


def _same_partly_named(gold: Items | Tup, answer: Items | Tup, same: Same) -> bool:
    """``y = 4, x = 3`` against ``(3, 4)`` or ``3, 4``, where their order leaves no doubt."""
    named, plain = (gold, answer) if labels_of(gold) else (answer, gold)
    if has_labels(plain):  # x = 3, x = 4
        return False
    if isinstance(named, Items) and isinstance(plain, Items):
        if plain.unordered or are_indexed(labels_of(named)):
            return same_in_any_order(values_of(gold), values_of(answer), same)
    elif any(isinstance(a, Items) and a.unordered for a in (gold, answer)):
        return False
    if isinstance(plain, Tup) and (plain.opening, plain.closing) != ("(", ")"):
        return False
    ours, theirs = in_order(gold), in_order(answer)
    return ours is not None and theirs is not None and all(map(same, ours, theirs))


def _is_point(point: Tup) -> bool:
    """Whether ``(a, b)`` can be no interval: its parts may then be given as a plain list."""
    if (point.opening, point.closing) != ("(", ")"):
        return False
    if len(point.parts) != 2:
        return True
    low, high = (algebra.real_value(latex_of(part)) for part in point.parts)
    return low is None or high is None or not low < high
