"""Small training runs: straight through, interrupted, killed, resumed; and what they leave."""

from __future__ import annotations

import csv
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from lens_ref.rlvr import checkpoint, metrics
from lens_ref.rlvr.config import Config
from lens_ref.rlvr.policy import load_policy
from lens_ref.rlvr.run_folder import RunFolder
from lens_ref.rlvr.session import load_data
from lens_ref.rlvr.trainer import StopRequest, Trainer
from tests.rlvr.helpers import CPU, ExactVerifier

LOGS = ("eval.csv", "eval_counts.csv", "groups.csv", "samples.jsonl")
_SEEDS = itertools.count()
PHASES = ("sample", "freeze_old", "step", "_loop")


class Killed(BaseException):
    """Stands for SIGKILL: nothing gets to clean up or save."""


class StopAt(StopRequest):
    """Asks to stop at the n-th check, and notes in which phase of the run each check was made."""

    def __init__(self, n: int = 10**9) -> None:
        super().__init__()
        self.n, self.checks, self.phases = n, 0, list[str]()

    def check(self) -> None:
        self.checks += 1
        self.phases.append(_phase())
        self.requested = self.requested or self.checks >= self.n
        super().check()


def _phase() -> str:
    """ "evaluate", or the innermost of PHASES on the call stack."""
    names, frame = list[str](), sys._getframe(2)
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    if "_evaluate" in names:
        return "evaluate"
    return next(name for name in names if name in PHASES)


def trainer(
    folder: RunFolder,
    stop: StopRequest | None = None,
    report: Callable[[int, dict[str, Any]], None] = lambda step, row: None,
) -> Trainer:
    """A trainer that has loaded everything anew, as a fresh process would."""
    config, verifier = folder.config(), ExactVerifier()
    policy = load_policy(config.model, CPU, config.seed)
    data = load_data(config, verifier)
    torch.manual_seed(next(_SEEDS))  # must not matter
    return Trainer(config, folder, policy, data, verifier, stop or StopRequest(), report)


def run(parent: Path, config: Config) -> Path:
    """Train without interruption; returns the run folder."""
    folder = RunFolder.create(parent, config)
    trainer(folder).run()
    return folder.path


def kill_after(step: int) -> Callable[[int, dict[str, Any]], None]:
    """A report that kills the run after an update."""

    def report(done: int, row: dict[str, Any]) -> None:
        if done == step:
            raise Killed

    return report


def tensors(path: Path) -> dict[str, torch.Tensor]:
    """Everything in the last checkpoint: weights, optimizer moments, the batch in hand."""
    newest = checkpoint.latest(path / "checkpoints")
    assert newest is not None
    return {
        f"{file.relative_to(newest)}:{name}": value
        for file in sorted(newest.rglob("*.safetensors"))
        for name, value in load_file(file).items()
    }


def logged(path: Path) -> dict[str, Any]:
    """All logs, without the columns that tell the time."""
    with (path / "metrics.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for column in metrics.TIMING:
            del row[column]
    found = {name: (path / name).read_text("utf-8") for name in LOGS if (path / name).exists()}
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    kept = ("status", "method", "seed", "step", "steps", "tokens", "parameters", "data", "verifier")
    return {**found, "metrics.csv": rows, "manifest": {key: manifest[key] for key in kept}}


def assert_same_run(a: Path, b: Path) -> None:
    """Bit for bit: weights, moments and every log."""
    first, second = tensors(a), tensors(b)
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name
    one, two = logged(a), logged(b)
    assert one.keys() == two.keys()
    for name in one:
        assert one[name] == two[name], name
