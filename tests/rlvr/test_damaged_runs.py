"""Run folders that a disk, a copy, an editor or a person has damaged: training goes on to the same
end, or one line says which file it is and what to do; and so do the commands that read runs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lens_ref import train
from lens_ref.evaluating import policies
from lens_ref.evaluating.policies import Options
from lens_ref.reporting.find import find
from lens_ref.rlvr import collect
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.files import COPY_AGAIN
from lens_ref.rlvr.report_data import read_run
from lens_ref.rlvr.report_samples import samples
from lens_ref.rlvr.run_folder import RunFolder
from tests.rlvr.runs import assert_same_run, trainer
from tests.rlvr.tampering import FILES, WAYS, content, edit, refused, tamper

LOGS = FILES[2:]
pytestmark = pytest.mark.usefixtures("light")


@pytest.fixture
def finished(straight: Path, tmp_path: Path) -> Path:
    """A copy of the whole run to damage."""
    return Path(shutil.copytree(straight, tmp_path / "runs" / straight.name))


def complaint(work: Callable[[], object]) -> str | None:
    """The one line that it ends in, if it does."""
    try:
        work()
    except UserError as error:
        return str(error)
    return None


# --- every file in every way ----------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FILES)
def test_a_resumed_run_ends_the_same_or_says_what_is_damaged(
    name: str, way: str, folder: Path, straight: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tamper(folder / name, way)
    before = content(folder)
    line = complaint(lambda: trainer(RunFolder(folder)).run())
    if line is not None:
        assert str(folder / name) in line or f"it has no {name}" in line
        assert content(folder) == before
        return
    assert name not in LOGS  # nothing of them can be made up
    told = [text for text in caplog.messages if f"{folder / name} was changed" in text]
    if not told:
        shutil.copy(straight / "config.yaml", folder)  # white space apart
        assert_same_run(folder, straight)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FILES)
def test_the_commands_that_read_runs_say_what_is_damaged(
    name: str, way: str, finished: Path
) -> None:
    """Whatever can't be read is a line; what can (a row less, say) is read."""
    tamper(finished / name, way)
    out = str(finished.parent.parent / "out")
    commands: list[Callable[[], object]] = [
        lambda: samples([read_run(finished)]),
        lambda: find([finished.parent]),
        lambda: collect.collect([finished.parent], Path(out)),
        lambda: policies.find(str(finished), Options()),
    ]
    for command in commands:
        line = complaint(command)
        assert line is None or str(finished.parent) in line


# --- resuming -------------------------------------------------------------------------------------


REFUSED = [
    ("manifest.json", b"", "no JSON (character 1: Expecting value); delete it: --resume"),
    ("manifest.json", b"[" * 100_000, "it is nested too deeply"),
    ("manifest.json", b"\xff\xfe{", "line 1 is not UTF-8 text (byte 0xff)"),
    ("manifest.json", b"[]", "a mapping is needed, not list"),
    ("manifest.json", b'{"step": ' + b"9" * 5000 + b"}", "a number of 5000 digits"),
    ("config.yaml", b"", "a mapping is needed, not NoneType; put a whole copy of it back"),
    ("config.yaml", b"a: 2026-02-30", "day is out of range for month"),
    ("config.yaml", b"[" * 5000, "it is nested too deeply"),
    ("config.yaml", b"methods: [lens, grpo]", "must name the one method of this run"),
    ("config.yaml", b"step: 3", "config: unknown key 'step'"),
    ("metrics.csv", b"", "it has no row of update 1; put a whole copy of it back, or move "),
    ("eval.csv", b"\x00\xff", "it has 0 rows up to step 5 instead of 14"),
    ("eval.csv", b"\x00\xff\n", "line 1 is not UTF-8 text (byte 0xff)"),
    ("eval_counts.csv", b"a,b\n1\n", "its columns are not this version's ('a' instead of 'step')"),
    ("eval_counts.csv", b"a,a\n", "two columns are called 'a'"),
    ("groups.csv", b"step\n", "(None instead of 'question')"),
    ("samples.jsonl", b"3\n", "line 1: no JSON object"),
    ("samples.jsonl", b'{"step": 0}\n{"step": "4"}\n', "line 2 has no step"),
    ("samples.jsonl", b'{"step": 0}\n', "it has 1 rows up to step 6 instead of 32"),
]


@pytest.mark.parametrize(("name", "written", "message"), REFUSED)
def test_what_can_not_be_read_is_one_line(
    name: str, written: bytes, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / name).write_bytes(written)
    line = refused(folder, capsys)
    assert line.startswith(str(folder / name))
    assert message in line


EDITED = [
    ("metrics.csv", r"^3,", "\0,", "line 4 holds a NUL character"),
    ("metrics.csv", r"^3,", "3.0,", "line 4: '3.0' is no step"),
    ("metrics.csv", r"^3,", "4,", "it has no row of update 3"),
    ("metrics.csv", r"^3,", "2,", "it has 2 rows of update 2"),
    ("metrics.csv", r"^(3,.*\n)", r"\1\1", "it has 2 rows of update 3"),
    ("metrics.csv", r"^3,.*\n", "", "it has no row of update 3"),
    ("metrics.csv", r"^(2,.*\n)(3,.*\n)", r"\2\1", "not in the order of their steps"),
    ("metrics.csv", "step", "stop", "('stop' instead of 'step')"),
    ("metrics.csv", r"^3,[^,]*,", "3,", "line 4 has "),
    ("metrics.csv", r"^1,", "0,", "it has no row of update 1"),
    ("groups.csv", r"^4,.*\n", "", "it has 31 rows up to step 6 instead of 32"),
    ("groups.csv", r"^(0,.*\n)", r"\1\1", "it has 33 rows up to step 6 instead of 32"),
    ("eval.csv", r"^4,.*\n", "", "it has 13 rows up to step 5 instead of 14"),
    ("eval_counts.csv", r"^4,.*\n", "", "it has 9 rows up to step 5 instead of 10"),
    ("samples.jsonl", r"^", "{\n", "line 1: no JSON (character 2: "),
    ("samples.jsonl", r"^.*\n", "", "it has 31 rows up to step 6 instead of 32"),
]


@pytest.mark.parametrize(("name", "old", "new", "message"), EDITED)
def test_a_log_that_lacks_rows_or_has_more_is_not_gone_on_with(
    name: str, old: str, new: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(folder / name, old, new)
    line = refused(folder, capsys)
    assert line.startswith(f"{folder / name} is damaged: ")
    assert message in line
    assert line.endswith(
        f"; put a whole copy of it back, or move {folder / 'checkpoints'} away: "
        f"--resume {folder} then begins this run anew"
    )


def test_a_log_that_is_gone_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in LOGS:
        kept = (folder / name).read_bytes()
        (folder / name).unlink()
        assert f"{folder / name} is damaged: there is no such file" in refused(folder, capsys)
        (folder / name).write_bytes(kept)


def test_what_the_lines_tell_to_do_helps(folder: Path, straight: Path) -> None:
    """The manifest is deleted, and the checkpoints are moved away from damaged logs."""
    for name in ("manifest.json", *LOGS):
        (folder / name).write_bytes(b"\xff\xfe\n")
    (folder / "manifest.json").unlink()
    (folder / "checkpoints").rename(folder.parent / "away")
    assert train.main(["--resume", str(folder)]) == 0
    assert_same_run(folder, straight)


def test_rows_after_the_checkpoint_are_cut(folder: Path, straight: Path) -> None:
    """Whole ones, and half a last one that is not even text."""
    for name in ("metrics.csv", "groups.csv", "eval.csv", "eval_counts.csv"):
        *_, last = (folder / name).read_text().splitlines()
        with (folder / name).open("ab") as file:
            file.write(f"7,{last.partition(',')[2]}\n".encode() + b"8,\x00\xff")
    with (folder / "samples.jsonl").open("ab") as file:
        file.write(b'{"step": 7}\n{"step": 8, "\xff')
    trainer(RunFolder(folder)).run()
    assert_same_run(folder, straight)


# --- other files ----------------------------------------------------------------------------------


def test_a_link_in_the_place_of_the_lock_overwrites_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "precious"
    target.write_text("data")
    (folder / ".lock").unlink(missing_ok=True)
    (folder / ".lock").symlink_to(target)
    assert train.main(["--resume", str(folder)]) == 2
    assert f"cannot write {folder / '.lock'}" in capsys.readouterr().err
    assert target.read_text() == "data"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wall_seconds": None}, "wall_seconds is not a valid number"),
        ({"wall_seconds": float("inf")}, "wall_seconds is not a finite number"),
        ({"tokens": float("inf")}, "tokens is not a valid integer"),
        ({"data": None}, "data is not a valid dictionary"),
        ({"data": {"test": 3}}, r"data\.test is not a valid dictionary"),
        ({"data": {"test": {"sha256": 3}}}, r"data\.test\.sha256 is not a valid string"),
        ({"verifier": {"wrong": -3}}, r"verifier\.wrong is not greater than or equal to 0"),
        ({"status": ["finished"]}, "status is not a valid string"),
        ({"steps": "8"}, "steps is not a valid integer"),
    ],
)
def test_a_manifest_of_odd_values_is_one_line(
    change: dict[str, Any], message: str, finished: Path
) -> None:
    path = finished / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    for read in (read_run, lambda path: RunFolder(path).manifest()):
        with pytest.raises(UserError, match=f"manifest.json is damaged: {message}; "):
            read(finished)


def test_a_manifest_that_says_something_twice_is_one_line(finished: Path) -> None:
    edit(finished / "manifest.json", "^{", '{"seed": 3, ')
    with pytest.raises(UserError, match=r"manifest\.json is damaged: the key 'seed' occurs twice;"):
        read_run(finished)


@pytest.mark.parametrize("name", [*FILES, "checkpoints/step-8/sha256.json"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(name: str, finished: Path) -> None:
    (finished / name).unlink()
    os.mkfifo(finished / name)
    line = complaint(lambda: read_run(finished)) or ""
    if name in FILES:
        assert line == f"cannot read {finished / name}: it is no regular file; {COPY_AGAIN}"
        assert str(finished) in str(complaint(lambda: find([finished.parent])))
    assert complaint(lambda: trainer(RunFolder(finished)).run()) is None or name in FILES


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("metrics.csv", "^3,", ",", "line 4: step is '', not a whole number from 0"),
        ("metrics.csv", "^3,", "inf,", "line 4: step is 'inf', not a whole number from 0"),
        ("metrics.csv", "^3,", "1e400,", "line 4: step is '1e400', not a whole number from 0"),
        ("metrics.csv", "^3,", "2.5,", "line 4: step is '2.5', not a whole number from 0"),
        ("metrics.csv", "^3,", "-3,", "line 4: step is '-3', not a whole number from 0"),
        ("metrics.csv", "step", "stop", "it has no column step"),
        ("metrics.csv", "^3,[^,]*", "3,1e999", "line 4: reward is '1e999', not a finite number"),
        (
            "metrics.csv",
            "^3,[^,]*",
            "3,5",
            "line 4: reward is '5', not a finite number from 0 to 1",
        ),
        ("eval.csv", "^4,all,[^,]*", "4,all,-3", "line 9: pass@1 is '-3', not a finite number "),
        ("eval_counts.csv", "2,[0-2]$", "0,0", "line 2: n is '0', not a whole number from 1"),
        ("eval_counts.csv", "2,[0-2]$", "2,9", "line 2: correct is '9', not at most its n"),
        ("eval_counts.csv", "2,[0-2]$", "2,-1", "line 2: correct is '-1', not a whole number "),
        ("groups.csv", ",[0-9]*,negative", ",99,negative", "line "),
        ("samples.jsonl", '"reward": [01].0', '"reward": 5', "line 1: reward is 5, not a finite "),
        ("samples.jsonl", '"length": ', '"length": -', "line 1: length is -"),
        ("metrics.csv", "^3,", "three,", "column step holds something else than numbers"),
        ("eval.csv", "^4,", "4,4,", "line 9 has 10 cells instead of 9"),
        ("groups.csv", "correct", "level", "two columns are called 'level'"),
        ("samples.jsonl", "^{", "[", "line 1: no JSON (character "),
    ],
)
def test_a_log_that_no_report_can_read_is_one_line(
    name: str, old: str, new: str, message: str, finished: Path
) -> None:
    edit(finished / name, old, new)
    with pytest.raises(UserError) as caught:
        samples([read_run(finished)])
    assert str(caught.value).startswith(f"{finished / name} is damaged: {message}")
    assert str(caught.value).endswith("; copy that run again, or move it away")


@pytest.mark.parametrize(
    "written", [b"", b"{}", b"[3]", b'[{"run": 3, "config": {"seed": 0}}]', b"[" * 100_000, b"\xff"]
)
def test_collected_runs_that_are_damaged_are_one_line(
    written: bytes, finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "collected"
    collect.collect([finished.parent], out)
    find([], out)
    (out / "manifests.json").write_bytes(written)
    with pytest.raises(UserError, match=r"manifests\.json is damaged: .*; copy that run again"):
        find([], out)
