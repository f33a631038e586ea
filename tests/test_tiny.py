"""The bundled task, its tokenizer and the bundled policy."""

from __future__ import annotations

import hashlib
import json
import random
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from lens_ref.tiny import LEVELS, MAX_RESPONSE_TOKENS, POLICY_DIR, max_rows, task
from lens_ref.tiny.pretrain import IGNORED, PretrainConfig, batches, build_model, lr_factor, train
from lens_ref.tiny.task import Chain, corpus, fact_table, taught_result, train_rows, worked
from lens_ref.tiny.tokenizer import build_tokenizer, vocabulary


def python_value(problem: str) -> int:
    """Python's own arithmetic on the whole expression, reduced once at the end."""
    start, *steps = re.sub(r" \(mod 36\)$", "", problem).split(" (")
    expression = start
    for step in steps:
        expression = f"({expression}){step.split(') ')[1]}"
    return eval(expression) % 36


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Operations this small only wait for one another on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(POLICY_DIR)


@pytest.fixture(scope="module")
def policy():
    return AutoModelForCausalLM.from_pretrained(POLICY_DIR).eval()


# --- questions ------------------------------------------------------------------------------------


def test_problem_and_worked_answer_by_hand():
    chain = Chain(9, (("+", 5), ("*", 7), ("-", 11)))
    assert chain.problem == "9 (a) +5 (b) *7 (c) -11 (mod 36)"
    assert task.true_results(chain) == [14, 26, 15]  # 14 * 7 = 98 = 2 * 36 + 26
    text = " (a) 9+5=14 (b) 14*7=26 (c) 26-11=15 \\boxed{15}"
    assert worked(chain, [14, 26, 15]) == text


@pytest.mark.parametrize(
    ("fact", "result"),
    [((30, "+", 17), 11), ((3, "-", 13), 26), ((11, "*", 13), 35), ((0, "*", 7), 0)],
)
def test_single_steps_by_hand(fact, result):
    assert task.apply_step(*fact) == result


def test_every_step_is_one_to_one():
    for op in task.OPERATIONS:
        for b in task.OPERANDS:
            assert len({task.apply_step(a, op, b) for a in range(36)}) == 36


@cache
def full_test_set() -> list[dict]:
    return task.test_rows(max_rows("test"))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_rows_of_any_seed(seed):
    rows = train_rows(200, seed)
    assert not {row["problem"] for row in full_test_set()} & {row["problem"] for row in rows}
    assert len({row["id"] for row in rows}) == 200
    assert Counter(row["level"] for row in rows) == dict.fromkeys(LEVELS, 40)
    for row in rows:
        assert row["answer"] == str(python_value(row["problem"]))
        assert row["level"] == len(re.findall(r"\([a-e]\)", row["problem"]))


def test_rows_are_deterministic_prefixes():
    assert train_rows(37, 5) == train_rows(90, 5)[:37]
    assert train_rows(37, 5) != train_rows(37, 6)
    assert task.test_rows(37) == task.test_rows(90)[:37]
    digest = hashlib.sha256(json.dumps([train_rows(50, 0), task.test_rows(50)]).encode())
    assert digest.hexdigest()[:16] == "179e1c0781d0f8cd"


def test_full_test_set():
    rows = full_test_set()
    assert Counter(row["level"] for row in rows) == dict.fromkeys(LEVELS, len(rows) // 5)
    assert len({row["problem"] for row in rows}) == len(rows) >= 500
    assert all(row["answer"] == str(python_value(row["problem"])) for row in rows)


def test_too_many_rows_are_refused():
    assert max_rows("train") + max_rows("test") == 5 * 540
    with pytest.raises(ValueError, match="distinct train questions"):
        train_rows(max_rows("train") + 1, seed=0)
    with pytest.raises(ValueError, match="distinct test questions"):
        task.test_rows(-1)


# --- corpus ---------------------------------------------------------------------------------------


def test_facts_are_taught_in_the_stated_proportions():
    table = fact_table()
    assert Counter(taught.kind for taught in table.values()) == {
        "right": 297,
        "wrong": 54,
        "random": 189,
    }
    for (a, op, b), taught in table.items():
        truth = eval(f"{a}{op}{b}") % 36
        assert (truth in taught.favoured) == (taught.kind != "wrong")
        assert len(taught.favoured) == (12 if taught.kind == "random" else 1)
        assert len(set(taught.favoured)) == len(taught.favoured)


@pytest.mark.parametrize(
    ("kind", "favoured", "truth"),
    [("right", 0.97, 0.97), ("wrong", 0.95, 0.02), ("random", 1, 1 / 12)],
)
def test_how_often_a_kind_of_fact_shows_its_results(kind, favoured, truth):
    fact, taught = next(item for item in fact_table().items() if item[1].kind == kind)
    rng, n = random.Random(0), 20_000
    shown = [taught_result(rng, fact) for _ in range(n)]
    tolerance = 5 * 0.5 / n**0.5
    assert sum(x in taught.favoured for x in shown) / n == pytest.approx(favoured, abs=tolerance)
    assert shown.count(task.apply_step(*fact)) / n == pytest.approx(truth, abs=tolerance)


def test_corpus_copies_well_and_keeps_off_the_test_split():
    sample = list(islice(corpus(3), 1000))
    assert Counter(level for level, _, _ in sample) == dict.fromkeys(LEVELS, 200)
    assert {task.split_of(problem) for _, problem, _ in sample} == {"train"}
    for level, problem, response in sample:
        steps = re.findall(r" \((.)\) (\d+)([-+*])(\d+)=(\d+)", response)
        assert "".join(step[0] for step in steps) == "abcde"[:level]
        assert re.findall(r"\) ([-+*]\d+)", problem) == [op + b for _, _, op, b, _ in steps]
        shown = [problem.split()[0], *(step[4] for step in steps)]
        assert [step[1] for step in steps] == shown[:-1]
        assert response.endswith(f" \\boxed{{{shown[-1]}}}")
    assert sample == list(islice(corpus(3), 1000)) != list(islice(corpus(4), 1000))


# --- tokenizer ------------------------------------------------------------------------------------


def test_tokens_round_trip(tokenizer):
    for level, problem, response in islice(corpus(0), 50):
        prompt, answer = tokenizer(problem)["input_ids"], tokenizer(response)["input_ids"]
        assert tokenizer.decode(prompt) == problem
        assert tokenizer.decode(answer) == response
        assert tokenizer(problem + response)["input_ids"] == prompt + answer
        assert (len(prompt), len(answer)) == (3 * level + 2, 6 * level + 3)
    assert len(answer) + 1 == MAX_RESPONSE_TOKENS


def test_special_tokens(tokenizer):
    assert tokenizer.eos_token_id != tokenizer.pad_token_id
    assert tokenizer.bos_token_id is None
    assert tokenizer.chat_template is None
    assert tokenizer.padding_side == "left"
    box = [*tokenizer(" \\boxed{7}")["input_ids"], tokenizer.eos_token_id, tokenizer.pad_token_id]
    assert len(box) == 5
    assert tokenizer.decode(box, skip_special_tokens=True) == " \\boxed{7}"
    assert tokenizer.decode(box) == " \\boxed{7}<eos><pad>"


def test_saved_tokenizer_is_the_built_one(tokenizer):
    built = build_tokenizer()
    assert built.get_vocab() == tokenizer.get_vocab() == {t: i for i, t in enumerate(vocabulary())}


# --- policy ---------------------------------------------------------------------------------------


def test_policy_folder(policy, tokenizer):
    assert sum(file.stat().st_size for file in POLICY_DIR.iterdir()) <= 6 * 10**6
    assert policy.config.model_type == "qwen2"
    assert 0.1e6 <= policy.num_parameters() <= 1.5e6
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.float32}
    assert policy.config.vocab_size == len(tokenizer)
    assert policy.generation_config.eos_token_id == tokenizer.eos_token_id
    provenance = json.loads((POLICY_DIR / "PROVENANCE.json").read_text())
    weights = (POLICY_DIR / "model.safetensors").read_bytes()
    assert provenance["sha256"]["model.safetensors"] == hashlib.sha256(weights).hexdigest()
    assert PretrainConfig(**provenance["config"]) == PretrainConfig()


def test_left_padding_changes_nothing(policy, tokenizer):
    short, long = "9 (a) +5 (mod 36)", "9 (a) +5 (b) *7 (c) -11 (mod 36)"
    batch = tokenizer([short, long], padding=True, return_tensors="pt")
    with torch.no_grad():
        padded = policy.generate(**batch, do_sample=False, max_new_tokens=MAX_RESPONSE_TOKENS)
        alone = policy.generate(
            **tokenizer([short], return_tensors="pt"),
            do_sample=False,
            max_new_tokens=MAX_RESPONSE_TOKENS,
        )
    texts = tokenizer.batch_decode(padded, skip_special_tokens=True)
    assert texts[0] == tokenizer.decode(alone[0], skip_special_tokens=True)
    assert re.fullmatch(r".* \(a\) 9\+5=(\d+) \\boxed\{\1\}", texts[0])
    assert texts[1].startswith(long + " (a) 9+5=")


@pytest.mark.slow
def test_policy_starts_mediocre(policy, tokenizer):
    """40-60 % negative groups, more of them at higher levels, pass@1 falling with the level."""
    torch.manual_seed(0)
    pass_1, negative = {}, {}
    for level in LEVELS:
        rows = [row for row in full_test_set() if row["level"] == level]
        prompts = tokenizer([row["problem"] for row in rows], return_tensors="pt")
        with torch.no_grad():
            output = policy.generate(
                **prompts, num_return_sequences=16, max_new_tokens=MAX_RESPONSE_TOKENS
            )
        texts = tokenizer.batch_decode(output, skip_special_tokens=True)
        right = torch.tensor(
            [text.endswith(f"\\boxed{{{rows[i // 16]['answer']}}}") for i, text in enumerate(texts)]
        ).view(-1, 16)
        pass_1[level] = right.float().mean().item()
        negative[level] = (~right.any(1)).float().mean().item()
    assert sorted(pass_1, key=pass_1.get) == [5, 4, 3, 2, 1]
    assert sorted(negative, key=negative.get) == [1, 2, 3, 4, 5]
    assert 0.4 <= sum(negative.values()) / 5 <= 0.6
    assert negative[5] < 0.8  # so that pass@16 of the hardest is above 0.2


# --- pre-training ---------------------------------------------------------------------------------


def test_pretraining_repeats_itself():
    config = PretrainConfig(steps=3, rows=5, warmup=1)
    first, second = (train(config)[0].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_packed_chains_do_not_see_one_another():
    config = PretrainConfig(rows=1)
    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    model = build_model(config, tokenizer).eval()
    ids, labels, positions = next(batches(tokenizer, config))
    start = positions[0].tolist().index(0, 1)
    assert ids[0, start - 1] == tokenizer.eos_token_id
    assert labels[0, start] == IGNORED
    with torch.no_grad():
        packed = model(input_ids=ids, position_ids=positions, use_cache=False).logits[:, start:]
        alone = model(input_ids=ids[:, start:], use_cache=False).logits
    torch.testing.assert_close(packed, alone, rtol=0, atol=1e-5)


def test_learning_rate_by_hand():
    config = PretrainConfig(steps=110, warmup=10)
    assert lr_factor(0, config) == pytest.approx(0.1)
    assert lr_factor(10, config) == pytest.approx(1.0)
    assert lr_factor(60, config) == pytest.approx(0.5)
    assert lr_factor(110, config) == pytest.approx(0.0)


def test_the_task_itself_needs_no_transformers():
    code = "import sys, lens_ref.tiny.task; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
