"""Numbers that can't be, put into real runs of the bundled policy.

One question of the second rollout batch gets a NaN, an infinity or an impossible number: in the
sampler's or the trainer's log-probabilities, the entropy, the reward, the advantage, the new
log-probability, the ratio or the gradient, or a difficulty D that its confidence π reaches. Under
`bad_numbers: stop`, the default, the run ends with one line that names the question and the number,
and the batch lies in `debug/step-<n>/`; under `skip` that one update is left out and counted, and
the run goes on. Weights and moments are the same to the bit before and after. A run that was killed
around an update left out resumes to the same end. Three such updates in a row stop the run whatever
is configured. A log-probability above 0 by no more than 1/16 nat is rounding and counts as 0. What
is not promised: a number that is finite, possible and wrong is not recognised here; of those only
the drift between sampler and trainer is watched.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.run_folder import RunFolder
from tests.rlvr import runs, spoil
from tests.rlvr.runs import Killed, assert_same_run, kill_after
from tests.soak import Figure

BUNDLE = {"batch.json", "batch.safetensors", "config.yaml", "fault.json"}


def measure(quick: bool) -> list[Figure]:
    """Every place and value, stopped and skipped; quick: one value a place."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    logging.getLogger("lens_ref").setLevel(logging.ERROR)  # the warnings of skipped updates
    cases = spoil.CASES
    if quick:
        cases = [(place, values[0]) for place, (_, values, _) in spoil.PLACES.items()]
    stopped = [_stopped(*case) for case in cases]
    skipped = [_skipped(*case) for case in cases]
    places = ", ".join(spoil.PLACES)
    return [
        Figure("bad numbers put into a run", f"{len(cases)}, in {places}"),
        _share("the run stops with one line", stopped, "line"),
        _share("… that names the question", stopped, "question"),
        _share("… and the number", stopped, "number"),
        _share("… and leaves a whole debug bundle", stopped, "bundle"),
        _share("weights and moments unchanged, to the bit", stopped + skipped, "unchanged"),
        _share("with bad_numbers: skip that one update is left out", skipped, "ends"),
        _share("… and counted in the manifest", skipped, "counted"),
        _share("… and, killed around it and resumed, is the same to the bit", skipped, "resumed"),
        _in_a_row(),
        _drift(),
    ]


def _share(what: str, found: list[dict[str, bool]], key: str) -> Figure:
    good = sum(one[key] for one in found)
    return Figure(what, f"{good} of {len(found)}", "all", good == len(found))


def _state(made: Any) -> list[torch.Tensor]:
    moments = made.updater.optimizer.state
    parameters = made.policy.trainable().values()
    every = [t for p in parameters for t in (p, *moments.get(p, {}).values())]
    return [tensor.detach().clone() for tensor in every]


def _same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def _watched(
    folder: RunFolder, place: str, value: float, states: dict[int, list[torch.Tensor]]
) -> tuple[Any, str]:
    """The trainer after a run, and the error that ended it, if any; weights and moments after
    every update go into `states`."""
    with contextlib.redirect_stdout(io.StringIO()):
        trainer = spoil.trainer(folder, place, value)
        trainer.report = lambda step, row: states.__setitem__(step, _state(trainer))
        try:
            trainer.run()
        except UserError as error:
            return trainer, str(error)
    return trainer, ""


def _stopped(place: str, value: float) -> dict[str, bool]:
    with tempfile.TemporaryDirectory() as parent:
        folder = RunFolder.create(Path(parent), spoil.config())
        states: dict[int, list[torch.Tensor]] = {}
        trainer, text = _watched(folder, place, value, states)
        name = trainer.data.train.items[spoil.target(trainer.config)].id
        kept = folder.path / "debug" / f"step-{spoil.STEP}"
        files = {path.name for path in kept.iterdir()} if kept.is_dir() else set()
        fault = json.loads((kept / "fault.json").read_text()) if files == BUNDLE else {}
        return {
            "line": bool(text) and "\n" not in text,
            "question": text.startswith(f"update {spoil.STEP}: question {name!r}: "),
            "number": spoil.PLACES[place][2] in text,
            "bundle": list(fault.get("questions", ())) == [name],
            "unchanged": _same(_state(trainer), states[spoil.STEP - 1]),
        }


def _skipped(place: str, value: float) -> dict[str, bool]:
    config = spoil.config(bad_numbers="skip")
    with tempfile.TemporaryDirectory() as parent:
        whole = RunFolder.create(Path(parent) / "whole", config)
        states: dict[int, list[torch.Tensor]] = {}
        _, text = _watched(whole, place, value, states)
        resumed = True
        for step in (spoil.STEP - 1, spoil.STEP + 1):
            pieces = RunFolder.create(Path(parent) / str(step), config)
            with contextlib.suppress(Killed), contextlib.redirect_stdout(io.StringIO()):
                spoil.trainer(pieces, place, value, report=kill_after(step)).run()
            with contextlib.redirect_stdout(io.StringIO()):
                spoil.trainer(pieces, place, value).run()
            try:
                assert_same_run(pieces.path, whole.path)
            except AssertionError:
                resumed = False
        return {
            "ends": not text and whole.finished and len(states) == config.steps,
            "counted": whole.manifest()["skipped_updates"] == [spoil.STEP],
            "unchanged": _same(states[spoil.STEP - 1], states[spoil.STEP])
            and not _same(states[spoil.STEP], states[spoil.STEP + 1]),
            "resumed": resumed,
        }


def _in_a_row() -> Figure:
    """A policy whose weights have become NaN, with bad_numbers: skip."""
    with tempfile.TemporaryDirectory() as parent, contextlib.redirect_stdout(io.StringIO()):
        folder = RunFolder.create(Path(parent), spoil.config(bad_numbers="skip"))
        trainer = runs.trainer(folder)

        def blow_up(step: int, row: dict[str, Any]) -> None:
            if step == 4:
                trainer.policy.model.model.norm.weight.data[0] = math.nan

        trainer.report = blow_up
        text = ""
        try:
            trainer.run()
        except UserError as error:
            text = str(error)
        left = trainer.step - 4
    found = f"stopped after {left} updates left out" if "in a row" in text else "not stopped"
    met = "in a row" in text and left == 2
    return Figure("a policy that has blown up for good, with skip", found, "the third stops", met)


def _drift() -> Figure:
    """A sampler whose log-probabilities are off by a little more than the bound."""
    off, text = 0.21, ""
    with tempfile.TemporaryDirectory() as parent, contextlib.redirect_stdout(io.StringIO()):
        trainer = runs.trainer(RunFolder.create(Path(parent), spoil.config(bad_numbers="skip")))
        sample = trainer.sampler.sample

        def other(*arguments: Any) -> Any:
            samples = sample(*arguments)
            samples.logprobs.sub_(off)
            return samples

        trainer.sampler.sample = other  # type: ignore[method-assign]
        try:
            trainer.run()
        except UserError as error:
            text = str(error)
    met = "sampler and trainer differ by 0.210 nats" in text and trainer.step == 0
    found = "stopped before the first update" if met else "not stopped"
    return Figure(f"sampler and trainer {off} nats a token apart (bound 0.2)", found, "stops", met)
