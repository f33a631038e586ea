"""One verdict for one answer, and whether a gold can be graded against. Runs in the workers."""

from __future__ import annotations

from functools import lru_cache

from . import algebra
from .equality import same
from .kinds import Answer, Clock, Items, Text, atoms
from .reading import read

MAX_DEPTH = 40  # the golds of MATH stay below 10


@lru_cache(maxsize=4096)
def _read_gold(gold: str) -> Answer | None:
    """Read `gold`; None if nothing can be read or one of its expressions does not parse."""
    answer = None if _too_deep(gold) else read(gold)
    return answer if answer is not None and _parses(answer) else None


def _too_deep(text: str) -> bool:
    """Whether brackets open more than `MAX_DEPTH` levels deep: the parsers' time explodes there."""
    depth = 0
    for character in text:
        if character in "([{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif character in ")]}":
            depth = max(0, depth - 1)
    return False


def _parses(answer: Answer) -> bool:
    return all(algebra.to_sympy(atom.latex) is not None for atom in atoms(answer))


def gold_parses(gold: str) -> bool:
    """Whether answers can be graded against `gold`: it parses and equals itself by algebra."""
    answer = _read_gold(gold)
    return answer is not None and same(answer, answer, shortcuts=False)


def grade_answer(gold: str, answer: str, shortcuts: bool = True) -> tuple[str, str]:
    """Grade the content of a box. Returns (reason, route).

    `reason` is "correct", "wrong", "unparsable" (nothing readable, or nested too deep) or "error"
    (the gold does not parse). `route` says what decided: "text" for words and times, else "math".
    """
    expected = _read_gold(gold)
    if expected is None:
        return "error", "gold"
    route = "text" if isinstance(expected, Text | Clock) or not any(atoms(expected)) else "math"
    given = None if _too_deep(answer) else read(answer)
    if given is None:
        return "unparsable", route
    if same(expected, given, shortcuts):
        return "correct", route
    if isinstance(expected, Items):  # only the gold tells that 81,256 is meant as two numbers
        listed = read(answer, thousands=False)
        if listed is not None and same(expected, listed, shortcuts):
            return "correct", route
    return ("wrong" if _parses(given) else "unparsable"), route
