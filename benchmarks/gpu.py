"""Speed and memory on a GPU, baselines beside this project: `python -m benchmarks.gpu`.

Every part runs in a process of its own and leaves `results/benchmarks/<part>.json`, with the card,
the versions and the command. Weights are random, of the true shapes: speed and memory do not depend
on their values. `--tiny` tries the parts on any machine, in small.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARTS = (
    "update-qwen2.5-3b",
    "update-llama-3.1-8b",
    "growth",
    "advantages",
    "rollouts",
    "step",
    "memory-qwen2.5-3b",
    "memory-llama-3.1-8b",
)


def run_part(part: str, tiny: bool, work: Path, save: Callable[[dict[str, Any]], None]) -> None:
    """Measure a part; GPU libraries are imported here, in its own process.

    Args:
        save: is handed the figures so far, again and again: what a time limit cuts is not lost.
    """
    from benchmarks import gpu_rollouts, gpu_updates

    if part.startswith("update-"):
        name = part.removeprefix("update-")
        gpu_updates.compare(name, 20.0 if "3b" in name else 28.0, tiny, save)
    elif part == "growth":
        gpu_updates.growth("qwen2.5-3b", tiny, save)
    elif part == "advantages":
        save(gpu_updates.advantages_seconds())
    elif tiny:
        save({"skipped": "needs vLLM and a GPU"})
    elif part == "rollouts":
        gpu_rollouts.rollouts(work, save)
    elif part == "step":
        gpu_rollouts.step(work, save)
    else:
        save(gpu_rollouts.within_24_gb(part.removeprefix("memory-"), work))


def main(arguments: list[str] | None = None) -> int:
    """Run the parts one after the other; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--work", type=Path, default=Path("runs/benchmarks"), help="for weights")
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try the code")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.tiny and args.out == parser.get_default("out"):
        parser.error("--tiny needs an --out of its own: its figures are not results")
    args.out.mkdir(parents=True, exist_ok=True)
    if args.part is None:
        failed = 0
        for part in args.only:
            command = [sys.executable, "-m", "benchmarks.gpu", "--part", part]
            command += ["--out", str(args.out), "--work", str(args.work)]
            command += ["--tiny"] if args.tiny else []
            print(f"== {part}", flush=True)
            failed += subprocess.run(command, check=False).returncode != 0  # noqa: S603
        return int(failed > 0)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from lens_ref.rlvr.run_folder import environment

    began = time.monotonic()
    about = environment()
    flag = " --tiny" if args.tiny else ""
    about["command"] = f"python -m benchmarks.gpu --only {args.part}{flag}"
    path = args.out / f"{args.part}.json"

    def save(figures: dict[str, Any], finished: bool = False) -> None:
        nonlocal last
        last = figures
        state = {"finished": finished, "wall_seconds": time.monotonic() - began}
        text = json.dumps({"part": args.part, **about, **state, **figures}, indent=1)
        path.write_text(text + "\n", encoding="utf-8")

    last: dict[str, Any] = {}
    run_part(args.part, args.tiny, args.work, save)
    save(last, finished=True)
    print(f"{args.part}: {path}")
    return int(last.get("status", 0) != 0)


if __name__ == "__main__":
    sys.exit(main())
