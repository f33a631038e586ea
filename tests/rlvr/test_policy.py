"""Loading a policy: dropout, adapters, end-of-sequence tokens, prompts, and folders that are no
model."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from lens_ref.rlvr.config import Config, LoraConfig, ModelConfig, PromptConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.policy import Policy, load_policy, model_folder, resolve_device, token_logprobs
from lens_ref.rlvr.prompts import encode_prompt, encode_prompts
from lens_ref.rlvr.tasks import Question, Questions
from tests.rlvr.helpers import (
    BOS,
    CPU,
    EOS,
    HE,
    HELLO,
    LLO,
    A,
    B,
    load_tiny,
    save_model,
    tiny_sampler,
)

LORA = LoraConfig(r=2, alpha=4.0)


def load(folder: Path, stop_tokens: tuple[str, ...] = (), **model: Any) -> Policy:
    return load_policy(ModelConfig(path=str(folder), **model), CPU, 0, stop_tokens)


def logprobs(policy: Policy) -> torch.Tensor:
    (result,), _ = token_logprobs(policy.model, [(BOS, HE, A)], [torch.tensor([LLO, B, EOS])], 1.0)
    return result


# --- dropout --------------------------------------------------------------------------------------

DROPOUTS = [
    ("llama", {"attention_dropout": 0.5}),
    ("qwen2", {"attention_dropout": 0.5}),
    ("gpt2", {"attn_pdrop": 0.5, "embd_pdrop": 0.5, "resid_pdrop": 0.5}),
    ("opt", {"dropout": 0.5, "attention_dropout": 0.5, "layerdrop": 0.5}),
    ("gpt_neox", {"attention_dropout": 0.5, "hidden_dropout": 0.5}),
    ("falcon", {"attention_dropout": 0.5, "hidden_dropout": 0.5}),
]


@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
@pytest.mark.parametrize(("kind", "dropout"), DROPOUTS, ids=[kind for kind, _ in DROPOUTS])
def test_every_dropout_is_off(
    kind: str, dropout: dict[str, float], lora: LoraConfig | None, tmp_path: Path
) -> None:
    """Otherwise the policy that samples is not the one that is trained."""
    policy = load(save_model(tmp_path, kind, **dropout), lora=lora)
    policy.model.eval()
    sampling = logprobs(policy)
    policy.model.train()
    assert torch.equal(logprobs(policy), sampling)
    assert torch.equal(logprobs(policy), sampling)


# --- adapters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_adapters_receive_gradients(
    kind: str, checkpointing: bool, model_folder: Callable[[str], Path]
) -> None:
    """B starts at 0, so that at the first step B has a gradient and A has none; then both have."""
    policy = load(model_folder(kind), lora=LORA, gradient_checkpointing=checkpointing)
    policy.model.train()
    parameters = policy.trainable()
    assert {name.split(".")[-3] for name in parameters} == {"lora_A", "lora_B"}
    assert len(parameters) == 2 * 7 * 2  # A and B, seven linear layers, two blocks
    logprobs(policy).sum().backward()
    for name, parameter in parameters.items():
        assert parameter.grad is not None, name
        assert bool((parameter.grad != 0).any()) == ("lora_B" in name), name
        parameter.data += 0.1
    policy.model.zero_grad()
    logprobs(policy).sum().backward()
    assert all((p.grad != 0).any() for p in parameters.values())
    frozen = [p for p in policy.model.parameters() if not p.requires_grad]
    assert frozen
    assert all(p.grad is None for p in frozen)


def test_checkpointing_changes_no_gradient(llama: Path) -> None:
    gradients = []
    for checkpointing in (False, True):
        policy = load(llama, gradient_checkpointing=checkpointing)
        policy.model.train()
        logprobs(policy).sum().backward()
        gradients.append([p.grad for p in policy.trainable().values()])
    torch.testing.assert_close(*gradients)


def test_an_adapter_starts_as_the_base_model_and_follows_the_seed(llama: Path) -> None:
    policy = load(llama, lora=LORA)
    assert torch.equal(logprobs(policy), logprobs(load(llama)))
    twin, other = load(llama, lora=LORA), load_policy(ModelConfig(str(llama), LORA), CPU, 1)
    first = next(iter(policy.trainable()))
    assert "lora_A" in first
    assert torch.equal(policy.trainable()[first], twin.trainable()[first])
    assert not torch.equal(policy.trainable()[first], other.trainable()[first])


# --- end of sequence ------------------------------------------------------------------------------


def edit(folder: Path, name: str, **entries: Any) -> None:
    path = folder / name
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(content | entries), encoding="utf-8")


@pytest.fixture
def copy(llama: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(llama, tmp_path / "model"))


def test_all_end_of_sequence_tokens_are_found(copy: Path) -> None:
    assert load(copy).stop_ids == (EOS,)
    edit(copy, "generation_config.json", eos_token_id=[HELLO, EOS])
    assert load(copy).stop_ids == (EOS, HELLO)
    assert load(copy, ("a", "hello")).stop_ids == (EOS, HELLO, A)


def test_the_config_may_list_several(copy: Path) -> None:
    (copy / "generation_config.json").unlink()
    edit(copy, "config.json", eos_token_id=[EOS, B])
    assert set(load(copy).stop_ids) == {EOS, B}


def test_an_unknown_stop_token_is_named(copy: Path) -> None:
    with pytest.raises(UserError, match=r"'<\|im_end\|>' is not a token of this model"):
        load(copy, ("<|im_end|>",))


def test_a_model_without_end_of_sequence_says_so(copy: Path) -> None:
    (copy / "generation_config.json").unlink()
    edit(copy, "config.json", eos_token_id=None)
    edit(copy, "tokenizer_config.json", eos_token=None)
    with pytest.raises(UserError, match=r"set rollout\.stop_tokens"):
        load(copy)
    assert load(copy, ("b",)).stop_ids == (B,)


def test_a_tokenizer_without_pad_token_pads_with_a_stop_token(copy: Path) -> None:
    edit(copy, "tokenizer_config.json", pad_token=None)
    assert load(copy).pad_id == EOS


def test_a_pad_token_beyond_the_embeddings_is_not_used(copy: Path) -> None:
    """Added to the tokenizer alone, as many fine-tuned models have it: id 13 of 8 rows."""
    tokenizer = AutoTokenizer.from_pretrained(copy)
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(copy)
    policy = load(copy)
    assert policy.tokenizer.pad_token_id == 13
    assert policy.pad_id == EOS
    tiny_sampler(policy, max_new_tokens=2).sample([(HE,), (HE, HE)], 2, seed=1)


def test_end_tokens_that_can_not_be_drawn_are_left_out(copy: Path) -> None:
    edit(copy, "generation_config.json", eos_token_id=[99, -1, 8, 7, True])
    edit(copy, "config.json", eos_token_id=99)
    assert load(copy).stop_ids == (EOS, B)
    edit(copy, "generation_config.json", eos_token_id=[99])
    edit(copy, "tokenizer_config.json", eos_token=None)
    with pytest.raises(UserError, match=r"no end-of-sequence token .*set rollout\.stop_tokens"):
        load(copy)
    with pytest.raises(UserError, match="'ll' is not a token of this model"):
        load(copy, ("ll",))  # 12: the tokenizer knows it, the model does not


def test_the_unknown_token_may_end_a_response(copy: Path) -> None:
    """If it is named itself: another one is unknown, as before."""
    edit(copy, "tokenizer_config.json", unk_token="b")
    assert load(copy, ("b",)).stop_ids == (EOS, B)
    with pytest.raises(UserError, match="'strange' is not a token of this model"):
        load(copy, ("strange",))


# --- prompts --------------------------------------------------------------------------------------


class BosTokenizer:
    """Words to numbers; puts a BOS before what it encodes, and one into its chat template."""

    bos_token, bos_token_id, eos_token_id = "<s>", 1, 2
    chat_template: str | None = "<s>{messages}"

    def __init__(self, adds_bos: bool = True, adds_eos: bool = False) -> None:
        self.adds_bos, self.adds_eos = adds_bos, adds_eos

    def apply_chat_template(
        self, messages: list[dict[str, str]], add_generation_prompt: bool, tokenize: bool
    ) -> str:
        assert not tokenize
        assert add_generation_prompt
        return " ".join(["<s>", *(f"{m['role']} {m['content']}" for m in messages), "assistant"])

    def __call__(self, text: str, add_special_tokens: bool = True) -> Any:
        known = {"<s>": 1, "</s>": 2}
        ids = [known.get(word, 3 + len(word)) for word in text.replace("<s>", "<s> ").split()]
        if add_special_tokens:
            ids = [1] * self.adds_bos + ids + [2] * self.adds_eos

        class Encoding:
            input_ids = ids

        return Encoding


@pytest.mark.parametrize(
    ("tokenizer", "template", "expected"),
    [
        (BosTokenizer(), "chat", (1, 7, 5, 12)),  # <s> user 2+ assistant
        (BosTokenizer(adds_bos=False), "chat", (1, 7, 5, 12)),
        (BosTokenizer(), "{problem}", (1, 5)),
        (BosTokenizer(), "<s>{problem}", (1, 5)),
        (BosTokenizer(adds_bos=False), "<s>{problem}", (1, 5)),
        (BosTokenizer(adds_bos=False), "{problem}", (5,)),
        (BosTokenizer(adds_eos=True), "{problem}", (1, 5)),  # a closed text would end the answer
    ],
)
def test_at_most_one_beginning_of_sequence(
    tokenizer: BosTokenizer, template: str, expected: tuple[int, ...]
) -> None:
    assert encode_prompt(tokenizer, PromptConfig(template=template), "2+") == expected


def test_the_system_message_comes_first() -> None:
    prompt = PromptConfig(template="chat", system="be brief")
    ids = encode_prompt(BosTokenizer(), prompt, "2+")
    assert ids == (1, 9, 5, 8, 7, 5, 12)  # <s> system be brief user 2+ assistant


def test_braces_in_a_problem_are_text() -> None:
    prompt = PromptConfig(template="solve {problem} now")
    ids = encode_prompt(BosTokenizer(), prompt, r"\frac{1}{2}")
    assert ids == (1, 8, 14, 6)


def test_a_missing_chat_template_is_one_line() -> None:
    tokenizer = BosTokenizer()
    tokenizer.chat_template = None
    with pytest.raises(UserError, match=r"no chat template; set prompt\.template") as caught:
        encode_prompt(tokenizer, PromptConfig(template="chat"), "2+")
    assert "\n" not in str(caught.value)


def test_a_prompt_without_tokens_is_refused(tiny: Policy) -> None:
    """By the name of its question."""
    dropped = "words that the bundled tokenizer drops"
    questions = Questions("here", (Question("q7", "1", "1"), Question("q8", dropped, "1")))
    with pytest.raises(UserError, match="question 'q8': its prompt has no tokens") as caught:
        encode_prompts(tiny, Config(), questions)
    assert "\n" not in str(caught.value)


# --- folders that are no model --------------------------------------------------------------------


def test_the_bundled_policy_is_a_folder_of_safetensors() -> None:
    folder = Path(model_folder("tiny"))
    assert [path.name for path in folder.glob("*.safetensors")] == ["model.safetensors"]
    assert load_tiny().stop_ids == (1,)


WEIGHT = "model.layers.1.mlp.up_proj.weight"


def without(folder: Path, pattern: str) -> Path:
    for path in folder.glob(pattern):
        path.unlink()
    return folder


def truncated(folder: Path) -> Path:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])
    return folder


def incomplete(folder: Path) -> Path:
    tensors = load_file(folder / "model.safetensors")
    del tensors[WEIGHT]
    return with_weights(folder, tensors)


def one_layer_less(folder: Path) -> Path:
    edit(folder, "config.json", num_hidden_layers=1)
    return folder


def biases(folder: Path) -> Path:
    """Qwen2's, which a Llama does not have."""
    tensors = load_file(folder / "model.safetensors")
    for layer in (0, 1):
        tensors[f"model.layers.{layer}.self_attn.k_proj.bias"] = torch.ones(8)
    return with_weights(folder, tensors)


def not_finite(folder: Path, value: float) -> Path:
    tensors = load_file(folder / "model.safetensors")
    tensors[WEIGHT][3, 5] = value
    return with_weights(folder, tensors)


def with_weights(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def with_text(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: folder / "absent", "no model folder"),
        (lambda folder: without(folder, "*.safetensors"), "has no weights"),
        (lambda folder: without(folder, "config.json"), "has no config.json"),
        (lambda folder: without(folder, "tokenizer*"), "cannot load the model"),
        (truncated, "cannot load the model"),
        (incomplete, r"incomplete: model.layers.1.mlp.up_proj.weight is missing"),
        (one_layer_less, r"do not fit its config\.json.* for model\.layers\.1.* and model\.lay"),
        (biases, r"no place for model\.layers\.0\.self_attn\.k_proj\.bias"),
        (lambda folder: not_finite(folder, math.nan), f"are not finite \\({WEIGHT}\\)"),
        (lambda folder: not_finite(folder, -math.inf), f"are not finite \\({WEIGHT}\\)"),
        (lambda folder: with_text(folder, "adapter_config.json", "{}"), "holds an adapter beside"),
        (lambda folder: with_text(folder, "config.json", "{"), "cannot load the model"),
        (
            lambda folder: with_text(folder, "generation_config.json", "{"),
            r"generation_config\.json is damaged",
        ),
        (lambda folder: with_text(folder, "config.json", "{}"), "cannot load the model"),
        (lambda folder: with_text(folder, "tokenizer.json", "{"), "cannot load the model"),
    ],
    ids=[
        "absent",
        "no weights",
        "no config",
        "no tokenizer",
        "truncated weights",
        "incomplete weights",
        "more layers than the config's",
        "weights of another architecture",
        "not a number",
        "infinity",
        "an adapter",
        "broken config",
        "broken generation config",
        "empty config",
        "broken tokenizer",
    ],
)
def test_a_folder_that_is_no_model_is_one_line(
    damage: Callable[[Path], Path], message: str, copy: Path
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load(damage(copy))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "entries",
    [
        {"num_attention_heads": 0},
        {"num_attention_heads": 3},
        {"num_attention_heads": "2"},
        {"num_hidden_layers": 2.0},
        {"head_dim": 0},
        {"vocab_size": None},
        {"eos_token_id": "</s>"},
        {"rope_parameters": 3},
    ],
    ids=str,
)
def test_a_config_that_no_model_has_is_one_line(entries: dict[str, Any], copy: Path) -> None:
    """transformers raises errors of many kinds here, some of two lines."""
    edit(copy, "config.json", **entries)
    with pytest.raises(UserError, match=r"cannot load the model .*[^:] \(name a") as caught:
        load(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("error", [Exception("a\x1bb\nc"), ImportError("x"), ZeroDivisionError()])
def test_whatever_is_raised_on_the_way_is_one_line(
    error: Exception, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: raising(error))
    with pytest.raises(UserError, match=r": (a\\x1bb|x|ZeroDivisionError) \(name a") as caught:
        load(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), MemoryError(), UserError("so")])
def test_what_is_told_elsewhere_is_passed_on(
    error: Exception, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: raising(error))
    with pytest.raises(type(error)) as caught:
        load(copy)
    assert caught.value is error


def raising(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    "settings",
    [
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        {"quant_method": "gptq", "bits": 4},
        {"quant_method": "awq", "bits": 4},
        {"quant_method": "fp8"},
        {"quant_method": "of tomorrow"},
    ],
    ids=lambda settings: settings["quant_method"],
)
def test_weights_that_are_quantised_already_are_refused(
    settings: dict[str, Any], copy: Path
) -> None:
    edit(copy, "config.json", quantization_config=settings)
    with pytest.raises(UserError, match=r"are quantised .*take the unquantised ones, with --qlora"):
        load(copy)


def test_a_head_that_is_stored_though_it_is_tied_is_loaded(tmp_path: Path) -> None:
    folder = save_model(tmp_path, "llama", tie_word_embeddings=True)
    tensors = load_file(folder / "model.safetensors")
    assert "lm_head.weight" not in tensors
    before = logprobs(load(folder))
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    model = load(with_weights(folder, tensors)).model
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert torch.equal(logprobs(load(folder)), before)


def test_a_mistyped_model_is_not_looked_up_on_the_hub() -> None:
    for path in ("./absent", "/absent", "~/absent", "tinny", "a/b/c"):
        with pytest.raises(UserError, match="no model folder"):
            model_folder(path)
    assert model_folder("owner/name") == "owner/name"


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == CPU
    with pytest.raises(UserError, match="'cuda' is not available here; use --device cpu"):
        resolve_device("cuda")
