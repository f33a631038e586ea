"""What an update that was not made leaves for whoever looks into it: `debug/step-<n>/`.

`batch.safetensors` holds the numbers of the rollout batch, `batch.json` its questions, prompts,
texts and verdicts, `config.yaml` the settings, `fault.json` the message and the faulty questions.
Nothing is pickled, and nothing of the environment is in it. The weights are those of the newest
checkpoint plus the updates since: the run repeats them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from lens_ref.rlvr.bad_numbers import BadNumbers
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.checkpoint import batch_text

KEPT = 10
"""The newest so many are kept: a run that skips updates must not fill the disk."""


def write(run: Path, update: int, batch: Batch, config: dict[str, Any], error: BadNumbers) -> str:
    """Write the bundle of an update into a run folder.

    Returns:
        Where it is, or why it could not be written: what stops the run must still be told.
    """
    folder = run / "debug" / f"step-{update}"
    try:
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was resumed from before it
        folder.mkdir(parents=True)
        save_file(_tensors(batch), folder / "batch.safetensors")
        (folder / "batch.json").write_text(json.dumps(batch_text(batch)), encoding="utf-8")
        settings = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        (folder / "config.yaml").write_text(settings, encoding="utf-8")
        fault = {"message": str(error), "update": update, "questions": error.faults}
        (folder / "fault.json").write_text(json.dumps(fault, indent=2) + "\n", encoding="utf-8")
        others = sorted(folder.parent.glob("step-*"), key=lambda path: path.stat().st_mtime)
        for old in others[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    except (OSError, SafetensorError) as failed:
        reason = getattr(failed, "strerror", None) or str(failed).splitlines()[0]
        return f"no debug bundle, {folder} can't be written: {reason}"
    return f"debug bundle: {folder}"


def _tensors(batch: Batch) -> dict[str, Tensor]:
    samples, signal = batch.samples, batch.signal
    tensors = {
        "ids": samples.ids,
        "lengths": samples.lengths,
        "truncated": samples.truncated,
        "sampler_logprobs": samples.logprobs,
        "scored": samples.scored,
        "rewards": batch.rewards,
        "old_logprobs": batch.old_logprobs,
        "entropy": batch.entropy,
        "advantages": None if signal is None else signal.advantages,
        "keep": None if signal is None else signal.keep,
    }
    return {k: v.contiguous().clone() for k, v in tensors.items() if v is not None}
