"""The logs of a run: rows by step, appended while it goes on, cut back when it is resumed."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from lens_ref.rlvr import evaluation, metrics
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.files import csv_text, damaged, read_csv, read_jsonl
from lens_ref.rlvr.run_folder import write_atomic, writing
from lens_ref.rlvr.tasks import Questions
from lens_ref.rlvr.untrusted import to_cell

GROUP_COLUMNS = ["step", "question", "level", "responses", "correct", "kind", "confidence"]
SAMPLED_QUESTIONS, SAMPLED_RESPONSES = 4, 4  # shown in samples.jsonl, a rollout batch


class Row(NamedTuple):
    """A row of a log as it lies in the file."""

    step: int
    value: Any  # the cells of a table, or an object


class Log(ABC):
    """A file of rows by step; the rows of a step are written in one go.

    `rows` counts them by step, as far as they were written here or kept.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: Counter[int] = Counter()
        checkpoints = path.parent / "checkpoints"
        self.mend = (
            f"put a whole copy of it back, or move {checkpoints} away: "
            f"--resume {path.parent} then begins this run anew"
        )

    @abstractmethod
    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows. Raises UserError where the disk does not take them."""

    @abstractmethod
    def read(self) -> list[Row]:
        """All whole rows: a kill can leave half a last one. Raises UserError on any other damage,
        rows that are not in the order of their steps included."""

    @abstractmethod
    def _text(self, values: Iterable[Any]) -> str:
        """The file that holds these values of rows."""

    def keep(self, rows: Iterable[Row]) -> None:
        """Replace the file, if there is one, by these of its rows."""
        kept = list(rows)
        if self.path.exists():
            with writing(self.path):
                write_atomic(self.path, self._text(row.value for row in kept))
        self.rows = Counter(row.step for row in kept)

    def cut(self, step: int) -> None:
        """Drop what was written after `step`, and half a last row."""
        self.keep(row for row in self.read() if row.step <= step)

    def until(self, step: int) -> int:
        """How many rows there are up to a step."""
        return sum(number for at, number in self.rows.items() if at <= step)

    def _in_order(self, rows: list[Row]) -> list[Row]:
        if any(b.step < a.step for a, b in pairwise(rows)):
            raise damaged(self.path, "its rows are not in the order of their steps", self.mend)
        return rows


class Table(Log):
    """A CSV whose first column is `step`."""

    def __init__(self, path: Path, columns: Iterable[str]) -> None:
        super().__init__(path)
        self.columns = list(columns)

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows (and the header to a new file)."""
        rows = list(rows)
        cells = [[_format(row.get(column)) for column in self.columns] for row in rows]
        if not self.path.exists():
            cells.insert(0, self.columns)
        with writing(self.path), self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(csv_text(cells))
        self.rows.update(int(row["step"]) for row in rows)

    def read(self) -> list[Row]:
        header, rows = read_csv(self.path, self.mend)
        if header and header != self.columns:
            pairs = zip([*header, None], [*self.columns, None], strict=False)
            found, wanted = next((a, b) for a, b in pairs if a != b)
            why = f"its columns are not this version's ({found!r} instead of {wanted!r})"
            raise damaged(self.path, why, self.mend)
        return self._in_order([Row(self._step(line, row), row) for line, row in rows])

    def _step(self, line: int, row: list[str]) -> int:
        text = row[0]
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise damaged(self.path, f"line {line}: {text[:40]!r} is no step", self.mend)
        return int(text)

    def _text(self, values: Iterable[list[str]]) -> str:
        return csv_text([self.columns, *values])


class JsonLines(Log):
    """A file with one JSON object a line, which has a `step`."""

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        rows = list(rows)
        with writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(self._text(rows))
        self.rows.update(row["step"] for row in rows)

    def read(self) -> list[Row]:
        rows = []
        for line, value in read_jsonl(self.path, self.mend):
            if type(value.get("step")) is not int:
                raise damaged(self.path, f"line {line} has no step", self.mend)
            rows.append(Row(value["step"], value))
        return self._in_order(rows)

    def _text(self, values: Iterable[Mapping[str, Any]]) -> str:
        return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


class Logs:
    """All logs of a run.

    The rows of a rollout batch (`groups`, `samples`) carry the step before its first update, those
    of an evaluation the step that it was made at.
    """

    def __init__(self, folder: Path, test: Questions | None) -> None:
        """
        Args:
            test: what the run is evaluated on.
        """
        self.metrics = Table(folder / "metrics.csv", metrics.METRICS)
        self.groups = Table(folder / "groups.csv", GROUP_COLUMNS)
        self.samples = JsonLines(folder / "samples.jsonl")
        self.evals = Table(folder / "eval.csv", evaluation.COLUMNS)
        self.eval_counts = Table(folder / "eval_counts.csv", evaluation.COUNT_COLUMNS)
        self.all: tuple[Log, ...] = (
            self.metrics, self.groups, self.samples, self.evals, self.eval_counts,
        )  # fmt: skip
        items = () if test is None else test.items
        self._evaluation = {
            self.evals: len(evaluation.level_groups(items)),
            self.eval_counts: len(items),
        }

    def append_batch(self, batch: Batch, step: int) -> None:
        """The groups of a rollout batch, and some of its answers."""
        self.groups.append(metrics.group_rows(batch, step))
        self.samples.append(metrics.sample_rows(batch, step, SAMPLED_QUESTIONS, SAMPLED_RESPONSES))

    def evaluated(self, step: int) -> bool:
        """Whether the evaluation at a step is there as a whole: a kill can leave a part of it."""
        return all(log.rows[step] == number for log, number in self._evaluation.items())

    def counts(self, step: int, sampled: int) -> dict[str, int]:
        """How many rows of each log a run counts on that goes on at `step`; an evaluation at this
        step, which can be made again, is not among them.

        Args:
            sampled: the last step at which a batch may have been sampled for this.
        """
        return {log.path.name: log.until(self._last(log, step, sampled)) for log in self.all}

    def begin(self) -> None:
        """Remove what a run that has nothing to go on from has left."""
        for log in self.all:
            with writing(log.path):
                log.path.unlink(missing_ok=True)

    def go_on(self, step: int, sampled: int, counts: Mapping[str, int], evaluated: bool) -> None:
        """Cut everything back to `step`. What was written after it belongs to updates that will be
        done again; so will be an evaluation at `step` that is not whole, or not `evaluated` when
        these rows were counted.

        Args:
            counts: of `Logs.counts`, when step was reached.

        Raises:
            UserError: a log that is damaged, or lacks rows, or has more; none is changed then.
        """
        found = {log: log.read() for log in self.all}
        for log, rows in found.items():
            self._check(log, rows, self._last(log, step, sampled), counts.get(log.path.name, 0))
        for log, rows in found.items():
            last = self._last(log, step, sampled)
            again = log in self._evaluation and evaluated
            log.keep(row for row in rows if row.step <= (step if again else last))
        if not self.evaluated(step):
            for log in self._evaluation:
                log.keep(row for row in found[log] if row.step < step)

    def _last(self, log: Log, step: int, sampled: int) -> int:
        if log in self._evaluation:
            return step - 1
        return step if log is self.metrics else sampled

    def _check(self, log: Log, rows: list[Row], last: int, expected: int) -> None:
        steps = Counter(row.step for row in rows if row.step <= last)
        if expected and not log.path.exists():
            why = "there is no such file"
        elif log is self.metrics and (odd := [n for n in range(1, last + 1) if steps[n] != 1]):
            why = (
                f"it has {steps[odd[0]] or 'no'} row{'s' * (steps[odd[0]] > 1)} of update {odd[0]}"
            )
        elif steps.total() != expected:
            why = f"it has {steps.total()} rows up to step {last} instead of {expected}"
        else:
            return
        raise damaged(log.path, why, log.mend)


def _format(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(to_cell(value))
