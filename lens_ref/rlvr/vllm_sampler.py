"""Sampling with vLLM, which runs its own copy of the base model and is handed the adapter.

The base is never merged and never written to: after every update the adapter goes to a fresh folder
under a fresh name (vLLM caches prefixes by name), is loaded, and read back from the engine.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lens_ref.rlvr import memory, probe, vllm_engine
from lens_ref.rlvr.adapter import adapter_hash, adapter_tensors, write_adapter
from lens_ref.rlvr.batch import Samples
from lens_ref.rlvr.config import Config
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.policy import Policy, limit_memory, resolve_dtype
from lens_ref.rlvr.sampler import Prompts, cuda_devices, response_lengths

MEMORY_DISK = Path("/dev/shm")  # noqa: S108


class VLLMSampler:
    """vLLM in this process."""

    engine = "vllm"

    def __init__(
        self, policy: Policy, config: Config, longest_prompt: int, check_stop: Callable[[], None]
    ) -> None:
        self.policy, self.config, self.check_stop = policy, config, check_stop
        self.device = policy.device
        self.dtype = resolve_dtype(config.model, policy.device)
        self.llm: Any
        self.started_for = vllm_engine.needs(policy, config, longest_prompt)
        self.llm, self.sleeps = vllm_engine.start(policy, config, longest_prompt)
        import vllm

        self.version: str = vllm.__version__
        self.asleep = False
        self.served = ""  # hash of the adapter that the engine runs
        self.request: Any = None  # that asks for it
        self.syncs = 0
        parent = MEMORY_DISK if MEMORY_DISK.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="lens-adapter-", dir=parent))

    def adopt(
        self, policy: Policy, config: Config, longest_prompt: int, check_stop: Callable[[], None]
    ) -> bool:
        """Sample from another run's policy from now on; False where that needs another engine."""
        if not vllm_engine.needs(policy, config, longest_prompt).met_by(self.started_for):
            return False
        self.policy, self.config, self.check_stop = policy, config, check_stop
        return True

    # --- weights ----------------------------------------------------------------------------------

    def sync(self) -> None:
        """Load the policy's adapter, unless the engine runs it already.

        Raises:
            UserError: what the engine holds afterwards is not what was written.
        """
        tensors = adapter_tensors(self.policy, self.dtype)
        wanted = adapter_hash(tensors)
        if wanted == self.served:
            return
        with vllm_engine.loading():
            self._load(tensors, wanted)

    def _load(self, tensors: dict[str, Tensor], wanted: str) -> None:
        """Hand over an adapter and read it back."""
        from vllm.lora.request import LoRARequest

        self._wake()
        engine, before = self.llm.llm_engine, self.request
        self.syncs += 1
        path = self.folder / f"{self.syncs}-{wanted[:12]}"
        write_adapter(self.policy, path, tensors)
        self.served = ""
        self.request = LoRARequest(path.name, self.syncs, str(path))
        if before is not None:
            engine.remove_lora(before.lora_int_id)
        try:
            loaded = engine.add_lora(self.request)
        except (RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"vLLM does not load the adapter: {reason}") from error
        if not loaded or set(engine.list_loras()) != {self.syncs}:
            raise UserError("vLLM did not load the adapter; set rollout.engine to hf")
        if not self.llm.reset_prefix_cache():
            raise UserError("vLLM did not drop the prefixes of the adapter before; start again")
        self._compare(tensors)
        self.served = wanted
        if before is not None:
            shutil.rmtree(before.lora_path)

    def _compare(self, tensors: dict[str, Tensor]) -> None:
        """The engine's buffers against what was written, to the bit."""
        lora = self.config.model.lora
        assert lora is not None
        scale = lora.alpha / lora.r
        (different,) = self.llm.collective_rpc(
            differing_modules, args=(self.syncs, in_engine_terms(tensors, scale))
        )
        if different:
            raise UserError(
                f"vLLM does not run the adapter that it was given: {len(different)} of "
                f"{len(tensors) // 2} layers differ ({different[0]}); set rollout.engine to hf"
            )

    def verify(self, prompts: Prompts) -> None:
        """Move the policy with a random adapter: the sampler must follow. See `probe.verify`."""
        probe.verify(self, self.policy, self.config, prompts)

    # --- sampling ---------------------------------------------------------------------------------

    def sample(self, prompts: Prompts, responses: int, seed: int) -> Samples:
        """See `Sampler.sample`; token ids and log-probabilities are the engine's own.

        Raises:
            UserError: log-probabilities that are missing, or an answer whose end is not where its
                tokens say.
        """
        scored = responses if self.config.scores_all else 1
        return self.draw(prompts, responses, seed, self.config.rollout.max_new_tokens, scored)

    def draw(
        self,
        prompts: Prompts,
        responses: int,
        seed: int,
        max_tokens: int,
        scored: int | None = None,
    ) -> Samples:
        """`sample` with another length limit.

        Args:
            scored: the first so many answers to a prompt get log-probabilities; default all.
        """
        scored = responses if scored is None else scored
        common: dict[str, Any] = {
            "temperature": self.config.rollout.temperature,
            "max_tokens": max_tokens,
            "stop_token_ids": list(self.policy.stop_ids),
        }
        # logprobs=0: of the token that was drawn, and no others
        kinds = [{"n": scored, "logprobs": 0, "flat_logprobs": True, **common}]
        if scored < responses:
            kinds.append({"n": responses - scored, **common})
        outputs = self._run(prompts, kinds, seed)
        answers = [
            answer
            for output in outputs
            for answer in sorted(output.outputs, key=lambda answer: answer.index)
        ]
        told = (torch.arange(responses) < scored).expand(len(prompts), responses)
        logprobs = [
            _drawn_logprobs(answer) if known else torch.full([len(answer.token_ids)], torch.nan)
            for answer, known in zip(answers, told.flatten().tolist(), strict=True)
        ]
        ids = [torch.tensor(list(answer.token_ids)) for answer in answers]
        _check_ends(answers, ids, self.policy.stop_ids, max_tokens)
        shape = (len(prompts), responses)
        padded = pad_sequence(ids, batch_first=True, padding_value=self.policy.pad_id)
        truncated = torch.tensor([answer.finish_reason == "length" for answer in answers])
        return Samples(
            ids=padded.reshape(*shape, -1),
            lengths=torch.tensor([len(one) for one in ids]).reshape(shape),
            logprobs=pad_sequence(logprobs, batch_first=True).reshape(*shape, -1),
            truncated=truncated.reshape(shape),
            scored=None if told.all() else told.clone(),
        )

    def score(self, sequences: Sequence[tuple[int, ...]]) -> list[Tensor]:
        """Log-probabilities of given tokens at temperature 1.

        Args:
            sequences: N token id sequences, of at least 2 tokens.

        Returns:
            N tensors `[L_i − 1]`, float32 nats: of every token but the first.
        """
        scoring = {"max_tokens": 1, "stop_token_ids": [], "prompt_logprobs": 0}
        outputs = self._run(sequences, [{"n": 1, "temperature": 1.0, **scoring}], 0)
        return [
            _finite([at[token].logprob for at, token in zip(found, tokens, strict=True)])
            for found, tokens in (
                (list(output.prompt_logprobs)[1:], sequence[1:])
                for output, sequence in zip(outputs, sequences, strict=True)
            )
        ]

    def _run(self, prompts: Prompts, kinds: Sequence[dict[str, Any]], seed: int) -> list[Any]:
        """The finished requests: for every prompt one of each kind, in this order."""
        from vllm import SamplingParams, TokensPrompt

        parameters = [
            SamplingParams(
                top_p=1.0,
                top_k=0,
                min_p=0.0,
                presence_penalty=0.0,
                frequency_penalty=0.0,
                repetition_penalty=1.0,
                min_tokens=0,
                ignore_eos=False,
                detokenize=False,
                skip_special_tokens=False,
                seed=None,  # one a request makes vLLM sample them one by one; see below
                **kind,
            )
            for kind in kinds
        ]
        self._wake()
        engine, outputs = self.llm.llm_engine, list[Any]()
        numpy_state = numpy.random.get_state()  # newer engines draw their seeds from it
        try:
            with torch.random.fork_rng(devices=cuda_devices(self.policy.device)):
                torch.manual_seed(seed)
                numpy.random.seed(seed % 2**32)
                requests = self.llm.enqueue(
                    [
                        TokensPrompt(prompt_token_ids=list(prompt))
                        for prompt in prompts
                        for _ in kinds
                    ],
                    parameters * len(prompts),
                    lora_request=self.request,
                    use_tqdm=False,
                )
                try:
                    while engine.has_unfinished_requests():
                        self.check_stop()
                        outputs += [output for output in engine.step() if output.finished]
                except BaseException:
                    engine.abort_request(requests, internal=True)
                    raise
        finally:
            numpy.random.set_state(numpy_state)
        return sorted(outputs, key=lambda output: int(output.request_id))

    # --- memory -----------------------------------------------------------------------------------

    def rest(self) -> None:
        """Move vLLM's weights to the CPU and drop its cache, where that is configured."""
        if self.sleeps and not self.asleep:
            self.llm.sleep(level=1)  # level 2 would throw the base's weights away
            self.asleep = True
            self._limit(vllm_engine.asleep_bytes())

    def _wake(self) -> None:
        if self.asleep:
            memory.give_back()
            self._limit(0)
            self.llm.wake_up()
            self.asleep = False

    def _limit(self, returned: int) -> None:
        """Keep torch within `model.memory_gb`, whatever it counts beside."""
        limit = self.config.model.memory_gb
        if limit is not None:
            limit_memory(self.device, limit, returned)

    def close(self) -> None:
        """Shut the engine down."""
        if self.llm is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.llm.llm_engine.engine_core.shutdown()
            self.llm = None
            vllm_engine.clean_up()
            self._limit(0)


def in_engine_terms(tensors: dict[str, Tensor], scale: float) -> dict[str, tuple[Tensor, Tensor]]:
    """Layer name → (A, B · alpha / r), as vLLM holds an adapter, from peft's names and tensors."""
    layers: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        layer, kind, _ = name.removeprefix("base_model.model.").rsplit(".", 2)
        layers.setdefault(layer, {})[kind] = tensor
    return {layer: (ab["lora_A"], ab["lora_B"] * scale) for layer, ab in layers.items()}


def differing_modules(
    worker: Any, adapter_id: int, wanted: dict[str, tuple[Tensor, Tensor]]
) -> list[str]:
    """Runs inside vLLM's worker: the layers whose GPU buffers hold something else than `wanted`.

    vLLM packs layers that read the same input (q, k and v; gate and up) into one with several
    slices, and pads the rank.
    """
    manager = worker.model_runner.lora_manager._adapter_manager
    slot = manager.lora_index_to_id.index(adapter_id)
    places = {
        part: (module, i)
        for name, module in manager.modules.items()
        for i, part in enumerate(manager.packed_modules.get(name, [name]))
    }
    return [name for name, (a, b) in wanted.items() if not _holds(places.get(name), slot, a, b)]


def _holds(place: tuple[Any, int] | None, slot: int, a: Tensor, b: Tensor) -> bool:
    if place is None:
        return False
    module, i = place
    rank = a.shape[0]
    held_a = module.lora_a_stacked[i][slot, 0, :rank]
    held_b = module.lora_b_stacked[i][slot, 0, :, :rank]
    return torch.equal(held_a, a.to(held_a)) and torch.equal(held_b, b.to(held_b))


def _drawn_logprobs(answer: Any) -> Tensor:
    """`[L]` log-probabilities of an answer's own tokens."""
    found = answer.logprobs
    if found is None or list(found.token_ids) != list(answer.token_ids):
        raise UserError(
            "vLLM's log-probabilities do not belong to the tokens that it sampled; "
            "set rollout.engine to hf"
        )
    return _given(found.logprobs)


def _given(values: Sequence[float | None]) -> Tensor:
    """Finite or not: whoever learns from them looks at that."""
    if any(value is None for value in values):
        raise UserError("vLLM returned no log-probability of a token; set rollout.engine to hf")
    return torch.tensor(values, dtype=torch.float32)


def _finite(values: Sequence[float | None]) -> Tensor:
    given = _given(values)
    if not given.isfinite().all():
        raise UserError(
            "vLLM returned log-probabilities that are not finite (is optimizer.lr too high?)"
        )
    return given


def _check_ends(
    answers: list[Any], ids: list[Tensor], stop_ids: tuple[int, ...], max_tokens: int
) -> None:
    """An answer ends with its first stop token, which it holds, or with the length limit."""
    stops = torch.tensor(stop_ids)
    for answer, tokens in zip(answers, ids, strict=True):
        if not len(tokens):
            raise UserError("vLLM returned an answer without tokens; set rollout.engine to hf")
        length, truncated = response_lengths(tokens.unsqueeze(0), stops)
        right_end = int(length) == len(tokens)
        if bool(truncated):
            right_end = right_end and answer.finish_reason == "length" and len(tokens) == max_tokens
        else:
            right_end = right_end and answer.finish_reason == "stop"
        if not right_end:
            raise UserError(
                f"vLLM ended an answer of {len(tokens)} tokens with {answer.finish_reason!r}, "
                "which its tokens do not show: its end-of-sequence tokens are not the trainer's"
            )
