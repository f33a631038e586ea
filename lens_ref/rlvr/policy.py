"""The policy: loading, adapters, prompts, and the log-probabilities of sampled tokens."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from lens_ref.rlvr.config import ModelConfig, PromptConfig
from lens_ref.rlvr.errors import UserError

LOGITS_CHUNK = 2**24
"""Logits computed at once (tokens × vocabulary): 64 MiB in float32."""


@dataclass
class Policy:
    """A causal language model with its tokenizer and its end-of-sequence tokens."""

    model: Any
    tokenizer: Any
    stop_ids: tuple[int, ...]  # every token that ends a response
    pad_id: int
    device: torch.device
    sha256: str | None = None  # of the weights that were loaded; None from the hub

    def trainable(self) -> dict[str, nn.Parameter]:
        """Name → parameter, of what is trained."""
        return {n: p for n, p in self.model.named_parameters() if p.requires_grad}


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


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """ "auto" → float32 on a CPU, bfloat16 elsewhere."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return torch.float32 if name == "float32" else torch.bfloat16


def model_folder(path: str) -> str:
    """The local folder or hub id behind `model.path`.

    Raises:
        UserError: a local folder without a config or without safetensors weights.
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
        UserError: a model that isn't there, or an unknown stop token.
    """
    source = model_folder(config.path)
    dtype = resolve_dtype(config.dtype, device)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        model, loading = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=dtype,
            use_safetensors=True,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
    except (OSError, ValueError, SafetensorError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise UserError(
            f"cannot load the model {config.path!r}: {first_line} "
            "(give a local folder with --model FOLDER)"
        ) from error
    if loading["missing_keys"]:  # transformers would fill them with random numbers
        some = sorted(loading["missing_keys"])[0]
        raise UserError(f"the weights of {config.path!r} are incomplete: {some} is missing")
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(model.config, name, None) not in (None, 1, 1.0):
            raise UserError(f"models with {name} are not supported: their head is not linear")
    stop_ids = _stop_ids(model, tokenizer, stop_tokens)
    # generate() falls back on what a checkpoint ships (top_p, repetition_penalty …): empty it.
    model.generation_config = GenerationConfig()
    model.to(device)
    if config.lora is not None:
        model = _attach_lora(model, config, seed)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    _no_dropout(model)
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else stop_ids[0]
    return Policy(model, tokenizer, stop_ids, pad_id, device, _weights_hash(Path(source)))


def _weights_hash(folder: Path) -> str | None:
    """Of all *.safetensors in a local folder, by name."""
    digest = hashlib.sha256()
    files = sorted(folder.glob("*.safetensors"))
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest() if files else None


def _stop_ids(model: Any, tokenizer: Any, stop_tokens: tuple[str, ...]) -> tuple[int, ...]:
    """The tokenizer's, the generation config's (often several) and the user's."""
    found: list[int] = []
    shipped = getattr(model.generation_config, "eos_token_id", None)
    shipped = shipped if isinstance(shipped, list) else [shipped]
    for token_id in [tokenizer.eos_token_id, *shipped, model.config.eos_token_id]:
        found += [token_id] if isinstance(token_id, int) else []
    for token in stop_tokens:
        token_id = tokenizer.convert_tokens_to_ids(token)
        if token_id is None or token_id == tokenizer.unk_token_id:
            raise UserError(f"rollout.stop_tokens: {token!r} is not a token of this model")
        found.append(token_id)
    if not found:
        raise UserError("the model names no end-of-sequence token; set rollout.stop_tokens")
    return tuple(dict.fromkeys(found))


def _attach_lora(model: Any, config: ModelConfig, seed: int) -> Any:
    from peft import LoraConfig, get_peft_model

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
    return get_peft_model(model, adapter)


def _no_dropout(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    # Other rates are read in the forward pass, from the module (OPT) or its config (Falcon).
    for owner in [model.config, *model.modules()]:
        for name, value in vars(owner).items():
            if "drop" in name and isinstance(value, float):
                setattr(owner, name, 0.0)


def encode_prompt(tokenizer: Any, prompt: PromptConfig, problem: str) -> tuple[int, ...]:
    """Token ids of a question, with at most one beginning-of-sequence token; may be empty.

    Raises:
        UserError: "chat" with a tokenizer that has no chat template.
    """
    if prompt.template == "chat":
        if not tokenizer.chat_template:
            raise UserError(
                "this tokenizer has no chat template; set prompt.template to text with {problem}"
            )
        messages = [{"role": "system", "content": prompt.system}] if prompt.system else []
        messages.append({"role": "user", "content": problem})
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        # the template writes its own special tokens
        ids = tokenizer(text, add_special_tokens=False).input_ids
    else:
        ids = tokenizer(prompt.template.replace("{problem}", problem)).input_ids
        if ids and ids[-1] == tokenizer.eos_token_id:  # some tokenizers close the text
            ids = ids[:-1]
        bos = tokenizer.bos_token_id
        if bos is not None and ids[:2] == [bos, bos]:  # the template wrote one, the tokenizer too
            ids = ids[1:]
    return tuple(ids)


def token_logprobs(
    model: Any, prompts: list[tuple[int, ...]], responses: list[Tensor], temperature: float
) -> tuple[list[Tensor], list[Tensor]]:
    """Log-probabilities and entropies of response tokens, at the sampling temperature.

    The logits are divided by the temperature before the softmax, as the sampler did: otherwise
    confidences and ratios would be those of another policy. Only response positions reach the
    vocabulary, in chunks: a [tokens × vocabulary] tensor of the whole batch never exists.

    Args:
        model: a transformers causal LM, with or without an adapter.
        prompts: N token id sequences.
        responses: N tensors `[L_i]` of token ids, end-of-sequence token included.

    Returns:
        Two lists of N tensors `[L_i]` in float32 nats: log-probabilities (differentiable where
        gradients are on) and detached entropies over the full vocabulary.
    """
    device = next(model.parameters()).device
    rows = [torch.cat([torch.tensor(p), r.cpu()]) for p, r in zip(prompts, responses, strict=True)]
    # Padding on the right: causal attention never sees it, so it needs no mask.
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    hidden = base.base_model(input_ids=ids, use_cache=False).last_hidden_state
    picked, targets = [], []
    for i, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        start = len(prompt)
        # the state at position t − 1 predicts token t
        picked.append(hidden[i, start - 1 : start - 1 + len(response)])
        targets.append(ids[i, start : start + len(response)])
    logprobs, entropy = _chunked(
        base.get_output_embeddings(), torch.cat(picked), torch.cat(targets), temperature
    )
    lengths = [len(response) for response in responses]
    return list(logprobs.split(lengths)), list(entropy.split(lengths))


def _chunked(
    head: nn.Module, hidden: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    size = max(1, LOGITS_CHUNK // head.weight.shape[0])

    def one(states: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        log_p = torch.log_softmax(head(states).float() / temperature, dim=-1)
        with torch.no_grad():
            entropy = torch.special.entr(log_p.exp()).sum(-1)  # 0 at p = 0
        return log_p.gather(-1, wanted.unsqueeze(-1)).squeeze(-1), entropy

    parts = []
    for states, wanted in zip(hidden.split(size), targets.split(size), strict=True):
        if torch.is_grad_enabled() and len(hidden) > size:  # recompute a chunk's logits backwards
            parts.append(checkpoint(one, states, wanted, use_reentrant=False))
        else:
            parts.append(one(states, wanted))
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
