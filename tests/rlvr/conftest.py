"""Shared by the tests of the training system: no network, the bundled policy, random models."""

from __future__ import annotations

import os
import shutil

os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub is imported: a test never downloads

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from lens_ref.rlvr import run_report, session
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.errors import Interrupted
from lens_ref.rlvr.policy import Policy
from lens_ref.rlvr.run_folder import RunFolder
from tests.rlvr.helpers import ExactVerifier, load_tiny, sampled_batch, save_model, small_config
from tests.rlvr.runs import StopAt, run, trainer


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


@pytest.fixture(scope="session")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of eight updates without interruption. Don't change it."""
    return run(tmp_path_factory.mktemp("straight"), small_config())


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same after six updates, asked to stop: a batch is in hand, evaluations at 0 and 4 are
    done, checkpoints after four and six are there. Don't change it."""
    folder, stop = RunFolder.create(tmp_path_factory.mktemp("stopped"), small_config()), StopAt()

    def ask(done: int, row: object) -> None:
        stop.requested = done == 6

    with pytest.raises(Interrupted):
        trainer(folder, stop, ask).run()
    return folder.path


@pytest.fixture
def folder(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(stopped, tmp_path / "runs" / stopped.name))


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands without grading processes and reports."""
    monkeypatch.setattr(session, "Verifier", ExactVerifier)
    monkeypatch.setattr(run_report, "write_report", lambda parent: parent / "report.html")


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
