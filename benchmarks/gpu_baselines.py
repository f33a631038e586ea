"""What the update is measured against on a GPU: plain Hugging Face + PEFT, and TRL.

Both baselines compute the loss and the gradients of one optimizer step (the clipped surrogate with
"sequence_mean", no optimizer step) from the same rows, on random weights of a model's true shape:
speed and memory depend on shapes, not on values. Each step zeroes the gradients first and leaves
its own in the adapters.

Layout, as in TRL: questions padded on the left, responses on the right, so that the responses are
the last columns. `P` and `T` are the longest question and response.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from lens_ref import grpo_loss
from lens_ref.rlvr.memory import KNOWN

CHUNK = 1024
"""Positions whose logits exist at once in the chunked baseline."""
PAD, EOS, UNK = range(3)
"""Token ids of the random models' tokenizer."""
CLIP = 0.2

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "qwen2.5-3b": {
        **KNOWN["Qwen/Qwen2.5-3B"],
        "model_type": "qwen2",
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
    },
    "llama-3.1-8b": {
        **KNOWN["meta-llama/Llama-3.1-8B-Instruct"],
        "model_type": "llama",
        "rope_parameters": LLAMA3_ROPE,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
    },
}
"""Config numbers of the public model cards, `model_type` included."""


@dataclass(frozen=True)
class Rows:
    """N questions with one response each, as token ids; a question has at least one token."""

    prompts: tuple[Tensor, ...]  # N tensors [P_i]
    responses: tuple[Tensor, ...]  # N tensors [T_i], end-of-sequence token included

    @property
    def tokens(self) -> int:
        """Tokens of all rows, without padding."""
        return sum(map(len, self.prompts)) + sum(map(len, self.responses))

    def padded(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """`(prompt_ids [N, P], prompt_mask, response_ids [N, T], response_mask)`, all int64."""

        def pad(rows: tuple[Tensor, ...], side: str) -> tuple[Tensor, Tensor]:
            ids = nn.utils.rnn.pad_sequence(list(rows), True, PAD, side)
            marks = nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], True, 0, side)
            return ids.to(device), marks.to(device)

        return *pad(self.prompts, "left"), *pad(self.responses, "right")

    def __getitem__(self, rows: slice) -> Rows:
        return Rows(self.prompts[rows], self.responses[rows])


def random_rows(prompt: int, responses: list[int], vocabulary: int, seed: int = 0) -> Rows:
    """Rows of uniform token ids, special tokens excepted: `prompt` tokens of question each, and
    responses of the given lengths."""
    generator = torch.Generator().manual_seed(seed)

    def draw(length: int) -> Tensor:
        return torch.randint(UNK + 1, vocabulary, (length,), generator=generator)

    return Rows(tuple(draw(prompt) for _ in responses), tuple(draw(n) for n in responses))


def lora_config(rank: int = 32) -> LoraConfig:
    """The recipe's adapter: all linear layers but the head, alpha = 2 r, no dropout."""
    return LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )


def build_random_model(
    shape: str | Mapping[str, Any],
    device: str | torch.device,
    dtype: torch.dtype,
    lora: LoraConfig | None = None,
    seed: int = 0,
) -> Any:
    """A causal language model with random weights, created on the device itself.

    Args:
        shape: a name in `SHAPES`, or config numbers of that kind.
        device: "meta" makes a model without storage, for counting.
        lora: an adapter to attach, in PEFT's default dtype (float32 over a bfloat16 base);
            gradient checkpointing is then on, without re-entrance.

    Returns:
        The transformers model, or the PeftModel around it.

    Raises:
        ValueError: an unknown name.
    """
    if isinstance(shape, str):
        if shape not in SHAPES:
            raise ValueError(f"unknown shape {shape!r}: one of {', '.join(SHAPES)}")
        shape = SHAPES[shape]
    config = AutoConfig.for_model(**shape, pad_token_id=PAD, eos_token_id=EOS, bos_token_id=None)
    torch.manual_seed(seed)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    if lora is None:
        return model
    adapted = get_peft_model(model, lora)
    adapted.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return adapted


def random_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of printable ASCII characters, with padding and end-of-sequence tokens."""
    pad, eos, unknown = special = ("<pad>", "<eos>", "<unk>")  # ids PAD, EOS, UNK
    ids = {word: i for i, word in enumerate([*special, *map(chr, range(33, 127))])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, eos_token=eos, unk_token=unknown
    )


def save_random_model(
    shape: str | Mapping[str, Any], folder: str | Path, device: str = "cpu", seed: int = 0
) -> None:
    """Write bfloat16 weights (safetensors in shards), config and tokenizer, for engines that load
    a folder. The weights are those of `build_random_model` with this device and seed."""
    model = build_random_model(shape, device, torch.bfloat16, seed=seed)
    model.save_pretrained(folder, max_shard_size="2GB")
    random_tokenizer().save_pretrained(folder)


def hf_peft_step(
    model: Any,
    rows: Rows,
    advantages: Tensor,
    old_logprobs: Tensor,
    micro_batch: int,
    *,
    chunked: bool = False,
    autocast: bool = False,
) -> Tensor:
    """Loss and adapter gradients as written by hand with transformers and PEFT.

    A micro-batch is padded to its own longest row.

    Args:
        model: from `build_random_model` with an adapter.
        advantages: `[N]` on the model's device.
        old_logprobs: `[N, T]` nats on the model's device; anything on padding.
        micro_batch: rows in a forward pass.
        chunked: never hold more than `CHUNK` positions' logits; otherwise those of a whole
            micro-batch exist, in float32.
        autocast: run under bfloat16 autocast, as Hugging Face's Trainer does with `bf16=True`.

    Returns:
        The detached loss, a scalar.
    """
    device = advantages.device
    model.train()
    model.zero_grad(set_to_none=True)
    total = torch.zeros((), device=device)
    logprobs = _chunked_logprobs if chunked else _full_logprobs
    for start in range(0, len(advantages), micro_batch):
        part = slice(start, start + micro_batch)
        prompt_ids, prompt_mask, ids, mask = rows[part].padded(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            new = logprobs(
                model, torch.cat([prompt_ids, ids], 1), torch.cat([prompt_mask, mask], 1), ids
            )
        loss = grpo_loss(
            new,
            old_logprobs[part, : ids.shape[1]],
            advantages[part],
            mask.bool(),
            CLIP,
            CLIP,
            denominator=len(advantages),
            validate=False,  # the checks synchronise with the GPU
        ).loss
        loss.backward()
        total += loss.detach()
    return total


def _full_logprobs(model: Any, ids: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
    """`[m, T]` float32 nats, through the logits of all response positions."""
    # one position more: the last column of the question predicts the first response token
    keep = targets.shape[1] + 1
    out = model(input_ids=ids, attention_mask=mask, use_cache=False, logits_to_keep=keep)
    return _gather(out.logits[:, :-1], targets)


def _chunked_logprobs(model: Any, ids: Tensor, mask: Tensor, targets: Tensor) -> Tensor:
    """The same numbers; the backward pass computes each chunk's logits again."""
    base = model.get_base_model()
    hidden = base.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
    states = hidden[:, -targets.shape[1] - 1 : -1].flatten(0, 1)
    head = base.get_output_embeddings()

    def chunk(state: Tensor, target: Tensor) -> Tensor:
        return _gather(head(state), target)

    pieces = zip(states.split(CHUNK), targets.flatten().split(CHUNK), strict=True)
    new = torch.cat([checkpoint(chunk, *piece, use_reentrant=False) for piece in pieces])
    return new.view_as(targets)


def _gather(logits: Tensor, targets: Tensor) -> Tensor:
    """float32 log-probabilities of the targets."""
    return logits.float().log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def make_trl(
    model: Any,
    rows: int,
    micro_batch: int,
    output_dir: str | Path,
    lora: LoraConfig | None = None,
) -> Any:
    """A GRPOTrainer that is handed its rows instead of sampling them, ready for `trl_step`.

    TRL and accelerate patch `model` for good (a fused head, autocast around its forward pass):
    hand over a model of its own, or time TRL last.

    Args:
        model: from `build_random_model`, with an adapter, or without and with `lora`. Over
            bfloat16 weights TRL runs under autocast, its default.
        rows: N, of an optimizer step; at least 2.
        micro_batch: TRL's per_device_train_batch_size; must divide N.
        output_dir: a folder that TRL may make; nothing is saved.

    Raises:
        ImportError: no TRL.
        ValueError: a micro-batch that does not divide the rows.
    """
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    if rows % micro_batch:
        raise ValueError(f"micro_batch = {micro_batch} does not divide {rows} rows: TRL needs that")

    class GivenRows(GRPOTrainer):
        def _prepare_inputs(self, inputs: Any) -> Any:
            return inputs

        def _send_telemetry(self) -> None:
            """A benchmark reports to nobody."""

    weight = next(model.parameters())
    accumulation = rows // micro_batch
    arguments = GRPOConfig(
        output_dir=str(output_dir),
        use_cpu=weight.device.type == "cpu",
        bf16=weight.dtype == torch.bfloat16,
        use_vllm=False,
        loss_type="grpo",
        beta=0.0,
        epsilon=CLIP,
        temperature=1.0,
        num_generations=rows,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=accumulation,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        report_to="none",
        save_strategy="no",
    )
    trainer = GivenRows(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["a"] * rows}),
        processing_class=random_tokenizer(),
        peft_config=lora,
    )
    # What Trainer.train() does before its first step, but for the optimizer.
    trainer.model.gradient_checkpointing_enable(
        gradient_checkpointing_kwargs=arguments.gradient_checkpointing_kwargs
    )
    trainer.model_wrapped = trainer.accelerator.prepare_model(trainer.model)
    trainer.current_gradient_accumulation_steps = accumulation
    return trainer


def trl_step(
    trainer: Any, rows: Rows, advantages: Tensor, old_logprobs: Tensor, micro_batch: int
) -> Tensor:
    """TRL's own training step on each micro-batch: its loss, metrics and backward pass.

    As in TRL, every micro-batch is padded to the longest row of the whole batch.

    Args:
        trainer: from `make_trl`.
        advantages, old_logprobs, micro_batch: as in `hf_peft_step`.

    Raises:
        ValueError: not the rows or the micro-batch that the trainer was made for.
    """
    made_for = (trainer.num_generations, trainer.args.per_device_train_batch_size)
    if (len(advantages), micro_batch) != made_for:
        raise ValueError(
            f"the trainer was made for {made_for[0]} rows in micro-batches of {made_for[1]}, "
            f"not for {len(advantages)} in micro-batches of {micro_batch}"
        )
    trainer.model_wrapped.zero_grad(set_to_none=True)
    prompt_ids, prompt_mask, ids, mask = rows.padded(advantages.device)
    batch = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": advantages,
        "old_per_token_logps": old_logprobs,
    }
    total = torch.zeros((), device=advantages.device)
    for start in range(0, len(advantages), micro_batch):
        inputs = {name: value[start : start + micro_batch] for name, value in batch.items()}
        inputs["num_items_in_batch"] = mask.sum()
        total += trainer.training_step(trainer.model_wrapped, inputs, None)
    return total


def measure(
    step: Callable[[], object], tokens: int, repeats: int, warmups: int = 2
) -> dict[str, float | None]:
    """Time a step, with CUDA events where there is a GPU.

    Args:
        step: the work; what it returns is dropped.
        tokens: tokens it processes, padding excluded.
        repeats: timed calls, after `warmups` untimed ones.

    Returns:
        Seconds (median, fastest, slowest), tokens/s at the median, and the peak of allocated GPU
        memory during the timed calls in GB (10⁹ bytes), weights included; None on a CPU.
    """
    on_gpu = torch.cuda.is_available()
    for _ in range(warmups):
        step()
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    seconds = [_seconds(step, on_gpu) for _ in range(repeats)]
    median = statistics.median(seconds)
    return {
        "seconds": median,
        "fastest": min(seconds),
        "slowest": max(seconds),
        "tokens_per_second": tokens / median,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if on_gpu else None,
    }


def _seconds(step: Callable[[], object], on_gpu: bool) -> float:
    if not on_gpu:
        began = time.perf_counter()
        step()
        return time.perf_counter() - began
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    step()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3
