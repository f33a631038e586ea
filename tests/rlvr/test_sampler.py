"""Sampling: lengths, end of sequence, the sampler's own numbers, seeds, what must not leak in."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lens_ref.rlvr.batch import Batch, Samples
from lens_ref.rlvr.config import LoraConfig, ModelConfig, PromptConfig
from lens_ref.rlvr.errors import Interrupted, UserError
from lens_ref.rlvr.evaluation import answer
from lens_ref.rlvr.logprobs import token_logprobs
from lens_ref.rlvr.policy import Policy, load_policy, model_folder
from lens_ref.rlvr.prompts import encode_prompt
from lens_ref.rlvr.sampler import HFSampler, derive_seed, response_lengths
from tests.rlvr.helpers import (
    CPU,
    EOS,
    HE,
    HELLO,
    ExactVerifier,
    RolloutConfig,
    load_tiny,
    tiny_questions,
    tiny_sampler,
)


def prompts_of(policy: Policy, count: int = 6) -> list[tuple[int, ...]]:
    """Prompts of one to five steps: of different lengths."""
    questions = tiny_questions(count)
    return [encode_prompt(policy.tokenizer, PromptConfig(), q.problem) for q in questions]


def identical(a: Samples, b: Samples) -> bool:
    return a.ids.shape == b.ids.shape and all(
        torch.equal(getattr(a, name)[..., :], getattr(b, name))
        for name in ("ids", "lengths", "logprobs", "truncated")
    )


# --- lengths --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "stops", "length", "cut"),
    [
        ([7, 2, 2], [2], 2, False),  # the pad token is the end-of-sequence token
        ([7, 8, 9], [2], 3, True),
        ([2, 5, 5], [2], 1, False),
        ([7, 8, 2], [2], 3, False),  # ends exactly at the limit
        ([7, 9, 0], [2, 9], 2, False),  # a second end-of-sequence token
        ([7, 9, 2], [9, 2], 2, False),  # the first one counts, whichever it is
        ([0, 0, 0], [2], 3, True),  # pad tokens are tokens
    ],
)
def test_response_lengths(ids: list[int], stops: list[int], length: int, cut: bool) -> None:
    lengths, truncated = response_lengths(torch.tensor([ids]), torch.tensor(stops))
    assert (lengths.tolist(), truncated.tolist()) == ([length], [cut])


def test_the_mask_comes_from_lengths() -> None:
    """Ids 5 6 2 2 2 with pad = end of sequence = 2: the end-of-sequence token is trained."""
    ids = torch.tensor([[[5, 6, 2, 2, 2]]])
    lengths, cut = response_lengths(ids[0], torch.tensor([2]))
    samples = Samples(ids, lengths.unsqueeze(0), torch.zeros(1, 1, 5), cut.unsqueeze(0))
    assert samples.mask.tolist() == [[[True, True, True, False, False]]]


def test_lengths_of_real_samples(tiny: Policy) -> None:
    """Cut at 12 tokens, some answers are finished and some are not."""
    samples = tiny_sampler(tiny, max_new_tokens=12).sample(prompts_of(tiny), 4, seed=0)
    seen = set()
    for ids, length, cut in zip(
        samples.ids.flatten(0, 1),
        samples.lengths.flatten().tolist(),
        samples.truncated.flatten().tolist(),
        strict=True,
    ):
        answer = ids[:length].tolist()
        assert (1 not in answer) if cut else (answer.index(1) == length - 1)
        assert length == 12 or not cut
        seen.add(cut)
    assert seen == {True, False}


@pytest.mark.parametrize("pad_is_eos", [False, True])
def test_a_secondary_end_of_sequence_token_finishes_an_answer(
    pad_is_eos: bool, llama: Path, tmp_path: Path
) -> None:
    """Every second answer of a random policy hits one of two end tokens within a few tokens."""
    folder = shutil.copytree(llama, tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [EOS, HELLO]}))
    policy = load_policy(ModelConfig(path=str(folder)), CPU, 0)
    if pad_is_eos:
        policy.pad_id = EOS
    sampler = HFSampler(policy, RolloutConfig(max_new_tokens=6, batch_rows=8), lambda: None)
    samples = sampler.sample([(HE,), (HE, HE, HE)], 32, seed=1)
    last = samples.ids.gather(-1, samples.lengths.unsqueeze(-1) - 1).squeeze(-1)
    done = (last == EOS) | (last == HELLO)
    assert torch.equal(done | samples.truncated, torch.ones_like(done))
    assert (last == HELLO).any()
    assert not samples.truncated[last == HELLO].any()
    earlier = torch.arange(samples.ids.shape[-1]) < samples.lengths.unsqueeze(-1) - 1
    assert not torch.isin(samples.ids[earlier], torch.tensor([EOS, HELLO])).any()


# --- the sampler's log-probabilities --------------------------------------------------------------


def worst_drift(policy: Policy, prompts: list[tuple[int, ...]], **config: Any) -> float:
    """Largest |sampler − trainer| over all tokens of 4 answers to each prompt."""
    sampler = tiny_sampler(policy, **config)
    samples = sampler.sample(prompts, 4, seed=5)
    repeated = [prompt for prompt in prompts for _ in range(4)]
    lengths = samples.lengths.flatten().tolist()
    answers = [ids[:n] for ids, n in zip(samples.ids.flatten(0, 1), lengths, strict=True)]
    policy.model.train()
    with torch.no_grad():
        trainer, _ = token_logprobs(policy.model, repeated, answers, sampler.config.temperature)
    own = samples.logprobs.flatten(0, 1)
    return max(float((own[i, : len(t)] - t).abs().max()) for i, t in enumerate(trainer))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampler_and_trainer_agree(temperature: float, tiny: Policy) -> None:
    prompts = prompts_of(tiny)
    assert len({len(prompt) for prompt in prompts}) > 1
    assert worst_drift(tiny, prompts, temperature=temperature) < 1e-4


def test_they_agree_when_sampled_in_small_chunks(tiny: Policy) -> None:
    """Chunks differ in width: the shorter ones are padded afterwards."""
    assert worst_drift(tiny, prompts_of(tiny), batch_rows=5) < 1e-4


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_they_agree_under_an_adapter(kind: str, model_folder: Callable[[str], Path]) -> None:
    """Large adapter weights: a sampler that left them out would be far off."""
    config = ModelConfig(path=str(model_folder(kind)), lora=LoraConfig(r=2, alpha=4.0))
    policy = load_policy(config, CPU, 0)
    prompts = [(HE,), (HE, HELLO, HE), (HELLO, HE)]
    base = tiny_sampler(policy, max_new_tokens=5).sample(prompts, 4, seed=5)
    with torch.no_grad():
        for name, parameter in policy.trainable().items():
            if "lora_B" in name:
                parameter.copy_(torch.randn_like(parameter))
    assert worst_drift(policy, prompts, max_new_tokens=5, temperature=0.7) < 1e-4
    changed = tiny_sampler(policy, max_new_tokens=5).sample(prompts, 4, seed=5)
    assert (base.logprobs[:, :, 0] - changed.logprobs[:, :, 0]).abs().max() > 0.1


def test_frequencies_are_the_softmax(llama: Path) -> None:
    """Pearson's chi-square of 4,000 first tokens; 12 degrees of freedom, 1 in 10,000 exceeds 39."""
    policy = load_policy(ModelConfig(path=str(llama)), CPU, 0)
    with torch.no_grad():  # sharpen: a random model is nearly uniform
        policy.model.get_output_embeddings().weight *= 60
        logits = policy.model(torch.tensor([[HE, HELLO]])).logits[0, -1].double()
    wanted = torch.softmax(logits / 0.7, -1) * 4000
    assert wanted.max() > 2 * wanted.median()  # not uniform: the temperature matters
    sampler = HFSampler(policy, RolloutConfig(temperature=0.7, max_new_tokens=1), lambda: None)
    ids = sampler.sample([(HE, HELLO)], 4000, seed=2).ids.flatten()
    counts = torch.bincount(ids, minlength=len(wanted))
    assert ((counts - wanted).square() / wanted).sum() < 39


# --- what a checkpoint ships ----------------------------------------------------------------------

LEAKS = {
    "do_sample": False,
    "temperature": 0.1,
    "top_k": 1,
    "top_p": 0.1,
    "min_p": 0.9,
    "typical_p": 0.1,
    "repetition_penalty": 5.0,
    "no_repeat_ngram_size": 2,
    "min_new_tokens": 30,
    "max_length": 3,
    "num_beams": 2,
    "suppress_tokens": [5, 6],
    "forced_eos_token_id": 1,
    "exponential_decay_length_penalty": [2, 5.0],
    "num_return_sequences": 2,
    "eos_token_id": 1,
    "pad_token_id": 0,
}


def test_shipped_generation_settings_do_not_leak_in(tiny: Policy, tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder("tiny"), tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps(LEAKS), encoding="utf-8")
    prompts = prompts_of(tiny, 3)
    for lora in (None, LoraConfig(r=2)):
        policy = load_policy(ModelConfig(path=str(folder), lora=lora), CPU, 0)
        samples = tiny_sampler(policy).sample(prompts, 4, seed=9)
        assert identical(samples, tiny_sampler(tiny).sample(prompts, 4, seed=9))


# --- seeds ----------------------------------------------------------------------------------------


def test_the_seed_decides_and_the_callers_random_state_is_left_alone(tiny: Policy) -> None:
    prompts = prompts_of(tiny, 3)
    torch.manual_seed(123)
    before = torch.get_rng_state()
    first = tiny_sampler(tiny).sample(prompts, 4, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    assert identical(tiny_sampler(tiny).sample(prompts, 4, seed=1), first)
    assert not identical(tiny_sampler(tiny).sample(prompts, 4, seed=2), first)


def test_answers_to_one_question_differ(tiny: Policy) -> None:
    samples = tiny_sampler(tiny).sample(prompts_of(tiny, 5), 8, seed=1)
    assert any(len({tuple(ids) for ids in group}) > 1 for group in samples.ids.tolist())


def test_derived_seeds() -> None:
    """Known values: a change would give every committed run other random numbers."""
    assert derive_seed(0, "rollout", 0) == 8315471567273448995
    assert derive_seed(7, "eval", 20) == 3895697474952416773
    parts = [(seed, use, n) for seed in range(5) for use in ("eval", "order") for n in range(20)]
    seeds = {derive_seed(*p) for p in parts}
    assert len(seeds) == len(parts)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_request_to_stop_ends_sampling(tiny: Policy) -> None:
    calls = 0

    def stop_at_third_token() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Interrupted

    sampler = HFSampler(tiny, RolloutConfig(max_new_tokens=40), stop_at_third_token)
    state = torch.get_rng_state()
    with pytest.raises(Interrupted):
        sampler.sample(prompts_of(tiny, 2), 2, seed=0)
    assert calls == 3
    assert torch.equal(torch.get_rng_state(), state)


def test_a_policy_that_has_blown_up_is_recorded_and_never_evaluated() -> None:
    """Drawing from NaN would end the process; who samples looks at the log-probabilities."""
    policy = load_tiny()
    policy.model.model.norm.weight.data[0] = math.nan
    sampler = tiny_sampler(policy)
    samples = sampler.sample(prompts_of(policy, 1), 2, seed=0)
    assert samples.logprobs[samples.mask].isnan().all()
    items = tiny_questions(1)
    with pytest.raises(UserError, match=f"question '{items[0].id}': .* are not finite"):
        answer(
            sampler, policy.tokenizer, ExactVerifier(), items, prompts_of(policy, 1), n=2, seed=0
        )


def test_groups_stay_together(batch: Batch, tiny: Policy) -> None:
    """Rows are sampled in order of prompt length; each must come back to its own question."""
    first_numbers = [question.problem.split()[0] for question in batch.questions]
    for number, group in zip(first_numbers, batch.texts, strict=True):
        starts = [text.split(")")[1].split("=")[0].strip() for text in group]
        assert sum(start.startswith(number) for start in starts) >= 3
