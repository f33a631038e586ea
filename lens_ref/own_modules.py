"""`--import MODULE`: modules of the user's own, which register methods and tasks for a command.

The command line alone names them. A configuration, which may come with somebody else's run, can't:
it would run their code.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path


def add_option(parser: argparse._ActionsContainer) -> None:
    """The option, the same for every command."""
    parser.add_argument(
        "--import",
        nargs="+",
        dest="modules",
        default=[],
        metavar="MODULE",
        help="modules of your own that register methods or tasks: of this folder, or installed",
    )


def load(modules: Sequence[str]) -> None:
    """Import them, from the working folder first.

    Raises:
        UserError: no such module, or it fails.
    """
    from lens_ref.rlvr.errors import UserError

    here = str(Path.cwd())
    if modules and here not in sys.path:  # a command that is no `python -m`
        sys.path.insert(0, here)
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            hint = f" (did you mean {name[:-3]}?)" if name.endswith(".py") else ""
            raise UserError(f"--import {name}: no module {error.name!r}{hint}") from error
        except Exception as error:  # code of the user's own may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"--import {name}: {reason} (--debug shows where)") from error


def written(modules: Sequence[str]) -> str:
    """The option as one types it after other arguments, "" for none."""
    return " ".join(["", "--import", *modules]) if modules else ""
