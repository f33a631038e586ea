"""The command: `python -m toy.compare`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rich.console import Console

from lens_ref.command_line import OneLineParser, fail, folder, positive, unsigned
from lens_ref.rlvr.console import PlainConsole
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.run_folder import processor
from toy.compare import figures, harms, language, report, signal
from toy.compare.cell import Cell
from toy.compare.runner import Outcome, forget, run_all
from toy.runs import require_writable

EXPERIMENTS = {"signal": signal, "harms": harms, "language": language}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = OneLineParser(
        prog="python -m toy.compare",
        description="Every treatment of negative groups on the same problems: how fast each "
        "learns, where each hurts, and the bundled language model under each.",
    )
    p.add_argument("--full", action="store_true", help="the long version (under 2 hours)")
    p.add_argument(
        "--only",
        nargs="+",
        choices=sorted(EXPERIMENTS),
        default=list(EXPERIMENTS),
        metavar="PART",
        help=f"some of: {', '.join(EXPERIMENTS)}",
    )
    p.add_argument("--workers", type=positive, default=2, help="processes of one thread each")
    p.add_argument(
        "--out",
        type=folder,
        help="folder for CSVs and figures; runs/compare, --full: results/compare",
    )
    p.add_argument("--seed-base", type=unsigned, default=0, metavar="N", help="the first seed")
    p.add_argument("--fresh", action="store_true", help="run the cells again that are done")
    return p


def main(arguments: list[str] | None = None) -> int:
    """Run what is not done yet, then write tables and figures.

    Returns:
        The exit status: 0; 2 for a folder that can't be used; 130 after Ctrl-C.
    """
    args = parser().parse_args(arguments)
    out = args.out or Path("results/compare" if args.full else "runs/compare")
    try:
        require_writable(out)
    except OSError as error:
        return fail(f"can't write to {out} ({error.strerror}); give another folder with --out")
    try:
        _run(args, out, PlainConsole())
    except KeyboardInterrupt:
        print("\nstopped; the finished cells are kept: the same command goes on", file=sys.stderr)
        return 130
    except BrokenProcessPool:
        return fail(
            "a worker process was killed (out of memory?); the finished cells are kept: the same "
            "command goes on, with fewer --workers in less memory"
        )
    except OSError as error:
        return fail(f"can't write to {out} ({error.strerror}); make room and run it again")
    except UserError as error:
        return fail(str(error))
    return 0


def _run(args: argparse.Namespace, out: Path, console: Console) -> None:
    names = list(dict.fromkeys(args.only))
    cells: list[Cell] = [
        cell for name in names for cell in EXPERIMENTS[name].cells(args.full, args.seed_base)
    ]
    if args.fresh:
        forget(cells, out / "cells")
    began = time.monotonic()
    outcome = run_all(cells, out / "cells", args.workers, console)
    summaries = {name: EXPERIMENTS[name].summarize(outcome.frames) for name in names}
    write(outcome, summaries, out, args, len(cells), time.monotonic() - began)
    report.show(summaries, console)
    if not args.full:
        console.print("Short version: fewer settings and seeds; --full runs the rest.")
    console.print(f"tables and figures: {out}/", highlight=False)


def write(
    outcome: Outcome,
    summaries: dict[str, pd.DataFrame],
    out: Path,
    args: argparse.Namespace,
    cells: int,
    seconds: float,
) -> None:
    """CSVs, figures and what they were made with. The files of parts that were not asked for stay
    as they are."""
    for part, rows in outcome.frames.items():
        rows.to_csv(out / f"{part}.csv", index=False, float_format="%.5g")
    for name, figure in figures.draw(outcome.frames, summaries).items():
        figure.savefig(out / f"{name}.png", dpi=110)
    manifest = {
        "seed_base": args.seed_base,
        "full": args.full,
        "workers": args.workers,
        "cells": cells,
        "reused_cells": outcome.reused,
        "cpu_seconds": round(outcome.cpu_seconds),
        "wall_seconds": round(seconds),
        "cores": os.cpu_count(),
        "processor": processor(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "made": time.strftime("%Y-%m-%d"),
        "parts": list(summaries),
    }
    for name, table in summaries.items():
        table.to_csv(out / f"summary_{name}.csv", index=False, float_format="%.6g")
        (out / f"manifest_{name}.json").write_text(json.dumps(manifest, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
