"""Build the notebooks from their py:percent sources and execute them; with `--check`, execute
everything afresh and compare what is stored with the sources.

    python notebooks/build.py            # writes NN_topic.ipynb beside NN_topic.py, with outputs
    python notebooks/build.py --check    # writes nothing; fails where one is not its source
    python notebooks/build.py 03 exercises/01    # only those whose path begins so
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat import NotebookNode

HERE = Path(__file__).resolve().parent
SECONDS_PER_CELL = 170
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def sources(words: list[str]) -> list[Path]:
    """The py:percent files, in reading order: lessons, then solutions, then exercises."""
    found = [
        path
        for folder in (HERE, HERE / "exercises", HERE / "exercises" / "solutions")
        for path in sorted(folder.glob("*.py"))
        if path.read_text(encoding="utf-8").startswith("# %%")
    ]
    return [
        p for p in found if not words or p.relative_to(HERE).as_posix().startswith(tuple(words))
    ]


def read(source: Path) -> NotebookNode:
    """The notebook of a source: cells alone, ids that do not change from build to build."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run all cells in order in a fresh kernel; CellExecutionError on the first that fails."""
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        startup_timeout=180,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],  # it warns of TCP, on this machine alone
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    notebook.metadata["language_info"] = {"name": "python"}  # not the version of this Python


def cells(notebook: NotebookNode) -> list[tuple[str, str]]:
    """(type, source) of every cell: what must not differ between a source and its notebook."""
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def complaints(stored: Path, fresh: NotebookNode) -> list[str]:
    """What is wrong with a stored notebook: missing, another source, not run from top to bottom,
    errors or warnings in it."""
    if not stored.exists():
        return ["it is not there: python notebooks/build.py"]
    notebook = nbformat.read(stored, as_version=4)
    wrong = []
    if cells(notebook) != cells(fresh):
        wrong.append("its cells are not those of the source: python notebooks/build.py")
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        wrong.append("it was not run from top to bottom")
    outputs = [output for cell in code for output in cell.outputs]
    if any(output.output_type == "error" for output in outputs):
        wrong.append("an error is stored in it")
    if any(output.get("name") == "stderr" for output in outputs):
        wrong.append("something was written to stderr in it")
    return wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="how paths begin; none: all notebooks")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args(arguments)
    chosen = sources(options.words)
    if not chosen:
        print(f"no notebook begins with {' or '.join(options.words)}", file=sys.stderr)
        return 2
    os.environ["LENS_REF_STATIC"] = "1"
    failed, total = 0, 0.0
    for source in chosen:
        began = time.perf_counter()
        name, stored = str(source.relative_to(HERE)), source.with_suffix(".ipynb")
        notebook = read(source)
        wrong = complaints(stored, notebook) if options.check else []
        try:
            execute(notebook, source.parent)
        except (CellExecutionError, CellTimeoutError, RuntimeError) as error:  # a kernel that died
            wrong.append(f"it fails: {error}")
        else:
            if not options.check:
                nbformat.write(notebook, stored)
                wrong = complaints(stored, read(source))
        seconds = time.perf_counter() - began
        total += seconds
        failed += bool(wrong)
        print(f"{name:42} {seconds:6.1f} s  {'; '.join(wrong) or 'ok'}", flush=True)
    print(f"{len(chosen)} notebooks, {total / 60:.1f} minutes, {failed} with faults")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
