"""Errors that a user can cause, and their mend."""

from __future__ import annotations

from lens_ref.rlvr.untrusted import printable, redacted

LONGEST_ERROR = 1000  # characters


class UserError(Exception):
    """One clear line that says what is wrong and how to mend it; the commands print it and exit
    with status 2, without a traceback unless `--debug` is given.

    What it quotes may be anybody's words, or an address with a password in it: as text it is one
    printable line without either."""

    def __str__(self) -> str:
        return printable(redacted(super().__str__()), keep="")


def in_one_line(error: BaseException) -> str:
    """What went wrong, printable and without secrets: a user's error as it is, another one with its
    kind."""
    text = " ".join(str(error).split())
    if not isinstance(error, UserError):
        text = f"{type(error).__name__}: {text}"
    return printable(redacted(text), keep="")[:LONGEST_ERROR]


class Interrupted(Exception):  # noqa: N818  (not an error: the user or the system asked to stop)
    """Ctrl-C or SIGTERM arrived; raised at a point where the run's state is whole."""
