"""Train: `python -m lens_ref.train`.

Without arguments it trains the bundled tiny policy on the bundled task with GRPO and with LENS, on
the same seed and questions, on a CPU, and writes a report into runs/. With `--lora` it is the
single-GPU recipe for Qwen2.5-3B, with `--qlora` the same on 4-bit weights, with `--full` the
paper's own training of all weights.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from lens_ref import own_modules
from lens_ref.command_line import OneLineParser, folder, one_line_errors, settings

LORA_RECIPE = ("qwen2.5-3b-lora",)
FULL_RECIPE = ("paper/qwen2.5-3b-full", "paper/math-dapo", "paper/lens")


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = OneLineParser(
        prog="python -m lens_ref.train",
        description="Train a language model with verifiable rewards, GRPO and LENS side by side.",
        epilog="Any field of the configuration: --set optimizer.lr=1e-5 rollout.responses=8",
    )
    what = parser.add_argument_group("what to train")
    what.add_argument(
        "--config",
        nargs="+",
        metavar="FILE",
        help="YAML files or names of recipes; of several, a later one wins",
    )
    what.add_argument(
        "--lora",
        action="store_true",
        help="train a LoRA adapter; without --config the recipe qwen2.5-3b-lora",
    )
    what.add_argument(
        "--qlora",
        action="store_true",
        help="the same over 4-bit weights, sampled by transformers unless --engine says otherwise",
    )
    what.add_argument(
        "--full",
        action="store_true",
        help="train all weights, no adapter; without --config Qwen2.5-3B at the paper's rate "
        "(with --config: set optimizer.lr too, an adapter's is about ten times as high)",
    )
    what.add_argument("--model", metavar="ID", help="local folder, hub id, or 'tiny'")
    what.add_argument(
        "--data",
        metavar="DATA",
        help=".jsonl file (problem, answer, optional level), hub id, or 'tiny'; "
        "turns evaluation off unless --test is given",
    )
    what.add_argument("--test", metavar="DATA", help="held-out questions, the same formats")
    what.add_argument(
        "--method",
        nargs="+",
        metavar="NAME",
        help="one or several, each NAME or NAME:key=value,… (for example lens:preset=negative_std)",
    )
    own_modules.add_option(what)
    how = parser.add_argument_group("how")
    how.add_argument(
        "--seed", type=int, nargs="+", metavar="N", help="one, or several: each method with each"
    )
    how.add_argument("--steps", type=int, help="gradient updates")
    how.add_argument("--device", choices=["auto", "cpu", "cuda", "mps"])
    how.add_argument(
        "--engine",
        choices=["auto", "hf", "vllm"],
        help="what samples the answers: transformers (hf) or vLLM; auto: vLLM where it can",
    )
    how.add_argument(
        "--memory-gb", type=float, metavar="GB", help="use no more GPU memory than this"
    )
    how.add_argument("--as-published", action="store_true", help="each method's own clip and mean")
    how.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="any field of the configuration"
    )
    where = parser.add_argument_group("where")
    where.add_argument(
        "--out", type=folder, metavar="DIR", default="runs", help="parent of run folders"
    )
    where.add_argument("--name", help="folder name; default: the recipe's, numbered")
    where.add_argument(
        "--resume", metavar="RUN_DIR", help="go on with a run, or all unfinished ones of a folder"
    )
    where.add_argument(
        "--dry-run", action="store_true", help="print the memory plan, run one worst-case step"
    )
    where.add_argument(
        "--tensorboard",
        action="store_true",
        help="also write TensorBoard files into the run folder",
    )
    where.add_argument("--wandb", metavar="PROJECT", help="also log to Weights & Biases")
    where.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    args = build_parser().parse_args(arguments)
    hint = "rollout.batch_rows, rollout.max_new_tokens or loss.micro_batch_tokens lower, or see"
    return one_line_errors(lambda: _run(args), args.debug, "training", f"{hint} --dry-run")


def _run(args: argparse.Namespace) -> int:
    from lens_ref.rlvr import session

    own_modules.load(args.modules)
    where = (str(args.out), args.name, args.resume, args.dry_run)
    again = own_modules.written(args.modules)
    more = args.seed[1:] if args.seed else ()
    return session.run(*where, *_recipe(args), again=again, more_seeds=more)


def _recipe(args: argparse.Namespace) -> tuple[str, tuple[str, ...] | None, dict[str, Any]]:
    """(name, config files, overrides) that the command line asks for."""
    from lens_ref.rlvr import recipes
    from lens_ref.rlvr.errors import UserError

    if args.full and args.qlora:
        raise UserError(
            "--full trains all weights, --qlora an adapter on 4-bit weights: choose one"
        )
    adapter = (args.lora or args.qlora) and not args.full
    chosen = FULL_RECIPE if args.full else LORA_RECIPE if adapter else None
    config = tuple(args.config) if args.config else chosen
    overrides: dict[str, Any] = {}
    for key, value in (
        ("model.path", args.model),
        ("data.train", args.data),
        ("seed", args.seed and args.seed[0]),
        ("steps", args.steps),
        ("device", args.device),
        ("methods", args.method),
        ("rollout.engine", args.engine),
        ("model.memory_gb", args.memory_gb),
        ("log.wandb", args.wandb),
    ):
        if value is not None:
            overrides[key] = value
    if args.data is not None or args.test is not None:
        overrides["data.test"] = args.test
    if args.data is not None:  # a recipe's size limits and versions belong to its own data
        overrides |= {"data.train_questions": None, "data.test_questions": None}
        overrides |= {"data.revision": None, "data.split": "train", "data.overlap": "refuse"}
    if args.full:
        overrides["model.lora"] = None
    if args.as_published:
        overrides["loss.as_published"] = True
    if args.tensorboard:
        overrides["log.tensorboard"] = True
    if adapter:
        written = recipes.read(config)
        defaults: list[tuple[str, str, Any]] = [("model", "lora", {})]
        if args.qlora:
            defaults += [("model", "quantization", "nf4"), ("rollout", "engine", "hf")]
        for section, field, value in defaults:  # what a file says stays
            said = written.get(section)
            if not isinstance(said, dict) or said.get(field) is None:
                overrides.setdefault(f"{section}.{field}", value)
    by_key = settings(args.set)
    if args.seed is not None and "seed" in by_key:
        raise UserError("--seed and --set seed=… both name seeds: choose one")
    overrides |= by_key
    name = recipes.run_name(config) if config else "tiny"
    return name, config, overrides


if __name__ == "__main__":
    sys.exit(main())
