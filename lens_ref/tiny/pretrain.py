"""Pre-train the bundled tiny policy: `python -m lens_ref.tiny.pretrain --out FOLDER --seed 0`.

The same seed, thread count, torch version and kind of CPU give the same weights, byte for byte;
the folder's PROVENANCE.json records all but the CPU, and the SHA-256 of the weights.

Chains of levels 1 + 5, 2 + 4 and 3 + 3 have the same length together, so a row holds one such pair
and no batch is padded. The position ids start again at the second chain, which is how transformers
knows that the two must not see one another.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from lens_ref import extras

extras.check_command(__name__, "pre-training")

import torch
import torch.nn.functional as F
import transformers
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from lens_ref.tiny.task import corpus
from lens_ref.tiny.tokenizer import build_tokenizer

PAIRS = ((1, 5), (2, 4), (3, 3), (4, 2), (5, 1))  # each level twice in five rows
IGNORED = -100


@dataclass(frozen=True)
class PretrainConfig:
    """Sizes and schedule of the pre-training run."""

    seed: int = 0
    steps: int = 1500
    rows: int = 65  # two chains each
    lr: float = 4e-3
    warmup: int = 100
    weight_decay: float = 0.01
    grad_clip: float = 1.0
    threads: int = 1
    hidden_size: int = 64
    layers: int = 2
    heads: int = 4
    intermediate_size: int = 256


def build_model(config: PretrainConfig, tokenizer: Qwen2Tokenizer) -> Qwen2ForCausalLM:
    """A fresh Qwen2 with tied embeddings, float32."""
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            max_position_embeddings=128,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            dtype="float32",
        )
    )


Chain = tuple[list[int], int]  # token ids (prompt, response, EOS) and the length of the prompt


def tokenized_chains(tokenizer: Qwen2Tokenizer, seed: int) -> Iterator[tuple[int, Chain]]:
    """Endless (level, chain), tokenized in slices because one call for many texts is fast."""
    stream = corpus(seed)
    while True:
        levels, problems, responses = zip(*islice(stream, 2000), strict=True)
        prompts = tokenizer(list(problems))["input_ids"]
        answers = tokenizer(list(responses))["input_ids"]
        for level, prompt, answer in zip(levels, prompts, answers, strict=True):
            yield level, ([*prompt, *answer, tokenizer.eos_token_id], len(prompt))


def batches(
    tokenizer: Qwen2Tokenizer, config: PretrainConfig
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Endless (input ids, labels, position ids), each [rows, length]; prompts have no label."""
    waiting: dict[int, list[Chain]] = {level: [] for level in range(1, 6)}
    stream = tokenized_chains(tokenizer, config.seed)

    def next_chain(level: int) -> Chain:
        while not waiting[level]:
            found, chain = next(stream)
            waiting[found].append(chain)
        return waiting[level].pop(0)

    while True:
        rows: list[tuple[list[int], list[int], list[int]]] = []
        for index in range(config.rows):
            ids, labels, positions = [], [], []
            for level in PAIRS[index % len(PAIRS)]:
                tokens, prompt_length = next_chain(level)
                ids += tokens
                labels += [IGNORED] * prompt_length + tokens[prompt_length:]
                positions += range(len(tokens))
            rows.append((ids, labels, positions))
        ids_, labels_, positions_ = zip(*rows, strict=True)
        yield torch.tensor(ids_), torch.tensor(labels_), torch.tensor(positions_)


def lr_factor(step: int, config: PretrainConfig) -> float:
    """Linear warm-up, then a cosine to 0."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    done = (step - config.warmup) / max(1, config.steps - config.warmup)
    return 0.5 * (1 + math.cos(math.pi * done))


def train(config: PretrainConfig) -> tuple[Qwen2ForCausalLM, Qwen2Tokenizer, float]:
    """Run the whole schedule; returns the model, its tokenizer and the mean loss of the last 50
    steps in nats a token."""
    torch.manual_seed(config.seed)
    tokenizer = build_tokenizer()
    model = build_model(config, tokenizer).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.lr, betas=(0.9, 0.98), weight_decay=config.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(step, config))
    losses: list[float] = []
    columns = (
        TextColumn("pre-training {task.completed}/{task.total}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        bar = progress.add_task("", total=config.steps, loss=float("nan"))
        for ids, labels, positions in islice(batches(tokenizer, config), config.steps):
            logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits
            # Row i predicts token i + 1; the first token of the second chain carries no label.
            loss = F.cross_entropy(
                logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED
            )
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            progress.update(bar, advance=1, loss=sum(losses[-50:]) / len(losses[-50:]))
    return model.eval(), tokenizer, sum(losses[-50:]) / len(losses[-50:])


def save(
    out: Path,
    config: PretrainConfig,
    model: Qwen2ForCausalLM,
    tokenizer: Qwen2Tokenizer,
    loss: float,
) -> None:
    """Write a folder that `AutoModelForCausalLM` and `AutoTokenizer` load, and PROVENANCE.json."""
    # top_k is spelled out because its default of 50 would cut the tail of a small vocabulary.
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)  # safetensors writes files only their owner can read
    tokenizer.save_pretrained(out)
    weights = (out / "model.safetensors").read_bytes()
    provenance = {
        "command": f"python -m lens_ref.tiny.pretrain --seed {config.seed}",
        "config": asdict(config),
        "parameters": model.num_parameters(),
        "final_loss_nats_per_token": round(loss, 5),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "sha256": {"model.safetensors": hashlib.sha256(weights).hexdigest()},
    }
    (out / "PROVENANCE.json").write_text(json.dumps(provenance, indent=2) + "\n")


def main() -> None:
    default = PretrainConfig()
    parser = argparse.ArgumentParser(prog="python -m lens_ref.tiny.pretrain", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write the policy to")
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--steps", type=int, default=default.steps)
    parser.add_argument("--threads", type=int, default=default.threads)
    args = parser.parse_args()
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.exit(2, f"cannot write to {args.out}: {error.strerror}; choose another --out\n")
    config = PretrainConfig(seed=args.seed, steps=args.steps, threads=args.threads)
    torch.set_num_threads(config.threads)
    torch.use_deterministic_algorithms(True)
    model, tokenizer, loss = train(config)
    save(args.out, config, model, tokenizer, loss)
    print(f"saved {model.num_parameters():,} parameters to {args.out}")


if __name__ == "__main__":
    main()
