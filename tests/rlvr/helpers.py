"""Small models, tokenizers, verifiers and batches that the tests of the training system share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from lens_ref import Signal, methods
from lens_ref.rlvr.batch import Batch, Samples
from lens_ref.rlvr.config import (
    Config,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    RolloutConfig,
    load,
)
from lens_ref.rlvr.grading import grade
from lens_ref.rlvr.policy import Policy, load_policy
from lens_ref.rlvr.prompts import encode_prompt
from lens_ref.rlvr.sampler import HFSampler
from lens_ref.rlvr.tasks import Question, load_questions
from lens_ref.rlvr.update import Updater
from lens_ref.verifier import Verdict, extract_boxed

transformers_logging.disable_progress_bar()

CPU = torch.device("cpu")
PAD, EOS, BOS, HE, LLO, HELLO, A, B = range(8)
WORDS = ["<pad>", "<eos>", "<s>", "he", "llo", "hello", "a", "b"]


def no_stop() -> None:
    """A check that never asks to stop."""


# --- models ---------------------------------------------------------------------------------------


class MarkovModel(nn.Module):
    """A causal model whose logits after token i are row i of a table, whatever came before."""

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.as_tensor(table, dtype=torch.float32))
        size = self.table.shape[1]
        self.head = nn.Linear(size, size, bias=False)
        self.head.weight.data.copy_(torch.eye(size))
        self.head.requires_grad_(False)
        self.seen: list[Tensor] = []  # every batch of ids that was passed forward

    def base_model(self, input_ids: Tensor, use_cache: bool) -> Any:
        self.seen.append(input_ids)

        class Output:
            last_hidden_state = self.table[input_ids]

        return Output

    def get_output_embeddings(self) -> nn.Module:
        return self.head


SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 1, "intermediate_size": 32},
    "qwen2": {"num_key_value_heads": 1, "intermediate_size": 32},
    "gpt2": {"n_positions": 64},
    "opt": {"ffn_dim": 32, "max_position_embeddings": 64, "word_embed_proj_dim": 16},
    "gpt_neox": {"intermediate_size": 32},
    "falcon": {},
}


def save_model(folder: Path, kind: str, **config: Any) -> Path:
    """Save a random two-layer model of this architecture, with a tokenizer, as a hub would."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    tokens = {"vocab_size": len(WORDS), "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": 0}
    torch.manual_seed(0)
    shape = AutoConfig.for_model(kind, **{**sizes, **tokens, **SHAPES[kind], **config})
    AutoModelForCausalLM.from_config(shape).save_pretrained(folder)
    toy_tokenizer().save_pretrained(folder)
    return folder


def toy_tokenizer(**options: Any) -> PreTrainedTokenizerFast:
    """Greedy over a toy vocabulary: "hello" is one token, though "he" and "llo" are two more."""
    bpe = models.BPE(
        {**{word: i for i, word in enumerate(WORDS)}, "h": 8, "e": 9, "l": 10, "o": 11, "ll": 12},
        [("h", "e"), ("l", "l"), ("ll", "o"), ("he", "llo")],
    )
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special, **options)


def load_tiny(**model: Any) -> Policy:
    """A fresh copy of the bundled policy."""
    return load_policy(ModelConfig(**model), CPU, 0)


# --- batches --------------------------------------------------------------------------------------


class ExactVerifier:
    """The verifier's interface in this process: the last box must equal the gold to the letter."""

    def __init__(self, **settings: object) -> None:
        self.counts: dict[str, int] = {}

    def __enter__(self) -> ExactVerifier:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def grade(self, golds: Sequence[str], texts: Sequence[str]) -> list[Verdict]:
        return [self._one(gold, extract_boxed(t)) for gold, t in zip(golds, texts, strict=True)]

    def check_golds(self, golds: Sequence[str]) -> list[bool]:
        return [bool(gold.strip()) for gold in golds]

    def _one(self, gold: str, answer: str | None) -> Verdict:
        if answer is None:
            return Verdict(0.0, "no_answer")
        return Verdict(1.0, "correct") if answer == gold else Verdict(0.0, "wrong")


class ZeroVerifier(ExactVerifier):
    """A broken reward: nothing is ever right."""

    def _one(self, gold: str, answer: str | None) -> Verdict:
        return Verdict(0.0, "wrong")


def tiny_questions(count: int = 8) -> tuple[Question, ...]:
    return load_questions("tiny", ExactVerifier(), limit=count).items


def tiny_sampler(policy: Policy, **config: Any) -> HFSampler:
    return HFSampler(policy, RolloutConfig(**{"max_new_tokens": 40, **config}), no_stop)


def tiny_updater(policy: Policy, **loss: Any) -> Updater:
    rollout = RolloutConfig(questions=8, responses=4, max_new_tokens=40)
    return Updater(policy, rollout, OptimizerConfig(lr=1e-3), LossConfig(**loss), no_stop)


REWARDS = [[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]] * 2


def sampled_batch(policy: Policy) -> Batch:
    """Eight questions, four real answers each, with old log-probabilities; no signal yet.

    The rewards are made up, so that all kinds of groups are there whatever the policy knows.
    """
    items = tiny_questions(8)
    template = Config().prompt
    prompts = tuple(encode_prompt(policy.tokenizer, template, q.problem) for q in items)
    samples = tiny_sampler(policy).sample(prompts, 4, seed=3)
    batch = grade(Batch(0, items, prompts, samples), policy.tokenizer, ExactVerifier())
    batch = replace(batch, rewards=torch.tensor(REWARDS, dtype=torch.float32))
    return tiny_updater(policy).freeze_old(batch)


def hand_batch(
    rewards: Sequence[Sequence[float]],
    lengths: Sequence[Sequence[int]],
    token_logprob: Any = -1.0,
    reasons: Any = (),
    truncated: Any = None,
    vocabulary: int = len(WORDS),
) -> Batch:
    """A batch without a model: every token of a response has the same log-probability.

    `token_logprob` is a number or `[B][G]`. Ids are arbitrary, prompts are one token long.
    """
    reward, length = torch.tensor(rewards), torch.tensor(lengths)
    shape = (*length.shape, int(length.max()))
    ids = torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(0))
    each = torch.as_tensor(token_logprob).float().expand(shape[:2]).unsqueeze(-1).expand(shape)
    cut = torch.zeros(shape[:2], dtype=torch.bool) if truncated is None else torch.tensor(truncated)
    questions = tuple(Question(f"q{b}", f"problem {b}", "1", b + 1) for b in range(shape[0]))
    return Batch(
        index=0,
        questions=questions,
        prompts=((A,),) * shape[0],
        samples=Samples(ids, length, each.clone(), cut),
        texts=tuple(tuple(f"text {b}.{g}" for g in range(shape[1])) for b in range(shape[0])),
        reasons=tuple(map(tuple, reasons)),
        rewards=reward.float(),
        old_logprobs=each.clone(),
    )


def signal(batch: Batch, method: str, **hyperparameters: Any) -> Signal:
    """The method's advantages for a batch."""
    return methods.get(method, **hyperparameters)(batch.rollouts())


def small_config(**overrides: Any) -> Config:
    """Eight updates on 16 questions of four answers: half a second. Dots are written __."""
    base: dict[str, Any] = {
        "methods": ["lens"],
        "steps": 8,
        "data.train_questions": 40,
        "data.test_questions": 5,
        "rollout.questions": 16,
        "rollout.responses": 4,
        "rollout.max_new_tokens": 12,
        "optimizer.lr": 1e-3,
        "optimizer.warmup_updates": 2,
        "loss.micro_batch_tokens": 256,
        "eval.every": 4,
        "eval.n": 2,
        "checkpoint.every": 4,
    }
    return load(None, base | {key.replace("__", "."): v for key, v in overrides.items()})
