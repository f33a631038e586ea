"""4-bit weights under an adapter; needs bitsandbytes, which runs on a CPU too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lens_ref.rlvr import policy as policy_module
from lens_ref.rlvr.config import LoraConfig, ModelConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.logprobs import can_pack
from lens_ref.rlvr.policy import load_policy
from tests.rlvr.helpers import CPU, save_model
from tests.rlvr.test_packing import PROMPTS, RESPONSES, with_random_adapter

WIDE = {"hidden_size": 64, "intermediate_size": 128}  # blocks of 64 weights share a scale


def settings(path: Path, **more: object) -> ModelConfig:
    return ModelConfig(path=str(path), lora=LoraConfig(r=2, alpha=4.0), **more)


def test_without_bitsandbytes_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install bitsandbytes"):
        load_policy(settings(save_model(tmp_path, "llama"), quantization="nf4"), CPU, 0)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_4_bit_policy_trains(kind: str, tmp_path: Path) -> None:
    """Near the 16-bit policy, base frozen in bytes, gradients in the float32 adapter."""
    pytest.importorskip("bitsandbytes")
    folder = save_model(tmp_path, kind, **WIDE)
    four = with_random_adapter(load_policy(settings(folder, quantization="nf4"), CPU, 0), 0.05)
    full = with_random_adapter(load_policy(settings(folder), CPU, 0), 0.05)
    assert can_pack(four.model)
    base = {n: p for n, p in four.model.named_parameters() if not p.requires_grad}
    assert {p.dtype for n, p in base.items() if "proj.base_layer.weight" in n} == {torch.uint8}
    scored, exact = (torch.cat(p.logprobs(PROMPTS, RESPONSES, 1.0)[0]) for p in (four, full))
    gap = (scored - exact).abs().max()
    assert 0 < gap < 0.2  # rounded, and no more than that
    with four.sampling(), torch.no_grad():  # sampling in between must not repack the weights
        four.model(input_ids=torch.tensor([PROMPTS[1]]))
    again = torch.cat(four.logprobs(PROMPTS, RESPONSES, 1.0)[0])
    torch.testing.assert_close(again, scored, rtol=0, atol=1e-6)
    gradients = torch.autograd.grad(scored.sum(), list(four.trainable().values()))
    assert all(g.dtype == torch.float32 and g.abs().max() > 0 for g in gradients)


def test_all_weights_in_4_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="needs lora"):
        ModelConfig(quantization="nf4")


def test_checkpoints_hold_the_adapter_alone(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    folder = save_model(tmp_path, "llama", **WIDE)
    policy = load_policy(settings(folder, quantization="nf4"), CPU, 0)
    policy.model.save_pretrained(tmp_path / "saved")
    (weights,) = (tmp_path / "saved").glob("*.safetensors")
    assert weights.name == "adapter_model.safetensors"
