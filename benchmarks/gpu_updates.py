"""Updates on random weights of a model's true shape: this project's own beside the baselines."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_baselines import (
    SHAPES,
    Rows,
    build_random_model,
    hf_peft_step,
    lora_config,
    make_trl,
    measure,
    random_rows,
    random_tokenizer,
    trl_step,
)
from lens_ref.core import Signal
from lens_ref.rlvr import memory
from lens_ref.rlvr.batch import Batch, Samples
from lens_ref.rlvr.config import (
    LoraConfig,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    RolloutConfig,
)
from lens_ref.rlvr.layers import checkpoint_layers, keep_less, layers_of
from lens_ref.rlvr.policy import Policy, make_policy
from lens_ref.rlvr.tasks import Question
from lens_ref.rlvr.update import Updater, UpdateStats

BF16_PEAK = 789e12
"""FLOP/s of an 8192³ bfloat16 product measured on an H100."""
PROMPT = 128
REPEATS = 3
Save = Callable[[dict[str, Any]], None]
TINY = {**SHAPES["qwen2.5-3b"], "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128}
"""For a try on a CPU."""


@dataclass(frozen=True)
class Work:
    """The rows of an update, as both sides take them."""

    rows: Rows
    advantages: Tensor  # [N]
    old: Tensor  # [N, T] nats

    @staticmethod
    def of(responses: list[int], vocabulary: int, device: torch.device) -> Work:
        rows = random_rows(PROMPT, responses, vocabulary)
        n = len(responses)
        signs = 1.0 - 2.0 * (torch.arange(n, device=device) % 2)
        # about what random weights give every token, so that no ratio overflows
        level = -torch.tensor(float(vocabulary)).log()
        return Work(rows, signs, level.expand(n, max(responses)).to(device).contiguous())

    def batch(self) -> Batch:
        """A question a row, with the signal in place."""
        n = len(self.advantages)
        ids = pad_sequence(list(self.rows.responses), batch_first=True).unsqueeze(1)
        lengths = torch.tensor([[len(r)] for r in self.rows.responses])
        samples = Samples(ids, lengths, self.old.cpu().unsqueeze(1), torch.zeros(n, 1).bool())
        return Batch(
            0,
            tuple(Question(str(i), "", "") for i in range(n)),
            tuple(tuple(p.tolist()) for p in self.rows.prompts),
            samples,
            old_logprobs=samples.logprobs,
            signal=Signal(self.advantages.cpu().unsqueeze(1), torch.ones(n, 1).bool()),
        )


def own_policy(shape: Any, device: torch.device, compiled: bool) -> Policy:
    """As `load_policy` makes it, from random weights."""
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    config = ModelConfig(
        lora=LoraConfig(), dtype=str(dtype).removeprefix("torch."), compile=compiled
    )
    return make_policy(
        build_random_model(shape, device, dtype), random_tokenizer(), config, device, 0
    )


class Own:
    """The trainer's whole update, optimizer step included, again and again."""

    def __init__(self, policy: Policy, work: Work, budget: int) -> None:
        rollout = RolloutConfig(max_new_tokens=work.old.shape[1])
        loss = LossConfig(micro_batch_tokens=budget)
        self.updater = Updater(policy, rollout, OptimizerConfig(lr=1e-5), loss, lambda: None)
        self.batch = work.batch()

    @property
    def budget(self) -> int:
        """Tokens at once: fewer than asked for after a shortage of memory."""
        return self.updater.token_budget

    def __call__(self) -> UpdateStats:
        return self.updater.step(self.batch, slice(None), 1000)


def flops(parameters: int, tokens_per_second: float) -> float:
    """Share of the peak that the frozen-weight minimum needs: 2N forward, 2N backward a token."""
    return 4 * parameters * tokens_per_second / BF16_PEAK


def compare(name: str, memory_gb: float, tiny: bool, save: Save) -> None:
    """An update of 4 × 4,096 tokens: Hugging Face + PEFT, TRL, and this project."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shape: Any = TINY if tiny else name
    vocabulary = 1000 if tiny else SHAPES[name]["vocab_size"]
    lengths = [32] * 4 if tiny else [4096 - PROMPT] * 4
    work = Work.of(lengths, vocabulary, device)
    tokens = work.rows.tokens
    found: dict[str, Any] = {"tokens": tokens, "rows": len(lengths), "variants": {}}
    variants = found["variants"]

    def record(label: str, step: Callable[[], object], **settings: Any) -> None:
        try:
            variants[label] = measure(step, tokens, REPEATS) | settings
            if isinstance(step, Own) and step.budget < settings["budget"]:  # memory ran out
                variants[label]["budget_fell_to"] = step.budget
            mfu = flops(found["parameters"], variants[label]["tokens_per_second"])
            variants[label]["mfu_4n"] = mfu
        except torch.OutOfMemoryError as error:
            variants[label] = {"error": str(error).splitlines()[0], **settings}
        print(label, variants[label], flush=True)
        save(found)

    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    model = build_random_model(shape, device, dtype, lora_config())
    found["parameters"] = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    for autocast in (False, True):
        for chunked, m in ((False, 4), (True, 4)):
            label = f"hf_peft{'_chunked' if chunked else ''}_m{m}{'_autocast' if autocast else ''}"
            step = lambda m=m, c=chunked, a=autocast: hf_peft_step(  # noqa: E731
                model, work.rows, work.advantages, work.old, m, chunked=c, autocast=a
            )
            record(label, step, micro_batch=m, autocast=autocast)
            memory.give_back()
    del model, step
    memory.give_back()

    best, layers = None, 0
    on_gpu = device.type == "cuda"
    for less in (False, True):
        torch.compiler.reset()
        policy = own_policy(shape, device, compiled=on_gpu)
        keep_less(less)
        layers = len(layers_of(policy.model))
        choices = [(tokens // 4, 0), (tokens // 2, 0), (tokens // 2, layers // 3), (tokens, layers)]
        for budget, recomputed in choices:
            checkpoint_layers(policy.model, recomputed)
            policy.model.train()
            label = f"lens_ref_budget{budget}_recomputed{recomputed}{'_less' if less else ''}"
            own = {"budget": budget, "recomputed": recomputed, "keeps_less": less}
            record(label, Own(policy, work, budget), **own)
            memory.give_back()
            fits = (variants[label].get("peak_gb") or 0) <= memory_gb
            speed = variants[label].get("tokens_per_second", 0.0)
            if fits and speed > variants.get(best, {}).get("tokens_per_second", 0.0):
                best = label
                if on_gpu:
                    found["profile"] = kernels(Own(policy, work, budget))
        del policy
        memory.give_back()
    found["best_within_memory"], found["memory_limit_gb"] = best, memory_gb
    policy = own_policy(shape, device, compiled=False)
    checkpoint_layers(policy.model, layers)
    policy.model.train()
    label = f"lens_ref_uncompiled_recomputed{layers}"
    record(label, Own(policy, work, tokens // 4), budget=tokens // 4, recomputed=layers)
    del policy
    memory.give_back()

    try:  # last: it patches the model for good
        model = build_random_model(shape, device, dtype, lora_config())
        for m in (4, 1):
            with tempfile.TemporaryDirectory() as folder:
                trainer = make_trl(model, len(lengths), m, folder)
                record(
                    f"trl_m{m}",
                    lambda m=m, t=trainer: trl_step(t, work.rows, work.advantages, work.old, m),
                    micro_batch=m,
                )
                del trainer
            memory.give_back()
    except Exception as error:  # TRL's own failure must not lose the other figures
        variants["trl"] = {"error": f"{type(error).__name__}: {error}"}
        print("trl", variants["trl"], flush=True)
    found["ratios"] = ratios(variants, best)
    save(found)


def ratios(variants: dict[str, Any], best: str | None) -> dict[str, float]:
    """This project's tokens/s within the memory limit over the baselines', the fastest of each."""

    def speed(prefix: str, marked: bool = True) -> float:
        found = [
            v.get("tokens_per_second", 0.0)
            for label, v in variants.items()
            if label.startswith(prefix) and (marked or "autocast" not in label)
        ]
        return max(found, default=0.0)

    own = variants[best]["tokens_per_second"] if best else 0.0
    others = {
        "hf_peft": speed("hf_peft", marked=False),
        "hf_peft_autocast": speed("hf_peft"),
        "trl": speed("trl_m"),
    }
    return {name: own / other for name, other in others.items() if other}


def growth(name: str, tiny: bool, save: Save) -> None:
    """Tokens/s and memory against response length (16,384 tokens an update), group size (answers of
    512 tokens) and vocabulary (4 answers of 1,024 tokens)."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    base = dict(TINY if tiny else SHAPES[name])
    found: dict[str, Any] = {
        "by_length": {},
        "by_group": {},
        "by_vocabulary": {},
        "recomputed": "all",
    }
    total, budget = (512, 256) if tiny else (16384, 4096)
    policy = own_policy(base, device, compiled=device.type == "cuda")
    checkpoint_layers(policy.model, len(layers_of(policy.model)))
    policy.model.train()
    for length in (16, 32) if tiny else (512, 1024, 2048, 4096):
        rows = [max(1, length - PROMPT)] * (total // length)
        work = Work.of(rows, 1000, device)
        found["by_length"][length] = measure(Own(policy, work, budget), work.rows.tokens, REPEATS)
        print("length", length, found["by_length"][length], flush=True)
        save(found)
    for group in (2, 4) if tiny else (8, 16, 32, 64):
        work = Work.of([32 if tiny else 512 - PROMPT] * group, 1000, device)
        found["by_group"][group] = measure(Own(policy, work, budget), work.rows.tokens, REPEATS)
        print("group", group, found["by_group"][group], flush=True)
        save(found)
    del policy
    memory.give_back()
    for vocabulary in (2000, 4000) if tiny else (32768, 151936, 262144):
        policy = own_policy({**base, "vocab_size": vocabulary}, device, device.type == "cuda")
        checkpoint_layers(policy.model, len(layers_of(policy.model)))
        policy.model.train()
        weights = sum(p.numel() * p.element_size() for p in policy.model.parameters())
        work = Work.of([32 if tiny else 1024 - PROMPT] * 4, 1000, device)
        result = measure(Own(policy, work, budget), work.rows.tokens, REPEATS)
        peak = result["peak_gb"]
        result["beside_weights_gb"] = peak and peak - weights / 1e9
        found["by_vocabulary"][vocabulary] = result
        print("vocabulary", vocabulary, result, flush=True)
        save(found)
        del policy
        memory.give_back()


FAMILIES = {
    "attention": ("flash", "fmha", "attention"),
    "matrix products": ("gemm", "nvjet", "cutlass", "xmma"),
    "fused elementwise": ("triton_",),
}


def kernels(step: Callable[[], object]) -> dict[str, Any]:
    """GPU seconds of one update by family of kernels, and how long the GPU was idle."""
    step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as trace:
        step()
        torch.cuda.synchronize()
    shares: dict[str, float] = dict.fromkeys([*FAMILIES, "other"], 0.0)
    top: dict[str, float] = {}
    for event in trace.key_averages():
        seconds = event.self_device_time_total / 1e6
        if seconds <= 0 or event.device_type != torch.autograd.DeviceType.CUDA:
            continue
        lowered = event.key.lower()
        family = next(
            (name for name, marks in FAMILIES.items() if any(m in lowered for m in marks)), "other"
        )
        shares[family] += seconds
        top[event.key[:90]] = top.get(event.key[:90], 0.0) + seconds
    wall = measure(step, 1, 1, warmups=0)["seconds"]
    ranked = sorted(top.items(), key=lambda item: -item[1])[:15]
    return {"seconds": shares, "busy": sum(shares.values()), "wall": wall, "top": dict(ranked)}


def advantages_seconds() -> dict[str, float]:
    """LENS advantages of the paper's batch, 128 × 16, from tensors on the CPU."""
    from benchmarks.methods import milliseconds, rollouts
    from lens_ref import lens_advantages

    batch = replace(rollouts(), token_logprobs=None, mask=None, entropy=None)
    return {"seconds": milliseconds(lambda: lens_advantages(batch)) / 1e3}
