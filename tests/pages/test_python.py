"""The Python on the pages runs: blocks as they stand, and calls within lines."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch

from lens_ref import LensConfig, Rollouts, methods
from tests.pages import tables
from tests.pages.reading import ROOT, Block, all_blocks
from tests.pages.test_names import PAGES, spans

PYTHON = [block for block in all_blocks() if block.language == "python"]
CALLS = ("methods.", "LensConfig(", "LensConfig.")


def elsewhere(block: Block) -> str | None:
    """The test that a table names for this block."""
    starts = [s for page, s in tables.PYTHON_ELSEWHERE if page == block.page]
    found = [s for s in starts if s in block.text]
    return tables.PYTHON_ELSEWHERE[block.page, found[0]] if found else None


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.where)
def test_a_block_runs(block: Block) -> None:
    if elsewhere(block) is None:
        exec(compile(block.text, block.where, "exec"), {})
    else:
        ast.parse(block.text)


def calls() -> list[str]:
    found = {span for page in PAGES for span in spans(page) if span.startswith(CALLS)}
    return sorted(span for span in found if "(" in span and "…" not in span)


@pytest.mark.parametrize("call", calls())
def test_a_call_within_a_line_works(call: str) -> None:
    group = torch.tensor([[0.0, 1.0, 0.0]])
    rollouts = Rollouts(
        group,
        torch.full((1, 3), -1.0),
        torch.ones(1, 3),
        entropy=torch.ones(1, 3, 1),
        mask=torch.ones(1, 3, 1, dtype=torch.bool),
    )
    names: dict[str, Any] = {"methods": methods, "LensConfig": LensConfig}
    assert eval(call, {**names, "rollouts": rollouts, "name": "ngrpo"}) is not None


def test_calls_are_found() -> None:
    assert 'methods.get("w_reinforce", lam=0.1)(rollouts)' in calls()


@pytest.mark.parametrize(
    "named",
    [
        *tables.PYTHON_ELSEWHERE.values(),
        *tables.BLOCKS_ELSEWHERE.values(),
        *tables.TRIED_ELSEWHERE.values(),
    ],
)
def test_what_is_tried_elsewhere_is_tried(named: str) -> None:
    path, _, name = named.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_no_block_is_said_to_be_tried_that_is_not_there() -> None:
    assert sum(elsewhere(block) is not None for block in PYTHON) == len(tables.PYTHON_ELSEWHERE)
