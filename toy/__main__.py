"""The command: `python -m toy`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from rich.console import Console

from lens_ref.command_line import OneLineParser, fail, folder, unsigned
from lens_ref.rlvr.console import PlainConsole
from lens_ref.rlvr.errors import UserError
from toy import report
from toy.experiments import FULL, QUICK
from toy.runs import require_writable, run, write
from toy.tables import compare, read_table


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = OneLineParser(
        prog="python -m toy",
        description="REINFORCE, GRPO, LENS and the exact likelihood objective on answer spaces "
        "small enough to enumerate.",
    )
    p.add_argument("--full", action="store_true", help="the long version (about 10 minutes)")
    p.add_argument(
        "--out", type=folder, help="folder for CSVs and figures; runs/toy, --full: results/toy"
    )
    p.add_argument(
        "--seed-base",
        type=unsigned,
        default=0,
        metavar="N",
        help="the first seed; another base 100 away or more gives an independent run",
    )
    p.add_argument(
        "--check",
        nargs=2,
        type=Path,
        metavar=("A.csv", "B.csv"),
        help="compare two summary.csv: every common cell within 4 standard errors? runs nothing",
    )
    return p


def main(arguments: list[str] | None = None) -> int:
    """Run, or compare two runs.

    Returns:
        The exit status: 0; 1 where two tables disagree; 2 for a file or folder that can't be used;
        130 after Ctrl-C.
    """
    args = parser().parse_args(arguments)
    console = PlainConsole()
    torch.set_num_threads(1)  # the tensors are tiny: more threads only wait for each other
    try:
        return _check(*args.check, console) if args.check else _run(args, console)
    except KeyboardInterrupt:
        print("\nstopped; nothing was written", file=sys.stderr)
        return 130
    except UserError as error:
        return fail(str(error))


def _run(args: argparse.Namespace, console: Console) -> int:
    out = args.out or Path("results/toy" if args.full else "runs/toy")
    try:
        require_writable(out)
    except OSError as error:
        return fail(f"can't write to {out} ({error.strerror}); give another folder with --out")
    start = time.monotonic()
    plan = FULL if args.full else QUICK
    results = run(plan, args.seed_base, console)
    try:
        write(results, out, args.seed_base, time.monotonic() - start)
    except OSError as error:
        return fail(f"can't write to {out} ({error.strerror}); free some space or change --out")
    report.show(results, console)
    report.show_against_reference(results, console)
    if not args.full:
        console.print(
            f"Short version: {len(plan.columns)} of {len(FULL.columns)} columns, {plan.questions} "
            f"instead of {FULL.questions} questions; --full runs the rest.",
            highlight=False,
        )
    console.print(f"tables and figures: {out}/", highlight=False)
    return 0


def _check(a: Path, b: Path, console: Console) -> int:
    try:
        agreement = compare(read_table(a), read_table(b))
    except ValueError as error:
        return fail(str(error))
    report.show_agreement(agreement, console)
    console.print("agree within 4 standard errors" if agreement.agrees else "do not agree")
    return 0 if agreement.agrees else 1


if __name__ == "__main__":
    sys.exit(main())
