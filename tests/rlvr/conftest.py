"""Shared by the tests of the training system: no network, the bundled policy, random models."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub is imported: a test never downloads

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.policy import Policy
from tests.rlvr.helpers import load_tiny, sampled_batch, save_model


@pytest.fixture(scope="session")
def tiny() -> Policy:
    """The bundled policy, for tests that leave its weights alone."""
    return load_tiny()


@pytest.fixture(scope="session")
def batch(tiny: Policy) -> Batch:
    """Answers of the bundled policy to eight questions, with made-up rewards."""
    return sampled_batch(tiny)


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random two-layer Llama over the toy vocabulary."""
    return save_model(tmp_path_factory.mktemp("llama"), "llama")


@pytest.fixture(scope="session")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random two-layer Qwen2."""
    return save_model(tmp_path_factory.mktemp("qwen2"), "qwen2")


@pytest.fixture
def model_folder(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """A folder fixture by its name, for parametrised tests."""
    return lambda name: request.getfixturevalue(name)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture(autouse=True)
def _own_random_state() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        yield
