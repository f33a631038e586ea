"""Hand-made run folders for the tests of the report, the paper's own setting among them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

MATH, DAPO = "DigitalLearningGmbH/MATH-lighteval", "BytedTsinghua-SIA/DAPO-Math-17k"
NUMINA = "AI-MO/NuminaMath-1.5"
QWEN, LLAMA = "Qwen/Qwen2.5-3B", "meta-llama/Llama-3.1-8B-Instruct"
LEVELS = ("all", "4-5")


def make_run(
    path: Path,
    method: str,
    final: float,
    seed: int = 0,
    model: str = "tiny",
    train: str = "tiny",
    test: str = "tiny",
    questions: tuple[int, int] = (2000, 250),
    steps: int = 4,
    status: str = "finished",
    correct: Iterable[int] = (),
    changes: dict[str, Any] | None = None,
) -> Path:
    """A run whose pass@1 goes from 0.1 to `final`, pass@k is 0.01 (k − 1) above it, and levels 4–5
    are 0.05 below. `correct`: right ones of 4 answers to each test question, at the end, whose rate
    takes the place of `final`."""
    path.mkdir(parents=True)
    if correct := list(correct):
        final, questions = sum(correct) / (4 * len(correct)), (questions[0], len(correct))
    config: dict[str, Any] = {
        "methods": [method],
        "seed": seed,
        "steps": steps,
        "model": {"path": model, "lora": None},
        "rollout": {
            "questions": 128, "responses": 16, "temperature": 1.0, "max_new_tokens": 4096,
        },
        "optimizer": {"lr": 1e-6},
        "loss": {"updates_per_rollout": 4, "clip_low": 0.2, "clip_high": 0.2},
        "eval": {"n": 16},
    }  # fmt: skip
    for key, value in (changes or {}).items():
        section, _, name = key.partition(".")
        config[section][name] = value
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    data = {
        which: {"source": source, "questions": n, "dropped_unparsable": 0, "sha256": which}
        for which, source, n in zip(("train", "test"), (train, test), questions, strict=True)
    }
    manifest = {"status": status, "method": method, "seed": seed, "steps": steps, "data": data}
    (path / "manifest.json").write_text(json.dumps(manifest))
    done = steps if status == "finished" else steps - 1
    lines = ["step,reward,negative_share,neg_to_mixed_rms,entropy,mean_length"]
    lines += [f"{s},0.1,{0.5 if s <= 2 else 0.25},0.002,1.5,20.0" for s in range(1, done + 1)]
    (path / "metrics.csv").write_text("\n".join(lines) + "\n")
    lines = ["step,level,pass@1,pass@2,pass@4,pass@8,pass@16,questions,mean_length"]
    for step, rate in ((0, 0.1), (steps, final)):
        for level, below in zip(LEVELS, (0, 0.05), strict=True):
            rates = ",".join(f"{rate - below + 0.01 * (k - 1):.6f}" for k in (1, 2, 4, 8, 16))
            lines.append(f"{step},{level},{rates},{questions[1]},20.0")
    (path / "eval.csv").write_text("\n".join(lines) + "\n")
    if correct:
        lines = ["step,question,level,n,correct"]
        lines += [f"{steps},q{i},{4 + i % 2},4,{c}" for i, c in enumerate(correct)]
        (path / "eval_counts.csv").write_text("\n".join(lines) + "\n")
    return path


def paper_run(path: Path, method: str, final: float, seed: int = 0, **other: Any) -> Path:
    """A run at the paper's own setting: Table 1's Qwen, unless something else is said."""
    common: dict[str, Any] = {
        "model": QWEN, "train": f"{MATH} + {DAPO}", "test": MATH, "questions": (25_000, 5000),
        "steps": 1000,
    }  # fmt: skip
    return make_run(path, method, final, seed, **(common | other))
