"""Checkpoints: complete, atomic, readable without pickle.

`checkpoints/step-<n>/` holds the policy (a folder that transformers or peft load), the optimizer
moments, the batch in hand if updates on it are still due, `state.json` with the counters, and
`sha256.json`, written last, with the hash of every other file. Random numbers need no saving: every
seed is derived from the run's seed and a counter (see `sampler.derive_seed`), and the counter is
the step.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from lens_ref.rlvr.adapter import ADAPTER_ALONE, has_adapter
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.errors import UserError, in_one_line
from lens_ref.rlvr.files import damaged, decoded, parse_json, read_bytes, read_json
from lens_ref.rlvr.policy import Policy
from lens_ref.rlvr.run_folder import sync
from lens_ref.rlvr.saved import batch_of, check_moments

BATCH_TENSORS = ("rewards", "old_logprobs", "entropy")
HASHES, STATE = "sha256.json", "state.json"
_NAME = re.compile(r"step-(?:0|[1-9][0-9]*)")
log = logging.getLogger("lens_ref")


def save(
    folder: Path,
    step: int,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch | None,
    progress: dict[str, Any],
    keep: int,
) -> Path:
    """Write `step-<n>` beside the others and drop all but the newest `keep` up to it.

    A later one is damaged, or this run would have gone on from it: it goes too. One of the same
    step stands aside until the new one is in its place: see `put_back`.

    Args:
        folder: the run's `checkpoints`.
        batch: the batch in hand, None between batches.
        progress: further numbers for `state.json` (JSON).

    Raises:
        UserError: the disk is full or not writable; earlier checkpoints are intact.
    """
    final, temporary = folder / f"step-{step}", folder / f".step-{step}.tmp"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        alone = {"save_embedding_layers": ADAPTER_ALONE} if has_adapter(policy) else {}
        policy.model.save_pretrained(temporary / "policy", safe_serialization=True, **alone)
        policy.tokenizer.save_pretrained(temporary / "policy")
        save_file(_optimizer_tensors(policy, optimizer), temporary / "optimizer.safetensors")
        if batch is not None:
            save_file(_batch_tensors(batch), temporary / "batch.safetensors")
            (temporary / "batch.json").write_text(json.dumps(batch_text(batch)), encoding="utf-8")
        state = {"step": step, **progress}
        (temporary / STATE).write_text(json.dumps(state, indent=2), encoding="utf-8")
        hashes = json.dumps(_hashes(temporary), indent=2)
        (temporary / HASHES).write_text(hashes, encoding="utf-8")
        for path in [*temporary.rglob("*"), temporary]:
            sync(path)
        if final.exists():
            final.rename(_aside(final))
        temporary.rename(final)
        sync(folder)
        kept = [path for path in checkpoints(folder) if _step(path) <= step][-keep:]
        left = [path for end in ("old", "tmp") for path in folder.glob(f".step-*.{end}")]
        for old in [*checkpoints(folder), *left]:
            if old not in kept:
                shutil.rmtree(old)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        with suppress(OSError):
            put_back(folder)
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError(
            f"cannot write the checkpoint {final}: {reason}; earlier checkpoints are intact, "
            f"make room and go on with --resume {folder.parent}"
        ) from error
    return final


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def put_back(folder: Path) -> None:
    """Give a checkpoint its name again whose replacement was killed before it was there."""
    for aside in folder.glob(".step-*.old"):
        path = folder / aside.name[1 : -len(".old")]
        if path.exists():
            shutil.rmtree(aside)
        else:
            aside.rename(path)


def checkpoints(folder: Path) -> list[Path]:
    """All checkpoints, intact or not, oldest first."""
    return sorted((path for path in folder.glob("step-*") if _NAME.fullmatch(path.name)), key=_step)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def latest(folder: Path) -> Path | None:
    """The newest checkpoint whose files match their hashes; a warning tells of newer ones."""
    passed_over: list[str] = []
    found = None
    for path in reversed(checkpoints(folder)):
        what = damage(path)
        if what is None:
            found = path
            break
        passed_over.append(f"{path} is damaged ({what})")
    for text in passed_over:
        after = "no intact one is left" if found is None else f"{found.name} is used instead"
        log.warning("the checkpoint %s: %s", text, after)
    return found


def restore(
    path: Path, policy: Policy, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Any], Batch | None]:
    """Load weights and moments in place; returns `state.json` and the batch in hand.

    Raises:
        UserError: its files are as they were written, but not of this policy, or no run's.
    """
    then = f"move {path} away, and the checkpoint before it is used"
    state, batch = read_json(path / STATE, then), None
    try:
        _load_weights(policy, load_file(_weights(path / "policy")))
        tensors = load_file(path / "optimizer.safetensors")
        # the weights fit: what does not fit them in turn comes from no change of the settings
        with _as_written(path / "optimizer.safetensors", then):
            check_moments(tensors, policy.trainable(), state["step"])
        _load_optimizer(policy, optimizer, tensors)
        if (path / "batch.json").is_file():
            text = read_json(path / "batch.json", then)
            tensors = load_file(path / "batch.safetensors")
            vocabulary = policy.model.get_input_embeddings().weight.shape[0]
            with _as_written(path / "batch.safetensors", then):
                batch = batch_of(text, tensors, vocabulary)
    except torch.OutOfMemoryError:
        raise
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"{path} does not fit this run ({in_one_line(error)}): undo what was changed in its "
            f"config.yaml, or {then}"
        ) from error
    return state, batch


@contextmanager
def _as_written(path: Path, then: str) -> Iterator[None]:
    """Turn a ValueError into the line that says so."""
    try:
        yield
    except ValueError as error:
        raise damaged(path, error, then) from None


def _weights(folder: Path) -> Path:
    (path,) = folder.glob("*.safetensors")
    return path


def _load_weights(policy: Policy, weights: dict[str, Tensor]) -> None:
    if has_adapter(policy):
        from peft import set_peft_model_state_dict

        found = set_peft_model_state_dict(policy.model, weights)
        missing = [name for name in found.missing_keys if "lora_" in name]
        if wrong := [*found.unexpected_keys, *missing]:
            raise ValueError(f"its weights differ in {wrong[0]}")
    else:
        missing, unexpected = policy.model.load_state_dict(weights, strict=False)
        # tied weights are stored once: what is missing must share memory with what was loaded
        state = policy.model.state_dict()
        loaded = {state[name].data_ptr() for name in weights if name in state}
        wrong = [*unexpected, *(name for name in missing if state[name].data_ptr() not in loaded)]
        if wrong:
            raise UserError(f"the checkpoint is of another model: its weights differ in {wrong[0]}")
        policy.model.tie_weights()


def _optimizer_tensors(policy: Policy, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {}
    for name, parameter in policy.trainable().items():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{key}/{name}"] = value.detach().cpu().contiguous()
    return tensors


def _load_optimizer(
    policy: Policy, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    parameters = policy.trainable()
    # Adam keeps its step counter on the CPU, the moments beside the parameter; fused, all beside it
    fused = any(group.get("fused") for group in optimizer.param_groups)
    for name, value in tensors.items():
        key, parameter = name.split("/", 1)
        target = parameters[parameter]
        beside = fused or key != "step"
        optimizer.state[target][key] = value.to(target.device) if beside else value


def _batch_tensors(batch: Batch) -> dict[str, Tensor]:
    assert batch.signal is not None
    sampled = asdict(batch.samples).items()
    tensors = {f"samples.{k}": v for k, v in sampled if v is not None}
    tensors |= {k: getattr(batch, k) for k in BATCH_TENSORS if getattr(batch, k) is not None}
    tensors |= {"advantages": batch.signal.advantages, "keep": batch.signal.keep}
    tensors |= {f"info.{k}": v for k, v in batch.signal.info.items()}
    return {k: v.contiguous().clone() for k, v in tensors.items()}


def batch_text(batch: Batch) -> dict[str, Any]:
    """What of a batch is no tensor, for JSON."""
    return {
        "index": batch.index,
        "questions": [asdict(question) for question in batch.questions],
        "prompts": batch.prompts,
        "texts": batch.texts,
        "reasons": batch.reasons,
    }


def _hashes(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if name != HASHES:
            with path.open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def damage(path: Path) -> str | None:
    """The first file of a checkpoint that is missing, changed or added since it was written, or a
    state of another step than its folder's; None where all is as it was."""
    try:
        written = parse_json(decoded(read_bytes(path / HASHES)))
        found = _hashes(path)
        if not isinstance(written, dict):
            return f"{HASHES} is no table"
    except OSError as error:
        return f"{Path(str(error.filename)).name}: {error.strerror}"
    except ValueError as error:
        return f"{HASHES}: {error}"
    for name in sorted(written.keys() | found.keys()):
        if written.get(name) != found.get(name):
            how = "missing" if name not in found else "changed" if name in written else "new"
            return f"{name} is {how}"
    return _wrong_step(path)


def _wrong_step(path: Path) -> str | None:
    """Hashes that match were perhaps made anew, or the folder was renamed."""
    try:
        state = parse_json(decoded(read_bytes(path / STATE)))
        step = state["step"]
    except (OSError, ValueError, LookupError, TypeError):
        return f"{STATE} names no step"
    if type(step) is not int or (_NAME.fullmatch(path.name) and step != _step(path)):
        return f"{STATE} is of step {str(step)[:20]}"
    return None


def intact(path: Path) -> bool:
    """Whether the files match the hashes that were written last."""
    return damage(path) is None
