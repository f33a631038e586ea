"""What a shell would start: bash itself expands a statement, and stand-ins note what it calls."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

NEEDED = ("bash", "dirname", "env", "sed")  # by recipes/verl/launch.sh
NOTE = """#!{bash}
printf '%s\\0' "${{0##*/}}" "$@" >>{log}
printf '\\n' >>{log}
"""


class Shell:
    """A bash in which every program is a stand-in, so that nothing is really started.

    Args:
        folder: where the stand-ins go; also the home of `~`.
        programs: their names; any other program is "command not found".
    """

    def __init__(self, folder: Path, programs: Iterable[str]) -> None:
        self.home, self.bin = folder, folder / "bin"
        self.log = folder / "log"
        self.bin.mkdir(parents=True)
        for name in NEEDED:
            (self.bin / name).symlink_to(str(shutil.which(name)))
        note = NOTE.format(bash=shutil.which("bash"), log=shlex.quote(str(self.log)))
        for name in programs:
            path = self.bin / name
            path.write_text(note, encoding="utf-8")
            path.chmod(0o755)

    def calls(self, statement: str, cwd: Path) -> list[list[str]]:
        """The programs that a statement starts in `cwd`, in order, each with its arguments.

        Raises:
            AssertionError: bash fails, for one because a program is none of the stand-ins.
        """
        self.log.write_bytes(b"")
        done = subprocess.run(
            ["bash", "-euc", statement],
            cwd=cwd,
            env={"PATH": str(self.bin), "HOME": str(self.home), "PWD": os.fspath(cwd)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{statement}\n{done.stderr}"
        noted = self.log.read_text(encoding="utf-8").split("\0\n")
        return [call.split("\0") for call in noted[:-1]]
