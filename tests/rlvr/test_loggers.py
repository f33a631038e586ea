"""TensorBoard and Weights & Biases, both played by fakes: what they are given, and when."""

from __future__ import annotations

import math
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lens_ref.rlvr.config import LogConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.loggers import Loggers, require_packages

ROW = {"step": 3, "reward": 0.5, "groups": 4, "note": "text", "entropy": None, "whole": True}


class FakeWriter:
    """Keeps what a SummaryWriter is told."""

    made: list[FakeWriter]

    def __init__(self, log_dir: str, purge_step: int) -> None:
        self.log_dir, self.purge_step = log_dir, purge_step
        self.scalars, self.closed = list[tuple[str, float, int]](), False
        FakeWriter.made.append(self)

    def add_scalar(self, key: str, value: float, step: int) -> None:
        self.scalars.append((key, value, step))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[FakeWriter]:
    FakeWriter.made = []
    monkeypatch.setitem(sys.modules, "tensorboard", SimpleNamespace())
    fake = SimpleNamespace(SummaryWriter=FakeWriter)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    return FakeWriter.made


class FakeWandb:
    """The part of wandb that is used."""

    class Error(Exception):
        pass

    def __init__(self) -> None:
        self.inits, self.rows, self.ends = list[dict[str, Any]](), list[Any](), list[int]()

    def init(self, **options: Any) -> Any:
        self.inits.append(options)
        return SimpleNamespace(log=self._log, finish=self._finish)

    def _log(self, row: dict[str, float], step: int) -> None:
        self.rows.append((step, row))

    def _finish(self, exit_code: int) -> None:
        self.ends.append(exit_code)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def test_nothing_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("tensorboard", "wandb", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, package, None)  # importing one of them would fail
    with Loggers(LogConfig(), tmp_path, "run", {}) as loggers:
        loggers.log(3, ROW)
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_gets_the_numbers(tmp_path: Path, writers: list[FakeWriter]) -> None:
    with Loggers(LogConfig(tensorboard=True), tmp_path, "run", {}) as loggers:
        loggers.log(3, ROW)
        loggers.log(4, {"step": 4, "reward": 0.75})
    (writer,) = writers
    assert writer.scalars == [("reward", 0.5, 3), ("groups", 4, 3), ("reward", 0.75, 4)]
    assert writer.log_dir == str(tmp_path / "tensorboard")
    assert writer.closed


def test_a_resumed_run_replaces_what_it_repeats(tmp_path: Path, writers: list[FakeWriter]) -> None:
    for step in (1, 20):
        with Loggers(LogConfig(tensorboard=True), tmp_path, "run", {}) as loggers:
            loggers.log(step, ROW)
            loggers.log(step + 1, ROW)
    assert [writer.purge_step for writer in writers] == [1, 20]


def test_wandb_gets_finite_numbers_and_the_config(tmp_path: Path, wandb: FakeWandb) -> None:
    with Loggers(LogConfig(wandb="project"), tmp_path, "runs/lens", {"steps": 8}) as loggers:
        loggers.log(3, {**ROW, "kl": math.nan})
    assert wandb.rows == [(3, {"reward": 0.5, "groups": 4})]
    (options,) = wandb.inits
    assert options["settings"]["x_disable_meta"]  # the command line and the machine stay here
    assert (options["project"], options["name"]) == ("project", "runs/lens")
    assert options["config"] == {"steps": 8}
    assert options["dir"] == str(tmp_path)
    assert wandb.ends == [0]


def test_a_resumed_run_is_the_same_run_in_wandb(tmp_path: Path, wandb: FakeWandb) -> None:
    for folder in ("one", "one", "two"):
        (tmp_path / folder).mkdir(exist_ok=True)
        with Loggers(LogConfig(wandb="project"), tmp_path / folder, "same name", {}):
            pass
    first, again, other = [options["id"] for options in wandb.inits]
    assert first == again != other
    assert {options["resume"] for options in wandb.inits} == {"allow"}


@pytest.mark.parametrize(
    ("written", "what"),
    [
        (b"\xff\xfe", "line 1 is not UTF-8 text"),
        (b"", "it holds no id"),
        (b"../../other\n", "it holds no id"),
        (b"a" * 100_000, "it holds no id"),
    ],
)
def test_an_id_that_is_damaged_is_one_line(
    written: bytes, what: str, tmp_path: Path, wandb: FakeWandb
) -> None:
    (tmp_path / "wandb_id").write_bytes(written)
    with (
        pytest.raises(UserError, match=rf"wandb_id is damaged: {what}.*; delete it"),
        Loggers(LogConfig(wandb="project"), tmp_path, "run", {}),
    ):
        pass
    assert wandb.inits == []


def test_a_run_that_fails_is_marked_as_failed(tmp_path: Path, wandb: FakeWandb) -> None:
    with pytest.raises(KeyError), Loggers(LogConfig(wandb="project"), tmp_path, "run", {}):
        raise KeyError
    assert wandb.ends == [1]


@pytest.mark.parametrize(
    ("log", "package"),
    [(LogConfig(tensorboard=True), "tensorboard"), (LogConfig(wandb="project"), "wandb")],
)
def test_a_missing_package_is_told_before_anything_is_loaded(
    log: LogConfig, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError) as caught:
        require_packages(log)
    assert str(caught.value).endswith(f"pip install {package}")
    assert f"log.{package} " in str(caught.value)
    with pytest.raises(UserError, match=f"pip install {package}"):
        Loggers(log, tmp_path, "run", {})


def test_not_logged_in_to_wandb(
    tmp_path: Path, wandb: FakeWandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise FakeWandb.Error("api_key not configured\n(no-tty)")

    monkeypatch.setattr(wandb, "init", refuse)
    with (
        pytest.raises(UserError, match=r"^Weights & Biases: api_key not configured \(no-tty\) \("),
        Loggers(LogConfig(wandb="project"), tmp_path, "run", {}),
    ):
        pass


def test_a_full_disk_under_tensorboard_is_one_line(
    tmp_path: Path, writers: list[FakeWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    for method in ("add_scalar", "close"):
        with monkeypatch.context() as patch:
            patch.setattr(FakeWriter, method, full)
            with (
                pytest.raises(UserError, match=r"cannot write .*tensorboard: No space left"),
                Loggers(LogConfig(tensorboard=True), tmp_path, "run", {}) as loggers,
            ):
                loggers.log(3, ROW)


def test_what_failed_first_is_told(tmp_path: Path, writers: list[FakeWriter]) -> None:
    loggers = Loggers(LogConfig(tensorboard=True), tmp_path, "run", {})
    loggers.log(3, ROW)
    writers[0].close = (tmp_path / "absent").open  # type: ignore[method-assign]
    with pytest.raises(KeyError), loggers:
        raise KeyError


def test_tensorboards_own_thread_leaves_no_traceback(
    tmp_path: Path, writers: list[FakeWriter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails there first; every other thread is heard of."""
    heard = []
    monkeypatch.setattr(threading, "excepthook", heard.append)
    before = threading.excepthook

    class Theirs(threading.Thread):
        __module__ = "tensorboard.summary"

    with Loggers(LogConfig(tensorboard=True), tmp_path, "run", {}) as loggers:
        loggers.log(3, ROW)
        for kind in (Theirs, threading.Thread):
            thread = kind(target=(tmp_path / "absent").open)
            thread.start()
            thread.join()
    assert [type(failure.thread) for failure in heard] == [threading.Thread]
    assert threading.excepthook == before


def test_real_event_files(tmp_path: Path) -> None:
    """Two runs, the second resumed from step 2: step 2 is read once, with its new value."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for rows in ([(1, 0.1), (2, 0.2)], [(2, 0.25), (3, 0.3)]):
        with Loggers(LogConfig(tensorboard=True), tmp_path, "run", {}) as loggers:
            for step, reward in rows:
                loggers.log(step, {"reward": reward})
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    read = [(event.step, round(event.value, 4)) for event in events.Scalars("reward")]
    assert read == [(1, 0.1), (2, 0.25), (3, 0.3)]
