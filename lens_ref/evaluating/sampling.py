"""Evaluating one policy: block after block of questions, saved after each, resumable.

The random numbers of a block are derived from the seed and the block's number, never from what was
done before: a resumed evaluation draws what an unbroken one would.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lens_ref.evaluating import counts as files
from lens_ref.evaluating import trainings
from lens_ref.evaluating.counts import Count
from lens_ref.evaluating.policies import Target, weights_hash
from lens_ref.evaluating.trainings import Training
from lens_ref.rlvr.config import flat
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.evaluation import answer
from lens_ref.rlvr.files import damaged, read_object
from lens_ref.rlvr.policy import Policy, resolve_dtype
from lens_ref.rlvr.prompts import encode_prompts
from lens_ref.rlvr.run_folder import command_line, environment, refuse_secrets, write_atomic
from lens_ref.rlvr.sampler import choose_engine, derive_seed, make_sampler
from lens_ref.rlvr.tasks import Question, Questions
from lens_ref.verifier import Verifier

MANIFEST = "evaluation.json"
PATHS = ("model", "data.source")
"""Settings that may be paths; the hashes of what lies there are settings too."""
Show = Callable[[Sequence[Count]], None]


@dataclass(frozen=True)
class Plan:
    """How every policy of a command is asked."""

    n: int = 16  # answers to a question
    seed: int = 0
    block: int = 128  # questions sampled at once


def evaluate(
    target: Target,
    policy: Policy,
    questions: Questions,
    verifier: Verifier,
    plan: Plan,
    folder: Path,
    check_stop: Callable[[], None],
    show: Show,
) -> list[Count]:
    """Sample, grade and count; go on where an earlier call with the same settings stopped.

    Args:
        folder: of `counts.csv` and `evaluation.json`.
        check_stop: raises `Interrupted` when asked to stop; what was counted is on the disk.
        show: called with the counts so far, before the first block and after each.

    Raises:
        UserError: the folder holds another evaluation, a full disk, prompts that can't be made.
        Interrupted.
    """
    prompts = encode_prompts(policy, target.config, questions)
    manifest = _begin(folder, _settings(target, policy, questions, plan), target)
    manifest["dropped_unparsable"] = len(questions.unparsable)
    path = folder / files.FILE
    done = _resume(path, questions.items, plan)
    if manifest.get("done") != len(done):  # it was written before the counts, or could not be after
        manifest["done"] = len(done)
        _write(folder, manifest)
    show(done)
    if len(done) == len(questions):
        return done
    longest = max(map(len, prompts))
    began, before = time.monotonic(), manifest["seconds"]
    with closing(make_sampler(policy, target.config, longest, check_stop)) as sampler:
        sampler.verify(prompts)
        sampler.sync()
        while len(done) < len(questions):
            check_stop()
            block = slice(len(done), len(done) + plan.block)
            seed = derive_seed(plan.seed, "evaluate", target.seed, len(done) // plan.block)
            asked = questions.items[block]
            found = answer(sampler, policy.tokenizer, verifier, asked, prompts[block], plan.n, seed)
            truncated = found.samples.truncated.sum(-1).tolist()
            new = [
                Count(q.id, q.level, q.subject, plan.n, c, t)
                for q, c, t in zip(asked, found.correct, truncated, strict=True)
            ]
            files.append(path, new)
            done += new
            manifest |= {"done": len(done), "seconds": before + time.monotonic() - began}
            _write(folder, manifest)
            show(done)
    return done


def _settings(target: Target, policy: Policy, questions: Questions, plan: Plan) -> dict[str, Any]:
    """Everything that the counts depend on."""
    config = target.config
    return {
        "model": config.model.path,
        "weights": weights_hash(policy),
        "training_seed": target.seed,
        "training_step": target.step,
        "prompt": asdict(config.prompt),
        "stop_ids": list(policy.stop_ids),
        "max_new_tokens": config.rollout.max_new_tokens,
        "temperature": config.rollout.temperature,
        "data": {
            "source": questions.source,
            "questions": len(questions),
            "sha256": questions.sha256,
        },
        **asdict(plan),
        "engine": choose_engine(config, policy.device),
        "batch_rows": config.rollout.batch_rows,
        "device": policy.device.type,
        "dtype": str(resolve_dtype(config.model, policy.device)).removeprefix("torch."),
        "verifier_timeout": config.verifier.timeout,
    }


def read_manifest(folder: Path, then: str = files.MEND) -> dict[str, Any] | None:
    """What `evaluate` left beside the counts; None if nothing.

    Args:
        then: what to do where it is damaged.

    Raises:
        UserError: damaged.
    """
    path = folder / MANIFEST
    if not path.is_file():
        return None
    manifest = read_object(path, then)
    try:
        whole = isinstance(manifest["settings"]["data"]["sha256"], str)
        whole = whole and type(manifest["settings"]["data"]["questions"]) is int
        whole = whole and type(manifest["seconds"]) in (int, float)
    except (KeyError, TypeError):
        whole = False
    if not whole:
        raise damaged(path, "it lacks settings.data or seconds", then)
    return manifest


def training_of(manifest: dict[str, Any], folder: Path) -> Training | None:
    """What the manifest of an evaluation keeps of the run; older ones keep nothing.

    Raises:
        UserError: damaged.
    """
    return trainings.given_back(manifest.get("training"), folder / MANIFEST, files.MEND)


def _begin(folder: Path, settings: dict[str, Any], target: Target) -> dict[str, Any]:
    """The manifest of a new evaluation, or of the one to go on with."""
    before = read_manifest(folder, files.begin_anew(folder))
    if before is not None:
        theirs = flat(before["settings"])
        for key, value in flat(settings).items():
            moved = key == "model" and settings["weights"]["model"] is not None  # its hash tells
            same = moved or (key in PATHS and _same(theirs.get(key), value))
            if theirs.get(key) != value and not same:
                raise UserError(
                    f"{folder} was begun with {key} = {theirs.get(key)}, not {value}: give the "
                    "same options again, or choose another --out"
                )
        return before
    if (folder / files.FILE).exists():
        raise UserError(f"{folder / files.FILE} belongs to no evaluation: choose another --out")
    manifest = {
        "policy": "/".join(target.path[-2:]),
        "settings": settings,
        "training": None if target.trained is None else target.trained.kept(),
        "done": 0,
        "seconds": 0.0,
        **environment(),
        "command": command_line("lens_ref.evaluate"),
    }
    refuse_secrets({**settings, "training": manifest["training"]})
    _write(folder, manifest)
    files.write(folder / files.FILE, [])
    return manifest


def _same(one: Any, other: Any) -> bool:
    """Whether two settings are the same path, spelled in two ways."""
    try:
        one, other = (os.path.realpath(os.path.expanduser(str(path))) for path in (one, other))
    except ValueError:  # no name that a file could have
        return False
    return bool(one == other)


def _write(folder: Path, manifest: dict[str, Any]) -> None:
    path = folder / MANIFEST
    with files.writing(path):
        write_atomic(path, json.dumps(manifest, indent=2) + "\n")


def _resume(path: Path, questions: Sequence[Question], plan: Plan) -> list[Count]:
    """The whole blocks of questions that are done; anything after them is cut off."""
    begun = files.read_begun(path)
    kept = begun
    if len(begun) < len(questions):
        kept = begun[: len(begun) - len(begun) % plan.block]
    expected = [(q.id, q.level, q.subject, plan.n) for q in questions[: len(kept)]]
    if len(begun) > len(questions) or [(c.id, c.level, c.subject, c.n) for c in kept] != expected:
        raise UserError(f"{path} does not hold these questions in their order: delete its folder")
    files.write(path, kept)
    return kept
