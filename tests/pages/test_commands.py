"""Every command of every page runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pages import places, tables
from tests.pages.reading import SHELLS, Block, all_blocks
from tests.pages.trying import Trial

BLOCKS = all_blocks()
INLINE = {b.text: b for b in reversed(BLOCKS) if b.language == "inline"}


def commands() -> list[Any]:
    """Blocks of the shell, and each command within a line once."""
    skipped = tuple(tables.NO_COMMANDS)
    blocks = [b for b in BLOCKS if b.language in SHELLS and not b.text.startswith(skipped)]
    blocks = [b for b in blocks if elsewhere(b) is None]
    blocks += [b for text, b in sorted(INLINE.items()) if text not in tables.MENTIONED]
    return [
        pytest.param(b, marks=[pytest.mark.slow] if b.text.startswith(tables.SLOW) else [], id=name)
        for b in blocks
        for name in [f"{b.where} {b.text.splitlines()[0][:40]}"]
    ]


def elsewhere(block: Block) -> str | None:
    """The test that a table names for this block."""
    for (page, start), test in tables.BLOCKS_ELSEWHERE.items():
        if page == block.page and block.text.startswith(start):
            return test
    return None


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    places.fill(folder)
    return folder


@pytest.fixture
def trial(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    place = tmp_path / "place"
    shutil.copytree(filled, place, symlinks=True)
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        yield Trial(place, monkeypatch)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("block", commands())
def test_a_command_runs(block: Block, trial: Trial) -> None:
    trial.block(block)


def test_no_block_is_said_to_be_tried_that_is_not_there() -> None:
    assert sum(elsewhere(block) is not None for block in BLOCKS) == len(tables.BLOCKS_ELSEWHERE)
