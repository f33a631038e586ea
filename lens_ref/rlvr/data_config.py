"""The part of the configuration that says which questions a run trains on and is tested on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

STRICT = ConfigDict(extra="forbid")

Count = Annotated[int, Field(ge=1)]
Unsigned = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True, config=STRICT)
class ColumnsConfig:
    """Where a data set keeps what a question needs; a dot leads into a nested column."""

    # None: `problem` (of a hub data set also `question`); of a chat the user's message, where any
    # column is named here
    problem: str | None = None
    # None: `answer` (of a hub data set also what the worked `solution` ends in)
    answer: str | None = None
    id: str | None = None  # None: `id`, or the number of the row
    level: str | None = None  # None: `level`, if there is one
    prefix: str = ""  # instructions around the problem, which are taken off
    suffix: str = ""


@dataclass(frozen=True, config=STRICT)
class SourceConfig:
    """One source of questions. Its fields from `unique` on are applied in their order here."""

    source: str  # "tiny" (bundled) or another task, a .jsonl / .jsonl.gz file, or a hub id
    config: str | None = None  # a subset of a hub data set
    revision: str | None = None  # of a hub data set
    split: str = "train"  # of a hub data set, or of a task
    columns: ColumnsConfig = ColumnsConfig()
    unique: bool = False  # of the rows with the same columns.id keep the first
    expect: Count | None = None  # refuse any other number of rows
    # verifiable: no proofs, no missing or invalid answers (as NuminaMath-1.5 marks them);
    # not_in_test: no question that the run is tested on, whatever its spacing
    where: tuple[Literal["verifiable", "not_in_test"], ...] = ()
    sample: Count | None = None  # draw so many rows
    seed: Seed = 0  # of the draw

    def __post_init__(self) -> None:
        if self.unique and self.columns.id is None:
            raise ValueError("unique: say which column tells rows apart, with columns.id")


@dataclass(frozen=True, config=STRICT)
class DataConfig:
    """Questions with verifiable answers."""

    # "tiny" (bundled) or another task, a .jsonl / .jsonl.gz file, a hub id, or a list of sources
    train: str | tuple[SourceConfig, ...] = "tiny"
    test: str | SourceConfig | None = "tiny"  # the same, for evaluation; None: no evaluation
    train_questions: Count | None = 2000  # how many to use; None: all
    test_questions: Count | None = 250
    revision: str | None = None  # of a hub data set that train names by its id
    split: str = "train"  # of a hub data set that train names by its id
    # a test question that is also trained on: refuse, or report how many there are
    overlap: Literal["refuse", "report"] = "refuse"

    def __post_init__(self) -> None:
        if not isinstance(self.train, str):
            if not self.train:
                raise ValueError("train: name at least one source")
            if self.revision is not None:
                raise ValueError("revision: with a list in train, write it beside each source")
            if self.split != "train":
                raise ValueError("split: with a list in train, write it beside each source")
            if self.test is None and any("not_in_test" in s.where for s in self.train):
                raise ValueError("where: not_in_test needs a test set; name one in test")
        if isinstance(self.test, SourceConfig) and "not_in_test" in self.test.where:
            raise ValueError("where: not_in_test is for train: it would leave no test question")
