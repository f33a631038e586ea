"""Checkpoints: complete, atomic, readable without pickle.

`checkpoints/step-<n>/` holds the policy (a folder that transformers or peft load), the optimizer
moments, the batch in hand if updates on it are still due, and `state.json`, written last, with the
hash of every other file. Random numbers need no saving: every seed is derived from the run's seed
and a counter (see `sampler.derive_seed`), and the counter is the step.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from lens_ref.core import Signal
from lens_ref.rlvr.batch import Batch, Samples
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.policy import Policy
from lens_ref.rlvr.tasks import Question

BATCH_TENSORS = ("rewards", "old_logprobs", "entropy")


def save(
    folder: Path,
    step: int,
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch | None,
    progress: dict[str, Any],
    keep: int,
) -> Path:
    """Write `step-<n>` beside the others and drop all but the newest `keep`.

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
        policy.model.save_pretrained(temporary / "policy", safe_serialization=True)
        policy.tokenizer.save_pretrained(temporary / "policy")
        save_file(_optimizer_tensors(policy, optimizer), temporary / "optimizer.safetensors")
        if batch is not None:
            save_file(_batch_tensors(batch), temporary / "batch.safetensors")
            (temporary / "batch.json").write_text(json.dumps(_batch_text(batch)), encoding="utf-8")
        state = {"step": step, **progress, "sha256": _hashes(temporary)}
        (temporary / "state.json").write_text(json.dumps(state, indent=2), encoding="utf-8")
        _sync(temporary)
        shutil.rmtree(final, ignore_errors=True)
        temporary.rename(final)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError(
            f"cannot write the checkpoint {final}: {reason}; earlier checkpoints are intact, "
            f"make room and go on with --resume {folder.parent}"
        ) from error
    for old in [*checkpoints(folder)[:-keep], *folder.glob(".step-*.tmp")]:  # of killed runs
        shutil.rmtree(old)
    return final


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    found = [path for path in folder.glob("step-*") if (path / "state.json").is_file()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def latest(folder: Path) -> Path | None:
    """The newest checkpoint whose files match their hashes."""
    for path in reversed(checkpoints(folder)):
        if intact(path):
            return path
    return None


def restore(
    path: Path, policy: Policy, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Any], Batch | None]:
    """Load weights and moments in place; returns `state.json` and the batch in hand."""
    weights = load_file(_weights(path / "policy"))
    _load_weights(policy, weights)
    _load_optimizer(policy, optimizer, load_file(path / "optimizer.safetensors"))
    state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    batch = None
    if (path / "batch.json").is_file():
        text = json.loads((path / "batch.json").read_text(encoding="utf-8"))
        batch = _batch(text, load_file(path / "batch.safetensors"))
    return state, batch


def _weights(folder: Path) -> Path:
    (path,) = folder.glob("*.safetensors")
    return path


def _load_weights(policy: Policy, weights: dict[str, Tensor]) -> None:
    if hasattr(policy.model, "peft_config"):
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(policy.model, weights)
    else:
        missing, unexpected = policy.model.load_state_dict(weights, strict=False)
        assert not unexpected
        # tied weights are stored once: what is missing must share memory with what was loaded
        state = policy.model.state_dict()
        assert {state[n].data_ptr() for n in missing} <= {state[n].data_ptr() for n in weights}
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
    tensors = {f"samples.{k}": v for k, v in asdict(batch.samples).items()}
    tensors |= {k: getattr(batch, k) for k in BATCH_TENSORS if getattr(batch, k) is not None}
    tensors |= {"advantages": batch.signal.advantages, "keep": batch.signal.keep}
    tensors |= {f"info.{k}": v for k, v in batch.signal.info.items()}
    return {k: v.contiguous().clone() for k, v in tensors.items()}


def _batch_text(batch: Batch) -> dict[str, Any]:
    return {
        "index": batch.index,
        "questions": [asdict(question) for question in batch.questions],
        "prompts": batch.prompts,
        "texts": batch.texts,
        "reasons": batch.reasons,
    }


def _batch(text: dict[str, Any], tensors: dict[str, Tensor]) -> Batch:
    def group(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

    return Batch(
        index=text["index"],
        questions=tuple(Question(**question) for question in text["questions"]),
        prompts=tuple(map(tuple, text["prompts"])),
        samples=Samples(**group("samples.")),
        texts=tuple(map(tuple, text["texts"])),
        reasons=tuple(map(tuple, text["reasons"])),
        **{k: tensors.get(k) for k in BATCH_TENSORS},
        signal=Signal(tensors["advantages"], tensors["keep"], group("info.")),
    )


def _hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.name != "state.json"
    }


def intact(path: Path) -> bool:
    """Whether the files match the hashes that were written last."""
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        return bool(state["sha256"] == _hashes(path))
    except (OSError, ValueError, KeyError):
        return False


def _sync(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
