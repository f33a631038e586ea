"""The notebooks as they are stored, and the tools that build them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.beside import imported

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
build, classroom = (imported("notebooks", name) for name in ("build", "classroom"))
SOURCES = build.sources([])
LESSONS = [path for path in SOURCES if path.parent == FOLDER]


def by_name(path: Path) -> str:
    return path.relative_to(FOLDER).with_suffix("").as_posix()


# --- what is stored -------------------------------------------------------------------------------


def test_the_lessons_are_there() -> None:
    assert [path.name[:2] for path in LESSONS] == [f"{number:02}" for number in range(1, 12)]
    assert [by_name(path) for path in SOURCES if path.parent != FOLDER] == [
        f"exercises/{inside}0{number}_{topic}"
        for inside in ("", "solutions/")
        for number, topic in enumerate(
            ("groups", "likelihood", "practical_rule", "experiments"), start=1
        )
    ]


@pytest.mark.parametrize("source", SOURCES, ids=by_name)
def test_a_stored_notebook_is_its_source_executed(source: Path) -> None:
    assert build.complaints(source.with_suffix(".ipynb"), build.read(source)) == []


@pytest.mark.parametrize("source", SOURCES, ids=by_name)
def test_nothing_of_a_machine_is_stored(source: Path) -> None:
    text = source.with_suffix(".ipynb").read_text(encoding="utf-8")
    found = re.findall(r"(?<![\w.:/<])/(?:home|root|tmp|work|usr|opt|Users|private)/[\w./-]*", text)
    assert not found
    assert len(text) < 2_000_000


@pytest.mark.parametrize("source", LESSONS, ids=by_name)
def test_a_lesson_begins_with_what_to_expect(source: Path) -> None:
    notebook = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    first, second = notebook.cells[:2]
    assert first.cell_type == "markdown"
    assert first.source.startswith(f"# {source.name[:2]} · ")
    assert second.cell_type == "code"
    printed = "".join(output.get("text", "") for output in second.outputs)
    assert "Python 3." in printed
    assert "torch 2." in printed
    assert "Device: " in printed
    minutes = re.search(r"Expected: about ([\d.]+) minute", printed)
    assert minutes
    assert float(minutes[1]) <= 3
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert not re.search(r"^\s*[!%]|pip install", code, re.MULTILINE)
    kinds = {
        kind
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        for kind in output.get("data", {})
    }
    assert "image/png" in kinds
    assert not any("widget" in kind for kind in kinds)  # nothing there without a kernel


# --- the builder ----------------------------------------------------------------------------------


def write_source(folder: Path, code: str) -> Path:
    path = folder / "01_small.py"
    path.write_text(f"# %% [markdown]\n# # Title\n\n# %%\n{code}\n", encoding="utf-8")
    return path


def built(folder: Path, code: str = "print(6 * 7)") -> tuple[Path, Path]:
    """A source and its stored notebook, without the cost of a kernel."""
    source = write_source(folder, code)
    notebook = build.read(source)
    cell = notebook.cells[1]
    cell.execution_count = 1
    cell.outputs = [new_output("stream", name="stdout", text="42\n")]
    stored = source.with_suffix(".ipynb")
    nbformat.write(notebook, stored)
    return source, stored


def complaints(source: Path, stored: Path) -> str:
    return "; ".join(build.complaints(stored, build.read(source)))


def test_a_notebook_that_is_its_source_passes(tmp_path: Path) -> None:
    assert complaints(*built(tmp_path)) == ""


def test_a_notebook_that_is_missing(tmp_path: Path) -> None:
    source = write_source(tmp_path, "1")
    assert "not there" in complaints(source, source.with_suffix(".ipynb"))


@pytest.mark.parametrize(("before", "after"), [("6 * 7", "6 * 8"), ("# # Title", "# # Other")])
def test_a_source_that_was_changed_since(before: str, after: str, tmp_path: Path) -> None:
    source, stored = built(tmp_path)
    source.write_text(source.read_text("utf-8").replace(before, after), "utf-8")
    assert "not those of the source" in complaints(source, stored)


def change(stored: Path, **entries: Any) -> None:
    notebook = nbformat.read(stored, as_version=4)
    notebook.cells[1].update(entries)
    nbformat.write(notebook, stored)


@pytest.mark.parametrize("count", [None, 2])
def test_cells_that_were_not_run_in_order(count: int | None, tmp_path: Path) -> None:
    source, stored = built(tmp_path)
    change(stored, execution_count=count)
    assert "top to bottom" in complaints(source, stored)


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (new_output("error", ename="ValueError", evalue="no", traceback=[]), "error"),
        (new_output("stream", name="stderr", text="warning"), "stderr"),
    ],
)
def test_errors_and_warnings_that_were_stored(output: Any, says: str, tmp_path: Path) -> None:
    source, stored = built(tmp_path)
    change(stored, outputs=[output])
    assert says in complaints(source, stored)


def test_files_that_are_no_notebooks_are_left_alone() -> None:
    assert not {"build.py", "classroom.py", "checks.py"} & {path.name for path in SOURCES}


def test_words_are_beginnings_of_paths() -> None:
    assert [by_name(p) for p in build.sources(["02"])] == ["02_likelihood"]
    assert [by_name(p) for p in build.sources(["exercises/02"])] == ["exercises/02_likelihood"]
    assert len(build.sources(["exercises"])) == 8
    assert build.main(["nothing-like-this"]) == 2


@pytest.mark.slow
def test_a_cell_that_fails_stops_the_build(tmp_path: Path) -> None:
    notebook = new_notebook(cells=[new_code_cell("1 / 0")])
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        build.execute(notebook, tmp_path)
    fine = build.read(write_source(tmp_path, "print(6 * 7)"))
    build.execute(fine, tmp_path)
    assert fine.cells[1].outputs[0].text == "42\n"
    assert fine.cells[1].execution_count == 1


# --- the classroom --------------------------------------------------------------------------------


def test_lines_can_be_told_apart_without_colour() -> None:
    looks = [classroom.line(i) for i in range(8)]
    assert len({(str(look["linestyle"]), look["marker"]) for look in looks}) == 8
    assert len({look["marker"] for look in looks}) == 8
    assert classroom.line(8) == classroom.line(0)


def test_start_says_what_to_expect(capsys: pytest.CaptureFixture[str]) -> None:
    with plt.rc_context():
        device = classroom.start(1, "numpy", "no-such-package")
    printed = capsys.readouterr().out
    assert device.type in ("cpu", "cuda")
    assert "numpy " in printed
    assert "no-such-package (not installed)" in printed
    assert "about 1 minute on" in printed


def test_a_slider_stands_still_without_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[dict[str, float]] = []
    monkeypatch.setenv("LENS_REF_STATIC", "1")
    classroom.slider(lambda **values: drawn.append(values), z=(0, 1, 0.1, 0.3), D=(1, 4, 1, 2))
    assert drawn == [{"z": 0.3, "D": 2}]


def test_a_slider_moves_on_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LENS_REF_STATIC", raising=False)
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("ipywidgets.interact", lambda draw, **controls: asked.append(controls))
    classroom.slider(lambda z: None, z=(0, 1, 0.1, 0.3))
    control = asked[0]["z"]
    assert (control.min, control.max, control.step, control.value) == (0, 1, 0.1, 0.3)


def test_results_that_were_not_made_are_none() -> None:
    assert classroom.results("no-such-run") is None
    found = classroom.results("tiny", "curves.csv")
    assert found is not None
    assert found.is_file()
