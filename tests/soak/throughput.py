"""Ordinary answers graded in a second, by 1, 2 and 4 grading processes. The first time, an answer
that is no plain number goes through a process, most of them through algebra; the second time all
are in the cache, as most answers of a group of sixteen are in a run. "A run" is the mixture of the
two: every answer comes four times in one call. The answers are the golds of GSM8K and MATH, each
paired with an equal form and with the gold of another question, where LENS_REF_DATA names a folder
with them, else generated answers of the same kinds. Rates of other machines differ; the ratio to
one process is of the same run.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import time
from pathlib import Path

from lens_ref.verifier import Verifier
from tests.soak import Figure

ASKED = 300  # answers a second on two processes
COPIES = 4  # of each answer in "a run": less than the 16 of a group, which often agree
FILES = ("gsm8k_train.jsonl.gz", "math_train.jsonl.gz")


def measured_golds(folder: Path, count: int, rng: random.Random) -> list[str]:
    """Golds of both data sets in equal numbers."""
    golds: list[str] = []
    for name in FILES:
        with gzip.open(folder / name, "rt", encoding="utf-8") as lines:
            golds += rng.sample([json.loads(line)["answer"] for line in lines], count // 2)
    return golds


def generated_golds(count: int, rng: random.Random) -> list[str]:
    """Golds of the kinds that GSM8K and MATH have, in about their numbers."""

    def one() -> str:
        a, b, c = rng.randint(2, 999), rng.randint(2, 99), rng.randint(2, 9)
        forms = [str(a), str(a), str(a), str(a), str(a), str(a), str(-b), f"{a}.{b}", f"{a},{b}00"]
        forms += [
            rf"\frac{{{a}}}{{{b}}}",
            rf"\frac{{{a}}}{{{b}}}",
            rf"{b}\sqrt{{{c}}}",
            f"({a},{b})",
        ]
        forms += [rf"{b}\pi", f"{c}x^2+{b}x-{a}", rf"[{c},{a}]", rf"\text{{({'ABCDE'[c % 5]})}}"]
        forms += [rf"{a}^\circ", rf"\{{{c}, {b}\}}", rf"\frac{{{b}+\sqrt{{{c}}}}}{{{a}}}", f"{a}_8"]
        return rng.choice(forms)

    return [one() for _ in range(count)]


def equal_form(gold: str) -> str:
    """Another way to write the same: as models do, with other spacing and other fractions."""
    form = gold.replace(r"\frac", r"\dfrac").replace(",", ", ")
    form = re.sub(r"\((.*)\)", r"\\left(\1\\right)", form)
    return form if form != gold else f"{gold}" + (".0" if gold.isdigit() else r"\,")


def _rate(verifier: Verifier, golds: list[str], texts: list[str]) -> float:
    began = time.monotonic()
    verifier.grade(golds, texts)
    return len(texts) / (time.monotonic() - began)


def measure(quick: bool) -> list[Figure]:
    """Grade 3,000 different answers (200 if quick) with 1, 2 and 4 processes."""
    count, rng = (100, random.Random(0)) if quick else (1500, random.Random(0))
    folder = os.environ.get("LENS_REF_DATA")
    golds = measured_golds(Path(folder), count, rng) if folder else generated_golds(count, rng)
    which = "GSM8K and MATH" if folder else "generated, of their kinds"
    others = golds[1:] + golds[:1]
    pairs = [(g, rf"\boxed{{{equal_form(g)}}}") for g in golds]
    pairs += [(g, rf"\boxed{{{o}}}") for g, o in zip(golds, others, strict=True)]
    pairs = list(dict.fromkeys(pairs))
    rng.shuffle(pairs)
    mixed = pairs * COPIES
    rng.shuffle(mixed)
    figures, first = [], {}
    for workers in (1, 2, 4):
        with Verifier(workers=workers, timeout=60.0) as verifier:
            verifier.grade(["x"] * workers, [rf"\boxed{{x+{k}}}" for k in range(workers)])  # start
            first[workers] = _rate(verifier, *_split(pairs))
            again = _rate(verifier, *_split(pairs))
        with Verifier(workers=workers, timeout=60.0) as verifier:
            verifier.grade(["x"] * workers, [rf"\boxed{{x+{k}}}" for k in range(workers)])
            run = _rate(verifier, *_split(mixed))
        ratio = f" ({first[workers] / first[1]:.2f} times one's)" if workers > 1 else ""
        figures.append(
            Figure(
                f"answers a second, {workers} process{'es' * (workers > 1)}, {len(pairs)} answers "
                f"({which})",
                f"{run:.0f} in a run; {first[workers]:.0f} all new{ratio}; {again:.0f} all known",
                f"at least {ASKED} in a run" if workers == 2 else "",
                workers != 2 or run >= ASKED,
            )
        )
    return figures


def _split(pairs: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [gold for gold, _ in pairs], [text for _, text in pairs]
