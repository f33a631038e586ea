"""Tasks whose questions a program makes: `data.train: NAME` in a configuration, `--data NAME`.

The bundled one is "tiny"; `register` adds another (`--import MODULE` brings it to the commands).
Questions that stand in a file need none of this: `--data FILE.jsonl`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

Rows = Callable[[str, int, int], Iterable[dict[str, Any]]]
"""(split, count, seed) → rows with `problem`, `answer` and perhaps `id`, `level` and `subject`; the
first `count` of them are taken. `split` is "train" or "test"; a question that both have is refused.
ValueError where there can't be so many."""

_TASKS: dict[str, Rows] = {}


def register(name: str, rows: Rows) -> None:
    """Add a task.

    Raises:
        ValueError: the name is taken, or could be a file or a data set of the hub.
    """
    if not re.fullmatch(r"[A-Za-z][\w-]*", name):
        raise ValueError(f"task name {name!r}: a letter, then letters, digits, - and _")
    if name in _TASKS:
        raise ValueError(f"a task named {name!r} is registered already")
    _TASKS[name] = rows


def names() -> list[str]:
    """The registered names, sorted."""
    return sorted(_TASKS)


def rows(name: str, split: str, count: int, seed: int) -> Iterable[dict[str, Any]]:
    """The rows of a registered task."""
    return _TASKS[name](split, count, seed)


def _tiny(split: str, count: int, seed: int) -> Iterable[dict[str, Any]]:
    from lens_ref.tiny.task import test_rows, train_rows

    return train_rows(count, seed) if split == "train" else test_rows(count)


register("tiny", _tiny)
