"""The folder in which the commands of the pages run: each placeholder is there under its own name
(FOLDER, FILE.jsonl, RUN, DATA, …), and so is what a page takes for granted (`runs/tiny`)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import datasets
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from lens_ref.command_line import settings
from lens_ref.rlvr.config import load
from lens_ref.rlvr.errors import Interrupted
from lens_ref.rlvr.run_folder import RunFolder
from tests.pages.reading import ROOT
from tests.pages.tables import TINY
from tests.rlvr.runs import StopAt, run, trainer

MODELS = {
    "Qwen/Qwen2.5-3B": "qwen2",
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": "qwen2",
    "meta-llama/Llama-3.1-8B-Instruct": "llama",
    "FOLDER": "qwen2",
}
ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>")
CHAT = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
FILES = {"FILE.jsonl": 0, "train.jsonl": 0, "TEST.jsonl": 50, "test.jsonl": 50}  # the first number


def fill(folder: Path) -> None:
    """Put everything there; takes seconds, so copy the folder for every command."""
    for name, kind in MODELS.items():
        save_model(folder / name, kind)
    for name, first in FILES.items():
        rows = [{"problem": f"{i} + 1", "answer": str(i + 1)} for i in range(first, first + 16)]
        lines = (json.dumps({**row, "level": 1 + i % 5}) for i, row in enumerate(rows))
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    overrides = {**settings(list(TINY)), "log.samples": 1}
    overrides.pop("log.samples")
    for parent, method in (("runs/tiny", "grpo"), ("runs/mine", "lens"), ("run", "lens")):
        finished = run(folder / parent, load(None, {**overrides, "methods": [method]}))
    finished.rename(folder / "RUN")
    begun = RunFolder.create(folder / "runs/tiny", load(None, {**overrides, "methods": ["lens"]}))
    try:
        trainer(begun, StopAt(8)).run()
    except Interrupted:
        assert not begun.finished
    verl(folder)
    shutil.copytree(ROOT / "results/toy", folder / "results/toy")
    for name in ("recipes", "toy", "notebooks"):
        (folder / name).symlink_to(ROOT / name)


def save_model(folder: Path, kind: str) -> None:
    """A random model of two layers with the ends of turns and a chat template that recipes name."""
    words = ["<unk>", *ENDS, *(str(i) for i in range(10)), "+", "\\boxed{1}"]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=CHAT,
        unk_token="<unk>",
        eos_token=ENDS[1],
        pad_token=ENDS[1],
        additional_special_tokens=list(ENDS),
    ).save_pretrained(folder)
    shape = AutoConfig.for_model(
        kind,
        **{"vocab_size": len(words), "hidden_size": 64, "intermediate_size": 64},
        **{"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1},
        **{"eos_token_id": 2, "pad_token_id": 2, "bos_token_id": None},
    )
    AutoModelForCausalLM.from_config(shape).save_pretrained(folder)


def verl(folder: Path) -> None:
    """DATA as `recipes/verl/data.py` writes it, and VAL as verl's evaluation leaves it."""
    import pandas as pd

    (folder / "DATA").mkdir()
    (folder / "VAL").mkdir()
    rows = [
        {
            "data_source": f"lens_ref/level{1 + i}",
            "prompt": [{"role": "user", "content": f"What is {i} + 1?"}],
            "reward_model": {"style": "rule", "ground_truth": str(i + 1)},
            "extra_info": {"split": "test", "index": str(i)},
        }
        for i in range(5)
    ]
    for name in ("train", "test"):
        pd.DataFrame(rows).to_parquet(folder / f"DATA/{name}.parquet", index=False)
    answers = [
        {
            "uid": f"{i}_{n}_0",
            "input": f"user What is {i} + 1?",
            "gts": str(i + 1),
            "score": float(n < i),
        }
        for i in range(5)
        for n in range(4)
    ]
    lines = "\n".join(map(json.dumps, answers))
    (folder / "VAL/250.jsonl").write_text(lines + "\n", encoding="utf-8")


def hub(source: str, config: str | None, split: str, revision: str | None) -> Any:
    """In place of `datasets.load_dataset`: made-up rows, as many as the true set has questions, in
    its columns."""
    sizes = {("MATH-lighteval", "test"): 5000, ("MATH-500", "test"): 500}
    sizes |= {("DAPO-Math-17k", "train"): 17917}
    name = source.split("/")[1]
    numbers = range(sizes[name, split])
    if name == "DAPO-Math-17k":
        rows: dict[str, list[Any]] = {
            "prompt": [[{"role": "user", "content": f"{i} + {i}"}] for i in numbers],
            "reward_model": [{"ground_truth": str(2 * i)} for i in numbers],
            "extra_info": [{"index": str(i)} for i in numbers],
        }
    else:
        rows = {
            "problem": [f"{i} + {i % 2}" for i in numbers],
            "solution": [rf"\boxed{{{i + i % 2}}}" for i in numbers],
            "level": ["Level 5" for _ in numbers],
        }
        if name == "MATH-500":
            rows |= {"answer": [str(i + i % 2) for i in numbers], "level": [5 for _ in numbers]}
    return datasets.Dataset.from_dict(rows)
