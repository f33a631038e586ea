"""Starting vLLM inside the training process, and the memory that it may take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple

import torch

from lens_ref.rlvr import memory
from lens_ref.rlvr.config import Config, VllmConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.memory import Shape, gigabytes
from lens_ref.rlvr.policy import Policy, model_folder, resolve_dtype
from lens_ref.rlvr.sampler import cuda_devices
from lens_ref.rlvr.threads import one_thread

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in this process: its adapter can be read
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # it leaves torch's random state out of account
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM reserves room for."""
LARGEST_SHARE = 0.45
"""Of the GPU: the trainer needs the rest."""
WORKSPACE = 1.5e9
"""Bytes that vLLM takes beside weights and cache, and keeps asleep: activations, CUDA graphs."""
GRAPHS_BEYOND, GRAPHS_APART = 1536, 128
"""Prompt tokens, beside a token of every answer, up to which a step has a CUDA graph, and how far
those graphs lie apart. vLLM's own end at 512 tokens: with 512 answers at once, every step in which
an answer's place is taken by the next one would run without, several times as long."""
PINNING = ("vllm.lora.lora_model", "vllm.lora.model_manager")
"""Where vLLM pins an adapter's tensors."""
BYTES_IN_4_BITS = 0.56
"""A weight, in blocks of 64 with a 32-bit scale each."""


class Needs(NamedTuple):
    """What an engine is started for."""

    model: str
    dtype: str
    rank: int
    settings: VllmConfig
    memory_gb: float | None
    length: int  # tokens, prompt included

    def met_by(self, other: Needs) -> bool:
        """Whether an engine that was started for `other` will do."""
        return other.length >= self.length and other == self._replace(length=other.length)


def needs(policy: Policy, config: Config, longest_prompt: int) -> Needs:
    """What this policy and configuration ask of vLLM.

    Raises:
        UserError: a rank that vLLM can't serve.
    """
    assert config.model.lora is not None
    ranks = [rank for rank in LORA_RANKS if rank >= config.model.lora.r]
    if not ranks:
        raise UserError(f"vLLM serves adapters of rank {LORA_RANKS[-1]} at most; set model.lora.r")
    length = longest_prompt + config.rollout.max_new_tokens + 1  # verifying adds a token
    positions = getattr(policy.model.config, "max_position_embeddings", None)
    return Needs(
        model=model_folder(config.model.path),
        dtype=str(resolve_dtype(config.model, policy.device)).removeprefix("torch."),
        rank=ranks[0],
        settings=replace(config.rollout.vllm, logprobs="auto"),  # that, each request says
        memory_gb=config.model.memory_gb,
        length=min(length, positions or length),
    )


def start(policy: Policy, config: Config, longest_prompt: int) -> tuple[Any, bool]:
    """A `vllm.LLM` for the policy's base model, with room for one adapter.

    Returns:
        The engine, and whether it shall sleep during updates.

    Raises:
        UserError: a rank that vLLM can't serve, or vLLM does not start.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)  # before vLLM is imported
    from vllm import LLM

    wanted = needs(policy, config, longest_prompt)
    settings = wanted.settings
    share, sleeps = share_of_card(policy.device, config, longest_prompt)
    more: dict[str, Any] = {}
    if settings.cache_gb is not None:
        more["kv_cache_memory_bytes"] = int(settings.cache_gb * 1e9)
    if not settings.eager:
        sizes = graph_sizes(settings.max_sequences)
        more["compilation_config"] = {"cudagraph_capture_sizes": sizes}
    try:
        with torch.random.fork_rng(devices=cuda_devices(policy.device)):  # it seeds this process
            llm = LLM(
                model=wanted.model,
                dtype=wanted.dtype,
                quantization=settings.quantization,
                trust_remote_code=False,
                enable_lora=True,
                max_lora_rank=wanted.rank,
                max_loras=1,
                logprobs_mode="processed_logprobs",  # of the distribution that is sampled from
                generation_config="vllm",  # nothing that a checkpoint ships leaks in
                max_model_len=wanted.length,
                max_num_seqs=settings.max_sequences,
                gpu_memory_utilization=share,
                enable_sleep_mode=sleeps,
                enforce_eager=settings.eager,
                enable_prefix_caching=True,  # the G answers to a question share its prompt
                disable_log_stats=True,
                seed=config.seed,
                **more,
            )
    except (RuntimeError, ValueError, AssertionError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"vLLM does not start: {reason} (its memory: rollout.vllm.memory_share, now "
            f"{share:.2f}; beside other processes: rollout.vllm.cache_gb; without vLLM: "
            "rollout.engine=hf)"
        ) from error
    return llm, sleeps


def graph_sizes(answers: int) -> list[int]:
    """Tokens of the steps that CUDA graphs are captured for: as vLLM would, one of every answer up
    to all at once; and beyond, steps that read the prompts of new answers too."""
    decoding = {1, 2, 4, *range(8, 256, 8), *range(256, answers, 16)}
    reading = range(answers + GRAPHS_APART, answers + GRAPHS_BEYOND + 1, GRAPHS_APART)
    return sorted({size for size in decoding if size < answers} | {answers} | set(reading))


def card_bytes(device: torch.device) -> int:
    """Memory of the GPU."""
    return int(torch.cuda.get_device_properties(device).total_memory)


def memory_share(shape: Shape | None, config: Config, longest_prompt: int, card: int) -> float:
    """The share of the GPU's memory for the sampler: its weights, the keys and values of
    `max_sequences` answers at full length or `cache_gb`, the logits, and its workspace; at most
    `LARGEST_SHARE` of what the run may use.

    Args:
        shape: of the model; None where it can't be told: the largest share then.
        card: bytes.

    Raises:
        UserError: the weights alone are too large, or with a cache of `cache_gb`.
    """
    allowed = card
    if config.model.memory_gb is not None:
        allowed = min(card, int(config.model.memory_gb * 1e9))
    largest = LARGEST_SHARE * allowed
    if shape is None:
        return largest / card
    settings = config.rollout.vllm
    weights = shape.parameters * (BYTES_IN_4_BITS if settings.quantization else 2.0)
    length = longest_prompt + config.rollout.max_new_tokens
    if settings.cache_gb is None:
        cache = settings.max_sequences * length * shape.layers * 2 * shape.key_value * 2.0
    else:
        cache = settings.cache_gb * 1e9
    logits = 3 * 4 * settings.max_sequences * shape.vocabulary
    if weights + WORKSPACE > largest:
        raise UserError(
            f"vLLM's copy of the weights ({gigabytes(int(weights))}) leaves no room for its cache "
            f"in {gigabytes(int(largest))}, {LARGEST_SHARE:.0%} of {gigabytes(allowed)}: set "
            "rollout.vllm.memory_share yourself, use 4-bit weights, or rollout.engine=hf"
        )
    needed = weights + cache + logits + WORKSPACE
    if settings.cache_gb is not None and needed > largest:
        raise UserError(
            f"rollout.vllm.cache_gb={settings.cache_gb:g} and what else vLLM takes are "
            f"{gigabytes(int(needed))}: more than {gigabytes(int(largest))}, "
            f"{LARGEST_SHARE:.0%} of {gigabytes(allowed)}; the trainer needs the rest"
        )
    return min(needed, largest) / card


def may_sleep(device: torch.device, config: Config, taken: float) -> bool:
    """Whether vLLM hands its memory back during updates: as configured, or where sampler and
    trainer together need more than there is.

    Args:
        taken: by the sampler, bytes.
    """
    if config.rollout.vllm.sleep != "auto":
        return config.rollout.vllm.sleep
    if config.model.memory_gb is not None:
        return True
    shape = memory.read_shape(config.model.path)
    if shape is None:
        return False
    least = shape.layers if config.model.gradient_checkpointing == "auto" else None
    plan = memory.make_plan(config, shape, device, least, sampler=memory.NOTHING)
    return taken + plan.total > memory.USABLE * card_bytes(device)


def share_of_card(device: torch.device, config: Config, longest_prompt: int) -> tuple[float, bool]:
    """The engine's share of the GPU's memory, and whether it sleeps during updates."""
    card = card_bytes(device)
    share = config.rollout.vllm.memory_share
    if share == "auto":
        share = memory_share(memory.read_shape(config.model.path), config, longest_prompt, card)
    return share, may_sleep(device, config, share * card)


def planned_share(device: torch.device, config: Config, longest_prompt: int) -> memory.Share:
    """What the engine will take while the policy is updated, and beside that while it samples."""
    share, sleeps = share_of_card(device, config, longest_prompt)
    return as_share(int(share * card_bytes(device)), sleeps)


def as_share(taken: int, sleeps: bool) -> memory.Share:
    """Bytes that an engine takes awake, by when it does."""
    kept = min(taken, int(WORKSPACE)) if sleeps else taken
    return memory.Share(kept, taken - kept)


def asleep_bytes() -> int:
    """What a sleeping engine has given back to the GPU; torch goes on counting it as allocated."""
    from vllm.device_allocator.cumem import CuMemAllocator

    return int(CuMemAllocator.get_instance().get_current_usage())


@contextmanager
def loading() -> Iterator[None]:
    """While an adapter goes to the engine: hundreds of small tensors, each scaled on the CPU, by
    one thread; and pinned by vLLM, which takes milliseconds for each and pays only where the same
    adapters are swapped again and again."""
    pinning = [module for name in PINNING if (module := _module(name)) is not None]
    before = [module.is_pin_memory_available for module in pinning]
    try:
        for module in pinning:
            module.is_pin_memory_available = lambda: False
        with one_thread():
            yield
    finally:
        for module, was in zip(pinning, before, strict=True):
            module.is_pin_memory_available = was


def _module(name: str) -> Any:
    """The module, where this vLLM has it and asks in it whether to pin memory."""
    try:
        module = import_module(name)
    except ModuleNotFoundError:
        return None
    return module if hasattr(module, "is_pin_memory_available") else None


def clean_up() -> None:
    """After an engine: its process groups, and torch's unused blocks."""
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    cleanup_dist_env_and_memory()
    memory.give_back()
