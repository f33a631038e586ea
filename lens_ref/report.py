"""Report: `python -m lens_ref.report [RUNS ...] [--results FOLDER] [--out FOLDER]`.

Draws every table and figure of the paper from runs that really happened, ours beside the published
values, as HTML, PNG, CSV and LaTeX. Without RUNS it reads the results that came with the project.
What has not been run shows as "not run".
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lens_ref.command_line import OneLineParser, folder, one_line_errors
from lens_ref.resources import find


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = OneLineParser(
        prog="python -m lens_ref.report",
        description="Draw the paper's tables and figures from runs, beside the published values.",
    )
    parser.add_argument(
        "runs", nargs="*", type=Path, metavar="RUNS", help="run folders, or folders that hold some"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FOLDER",
        help="collected or copied runs, read too; default without RUNS: the project's results/",
    )
    parser.add_argument(
        "--out",
        type=folder,
        default=Path("runs/report"),
        metavar="FOLDER",
        help="where the report goes (runs/report)",
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    args = build_parser().parse_args(arguments)
    results = args.results
    if results is None and not args.runs:
        results = find("results")
        if results is None:
            print("error: no results came along; name run folders", file=sys.stderr)
            return 2
    return one_line_errors(lambda: _run(args, results), args.debug, "the report", "")


def _run(args: argparse.Namespace, results: Path | None) -> int:
    from lens_ref.reporting import document
    from lens_ref.rlvr.console import console
    from lens_ref.rlvr.errors import UserError
    from lens_ref.rlvr.run_folder import refuse_secrets

    refuse_secrets({"--out": str(args.out)})
    found = document.reproduction(args.runs, results)
    for run in (*found.found.finished, *found.found.unfinished):
        if run.path.resolve().parent == args.out.resolve():
            what = "training runs, with a report of their own" if run.whole else "collected runs"
            raise UserError(f"--out {args.out} holds {what}")
    path = document.write(found, args.out)
    console.print(found.coverage())
    for note in found.notes():
        console.print(f"note: {note}")
    console.print(f"report: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
