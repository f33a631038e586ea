"""The paper's tables (arXiv:2510.08696) as data, and which training run belongs in which row.

A run is known by what its config and manifest say it did, never by the name of its folder.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from lens_ref.core import LensConfig
from lens_ref.rlvr import evaluation
from lens_ref.rlvr.config import parse_method
from lens_ref.rlvr.report_data import Run

PUBLISHED = Path(__file__).with_name("published.csv")
PASS = tuple(f"pass@{k}" for k in evaluation.KS)
LLAMA, QWEN = "Llama-3.1-8B-Instruct", "Qwen-2.5-3B-Base"
STEPS = 1000
"""The paper trains for more updates than these; of which its tables are, it does not say."""

Role = Literal["grpo", "lens", "mixed", "negative"]


@dataclass(frozen=True)
class Row:
    """A row of a table: which run it is of."""

    label: str  # as in published.csv
    model: str
    role: Role


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, all its rows trained on the same data and tested on MATH."""

    name: str
    caption: str
    data: frozenset[str]
    rows: tuple[Row, ...]
    runs: int  # that each published number is a mean of

    @property
    def models(self) -> list[str]:
        """In their order in the table."""
        return list(dict.fromkeys(row.model for row in self.rows))


def _rows(*models: str) -> tuple[Row, ...]:
    return tuple(
        row
        for model in models
        for row in (
            Row(f"{model}: GRPO baseline", model, "grpo"),
            Row(f"{model}: LENS (Ours)", model, "lens"),
        )
    )


DAPO, NUMINA = frozenset({"MATH", "DAPO"}), frozenset({"MATH", "Numina"})
TABLES = (
    PaperTable(
        "Table 1", "pass@k on MATH in %, trained on MATH + DAPO", DAPO, _rows(LLAMA, QWEN), 2
    ),
    PaperTable(
        "Table 2",
        "ablation: pass@k on MATH in %, trained on MATH + Numina 1.5",
        NUMINA,
        (
            Row(f"{LLAMA}: GRPO baseline", LLAMA, "grpo"),
            Row(f"{LLAMA}: LENS with only mixed groups", LLAMA, "mixed"),
            Row(f"{LLAMA}: LENS with only negative groups", LLAMA, "negative"),
            Row(f"{LLAMA}: LENS (Ours)", LLAMA, "lens"),
        ),
        1,
    ),
    PaperTable(
        "Table 3",
        "pass@k on MATH in %, trained on MATH + Numina 1.5",
        NUMINA,
        _rows(LLAMA, QWEN),
        1,
    ),
)
NEGATIVE_GROUPS = Row(f"{LLAMA}: GRPO baseline", LLAMA, "grpo")
"""The run of the figure of the negative-group ratio, trained on MATH + Numina 1.5."""


@cache
def published() -> dict[tuple[str, str, str], str]:
    """(table, row, column) → the value, digit by digit as the paper prints it."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        return {(r["table"], r["row"], r["column"]): r["value"] for r in csv.DictReader(file)}


# --- what a run did


_MODELS = {
    LLAMA: {"llama-3.1-8b-instruct", "meta-llama-3.1-8b-instruct"},
    QWEN: {"qwen2.5-3b"},
}
_SOURCES = {
    "MATH": r"math(-lighteval)?([-_](train|test))?",
    "DAPO": r"dapo[-_]math[-_]17k",
    "Numina": r"numinamath[-_]1\.5",
    "GSM8K": r"gsm8k([-_](train|test))?",
    "the bundled task": "tiny",
}
_LENS: dict[LensConfig, Role] = {
    LensConfig(): "lens",
    LensConfig(groups="mixed"): "mixed",
    LensConfig(groups="negative"): "negative",
}


def role(method: str) -> Role | None:
    """What a method is in the paper's tables, None if they do not have it.

    "lens:preset=paper" and "lens" are the same; any other reading of LENS is not the printed one.
    """
    try:
        name, given = parse_method(method)
        if name == "lens":
            return _LENS.get(LensConfig.preset(given.pop("preset", "paper"), **given))
    except ValueError:  # a method of another version
        return None
    return "grpo" if name == "grpo" and not given else None


def short(source: str) -> str:
    """ "openai/gsm8k" or "data/gsm8k_train.jsonl.gz" → "GSM8K"; unknown data keeps its name."""
    name = re.sub(r"\.jsonl(\.gz)?$", "", source.rstrip("/").rsplit("/", 1)[-1])
    return next(
        (known for known, form in _SOURCES.items() if re.fullmatch(form, name.lower())), name
    )


def trained_on(run: Run) -> tuple[str, ...]:
    """The names of the data that a run trained on."""
    return tuple(short(source) for source in _data(run, "train").get("source", "").split(" + "))


def model_name(run: Run) -> str:
    """The model as the paper calls it, another one by its own name."""
    name = str(setting(run, "model.path")).rstrip("/").rsplit("/", 1)[-1]
    return next((paper for paper, names in _MODELS.items() if name.lower() in names), name)


def setting(run: Run, key: str) -> Any:
    """A field of the config by its dotted name, None where it is not there."""
    value: Any = run.config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def questions_per_update(run: Run) -> float | None:
    """Questions of one gradient update."""
    questions, updates = setting(run, "rollout.questions"), setting(run, "loss.updates_per_rollout")
    return questions / updates if questions and updates else None


def _data(run: Run, which: str) -> dict[str, Any]:
    found = run.manifest.get("data", {}).get(which)
    return found if isinstance(found, dict) else {}


def belongs(run: Run, table: PaperTable, row: Row) -> bool:
    """Whether model, data and method are those of a row: the run is of that row, if perhaps not
    at the paper's protocol."""
    return (
        model_name(run) == row.model
        and frozenset(trained_on(run)) == table.data
        and role(setting(run, "methods")[0]) == row.role
    )


# --- the protocol


def _is(key: str, wanted: Any) -> Callable[[Run], str | None]:
    def check(run: Run) -> str | None:
        found = setting(run, key)
        return None if found == wanted else f"{key} = {found} instead of {wanted}"

    return check


def _long_enough(run: Run) -> str | None:
    return None if run.step >= STEPS else f"{run.step} updates instead of {STEPS:,} or more"


def _batch(run: Run) -> str | None:
    found = questions_per_update(run)
    return None if found == 32 else f"{found or 0:g} questions an update instead of 32"


def _questions(run: Run) -> str | None:
    if "DAPO" not in trained_on(run):
        return None  # the paper does not say how many questions of Numina
    data = _data(run, "train")
    found = data.get("questions", 0) + data.get("dropped_unparsable", 0)
    return None if found == 25_000 else f"{found:,} training questions instead of 25,000"


def _tested(run: Run) -> str | None:
    data = _data(run, "test")
    if short(data.get("source", "")) != "MATH":
        return "not tested on MATH"
    found = data.get("questions", 0) + data.get("dropped_unparsable", 0)
    if found != 5000:
        return f"tested on {found:,} questions of MATH instead of 5,000"
    n = setting(run, "eval.n")
    return None if n == 16 else f"{n} answers a test question instead of 16"


def _evaluated(run: Run) -> str | None:
    at_end = (run.evals["step"] == run.step) & (run.evals["level"] == "all")
    return None if at_end.any() else "not evaluated after the last update"


PROTOCOL: tuple[Callable[[Run], str | None], ...] = (
    _long_enough,
    _is("rollout.responses", 16),
    _batch,
    _is("loss.updates_per_rollout", 4),
    _is("rollout.temperature", 1.0),
    _is("rollout.max_new_tokens", 4096),
    _is("loss.clip_low", 0.2),
    _is("loss.clip_high", 0.2),
    _questions,
    _tested,
    _evaluated,
)
"""What the paper states about all its runs; each check says what a run did instead."""

_RATES = {LLAMA: 3e-7, QWEN: 1e-6}


def deviations(run: Run) -> list[str]:
    """What keeps a run that belongs to a row from standing in it; [] if nothing."""
    return [said for check in PROTOCOL if (said := check(run)) is not None]


def remarks(runs: Iterable[Run]) -> list[str]:
    """What a run that stands in a row still did in another way than the paper's: the adapter."""
    found = []
    for run in runs:
        adapter, rate = setting(run, "model.lora"), setting(run, "optimizer.lr")
        bits = ", 4-bit weights" if setting(run, "model.quantization") else ""
        if adapter:
            found.append(f"LoRA of rank {adapter['r']}{bits} (the paper trained all weights)")
        if rate != (paper := _RATES[model_name(run)]):
            found.append(f"learning rate {rate:g} (the paper: {paper:g})")
    return list(dict.fromkeys(found))
