"""Asking a run to stop."""

from __future__ import annotations

import signal
import threading
from typing import Any

from lens_ref.rlvr.errors import Interrupted


class StopRequest:
    """Turns Ctrl-C and SIGTERM into `Interrupted`, raised where the run's state is whole.

    A second Ctrl-C interrupts at once.
    """

    def __init__(self, at_once: bool = False) -> None:
        """
        Args:
            at_once: raise it wherever the signal finds the process: for work that leaves nothing
                half done on the disk, and asks nobody whether to stop.
        """
        self.requested, self.at_once = False, at_once
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: object) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        first, self.requested = not self.requested, True
        if self.at_once and first:
            raise Interrupted

    def check(self) -> None:
        """Raise `Interrupted` if asked to stop."""
        if self.requested:
            raise Interrupted
