"""`Verifier`: grade many responses in a few killable processes."""

from __future__ import annotations

import math
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Literal

from .boxes import extract_boxed
from .process import DiedError, OverdueError, WorkerProcess

Reason = Literal["correct", "wrong", "no_answer", "unparsable", "timeout", "error"]

# The longest gold of MATH has under 200 characters; what is far longer is no answer to grade.
MAX_ANSWER_CHARS = 2000
_PLAIN_NUMBER = re.compile(r"([+-]?)(\d{1,30}|\d{1,3}(?:,\d{3}){1,9})(?:\.(\d{1,30}))?")


@dataclass(frozen=True)
class Verdict:
    """The grade of one response.

    `reward` is 1.0 for a correct answer, else 0.0. `reason` is one of

    - "correct", "wrong";
    - "no_answer": no balanced box, or an empty one;
    - "unparsable": nothing readable in the box, something without a value (a power of a matrix that
      has none), or more than `MAX_ANSWER_CHARS` characters;
    - "timeout": no verdict before the deadline;
    - "error": the gold does not parse, or the grading process ran out of memory or died.

    `route` says where the verdict was reached: "box" (on the box alone), "number" (two plain
    numbers), "text" or "math" (in a worker), "" where none was.
    """

    reward: float
    reason: Reason
    route: str = field(default="", compare=False)


def _verdict(reason: Reason, route: str) -> Verdict:
    return Verdict(1.0 if reason == "correct" else 0.0, reason, route)


class Verifier:
    r"""Grades answers against golds; use it as a context manager.

    >>> with Verifier(workers=1) as verifier:
    ...     verdicts = verifier.grade([r"\frac12", "7", "7"], [r"\boxed{0.5}", r"\boxed{8}", "7"])
    >>> [(verdict.reward, verdict.reason) for verdict in verdicts]
    [(1.0, 'correct'), (0.0, 'wrong'), (0.0, 'no_answer')]

    Args:
        workers: number of grading processes.
        timeout: deadline for one answer, in seconds of wall-clock time; the process that misses it
            is killed and replaced, and the other answers are graded as if nothing had happened.
        memory_mb: address space of one process, where the system can bound it.
        recycle: a process is replaced after so many answers.
        cache_size: number of (gold, answer) verdicts remembered; timeouts and errors never are.
        shortcuts: False sends every boxed answer to a worker and there to sympy, equal strings and
            plain numbers too. For tests of the mathematics.

    `counts` holds the number of verdicts by reason since the start, `starts` the number of
    processes started. Safe to call from any thread; calls take turns.

    Raises:
        ValueError: a number above that is not positive, or not a number of its kind.
    """

    def __init__(
        self,
        workers: int = 2,
        timeout: float = 5.0,
        memory_mb: int = 1024,
        recycle: int = 5000,
        cache_size: int = 65536,
        shortcuts: bool = True,
    ) -> None:
        whole = {"workers": workers, "memory_mb": memory_mb, "recycle": recycle}
        for name, value in {**whole, "cache_size": cache_size}.items():
            _check_positive(name, value, int, "a whole number")
        _check_positive("timeout", timeout, (int, float), "a finite number of seconds")
        self.timeout = timeout
        self.shortcuts = shortcuts
        self.counts: Counter[str] = Counter()
        self._workers = [WorkerProcess(memory_mb, recycle) for _ in range(workers)]
        self._cache: OrderedDict[tuple[str, str], Verdict] = OrderedDict()
        self._cache_size = cache_size
        self._lock = threading.Lock()

    @property
    def starts(self) -> int:
        """Number of grading processes started so far, replacements included."""
        return sum(worker.starts for worker in self._workers)

    def grade(self, golds: Sequence[str], texts: Sequence[str]) -> list[Verdict]:
        """Grade the last balanced box of each response in `texts` against `golds`, in order.

        Raises:
            ValueError: the two lists differ in length, or one of them is a string.
            TypeError: an entry is not a string.
            RuntimeError: the grading processes cannot be started.
        """
        _check_strings("golds", golds)
        _check_strings("texts", texts)
        if len(golds) != len(texts):
            raise ValueError(f"got {len(golds)} golds for {len(texts)} texts; give one for each")
        with self._lock:
            answers = [extract_boxed(text) for text in texts]
            verdicts = [self._at_once(*pair) for pair in zip(golds, answers, strict=True)]
            pairs = list(zip(golds, answers, strict=True))
            # equal pairs of one call are graded once, a hostile answer given 16 times too
            asked = list(
                dict.fromkeys(p for p, v in zip(pairs, verdicts, strict=True) if v is None)
            )
            graded = dict(zip(asked, self._each(self._ask_grade, asked), strict=True))
            verdicts = [graded[p] if v is None else v for p, v in zip(pairs, verdicts, strict=True)]
            for pair, verdict in graded.items():
                self._remember(pair, verdict)
            self.counts.update(verdict.reason for verdict in verdicts)
            return verdicts

    def check_golds(self, golds: Sequence[str]) -> list[bool]:
        """Whether answers can be graded against each gold; data that fails this must be dropped.

        A gold that does not parse makes every answer wrong, a hopeless question for ever.
        """
        _check_strings("golds", golds)
        with self._lock:
            unique = list(dict.fromkeys(golds))
            parses = dict(zip(unique, self._each(self._ask_gold, unique), strict=True))
        return [parses[gold] for gold in golds]

    def _at_once(self, gold: str, answer: str | None) -> Verdict | None:
        """The verdict where no worker is needed, else None."""
        if not answer:
            return _verdict("no_answer", "box")
        if len(answer) > MAX_ANSWER_CHARS:
            return _verdict("unparsable", "box")
        if len(gold) > MAX_ANSWER_CHARS:
            return _verdict("error", "box")
        if self.shortcuts:
            numbers = _plain_number(gold), _plain_number(answer)
            if None not in numbers:
                return _verdict("correct" if numbers[0] == numbers[1] else "wrong", "number")
        remembered = self._cache.get((gold, answer))
        if remembered is not None:
            self._cache.move_to_end((gold, answer))
        return remembered

    def _remember(self, pair: tuple[str, str], verdict: Verdict) -> None:
        if verdict.reason in ("timeout", "error"):
            return
        self._cache[pair] = verdict
        while len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)

    def _ask_grade(self, worker: WorkerProcess, pair: tuple[str, str]) -> Verdict:
        gold, answer = pair
        request = {"task": "grade", "gold": gold, "answer": answer, "shortcuts": self.shortcuts}
        try:
            reply = worker.ask(request, self.timeout)
        except OverdueError:
            return _verdict("timeout", "")
        except DiedError:
            return _verdict("error", "")
        return _verdict(reply["reason"], reply["route"])

    def _ask_gold(self, worker: WorkerProcess, gold: str) -> bool:
        if not gold.strip() or len(gold) > MAX_ANSWER_CHARS:
            return False
        if self.shortcuts and _plain_number(gold) is not None:
            return True
        try:
            return bool(worker.ask({"task": "gold", "gold": gold}, self.timeout)["parses"])
        except (OverdueError, DiedError):
            return False

    def _each(self, ask: Callable, jobs: list) -> list:
        """`ask(worker, job)` for all jobs, spread over the workers; results in the jobs' order."""
        results: list = [None] * len(jobs)
        queue: SimpleQueue = SimpleQueue()
        for job in enumerate(jobs):
            queue.put(job)
        failures: list[BaseException] = []

        def drain(worker: WorkerProcess) -> None:
            try:
                while not failures:
                    k, job = queue.get_nowait()
                    results[k] = ask(worker, job)
            except Empty:
                return
            except Exception as failure:  # handed to the caller's thread below
                failures.append(failure)

        threads = [
            threading.Thread(target=drain, args=(worker,), name="verifier", daemon=True)
            for worker in self._workers[: len(jobs)]
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException as interruption:  # Ctrl-C: leave no thread behind that uses a worker
            failures.append(interruption)
            for worker in self._workers:
                worker.kill()
            for thread in threads:
                thread.join()
            raise
        if failures:
            raise failures[0]
        return results

    def close(self) -> None:
        """End the worker processes. A later `grade` starts new ones."""
        with self._lock:
            for worker in self._workers:
                worker.stop()

    def __enter__(self) -> Verifier:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _plain_number(text: str) -> Fraction | None:
    """Exact value of ``-12``, ``1,234`` or ``3.50``; None for anything else."""
    match = _PLAIN_NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    sign, whole, part = match[1], match[2].replace(",", ""), match[3] or ""
    value = Fraction(int(whole + part), 10 ** len(part))
    return -value if sign == "-" else value


def _check_positive(name: str, value: object, kind: type | tuple[type, ...], words: str) -> None:
    if not isinstance(value, kind) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{name} must be {words}, got {value!r}")
    if not value > 0:
        raise ValueError(f"{name} must be positive, got {value}")


def _check_strings(name: str, values: Sequence[str]) -> None:
    if isinstance(values, str) or not isinstance(values, Sequence):
        kind = type(values).__name__
        raise ValueError(f"{name} must be a list of strings, one a response; got one {kind}")
    for k, value in enumerate(values):
        if not isinstance(value, str):
            raise TypeError(f"{name}[{k}] must be a string, got {type(value).__name__}")
