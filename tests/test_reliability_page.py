"""docs/reliability.md says what the files say, and what was missed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.beside import imported
from tests.soak import PARTS, Figure, __main__

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def reliability_page() -> Any:
    return imported("docs", "reliability_page")


def test_every_part_has_a_section(reliability_page: Any, tmp_path: Path) -> None:
    assert tuple(reliability_page.TITLES) == PARTS
    page = reliability_page.page(ROOT / "tests/soak", tmp_path)
    for part, title in reliability_page.TITLES.items():
        assert f"## {title}\n" in page
        assert f"Not measured yet: `python -m tests.soak {part}`." in page


def test_what_was_missed_is_said(reliability_page: Any) -> None:
    figures = [
        {"what": "kills", "found": "19 of 20", "bound": "all", "met": False},
        {"what": "a | b", "found": "3", "bound": "", "met": True},
    ]
    about = {"seconds": 7, "command": "python -m tests.soak crash", "python": "3.12.1"}
    about |= {"versions": {"torch": "2.13.0"}, "hardware": {"cpus": 2}}
    lines = reliability_page.table({"figures": figures, **about}).splitlines()
    assert lines[2] == "| kills | 19 of 20 | all: **missed** |"
    assert lines[3] == r"| a \| b | 3 |  |"
    assert lines[5] == "`python -m tests.soak crash`: 7 s on 2 CPUs, Python 3.12.1, torch 2.13.0."


def test_a_missed_bound_is_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    class Part:
        found = Figure("kills", "20 of 20", "all")

        @classmethod
        def measure(cls, quick: bool) -> list[Figure]:
            return [cls.found]

    monkeypatch.setattr(__main__.importlib, "import_module", lambda name: Part)
    assert __main__.main(["crash", "--quick", "--out", str(tmp_path / "none")]) == 0
    assert not (tmp_path / "none").exists()
    Part.found = Figure("kills", "19 of 20", "all", met=False)
    assert __main__.main(["crash", "--out", str(tmp_path)]) == 1
    assert "MISS kills: 19 of 20  (asked: all)" in capsys.readouterr().out
    written = json.loads((tmp_path / "crash.json").read_text("utf-8"))
    assert written["figures"] == [
        {"what": "kills", "found": "19 of 20", "bound": "all", "met": False}
    ]
    assert written["command"] == "python -m tests.soak crash"
