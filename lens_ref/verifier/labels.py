"""Values that are given by name: ``(x, y) = (3, 4)`` and ``y = 4, x = 3`` name the same point.

An answer such as ``(3, 4)`` has no names, so it agrees with named values only where there is no
doubt which name would come first.
"""

from __future__ import annotations

import re

from .kinds import Answer, Equation, Items, Tup

_POLAR = (("r", r"\theta"), ("r", r"\theta", "z"), (r"\rho", r"\theta", r"\phi"))
_INDEXED = re.compile(r"([A-Za-z]|\\[a-z]+)_(\d+)")


def labels_of(answer: Answer) -> tuple[str, ...]:
    """The names of the values of `answer`; empty if one has none or two have the same."""
    if isinstance(answer, Tup):
        return answer.labels
    if not isinstance(answer, Items) or len(answer.parts) < 2:
        return ()
    names = [p.label for p in answer.parts if isinstance(p, Equation) and p.label is not None]
    every = len(names) == len(answer.parts) == len(set(names))
    return tuple(plain_label(name) for name in names) if every else ()


def values_of(answer: Items | Tup) -> tuple[Answer, ...]:
    """The values without their names."""
    return tuple(part.sides[-1] if isinstance(part, Equation) else part for part in answer.parts)


def has_labels(answer: Items | Tup) -> bool:
    """Whether any value has a name, as in ``x = 3, x = 4`` or ``x = 3, 4``."""
    return any(isinstance(part, Equation) for part in answer.parts)


def plain_label(label: str) -> str:
    """``x_{1}`` is ``x_1``."""
    return re.sub(r"[\s{}]", "", label)


def are_indexed(labels: tuple[str, ...]) -> bool:
    """Whether the names number one letter, ``x_1, x_2``: the roots of an equation, in any order."""
    matches = [_INDEXED.fullmatch(label) for label in labels]
    return None not in matches and len({m[1] for m in matches if m}) == 1


def natural_order(labels: tuple[str, ...]) -> list[int] | None:
    r"""Positions of the names in the order in which a tuple lists them, None where in doubt.

    Neighbours in the alphabet (x, y, z), numbered letters (x_1, x_2) and polar coordinates
    (r, \theta) have an order of their own. Other names, such as (h, k), must be sorted already.
    """
    for coordinates in _POLAR:
        if set(labels) == set(coordinates):
            return [labels.index(name) for name in coordinates]
    order = sorted(range(len(labels)), key=lambda k: _sort_key(labels[k]))
    ranked = [labels[k] for k in order]
    letters = all(len(name) == 1 for name in labels)
    neighbours = letters and ord(ranked[-1]) - ord(ranked[0]) == len(labels) - 1
    sure = neighbours or are_indexed(labels) or ranked == list(labels)
    return order if sure else None


def in_order(answer: Items | Tup) -> tuple[Answer, ...] | None:
    """The values as a tuple without names lists them; None where their order is in doubt."""
    values, labels = values_of(answer), labels_of(answer)
    order = natural_order(labels) if labels else list(range(len(values)))
    return None if order is None else tuple(values[k] for k in order)


def _sort_key(label: str) -> tuple[bool, str, int]:
    """Latin letters before Greek, x_2 before x_10."""
    match = _INDEXED.fullmatch(label)
    name, index = (match[1], int(match[2][:9])) if match else (label, 0)
    return name.startswith("\\"), name, index
