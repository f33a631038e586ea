"""Evaluate: `python -m lens_ref.evaluate POLICY … [--data DATA]`.

Unbiased pass@k of base models, adapters, checkpoints and runs, with intervals, by level and by
subject; paired tests between them; the same from counts that are there (`--from`); and the overlap
of two sets of questions (`python -m lens_ref.evaluate overlap A B`). Without arguments it evaluates
the bundled tiny policy.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from lens_ref import own_modules
from lens_ref.command_line import OneLineParser, one_line_errors, positive, settings, unsigned


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = OneLineParser(
        prog="python -m lens_ref.evaluate",
        description="Unbiased pass@k of policies on test questions, at temperature 1.",
        epilog="The overlap of two sets of questions: python -m lens_ref.evaluate overlap A B",
    )
    what = parser.add_argument_group("what to evaluate")
    what.add_argument(
        "policies",
        nargs="*",
        metavar="POLICY",
        help="a run folder (its last checkpoint), a folder of runs, a checkpoint, an adapter, a "
        "model folder, a hub id, or 'tiny' (the default)",
    )
    what.add_argument(
        "--data",
        metavar="DATA",
        help="the questions: tiny, math-test, math-500, gsm8k-test, a .jsonl file (problem, "
        "answer, optional id, level, subject), or a hub id owner/name:split; default: the run's",
    )
    what.add_argument("--questions", type=positive, metavar="N", help="the first N only")
    what.add_argument(
        "--trained-on",
        nargs="*",
        metavar="DATA",
        help="report apart the questions that are in these sets too; without a name: in the runs' "
        "own training sets",
    )
    what.add_argument(
        "--from",
        nargs="+",
        dest="counts",
        metavar="COUNTS",
        help="sample nothing: the table from counts.csv files, or folders that hold some",
    )
    what.add_argument(
        "--baseline", metavar="NAME", help="what the others are compared with; default: the first"
    )
    own_modules.add_option(what)
    how = parser.add_argument_group("how")
    how.add_argument("--n", type=positive, help="answers a question (16)")
    how.add_argument("--seed", type=unsigned, help="of the sampling (0)")
    how.add_argument("--block", type=positive, help="questions sampled and saved at once (128)")
    how.add_argument("--device", choices=["auto", "cpu", "cuda", "mps"])
    how.add_argument("--engine", choices=["auto", "hf", "vllm"], help="what samples the answers")
    how.add_argument(
        "--config",
        nargs="+",
        metavar="FILE",
        help="prompt and length for a model or an adapter: YAML files or names of recipes; "
        "default: paper/common",
    )
    how.add_argument(
        "--model", metavar="ID", help="the base model of adapters, if it is no longer where it was"
    )
    how.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="any field of the configuration"
    )
    parser.add_argument("--out", metavar="DIR", help="where the results go (runs/evaluate)")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def build_overlap_parser() -> argparse.ArgumentParser:
    """The command line of `overlap`."""
    parser = OneLineParser(
        prog="python -m lens_ref.evaluate overlap",
        description="Questions of one set that are in another too: the same text, or the same "
        "without white space, LaTeX spacing, braces, punctuation and case.",
    )
    parser.add_argument("a", metavar="A", help="a name as in --data, or dapo, math-train …")
    parser.add_argument("b", metavar="B")
    own_modules.add_option(parser)
    parser.add_argument("--out", metavar="FILE", help="CSV of the ids (runs/overlap/A-in-B.csv)")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    shares = arguments[:1] == ["overlap"]
    parser = build_overlap_parser() if shares else build_parser()
    args = parser.parse_args(arguments[1:] if shares else arguments)
    return one_line_errors(
        lambda: _run(args, shares),
        args.debug,
        "evaluating",
        "rollout.batch_rows or rollout.max_new_tokens lower",
    )


def _run(args: argparse.Namespace, shares: bool) -> int:
    from lens_ref.evaluating import session
    from lens_ref.rlvr.errors import UserError

    if args.out == "":
        raise UserError(f"--out is empty: name a {'file' if shares else 'folder'}, or leave it out")
    own_modules.load(args.modules)
    if shares:
        return session.compare_sets(args.a, args.b, Path(args.out) if args.out else None)
    return session.run(_request(args))


PLAN = ("n", "seed", "block")
"""The options behind a `Plan`, which has their defaults."""


def _idle_with_counts(args: argparse.Namespace) -> list[str]:
    """The options given that do nothing beside --from."""
    idle = [*PLAN, "device", "engine", "config", "model", "set"]
    if args.trained_on is None:  # else they tell which question is which
        idle += ["data", "questions"]
    return [f"--{name}" for name in idle if getattr(args, name) not in (None, [])]


def _request(args: argparse.Namespace) -> Any:
    from lens_ref.evaluating.policies import Options
    from lens_ref.evaluating.sampling import Plan
    from lens_ref.evaluating.session import Request
    from lens_ref.rlvr.errors import UserError

    if args.counts and args.policies:
        raise UserError("--from makes the table from counts alone: name no policy beside it")
    if args.counts and (idle := _idle_with_counts(args)):
        raise UserError(f"--from samples nothing: leave out {' and '.join(idle)}")
    overrides = settings(args.set)
    for key, value in (
        ("device", args.device),
        ("rollout.engine", args.engine),
        ("model.path", args.model),
    ):
        if value is not None:
            overrides[key] = value
    plan = {name: getattr(args, name) for name in PLAN if getattr(args, name) is not None}
    return Request(
        what=tuple(args.policies) or ("tiny",),
        options=Options(tuple(args.config) if args.config else None, overrides),
        plan=Plan(**plan),
        counts=tuple(args.counts or ()),
        data=args.data,
        questions=args.questions,
        trained_on=None if args.trained_on is None else tuple(args.trained_on),
        baseline=args.baseline,
        out=Path(args.out) if args.out else None,
    )


if __name__ == "__main__":
    sys.exit(main())
