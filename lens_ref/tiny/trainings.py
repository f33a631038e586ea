"""Processes that train, and that end with the one that began them."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


class Trainings:
    """The processes that train."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a second signal may come while one is obeyed
        self._alive: set[subprocess.Popen[bytes]] = set()
        self._ending = False

    def call(self, train: list[str], **options: Any) -> int:
        """`subprocess.call`, unless all are to end."""
        with self._lock:
            if self._ending:
                return -signal.SIGTERM
            process = subprocess.Popen(train, **options)  # noqa: S603
            self._alive.add(process)
        status = process.wait()
        with self._lock:
            self._alive.remove(process)
        return status

    @contextmanager
    def end_with_this_one(self) -> Iterator[None]:
        """Pass SIGTERM on."""
        self._ending = False
        before = signal.signal(signal.SIGTERM, self._end)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)
            if self._ending:
                signal.raise_signal(signal.SIGTERM)  # now all has ended, and so does this

    def _end(self, *_: object) -> NoReturn:
        with self._lock:
            self._ending = True
            for process in self._alive:
                process.terminate()
        raise SystemExit


trainings = Trainings()
