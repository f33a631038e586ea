"""The command from end to end, on a plan of a second, and what it says when it can't go on."""

import json

import pandas as pd
import pytest

import toy.__main__ as command
from toy.rules import RULES


def test_a_run_writes_its_tables_and_figures(tiny_results, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "run", lambda *args: tiny_results)
    out = tmp_path / "new" / "folder"
    assert command.main(["--out", str(out), "--seed-base", "7"]) == 0
    names = {path.name for path in out.iterdir()}
    tables = ("steps", "accuracy", "sequence", "summary", "flow", "flow_curves", "guards")
    figures = ("flow_curves", "escape_times", "sampled_steps", "signal_sizes")
    figures += ("accuracy_curves", "sequence_curves")
    wanted = {f"{name}.csv" for name in (*tables, "signal_sizes")}
    assert names == wanted | {f"{name}.png" for name in figures} | {"manifest.json"}
    steps = pd.read_csv(out / "steps.csv")
    assert set(steps["method"]) == set(RULES) - {"mle_d2_demeaned"}
    assert set(steps["seed"]) == {7, 8, 9}
    assert json.loads((out / "manifest.json").read_text())["seed_base"] == 7
    printed = " ".join(capsys.readouterr().out.split())
    assert "With SGD, the algorithm as printed" in printed
    assert "6693.1" in printed
    assert "never (wrong)" in printed


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(["--help"])
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    for option in ("--full", "--out", "--seed-base", "--check"):
        assert option in printed


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert command.main(["--out", str(blocked)]) == 2
    error = capsys.readouterr().err
    assert "can't write to" in error
    assert "--out" in error
    assert error.count("\n") == 1


def test_ctrl_c_is_one_line_and_writes_nothing(tmp_path, monkeypatch, capsys):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", interrupted)
    out = tmp_path / "out"
    assert command.main(["--out", str(out)]) == 130
    assert capsys.readouterr().err == "\nstopped; nothing was written\n"
    assert list(out.iterdir()) == []


def test_a_negative_seed_base_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(["--seed-base", "-1"])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert "--seed-base: '-1' is not a whole number from 0 to 999,999,999" in error
    assert error.count("\n") == 1


def test_a_disk_that_fills_up_leaves_the_old_tables(tiny_results, tmp_path, monkeypatch, capsys):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "run", lambda *args: tiny_results)
    monkeypatch.setattr("toy.runs.figures.save", full)
    (tmp_path / "summary.csv").write_text("old")
    assert command.main(["--out", str(tmp_path)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["summary.csv"]
    assert (tmp_path / "summary.csv").read_text() == "old"
