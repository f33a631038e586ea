"""vLLM behind the sampler's protocol: a stand-in that samples for real, and that can be made to
fail in the ways that engines have failed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from lens_ref.rlvr import memory, probe, sampler, vllm_engine, vllm_sampler
from lens_ref.rlvr.adapter import adapter_hash, adapter_tensors, write_adapter
from lens_ref.rlvr.config import Config, load
from lens_ref.rlvr.errors import Interrupted, UserError
from lens_ref.rlvr.memory import Shape
from lens_ref.rlvr.policy import Policy, load_policy
from lens_ref.rlvr.sampler import HFSampler, choose_engine, make_sampler
from lens_ref.rlvr.vllm_sampler import VLLMSampler
from tests.rlvr import fake_vllm
from tests.rlvr.fake_vllm import Fake
from tests.rlvr.helpers import CPU, EOS, HE, HELLO, LLO, A, B, no_stop, save_model

PROMPTS = [(HE,), (HE, HELLO, HE), (HELLO, HE), (A, B, A, HE), (LLO, A)]
Install = Callable[..., Fake]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random models that are far from uniform."""
    kinds = ("llama", "qwen2")
    return {
        kind: save_model(tmp_path_factory.mktemp(kind), kind, initializer_range=0.3)
        for kind in kinds
    }


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    return lambda **faults: fake_vllm.install(monkeypatch, **faults)


def config_for(folder: Path, **overrides: Any) -> Config:
    base: dict[str, Any] = {
        "model.path": str(folder),
        "model.lora": {"r": 4, "alpha": 6.0},
        "rollout.engine": "vllm",
        "rollout.max_new_tokens": 6,
        "rollout.responses": 4,
    }
    return load(None, base | {key.replace("__", "."): v for key, v in overrides.items()})


def policy_for(config: Config, adapted: bool = True) -> Policy:
    policy = load_policy(config.model, CPU, 0)
    if adapted:
        adapt(policy, 1)
    return policy


def adapt(policy: Policy, seed: int) -> None:
    """Give the adapter weights that matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.trainable().items():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)


def make(config: Config, check: Callable[[], None] = no_stop) -> tuple[VLLMSampler, Policy]:
    policy = policy_for(config)
    made = make_sampler(policy, config, max(map(len, PROMPTS)), check)
    assert isinstance(made, VLLMSampler)
    return made, policy


def worst_drift(made: VLLMSampler, policy: Policy, temperature: float, seed: int = 5) -> float:
    """Largest |sampler − trainer| over all tokens of 4 answers to each prompt."""
    samples = made.draw(PROMPTS, 4, seed, 6)
    assert samples.scored is None
    repeated = [prompt for prompt in PROMPTS for _ in range(4)]
    rows = zip(samples.ids.flatten(0, 1), samples.lengths.flatten().tolist(), strict=True)
    with torch.no_grad():
        logprobs, _ = policy.logprobs(repeated, [ids[:n] for ids, n in rows], temperature)
    own = samples.logprobs.flatten(0, 1)
    return max(float((own[i, : len(t)] - t).abs().max()) for i, t in enumerate(logprobs))


# --- the adapter as files -------------------------------------------------------------------------


def test_a_saved_adapter_is_the_trained_one(folders: dict[str, Path], tmp_path: Path) -> None:
    config = config_for(folders["qwen2"])
    policy = policy_for(config)
    tensors = adapter_tensors(policy, torch.float32)
    write_adapter(policy, tmp_path / "adapter", tensors)
    base = AutoModelForCausalLM.from_pretrained(folders["qwen2"])
    loaded = PeftModel.from_pretrained(base, str(tmp_path / "adapter")).eval()
    ids = torch.tensor([[HE, HELLO, A, B]])
    with torch.no_grad():
        gap = (loaded(ids).logits - policy.model(ids).logits).abs().max()
    assert gap < 1e-5
    assert adapter_hash(tensors) == adapter_hash(adapter_tensors(policy, torch.float32))


def test_the_hash_sees_names_shapes_types_and_single_bits() -> None:
    tensors = {"a": torch.zeros(2, 3), "b": torch.ones(4)}
    flipped = tensors["a"].clone()
    flipped.view(torch.int32)[1, 2] ^= 1
    others = [
        {"a": flipped, "b": tensors["b"]},
        {"c": tensors["a"], "b": tensors["b"]},
        {"a": torch.zeros(3, 2), "b": tensors["b"]},
        {"a": torch.zeros(2, 3, dtype=torch.int32), "b": tensors["b"]},
        {"a": tensors["a"]},
    ]
    hashes = [adapter_hash(each) for each in [tensors, *others]]
    assert len(set(hashes)) == 6
    assert adapter_hash({"b": tensors["b"], "a": tensors["a"].T.contiguous().T}) == hashes[0]


def test_the_sampler_is_handed_its_own_precision(folders: dict[str, Path]) -> None:
    policy = policy_for(config_for(folders["qwen2"]))
    tensors = adapter_tensors(policy, torch.bfloat16)
    assert {t.dtype for t in tensors.values()} == {torch.bfloat16}
    assert len(tensors) == 2 * 7 * 2  # A and B of seven linear layers in two blocks
    assert "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight" in tensors
    assert all(p.dtype is torch.float32 for p in policy.trainable().values())


# --- how vLLM is started and asked ----------------------------------------------------------------


def test_the_engine_is_started_with_nothing_left_to_chance(
    install: Install, folders: dict[str, Path]
) -> None:
    fake = install()
    config = config_for(folders["llama"], seed=3, rollout__vllm={"memory_share": 0.3})
    made, _ = make(config)
    assert fake.llm.keywords == {
        "model": str(folders["llama"]),
        "dtype": "float32",
        "quantization": None,
        "trust_remote_code": False,
        "enable_lora": True,
        "max_lora_rank": 8,  # the smallest that holds r = 4
        "max_loras": 1,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "max_model_len": 4 + 6 + 1,
        "max_num_seqs": 512,
        "gpu_memory_utilization": 0.3,
        "enable_sleep_mode": False,
        "enforce_eager": False,
        "compilation_config": {"cudagraph_capture_sizes": vllm_engine.graph_sizes(512)},
        "enable_prefix_caching": True,
        "disable_log_stats": True,
        "seed": 3,
    }
    made.close()
    assert (made.engine, made.version) == ("vllm", "0.20.2")
    assert fake.events[-2:] == ["shutdown", "clean up"]
    assert not made.folder.exists()
    made.close()  # once is enough
    assert fake.events.count("shutdown") == 1


def test_a_cache_of_a_given_size_is_not_measured(
    install: Install, folders: dict[str, Path]
) -> None:
    """What another process takes or frees meanwhile would be counted as the engine's."""
    fake = install()
    made, _ = make(config_for(folders["llama"], rollout__vllm={"cache_gb": 1.5}))
    assert fake.llm.keywords["kv_cache_memory_bytes"] == 1_500_000_000
    made.close()
    both = {"cache_gb": 6, "memory_share": 0.2}
    for refused in ({"cache_gb": 0}, {"cache_gb": 1e9}, {"cache_gb": "nan"}, both):
        with pytest.raises(UserError, match="cache_gb"):
            config_for(folders["llama"], rollout__vllm=refused)


def test_starting_leaves_the_random_state_alone(install: Install, folders: dict[str, Path]) -> None:
    install()
    config = config_for(folders["llama"])
    policy = policy_for(config)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    make_sampler(policy, config, 4, no_stop).close()
    assert torch.equal(torch.get_rng_state(), state)


def test_an_engine_that_does_not_start_is_one_line(
    install: Install, folders: dict[str, Path]
) -> None:
    fake = install()
    config = config_for(folders["llama"])
    policy = policy_for(config)
    fake_vllm.sys.modules["vllm"].LLM = lambda **keywords: raise_(
        ValueError("No available memory for the cache blocks.\nmore")
    )
    with pytest.raises(UserError, match=r"does not start: No available .*memory_share") as caught:
        make_sampler(policy, config, 4, no_stop)
    assert "\n" not in str(caught.value)
    assert not fake.engines


def raise_(error: Exception) -> None:
    raise error


# --- sampling -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "temperature"), [("llama", 0.7), ("qwen2", 1.0)])
def test_sampler_and_trainer_agree(
    kind: str, temperature: float, install: Install, folders: dict[str, Path]
) -> None:
    install()
    made, policy = make(config_for(folders[kind], rollout__temperature=temperature))
    made.sync()
    assert worst_drift(made, policy, temperature) < 1e-4
    adapt(policy, 2)
    assert worst_drift(made, policy, temperature) > 0.1  # not synced
    made.sync()
    assert worst_drift(made, policy, temperature) < 1e-4
    made.close()


def test_log_probabilities_of_one_answer_a_question(
    install: Install, folders: dict[str, Path]
) -> None:
    """They are the trainer's at the sampling temperature; the others' are unknown, not 0."""
    fake = install()
    made, policy = make(config_for(folders["qwen2"], rollout__temperature=0.7))
    made.sync()
    samples = made.sample(PROMPTS, 4, seed=5)
    assert fake.asked == [(1, 0), (3, None)] * len(PROMPTS)
    assert samples.scored is not None
    assert samples.scored.tolist() == [[True, False, False, False]] * len(PROMPTS)
    assert torch.equal(samples.scored_mask, samples.mask & ~samples.logprobs.isnan())
    first = [ids[:n] for ids, n in zip(samples.ids[:, 0], samples.lengths[:, 0], strict=True)]
    with torch.no_grad():
        logprobs, _ = policy.logprobs(PROMPTS, first, 0.7)
    told = samples.logprobs[samples.scored_mask]
    torch.testing.assert_close(told, torch.cat(logprobs), atol=1e-4, rtol=0)
    made.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"loss__old_logprobs": "sampler"},
        {"loss__sampler_correction": "truncate"},
        {"rollout__vllm__logprobs": "all"},
    ],
)
def test_log_probabilities_of_every_answer_where_they_are_needed(
    settings: dict[str, Any], install: Install, folders: dict[str, Path]
) -> None:
    fake = install()
    made, _ = make(config_for(folders["qwen2"], **settings))
    made.sync()
    samples = made.sample(PROMPTS, 4, seed=5)
    assert fake.asked == [(4, 0)] * len(PROMPTS)
    assert samples.scored is None
    assert samples.logprobs[samples.mask].isfinite().all()
    made.close()


def test_one_engine_tells_of_one_answer_or_of_all(
    install: Install, folders: dict[str, Path]
) -> None:
    install()
    made, policy = make(config_for(folders["qwen2"]))
    made.sync()
    assert made.sample(PROMPTS, 4, seed=5).scored is not None
    of_all = config_for(folders["qwen2"], rollout__vllm__logprobs="all")
    assert made.adopt(policy, of_all, max(map(len, PROMPTS)), no_stop)
    assert made.sample(PROMPTS, 4, seed=5).scored is None
    made.close()


def test_a_single_answer_has_log_probabilities(install: Install, folders: dict[str, Path]) -> None:
    fake = install()
    made, _ = make(config_for(folders["qwen2"]))
    made.sync()
    assert made.sample(PROMPTS, 1, seed=5).scored is None
    assert fake.asked == [(1, 0)] * len(PROMPTS)
    made.close()


def test_two_adapters_one_after_the_other(install: Install, folders: dict[str, Path]) -> None:
    install()
    made, policy = make(config_for(folders["llama"]))
    scores = []
    for seed in (1, 2, 1):
        adapt(policy, seed)
        made.sync()
        scores.append(torch.cat(made.score([(HE, HELLO, A, B), (B, B, EOS)])))
    assert torch.equal(scores[0], scores[2])
    assert (scores[0] - scores[1]).abs().mean() > 0.1
    with torch.no_grad():
        own, _ = policy.logprobs(
            [(HE,), (B,)], [torch.tensor([HELLO, A, B]), torch.tensor([B, EOS])], 1.0
        )
    torch.testing.assert_close(scores[2], torch.cat(own), atol=1e-5, rtol=0)
    made.close()


def test_the_seed_decides_and_the_callers_random_states_are_left_alone(
    install: Install, folders: dict[str, Path]
) -> None:
    install()
    made, _ = make(config_for(folders["qwen2"]))
    made.sync()
    torch.manual_seed(1)
    numpy.random.seed(1)
    before = torch.get_rng_state(), numpy.random.get_state()[1].tolist()
    first = made.sample(PROMPTS, 4, seed=2**62 + 1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert numpy.random.get_state()[1].tolist() == before[1]
    torch.rand(3)
    assert torch.equal(made.sample(PROMPTS, 4, seed=2**62 + 1).ids, first.ids)
    assert not torch.equal(made.sample(PROMPTS, 4, seed=2).ids, first.ids)
    made.close()


def test_several_end_tokens_finish_an_answer(install: Install, folders: dict[str, Path]) -> None:
    install()
    config = config_for(folders["qwen2"])
    policy = replace(policy_for(config), stop_ids=(EOS, HELLO))
    made = make_sampler(policy, config, 4, no_stop)
    made.sync()
    samples = made.sample(PROMPTS, 16, seed=1)
    last = samples.ids.gather(-1, samples.lengths.unsqueeze(-1) - 1).squeeze(-1)
    assert {EOS, HELLO} <= set(last[~samples.truncated].tolist())
    assert not torch.isin(last[samples.truncated], torch.tensor([EOS, HELLO])).any()
    assert (samples.lengths[samples.truncated] == 6).all()
    assert samples.truncated.any()
    made.close()


def test_a_request_to_stop_aborts_what_is_under_way(
    install: Install, folders: dict[str, Path]
) -> None:
    fake = install()
    calls = 0

    def stop_at_second_step() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Interrupted

    made, _ = make(config_for(folders["qwen2"]), stop_at_second_step)
    made.sync()
    with pytest.raises(Interrupted):
        made.sample(PROMPTS, 2, seed=0)
    assert fake.events[-1] == "abort"
    assert not fake.llm.has_unfinished_requests()
    assert made.sample(PROMPTS, 2, seed=0).ids.shape[:2] == (5, 2)
    made.close()


# --- handing the adapter over ---------------------------------------------------------------------


def test_the_adapter_is_sent_once_for_every_change(
    install: Install, folders: dict[str, Path]
) -> None:
    fake = install()
    made, policy = make(config_for(folders["llama"]))
    made.sync()
    made.sync()
    assert fake.events.count("add_lora") == 1
    first = made.request
    adapt(policy, 2)
    made.sync()
    made.sample(PROMPTS, 2, seed=0)
    made.sync()
    assert fake.events.count("add_lora") == 2
    second = made.request
    assert first.lora_name != second.lora_name
    assert first.lora_int_id != second.lora_int_id
    assert not Path(first.lora_path).exists()
    assert [path.name for path in made.folder.iterdir()] == [second.lora_name]
    assert fake.llm.list_loras() == {second.lora_int_id}
    made.close()


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"stale_weights": True}, "does not run the adapter that it was given: 14 of 14 layers"),
        ({"forgets_layer": "k_proj"}, r"given: 2 of 14 layers differ \(model.layers.0.self_attn.k"),
        ({"forgets_layer": "down_proj"}, "given: 2 of 14 layers differ"),
    ],
)
def test_what_the_engine_holds_is_read_back(
    faults: dict[str, Any], message: str, install: Install, folders: dict[str, Path]
) -> None:
    install(**faults)
    made, policy = make(config_for(folders["qwen2"]))

    def sync_twice() -> None:
        for seed in (1, 2):
            adapt(policy, seed)
            made.sync()

    with pytest.raises(UserError, match=message):
        sync_twice()
    assert made.served == ""  # nothing counts as served after that
    made.close()


def test_a_rank_beyond_vllms_is_one_line(install: Install, folders: dict[str, Path]) -> None:
    install()
    config = config_for(folders["llama"], model__lora={"r": 600})
    with pytest.raises(UserError, match="rank 512 at most"):
        make_sampler(policy_for(config), config, 4, no_stop)


# --- the probe ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "temperature", "adapted"),
    [("llama", 0.6, False), ("llama", 1.0, True), ("qwen2", 1.0, False), ("qwen2", 0.6, True)],
)
def test_a_faithful_engine_passes(
    kind: str, temperature: float, adapted: bool, install: Install, folders: dict[str, Path]
) -> None:
    """And the trainer's adapter is what it was, to the bit, and served again."""
    install()
    config = config_for(folders[kind], rollout__temperature=temperature)
    policy = policy_for(config, adapted)
    made = make_sampler(policy, config, 4, no_stop)
    before = adapter_tensors(policy, torch.float32)
    made.verify(PROMPTS)
    after = adapter_tensors(policy, torch.float32)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert made.served == adapter_hash(before)
    assert worst_drift(made, policy, temperature) < 1e-4
    made.close()


OTHER_POLICY = "does not run the trainer's policy"


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"ignores_adapter": True}, "does not follow the adapter: .* the sampler by 0.00"),
        ({"stale_prefixes": True}, "does not follow the adapter: .* the sampler by 0.00"),
        ({"raw_logprobs": True}, f"{OTHER_POLICY}: as it samples"),
        ({"one_logprob": None}, "no log-probability of a token"),
        ({"one_logprob": math.nan}, f"{OTHER_POLICY}: as it samples, .* off by nan"),
        ({"one_end_token": True}, "its end-of-sequence tokens are not the trainer's"),
        ({"drops_end_token": True}, "its end-of-sequence tokens are not the trainer's"),
        ({"retokenises": True}, "do not belong to the tokens that it sampled"),
    ],
)
def test_an_engine_with_a_fault_is_refused(
    faults: dict[str, Any], message: str, install: Install, folders: dict[str, Path]
) -> None:
    """With B = 0, as every run begins: what an engine does with an adapter does not show yet."""
    install(**faults)
    config = config_for(folders["qwen2"], rollout__temperature=0.6, rollout__max_new_tokens=12)
    policy = replace(policy_for(config, adapted=False), stop_ids=(EOS, A))
    before = adapter_tensors(policy, torch.float32)
    made = make_sampler(policy, config, 4, no_stop)
    with pytest.raises(UserError, match=message) as caught:
        made.verify(PROMPTS)
    assert "\n" not in str(caught.value)
    after = adapter_tensors(policy, torch.float32)
    assert all(torch.equal(before[name], after[name]) for name in before)
    made.close()


def test_a_probe_that_moves_nothing_proves_nothing(
    install: Install, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    monkeypatch.setattr(probe, "STRENGTH", 1e-4)
    config = config_for(folders["llama"])
    made = make_sampler(policy_for(config, adapted=False), config, 4, no_stop)
    with pytest.raises(UserError, match="too little to check"):
        made.verify(PROMPTS)
    made.close()


def test_the_probe_is_taken_out_whatever_happens(folders: dict[str, Path]) -> None:
    policy = policy_for(config_for(folders["llama"]))
    before = adapter_tensors(policy, torch.float32)
    state = torch.get_rng_state()
    inside: dict[str, torch.Tensor] = {}

    def interrupted() -> None:
        with probe.probing(policy):
            inside.update(adapter_tensors(policy, torch.float32))
            raise Interrupted

    with pytest.raises(Interrupted):
        interrupted()
    changed = {name for name in before if not torch.equal(before[name], inside[name])}
    assert changed == {name for name in before if "lora_B" in name}
    after = adapter_tensors(policy, torch.float32)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(torch.get_rng_state(), state)


# --- memory ---------------------------------------------------------------------------------------


def test_sleep_and_wake(install: Install, folders: dict[str, Path]) -> None:
    fake = install()
    made, policy = make(config_for(folders["llama"], rollout__vllm={"sleep": True}))
    made.sync()
    made.sample(PROMPTS, 2, seed=0)
    made.rest()
    made.rest()
    made.sync()  # nothing changed: it may sleep on
    adapt(policy, 2)
    made.sync()
    made.rest()
    made.sample(PROMPTS, 2, seed=0)
    slept = [e for e in fake.events if e in ("sleep", "wake_up", "add_lora", "enqueue")]
    assert slept == [
        *("add_lora", "enqueue", "sleep"),
        *("wake_up", "add_lora", "sleep"),
        *("wake_up", "enqueue"),
    ]
    made.close()


def test_an_adapter_is_loaded_unpinned_by_one_thread(
    install: Install, folders: dict[str, Path]
) -> None:
    """And all is as it was afterwards, loaded or not."""
    fake = install()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        made, policy = make(config_for(folders["llama"]))
        made.sync()
        assert (fake.pinning.is_pin_memory_available(), torch.get_num_threads()) == (True, 2)
        fake.llm.keywords["max_lora_rank"] = 1
        adapt(policy, 2)
        with pytest.raises(UserError, match="vLLM does not load the adapter"):
            made.sync()
        assert (fake.pinning.is_pin_memory_available(), torch.get_num_threads()) == (True, 2)
        assert fake.loads == [(False, 1)] * 2
        made.close()
    finally:
        torch.set_num_threads(threads)


def test_graphs_for_all_answers_at_once_and_for_new_prompts_beside_them(
    install: Install, folders: dict[str, Path]
) -> None:
    fake = install()
    made, _ = make(config_for(folders["llama"], rollout__vllm={"max_sequences": 20}))
    few = [1, 2, 4, 8, 16, 20, *(148, 276, 404, 532, 660, 788, 916, 1044, 1172, 1300, 1428, 1556)]
    assert fake.llm.keywords["compilation_config"] == {"cudagraph_capture_sizes": few}
    made.close()
    made, _ = make(config_for(folders["llama"], rollout__vllm={"eager": True}))
    assert "compilation_config" not in fake.llm.keywords
    made.close()
    for answers in (1, 512, 1000, 1024):
        sizes = vllm_engine.graph_sizes(answers)
        assert sizes == sorted(set(sizes))
        assert {1, answers} <= set(sizes)
        assert sizes[-1] == answers + 1536
        decoding = [0, *(size for size in sizes if size <= answers)]
        assert max(b - a for a, b in itertools.pairwise(decoding)) <= 16


def test_it_stays_awake_unless_asked(install: Install, folders: dict[str, Path]) -> None:
    fake = install()
    made, _ = make(config_for(folders["llama"]))
    made.sync()
    made.rest()
    assert "sleep" not in fake.events
    made.close()


SHAPE = Shape(
    hidden=1000, layers=10, key_value=100, intermediate=4000, vocabulary=100_000, tied=True
)


def share(card: float, **overrides: Any) -> float:
    base = {"rollout.engine": "vllm", "model.lora": {"r": 4}, "rollout.max_new_tokens": 900}
    config = load(None, base | {key.replace("__", "."): v for key, v in overrides.items()})
    return vllm_engine.memory_share(SHAPE, config, 100, int(card))


def test_the_share_of_memory() -> None:
    """Weights 242 M x 2; keys and values 512 x 1000 x 10 x 2 x 100 x 2; logits 12 x 512 x 100 k;
    1.5 GB beside: .484 + 2.048 + .6144 + 1.5 = 4.6464 GB."""
    assert SHAPE.parameters == 242_000_000
    assert share(80e9) == pytest.approx(4.6464e9 / 80e9, rel=1e-4)
    halved = share(80e9, rollout__vllm={"max_sequences": 256})
    assert halved == pytest.approx((0.484 + 1.024 + 0.3072 + 1.5) / 80, rel=1e-4)
    given = share(80e9, rollout__vllm={"cache_gb": 6})
    assert given == pytest.approx((0.484 + 6 + 0.6144 + 1.5) / 80, rel=1e-4)
    with pytest.raises(UserError, match=r"cache_gb=6 and what else .* 8.6 GB: more than 8.1 GB"):
        share(18e9, rollout__vllm={"cache_gb": 6})
    assert share(8e9) == pytest.approx(0.45)
    assert share(80e9, model__memory_gb=8) == pytest.approx(0.45 * 8 / 80)
    with pytest.raises(UserError, match=r"0.5 GB\) leaves no room for its cache in 1.8 GB, 45%"):
        share(4e9)
    config = config_for(Path("tiny"))
    assert vllm_engine.memory_share(None, config, 100, 80) == 0.45


def test_what_is_kept_asleep() -> None:
    assert vllm_engine.as_share(9_000_000_000, sleeps=False) == (9_000_000_000, 0)
    assert vllm_engine.as_share(9_000_000_000, sleeps=True) == (1_500_000_000, 7_500_000_000)
    assert vllm_engine.as_share(1_000_000_000, sleeps=True) == (1_000_000_000, 0)


def test_the_limit_leaves_out_what_sleeps(
    install: Install, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch counts a sleeping engine's memory as allocated: the trainer would be short of it."""
    asked: list[tuple[float, int]] = []
    limit = lambda device, gb, returned: asked.append((gb, returned))  # noqa: E731
    monkeypatch.setattr(vllm_sampler, "limit_memory", limit)
    install()
    made, _ = make(config_for(folders["llama"], model__memory_gb=24))
    made.sync()
    assert asked == []
    made.rest()
    made.rest()
    assert asked == [(24, fake_vllm.POOL)]
    made.sample(PROMPTS, 1, seed=0)
    assert asked[1:] == [(24, 0)]
    made.rest()
    made.close()
    assert asked[2:] == [(24, fake_vllm.POOL), (24, 0)]
    without, _ = make(config_for(folders["llama"], rollout__vllm={"eager": True}))
    without.rest()
    without.close()
    assert len(asked) == 4


def test_when_it_must_sleep(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_for(folders["llama"])
    policy = policy_for(config)
    shape = memory.read_shape(str(folders["llama"]))
    assert shape is not None
    needed = memory.make_plan(config, shape, CPU, shape.layers, sampler=memory.NOTHING).total
    monkeypatch.setattr(vllm_engine, "card_bytes", lambda device: (needed + 100) / memory.USABLE)
    assert not vllm_engine.may_sleep(policy.device, config, 100)
    assert vllm_engine.may_sleep(policy.device, config, 101)
    with_limit = config_for(folders["llama"], model__memory_gb=24)
    assert vllm_engine.may_sleep(policy.device, with_limit, 100)
    never = config_for(folders["llama"], model__memory_gb=24, rollout__vllm={"sleep": False})
    assert not vllm_engine.may_sleep(policy.device, never, 1e12)


# --- which engine ---------------------------------------------------------------------------------


def test_auto_takes_vllm_where_it_serves(
    install: Install, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    auto = config_for(folders["llama"], rollout__engine="auto")
    policy = policy_for(auto)
    assert choose_engine(auto, CPU) == "hf"  # neither a GPU nor vLLM
    assert isinstance(make_sampler(policy, auto, 4, no_stop), HFSampler)
    monkeypatch.setattr(sampler, "on_gpu", lambda policy: True)
    assert choose_engine(auto, CPU) == "hf"
    install()
    assert choose_engine(auto, CPU) == "vllm"
    full = config_for(folders["llama"], rollout__engine="auto", model__lora=None)
    assert choose_engine(full, CPU) == "hf"
    large = config_for(folders["llama"], rollout__engine="auto", model__lora={"r": 513})
    assert choose_engine(large, CPU) == "hf"
    in_32_bits = config_for(folders["llama"], rollout__engine="auto", model__dtype="float32")
    assert choose_engine(in_32_bits, CPU) == "hf"
    four_bits = {"rollout__engine": "auto", "model__quantization": "nf4"}
    assert choose_engine(config_for(folders["llama"], **four_bits), CPU) == "hf"
    monkeypatch.setattr(sampler.metadata, "version", lambda name: "0.20.2")
    both = {**four_bits, "rollout__vllm": {"quantization": "bitsandbytes"}}
    assert choose_engine(config_for(folders["llama"], **both), CPU) == "vllm"


def test_hf_is_hf_everywhere(install: Install, folders: dict[str, Path]) -> None:
    install()
    config = config_for(folders["llama"], rollout__engine="hf")
    assert choose_engine(config, CPU) == "hf"


def refusal(policy: Policy, config: Config) -> str:
    with pytest.raises(UserError) as caught:
        make_sampler(policy, config, 4, no_stop)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_vllm_that_cannot_serve_says_what_to_do(
    install: Install, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folders["llama"]
    config = config_for(folder)
    policy = policy_for(config)
    assert "needs a GPU" in refusal(policy, config)
    monkeypatch.setattr(sampler, "on_gpu", lambda policy: True)
    assert "pip install vllm" in refusal(policy, config)
    install()
    full = config_for(folder, model__lora=None)
    assert "(--lora)" in refusal(load_policy(full.model, CPU, 0), full)
    assert "16 bits only" in refusal(policy, config_for(folder, model__dtype="float32"))
    qlora = config_for(folder, model__quantization="nf4")
    assert "another policy" in refusal(policy, qlora)
    assert "rollout.vllm.quantization to bitsandbytes" in refusal(policy, qlora)
    reverse = config_for(folder, rollout__vllm={"quantization": "bitsandbytes"})
    assert "rollout.vllm.quantization to null" in refusal(policy, reverse)


def test_qlora_with_vllm(
    install: Install, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    folder, policy = folders["llama"], policy_for(config_for(folders["llama"]))
    corrected = config_for(folder, model__quantization="nf4", loss__sampler_correction="truncate")
    assert choose_engine(corrected, CPU) == "vllm"
    both = config_for(
        folder, model__quantization="nf4", rollout__vllm={"quantization": "bitsandbytes"}
    )
    versions = {"vllm": "0.27.1"}

    def version(name: str) -> str:
        if name not in versions:
            raise sampler.metadata.PackageNotFoundError
        return versions[name]

    monkeypatch.setattr(sampler.metadata, "version", version)
    assert choose_engine(both, CPU) == "vllm"
    versions["vllm"] = "0.32.0"
    assert "pip install vllm-bnb-plugin" in refusal(policy, both)
    versions["vllm-bnb-plugin"] = "0.0.3"
    assert choose_engine(both, CPU) == "vllm"
