"""`python -m toy.compare`: what counts as done, a run that was cut off, bad options."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import toy.compare.__main__ as command
from toy.compare import runner
from toy.compare.cell import code, slug


@dataclass(frozen=True)
class Numbers:
    """A cell of a few random numbers, which notes its runs; dies where a trap is laid."""

    name: str
    folder: str
    cost: float = 1.0
    first: int = 0
    part: str = "numbers"

    @property
    def sources(self) -> tuple[str, ...]:
        return (f"{self.folder}/{self.name}.py",)

    def run(self, workspace: Path, report: object) -> pd.DataFrame:
        if Path(self.folder, f"trap {self.name}").exists():
            os._exit(9)
        with Path(self.folder, "log").open("a") as log:
            log.write(f"{self.name}\n")
        numbers = np.random.default_rng(self.first).random(3)
        return pd.DataFrame({"name": self.name, "setting": "one", "number": numbers})


def summarize(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """In the columns of a summary, as far as the printed table reads them."""
    rows = [
        {"experiment": part, "quantity": "number", "method": "grpo", "setting": "one"}
        | {"optimizer": "sgd", "p_c": np.nan, "group_size": 16, "step": np.nan, "cap": np.nan}
        | {"mean": rows["number"].mean(), "ci95": 0.0, "n": len(rows), "solved": len(rows)}
        for part, rows in frames.items()
    ]
    return pd.DataFrame(rows)


@pytest.fixture
def sources(tmp_path) -> Path:
    """Where the code of the cells lies, and the log of their runs."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for name in ("short", "middle", "long"):
        (folder / f"{name}.py").write_text('"""Text."""\nx = 1\n')
    return folder


@pytest.fixture
def cells(sources, monkeypatch) -> list[Numbers]:
    """Three cells of one part and one of another, as the command's experiments."""
    mine = [
        Numbers(name, str(sources), cost, first)
        for first, (name, cost) in enumerate((("short", 1), ("middle", 2), ("long", 3)))
    ]
    (sources / "other.py").write_text("")
    others = [Numbers("other", str(sources), 0.1, part="others")]
    experiments = {
        "signal": SimpleNamespace(cells=lambda full, base: mine, summarize=summarize),
        "harms": SimpleNamespace(cells=lambda full, base: others, summarize=summarize),
    }
    monkeypatch.setattr(command, "EXPERIMENTS", experiments)
    monkeypatch.setattr(command.figures, "draw", lambda frames, summaries: {})
    return mine


@pytest.fixture
def one_process(monkeypatch) -> None:
    """Cells run here, which is quick."""

    def run(cells, folder, workers, done):
        for cell in cells:
            runner.run_cell(cell, folder)

    monkeypatch.setattr(runner, "_run", run)


def ran(sources: Path) -> list[str]:
    """The cells that ran since the last look."""
    log = sources / "log"
    names = log.read_text().split() if log.exists() else []
    log.write_text("")
    return names


def run(out: Path, *options: str) -> int:
    code.cache_clear()  # a new process would read the sources anew
    return command.main(["--out", str(out), "--only", "signal", *options])


def test_a_killed_run_goes_on_and_ends_like_any_other(cells, sources, tmp_path, capsys):
    out = tmp_path / "killed"
    trap = sources / "trap middle"
    trap.write_text("")
    assert run(out, "--workers", "1") == 2
    error = capsys.readouterr().err
    assert "the same command goes on" in error
    assert error.count("\n") == 1
    assert ran(sources) == ["long"]  # long ones first
    assert not (out / "numbers.csv").exists()
    trap.unlink()
    assert run(out, "--workers", "2") == 0
    assert sorted(ran(sources)) == ["middle", "short"]
    assert json.loads((out / "manifest_signal.json").read_text())["reused_cells"] == 1

    # straight through, in this process: neither the pause nor the number of workers shows
    straight = tmp_path / "straight"
    (straight / "cells").mkdir(parents=True)
    for cell in cells:
        runner.run_cell(cell, straight / "cells")
    assert run(straight) == 0
    for name in ("numbers.csv", "summary_signal.csv"):
        assert (out / name).read_bytes() == (straight / name).read_bytes()


def test_edited_code_and_other_settings_are_run_again(cells, sources, tmp_path, one_process):
    assert run(tmp_path / "out") == 0
    assert ran(sources) == ["long", "middle", "short"]
    assert run(tmp_path / "out") == 0
    assert ran(sources) == []
    (sources / "middle.py").write_text('"""Other text."""\nx = 1  # a remark\n')
    (sources / "long.py").write_text('"""Text."""\nx = 2\n')
    assert run(tmp_path / "out") == 0
    assert ran(sources) == ["long"]
    before = pd.read_csv(tmp_path / "out" / "numbers.csv")
    cells[0] = replace(cells[0], first=10)
    assert run(tmp_path / "out") == 0
    assert ran(sources) == ["short"]
    after = pd.read_csv(tmp_path / "out" / "numbers.csv")
    changed = before["number"] != after["number"]
    assert set(after["name"][changed]) == {"short"}


def test_what_code_of_before_left_is_not_taken_up(cells, tmp_path):
    workspace = tmp_path / slug(cells[0])
    workspace.mkdir()
    (workspace / "fingerprint").write_text("of other code")
    (workspace / "checkpoint").write_text("")
    runner.run_cell(cells[0], tmp_path)
    assert not (workspace / "checkpoint").exists()
    (workspace / "checkpoint").write_text("")
    runner.run_cell(cells[0], tmp_path)  # the same code: a cut-off cell finds its own again
    assert (workspace / "checkpoint").exists()


def test_a_cell_without_its_rows_is_not_done(cells, sources, tmp_path, one_process):
    assert run(tmp_path / "out") == 0
    ran(sources)
    (tmp_path / "out" / "cells" / f"{slug(cells[1])}.csv").unlink()
    assert run(tmp_path / "out") == 0
    assert ran(sources) == ["middle"]


def test_parts_that_are_not_asked_for_stay_as_they_are(cells, sources, tmp_path, one_process):
    out = tmp_path / "out"
    both = ["--out", str(out), "--only", "harms", "signal"]
    assert command.main(both) == 0
    assert ran(sources) == ["long", "middle", "short", "other"]
    (out / "others.csv").write_text("as it was")
    (out / "summary_harms.csv").write_text("as it was")
    assert run(out, "--fresh") == 0
    assert ran(sources) == ["long", "middle", "short"]
    assert (out / "others.csv").read_text() == "as it was"
    assert (out / "summary_harms.csv").read_text() == "as it was"
    assert command.main(both) == 0  # its cells are kept too
    assert ran(sources) == []
    assert len(pd.read_csv(out / "others.csv")) == 3


def test_ctrl_c_says_how_to_go_on(cells, tmp_path, monkeypatch, capsys):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_all", interrupted)
    assert run(tmp_path / "out") == 130
    error = capsys.readouterr().err
    assert "the finished cells are kept: the same command goes on" in error
    assert error.count("\n") == 2  # the first ends the progress bar's line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "0"], "argument --workers: '0' is not a whole number from 1 to 999,999,999"),
        (
            ["--seed-base", "x"],
            "argument --seed-base: 'x' is not a whole number from 0 to 999,999,999",
        ),
    ],
)
def test_a_bad_number_is_one_line(options, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(options)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_unknown_part_is_refused_with_the_known_ones(capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(["--only", "noise"])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert "invalid choice: 'noise'" in error
    for part in ("signal", "harms", "language"):
        assert part in error


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run(tmp_path / "file") == 2
    error = capsys.readouterr().err
    assert "can't write to" in error
    assert "--out" in error
    assert error.count("\n") == 1


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(["--help"])
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    for option in ("--full", "--only", "--workers", "--out", "--seed-base", "--fresh"):
        assert option in printed
