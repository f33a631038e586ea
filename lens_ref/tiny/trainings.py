"""Processes that train, and that end with the one that began them."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Trainings:
    """The processes that train."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a second signal may come while one is obeyed
        self._alive: set[subprocess.Popen[bytes]] = set()
        self.ending = 0
        """The signal at which all end; 0 for none yet."""

    def call(self, train: list[str], **options: Any) -> int:
        """`subprocess.call`, unless all are to end."""
        with self._lock:
            if self.ending:
                return -signal.SIGTERM
            process = subprocess.Popen(train, **options)  # noqa: S603
            self._alive.add(process)
        status = process.wait()
        with self._lock:
            self._alive.remove(process)
        return status

    @contextmanager
    def end_with_this_one(self) -> Iterator[None]:
        """Pass Ctrl-C and SIGTERM on; when all has ended, so does this."""
        self.ending = 0
        before = {
            number: signal.signal(number, self._end) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if self.ending == signal.SIGTERM:
                signal.raise_signal(signal.SIGTERM)

    def _end(self, number: int, _: object) -> None:
        """SIGTERM to all: from a terminal Ctrl-C has reached them already, and a second one would
        interrupt what they save."""
        with self._lock:
            first, self.ending = not self.ending, self.ending or number
            for process in self._alive:
                process.terminate()
        if first:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit


trainings = Trainings()
