"""A full disk and a read-only disk at every place where the commands write.

Every command is run once on a small disk of its own while each of its writes is listed: files that
are opened, made, renamed, and tensors that are saved. Then it is run again for each of these
places, with a disk that is full, or read-only, from just before that write on; the error is the
system's own (a tmpfs in a user namespace of Linux). The command must leave with exit status 2 and
one line that names what it could not write, no traceback, and every checkpoint that was there must
still match its hashes. Then the disk is mended, a torn row left where a log had no room, and the
command is given again (`--resume` for training): it must end as the run that was never disturbed,
bit for bit. Repeated writes of one kind (a checkpoint, a PNG) are disturbed at their last
occurrence. A disk that turned read-only in the first moment of a run can keep a hidden folder
`.new-…` with its settings, which nothing reads. Not covered: the system's folder of temporary
files, a console that is redirected into a file of the same disk, and Weights & Biases;
TensorBoard's files are where it is installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lens_ref import evaluate, report, train
from lens_ref.evaluating import session as evaluating
from lens_ref.rlvr import checkpoint, collect, report_figures, session
from lens_ref.tiny import study
from tests.rlvr.helpers import ExactVerifier
from tests.rlvr.runs import assert_same_run
from tests.soak import Figure
from tests.soak.own_disk import Watch, in_child, mend, mount_own

SETTINGS = [
    "steps=4",
    "data.train_questions=20",
    "data.test_questions=4",
    "rollout.questions=4",
    "rollout.responses=4",
    "rollout.max_new_tokens=12",
    "optimizer.warmup_updates=2",
    "loss.updates_per_rollout=2",
    "loss.micro_batch_tokens=256",
    "eval.every=2",
    "eval.n=2",
    "checkpoint.every=1",
]
AT_ONCE = 2
KINDS = {"full": ("file", "tensors"), "read-only": ("file", "tensors", "mkdir", "rename")}
"""Folders and names take no room that a disk could lack."""


@dataclass(frozen=True)
class Command:
    """One of the project's commands, writing into a folder."""

    name: str
    main: Callable[[list[str]], int]
    arguments: tuple[str, ...]  # {disk}: the folder; {runs}: a parent of finished runs elsewhere
    trains: bool = False

    def run(self, disk: Path, runs: Path, resume: bool = False) -> int:
        given = [text.format(disk=disk, runs=runs) for text in self.arguments]
        if resume and self.trains and (disk / "run").exists():
            given = ["--resume", str(disk / "run")]
        return self.main(given)


def commands() -> list[Command]:
    """All that write files."""
    settings = ("--name", "run", "--method", "lens", "--set", *SETTINGS)
    trained = ("--out", "{disk}", *settings)
    asked = ("--questions", "6", "--n", "2", "--block", "3", "--out", "{disk}/found")
    found = [
        Command("train", train.main, trained, trains=True),
        Command("evaluate", evaluate.main, ("{runs}/run/lens-seed0", "tiny", *asked)),
        Command(
            "evaluate overlap",
            evaluate.main,
            ("overlap", "tiny", "tiny", "--out", "{disk}/s/ids.csv"),
        ),
        Command("collect", collect.main, ("{runs}/run", "--out", "{disk}/small")),
        Command(
            "collect --whole", collect.main, ("{runs}/run", "--whole", "--out", "{disk}/whole")
        ),
        Command("report", report.main, ("{runs}/run", "--out", "{disk}/report")),
        Command("study", study.main, ("--seeds", "1", "--out", "{disk}/study")),
    ]
    if importlib.util.find_spec("tensorboard"):
        more = (*trained, "log.tensorboard=true")
        found.append(Command("train, TensorBoard", train.main, more, trains=True))
    return found


def quietly(log: Path, work: Callable[[], int]) -> int:
    """The exit status of a child whose output goes into a file."""

    def child() -> int:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 2)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        return work()

    return in_child(child)


def light() -> None:
    """Grade in this process, draw nothing, start no training from the study: none of it writes."""
    session.Verifier = evaluating.Verifier = lambda *_, **__: ExactVerifier()  # type: ignore[misc,assignment]
    report_figures.png = lambda drawing, dpi=0: b"drawing" * 2000  # type: ignore[assignment]
    study.trainings.call = lambda *_, **__: 0  # type: ignore[method-assign]


def place(path: str) -> str:
    """A path without what differs between writes of one kind."""
    path = re.sub(r"step-\d+", "step-N", re.sub(r"\.new-\d+", ".new", path))
    path = re.sub(r"tfevents.*", "tfevents", path)
    return re.sub(r"[^/]+\.png$", "*.png", path)


def named(path: str) -> str:
    """How the error must name a write to this path."""
    parts = path.split("/")
    if parts[0].startswith(".new-"):
        return "/run"
    for part in parts:
        if match := re.fullmatch(r"\.(step-\d+)\.tmp", part):
            return match[1]
        if part == "tensorboard":
            return part
    return re.sub(r"^\.(.*)\.tmp$", r"\1", parts[-1])


def places(command: Command, folder: Path, runs: Path) -> list[tuple[int, str, str]]:
    """(index, what, path) of the last write of every kind, on an undisturbed disk."""
    disk, kept = folder / "disk", folder / "undisturbed"
    disk.mkdir(parents=True)
    seen = folder / "seen.json"

    def listed() -> int:
        watch = Watch(disk)
        status = command.run(disk, runs)
        seen.write_text(json.dumps(watch.seen))
        return status

    status = quietly(folder / "log", listed)
    assert status == 0, (command.name, (folder / "log").read_text())
    disk.rename(kept)
    last: dict[tuple[str, str], tuple[int, str, str]] = {}
    for index, (what, path) in enumerate(json.loads(seen.read_text())):
        last[what, place(path)] = (index, what, path)
    return list(last.values())


def disturbed(
    command: Command, folder: Path, runs: Path, kind: str, at: tuple[int, str, str]
) -> str | None:
    """Run it into the fault, mend, give it again; what is wrong, or None."""
    disk, log = folder / "disk", folder / f"log-{kind}-{at[0]}"
    disk.mkdir(exist_ok=True)
    told = folder / f"told-{kind}-{at[0]}"

    def all_of_it() -> int:
        mount_own(disk)

        def faulty() -> int:
            Watch(disk, kind, at[0])
            return command.run(disk, runs)

        status = quietly(log, faulty)
        line = log.read_text()
        mend(disk)
        if (status, line[:7], line.count("\n")) != (2, "error: ", 1):
            told.write_text(f"exit status {status}: {line[-600:]}")
        elif named(at[2]) not in line:
            told.write_text(f"does not name {named(at[2])}: {line}")
        elif bad := [p for p in disk.glob("run/*/checkpoints/step-*") if checkpoint.damage(p)]:
            told.write_text(f"{bad[0].name}: {checkpoint.damage(bad[0])}")
        else:
            status = quietly(log, lambda: command.run(disk, runs, resume=True))
            if status:
                told.write_text(f"then exit status {status}: {log.read_text()[-600:]}")
            elif wrong := difference(command, disk, folder / "undisturbed"):
                told.write_text(wrong)
        return 0

    status = in_child(all_of_it)
    found = told.read_text() if told.exists() else f"status {status}" if status else None
    return None if found is None else f"{command.name}, {kind} before {at[1]} {at[2]}: {found}"


def difference(command: Command, disk: Path, undisturbed: Path) -> str | None:
    """Between what the mended command left and what it leaves on a good disk."""
    if command.trains:
        try:
            assert_same_run(disk / "run/lens-seed0", undisturbed / "run/lens-seed0")
        except AssertionError as error:
            return f"another end: {error}"
    names = [
        {
            place(str(path.relative_to(root)))
            for path in root.rglob("*")
            if path.is_file() and not path.relative_to(root).parts[0].startswith(".new-")
        }
        for root in (disk, undisturbed)
    ]
    if names[0] != names[1]:
        return f"other files: {sorted(names[0] ^ names[1])}"
    for path in disk.rglob("*.csv"):
        other = undisturbed / path.relative_to(disk)
        # metrics.csv holds times, and is compared above
        if path.name != "metrics.csv" and path.read_bytes() != other.read_bytes():
            return f"another {path.name}"
    return None


def measure(quick: bool) -> list[Figure]:
    """The figures of this part."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "try").mkdir()

        def possible() -> int:
            mount_own(folder / "try")
            return 0

        if quietly(folder / "log", possible) != 0:
            why = (folder / "log").read_text().strip().splitlines()[-1:]
            return [Figure("disks of one's own", f"not measured here: {why}", "allowed", False)]
        light()
        runs = folder / "runs"
        trained = commands()[0]
        assert quietly(folder / "log", lambda: trained.run(runs, runs)) == 0, (
            folder / "log"
        ).read_text()
        cases = []
        figures = []
        for number, command in enumerate(commands()[:2] if quick else commands()):
            own = folder / str(number)
            at = places(command, own, runs)
            for kind, kinds in KINDS.items():
                some = [where for where in at if where[1] in kinds]
                cases += [(command, own, kind, where) for where in (some[::9] if quick else some)]
        faults = _all(cases, folder, runs)
        for command in dict.fromkeys(case[0] for case in cases):
            for kind in KINDS:
                wrong = [
                    text
                    for case, text in zip(cases, faults, strict=True)
                    if text and case[0] is command and case[2] == kind
                ]
                number = sum(case[0] is command and case[2] == kind for case in cases)
                found = f"{number - len(wrong)} of {number} places"
                shown = [re.sub(r"\s+", " ", text) for text in wrong[: 50 if quick else 3]]
                what = f"{command.name}, {kind} disk: one line, status 2, then as undisturbed"
                figures.append(Figure(what, "; ".join([found, *shown]), f"all {number}", not wrong))
        return figures


def _all(cases: list[Any], folder: Path, runs: Path) -> list[str | None]:
    """What each case found, in AT_ONCE processes."""
    results = [folder / f"results-{part}.json" for part in range(AT_ONCE)]
    children = []
    for part, result in enumerate(results):
        child = os.fork()
        if child == 0:
            status = 70
            with contextlib.suppress(BaseException):
                found = []
                for index in range(part, len(cases), AT_ONCE):
                    command, own, kind, at = cases[index]
                    place_of_own = own / str(part)
                    place_of_own.mkdir(exist_ok=True)
                    with contextlib.suppress(FileExistsError):
                        (place_of_own / "undisturbed").symlink_to(own / "undisturbed")
                    found.append((index, disturbed(command, place_of_own, runs, kind, at)))
                result.write_text(json.dumps(found))
                status = 0
            os._exit(status)
        children.append(child)
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    found = dict(pair for result in results for pair in json.loads(result.read_text()))
    return [found[index] for index in range(len(cases))]
