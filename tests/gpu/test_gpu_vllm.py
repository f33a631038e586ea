"""vLLM on a GPU: its log-probabilities against transformers, adapters swapped.

LENS_REF_GPU_MODEL names a model folder; without it a random Qwen2 is made. Bounds are for bfloat16:
single tokens differ by up to 0.4 nats, means by far less.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from lens_ref.rlvr.adapter import adapter_tensors
from lens_ref.rlvr.config import Config, load
from lens_ref.rlvr.policy import Policy, load_policy
from lens_ref.rlvr.sampler import make_sampler
from lens_ref.rlvr.vllm_sampler import VLLMSampler
from tests.rlvr.helpers import no_stop, save_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or find_spec("vllm") is None, reason="needs a GPU and vLLM"
    ),
]

MEAN_BOUND = 0.05
"""Nats a token, mean |vLLM − transformers| in bfloat16."""
APART = 0.1
"""Nats a token by which two adapters must differ at least to be told apart."""
LENGTH = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


def model_folder(where: Path) -> Path:
    """The model that the environment names, or a random one."""
    given = os.environ.get("LENS_REF_GPU_MODEL")
    if given:
        return Path(given)
    return save_model(
        where,
        "qwen2",
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        vocab_size=32_768,
        max_position_embeddings=2048,
        initializer_range=0.05,
    )


def config_for(folder: Path, **overrides: Any) -> Config:
    base: dict[str, Any] = {
        "methods": ["lens"],
        "device": "cuda",
        "model.path": str(folder),
        "model.lora": {"r": 16, "alpha": 32.0},
        "prompt.template": "{problem}",
        "rollout.engine": "vllm",
        "rollout.questions": 8,
        "rollout.responses": 4,
        "rollout.max_new_tokens": LENGTH,
        "rollout.vllm": {"memory_share": 0.2, "max_sequences": 64, "eager": True, "sleep": True},
        "model.compile": False,
        "steps": 4,
        "loss.updates_per_rollout": 2,
        "loss.micro_batch_tokens": 2048,
        "optimizer.lr": 1e-3,
        "optimizer.warmup_updates": 0,
        "data.train_questions": None,
        "data.test": None,
        "eval.every": 0,
        "checkpoint.every": 2,
    }
    return load(None, base | {key.replace("__", "."): v for key, v in overrides.items()})


def adapt(policy: Policy, seed: int) -> None:
    """A random adapter of about the size that training reaches, and more."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.trainable().items():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.02)


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[tuple[VLLMSampler, Policy, Config]]:
    config = config_for(folder)
    policy = load_policy(config.model, torch.device("cuda"), 0)
    made = make_sampler(policy, config, 64, no_stop)
    assert isinstance(made, VLLMSampler)
    yield made, policy, config
    made.close()


def prompts_for(policy: Policy) -> list[tuple[int, ...]]:
    """Sixteen prompts of 8 to 23 tokens."""
    generator = torch.Generator().manual_seed(0)
    size = policy.model.get_input_embeddings().weight.shape[0]
    rows = [torch.randint(3, size, (8 + i,), generator=generator) for i in range(16)]
    return [tuple(row.tolist()) for row in rows]


def trainer_scores(policy: Policy, sequences: list[tuple[int, ...]]) -> torch.Tensor:
    with torch.no_grad():
        found, _ = policy.logprobs(
            [s[:1] for s in sequences], [torch.tensor(s[1:]) for s in sequences], 1.0
        )
    return torch.cat(found).cpu()


def test_log_probabilities_agree_before_and_after_swaps(
    served: tuple[VLLMSampler, Policy, Config],
) -> None:
    """Two adapters, one after the other: each matches the trainer, and they differ."""
    made, policy, _ = served
    sequences = prompts_for(policy)
    scores = []
    for seed in (0, 1, 2, 1):
        adapt(policy, seed)
        made.sync()
        vllm = torch.cat(made.score(sequences))
        hf = trainer_scores(policy, sequences)
        assert float((vllm - hf).abs().mean()) < MEAN_BOUND
        scores.append(vllm)
    for i, j in ((0, 1), (1, 2)):
        assert float((scores[i] - scores[j]).abs().mean()) > APART
    assert float((scores[1] - scores[3]).abs().mean()) < MEAN_BOUND


def test_the_probe_passes_and_restores_the_adapter(
    served: tuple[VLLMSampler, Policy, Config],
) -> None:
    made, policy, _ = served
    adapt(policy, 3)
    before = adapter_tensors(policy, torch.float32)
    made.verify(prompts_for(policy))
    after = adapter_tensors(policy, torch.float32)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(("sleeping", "told"), [(False, "all"), (True, "all"), (False, "auto")])
def test_sampled_answers_have_the_trainers_log_probabilities(
    sleeping: bool, told: Any, served: tuple[VLLMSampler, Policy, Config]
) -> None:
    """Of all answers, or of one a question among others that are drawn without."""
    made, policy, config = served
    vllm = replace(config.rollout.vllm, logprobs=told)
    config = replace(config, rollout=replace(config.rollout, vllm=vllm))
    assert made.adopt(policy, config, 64, no_stop)
    adapt(policy, 4)
    made.sync()
    if sleeping:
        made.rest()
        assert made.asleep
    prompts = prompts_for(policy)
    samples = made.sample(prompts, 4, seed=1)
    repeated = [prompt for prompt in prompts for _ in range(4)]
    rows = zip(samples.ids.flatten(0, 1), samples.lengths.flatten().tolist(), strict=True)
    with torch.no_grad():
        found, _ = policy.logprobs(
            repeated, [ids[:n] for ids, n in rows], config.rollout.temperature
        )
    every = torch.full(samples.mask.shape, torch.nan)
    every[samples.mask] = torch.cat(found).cpu()
    own = samples.scored_mask
    assert int(own.any(-1).sum()) == len(prompts) * (4 if told == "all" else 1)
    gap = (samples.logprobs - every)[own].abs()
    assert float(gap.mean()) < MEAN_BOUND
    again = made.sample(prompts, 4, seed=1)
    other = made.sample(prompts, 4, seed=2)
    assert float((again.ids[:, :, 0] == samples.ids[:, :, 0]).double().mean()) > 0.95
    assert not torch.equal(other.ids, samples.ids)
