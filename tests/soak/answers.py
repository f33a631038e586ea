"""Model output is untrusted text. Thousands of generated hostile answers of many kinds (towers of
powers, a megabyte of braces, null bytes, code, unclosed boxes, …; `tests/soak/hostile.py` holds
the generators) are graded one by one, and right after each the same grading process grades two
honest answers, a right and a wrong one. Then they come mixed into batches, 16 of 128, and at last
as golds. What is promised: no answer takes longer than `verifier.timeout` (only the process that
grades it is killed), the trainer never fails, no grade of another answer changes, nothing in an
answer is executed, no file is written, and a process never holds more than `verifier.memory_mb`.
What is not: an answer that runs into the deadline costs that time, and a new process after it
about a second; a model that writes nothing but towers of powers makes grading slow. Limits of
memory and of files are the kernel's, so they hold on Linux; macOS has no limit of memory.
"""

from __future__ import annotations

import os
import random
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lens_ref.verifier import MAX_ANSWER_CHARS, Verifier
from tests.soak import Figure
from tests.soak.hostile import GOLDS, hostile, new_files
from tests.soak.patterns import growth_of_extraction, slowest_reading

TIMEOUT = 0.5  # seconds for a hostile answer
PATIENT = 60.0  # for an honest one: a busy machine must not look like a wrong grade
MARGIN = 1.5  # seconds that ending a process may take
MEMORY_MB = 1024


@dataclass
class Found:
    """What the threads saw; each appends under the lock."""

    reasons: Counter[str] = field(default_factory=Counter)
    timeouts: Counter[str] = field(default_factory=Counter)
    rewarded: list[str] = field(default_factory=list)
    misgraded: list[str] = field(default_factory=list)
    longest: float = 0.0
    honest: int = 0
    failures: list[str] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


def honest_pair(rng: random.Random) -> tuple[list[str], list[str]]:
    """(golds, responses) of a right and a wrong answer that no cache knows; some need algebra."""
    a, b, c = rng.randint(2, 10**6), rng.randint(2, 10**6), rng.randint(2, 99)
    if rng.random() < 0.9:
        golds = [rf"\frac{{{a}}}{{{b}}}"] * 2
        return golds, [rf"\boxed{{{a * c}/{b * c}}}", rf"\boxed{{{a * c + 1}/{b * c}}}"]
    golds = [f"{a}x+{b}"] * 2
    return golds, [rf"\boxed{{{b}+{a - 1}x+x}}", rf"\boxed{{{b}+{a}x+x}}"]


def _one_by_one(cases: list[tuple[str, str]], seed: int, found: Found) -> None:
    """Grade each with a process of this thread's own, honest answers by the same process after."""
    rng = random.Random(seed)
    with Verifier(workers=1, timeout=TIMEOUT, memory_mb=MEMORY_MB, recycle=1000) as verifier:
        for kind, response in cases:
            verifier.timeout = TIMEOUT
            starts, began = verifier.starts, time.monotonic()
            try:
                (verdict,) = verifier.grade([rng.choice(GOLDS)], [response])
                took = time.monotonic() - began if verifier.starts == starts else 0.0
                verifier.timeout = PATIENT
                golds, texts = honest_pair(rng)
                rewards = [v.reward for v in verifier.grade(golds, texts)]
            except Exception as problem:  # that none comes is what is measured
                with found.lock:
                    found.failures.append(f"{kind}: {problem!r}")
                continue
            with found.lock:
                found.reasons[verdict.reason] += 1
                found.timeouts[kind] += verdict.reason == "timeout"
                found.longest = max(found.longest, took)
                found.honest += 2
                found.pids.update(_children())
                if verdict.reward:
                    found.rewarded.append(f"{kind}: {response[:80]!r}")
                if rewards != [1.0, 0.0]:
                    found.misgraded.append(f"after {kind}: {response[:80]!r}: {rewards}")


def _batches(cases: list[tuple[str, str]], seed: int, found: Found) -> int:
    """Batches of 112 honest and 16 hostile answers in random order; returns how many batches."""
    rng = random.Random(seed)
    with Verifier(workers=2, timeout=5.0, memory_mb=MEMORY_MB) as verifier:
        for first in range(0, len(cases), 16):
            rows = [(rng.choice(GOLDS), text, 0.0) for _, text in cases[first : first + 16]]
            for _ in range(56):
                golds, texts = honest_pair(rng)
                rows += zip(golds, texts, (1.0, 0.0), strict=True)
            rng.shuffle(rows)
            verdicts = verifier.grade([r[0] for r in rows], [r[1] for r in rows])
            found.pids.update(_children())
            for (_, text, reward), verdict in zip(rows, verdicts, strict=True):
                if verdict.reward != reward:
                    found.misgraded.append(f"batch: {text[:80]!r}: {verdict.reason}")
    return -(-len(cases) // 16)


def _golds(cases: list[tuple[str, str]], found: Found) -> int:
    """Check hostile text as golds, each followed by a gold that parses."""
    honest = 0
    with Verifier(workers=2, timeout=TIMEOUT, memory_mb=MEMORY_MB) as verifier:
        for k, (_, text) in enumerate(cases):
            hostile_gold = text.removeprefix(r"so it is $\boxed{").removesuffix("}$.")
            verifier.timeout = TIMEOUT
            verifier.check_golds([hostile_gold])
            verifier.timeout = PATIENT
            honest += verifier.check_golds([rf"\frac{{x+{k}}}{{2}}"]) == [True]
        found.pids.update(_children())
    return honest


def _children() -> set[int]:
    """Processes started by any thread of this one."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(pid) for listed in lists for pid in _text(listed).split()}


class _Memory(threading.Thread):
    """Looks at the grading processes many times a second; `peak` is the most one held, in MiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.02):
            for pid in _children():
                held = re.search(r"VmHWM:\s+(\d+) kB", _text(Path(f"/proc/{pid}/status")))
                if held and _is_grader(pid):
                    self.peak = max(self.peak, int(held[1]) / 1024)

    def __enter__(self) -> _Memory:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the thread ended meanwhile
        return ""


@contextmanager
def _empty_folder() -> Iterator[Path]:
    """Work in a fresh folder, where anything that an answer writes would show."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


def measure(quick: bool) -> list[Figure]:
    """Grade 10,000 hostile answers (150 if quick), then batches and golds."""
    count, batched, as_golds = (150, 32, 30) if quick else (10_000, 320, 500)
    cases = list(hostile(count, seed=0))
    found, before = Found(), _children()
    with _empty_folder() as folder, _Memory() as memory:
        began = time.monotonic()
        threads = [
            threading.Thread(target=_one_by_one, args=(cases[k::2], k, found)) for k in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - began
        misgraded_alone = len(found.misgraded)
        others = list(hostile(max(batched, as_golds), seed=1))
        batches = _batches(others[:batched], 2, found)
        honest_golds = _golds(others[:as_golds], found)
        written = new_files(folder)
    left = {pid for pid in found.pids | _children() if _is_grader(pid)} - before
    kinds = len({kind for kind, _ in cases})
    reading, which, texts = slowest_reading(every=50 if quick else 3)
    growth, unit = growth_of_extraction()
    graded = sum(found.reasons.values())
    reasons = ", ".join(f"{n} {reason}" for reason, n in found.reasons.most_common())
    slow = ", ".join(f"{kind} ({n})" for kind, n in found.timeouts.most_common(4) if n)
    for line in (found.rewarded + found.misgraded + found.failures)[:20]:
        print("   ", line)
    return [
        Figure(
            f"different hostile answers of {kinds} kinds graded, none rewarded, none failing",
            f"{graded} of {count} ({reasons}) in {seconds:.0f} s",
            "all",
            graded == count and not found.rewarded and not found.failures,
        ),
        Figure(
            f"longest that one held its process, deadline {TIMEOUT:g} s",
            f"{found.longest:.2f} s; {found.reasons['timeout']} met the deadline: {slow or 'none'}",
            f"at most {TIMEOUT + MARGIN:g} s",
            found.longest <= TIMEOUT + MARGIN,
        ),
        Figure(
            "honest answers, right and wrong, by the same process right after each",
            f"{found.honest - misgraded_alone} of {2 * count} graded right",
            "all",
            misgraded_alone == 0 and found.honest == 2 * count,
        ),
        Figure(
            f"{batches} batches of 128 answers, 16 of them hostile",
            f"{len(found.misgraded) - misgraded_alone} of {batches * 128} grades wrong",
            "0",
            len(found.misgraded) == misgraded_alone,
        ),
        Figure(
            "hostile golds checked, an honest gold after each",
            f"{honest_golds} of {as_golds} honest ones parse",
            "all",
            honest_golds == as_golds,
        ),
        Figure(
            "files written where the graders ran (answers with code name some)",
            f"{len(written)}",
            "0",
            not written,
        ),
        Figure(
            "largest memory of a grading process",
            f"{memory.peak:.0f} MiB",
            f"at most {MEMORY_MB} MiB",
            0 < memory.peak <= MEMORY_MB,
        ),
        Figure(f"grading processes left of {len(found.pids)} seen", f"{len(left)}", "0", not left),
        Figure(
            f"reading {texts} answers of {MAX_ANSWER_CHARS} characters, each pumping some pattern",
            f"at most {reading:.2f} s of CPU ({which})",
            "at most 1 s",
            reading <= 1,
        ),
        Figure(
            "finding the box in a response 4 times as long",
            f"at most {growth:.1f} times as long ({unit})",
            "less than 8 times (quadratic would be 16)",
            growth < 8,
        ),
    ]


def _is_grader(pid: int) -> bool:
    return b"verifier/worker.py" in _bytes(Path(f"/proc/{pid}/cmdline"))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # no such process any more
        return b""
