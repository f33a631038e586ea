"""A worker process as its owner sees it: ask, and get an answer before the deadline or none."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from . import worker

START_SECONDS = 120.0
_WORKER = Path(worker.__file__).resolve()
# What python needs to find its packages; tokens and keys of the trainer's environment stay behind.
_KEPT_VARIABLES = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "SYSTEMROOT", "LANG")


class OverdueError(Exception):
    """The worker did not answer in time and was killed."""


class DiedError(Exception):
    """The worker ended by itself in the middle of an answer."""


class WorkerProcess:
    """One grading process, started when first needed and again after every death.

    The deadline is a timer thread that kills the process: that works from any thread, unlike
    signals, and stops code that holds the interpreter, such as one huge power of integers.
    """

    def __init__(self, memory_mb: int, recycle: int) -> None:
        self.memory_mb = memory_mb
        self.recycle = recycle
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._answered = 0

    def ask(self, request: dict, timeout: float) -> dict:
        """Send `request` and return the reply.

        Raises:
            OverdueError: no reply within `timeout` seconds (the start of a process not counted).
            DiedError: the process ended.
            RuntimeError: no process could be started.
        """
        if self._answered >= self.recycle:
            self.stop()
        self._ensure_running()
        reply = self._exchange({**request, "timeout": timeout}, timeout)
        self._answered += 1
        if reply.get("retire"):
            self.stop()
        return reply

    def _ensure_running(self) -> None:
        """Start the process if there is none or it died idle, and wait until it can grade."""
        if self._process is not None and self._process.poll() is None:
            return
        self.stop()
        self._process = subprocess.Popen(  # noqa: S603 - our own file, no text from outside
            # -P: the worker's folder must not shadow other modules; -B: it writes no files
            [sys.executable, "-P", "-B", str(_WORKER), str(self.memory_mb)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={k: os.environ[k] for k in _KEPT_VARIABLES if k in os.environ},
            start_new_session=True,  # Ctrl-C is for the trainer alone
        )
        self.starts += 1
        self._answered = 0
        try:
            greeting = self._exchange(None, START_SECONDS)
        except (OverdueError, DiedError) as problem:
            raise RuntimeError(
                f"the grading process ({sys.executable} {_WORKER}) did not start: "
                f"{type(problem).__name__.lower()}; run that command to see why"
            ) from problem
        if "failed" in greeting:
            self.stop()
            raise RuntimeError(
                f"the grading process cannot import what it needs ({greeting['failed']}); "
                "install it with: pip install 'lens-ref[train]'"
            )

    def _exchange(self, request: dict | None, timeout: float) -> dict:
        process = self._process
        late = threading.Event()

        def kill() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(timeout, kill)
        timer.daemon = True
        timer.start()
        try:
            if request is not None:
                worker.write_message(process.stdin, request)
            reply = worker.read_message(process.stdout)
        except OSError:  # the pipe broke: the process is gone
            reply = None
        finally:
            timer.cancel()
        if reply is None:
            self.stop()
            raise OverdueError if late.is_set() else DiedError
        return reply

    def kill(self) -> None:
        """Make a pending `ask` of another thread fail at once."""
        if (process := self._process) is not None:
            process.kill()

    def stop(self) -> None:
        """End the process, if any, and reap it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for stream in (process.stdin, process.stdout):
            try:
                stream.close()
            except OSError:  # unsent bytes for a dead process
                continue
        process.wait()
