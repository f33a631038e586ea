"""Sets of questions by name, as the command line gives them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lens_ref import tasks
from lens_ref.core._checks import nearest
from lens_ref.rlvr.config import Config, load
from lens_ref.rlvr.data_config import DataConfig, SourceConfig
from lens_ref.rlvr.errors import UserError

SPLITS = ("train", "test")
NAMES = (
    "math-test",
    "math-train",
    "math-500",
    "gsm8k-test",
    "gsm8k-train",
    "dapo",
)
"""Sets that need no path, beside the registered tasks ("tiny"): they come from the hub, most in the
versions that the recipes in `configs/` name."""
FORMS = f"one of tiny, {', '.join(NAMES)}, a .jsonl or .jsonl.gz file, or a hub id owner/name:split"


def source(name: str, split: str = "test") -> SourceConfig:
    """The source behind a name.

    Args:
        name: see `FORMS`.
        split: where the name says none.

    Raises:
        UserError: no such name.
    """
    if Path(name).is_file() or name.endswith((".jsonl", ".jsonl.gz", ".json")):
        return SourceConfig(name)
    if name in NAMES:
        return _named(name)
    head, colon, tail = name.partition(":")
    if head in tasks.names() and (tail in SPLITS or not colon):
        return SourceConfig(head, split=tail or split)
    if head.count("/") != 1 or head.startswith((".", "/", "~")) or (colon and not tail):
        close = nearest(name, [*NAMES, *tasks.names()])
        hint = f"no such file; a set is {FORMS}" if "/" in name else close
        raise UserError(f"no questions {name!r}: {hint}")
    return SourceConfig(head, split=tail or split)


def usual_size(asked: SourceConfig) -> int | None:
    """How many questions where nobody says: all, but a task may be endless."""
    if asked.source not in tasks.names():
        return None
    usual = DataConfig()
    return usual.test_questions if asked.split == "test" else usual.train_questions


def _named(name: str) -> SourceConfig:
    if name == "math-500":
        return SourceConfig("HuggingFaceH4/MATH-500", split="test", expect=500)
    if name.startswith("gsm8k"):
        train = trained_by(load("qwen2.5-coder-0.5b-gsm8k"))[0]
        return replace(train, split="test", expect=1319) if name == "gsm8k-test" else train
    config = load("paper/math-dapo")
    if name == "math-test":
        assert isinstance(config.data.test, SourceConfig)
        return config.data.test
    maths, dapo = trained_by(config)
    return maths if name == "math-train" else replace(dapo, sample=None)


def tested_by(config: Config) -> SourceConfig | None:
    """The test set of a configuration."""
    test = config.data.test
    return SourceConfig(test, split="test") if isinstance(test, str) else test


def left_out_by(config: Config) -> SourceConfig | None:
    """The test set whose questions a training set leaves out, if one of its parts does."""
    leaves_out = any("not_in_test" in part.where for part in trained_by(config))
    return tested_by(config) if leaves_out else None


def trained_by(config: Config) -> tuple[SourceConfig, ...]:
    """The training set of a configuration."""
    data = config.data
    if isinstance(data.train, str):
        return (SourceConfig(data.train, split=data.split, revision=data.revision),)
    return data.train
