"""The treatments of negative groups on the bundled policy, seed by seed, in one resumable command.

    python -m lens_ref.tiny.study --out runs/study          # 20 seeds, about an hour and a half
    python -m lens_ref.rlvr.collect runs/study/seed*/ --out results/tiny_study

Every seed is one session of `python -m lens_ref.train` in a process of its own: same seed, same
questions, one method after the other. Started again, it leaves finished seeds alone and goes on
with the others.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lens_ref import extras

extras.check_command(__name__, "the study")

from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.lock import alone_in
from lens_ref.rlvr.run_folder import AGAIN, find_runs, refuse_secrets, writing

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
    all is done."""
    folder = out / f"seed{seed}"
    train = [sys.executable, "-m", "lens_ref.train"]
    if any(folder.glob("*/config.yaml")):
        finished = all(run.finished for run in find_runs(folder))
        return None if finished else [*train, "--resume", str(folder)]
    given = ["--out", str(out), "--name", folder.name, "--seed", str(seed)]
    return [*train, *given, "--method", *methods]


def run_seed(out: Path, seed: int, methods: Sequence[str]) -> int:
    """Train one seed with one thread, its console in `seed<k>.log`; returns the exit status."""
    train = command(out, seed, methods)
    if train is None:
        return 0
    path = out / f"seed{seed}.log"
    with writing(path, AGAIN), path.open("a", encoding="utf-8") as log:
        print(shlex.join(train), file=log, flush=True)
        status = subprocess.call(  # noqa: S603
            train,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    print(f"seed {seed}: {'done' if status == 0 else f'exit status {status}, see {log.name}'}")
    return status


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 1 where a seed failed."""
    parser = argparse.ArgumentParser(
        prog="python -m lens_ref.tiny.study", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="seeds 0 to N − 1")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="seeds at a time")
    parser.add_argument("--method", nargs="+", default=METHODS, metavar="METHOD")
    args = parser.parse_args(arguments)
    if args.seeds < 1 or args.workers < 1:
        parser.error("--seeds and --workers are at least 1")
    try:
        refuse_secrets({"--out": str(args.out), "--method": args.method})
        with writing(args.out, AGAIN):
            args.out.mkdir(parents=True, exist_ok=True)
        with alone_in(args.out), ThreadPoolExecutor(args.workers) as pool:
            seeds = range(args.seeds)
            statuses = list(pool.map(lambda seed: run_seed(args.out, seed, args.method), seeds))
    except UserError as error:
        parser.exit(2, f"error: {error}\n")
    return int(any(statuses))


if __name__ == "__main__":
    raise SystemExit(main())
