"""The policy: loading it, its adapter, and the log-probabilities of sampled tokens."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    GenerationConfig,
)

from lens_ref.rlvr.config import ModelConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.files import read_object
from lens_ref.rlvr.layers import checkpoint_layers, compile_layers, layers_of
from lens_ref.rlvr.logprobs import can_pack, reads_like_the_model, token_logprobs


@dataclass
class Policy:
    """A causal language model with its tokenizer and its end-of-sequence tokens."""

    model: Any
    tokenizer: Any
    stop_ids: tuple[int, ...]  # every token that ends a response
    pad_id: int
    device: torch.device
    sha256: str | None = None  # of the weights that were loaded; None from the hub
    packed: bool = False  # rows of an update are laid end to end, not padded
    autocast: torch.dtype | None = None  # float32 weights that compute in this

    def trainable(self) -> dict[str, nn.Parameter]:
        """Name → parameter, of what is trained."""
        return {n: p for n, p in self.model.named_parameters() if p.requires_grad}

    def precision(self) -> AbstractContextManager[Any]:
        """Within it the model computes in the precision that it trains in."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Within it the model is in evaluation mode and its blocks run uncompiled: with a growing
        cache every step would be a shape of its own. Updates take what compilation made."""
        calls = [(layer, layer._compiled_call_impl) for layer in layers_of(self.model)]
        self.model.eval()
        for module in self.model.modules():
            if type(module).__name__ == "Linear4bit" and self.device.type == "cpu":
                module.train()  # evaluating, it re-packs its weights for good, without gradients
        for layer, _ in calls:
            layer._compiled_call_impl = None
        try:
            with self.precision():
                yield
        finally:
            for layer, call in calls:
                layer._compiled_call_impl = call

    def logprobs(
        self, prompts: list[tuple[int, ...]], responses: list[Tensor], temperature: float
    ) -> tuple[list[Tensor], list[Tensor]]:
        """`token_logprobs` of this policy, in its precision and packed where it can be."""
        with self.precision():
            return token_logprobs(self.model, prompts, responses, temperature, self.packed)


_GATED = "gated weights: accept the licence on the hub, then `hf auth login`; or "


def resolve_device(name: str) -> torch.device:
    """ "auto" → CUDA where there is one, else the CPU.

    Raises:
        UserError: a device that this machine lacks.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not available[name]:
        raise UserError(f"device {name!r} is not available here; use --device cpu")
    return torch.device(name)


NEARLY_ALL = 0.9
"""Of a GPU: a limit above it is left to the GPU itself."""
_returned: dict[int, int] = {}
"""By card: bytes that torch counts as allocated though a sleeping engine has given them back."""


def limit_memory(device: torch.device, gigabytes: float, returned: int | None = None) -> None:
    """Let torch allocate that much of a GPU at most, 1 GB = 10⁹ bytes.

    Args:
        returned: bytes that torch counts as allocated and the GPU has back; None: as before.
    """
    card = device.index or 0  # "cuda" without a number is refused below, unlike elsewhere
    if returned is not None:
        _returned[card] = returned
    whole = torch.cuda.get_device_properties(device).total_memory
    if gigabytes * 1e9 < NEARLY_ALL * whole:
        share = min(1.0, (gigabytes * 1e9 + _returned.get(card, 0)) / whole)
        torch.cuda.set_per_process_memory_fraction(share, card)


def resolve_dtype(config: ModelConfig, device: torch.device) -> torch.dtype:
    """Of the weights. "auto": float32 on a CPU, and wherever all weights are trained (an update of
    1e-6 is lost in bfloat16's rounding); bfloat16 under an adapter."""
    if config.dtype == "auto":
        half = device.type != "cpu" and config.lora is not None
        return torch.bfloat16 if half else torch.float32
    return torch.float32 if config.dtype == "float32" else torch.bfloat16


def compiles(config: ModelConfig, device: torch.device) -> bool:
    """Whether blocks are compiled for updates."""
    if config.compile != "auto":
        return config.compile
    return device.type == "cuda" and config.quantization is None


def model_folder(path: str) -> str:
    """The local folder or hub id behind `model.path`.

    Raises:
        UserError: a local folder without a config or without safetensors weights, or with an
            adapter beside them.
    """
    if path == "tiny":
        from lens_ref.tiny import POLICY_DIR

        return str(POLICY_DIR)
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(f"model folder {path} has no config.json")
        if not list(folder.glob("*.safetensors")):
            raise UserError(f"model folder {path} has no weights (*.safetensors)")
        if (folder / "adapter_config.json").exists():
            raise UserError(
                f"model folder {path} holds an adapter beside its weights (adapter_config.json): "
                "merge it into them, or move it away"
            )
        return str(folder)
    if path.startswith((".", "/", "~")) or path.count("/") != 1:
        raise UserError(f"no model folder {path} (a hub id looks like owner/name)")
    return path


def load_policy(
    config: ModelConfig, device: torch.device, seed: int, stop_tokens: tuple[str, ...] = ()
) -> Policy:
    """Load weights and tokenizer; attach a LoRA adapter where the config has one.

    Every dropout is set to 0: with dropout the policy that samples and the one that is trained
    would differ, and the ratio at the first update would not be 1.

    Args:
        seed: initialises the adapter.
        stop_tokens: more tokens that end a response.

    Raises:
        UserError: a model that isn't there, is damaged, quantised or none that can be trained
            here; an unknown stop token.
    """
    # bitsandbytes says on every import that one of its CPU kernels can't be fetched
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    source = model_folder(config.path)
    dtype = resolve_dtype(config, device)
    shipped = Path(source) / "generation_config.json"
    if shipped.exists():  # transformers passes over a damaged one, and its end tokens are lost
        read_object(shipped, "copy the model again")
    try:
        if config.quantization is None:
            _refuse_quantised(AutoConfig.from_pretrained(source, trust_remote_code=False), config)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        model, loading = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="sdpa",
            output_loading_info=True,
            **_placement(config, device),
        )
    except (torch.OutOfMemoryError, MemoryError, UserError):
        raise
    except Exception as error:  # foreign code reads foreign files: it may raise anything
        raise UserError(
            f"cannot load the model {config.path!r}: {_first_line(error)} "
            f"({_GATED if 'llama' in source.lower() and not Path(source).is_dir() else ''}"
            "name a local folder in its place)"
        ) from error
    if loading["missing_keys"]:  # transformers would fill them with random numbers
        some = sorted(loading["missing_keys"])[0]
        raise UserError(f"the weights of {config.path!r} are incomplete: {some} is missing")
    if loading["unexpected_keys"]:  # and would leave these out
        some = " and ".join(sorted(loading["unexpected_keys"])[:2])
        raise UserError(
            f"the weights of {config.path!r} do not fit its config.json, which has no place for "
            f"{some}: copy the model again"
        )
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(model.config, name, None) not in (None, 1, 1.0):
            raise UserError(f"models with {name} are not supported: their head is not linear")
    return make_policy(
        model, tokenizer, config, device, seed, stop_tokens, _weights_hash(Path(source))
    )


def make_policy(
    model: Any,
    tokenizer: Any,
    config: ModelConfig,
    device: torch.device,
    seed: int,
    stop_tokens: tuple[str, ...] = (),
    sha256: str | None = None,
) -> Policy:
    """A policy from a transformers model at hand: `load_policy` after loading.

    Args:
        model: in the precision that `config` asks for; moved to the device if it isn't there.
        sha256: of its weights, for the manifest.

    Raises:
        UserError: an unknown stop token, or none at all; weights that are not finite.
    """
    _refuse_not_finite(model, config)
    rows = model.get_input_embeddings().weight.shape[0]
    stop_ids = _stop_ids(model, tokenizer, stop_tokens, rows)
    # generate() falls back on what a checkpoint ships (top_p, repetition_penalty …): empty it, but
    # for what ends a response. A checkpoint of ours ships that, the run's own stop tokens too: the
    # policy was trained to end with them.
    model.generation_config = GenerationConfig(eos_token_id=list(stop_ids))
    if config.quantization is None:
        model.to(device)
    dtype = resolve_dtype(config, device)
    if config.memory_gb is not None and device.type == "cuda":
        limit_memory(device, config.memory_gb)
    if config.lora is not None:
        model = _attach_lora(model, config, seed)
    _no_dropout(model)
    model.train()
    layers = layers_of(model)
    everywhere = config.gradient_checkpointing == "auto" and device.type == "cuda"
    if everywhere or config.gradient_checkpointing is True:
        checkpoint_layers(model, len(layers))
    if not reads_like_the_model(model):
        raise UserError(
            "this architecture is not supported: its logits are not its output layer applied to "
            "its last hidden states, as they are read here"
        )
    # one attention call a row is faster on a GPU, where it is one kernel for all rows
    packed = device.type == "cuda" and can_pack(model)
    if compiles(config, device):
        compile_layers(layers)
    pad_id = tokenizer.pad_token_id
    if pad_id is None or not 0 <= pad_id < rows:  # added to the tokenizer alone
        pad_id = stop_ids[0]
    return Policy(
        model,
        tokenizer,
        stop_ids,
        pad_id,
        device,
        sha256,
        packed=packed,
        autocast=torch.bfloat16 if device.type == "cuda" and dtype is torch.float32 else None,
    )


def _refuse_quantised(found: Any, config: ModelConfig) -> None:
    for part in (found, found.get_text_config(decoder=True)):
        if getattr(part, "quantization_config", None) is not None:
            raise UserError(
                f"the weights of {config.path!r} are quantised (quantization_config in its "
                "config.json): take the unquantised ones, with --qlora to train on them in 4 bits"
            )


def _refuse_not_finite(model: Any, config: ModelConfig) -> None:
    for name, weight in model.named_parameters():
        if not weight.is_floating_point() or weight.numel() == 0:
            continue
        if not torch.stack(weight.detach().aminmax()).isfinite().all():  # no copy of the weights
            raise UserError(
                f"the weights of {config.path!r} hold numbers that are not finite ({name})"
            )


def _first_line(error: Exception) -> str:
    """And the one after it, where it only announces that one."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(line.strip() for line in lines[: 1 + lines[0].endswith(":")])


def _placement(config: ModelConfig, device: torch.device) -> dict[str, Any]:
    """Straight onto a GPU, in 4 bits where the config says so."""
    place: dict[str, Any] = {} if device.type == "cpu" else {"device_map": {"": device}}
    if config.quantization is None:
        return place
    if find_spec("bitsandbytes") is None:
        raise UserError("4-bit weights need bitsandbytes: pip install bitsandbytes")
    four_bits = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=config.quantization,
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=resolve_dtype(config, device),
    )
    return {"device_map": {"": device}, "quantization_config": four_bits}


def _weights_hash(folder: Path) -> str | None:
    """Of all *.safetensors in a local folder, by name."""
    digest = hashlib.sha256()
    files = sorted(folder.glob("*.safetensors"))
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest() if files else None


def _stop_ids(
    model: Any, tokenizer: Any, stop_tokens: tuple[str, ...], rows: int
) -> tuple[int, ...]:
    """The tokenizer's, the generation config's (often several) and the user's. What a model ships
    and can't draw, beyond its embeddings, is left out."""
    found: list[int] = []
    shipped = getattr(model.generation_config, "eos_token_id", None)
    for ids in (tokenizer.eos_token_id, shipped, model.config.eos_token_id):  # each one, or a list
        for i in ids if isinstance(ids, list) else [ids]:
            found += [i] if type(i) is int and 0 <= i < rows else []
    for token in stop_tokens:
        token_id = tokenizer.convert_tokens_to_ids(token)
        unknown = token_id == tokenizer.unk_token_id and token != tokenizer.unk_token
        if token_id is None or unknown or token_id >= rows:
            raise UserError(
                f"rollout.stop_tokens: {token!r} is not a token of this model; name its own, or "
                "none beside those that it ships with: --set rollout.stop_tokens=[]"
            )
        found.append(token_id)
    if not found:
        raise UserError(
            "the model names no end-of-sequence token of its vocabulary; set rollout.stop_tokens"
        )
    return tuple(dict.fromkeys(found))


def _attach_lora(model: Any, config: ModelConfig, seed: int) -> Any:
    from peft import LoraConfig, get_peft_model

    from lens_ref.rlvr.lora import fuse

    assert config.lora is not None
    torch.manual_seed(seed)
    adapter = LoraConfig(
        r=config.lora.r,
        lora_alpha=config.lora.alpha,
        target_modules=config.lora.target_modules,
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    targets = config.lora.target_modules
    try:
        attached = get_peft_model(model, adapter)
    except (ValueError, re.error) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"model.lora.target_modules = {targets!r}: {reason}") from error
    fuse(attached)
    if hasattr(attached.get_base_model().get_output_embeddings(), "lora_A"):
        raise UserError(
            f"model.lora.target_modules = {targets!r} names the output head, which is read without "
            'its adapter here; "all-linear" leaves it out'
        )
    return attached


def _no_dropout(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    # Other rates are read in the forward pass, from the module (OPT) or its config (Falcon).
    for owner in [model.config, *model.modules()]:
        for name, value in vars(owner).items():
            if "drop" in name and isinstance(value, float):
                setattr(owner, name, 0.0)
