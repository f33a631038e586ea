"""Loading a policy: dropout, adapters, end-of-sequence tokens, prompts, and folders that are no
model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from lens_ref.rlvr.config import Config, LoraConfig, ModelConfig, PromptConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.policy import Policy, load_policy, model_folder, resolve_device, token_logprobs
from lens_ref.rlvr.prompts import encode_prompt, encode_prompts
from lens_ref.rlvr.tasks import Question, Questions
from tests.rlvr.helpers import BOS, CPU, EOS, HE, HELLO, LLO, A, B, load_tiny, save_model

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
    del tensors["model.layers.1.mlp.up_proj.weight"]
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
        (lambda folder: with_text(folder, "config.json", "{"), "cannot load the model"),
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
        "broken config",
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
