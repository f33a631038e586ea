"""Kills, interrupts, damaged checkpoints and second commands, each on a real training process.

A small run (24 updates, a checkpoint after every second one, batches of four updates) is first
trained without interruption. Then it is started again and again with the same seed and killed with
SIGKILL at moments drawn from a seeded generator; five of the kills, told by the half-written folder
that they leave, hit a checkpoint while it was being written. Every killed run is resumed with
`--resume` and must end with the same weights, optimizer moments, batch and logs, bit for bit; the
columns that hold times are left out. SIGTERM and Ctrl-C let the update in hand end at most, save
and leave. In the newest checkpoint of an interrupted run every file is cut, changed in one bit and
removed in turn, and files are added: the hashes tell, the checkpoint before is used and a line says
so. Its settings, manifest and logs are emptied, cut, garbled, robbed of a line: one line names the
file and what to do, unless nothing is lost. What is promised holds for kills of the process; after
a power cut it also needs a disk that keeps what it has confirmed, and was not tried. The lock that
refuses a second command on a folder is the system's own and dies with its process; where a file
system has no locks (some network mounts) a warning says so, and nobody is refused.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lens_ref.rlvr import checkpoint
from lens_ref.rlvr.run_folder import RunFolder
from tests.rlvr.runs import assert_same_run
from tests.rlvr.tampering import FILES, WAYS, tamper
from tests.rlvr.test_processes import PATIENCE, TRAIN, finish, started
from tests.soak import Figure

STEPS = 24
SETTINGS = [
    f"steps={STEPS}",
    "data.train_questions=40",
    "data.test_questions=4",
    "rollout.questions=8",
    "rollout.responses=4",
    "rollout.max_new_tokens=12",
    "optimizer.lr=1e-3",
    "optimizer.warmup_updates=2",
    "loss.micro_batch_tokens=256",
    "eval.every=6",
    "eval.n=2",
    "checkpoint.every=2",
    "verifier.workers=1",
]
AT_ONCE = 2  # processes
LONGEST_DELAY = 0.15  # seconds after the row that a kill waits for


def command(out: Path, *settings: str) -> list[str]:
    """Train one run into `out/run/lens-seed0`."""
    where = ["--out", str(out), "--name", "run", "--method", "lens"]
    return [*TRAIN, *where, "--set", *SETTINGS, *settings]


def rows(run: Path) -> int:
    """Updates that metrics.csv tells of."""
    path = run / "metrics.csv"
    return max(path.read_text("utf-8").count("\n") - 1, 0) if path.exists() else 0


def wait(ready: Callable[[], object], process: subprocess.Popen[str]) -> bool:
    """Until it is so; False where the process ends first."""
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline, "nothing happens"
        time.sleep(0.001)
    return True


@dataclass(frozen=True)
class Kill:
    """When to kill, and what came of it."""

    row: int  # of metrics.csv after which
    delay: float  # seconds after that, or after a checkpoint is begun
    saving: bool  # wait for a checkpoint


def kill(out: Path, moment: Kill) -> bool:
    """Start a run and kill it; whether a checkpoint was being written."""
    run = out / "run/lens-seed0"
    with started(command(out)) as process:
        wait(lambda: (run / "config.yaml").exists() and rows(run) >= moment.row, process)
        if moment.saving:
            wait(lambda: list(run.glob("checkpoints/.step-*.tmp")), process)
        time.sleep(moment.delay)
        process.kill()
        process.wait(PATIENCE)
    return bool(list(run.glob("checkpoints/.step-*.tmp")))


def fault(out: Path, unbroken: Path) -> str | None:
    """Resume the run; what is wrong at its end, or None."""
    run = out / "run/lens-seed0"
    status, _, err = finish([*TRAIN, "--resume", str(run)])
    if status == 2 and f"every run in {run} is finished" in err:
        status = 0  # killed in its very last moment
    if status:
        return f"exit status {status}: {err}"
    try:
        assert_same_run(run, unbroken)
        for line in (run / "samples.jsonl").read_text("utf-8").splitlines():
            json.loads(line)
        logged = [line.split(",")[0] for line in (run / "metrics.csv").read_text().splitlines()]
        assert logged[1:] == [str(step) for step in range(1, STEPS + 1)]
        assert (run.parent / "report.html").exists()
        assert not list(run.glob("checkpoints/.step-*"))
    except AssertionError as error:
        return f"another end: {error}"
    return None


def in_parallel(work: Callable[[int], str | None], number: int) -> list[str]:
    """The faults that a number of independent pieces of work found."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [found for found in pool.map(work, range(number)) if found]


def outcome(what: str, faults: list[str], number: int, passed: str) -> Figure:
    """A figure that is met where nothing is wrong."""
    found = f"{number - len(faults)} of {number} {passed}"
    return Figure(what, "; ".join([found, *faults[:2]]), f"all {number}", not faults)


def killed(folder: Path, unbroken: Path, number: int, saving: int) -> Iterator[Figure]:
    """So many kills, some of them while a checkpoint is being written."""
    draw = random.Random(8)
    moments = [
        Kill(draw.randrange(STEPS), draw.uniform(0, LONGEST_DELAY), False)
        for _ in range(number - saving)
    ]
    moments += [Kill(draw.randrange(STEPS - 2), draw.uniform(0, 0.01), True) for _ in range(saving)]
    hit = [False] * number

    def one(index: int) -> str | None:
        moment = moments[index]
        for attempt in range(6):
            out = folder / f"kill-{index}-{attempt}"
            hit[index] = kill(out, moment)
            if hit[index] or not moment.saving:
                return fault(out, unbroken)
        return "no kill hit a checkpoint in six attempts"

    faults = in_parallel(one, number)
    yield outcome("SIGKILL at a random moment, then --resume", faults, number, "end bit-identical")
    asked = f"at least {saving}"
    yield Figure(
        "of these, while a checkpoint was written", str(sum(hit)), asked, sum(hit) >= saving
    )


def signalled(folder: Path, unbroken: Path, number: int) -> Iterator[Figure]:
    """SIGTERM and Ctrl-C, so many of each."""
    draw = random.Random(9)
    for name, sent in (("SIGTERM", signal.SIGTERM), ("Ctrl-C (SIGINT)", signal.SIGINT)):
        after = [(draw.randrange(STEPS - 4), draw.uniform(0, 0.02)) for _ in range(number)]

        def one(index: int, sent: int = sent, after: list[tuple[int, float]] = after) -> str | None:
            out = folder / f"signal-{sent}-{index}"
            run = out / "run/lens-seed0"
            with started(command(out)) as process:
                wait(lambda: rows(run) >= max(after[index][0], 1), process)
                time.sleep(after[index][1])
                process.send_signal(sent)
                then = rows(run)
                _, err = process.communicate(timeout=PATIENCE)
            if (process.returncode, err) != (130, ""):
                return f"exit status {process.returncode}: {err}"
            step = RunFolder(run).manifest()["step"]
            newest = checkpoint.latest(run / "checkpoints")
            if newest is None or newest.name != f"step-{step}" or rows(run) != step:
                return f"{rows(run)} updates, checkpoint {newest}"
            if step > then + 1:
                return f"{step - then} more updates"
            return fault(out, unbroken)

        what = f"{name}: exit status 130, saved within one update, resumed bit-identical"
        yield outcome(what, in_parallel(one, number), number, "so")


CHANGES = ("cut in half", "one bit changed", "removed", "a file added beside")


def damage(file: Path, how: str, bit: int) -> None:
    """Do it to a file."""
    content = bytearray(file.read_bytes())
    if how == "cut in half":
        file.write_bytes(content[: len(content) // 2])
    elif how == "one bit changed":
        content[bit // 8 % len(content)] ^= 1 << bit % 8
        file.write_bytes(content)
    elif how == "removed":
        file.unlink()
    else:
        file.with_name("added" + file.suffix).write_bytes(content)


class Lines(logging.Handler):
    """Keeps the warnings."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def damaged(folder: Path, unbroken: Path, quick: bool) -> Iterator[Figure]:
    """Every file of the newest checkpoint, in every way; and all checkpoints."""
    draw = random.Random(10)
    run = folder / "damaged/run/lens-seed0"
    with started(command(folder / "damaged")) as process:
        wait(lambda: rows(run) >= 9, process)  # a batch is in hand then
        process.terminate()
        process.wait(PATIENCE)
    *_, before, newest = checkpoint.checkpoints(run / "checkpoints")
    files = [path.relative_to(newest) for path in sorted(newest.rglob("*")) if path.is_file()]
    cases = [(name, how) for name in files for how in CHANGES]
    heard = Lines()
    checkpoint.log.addHandler(heard)
    faults = []
    for name, how in cases:
        copy = folder / "copy"
        shutil.copytree(newest.parent, copy)
        damage(copy / newest.name / name, how, draw.randrange(2**20))
        heard.lines.clear()
        found = checkpoint.latest(copy)
        said = len(heard.lines) == 1 and f"{before.name} is used instead" in heard.lines[0]
        if found is None or found.name != before.name or not said:
            faults.append(f"{name} {how}: {found}, {heard.lines}")
        shutil.rmtree(copy)
    checkpoint.log.removeHandler(heard)
    what = f"newest checkpoint, each of its {len(files)} files in turn {', '.join(CHANGES)}"
    yield outcome(what, faults, len(cases), "told, and the one before used")

    chosen = cases[:: len(cases) // 4][: 1 if quick else 4]
    pieces = [(newest, name, how) for name, how in chosen] + [
        (None, Path("state.json"), CHANGES[1])
    ]

    def one(index: int) -> str | None:
        which, name, how = pieces[index]
        out = folder / f"damaged-{index}"
        shutil.copytree(run, out / "run" / run.name)
        copies = out / "run" / run.name / "checkpoints"
        for path in checkpoint.checkpoints(copies):
            if which is None or path.name == which.name:
                damage(path / name, how, 77)
        status, _, err = finish([*TRAIN, "--resume", str(out / "run")])
        said = "no intact one is left" if which is None else f"{before.name} is used instead"
        if status or said not in err or "Traceback" in err:
            return f"{name} {how}: exit status {status}: {err}"
        try:
            assert_same_run(out / "run" / run.name, unbroken)
        except AssertionError as error:
            return f"{name} {how}: another end: {error}"
        return None

    what = "resumed from the checkpoint before a damaged one, and anew where all are damaged"
    yield outcome(what, in_parallel(one, len(pieces)), len(pieces), "end bit-identical")


def tampered(folder: Path, unbroken: Path, quick: bool) -> Iterator[Figure]:
    """The other files of an interrupted run, in every way of `tests.rlvr.tampering`."""
    run = folder / "tampered/run/lens-seed0"
    with started(command(folder / "tampered")) as process:
        wait(lambda: rows(run) >= 9, process)
        process.terminate()
        process.wait(PATIENCE)
    cases = [(name, way) for name in FILES for way in WAYS]
    cases = cases[:: len(WAYS) + 1] if quick else cases

    def one(index: int) -> str | None:
        name, way = cases[index]
        copy = folder / f"tampered-{index}" / "run" / run.name
        shutil.copytree(run, copy)
        tamper(copy / name, way)
        status, _, err = finish([*TRAIN, "--resume", str(copy)])
        named = str(copy / name) in err or f"has no {name}" in err or "is not a run folder" in err
        if status == 2 and err.startswith("error: ") and err.count("\n") == 1 and named:
            return None
        if status or (err and not (named and "was changed after update" in err)):
            return f"{name} {way}: exit status {status}: {err}"
        try:
            if not err:  # else it went on with other settings
                assert_same_run(copy, unbroken)
        except AssertionError as error:
            return f"{name} {way}: another end: {error}"
        return None

    what = f"the {len(FILES)} other files of a run in turn {', '.join(WAYS)}, then --resume"
    passed = "end bit-identical, or one line names the file (refused, or settings changed)"
    yield outcome(what, in_parallel(one, len(cases)), len(cases), passed)


def refused(folder: Path) -> Iterator[Figure]:
    """A second command on the folder of a first one that is at work."""
    evaluate = [sys.executable, "-m", "lens_ref.evaluate", "tiny", "--n", "4096", "--block", "1"]
    study = [sys.executable, "-m", "lens_ref.tiny.study", "--seeds", "1", "--method", "lens"]
    long = command(folder / "two", "steps=100000", "eval.every=0")
    resume = [*TRAIN, "--resume", str(folder / "two/run")]
    cases = {
        "train": (long, resume, folder / "two/run/lens-seed0/.lock"),
        "evaluate": (
            [*evaluate, "--out", str(folder / "evaluate")],
            [*evaluate, "--out", str(folder / "evaluate")],
            folder / "evaluate/tiny/.lock",
        ),
        "study": (
            [*study, "--out", str(folder / "study")],
            [*study, "--out", str(folder / "study")],
            folder / "study/.lock",
        ),
    }
    faults = []
    for name, (first, second, lock) in cases.items():
        with started(first) as process:
            wait(lambda lock=lock: lock.exists() and lock.read_text(), process)
            status, _, err = finish(second)
            if status != 2 or err.count("\n") != 1 or "is in use by process" not in err:
                faults.append(f"{name}: exit status {status}: {err}")
            if process.poll() is not None:
                faults.append(f"{name}: the first is over: {process.communicate()}")
    yield outcome("a second command on a folder in use", faults, len(cases), "refused in one line")


def measure(quick: bool) -> list[Figure]:
    """The figures of this part."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        status, _, err = finish(command(folder / "unbroken"))
        assert (status, err) == (0, ""), err
        unbroken = folder / "unbroken/run/lens-seed0"
        return [
            *killed(folder, unbroken, *((2, 1) if quick else (20, 5))),
            *signalled(folder, unbroken, 1 if quick else 3),
            *damaged(folder, unbroken, quick),
            *tampered(folder, unbroken, quick),
            *refused(folder),
        ]
