"""The examples in docstrings are true, and every function of the public pages has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
from types import ModuleType

import pytest

import lens_ref
from lens_ref import methods, verifier
from tests.pages.reading import ROOT

FILES = [p for folder in ("lens_ref", "toy") for p in sorted((ROOT / folder).rglob("*.py"))]
WITH_EXAMPLES = [
    ".".join(p.relative_to(ROOT).with_suffix("").parts)
    for p in FILES
    if ">>> " in p.read_text(encoding="utf-8")
]
FUNCTIONS = [
    *(f for name in lens_ref.core.__all__ if inspect.isfunction(f := getattr(lens_ref, name))),
    *(methods.names, methods.spec, methods.get),
    *(verifier.extract_boxed, verifier.Verifier),
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_are_true(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_public_function_has_an_example(function: object) -> None:
    module = inspect.getmodule(function)
    assert isinstance(module, ModuleType)
    assert module.__name__ in WITH_EXAMPLES
    assert doctest.DocTestFinder(recurse=False).find(function)[0].examples


def test_a_wrong_example_is_noticed() -> None:
    wrong = ModuleType("wrong")
    wrong.__doc__ = "\n>>> 1 + 1\n3\n"
    assert doctest.testmod(wrong, report=False, optionflags=doctest.FAIL_FAST).failed == 1
