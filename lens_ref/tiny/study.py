"""The treatments of negative groups on the bundled policy, seed by seed, in one resumable command.

    python -m lens_ref.tiny.study --out runs/study          # 20 seeds, 3.7 hours on two cores
    python -m lens_ref.rlvr.collect runs/study/seed*/ --out results/tiny_study

Every seed is one session of `python -m lens_ref.train` in a process of its own: same seed, same
questions, one method after the other. The committed 20 took 7.4 hours of one thread in all. Started
again, it leaves finished seeds alone and goes on with the others. Ctrl-C and SIGTERM are passed on
to what trains, which is waited for.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lens_ref import extras

extras.check_command(__name__, "the study")

from lens_ref.command_line import OneLineParser, folder, positive
from lens_ref.methods import spec
from lens_ref.rlvr.config import load, method_label, to_dict
from lens_ref.rlvr.console import console
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.lock import alone_in
from lens_ref.rlvr.report_data import differing_settings
from lens_ref.rlvr.run_folder import AGAIN, RunFolder, find_runs, refuse_secrets, writing
from lens_ref.rlvr.untrusted import one_line
from lens_ref.tiny.trainings import trainings

METHODS = (
    "grpo",
    "lens",
    "lens:groups=mixed",
    "lens:groups=negative",
    "lens:preset=no_demean",
    "nsr",
)


def command(out: Path, seed: int, methods: Sequence[str]) -> list[str] | None:
    """What trains the methods with this seed, from the start or from where it stopped; None where
    all is done.

    Raises:
        UserError: it was begun without one of them, or with other settings.
    """
    folder = out / f"seed{seed}"
    train = [sys.executable, "-m", "lens_ref.train"]
    if any(folder.glob("*/config.yaml")):
        runs = find_runs(folder)
        begun = {run.path.name for run in runs}
        missing = [text for text in methods if f"{method_label(text)}-seed{seed}" not in begun]
        if missing:
            raise UserError(
                f"{folder} was begun without {' '.join(missing)}: train that with another --out, "
                "or move the folder away"
            )
        for run in runs:
            _check_settings(run, seed, methods)
        finished = all(run.finished for run in runs)
        return None if finished else [*train, "--resume", str(folder)]
    given = ["--out", str(out), "--name", folder.name, "--seed", str(seed)]
    return [*train, *given, "--method", *methods]


def _check_methods(texts: Sequence[str]) -> None:
    """Raises UserError, once for all seeds, where one is none; the study imports none of the user's
    own."""
    for text in texts:
        try:
            spec(text.partition(":")[0])
        except ValueError as error:
            raise UserError(str(error)) from None
    load(overrides={"methods": list(texts)})


def _check_settings(run: RunFolder, seed: int, methods: Sequence[str]) -> None:
    """Raises UserError where a run is none of this study's."""
    config = to_dict(run.config())
    same = [text for text in methods if method_label(text) == method_label(config["methods"][0])]
    ours = to_dict(load(overrides={"seed": seed, "methods": same[:1] or list(methods)}))
    different = [key for key in ("methods", "seed", "steps") if config[key] != ours[key]]
    different += differing_settings(config, ours)
    if different:
        raise UserError(
            f"{run.path} is none of this study's: it differs in {', '.join(different)}; give "
            "another --out, or move it away"
        )


def run_seed(out: Path, seed: int, train: Sequence[str]) -> int:
    """Carry out the command that trains one seed, with one thread, its console in `seed<k>.log`;
    returns the exit status."""
    if trainings.ending:
        return -signal.SIGTERM
    path = out / f"seed{seed}.log"
    with writing(path, AGAIN), path.open("a", encoding="utf-8") as log:
        print(shlex.join(train), file=log, flush=True)
        status = trainings.call(
            train,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    if status == 0:
        end = "done"
    elif trainings.ending:
        end = "stopped"
    else:
        end = f"exit status {status}, see {path}: {_last_line(path)}"
    console.print(f"seed {seed}: {end}")
    return status


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return one_line(lines[-1])


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 1 where a seed failed, 130 after Ctrl-C."""
    parser = OneLineParser(
        prog="python -m lens_ref.tiny.study", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--out", type=folder, required=True, metavar="FOLDER")
    parser.add_argument("--seeds", type=positive, default=20, metavar="N", help="seeds 0 to N − 1")
    parser.add_argument("--workers", type=positive, default=2, metavar="N", help="seeds at a time")
    parser.add_argument("--method", nargs="+", default=METHODS, metavar="METHOD")
    args = parser.parse_args(arguments)
    try:
        refuse_secrets({"--out": str(args.out), "--method": args.method})
        with writing(args.out, AGAIN):
            args.out.mkdir(parents=True, exist_ok=True)
        _check_methods(args.method)
        with alone_in(args.out), trainings.end_with_this_one():
            # what is wrong is told before hours of work
            commands = {seed: command(args.out, seed, args.method) for seed in range(args.seeds)}
            waiting = {seed: train for seed, train in commands.items() if train is not None}
            consoles = f"each with its console in {args.out / 'seed<k>.log'}"
            console.print(f"{len(waiting)} of {args.seeds} seeds to train, {consoles}")
            with ThreadPoolExecutor(args.workers) as pool:
                statuses = list(pool.map(lambda item: run_seed(args.out, *item), waiting.items()))
    except UserError as error:
        parser.exit(2, f"error: {error}\n")
    except KeyboardInterrupt:
        print("stopped: the same command goes on", file=sys.stderr)
        return 130
    return int(any(statuses))


if __name__ == "__main__":
    raise SystemExit(main())
