"""A stand-in for the `vllm` package on a CPU: the part of its contract that the sampler uses, with
a real model behind it, and with the faults that real engines have had, each behind a switch.

It samples token by token from transformers' model with the adapter that peft loads from the
request's folder; nothing is shared with the trainer but files.
"""

from __future__ import annotations

import copy
import importlib.machinery
import json
import math
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

from lens_ref.rlvr import sampler, vllm_engine

CARD = 80_000_000_000
POOL = 10_000_000_000
"""Bytes of weights and cache that sleep gives back."""
KEYWORDS = {
    "dtype",
    "quantization",
    "trust_remote_code",
    "enable_lora",
    "max_lora_rank",
    "max_loras",
    "logprobs_mode",
    "generation_config",
    "max_model_len",
    "max_num_seqs",
    "gpu_memory_utilization",
    "kv_cache_memory_bytes",
    "enable_sleep_mode",
    "compilation_config",
    "enforce_eager",
    "enable_prefix_caching",
    "disable_log_stats",
    "seed",
}
PACKED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


@dataclass(frozen=True)
class Faults:
    """What is wrong with the engine."""

    ignores_adapter: bool = False  # serves the base model
    stale_weights: bool = False  # the first adapter stays in the buffers
    stale_prefixes: bool = False  # the buffers are right; answers still come from the first adapter
    forgets_layer: str = ""  # an adapted layer that is not loaded
    raw_logprobs: bool = False  # before the temperature
    one_logprob: Any = 0.0  # in the place of an answer's first log-probability
    one_end_token: bool = False  # the tokenizer's alone
    drops_end_token: bool = False
    retokenises: bool = False  # hands back the ids of the decoded text


@dataclass
class SamplingParams:
    """The fields that the sampler may set."""

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    flat_logprobs: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True


@dataclass(frozen=True)
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str


@dataclass
class Fake:
    """What tests look at."""

    faults: Faults
    engines: list[Any] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of the adapters that were loaded
    pinning: Any = field(
        default_factory=lambda: SimpleNamespace(is_pin_memory_available=lambda: True)
    )
    loads: list[tuple[bool, int]] = field(default_factory=list)  # pinned?, threads
    asked: list[tuple[int, int | None]] = field(default_factory=list)  # (n, logprobs) a request
    slept: bool = False  # an engine with sleep mode has been in this process

    @property
    def llm(self) -> Any:
        return self.engines[-1]


def install(monkeypatch: pytest.MonkeyPatch, **faults: Any) -> Fake:
    """Put the stand-in where `import vllm` finds it, and let the CPU pass for a GPU."""
    fake = Fake(Faults(**faults))

    class LLM(FakeLLM):
        def __init__(self, model: str, **keywords: Any) -> None:
            super().__init__(fake, model, **keywords)

    vllm = ModuleType("vllm")
    vllm.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    vllm.__dict__.update(
        LLM=LLM, SamplingParams=SamplingParams, TokensPrompt=dict, __version__="0.20.2"
    )
    parts = {
        "vllm": vllm,
        "vllm.lora": ModuleType("vllm.lora"),
        "vllm.lora.request": SimpleNamespace(LoRARequest=LoRARequest),
        "vllm.distributed": ModuleType("vllm.distributed"),
        "vllm.distributed.parallel_state": SimpleNamespace(
            cleanup_dist_env_and_memory=lambda: fake.events.append("clean up")
        ),
        "vllm.lora.lora_model": fake.pinning,
        "vllm.device_allocator": ModuleType("vllm.device_allocator"),
        "vllm.device_allocator.cumem": SimpleNamespace(
            CuMemAllocator=SimpleNamespace(
                get_instance=lambda: SimpleNamespace(get_current_usage=lambda: POOL)
            )
        ),
    }
    for name, module in parts.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sampler, "on_gpu", lambda policy: True)
    monkeypatch.setattr(vllm_engine, "card_bytes", lambda policy: CARD)
    return fake


class FakeLLM:
    """`vllm.LLM`, with its engine and its worker."""

    def __init__(self, fake: Fake, model: str, **keywords: Any) -> None:
        unknown = keywords.keys() - KEYWORDS
        if unknown:
            raise TypeError(f"unexpected keyword arguments {sorted(unknown)}")
        torch.manual_seed(keywords["seed"])  # as vLLM does, in the process that starts it
        self.fake, self.faults, self.keywords = fake, fake.faults, {"model": model, **keywords}
        if keywords["enable_sleep_mode"]:
            assert not fake.slept, "Sleep mode can only be used for one instance per process."
            fake.slept = True
        self.base = AutoModelForCausalLM.from_pretrained(model).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.loaded: dict[int, LoRARequest] = {}
        self.first: Any = None  # the model with the first adapter
        self.models: dict[int, Any] = {}
        self.queue: list[tuple[int, list[int], SamplingParams, LoRARequest | None]] = []
        self.count, self.half, self.asleep, self.fresh_prefixes = 0, 0, False, True
        self.llm_engine = self
        self.engine_core = SimpleNamespace(shutdown=lambda: fake.events.append("shutdown"))
        self.manager = SimpleNamespace(lora_index_to_id=[None], modules={}, packed_modules={})
        fake.engines.append(self)
        fake.events.append("start")

    # --- adapters ---------------------------------------------------------------------------------

    def add_lora(self, request: LoRARequest) -> bool:
        self._awake("add_lora")
        self.fake.names.append(request.lora_name)
        pinned = self.fake.pinning.is_pin_memory_available()
        self.fake.loads.append((pinned, torch.get_num_threads()))
        assert len(self.loaded) < self.keywords["max_loras"]
        path = Path(request.lora_path)
        config = json.loads((path / "adapter_config.json").read_text("utf-8"))
        if config["r"] > self.keywords["max_lora_rank"]:
            raise ValueError(f"LoRA rank {config['r']} is greater than max_lora_rank")
        model = PeftModel.from_pretrained(copy.deepcopy(self.base), str(path)).eval()
        self.first = self.first or model
        self.models[request.lora_int_id] = model
        self.loaded[request.lora_int_id] = request
        self.manager.lora_index_to_id[0] = request.lora_int_id
        if not (self.faults.stale_weights and self.manager.modules):
            self._fill_buffers(load_file(path / "adapter_model.safetensors"), config)
        self.fresh_prefixes = False
        return True

    def _fill_buffers(self, tensors: dict[str, Tensor], config: dict[str, Any]) -> None:
        scale, rank = config["lora_alpha"] / config["r"], self.keywords["max_lora_rank"]
        self.manager.modules, self.manager.packed_modules = {}, {}
        for name in (n for n in tensors if n.endswith("lora_A.weight")):
            layer = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            parent, _, leaf = layer.rpartition(".")
            pack = next((p for p, parts in PACKED.items() if leaf in parts), None)
            names = [f"{parent}.{part}" for part in PACKED[pack]] if pack else [layer]
            slot = f"{parent}.{pack}" if pack else layer
            if pack:
                self.manager.packed_modules[slot] = names
            module = self.manager.modules.setdefault(
                slot, SimpleNamespace(lora_a_stacked=[None] * 3, lora_b_stacked=[None] * 3)
            )
            a, b = tensors[name], tensors[name.replace("lora_A", "lora_B")] * scale
            a_buffer = torch.zeros(1, 1, rank, a.shape[1], dtype=a.dtype)
            b_buffer = torch.zeros(1, 1, b.shape[0], rank, dtype=b.dtype)
            if leaf != self.faults.forgets_layer:
                a_buffer[0, 0, : a.shape[0]], b_buffer[0, 0, :, : b.shape[1]] = a, b
            i = names.index(layer)
            module.lora_a_stacked[i], module.lora_b_stacked[i] = a_buffer, b_buffer

    def remove_lora(self, lora_id: int) -> bool:
        self._awake("remove_lora")
        self.models.pop(lora_id)
        return self.loaded.pop(lora_id, None) is not None

    def list_loras(self) -> set[int]:
        return set(self.loaded)

    def reset_prefix_cache(self) -> bool:
        self.fresh_prefixes = True
        return not self.queue

    def collective_rpc(self, method: Any, args: tuple[Any, ...] = ()) -> list[Any]:
        runner = SimpleNamespace(lora_manager=SimpleNamespace(_adapter_manager=self.manager))
        return [method(SimpleNamespace(model_runner=runner), *args)]

    # --- memory -----------------------------------------------------------------------------------

    def sleep(self, level: int) -> None:
        assert level == 1
        assert self.keywords["enable_sleep_mode"]
        self._awake("sleep")
        self.asleep = True

    def wake_up(self) -> None:
        self.asleep = False
        self.fake.events.append("wake_up")

    def _awake(self, event: str) -> None:
        if self.asleep:
            raise RuntimeError(f"{event} while the engine sleeps")
        self.fake.events.append(event)

    # --- requests ---------------------------------------------------------------------------------

    def enqueue(
        self,
        prompts: list[dict[str, list[int]]],
        parameters: list[SamplingParams],
        lora_request: LoRARequest | None,
        use_tqdm: bool,
    ) -> list[str]:
        self._awake("enqueue")
        assert not use_tqdm
        assert self.fresh_prefixes
        names = []
        for prompt, asked in zip(prompts, parameters, strict=True):
            ids = prompt["prompt_token_ids"]
            assert asked.seed is None
            if len(ids) >= self.keywords["max_model_len"]:
                raise ValueError("the prompt is longer than the maximum model length")
            self.queue.append((self.count, ids, asked, lora_request))
            self.fake.asked.append((asked.n, asked.logprobs))
            names.append(f"{self.count}-internal")
            self.count += 1
        self.half = (len(self.queue) + 1) // 2
        return names

    def has_unfinished_requests(self) -> bool:
        return bool(self.queue)

    def abort_request(self, names: list[str], internal: bool) -> None:
        assert internal
        gone = {int(name.removesuffix("-internal")) for name in names}
        self.queue = [entry for entry in self.queue if entry[0] not in gone]
        self.fake.events.append("abort")

    def step(self) -> list[Any]:
        """Half of what was asked for, newest first."""
        now, self.queue = self.queue[-self.half :], self.queue[: -self.half]
        unfinished = SimpleNamespace(finished=False)
        kinds = list({id(entry[2]): None for entry in now})
        answers = [self._answer([e for e in now if id(e[2]) == kind]) for kind in kinds]
        return [unfinished, *reversed([output for outputs in answers for output in outputs])]

    def _serving(self, request: LoRARequest | None) -> Any:
        if request is None or self.faults.ignores_adapter:
            return self.base
        assert Path(request.lora_path).is_dir()
        if self.faults.stale_prefixes:
            return self.first
        return self.models[request.lora_int_id]

    @torch.no_grad()
    def _answer(self, entries: list[tuple[int, list[int], SamplingParams, Any]]) -> list[Any]:
        parameters, model = entries[0][2], self._serving(entries[0][3])
        prompts = [torch.tensor(ids) for _, ids, _, _ in entries for _ in range(parameters.n)]
        rows = pad_sequence(prompts, batch_first=True, padding_side="left")
        lengths = torch.tensor([len(ids) for ids in prompts])
        width, raw = rows.shape[1], self.faults.raw_logprobs
        raw = raw or self.keywords["logprobs_mode"] != "processed_logprobs"
        prompt_scores = torch.log_softmax(_logits(model, rows, lengths), -1)[:, :-1]
        prompt_scores = prompt_scores.gather(-1, rows[:, 1:].unsqueeze(-1)).squeeze(-1)
        ends = [] if parameters.ignore_eos else [self.tokenizer.eos_token_id]
        ends += [] if self.faults.one_end_token else parameters.stop_token_ids or []
        found, done = [], torch.zeros(len(rows), dtype=torch.bool)
        for _ in range(parameters.max_tokens or 0):
            logits = _logits(model, rows, lengths)[:, -1]
            sampled_from = torch.log_softmax(logits / parameters.temperature, -1)
            drawn = torch.multinomial(sampled_from.exp(), 1)
            reported = torch.log_softmax(logits, -1) if raw else sampled_from
            found.append(reported.gather(-1, drawn))
            rows, lengths = torch.cat([rows, drawn], -1), lengths + 1
            done |= torch.isin(drawn[:, 0], torch.tensor(ends))
            if bool(done.all()):
                break
        logprobs, outputs = torch.cat(found, -1), []
        for i, (number, ids, _, _) in enumerate(entries):
            own = range(i * parameters.n, (i + 1) * parameters.n)
            answers = [
                self._completion(j - own[0], rows[j, width:].tolist(), logprobs[j].tolist(), ends)
                for j in own
            ]
            if parameters.logprobs is None:
                for each in answers:
                    each.logprobs = None
            scores = prompt_scores[own[0], width - len(ids) :].tolist()
            known = [
                {token: SimpleNamespace(logprob=score)}
                for token, score in zip(ids[1:], scores, strict=True)
            ]
            outputs.append(
                SimpleNamespace(
                    request_id=str(number),
                    finished=True,
                    outputs=answers[::-1],
                    prompt_logprobs=[None, *known],
                )
            )
        return outputs

    def _completion(
        self, index: int, ids: list[int], logprobs: list[Any], ends: list[int]
    ) -> SimpleNamespace:
        stop = next((k for k, token in enumerate(ids) if token in ends), None)
        length = len(ids) if stop is None else stop + 1
        ids, logprobs = ids[:length], logprobs[:length]
        if self.faults.one_logprob is None or math.isnan(self.faults.one_logprob):
            logprobs[0] = self.faults.one_logprob
        flat = SimpleNamespace(token_ids=list(ids), logprobs=list(logprobs))
        if self.faults.drops_end_token and stop is not None:
            ids = ids[:-1]
            flat = SimpleNamespace(token_ids=ids, logprobs=logprobs[:-1])
        if self.faults.retokenises:
            ids = self.tokenizer(self.tokenizer.decode(ids), add_special_tokens=False).input_ids
        return SimpleNamespace(
            index=index,
            token_ids=ids,
            logprobs=flat,
            finish_reason="length" if stop is None else "stop",
        )


def _logits(model: Any, rows: Tensor, lengths: Tensor) -> Tensor:
    """`[N, T, V]` of rows that are padded on the left."""
    position = torch.arange(rows.shape[1]) - (rows.shape[1] - lengths).unsqueeze(-1)
    return model(
        input_ids=rows, attention_mask=(position >= 0).long(), position_ids=position.clamp(min=0)
    ).logits.float()
