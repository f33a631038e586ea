"""What stands in for the slow parts of a command (`tables.STAND_INS` says why)."""

from __future__ import annotations

import importlib
import subprocess
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import pytest
import torch
from rich.console import Console

from benchmarks.gpu import PARTS as BENCHMARKS
from lens_ref import train
from lens_ref.evaluating import session as evaluation
from lens_ref.rlvr import run_report, session
from lens_ref.rlvr.config import load
from lens_ref.tiny import study
from tests.pages import places
from tests.pages.tables import TINY
from tests.rlvr.helpers import ExactVerifier
from tests.rlvr.runs import run
from tests.soak import PARTS, Figure
from tests.toy.conftest import TINY as TINY_PLAN
from tests.toy.test_compare import Numbers, summarize
from toy.compare import figures, harms, language, signal
from toy.compare.runner import Outcome
from toy.experiments import EscapeColumn
from toy.runs import Results
from toy.runs import run as run_plan


def light(patch: pytest.MonkeyPatch) -> None:
    """No grading processes and no report of a run: seconds of every training command."""
    patch.setattr(session, "Verifier", ExactVerifier)
    patch.setattr(evaluation, "Verifier", ExactVerifier)
    patch.setattr(run_report, "write_report", lambda parent: parent / "report.html")
    patch.setattr("os.fsync", lambda descriptor: None)
    patch.setattr(torch, "use_deterministic_algorithms", lambda on: None)  # it outlives a command


@cache
def toy_results() -> Results:
    """One column of the long version, six seeds in place of 24, and next to nothing of the rest."""
    column = EscapeColumn(1e-2, 4, "sgd", 20_000, ("mle_d_half_unguarded", "mle_d2_demeaned"))
    plan = replace(TINY_PLAN, columns=(column,), escape_seeds=6)
    return run_plan(plan, 1000, Console(quiet=True))


def toy(patch: pytest.MonkeyPatch) -> None:
    """A run of seconds, which all commands share."""
    results = toy_results()
    patch.setattr("toy.runs.run", lambda plan, seed_base, console: results)


def toy_compare(patch: pytest.MonkeyPatch) -> None:
    """A cell a part, in this process."""
    for part in (signal, harms, language):
        name = part.__name__.rpartition(".")[2]
        Path(f"{name}_cell.py").touch()
        cell = Numbers(f"{name}_cell", str(Path.cwd()), part=name)
        patch.setattr(part, "cells", lambda full, base, cell=cell: [cell])
        patch.setattr(part, "summarize", summarize)
    patch.setattr(figures, "draw", lambda frames, summaries: {})

    def run_all(cells: list[Numbers], folder: Path, workers: int, console: Console) -> Outcome:
        frames = {cell.part: cell.run(folder, print) for cell in cells}
        return Outcome(frames, cpu_seconds=0.0, reused=0)

    patch.setattr("toy.compare.runner.run_all", run_all)


def lens_ref_tiny_study(patch: pytest.MonkeyPatch) -> None:
    """What a seed's command would train, in this process and tiny."""

    one_at_a_time = threading.Lock()  # transformers loads models in one thread

    def call(command: list[str], **_: Any) -> int:
        assert command[1:3] == ["-m", "lens_ref.train"]
        given = train.build_parser().parse_args(command[3:])
        for method in given.method:
            overrides = train.settings(list(TINY)) | {"methods": [method], "seed": given.seed[0]}
            with one_at_a_time:
                run(Path(given.out) / given.name, load(None, overrides))
        return 0

    patch.setattr(study.trainings, "call", call)


def benchmarks_gpu(patch: pytest.MonkeyPatch) -> None:
    """Every part is asked for, in a process of its own."""

    def start(command: list[str], check: bool) -> SimpleNamespace:
        assert command[1:3] == ["-m", "benchmarks.gpu"]
        assert command[command.index("--part") + 1] in BENCHMARKS
        return SimpleNamespace(returncode=0)

    patch.setattr(subprocess, "run", start)


def tests_soak(patch: pytest.MonkeyPatch) -> None:
    """Parts that find what was asked for."""
    for part in PARTS:
        module = importlib.import_module(f"tests.soak.{part}")
        patch.setattr(module, "measure", lambda quick: [Figure("a stand-in", "nothing")])


def lens_ref_evaluate(patch: pytest.MonkeyPatch) -> None:
    """A hub without a network."""
    patch.setattr(datasets, "load_dataset", places.hub)
