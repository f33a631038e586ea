"""One process at a time in a folder."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lens_ref import evaluate, train
from lens_ref.evaluating import session as evaluating
from lens_ref.rlvr import lock, session
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.lock import alone_in
from lens_ref.rlvr.run_folder import RunFolder, create_all
from lens_ref.tiny import study
from tests.rlvr.helpers import ExactVerifier, small_config

fcntl = pytest.importorskip("fcntl")
HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("process 1 on mars", file=file, flush=True)
print("held", flush=True)
input()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds `tmp_path/held`."""
    (tmp_path / "held").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "held/.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_another_process_is_kept_out_until_it_is_killed(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    with (
        pytest.raises(UserError, match=r"held is in use by process 1 on mars: wait until"),
        alone_in(tmp_path / "held"),
    ):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with alone_in(tmp_path / "held"):
        text = (tmp_path / "held/.lock").read_text("utf-8")
        assert re.fullmatch(rf"process {os.getpid()} on \S+\n", text)


def test_of_several_folders_none_stays_locked_where_one_is_in_use(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    (tmp_path / "free").mkdir()
    with pytest.raises(UserError, match="in use"), alone_in(tmp_path / "free", tmp_path / "held"):
        pass
    with alone_in(tmp_path / "free"), pytest.raises(UserError), alone_in(tmp_path / "free"):
        pass  # not in this process either
    with alone_in(tmp_path / "free"):
        pass


def test_a_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    with (
        alone_in(tmp_path),
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child,
    ):
        links = [os.readlink(path) for path in Path(f"/proc/{child.pid}/fd").glob("*")]
        assert not [link for link in links if link.endswith(".lock")]
        child.kill()


@pytest.mark.parametrize("missing", ["module", "file system"])
def test_where_there_are_no_locks_a_warning_says_so(
    missing: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    if missing == "module":
        monkeypatch.setattr(lock, "fcntl", None)
    else:
        monkeypatch.setattr(fcntl, "flock", none)
    with alone_in(tmp_path), alone_in(tmp_path):
        pass
    assert "can't be locked" in caplog.messages[0]


def test_a_folder_that_takes_no_lock_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot write .*absent/\.lock: No such"):
        alone_in(tmp_path / "absent").__enter__()


# --- the commands ---------------------------------------------------------------------------------


def test_training_a_run_that_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone or as one of several; a run beside it is free."""
    monkeypatch.setattr(session, "train_all", lambda runs, again: len(runs))
    grpo, lens = create_all(
        tmp_path / "runs", [small_config(methods=[name]) for name in ("grpo", "lens")]
    )
    with alone_in(lens.path):
        for path in (lens.path, tmp_path / "runs"):
            assert train.main(["--resume", str(path)]) == 2
            err = capsys.readouterr().err
            assert err.startswith(f"error: {lens.path} is in use by process {os.getpid()} on ")
            assert err.count("\n") == 1
        assert train.main(["--resume", str(grpo.path)]) == 1
    assert train.main(["--resume", str(tmp_path / "runs")]) == 2  # the number of runs
    assert capsys.readouterr().err == ""


def test_evaluating_into_a_folder_that_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluating, "Verifier", lambda *_, **__: ExactVerifier())
    arguments = ["tiny", "--questions", "3", "--n", "1", "--out", str(tmp_path)]
    (tmp_path / "tiny").mkdir()
    with alone_in(tmp_path / "tiny"):
        assert evaluate.main(arguments) == 2
    assert f"error: {tmp_path / 'tiny'} is in use by process" in capsys.readouterr().err
    assert evaluate.main(arguments) == 0


def test_a_study_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(study.trainings, "call", lambda *_, **__: 0)
    with alone_in(tmp_path), pytest.raises(SystemExit) as left:
        study.main(["--out", str(tmp_path), "--seeds", "1"])
    assert left.value.code == 2
    assert f"error: {tmp_path} is in use by process" in capsys.readouterr().err
    assert study.main(["--out", str(tmp_path), "--seeds", "1"]) == 0


# --- new folders ----------------------------------------------------------------------------------


def test_all_run_folders_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that another command has filled meanwhile stays as it is; an empty one is taken."""
    configs = [small_config(), small_config(methods=["grpo"])]
    (tmp_path / "runs").mkdir()
    created = create_all(tmp_path / "runs", configs)
    assert [run.path.name for run in created] == ["lens-seed0", "grpo-seed0"]
    assert [run.config() for run in created] == configs
    with pytest.raises(FileExistsError):
        create_all(tmp_path / "runs", [small_config(seed=1)])
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["grpo-seed0", "lens-seed0"]
    assert [p.name for p in tmp_path.iterdir()] == ["runs"]


def test_two_commands_that_chose_the_same_free_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first to be there has it, the other takes the next."""
    real = Path.exists
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/theirs").touch()
    late = [tmp_path / "tiny"]  # seen as free, once

    def exists(self: Path) -> bool:
        if self in late:
            late.remove(self)
            return False
        return real(self)

    monkeypatch.setattr(Path, "exists", exists)
    (run,) = session.new_runs(tmp_path, None, "tiny", [small_config()])
    assert run.path == tmp_path / "tiny-2/lens-seed0"
    assert RunFolder(run.path).config() == small_config()
    with pytest.raises(UserError, match="exists; choose another --name or --resume"):
        session.new_runs(tmp_path, "tiny", "tiny", [small_config()])
