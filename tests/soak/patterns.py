"""Pumped text for the patterns that read answers: whether any takes more than its length allows."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from lens_ref.verifier import MAX_ANSWER_CHARS, algebra, amounts, extract_boxed, units, words
from lens_ref.verifier.reading import read
from lens_ref.verifier.spelling import merge_thousands, respell

UNITS = (
    "1", "a", "A", " ", "\t", "{", "}", "(", ")", "[", "]", "\\", r"\text{", r"\text{a} ", "1 ",
    "a ", "1,", "1,000", "1 000 ", ".", "1.", "-", r"\frac{", r"\frac{1}{2}", r"\sqrt ", r"\ ",
    r"\quad ", r"\,", "^", "_", "'", ":", "/", "a/", "a per ", "%", r"\%", "$", r"\$", r"\degree ",
    r"\begin{matrix}", r"\end{matrix}", r"\\", r"\boxed", r"\boxed{", r"\overline{", "x=", "<",
    r"\text{in base ", "} ", "} {", r"\phantom{", "no real ", "and ", r"\pm", "(1)", r"\alpha",
    "option ", "1st", "a.", r"\dots", r"\left ", r",\!", "3:", r"\text{is ", "(a,", "1_", "f(",
    r"\mathbf{a", "5 cm ", "3 dozen ", r"\cup ", r"\in ", "[1,2)", r"\{1,", "|1", "&1", r"\dot1",
    "x**", "+/-", "1e3", "one hundred ", "]0,1[", r"{1 \choose ", "-a", "an ", r"1\text{h}",
    "1' ", r"\lfloor ", "red ", r"\text{a}/",
)  # fmt: skip
STARTS = ("", "1", "a", "A(", r"\text{", r"\begin{matrix}", r"\$", "0.")
ENDS = ("", "!", "}", r"\ldots")

READERS: tuple[Callable[[str], object], ...] = (
    respell, merge_thousands, read, algebra._exact, algebra.simple_fraction,
    algebra._SIDE_BY_SIDE.search, words.plain_words, words.clock_time, words.choice_and_value,
    words.number_word, words.names_another_value, units.read_unit, amounts._compound,
)  # fmt: skip


def slowest_reading(every: int) -> tuple[float, str, int]:
    """Longest CPU time of a reader on a text of the greatest length: (seconds, which, texts read).

    `every`: take only each so-manieth of the texts.
    """
    texts = [
        (start + unit * MAX_ANSWER_CHARS)[: MAX_ANSWER_CHARS - len(end)] + end
        for start, unit, end in itertools.product(STARTS, UNITS, ENDS)
    ][::every]
    worst = (0.0, "")
    for text in texts:
        for reader in READERS:
            began = time.process_time()
            try:
                reader(text)
            except RecursionError:  # the grading process says "unparsable" then
                continue
            name = getattr(reader, "__name__", "search")
            worst = max(worst, (time.process_time() - began, f"{name} of {text[:20]!r}…"))
    return *worst, len(texts)


def growth_of_extraction() -> tuple[float, str]:
    """How many times longer a text of 4 times the length takes to be searched for its box."""
    worst = (0.0, "")
    for unit in UNITS:
        times = []
        for characters in (100_000, 400_000):
            text = r"\boxed{" + unit * (characters // len(unit))
            began = time.process_time()
            extract_boxed(text)
            times.append(time.process_time() - began)
        worst = max(worst, (times[1] / max(times[0], 0.005), repr(unit)))
    return worst
