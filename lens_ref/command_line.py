"""What the commands share: refusals of one line, numbers, and KEY=VALUE arguments."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from lens_ref import extras
from lens_ref.rlvr.untrusted import printable, redacted, show_traceback

LARGEST = 999_999_999
"""Of the numbers on a command line."""


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose refusals are one line."""

    def error(self, message: str) -> NoReturn:
        """Print `error: …` and exit with status 2."""
        shown = printable(redacted(message), keep="")
        self.exit(2, f"error: {shown} (see --help)\n")


def fail(message: str) -> int:
    """Print `error: …` in one line; returns the exit status 2."""
    print(printable(f"error: {message}", keep=""), file=sys.stderr)
    return 2


def positive(text: str) -> int:
    """A whole number from 1."""
    return _whole(text, 1)


def unsigned(text: str) -> int:
    """A whole number from 0."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    plain = text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST))
    if not (plain and least <= int(text) <= LARGEST):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number from {least} to {LARGEST:,}"
        )
    return int(text)


def folder(text: str) -> Path:
    """A folder; "" would be the working one."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty: name a folder")
    return Path(text)


def one_line_errors(work: Callable[[], int], debug: bool, what: str, shortage: str) -> int:
    """The exit status of a command, whose errors are one line each: 2, or 130 after Ctrl-C. Where
    there is a traceback, it is printable and shows no secrets.

    Args:
        debug: let everything through, with its traceback.
        what: what the command does, for the line about packages that are not installed.
        shortage: what to set where GPU memory ran out.
    """
    if missing := extras.missing():
        print(extras.message(what, missing), file=sys.stderr)
        return 2
    sys.excepthook = show_traceback
    try:
        import torch

        from lens_ref.rlvr.errors import Interrupted, UserError

        try:
            return work()
        except torch.OutOfMemoryError as error:
            if debug:
                raise
            what = str(error).splitlines()[0]
            print(f"error: out of GPU memory ({what}); set {shortage}", file=sys.stderr)
            return 2
        except UserError as error:
            if debug:
                raise
            print(f"error: {error}", file=sys.stderr)
            return 2
        except (Interrupted, KeyboardInterrupt):
            if debug:
                raise
            return 130
    except ModuleNotFoundError as error:
        if debug:
            raise
        print(extras.message(what, [error.name or str(error)]), file=sys.stderr)
        return 2


TEXTS = ("prompt.system", "prompt.template")


def settings(pairs: list[str]) -> dict[str, Any]:
    """Fields of the configuration from KEY=VALUE arguments.

    Raises:
        UserError: no KEY=VALUE, or the value is not YAML.
    """
    from lens_ref.rlvr.config import as_number
    from lens_ref.rlvr.errors import UserError
    from lens_ref.rlvr.files import parse_yaml

    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"--set {pair}: write KEY=VALUE")
        try:
            found[key] = as_number(parse_yaml(value))
        except ValueError:
            raise UserError(f"--set {pair}: {value!r} is not a YAML value") from None
        if isinstance(found[key], dict):
            values = [*found[key].values()]
            if key in TEXTS or (values and all(inner is None for inner in values)):
                found[key] = value  # {problem}, or Q: {problem}, is meant as text
    return found
