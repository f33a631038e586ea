"""Errors that a user can cause, and their mend."""

from __future__ import annotations


class UserError(Exception):
    """One clear line that says what is wrong and how to mend it; the commands print it and exit
    with status 2, without a traceback unless `--debug` is given."""


class Interrupted(Exception):  # noqa: N818  (not an error: the user or the system asked to stop)
    """Ctrl-C or SIGTERM arrived; raised at a point where the run's state is whole."""
