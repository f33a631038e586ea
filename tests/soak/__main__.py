"""Run parts, print their figures, write them to results/reliability/."""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path

from lens_ref.rlvr.run_folder import environment, write_atomic
from tests.soak import PARTS, Figure

RESULTS = Path(__file__).resolve().parents[2] / "results/reliability"


def show(figure: Figure) -> str:
    """The figure in one line."""
    bound = f"  (asked: {figure.bound})" if figure.bound else ""
    return f"  {'ok  ' if figure.met else 'MISS'} {figure.what}: {figure.found}{bound}"


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 where a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="smaller numbers, nothing written")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no part {min(unknown)!r}: {', '.join(PARTS)}")
    missed = 0
    for part in args.parts or PARTS:
        print(f"{part}:", flush=True)
        began = time.monotonic()
        figures = importlib.import_module(f"tests.soak.{part}").measure(quick=args.quick)
        for figure in figures:
            print(show(figure), flush=True)
        missed += sum(not figure.met for figure in figures)
        if not args.quick:
            args.out.mkdir(parents=True, exist_ok=True)
            found = {
                "part": part,
                "figures": [asdict(figure) for figure in figures],
                "seconds": round(time.monotonic() - began),
                **environment(),
                "command": shlex.join(["python", "-m", "tests.soak", part]),
            }
            write_atomic(args.out / f"{part}.json", json.dumps(found, indent=2) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
