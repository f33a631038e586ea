"""How docstrings and dataclasses become pages: written-out examples."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

from .conftest import ROOT

pytestmark = pytest.mark.docs


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`docs/site/fields_table.py`, which is found beside conf.py when the site is built."""
    monkeypatch.syspath_prepend(str(ROOT / "docs/site"))
    import fields_table

    yield fields_table
    for name in ("fields_table", "docstrings"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("log π of `[..., G]`", "log π of ``[..., G]``"),
        ("already ``code``", "already ``code``"),
        ("|o| and p*, x_ too", r"\|o\| and p\*, x\_ too"),
        ("the *sampling* policy", "the *sampling* policy"),
        ("**Proof.** By p* and *this.* one", r"**Proof.** By p\* and *this.* one"),
        ("E[x|y] * `a|b*`", r"E[x\|y] \* ``a|b*``"),
        ("A:\n\n    |o| = 1\n    b\n\nC", "A:\n\n::\n\n    |o| = 1\n    b\n\nC"),
        ("Args:\n    x: `[B]` |x|", "Args:\n    x: ``[B]`` \\|x\\|"),
        ("- `a`: b\n  c\n\n- d", "- ``a``: b\n  c\n\n- d"),
        ("p*:\n\n>>> f(x_ | p*)\n2\n\nx_", "p\\*:\n\n>>> f(x_ | p*)\n2\n\nx\\_"),
    ],
)
def test_a_docstring_is_read_as_it_is_meant(extension: ModuleType, written: str, read: str) -> None:
    assert extension.readable(written.split("\n")) == read.split("\n")


@dataclass(frozen=True)
class Example:
    """Fields with and without comments."""

    steps: int  # how many
    # above it,
    # on two lines
    rate: float = 0.5
    name: str = "a # b"
    pair: tuple[int, ...] = (
        1,
        2,
    )  # behind the bracket

    def method(self) -> None:
        inside: int = 1  # no field
        assert inside


def test_a_comment_goes_to_its_field(extension: ModuleType) -> None:
    row = extension.Row
    assert extension.rows(Example) == [
        row("steps", "int", "required", "how many"),
        row("rate", "float", "0.5", "above it, on two lines"),
        row("name", "str", "'a # b'", ""),
        row("pair", "tuple[int, ...]", "(1, 2)", "behind the bracket"),
    ]
