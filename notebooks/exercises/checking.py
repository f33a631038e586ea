"""How an answer is judged: what all checks share.

A check takes an answer and raises `Hint` where it is wrong. It knows the truth from the library,
from autograd or from enumeration, and its hints say where an answer goes astray, not what is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

RTOL, ATOL = 1e-5, 1e-7  # a float32 answer passes; a forgotten factor does not


class Hint(Exception):  # noqa: N818
    """What is wrong with an answer, in one line that does not give the right one away."""


class Unanswered(Exception):  # noqa: N818
    """The place for the answer still holds `...` or None."""


class NotRightError(AssertionError):
    """A strict session met an answer that is not right."""


@dataclass(frozen=True)
class Verdict:
    """What a check says of an answer."""

    number: int
    state: Literal["right", "wrong", "unanswered"]
    line: str


@dataclass(frozen=True)
class Exercise:
    """A numbered exercise and its check."""

    number: int
    title: str
    check: Callable[[Any], None]


@dataclass
class _Session:
    strict: bool = False
    verdicts: dict[int, Verdict] = field(default_factory=dict)


EXERCISES: dict[int, Exercise] = {}
_session = _Session()


def exercise(number: int, title: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Turn a check into the function of the same name that prints its verdict."""

    def register(check: Callable[[Any], None]) -> Callable[[Any], None]:
        EXERCISES[number] = Exercise(number, title, check)

        @wraps(check)
        def say(answer: Any) -> None:
            verdict = judge(number, answer)
            _session.verdicts[number] = verdict
            if _session.strict and verdict.state != "right":
                raise NotRightError(verdict.line)
            print(verdict.line)

        return say

    return register


def judge(number: int, answer: Any) -> Verdict:
    """The verdict on an answer, without printing or raising."""
    try:
        if answer is None or answer is ...:
            raise Unanswered
        EXERCISES[number].check(answer)
    except Unanswered:
        return Verdict(number, "unanswered", f"Exercise {number}: not answered yet.")
    except Hint as hint:
        return Verdict(number, "wrong", f"Exercise {number}: not yet. {hint}")
    return Verdict(number, "right", f"Exercise {number}: right.")


def begin(strict: bool = False) -> None:
    """Forget earlier verdicts. Strict: an answer that is not right raises `NotRightError`."""
    _session.strict = strict
    _session.verdicts.clear()


def summary(*numbers: int) -> None:
    """Print which of the exercises are right; raise in a strict session where one is not."""
    said = _session.verdicts
    right = [n for n in numbers if n in said and said[n].state == "right"]
    for n in numbers:
        state = said[n].state if n in said else "unanswered"
        print(f"{n:3} {EXERCISES[n].title:46} {state}")
    print(f"{len(right)} of {len(numbers)} right")
    if _session.strict and len(right) < len(numbers):
        raise NotRightError(f"{len(numbers) - len(right)} exercises are not right")


def call(function: Any, *inputs: Any) -> Any:
    """What the student's function makes of copies of the inputs."""
    if not callable(function):
        found = type(function).__name__
        raise Hint(f"Pass the function itself, without calling it; this is a {found}.")
    copies = [x.clone() if isinstance(x, Tensor) else x for x in inputs]
    try:
        result = function(*copies)
    except (Exception, SystemExit) as error:  # whatever a student's code may raise is told
        raise Hint(f"Your function raises {type(error).__name__}: {_one_line(error)}") from error
    if result is None or result is ...:
        raise Unanswered
    return result


def _one_line(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return words if len(words) <= 200 else words[:200] + " …"


def pair(result: Any, names: str) -> tuple[Any, Any]:
    """An answer of two parts."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise Hint(f"Two things are asked for, as a tuple: ({names}).")
    if any(part is None or part is ... for part in result):
        raise Unanswered
    return result[0], result[1]


def _tensor(result: Any) -> Tensor:
    array = np.asarray(result)
    if array.dtype.kind in "US":
        raise TypeError("text")
    return torch.from_numpy(np.array(array, complex if array.dtype.kind == "c" else float))


def numbers(result: Any, shape: tuple[int, ...], what: str = "Your function's result") -> Tensor:
    """The answer as float64 of this shape, without NaN or infinity."""
    if isinstance(result, (str, bytes, bool, set, dict)):
        raise Hint(f"{what} is a {type(result).__name__}; numbers are asked for.")
    try:
        found = result if isinstance(result, Tensor) else _tensor(result)
        if found.is_complex():
            raise Hint(f"{what} holds complex numbers.")
        found = found.detach().to("cpu", torch.float64)
    except (TypeError, ValueError, RuntimeError):
        kind = type(result).__name__
        raise Hint(f"{what} is a {kind} that holds more than numbers.") from None
    if tuple(found.shape) != shape:
        raise Hint(f"{what} has shape {tuple(found.shape)}; {shape} is asked for.")
    bad = (~found.isfinite()).nonzero()
    if len(bad):
        where = tuple(bad[0].tolist())
        at = f" at {list(where)}" if where else ""
        raise Hint(f"{what} holds {found[where].item()}{at}: divided by 0, or log of 0?")
    return found


def agree(
    found: Tensor,
    truth: Tensor,
    at: Callable[[tuple[int, ...]], str] = lambda where: f"entry {list(where)}",
) -> None:
    """Raise a hint unless the two are equal up to rounding.

    Args:
        at: names the inputs of an entry, for the hint.
    """
    truth = truth.detach().to(torch.float64)
    wrong = ~torch.isclose(found, truth, rtol=RTOL, atol=ATOL)
    if not bool(wrong.any()):
        return
    if bool((found == 0).all()):
        raise Hint("Your result is 0 everywhere; the right one is not.")
    if torch.allclose(found, -truth, rtol=RTOL, atol=ATOL):
        raise Hint("The sizes are right, the sign is not.")
    shift = (found - truth).flatten()
    if len(shift) > 1 and torch.allclose(shift, shift[0], rtol=RTOL, atol=ATOL):
        raise Hint(
            "Your result is off by one and the same number everywhere: a constant is missing."
        )
    where = tuple(wrong.nonzero()[0].tolist())
    nonzero = truth.abs() > ATOL
    ratio = (found / truth)[nonzero]
    same = len(ratio) > 1 and torch.allclose(ratio, ratio[0], rtol=RTOL, atol=0.0)
    if same and bool((found[~nonzero].abs() <= ATOL).all()):
        raise Hint("Your result is off by one and the same factor everywhere.")
    direction = "large" if bool(found[where] > truth[where]) else "small"
    right = int((~wrong).sum())
    raise Hint(
        f"{right} of {truth.numel()} entries are right; the first wrong one is too {direction}, "
        f"for {at(where)}."
    )


def named(**inputs: Tensor) -> Callable[[tuple[int, ...]], str]:
    """For `agree`: the inputs at an index, by name; inputs with fewer axes lack the last ones."""

    def at(where: tuple[int, ...]) -> str:
        parts = [f"{name} = {x[where[: x.ndim]].item():.4g}" for name, x in inputs.items()]
        return ", ".join(parts)

    return at
