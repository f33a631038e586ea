"""Try one command of a page, the way that `tables` says."""

from __future__ import annotations

import re
import runpy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from lens_ref import train
from lens_ref.rlvr.config import load
from tests.pages import inspected, stand_ins, tables
from tests.pages.reading import ROOT, Block
from tests.pages.shell import Shell

PROGRAMS = ("python", "make", *tables.INSPECTED)
FUNCTIONS: dict[str, Callable[[list[str], inspected.Again], None]] = {
    "python3.12": inspected.python312,
    **{
        name: getattr(inspected, name.replace("-", "_"))
        for name in (*tables.INSPECTED, "make")
        if "." not in name
    },
}


class Trial:
    """The folder of one block, in which its commands are tried one after the other.

    Args:
        place: a filled folder (`places.fill`), which becomes the working directory.
    """

    def __init__(self, place: Path, patch: pytest.MonkeyPatch) -> None:
        self.place, self.patch = place, patch
        self.shell = Shell(place / ".home", PROGRAMS)
        for name in ("activate", "jupyter"):
            for folder in (place / ".home/verl/bin", place / ".venv/bin"):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / name).symlink_to(self.shell.bin / "jupyter")
        (place / ".home/verl/bin/activate").unlink()
        (place / ".home/verl/bin/activate").touch()
        patch.chdir(place)

    def block(self, block: Block) -> None:
        """All statements of a block, or the command within a line."""
        for statement in [block.text] if block.language == "inline" else block.statements():
            self.statement(statement)

    def statement(self, text: str) -> None:
        """What a statement starts; "…" is left out, or stands for the train command."""
        text = re.sub(r"^… ", f"python -m {tables.TRAIN} ", text)
        text = re.sub(r" …(?= |$)", "", text)
        for word, meant in tables.PLACEHOLDERS.items():
            text = re.sub(rf"\b{word}\b", meant, text)
        for call in self.shell.calls(text, self.place):
            self.call(call)

    def call(self, call: list[str]) -> None:
        """One program with its arguments."""
        program, arguments = call[0], call[1:]
        if program == "python":
            at = 1 if arguments[0] == "-m" else 0
            name, arguments = arguments[at], arguments[at + 1 :]
            if " ".join(call) in tables.TRIED_ELSEWHERE:
                return
            if name == "verl.trainer.main_ppo":
                program = "verl"
            elif name == "tests/mutants.py":
                program = "mutants"
            else:
                self.python(name, arguments, module=at == 1)
                return
        FUNCTIONS[program](arguments, self.statement)

    def python(self, name: str, arguments: list[str], module: bool) -> None:
        """Run a module or script of the project with the page's arguments, shortened."""
        if name == tables.TRAIN:
            given = train.build_parser().parse_args(arguments)
            _, config, overrides = train._recipe(given)
            if given.resume is None:
                load(config, overrides)  # as printed
        if name in tables.STAND_INS:
            getattr(stand_ins, name.replace(".", "_"))(self.patch)
        stand_ins.light(self.patch)
        arguments = shortened(name, arguments)
        self.patch.setattr(sys, "argv", [name, *arguments])
        self.patch.setattr(sys, "excepthook", sys.excepthook)  # commands set their own
        status = run_main(name, module)
        assert not status, f"{name} {' '.join(arguments)} ended with status {status}"


def run_main(name: str, module: bool) -> int | str | None:
    """What `python -m name` or `python name` does in this process; returns the exit status."""
    try:
        with warnings.catch_warnings():
            # that a module was imported before it is run again
            warnings.filterwarnings("ignore", ".*found in sys.modules", RuntimeWarning)
            if module:
                runpy.run_module(name, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(str(ROOT / name), run_name="__main__")
    except SystemExit as left:
        return left.code
    return 0


def shortened(name: str, arguments: list[str]) -> list[str]:
    """The arguments with those of the first row of `tables.SHORTENED` that fits."""
    for row in tables.SHORTENED:
        if row.program == name and (not row.having or row.having in arguments):
            break
    else:
        return arguments
    words, sets = arguments, list[str]()
    if "--set" in arguments:
        at = arguments.index("--set")
        after = [i for i in range(at + 1, len(arguments)) if arguments[i].startswith("--")]
        end = min(after, default=len(arguments))
        words, sets = arguments[:at] + arguments[end:], arguments[at + 1 : end]
    settings = [*row.settings, *sets]  # what the page sets comes last and wins
    return [*words, *row.options, *(["--set", *settings] if settings else [])]
