"""A tiny policy, a task whose groups are negative, mixed and correct, and a trainer that writes
down what it saw."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig

from lens_ref.core.groups import Rollouts
from lens_ref.engines.trl import LensGRPOTrainer

WORDS = ["<pad>", "<eos>", "never", "some", "always", *"abcdefghijklm"]
GROUP = 4


def policy(folder: Path) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    """The same random weights every time, and a tokenizer of a word a token."""
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>"
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        initializer_range=0.3,
        tie_word_embeddings=False,
        eos_token_id=1,
        pad_token_id=0,
    )
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    model.config._name_or_path = str(folder)  # where TRL loads a reference policy from
    return model, tokenizer


def questions(count: int = 16) -> Dataset:
    """Prompts by turns: no answer is right, answers that begin with an odd token are, all are."""
    kinds = [("never", "some", "never", "always")[i % 4] for i in range(count)]
    prompts = [f"{kind} {'abcdefghijklm'[i % 13]}" for i, kind in enumerate(kinds)]
    return Dataset.from_dict({"prompt": prompts, "kind": kinds})


def grade(completion_ids: list[list[int]], kind: list[str], **_: Any) -> list[float]:
    """The reward function of `questions`."""
    fixed = {"never": 0.0, "always": 1.0}
    pairs = zip(completion_ids, kind, strict=True)
    return [fixed.get(k, float(ids[0] % 2)) for ids, k in pairs]


def settings(folder: Path, **changes: Any) -> GRPOConfig:
    """Four groups of four a batch, sampled at 0.7; two steps on a CPU."""
    plain = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 16,
        "num_generations": GROUP,
        "max_completion_length": 6,
        "temperature": 0.7,
        "shuffle_dataset": False,  # so that every batch has each kind of question
        "max_steps": 2,
        "learning_rate": 0.01,
        "lr_scheduler_type": "constant",
        "loss_type": "grpo",
        "scale_rewards": "none",
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
    }
    return GRPOConfig(**{**plain, **changes})


class Recorder(LensGRPOTrainer):
    """Writes down every batch of responses: TRL's own output, the rewards, and log-probabilities
    from a forward pass that shares nothing with TRL or the adapter."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.batches: list[dict[str, Tensor]] = []
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        kept = {k: v.clone() for k, v in output.items() if isinstance(v, Tensor)}
        kept["rewards"] = self.scores.nansum(-1)
        kept["own_logprobs"], kept["own_entropy"] = self.own_forward(output)
        kept["table"] = torch.tensor(list(self._logs["advantages"]))
        self.batches.append(kept)
        return output

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        self.scores = super()._calculate_rewards(*args, **kwargs)
        return self.scores

    @torch.no_grad()
    def own_forward(self, output: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """`[N, T]` log-probabilities and entropies of the current policy at the temperature."""
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
        attention = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
        logits = self.model(input_ids=ids, attention_mask=attention).logits.double()
        width = output["completion_ids"].shape[1]
        log_p = (logits[:, -width - 1 : -1] / self.temperature).log_softmax(-1)
        chosen = log_p.gather(-1, output["completion_ids"].unsqueeze(-1)).squeeze(-1)
        return chosen, -(log_p.exp() * log_p).sum(-1)


def trainer(folder: Path, method: dict[str, Any] | None = None, **changes: Any) -> Recorder:
    """A recording trainer on the tiny policy.

    Args:
        method: the arguments that LensGRPOTrainer adds; default: LENS as printed.
        changes: of the GRPOConfig; `peft_config`, `rollout_func`, `reward_funcs` and
            `eval_dataset` go to the trainer.
    """
    extra = {
        name: changes.pop(name)
        for name in ("peft_config", "rollout_func", "eval_dataset")
        if name in changes
    }
    reward_funcs = changes.pop("reward_funcs", grade)
    model, tokenizer = policy(folder / f"policy-{os.environ.get('RANK', 0)}")
    return Recorder(
        model,
        reward_funcs,
        settings(folder / "out", **changes),
        questions(),
        processing_class=tokenizer,
        **extra,
        **(method or {}),
    )


def grouped(batch: dict[str, Tensor], logprobs: str = "own_logprobs") -> Rollouts:
    """The batch of one process as groups, by plain reshaping: rows come group after group."""
    mask = batch["completion_mask"].bool()
    tokens = batch[logprobs].double().masked_fill(~mask, 0)
    last = batch["completion_ids"].gather(1, mask.sum(1, keepdim=True) - 1)
    width = mask.shape[1]
    return Rollouts(
        rewards=batch["rewards"].double().view(-1, GROUP),
        logprobs=tokens.sum(1).view(-1, GROUP),
        lengths=mask.sum(1).view(-1, GROUP),
        token_logprobs=tokens.view(-1, GROUP, width),
        mask=mask.view(-1, GROUP, width),
        entropy=batch["own_entropy"].view(-1, GROUP, width),
        truncated=(last > 1).view(-1, GROUP),
    )
