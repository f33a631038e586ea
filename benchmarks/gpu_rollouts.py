"""Rollouts with vLLM, the whole step, and runs inside 24 GB."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_baselines import random_rows, save_random_model
from lens_ref import lens_advantages
from lens_ref.core import Signal
from lens_ref.rlvr import memory
from lens_ref.rlvr.bad_numbers import THREADS
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.collect import without_paths
from lens_ref.rlvr.config import Config, load
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.layers import checkpoint_layers, keep_less
from lens_ref.rlvr.metrics import mean_drift
from lens_ref.rlvr.policy import load_policy
from lens_ref.rlvr.sampler import Sampler, make_sampler
from lens_ref.rlvr.stopwatch import Stopwatch
from lens_ref.rlvr.tasks import Question
from lens_ref.rlvr.threads import at_most
from lens_ref.rlvr.update import Updater

Save = Callable[[dict[str, Any]], None]
QUESTIONS, RESPONSES, PROMPT, LENGTH = 32, 16, 128, 512


def weights(name: str, work: Path) -> Path:
    """A folder with random weights, written once."""
    folder = work / name
    if not (folder / "config.json").is_file():
        save_random_model(name, folder, "cuda")
        memory.give_back()
    return folder


def settings(folder: Path, **more: Any) -> Config:
    """LoRA of the recipe over that folder."""
    return load(
        None,
        {
            "methods": ["lens"],
            "model.path": str(folder),
            "model.lora": {"r": 32, "alpha": 64},
            "rollout.questions": QUESTIONS,
            "rollout.responses": RESPONSES,
            "rollout.max_new_tokens": LENGTH,
            "rollout.engine": "vllm",
            "loss.updates_per_rollout": 1,
            "loss.micro_batch_tokens": 16384,
            "optimizer.lr": 1e-5,
        }
        | more,
    )


def rollouts(work: Path, save: Save) -> None:
    """vLLM alone and through this project, the sync and the probe."""
    from vllm import SamplingParams, TokensPrompt

    config, policy, sampler, found = engine(work)
    prompts = some_prompts()
    perturb(policy, 0.01)
    found["sync_seconds"] = timed(sampler.sync)
    found["later_sync_seconds"] = []
    for _ in range(4):
        perturb(policy, 1e-3)
        found["later_sync_seconds"].append(timed(sampler.sync))
    try:
        found["verify_seconds"] = timed(lambda: sampler.verify(prompts[:4]))
    except UserError as error:
        found["verify_error"] = str(error)

    def alone(logprobs: int | None) -> dict[str, float]:
        """What vLLM gives without this project: every answer 512 tokens long."""
        parameters = SamplingParams(
            n=RESPONSES, temperature=1.0, max_tokens=LENGTH, ignore_eos=True, logprobs=logprobs,
            detokenize=False,
        )  # fmt: skip
        texts = [TokensPrompt(prompt_token_ids=list(p)) for p in prompts]
        began = time.perf_counter()
        out = sampler.llm.generate(texts, parameters, lora_request=sampler.request, use_tqdm=False)
        tokens = [len(answer.token_ids) for one in out for answer in one.outputs]
        return speed(time.perf_counter() - began, sum(tokens))

    def ours(seed: int, logprobs: str = "auto") -> dict[str, float]:
        vllm = replace(config.rollout.vllm, logprobs=logprobs)  # type: ignore[arg-type]
        ask(sampler, policy, replace(config, rollout=replace(config.rollout, vllm=vllm)))
        began = time.perf_counter()
        samples = sampler.sample(prompts, RESPONSES, seed)
        return speed(time.perf_counter() - began, int(samples.lengths.sum()))

    ours(0)
    labels = ("vllm_alone", "vllm_alone_logprobs", "lens_ref", "lens_ref_all_logprobs")
    runs: dict[str, list[Any]] = {label: [] for label in labels}
    for i in range(3):  # interleaved
        runs["vllm_alone"].append(alone(None))
        runs["vllm_alone_logprobs"].append(alone(0))
        runs["lens_ref"].append(ours(i))
        runs["lens_ref_all_logprobs"].append(ours(i, "all"))
        print({k: v[-1]["tokens_per_second"] for k, v in runs.items()}, flush=True)
        save(found | {"rollouts": runs})
    found["rollouts"] = runs
    middle = {
        label: statistics.median(run["tokens_per_second"] for run in of)
        for label, of in runs.items()
    }
    found["tokens_per_second"] = middle
    found["share_of_vllm_alone"] = middle["lens_ref"] / middle["vllm_alone"]
    all_told = middle["lens_ref_all_logprobs"]
    found["share_of_vllm_with_logprobs"] = all_told / middle["vllm_alone_logprobs"]
    save(found)
    sampler.close()


def step(work: Path, save: Save) -> None:
    """A step of 512 × 512 tokens by phase, with either side's old log-probabilities."""
    config, policy, sampler, found = engine(work)
    prompts = some_prompts()
    steps: dict[str, list[dict[str, float]]] = {"trainer": [], "sampler": []}
    for i in range(4):  # interleaved; the first ones compile
        for old, of in steps.items():
            of.append(whole_step(sampler, policy, config, prompts, old))
            print(old, of[-1], flush=True)
        if i:
            save(found | {f"old_from_{old}": of[1:] for old, of in steps.items()})
    sampler.close()


def some_prompts() -> tuple[tuple[int, ...], ...]:
    """`QUESTIONS` prompts of `PROMPT` random tokens."""
    rows = random_rows(PROMPT, [1] * QUESTIONS, 1000)
    return tuple(tuple(p.tolist()) for p in rows.prompts)


def ask(sampler: Any, policy: Any, config: Config) -> None:
    """Let the engine that runs serve other settings of the loss or of what it shall tell."""
    if not sampler.adopt(policy, config, PROMPT, lambda: None):
        raise RuntimeError("the engine can't serve these settings")


def speed(seconds: float, tokens: int) -> dict[str, float]:
    """What a run of sampling is recorded as."""
    return {"seconds": seconds, "tokens": tokens, "tokens_per_second": tokens / seconds}


def engine(work: Path) -> tuple[Config, Any, Any, dict[str, Any]]:
    """Settings, policy and vLLM sampler on random weights of Qwen2.5-3B, and the start-up time."""
    config = settings(weights("qwen2.5-3b", work))
    policy = load_policy(config.model, torch.device("cuda"), 0)
    keep_less(False)
    checkpoint_layers(policy.model, 0)
    policy.model.train()
    began = time.perf_counter()
    sampler = make_sampler(policy, config, PROMPT, lambda: None)
    return config, policy, sampler, {"engine_start_seconds": time.perf_counter() - began}


def whole_step(
    sampler: Sampler, policy: Any, config: Config, prompts: Any, old: Any
) -> dict[str, float]:
    """Sync, sample, old log-probabilities, advantages, update; made-up rewards."""
    loss = replace(config.loss, old_logprobs=old)
    ask(sampler, policy, replace(config, loss=loss))
    updater = Updater(policy, config.rollout, config.optimizer, loss, lambda: None)
    perturb(policy, 1e-4)
    clock = Stopwatch()

    def lap(name: str) -> None:
        torch.cuda.synchronize()
        clock.lap(name)

    sampler.sync()
    lap("sync")
    samples = sampler.sample(prompts, RESPONSES, 1)
    lap("sample")
    sampler.rest()
    questions = tuple(Question(str(i), "", "") for i in range(len(prompts)))
    batch = updater.freeze_old(Batch(0, questions, prompts, samples))
    lap("old_logprobs")
    rewards = torch.zeros(samples.lengths.shape)
    rewards[::2, :4] = 1.0
    with at_most(THREADS):  # as the trainer does it
        signal: Signal = lens_advantages(replace(batch, rewards=rewards).rollouts())
    lap("advantages")
    updater.step(replace(batch, signal=signal), slice(None), 1000)
    lap("update")
    return {
        **clock.seconds,
        "total": clock.total(),
        "tokens": int(samples.lengths.sum()),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
        "drift": mean_drift(batch),
    }


@torch.no_grad()
def perturb(policy: Any, scale: float) -> None:
    """Another adapter."""
    for parameter in policy.trainable().values():
        parameter += scale * torch.randn_like(parameter)


def timed(call: Any) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - began


class Peak:
    """The most memory that the GPU had in use, over what it had before, whoever took it."""

    def __init__(self) -> None:
        self.gb, self._done = 0.0, threading.Event()

    def __enter__(self) -> Peak:
        free, total = torch.cuda.mem_get_info()
        self._before = total - free
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            free, total = torch.cuda.mem_get_info()
            self.gb = max(self.gb, (total - free - self._before) / 1e9)

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


RECIPES_24_GB = {"qwen2.5-3b": "qwen2.5-3b-24gb", "llama-3.1-8b": "llama3.1-8b-qlora-24gb"}


def within_24_gb(name: str, work: Path) -> dict[str, Any]:
    """One rollout batch and its updates by the train command itself, 1,024-token responses."""
    folder = weights(name, work)
    data = work / "sums.jsonl"
    lines = [json.dumps({"problem": f"What is {i} + {i}?", "answer": str(2 * i)}) for i in range(9)]
    data.write_text("\n".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "lens_ref.train", "--config", RECIPES_24_GB[name]]
    command += ["--model", str(folder.resolve()), "--data", str(data), "--steps", "3"]
    run = f"run-{name}-{int(time.time())}"
    command += ["--out", str(work), "--name", run, "--debug", "--set"]
    command += [
        'prompt.template="{problem}"',
        'prompt.system=""',
        "rollout.stop_tokens=[<eos>]",
    ]
    command += ["rollout.max_drift=10", "rollout.questions=3", "loss.updates_per_rollout=3"]
    command += ["checkpoint.every=0"]
    with Peak() as peak:
        done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    print(done.stdout[-3000:], done.stderr[-3000:], flush=True)
    rows = []
    for path in work.glob(f"{run}/*/metrics.csv"):
        rows = path.read_text(encoding="utf-8").splitlines()
    return {
        "status": done.returncode,
        "peak_gb": peak.gb,
        "train_command": without_paths("python " + " ".join(command[1:])),
        "metrics": rows,
    }
