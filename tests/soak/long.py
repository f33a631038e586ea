"""Two thousand updates of a small run, watched from outside.

`python -m lens_ref.train` runs in a process of its own, with an evaluation and a checkpoint after
every hundredth update; the right answers are written as fractions, so that a grading process is
needed. Meanwhile its resident memory, its open files, threads and child processes are read from the
system several times a second. The first quarter is warm-up; what was read in the second quarter is
compared with the last. The learning rate is so small that the policy, and with it the length of the
answers, stays what it is: every update is the same work. Time is CPU time of the process and its
grading process, as the median over stretches of updates, because the clock on the wall also
measures what else the machine does; it is given beside it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.rlvr.test_processes import TRAIN, started
from tests.soak import Figure

UPDATES = 2000
SETTINGS = [
    "rollout.questions=4",
    "rollout.responses=4",
    "rollout.max_new_tokens=24",
    "optimizer.lr=1e-9",
    "eval.every=100",
    "eval.n=2",
    "checkpoint.every=100",
    "verifier.workers=1",
]
PAUSE = 0.2  # seconds between two readings
GROWTH, SLOWER = 5, 10  # per cent that are allowed


@dataclass(frozen=True)
class Reading:
    """The process at one moment."""

    step: int
    wall: float  # seconds
    cpu: float  # seconds, grading workers included
    memory: int  # bytes
    files: int
    threads: int
    children: int


class Rows:
    """Counts the lines of a growing file, reading each once."""

    def __init__(self, path: Path) -> None:
        self.path, self.at, self.lines = path, 0, 0

    def count(self) -> int:
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self.at)
                new = file.read()
            self.at += len(new)
            self.lines += new.count(b"\n")
        return self.lines


def read(process: psutil.Process, step: int) -> Reading:
    children = process.children(recursive=True)
    used = [one.cpu_times() for one in (process, *children)]
    return Reading(
        step,
        time.monotonic(),
        sum(times.user + times.system for times in used),
        process.memory_info().rss,
        process.num_fds(),
        process.num_threads(),
        len(children),
    )


def watch(run: subprocess.Popen[str], metrics: Path, updates: int) -> list[Reading]:
    """Readings until its last update."""
    process, rows, found = psutil.Process(run.pid), Rows(metrics), list[Reading]()
    while run.poll() is None and (step := rows.count() - 1) < updates:
        if step > 0:
            try:
                found.append(read(process, step))
            except psutil.NoSuchProcess:
                continue  # a git call of the manifest, over by now
        time.sleep(PAUSE)
    return found


def rates(readings: list[Reading], seconds: str) -> list[float]:
    """Seconds an update, over stretches of about a fortieth of all updates."""
    size = readings[-1].step // 40
    found, first = [], readings[0]
    for reading in readings:
        if reading.step >= first.step + size:
            took = getattr(reading, seconds) - getattr(first, seconds)
            found.append(took / (reading.step - first.step))
            first = reading
    return found


def write_questions(path: Path, numbers: range) -> str:
    """Small sums, in the style that the bundled policy was taught; returns the path."""
    rows = [
        {"problem": f"{n} (a) +5 (mod 36)", "answer": f"\\frac{{{2 * (n + 5)}}}{{2}}"}
        for n in numbers
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def change(before: float, after: float) -> float:
    """In per cent."""
    return 100 * (after / before - 1)


def measure(quick: bool) -> list[Figure]:
    """The figures of this part."""
    updates = 200 if quick else UPDATES
    with tempfile.TemporaryDirectory() as name:
        where = ["--out", name, "--name", "run", "--method", "lens", "--steps", str(updates)]
        where += ["--data", write_questions(Path(name) / "train.jsonl", range(28))]
        where += ["--test", write_questions(Path(name) / "test.jsonl", range(28, 31))]
        with started([*TRAIN, *where, "--set", *SETTINGS]) as run:
            readings = watch(run, Path(name) / "run/lens-seed0/metrics.csv", updates)
            _, err = run.communicate(timeout=120)
            assert (run.returncode, err) == (0, ""), err
    quarter = updates // 4
    early = [r for r in readings if quarter <= r.step < 2 * quarter]
    late = [r for r in readings if r.step >= 3 * quarter]
    figures = []
    memory = [statistics.median(r.memory for r in part) for part in (early, late)]
    grown = change(*memory)
    figures.append(
        Figure(
            f"memory over {updates} updates, after a quarter of warm-up",
            f"{memory[0] / 1e6:.0f} MB, then {memory[1] / 1e6:.0f} MB ({grown:+.1f} %)",
            f"less than {GROWTH} % more",
            grown < GROWTH,
        )
    )
    for what, field in (
        ("open files", "files"),
        ("threads", "threads"),
        ("child processes", "children"),
    ):
        # the median: a reading may fall on a file that is just being written
        usual = [statistics.median(getattr(r, field) for r in part) for part in (early, late)]
        most = [max(getattr(r, field) for r in part) for part in (early, late)]
        found = f"{usual[0]:.0f}, then {usual[1]:.0f} (at most {most[0]}, then {most[1]})"
        figures.append(Figure(what, found, "the same number", usual[0] == usual[1]))
    for what, field, bound in (
        ("CPU time", "cpu", f"within {SLOWER} %"),
        ("wall time", "wall", ""),
    ):
        took = [statistics.median(rates(part, field)) for part in (early, late)]
        changed = change(*took)
        found = f"{1000 * took[0]:.1f} ms, then {1000 * took[1]:.1f} ms ({changed:+.1f} %)"
        bound = "" if quick else bound  # too short a run to tell
        met = not bound or abs(changed) <= SLOWER
        figures.append(Figure(f"{what} an update", found, bound, met))
    return figures
