"""What happens to the files of a run folder, whoever did it, and what is promised of each."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from lens_ref import train

Tensors = dict[str, Tensor]

FILES = (
    "config.yaml",
    "manifest.json",
    "metrics.csv",
    "groups.csv",
    "samples.jsonl",
    "eval.csv",
    "eval_counts.csv",
)


def _half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _nul(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + b"\0" + content[middle + 1 :]


def _again(content: bytes) -> bytes:
    first, second, *rest = content.splitlines(keepends=True)
    return b"".join([first, second, second, *rest])


def _without(content: bytes) -> bytes:
    first, _, *rest = content.splitlines(keepends=True)
    return b"".join([first, *rest])


def _backwards(content: bytes) -> bytes:
    first, *rest = content.splitlines(keepends=True)
    return b"".join([first, *reversed(rest)])


WAYS: dict[str, Callable[[bytes], bytes | None]] = {
    "emptied": lambda content: b"",
    "removed": lambda content: None,
    "cut in half": _half,
    "a NUL in it": _nul,
    "no UTF-8 at its end": lambda content: content + b"\xff\xfe\n",
    "UTF-16": lambda content: content.decode().encode("utf-16"),
    "a line twice": _again,
    "a line missing": _without,
    "its lines turned round": _backwards,
    "another first line": lambda content: b"{x" + content,
    "endless brackets": lambda content: b"[" * 20_000 + b"\n",
}


def tamper(path: Path, way: str) -> None:
    """Do it to a file."""
    content = WAYS[way](path.read_bytes())
    path.unlink()
    if content is not None:
        path.write_bytes(content)


def edit(path: Path, old: str, new: str) -> None:
    """Replace the first occurrence of a pattern in a file."""
    text = path.read_text(encoding="utf-8")
    changed = re.sub(old, new, text, count=1, flags=re.M)
    assert changed != text, old
    path.write_text(changed, encoding="utf-8")


def forge(checkpoint: Path, change: Callable[[Any], None], name: str = "state.json") -> None:
    """Change a JSON file of a checkpoint, and its hash with it."""
    path = checkpoint / name
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")
    _hash_anew(path)


def forge_tensors(path: Path, change: Callable[[Tensors], object]) -> None:
    """`forge`, of a file of tensors."""
    tensors = load_file(path)
    change(tensors)
    save_file({name: value.clone() for name, value in tensors.items()}, path)
    _hash_anew(path)


def _hash_anew(path: Path) -> None:
    hashes = path.parent / "sha256.json"
    known = json.loads(hashes.read_text(encoding="utf-8"))
    known[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    hashes.write_text(json.dumps(known), encoding="utf-8")


def content(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that `--resume` ends in, everything left as it was."""
    before = content(folder)
    capsys.readouterr()
    assert train.main(["--resume", str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert content(folder) == before
    return line.removeprefix("error: ")
