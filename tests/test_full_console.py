"""Whatever command shows something: a full disk behind its console is one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import toy.__main__ as toy_command
from lens_ref import report
from lens_ref.rlvr import collect, report_figures
from lens_ref.rlvr.console import console
from lens_ref.rlvr.errors import UserError
from lens_ref.tiny import study
from tests.report_runs import make_run
from toy.compare import __main__ as compare_command
from toy.reference import SAMPLED

Command = Callable[[list[str]], int]
COMMANDS: dict[str, tuple[Command, list[str]]] = {
    "report": (report.main, ["runs", "--out", "out"]),
    "collect": (collect.main, ["runs", "--out", "out"]),
    "collect --whole": (collect.main, ["runs", "--out", "out", "--whole"]),
    "study": (study.main, ["--out", "out", "--seeds", "1", "--method", "grpo"]),
    "toy --check": (toy_command.main, ["--check", str(SAMPLED), str(SAMPLED)]),
    "toy.compare": (compare_command.main, ["--out", "out", "--only", "signal"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_behind_the_console_is_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(Path("runs/grpo-seed0"), "grpo", 0.2)
    monkeypatch.setattr(report_figures, "png", lambda figure: b"PNG")
    monkeypatch.setattr(study.trainings, "call", lambda *_, **__: 0)
    monkeypatch.setattr(compare_command, "write", lambda *_: None)
    monkeypatch.setattr(compare_command.signal, "cells", lambda *_: [])
    monkeypatch.setattr(compare_command.signal, "summarize", lambda _: None)
    monkeypatch.setattr(compare_command.report, "show", lambda _, console: console.print("a table"))
    main, arguments = COMMANDS[name]
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        try:
            status = main(arguments)
        except SystemExit as end:
            status = end.code
    assert status == 2
    said = "error: cannot write what is shown: No space left on device; send it elsewhere\n"
    assert capsys.readouterr().err == said


def test_what_was_not_written_does_not_come_with_the_next_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        with pytest.raises(UserError, match="No space left on device"):
            console.print("lost")
    console.print("kept")
    assert capsys.readouterr().out == "kept\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_name_is_no_folder(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It would be the working one."""
    main, arguments = COMMANDS[name]
    with pytest.raises(SystemExit) as end:
        main(["" if argument == "out" else argument for argument in [*arguments, "--out", ""]])
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("error: argument --out: it is empty: name a folder")
