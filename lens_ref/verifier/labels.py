"""Values that are given by name: ``(x, y) = (3, 4)`` and ``y = 4, x = 3`` name the same point.

An answer such as ``(3, 4)`` has no names, so it agrees with named values only where there is no
doubt which name would come first.
"""

from __future__ import annotations

import re

from . import leads
from .kinds import Answer, Equation, Items, Tup

_LABEL = re.compile(
    r"[A-Za-z]'*(?:_\{?\w+\}?)?"  # x, x_1, y'
    r"|[A-Za-z](?:\^\{-1\})?\s*\([^()]*\)|[A-Z]\^\{-1\}"  # f(x), P(A), A^{-1}
    r"|(?:m\s*)?\\(?:angle|triangle|overline|overrightarrow|vec|widehat)\s*\{?\s*[A-Za-z]{1,3}\s*\}?"
    r"|\|?[A-Z]{2,3}\|?|\[[A-Z]{3,4}\]|\\[a-z]+(?:_\{?\w+\}?)?"
    r"|(?:\\text\{[^{}]*\}|\s)+|[A-Za-z][a-z]{2,}[a-z ]*"
)
_SYMBOL = r"(?:[A-Za-z]|\\[a-z]+)(?:_\w|_\{\w+\})?"
SYMBOLS = re.compile(rf"\(\s*({_SYMBOL}(?:\s*,\s*{_SYMBOL})+)\s*\)")
_SUM = re.compile(r"[A-Za-z](?:\s*\+\s*[A-Za-z])+")
_SIZE = re.compile(r"\|\s*[A-W]\s*\|")
# a function at another place than one plain name or number: f(2x), f(x+1)
_OTHER_PLACE = re.compile(r"\((?!\s*(?:[A-Za-z]|-?\d+|\\[a-z]+|\\text\{[^{}]*\})\s*\))")
_NAME = r"(?:[A-Za-z]|\\[a-z]+)'*(?:_\w|_\{\w+\})?'*"
_POLAR = (("r", r"\theta"), ("r", r"\theta", "z"), (r"\rho", r"\theta", r"\phi"))
_INDEXED = re.compile(r"([A-Za-z]|\\[a-z]+)_(\d+)")


def is_variable(text: str) -> bool:
    r"""Whether `text` is one plain name, ``x``, ``x_{1}`` or ``\theta``, as an interval bounds."""
    name = text.strip()
    return re.fullmatch(_NAME, name) is not None and not is_constant(name)


def may_be_bounded(text: str) -> bool:
    """Whether a set of numbers alone may answer for a gold that bounds `text`: a name, ``f(x)``."""
    if is_variable(text):
        return True
    return re.fullmatch(rf"{_NAME}\s*\(\s*{_NAME}\s*\)", text.strip()) is not None


def is_label(text: str) -> bool:
    """Whether what stands before a ``=`` only names the value behind it."""
    if _LABEL.fullmatch(text) is None or is_constant(text):
        return False
    worded = r"\text" in text or re.fullmatch(r"[A-Za-z][a-z]{2,}[a-z ]*", text) is not None
    return not worded or leads.names_the_value(text)


def is_constant(latex: str) -> bool:
    """Whether there are no letters in `latex`, so that it can name nothing."""
    rest = re.sub(r"\\(?:frac|sqrt|pi|infty|cdot|times|text)(?![A-Za-z])", "", latex)
    return not re.search(r"[A-Za-z]", rest)


def states_its_value(name: str, label: str | None) -> bool:
    r"""Whether ``name = 5`` may be how an answer states a plain 5.

    ``f(x)`` and ``f(2)`` may, ``f(2x)`` and ``f^{-1}(x)`` are other functions; ``m+n`` and ``|S|``
    are what such questions ask for, but 5 does not state the equation ``m+n=5``.
    """
    if label is None:
        return _SUM.fullmatch(name) is not None or _SIZE.fullmatch(name) is not None
    return "^" not in label and _OTHER_PLACE.search(label) is None


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
    """The values without their names; a chain behind a name stays one, for all of it to be true."""
    return tuple(_value_of(part) if isinstance(part, Equation) else part for part in answer.parts)


def _value_of(equation: Equation) -> Answer:
    named = equation.label is not None and len(equation.sides) > 2
    return Equation(equation.sides[1:], None) if named else equation.sides[-1]


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
