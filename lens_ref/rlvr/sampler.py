"""Sampling responses. One protocol; here the transformers engine behind it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.generation.stopping_criteria import StoppingCriteria, StoppingCriteriaList

from lens_ref.rlvr.batch import Samples
from lens_ref.rlvr.config import RolloutConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.policy import Policy


class Sampler(Protocol):
    """Draws G responses to each prompt from the current policy."""

    def sample(self, prompts: Sequence[tuple[int, ...]], responses: int, seed: int) -> Samples: ...


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from (run seed, purpose, counter): random numbers depend on where a run is, not
    on how it got there, so that a resumed run draws what an unbroken one would."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class HFSampler:
    """transformers' `generate`, in chunks of `batch_rows` responses, prompts padded on the left."""

    def __init__(
        self, policy: Policy, config: RolloutConfig, check_stop: Callable[[], None]
    ) -> None:
        self.policy, self.config, self.check_stop = policy, config, check_stop

    @torch.no_grad()
    def sample(self, prompts: Sequence[tuple[int, ...]], responses: int, seed: int) -> Samples:
        """Draw `responses` answers to each prompt.

        Args:
            prompts: B token id sequences.
            responses: G.
            seed: of this call; the caller's random state is left as it was.

        Returns:
            `[B, G]` samples on the CPU.

        Raises:
            UserError: the policy's probabilities are NaN.
        """
        rows = [prompt for prompt in prompts for _ in range(responses)]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))  # little padding
        ids: list[Tensor] = [torch.empty(0)] * len(rows)
        logprobs = list(ids)
        self.policy.model.eval()
        with torch.random.fork_rng(devices=_cuda_devices(self.policy.device)):
            torch.manual_seed(seed)
            for start in range(0, len(rows), self.config.batch_rows):
                chunk = order[start : start + self.config.batch_rows]
                new_ids, new_logprobs = self._generate([rows[i] for i in chunk])
                for i, one, its in zip(chunk, new_ids, new_logprobs, strict=True):
                    ids[i], logprobs[i] = one, its
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
        try:
            output = self.policy.model.generate(
                input_ids=ids.to(self.policy.device),
                attention_mask=attention.to(self.policy.device),
                generation_config=every_field,
                logits_processor=LogitsProcessorList([recorder]),
                stopping_criteria=StoppingCriteriaList([_AskedToStop(self.check_stop)]),
            )
        except RuntimeError as error:
            if "probability tensor" not in str(error):
                raise
            raise UserError(
                "the policy's probabilities are not finite (is optimizer.lr too high?)"
            ) from error
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
        return scores

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


def _cuda_devices(device: torch.device) -> list[int]:
    return [device.index or 0] if device.type == "cuda" else []
