"""The command in processes of its own: killed, interrupted by signals, resumed."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lens_ref.rlvr.run_folder import RunFolder
from tests.rlvr.runs import assert_same_run
from tests.rlvr.test_command import SMALL

pytestmark = pytest.mark.slow

STEPS = 16
TRAIN = [sys.executable, "-m", "lens_ref.train"]
ROOT = Path(__file__).parents[2]
PATIENCE = 120  # seconds that anything may take on a busy machine


def command(out: Path, *methods: str) -> list[str]:
    settings = [*SMALL, f"steps={STEPS}"]
    return [*TRAIN, "--out", str(out), "--name", "run", "--method", *methods, "--set", *settings]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    """In a group of its own, as a terminal would: Ctrl-C there reaches the whole group."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        arguments,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@contextlib.contextmanager
def started(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = start(arguments)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def finish(arguments: list[str]) -> tuple[int, str, str]:
    with started(arguments) as process:
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Until the run has got so far; it must not be over by then."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("unbroken")
    status, out, err = finish(command(parent, "lens"))
    assert (status, err) == (0, ""), err
    assert (parent / "run" / "report.html").exists()
    assert "report:" in out
    return parent / "run" / "lens-seed0"


def test_killed_and_resumed(unbroken: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run" / "lens-seed0")
    with started(command(tmp_path, "lens")) as process:
        wait_for(folder.path / "checkpoints" / "step-4" / "state.json", process)
        workers = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        assert process.wait(PATIENCE) == -signal.SIGKILL
        _, alive = psutil.wait_procs(workers, timeout=PATIENCE)
        assert not alive  # grading processes do not outlive the run
    assert folder.manifest()["status"] == "running"
    assert folder.manifest()["step"] < STEPS
    status, _, err = finish([*TRAIN, "--resume", str(folder.path)])
    assert (status, err) == (0, "")
    assert_same_run(folder.path, unbroken)


def test_interrupted_from_the_keyboard_and_resumed(unbroken: Path, tmp_path: Path) -> None:
    parent = tmp_path / "run"
    with started(command(tmp_path, "grpo", "lens")) as process:
        wait_for(parent / "grpo-seed0" / "groups.csv", process)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        assert err == ""
    (line,) = [line for line in out.splitlines() if "go on with: " in line]
    words = shlex.split(line.split("go on with: ")[1])
    assert words[:3] == ["python", "-m", "lens_ref.train"]
    grpo, lens = RunFolder(parent / "grpo-seed0"), RunFolder(parent / "lens-seed0")
    assert grpo.manifest()["status"] == "interrupted"
    assert grpo.manifest()["step"] < STEPS
    assert lens.manifest() == {}

    status, _, err = finish([sys.executable, *words[1:]])
    assert (status, err) == (0, "")
    assert grpo.finished
    assert lens.finished
    assert_same_run(lens.path, unbroken)
    assert (parent / "report.html").exists()


def test_terminated(tmp_path: Path) -> None:
    """As by a batch system: it saves at once and says how to go on."""
    folder = RunFolder(tmp_path / "run" / "lens-seed0")
    with started(command(tmp_path, "lens")) as process:
        wait_for(folder.path / "metrics.csv", process)
        process.terminate()
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (130, "")
    assert f"--resume {folder.path.parent}" in out
    step = folder.manifest()["step"]
    assert 1 <= step < STEPS
    assert (folder.path / "checkpoints" / f"step-{step}" / "state.json").exists()
