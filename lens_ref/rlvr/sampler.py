"""Sampling responses. One protocol; here the transformers engine behind it, and the choice between
that one and vLLM."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.util import find_spec
from typing import Any, Protocol

import torch
import transformers
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.generation.stopping_criteria import StoppingCriteria, StoppingCriteriaList

from lens_ref.rlvr import memory
from lens_ref.rlvr.batch import Samples
from lens_ref.rlvr.config import Config, RolloutConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.policy import Policy

log = logging.getLogger("lens_ref")

Prompts = Sequence[tuple[int, ...]]

BNB_PLUGIN_SINCE = (0, 28)
"""The vLLM version from which 4-bit weights need a plugin."""


class Sampler(Protocol):
    """Draws G responses to each prompt from the policy."""

    engine: str  # "hf" or "vllm"
    version: str  # of that engine

    def sample(self, prompts: Prompts, responses: int, seed: int) -> Samples:
        """Draw `responses` answers to each prompt, from the weights of the last `sync`.

        Args:
            prompts: B token id sequences.
            responses: G.
            seed: of this call; the caller's random state is left as it was.

        Returns:
            `[B, G]` samples on the CPU.
        """

    def sync(self) -> None:
        """Make the sampler run the policy's present weights."""

    def verify(self, prompts: Prompts) -> None:
        """Refuse a sampler that runs another policy than the trainer's."""

    def rest(self) -> None:
        """Between sampling and updates: give memory back, if that is asked for."""

    def close(self) -> None:
        """Let go of everything."""


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from (run seed, purpose, counter): random numbers depend on where a run is, not
    on how it got there, so that a resumed run draws what an unbroken one would."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def make_sampler(
    policy: Policy, config: Config, longest_prompt: int, check_stop: Callable[[], None]
) -> Sampler:
    """The sampler that `rollout.engine` asks for.

    Args:
        longest_prompt: tokens; vLLM reserves room by it.
        check_stop: called often while sampling.

    Raises:
        UserError: an engine that is not there or would run another policy.
    """
    if choose_engine(config, policy.device) == "hf":
        return HFSampler(policy, config.rollout, check_stop)
    from lens_ref.rlvr.vllm_sampler import VLLMSampler

    return VLLMSampler(policy, config, longest_prompt, check_stop)


def choose_engine(config: Config, device: torch.device) -> str:
    """ "hf" or "vllm".

    Raises:
        UserError: vLLM is asked for and can't serve this policy.
    """
    asked, model = config.rollout.engine, config.model
    if asked == "auto":
        from lens_ref.rlvr.vllm_engine import LORA_RANKS

        able = on_gpu(device) and find_spec("vllm") and config.same_bits
        served = model.lora is not None and model.lora.r <= LORA_RANKS[-1]
        asked = "vllm" if able and served and model.dtype != "float32" else "hf"
    if asked == "hf":
        return "hf"
    if not on_gpu(device):
        raise UserError("vLLM needs a GPU; set rollout.engine to hf")
    if find_spec("vllm") is None:
        raise UserError("vLLM is not installed: pip install vllm, or set rollout.engine to hf")
    if model.lora is None:
        raise UserError(
            "vLLM is handed adapters only, and all weights are trained here: set rollout.engine to "
            "hf, or train an adapter (--lora)"
        )
    if model.dtype == "float32":
        raise UserError(
            "vLLM serves adapters in 16 bits only; set model.dtype to bfloat16, or rollout.engine "
            "to hf"
        )
    if not config.same_bits and config.loss.sampler_correction == "none":
        raise UserError(
            "the sampler would run another policy than the trainer, one with 4-bit weights and one "
            "without: set rollout.vllm.quantization to "
            f"{'bitsandbytes' if model.quantization else 'null'}, or weigh its answers with "
            "loss.sampler_correction=truncate, or set rollout.engine to hf"
        )
    if config.rollout.vllm.quantization is not None:
        _check_bnb_plugin()
    return "vllm"


def _check_bnb_plugin() -> None:
    major, minor = map(int, metadata.version("vllm").split(".")[:2])
    if (major, minor) < BNB_PLUGIN_SINCE:
        return
    try:
        metadata.version("vllm-bnb-plugin")
    except metadata.PackageNotFoundError:
        raise UserError(
            f"vLLM {major}.{minor} reads 4-bit weights only with a plugin: "
            "pip install vllm-bnb-plugin"
        ) from None


def on_gpu(device: torch.device) -> bool:
    """Whether it is a CUDA device."""
    return device.type == "cuda"


class HFSampler:
    """transformers' `generate`, in chunks of `batch_rows` responses, prompts padded on the left."""

    engine = "hf"
    version = transformers.__version__

    def __init__(
        self, policy: Policy, config: RolloutConfig, check_stop: Callable[[], None]
    ) -> None:
        self.policy, self.config, self.check_stop = policy, config, check_stop
        self.rows = config.batch_rows  # at once; halved where the GPU's memory does not suffice

    def sync(self) -> None:
        """It samples from the model that is trained."""

    def verify(self, prompts: Prompts) -> None:
        """See `sync`."""

    def rest(self) -> None:
        """It keeps no memory."""

    def close(self) -> None:
        """It holds nothing."""

    @torch.no_grad()
    def sample(self, prompts: Prompts, responses: int, seed: int) -> Samples:
        """See `Sampler.sample`."""
        rows = [prompt for prompt in prompts for _ in range(responses)]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))  # little padding
        ids: list[Tensor] = [torch.empty(0)] * len(rows)
        logprobs = list(ids)
        with (
            self.policy.sampling(),
            torch.random.fork_rng(devices=cuda_devices(self.policy.device)),
        ):
            torch.manual_seed(seed)
            while order:
                chunk = order[: self.rows]
                try:
                    new_ids, new_logprobs = self._generate([rows[i] for i in chunk])
                except torch.OutOfMemoryError as error:
                    shortage = str(error).splitlines()[0]
                else:
                    for i, one, its in zip(chunk, new_ids, new_logprobs, strict=True):
                        ids[i], logprobs[i] = one, its
                    order = order[len(chunk) :]
                    continue
                self._make_do(len(chunk), shortage)
        pad = torch.nn.utils.rnn.pad_sequence
        all_ids = pad(ids, batch_first=True, padding_value=self.policy.pad_id)
        lengths, truncated = response_lengths(all_ids, torch.tensor(self.policy.stop_ids))
        shape = (len(prompts), responses)
        width = int(lengths.max())
        return Samples(
            ids=all_ids[:, :width].reshape(*shape, width),
            lengths=lengths.reshape(shape),
            logprobs=pad(logprobs, batch_first=True)[:, :width].reshape(*shape, width),
            truncated=truncated.reshape(shape),
        )

    def _make_do(self, rows: int, shortage: str) -> None:
        """After a shortage of memory: fewer rows at once, for good."""
        if rows == 1:
            raise UserError(
                "out of GPU memory sampling a single answer: set rollout.max_new_tokens lower "
                f"({shortage})"
            )
        memory.give_back()
        self.rows = rows // 2
        log.warning("out of GPU memory: %d answers are sampled at once now", self.rows)

    def _generate(self, rows: list[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
        width = max(map(len, rows))
        ids = torch.full((len(rows), width), self.policy.pad_id)
        attention = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, width - len(row) :] = torch.tensor(row)
            attention[i, width - len(row) :] = 1
        recorder = _Recorder(self.config.temperature)
        every_field = GenerationConfig(
            do_sample=True,
            temperature=1.0,  # the recorder divides
            top_p=1.0,
            top_k=0,
            repetition_penalty=1.0,
            max_new_tokens=self.config.max_new_tokens,
            eos_token_id=list(self.policy.stop_ids),
            pad_token_id=self.policy.pad_id,
        )
        output = self.policy.model.generate(
            input_ids=ids.to(self.policy.device),
            attention_mask=attention.to(self.policy.device),
            generation_config=every_field,
            logits_processor=LogitsProcessorList([recorder]),
            stopping_criteria=StoppingCriteriaList([_AskedToStop(self.check_stop)]),
        )
        return output[:, width:].cpu(), recorder.finish(output).cpu()


def response_lengths(ids: Tensor, stop_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Length of each response and whether the length limit cut it.

    Args:
        ids: `[N, T]` generated tokens.
        stop_ids: the tokens that end a response.

    Returns:
        Lengths `[N]`: up to and including the first stop token, T without one; truncated `[N]`.
    """
    stops = torch.isin(ids, stop_ids)
    truncated = ~stops.any(-1)
    first = stops.int().argmax(-1) + 1
    return torch.where(truncated, ids.shape[-1], first), truncated


class _Recorder(LogitsProcessor):
    """Applies the temperature and keeps the log-probability of every token that is drawn."""

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature
        self.last: Tensor | None = None  # [N, V] log-probabilities of the step before
        self.drawn: list[Tensor] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self._collect(input_ids)
        scores = scores.float() / self.temperature
        self.last = torch.log_softmax(scores, dim=-1)
        # A policy that has blown up is recorded as it is; drawing from NaN would end the process.
        return torch.where(self.last.isnan().any(-1, keepdim=True), 0.0, scores)

    def _collect(self, input_ids: Tensor) -> None:
        if self.last is not None:
            self.drawn.append(self.last.gather(-1, input_ids[:, -1:]))

    def finish(self, output: Tensor) -> Tensor:
        """`[N, T]` log-probabilities of the drawn tokens."""
        self._collect(output)
        return torch.cat(self.drawn, dim=-1)


class _AskedToStop(StoppingCriteria):
    def __init__(self, check: Callable[[], None]) -> None:
        self.check = check

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        self.check()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def cuda_devices(device: torch.device) -> list[int]:
    """What `fork_rng` must save beside the CPU's state."""
    return [device.index or 0] if device.type == "cuda" else []
