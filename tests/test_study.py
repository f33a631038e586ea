"""The study on the bundled policy: what it starts, what it resumes, what it leaves alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lens_ref.tiny import study

TRAIN = [sys.executable, "-m", "lens_ref.train"]


def test_a_new_seed_is_trained_with_all_methods(tmp_path: Path) -> None:
    new = ["--out", str(tmp_path), "--name", "seed3", "--seed", "3", "--method", "grpo", "lens"]
    assert study.command(tmp_path, 3, ["grpo", "lens"]) == [*TRAIN, *new]


def test_a_seed_that_was_begun_is_resumed(tmp_path: Path) -> None:
    (tmp_path / "seed3").mkdir()  # killed before the first run had its settings
    assert "--resume" not in (study.command(tmp_path, 3, ["grpo"]) or ["--resume"])
    run = tmp_path / "seed3" / "grpo-seed3"
    run.mkdir()
    (run / "config.yaml").touch()
    assert study.command(tmp_path, 3, ["grpo"]) == [*TRAIN, "--resume", str(tmp_path / "seed3")]
    (run / "manifest.json").write_text('{"status": "finished"}', "utf-8")
    assert study.command(tmp_path, 3, ["grpo"]) is None


@pytest.mark.parametrize(("failing", "status"), [(None, 0), (1, 1)])
def test_one_failure_is_told_and_stops_no_other_seed(
    failing: int | None,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    started: list[str] = []

    def call(command: list[str], env: dict[str, str], **_: object) -> int:
        assert env["OMP_NUM_THREADS"] == "1"
        seed = command[command.index("--seed") + 1]
        started.append(seed)
        return 5 if seed == str(failing) else 0

    monkeypatch.setattr(study.subprocess, "call", call)
    assert study.main(["--out", str(tmp_path / "new"), "--seeds", "3"]) == status
    assert sorted(started) == ["0", "1", "2"]
    printed = capsys.readouterr().out
    assert printed.count("done") == (3 if failing is None else 2)
    assert ("seed 1: exit status 5" in printed) == (failing == 1)


@pytest.mark.parametrize("wrong", [["--seeds", "0"], ["--workers", "0"]])
def test_nothing_to_do_is_refused(
    wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        study.main(["--out", str(tmp_path), *wrong])
    assert end.value.code == 2
    assert "at least 1" in capsys.readouterr().err
