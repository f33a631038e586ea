"""Errors that a user can cause, and their mend."""

from __future__ import annotations

from lens_ref.rlvr.untrusted import printable, redacted


class UserError(Exception):
    """One clear line that says what is wrong and how to mend it; the commands print it and exit
    with status 2, without a traceback unless `--debug` is given.

    What it quotes may be anybody's words, or an address with a password in it: as text it is one
    printable line without either."""

    def __str__(self) -> str:
        return printable(redacted(super().__str__()), keep="")


class Interrupted(Exception):  # noqa: N818  (not an error: the user or the system asked to stop)
    """Ctrl-C or SIGTERM arrived; raised at a point where the run's state is whole."""
