"""Slow checks of reliability: `make soak`, or `python -m tests.soak PART …`.

A part is a module here with a function `measure(quick: bool) -> list[Figure]`. The figures go to
`results/reliability/<part>.json`, from which `docs/reliability.md` is built.
"""

from __future__ import annotations

from dataclasses import dataclass

PARTS = ("crash", "disks", "answers", "throughput", "numbers", "data", "pages", "long", "same")
"""In the order in which they run and stand in the page."""


@dataclass(frozen=True)
class Figure:
    """One line of a part's result."""

    what: str  # "kill -9 at random moments, then resumed"
    found: str  # "20 of 20 end bit-identical"
    bound: str = ""  # what was asked for: "all"; empty where the figure is only told
    met: bool = True
