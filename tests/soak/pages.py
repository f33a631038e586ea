r"""Some hundred texts that try to act where they are shown: script elements, event handlers,
`javascript:` addresses, ends of the elements around them, entities, commands to the terminal, marks
that turn the direction of writing, null bytes, formulas of a spreadsheet. They stand in the logs of
runs as questions, ids, levels, expected answers, answers, reasons, names of models, data, methods
and folders, and in counts of the evaluate command as ids and subjects; then every page is made of
them.

Promised: in a page they stay text, letter by letter, and nothing of them becomes an element, an
attribute or an address; characters that act instead of being seen are written as escapes (`\x1b`,
`\u202e`), on the console too; a cell of a CSV that a spreadsheet would compute gets an apostrophe
in front, which the readers here take off again; in LaTeX no command comes from them. That a
browser runs nothing of it either is checked in Chromium, by `make test-docs`. Not promised:
`samples.jsonl` and the debug bundles hold what the model wrote as it is, as JSON.
"""

from __future__ import annotations

import contextlib
import csv
import io
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from lens_ref import evaluate, report
from lens_ref.evaluating import counts
from lens_ref.rlvr.run_report import write_report
from lens_ref.rlvr.untrusted import one_line, printable
from tests import hostile
from tests.hostile import ACTING, TEXTS_OF_A_RUN
from tests.soak import Figure

COMMANDS = {
    "begin", "end", "centering", "caption", "label", "toprule", "midrule", "bottomrule", "alpha",
    "usepackage", "textbackslash", "textasciicircum", "textasciitilde", "textit", "times", "cdot",
}  # fmt: skip
"""Of LaTeX, that the tables are made with."""


def measure(quick: bool) -> list[Figure]:
    """Every page over hostile texts."""
    texts = hostile.texts(54 if quick else 540)
    with tempfile.TemporaryDirectory() as folder:
        return [
            *_run_report(Path(folder), texts),
            *_reproduction(Path(folder), texts[: 18 if quick else 90]),
            *_evaluation(Path(folder), texts),
        ]


def _parts(texts: list[str]) -> list[list[str]]:
    return [texts[i : i + TEXTS_OF_A_RUN] for i in range(0, len(texts), TEXTS_OF_A_RUN)]


def _run_report(folder: Path, texts: list[str]) -> Iterator[Figure]:
    parent = folder / "a\"><script>'x"
    for seed, part in enumerate(_parts(texts)):
        hostile.make_run(parent / f"<img src=x onerror=1> $x$-seed{seed}", part, seed=seed)
    page = hostile.Page(write_report(parent).read_text(encoding="utf-8"))
    seen = " ".join(page.text.split())
    shown = sum(one_line(t) in seen or one_line(printable(t)) in seen for t in texts)
    yield _none("report of a run: elements, attributes, control characters of theirs", page.faults)
    yield Figure(
        "report of a run: hostile texts that a reader sees as they are",
        f"{shown} of {len(texts)}",
        "all",
        shown == len(texts),
    )


def _reproduction(folder: Path, texts: list[str]) -> Iterator[Figure]:
    parent, out = folder / "b\"><script>'x", folder / "out<b>"
    for i, part in enumerate(_parts(texts)):
        for method in ("grpo", f"lens:preset={part[0]}"):
            hostile.make_run(parent / str(i) / method[:4], part, method)
    console = _console(lambda: report.main([str(parent), "--out", str(out)]))
    page = hostile.Page((out / "report.html").read_text(encoding="utf-8"))
    latex = (out / "tables.tex").read_text(encoding="utf-8")
    commands = set(re.findall(r"\\([A-Za-z]+)", latex)) - COMMANDS
    yield _none("report of a reproduction: elements, attributes, control characters", page.faults)
    yield _none("its LaTeX: commands of theirs", sorted(commands))
    yield _none("its console: control characters", ACTING.findall(console))
    cells = [cell for name in ("tables.csv", "our_runs.csv") for cell in _cells(out / name)]
    yield _none("its CSV: cells that a spreadsheet computes", _formulas(cells))


def _evaluation(folder: Path, texts: list[str]) -> Iterator[Figure]:
    files = [folder / name for name in ("[red]a.csv", "b.csv")]
    names = list(dict.fromkeys(map(one_line, texts)))
    rows = [counts.Count(f"{name}", 1, name, 16, i % 17, 0) for i, name in enumerate(names)]
    for file in files:
        counts.write(file, rows)
    again = [(row.id, row.subject) for row in counts.read(files[0])]
    out = folder / "evaluated"
    arguments = ["--from", *map(str, files), "--out", str(out)]
    console = _console(lambda: evaluate.main(arguments))
    table = (out / "table.txt").read_text(encoding="utf-8")
    yield _none("evaluation: control characters on the console", ACTING.findall(console))
    yield _none("evaluation: control characters in table.txt", ACTING.findall(table))
    seen = sum(printable(name, keep="") in table for name in names)
    yield Figure(
        "evaluation: subjects that a reader sees as they are",
        f"{seen} of {len(names)}",
        "all",
        seen == len(names),
    )
    cells = [cell for path in [*files, *out.glob("*.csv")] for cell in _cells(path)]
    yield _none("evaluation: CSV cells that a spreadsheet computes", _formulas(cells))
    same = sum(pair == (name, name) for pair, name in zip(again, names, strict=True))
    yield Figure(
        "evaluation: ids and subjects read back from the CSV as they were",
        f"{same} of {len(names)}",
        "all",
        same == len(names),
    )


def _none(what: str, found: list[str]) -> Figure:
    return Figure(what, f"{len(found)}" + (f" ({found[0]!r} …)" if found else ""), "0", not found)


def _cells(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.reader(file):
            yield from row


def _formulas(cells: list[str]) -> list[str]:
    """What begins like a formula and is no number."""
    return [c for c in cells if re.match(r"[=+\-@\t\r]", c) and not re.fullmatch(r"-[\d.e-]+", c)]


def _console(command: Callable[[], int]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = command()
    if status:
        raise RuntimeError(out.getvalue())
    return out.getvalue()
