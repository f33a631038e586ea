"""The study on the bundled policy: what it starts, what it resumes, what it leaves alone."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import psutil
import pytest
import yaml

from lens_ref.rlvr.config import load, method_label, to_dict
from lens_ref.tiny import study

ROOT = Path(__file__).parent.parent
TRAIN = [sys.executable, "-m", "lens_ref.train"]


def test_a_new_seed_is_trained_with_all_methods(tmp_path: Path) -> None:
    new = ["--out", str(tmp_path), "--name", "seed3", "--seed", "3", "--method", "grpo", "lens"]
    assert study.command(tmp_path, 3, ["grpo", "lens"]) == [*TRAIN, *new]


def begun(parent: Path, method: str, seed: int, done: bool = False, **changes: Any) -> Path:
    """A run of a study, as far as the study looks at it."""
    run = parent / f"{method_label(method)}-seed{seed}"
    run.mkdir(parents=True)
    config = to_dict(load(overrides={"methods": [method], "seed": seed, **changes}))
    (run / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    if done:
        (run / "manifest.json").write_text('{"status": "finished"}', "utf-8")
    return run


@pytest.mark.parametrize(
    ("method", "seed", "changes", "what"),
    [
        ("grpo", 1, {"steps": 4}, "steps"),
        ("grpo", 2, {}, "seed"),
        ("grpo", 1, {"optimizer.lr": 1e-3, "steps": 4}, "steps, optimizer.lr"),
        ("lens:alpha=0.5", 1, {}, "methods"),
    ],
)
def test_a_run_of_other_settings_is_none_of_the_studys(
    method: str,
    seed: int,
    changes: dict[str, Any],
    what: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun(tmp_path / "seed1", "nsr", 1, done=True)
    run, name = begun(tmp_path / "seed1", method, seed, done=True, **changes), method[:4]
    run.rename(run.with_name(f"{name}-seed1"))
    with pytest.raises(SystemExit) as end:
        study.main(["--out", str(tmp_path), "--seeds", "2", "--method", "nsr", name])
    assert end.value.code == 2
    told = f"seed1/{name}-seed1 is none of this study's: it differs in {what}; give another --out"
    assert told in capsys.readouterr().err
    assert not list(tmp_path.glob("*.log"))


def test_nothing_is_left_to_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun(tmp_path / "seed0", "grpo", 0, done=True)
    assert study.main(["--out", str(tmp_path), "--seeds", "1", "--method", "grpo"]) == 0
    assert capsys.readouterr().out.startswith("0 of 1 seeds to train")


def test_a_seed_that_was_begun_is_resumed(tmp_path: Path) -> None:
    (tmp_path / "seed3").mkdir()  # killed before the first run had its settings
    assert "--resume" not in (study.command(tmp_path, 3, ["grpo"]) or ["--resume"])
    run = begun(tmp_path / "seed3", "grpo", 3)
    assert study.command(tmp_path, 3, ["grpo"]) == [*TRAIN, "--resume", str(tmp_path / "seed3")]
    (run / "manifest.json").write_text('{"status": "finished"}', "utf-8")
    assert study.command(tmp_path, 3, ["grpo"]) is None


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("lens:groups=mixed", "was begun without lens:groups=mixed: "),
        ("lense", "unknown method 'lense': did you mean 'lens'?"),
    ],
)
def test_an_arm_that_a_seed_was_begun_without_is_told_before_anything_trains(
    method: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("grpo", "lens"):
        begun(tmp_path / "seed1", name, 1, done=True)
    assert study.command(tmp_path, 1, ["lens", "grpo"]) is None
    with pytest.raises(SystemExit) as end:
        study.main(["--out", str(tmp_path), "--seeds", "2", "--method", "grpo", method])
    err = capsys.readouterr().err
    assert (end.value.code, err.count("\n")) == (2, 1)
    assert message in err
    assert "--import" not in err  # the study has none
    assert not list(tmp_path.glob("*.log"))


STOPPED = """
import sys
from pathlib import Path
from lens_ref.tiny import study

child = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
study.command = lambda out, seed, methods: [sys.executable, "-c", child, str(out / f"pid{seed}")]
raise SystemExit(study.main(["--out", sys.argv[1], "--seeds", "3"]))
"""
"""Two seeds at work, one that waits."""


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        (signal.SIGTERM, -signal.SIGTERM, ""),
        (signal.SIGINT, 130, "stopped: the same command goes on\n"),
    ],
)
def test_a_signal_to_the_study_ends_what_trains_too(
    sent: signal.Signals, status: int, said: str, tmp_path: Path
) -> None:
    arguments = [sys.executable, "-c", STOPPED, str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        arguments, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes
    ) as process:
        try:
            deadline = time.monotonic() + 120
            while not all(_text(tmp_path / f"pid{seed}") for seed in (0, 1)):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(sent)
            out, err = process.communicate(timeout=60)
            assert (process.returncode, err) == (status, said)
            first, *stopped = out.splitlines()
            assert first.startswith("3 of 3 seeds to train, each with its console in ")
            assert sorted(stopped) == ["seed 0: stopped", "seed 1: stopped"]
            alive = [psutil.pid_exists(int(_text(tmp_path / f"pid{seed}"))) for seed in (0, 1)]
            assert alive == [False, False]
            assert not (tmp_path / "pid2").exists()
        finally:
            process.kill()
            for path in tmp_path.glob("pid*"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(_text(path)), signal.SIGKILL)


def _text(path: Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""


@pytest.mark.parametrize(("failing", "status"), [(None, 0), (1, 1)])
def test_one_failure_is_told_and_stops_no_other_seed(
    failing: int | None,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    started: list[str] = []

    def call(command: list[str], env: dict[str, str], stdout: TextIO, **_: object) -> int:
        print("what it says last", file=stdout, flush=True)
        assert env["OMP_NUM_THREADS"] == "1"
        seed = command[command.index("--seed") + 1]
        started.append(seed)
        return 5 if seed == str(failing) else 0

    monkeypatch.setattr(study.trainings, "call", call)
    assert study.main(["--out", str(tmp_path / "new"), "--seeds", "3"]) == status
    assert sorted(started) == ["0", "1", "2"]
    printed = capsys.readouterr().out
    assert printed.count("done") == (3 if failing is None else 2)
    log = tmp_path / "new" / "seed1.log"
    assert (f"seed 1: exit status 5, see {log}: what it says last\n" in printed) == (failing == 1)


def test_what_is_said_of_a_seed_is_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[str] = []

    class Recorded(io.StringIO):
        def write(self, text: str) -> int:
            writes.append(text)
            return len(text)

    monkeypatch.setattr(study.trainings, "call", lambda *_, **__: 0)
    monkeypatch.setattr(sys, "stdout", Recorded())
    study.run_seed(tmp_path, 4, ["grpo"])
    assert writes == ["seed 4: done\n"]  # in pieces, those of two threads would mix


def test_a_seed_that_waits_is_not_begun_after_a_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(study.trainings, "ending", signal.SIGINT)
    assert study.run_seed(tmp_path, 4, ["grpo"]) != 0
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().out == ""


def test_a_method_that_there_is_not_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        study.main(["--out", str(tmp_path), "--method", "lens:presets=paper"])
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.glob("seed*"))


@pytest.mark.parametrize("wrong", [["--seeds", "0"], ["--workers", "0"]])
def test_nothing_to_do_is_refused(
    wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        study.main(["--out", str(tmp_path), *wrong])
    assert end.value.code == 2
    assert "'0' is not a whole number from 1" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["tiny.study", "tiny.pretrain", "rlvr.collect"])
def test_ctrl_c_while_a_command_imports_shows_no_traceback(module: str, tmp_path: Path) -> None:
    slow = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    (tmp_path / "yaml.py").write_text(slow, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", f"lens_ref.{module}", "--out", "out"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
