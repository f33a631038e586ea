"""The kinds of answers that mathematics problems have, each with its parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .units import Unit


@dataclass(frozen=True)
class Atom:
    """One expression in LaTeX."""

    latex: str


@dataclass(frozen=True)
class Text:
    """Words. `bare`: written without ``\\text``, so letters might also be variables."""

    raw: str
    bare: bool = False


@dataclass(frozen=True)
class Quantity:
    """A value with its unit."""

    value: Answer
    unit: Unit


@dataclass(frozen=True)
class Compound:
    """A value in several units, ``3 hours 30 minutes``; no unit comes twice."""

    parts: tuple[Quantity, ...]


@dataclass(frozen=True)
class Items:
    """Several values: a list. `unordered`: said so, by set braces, an "or" or a ±.

    `braces`: a set in braces, which is one value where it stands among others.
    """

    parts: tuple[Answer, ...]
    unordered: bool = False
    braces: bool = False


@dataclass(frozen=True)
class Tup:
    """``(a, b)``: an ordered tuple, or with two parts an interval.

    `labels` are the names in ``(x, y) = (a, b)``.
    """

    opening: str
    closing: str
    parts: tuple[Answer, ...]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Region:
    """A set of reals built from others; `operation` is "union", "intersection", "minus" or "list":
    bounds with commas between them, of which apart ones are a union, others an intersection."""

    operation: str
    parts: tuple[Answer, ...]


@dataclass(frozen=True)
class Reals:
    """The whole line."""


@dataclass(frozen=True)
class Inequality:
    """What `label` may be, e.g. ``-2 <= x < 7``."""

    label: str
    region: Tup | Region


@dataclass(frozen=True)
class Chain:
    """Sides joined by relations that are neither plain equations nor bounds of one unknown."""

    sides: tuple[Answer, ...]
    relations: tuple[str, ...]


@dataclass(frozen=True)
class Equation:
    """Sides joined by ``=``; `label` is the first if that is a name (``x``, ``AB``, ``f(x)``)."""

    sides: tuple[Answer, ...]
    label: str | None


@dataclass(frozen=True)
class Matrix:
    """Rows of entries."""

    rows: tuple[tuple[Answer, ...], ...]


@dataclass(frozen=True)
class Ratio:
    """``a : b``; `text` as written, because ``4:30`` may also be a time."""

    parts: tuple[Answer, ...]
    text: str


@dataclass(frozen=True)
class Clock:
    """A time with its a.m. or p.m. mark, in seconds after midnight."""

    seconds: int


@dataclass(frozen=True)
class Based:
    """Digits in a number base, ``2112_6``."""

    digits: str
    base: int


@dataclass(frozen=True)
class Approximate:
    """A value that is said to be rounded, ``\\approx 0.33``."""

    value: Answer


@dataclass(frozen=True)
class Named:
    """A figure by its points, ``\\overline{AB}``; `sign` is "overline", "angle", "triangle", ..."""

    sign: str
    letters: str


@dataclass(frozen=True)
class Choice:
    """A choice and what it stands for, ``(C) 12``."""

    letter: str
    value: Answer


Answer = (
    Atom | Text | Quantity | Compound | Items | Tup | Region | Reals | Inequality | Chain | Equation
    | Matrix | Ratio | Clock | Based | Approximate | Named | Choice
)  # fmt: skip


def atoms(answer: Answer) -> Iterator[Atom]:
    """All single expressions inside `answer`."""
    if isinstance(answer, Atom):
        yield answer
    elif isinstance(answer, Matrix):
        for row in answer.rows:
            for entry in row:
                yield from atoms(entry)
    elif isinstance(answer, Quantity | Approximate | Choice):
        yield from atoms(answer.value)
    elif isinstance(answer, Inequality):
        yield from atoms(answer.region)
    elif isinstance(answer, (Equation, Chain)):
        yield from (a for side in answer.sides for a in atoms(side))
    elif isinstance(answer, (Items, Tup, Region, Ratio, Compound)):
        yield from (a for part in answer.parts for a in atoms(part))


def units_in(region: Answer) -> Iterator[Unit]:
    """The units of the ends of a set of numbers."""
    if isinstance(region, Quantity):
        yield region.unit
    elif isinstance(region, Tup | Region | Items):
        for part in region.parts:
            yield from units_in(part)


def latex_of(answer: Answer) -> str:
    """The expression or word that `answer` consists of, without its unit; "" for other kinds."""
    if isinstance(answer, Quantity):
        return latex_of(answer.value)
    if isinstance(answer, Atom):
        return answer.latex
    return answer.raw if isinstance(answer, Text) else ""
