"""The arithmetic of recipes/verl/README.md: memory from shapes, tokens from the batch."""

from __future__ import annotations

from lens_ref.rlvr.config import load
from tests.pages.reading import ROOT

PAGE = (ROOT / "recipes/verl/README.md").read_text(encoding="utf-8")
SHAPES = {  # weights, layers, width, KV heads, vocabulary
    "Qwen2.5-3B": (3_085_938_688, 36, 2048, 2, 151_936),
    "Llama-3.1-8B": (8_030_261_248, 32, 4096, 8, 128_256),
}


def test_the_arithmetic_of_the_readme() -> None:
    lines = PAGE.splitlines()
    cells = {
        row[0].strip("*… "): row[1:]
        for row in ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
        if row
    }
    for column, (weights, layers, width, heads, vocabulary) in enumerate(SHAPES.values()):
        kv = layers * heads * 128 * 2 * 2
        room = 48e9 - 2 * weights
        inputs, logits = layers * 8192 * width * 2, 8192 * vocabulary * 8
        expected = {
            "N": f"{weights:,}",
            "16 B · N": f"{16 * weights / 1e9:.1f}",
            "a GPU of 8": f"{2 * weights / 1e9:.1f}",
            "a GPU of 16": f"{weights / 1e9:.1f}",
            "vLLM's weights, 2 B · N, on each GPU": f"{2 * weights / 1e9:.1f}",
            "KV a token": f"{layers} · {heads} → {kv:,} B",
            "an answer of 2,048 + 4,096 tokens": f"{6144 * kv / 1e9:.2f}",
            "room for KV": f"{room / 1e9:.1f}",
            "answers of full length at once": f"{int(room / (6144 * kv))}",
            "while sampling": f"{1.5 * weights / 1e9 + 48:.1f}",
            "layer inputs": f"{layers} · {width:,} → {inputs / 1e9:.1f}",
            "logits": f"{vocabulary:,} → {logits / 1e9:.1f}",
            "while updating": f"{(2 * weights + inputs + logits) / 1e9:.1f}",
            "a checkpoint": f"{12 * weights / 1e9:.1f}",
        }
        for name, number in expected.items():
            (row,) = [key for key in cells if key == name or key.startswith(name + ":")] or [
                key for key in cells if key.startswith(name)
            ]
            assert cells[row][column] == number, name


def test_a_step_at_most() -> None:
    rollout = load("paper/common").rollout
    answers, prompt = rollout.questions * rollout.responses, 2048
    update = answers * (prompt + rollout.max_new_tokens) // 4 // 8
    product = f"{rollout.questions} · {rollout.responses}"
    for row in (
        f"| answers | {answers:,} | {product}; {answers // 8} a GPU of 8 |",
        f"| tokens sampled | {answers * rollout.max_new_tokens:,} |",
        f"again in the updates | {answers * (prompt + rollout.max_new_tokens):,} |",
        f"| … an update, a GPU of 8 | {update:,} | a quarter, an eighth: {answers // 32} answers",
    ):
        assert row in PAGE
    assert "250 steps are\n1,000 updates" in PAGE
    assert f"an epoch of 25,000 questions is {25_000 // rollout.questions} steps" in PAGE
    assert f"5,000 · {rollout.responses} = {5000 * rollout.responses:,}\nanswers" in PAGE
    evaluation = round(5000 * rollout.responses / answers)
    assert f"as many as {evaluation} steps; the recipe's six, as many as {6 * evaluation}" in PAGE
