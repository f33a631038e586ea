"""The LoRA adapter outside the model: as tensors, as a hash, and as a folder that engines load."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from lens_ref.rlvr.policy import Policy

ADAPTER = "default"
"""Its name in peft."""
WEIGHTS_FILE = "adapter_model.safetensors"
ADAPTER_ALONE = False
"""peft's `save_embedding_layers`: by itself it asks the hub, at every call, whether the base's were
resized, and here they never are."""


def adapter_tensors(policy: Policy, dtype: torch.dtype) -> dict[str, Tensor]:
    """Name → weight of the adapter, as peft saves it.

    Args:
        dtype: that the sampler computes in; rounding here once makes what is hashed, written and
            loaded the same bytes.

    Returns:
        Contiguous copies on the CPU.
    """
    from peft import get_peft_model_state_dict  # and bitsandbytes: not at start-up

    state = get_peft_model_state_dict(policy.model, save_embedding_layers=ADAPTER_ALONE)
    return {
        name: tensor.detach().to(dtype, copy=True).cpu().contiguous()
        for name, tensor in state.items()
    }


def adapter_hash(tensors: dict[str, Tensor]) -> str:
    """SHA-256 over names, shapes, types and bytes, in order of name."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_adapter(policy: Policy, folder: Path, tensors: dict[str, Tensor]) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors`.

    Args:
        tensors: from `adapter_tensors`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    policy.model.peft_config[ADAPTER].save_pretrained(str(folder))
    save_file(tensors, folder / WEIGHTS_FILE)


def has_adapter(policy: Policy) -> bool:
    """Whether an adapter is trained, and not all weights."""
    return hasattr(policy.model, "peft_config")
