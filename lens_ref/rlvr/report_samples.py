"""Sampled answers of every method to the same questions, with what each was worth to it."""

from __future__ import annotations

from types import NoneType
from typing import Any

from lens_ref.rlvr.files import COPY_AGAIN, damaged
from lens_ref.rlvr.ranges import RANGES
from lens_ref.rlvr.report_data import Run, display
from lens_ref.rlvr.untrusted import as_html

QUESTIONS, ANSWERS = 3, 3  # shown at most: questions, and answers of each run to each
KIND_ORDER = ("negative", "mixed", "correct")

FIELDS = {
    "step": int, "question": str, "level": (int, NoneType), "problem": str, "answer": str,
    "group": str, "response": str, "reward": (int, float), "reason": str, "truncated": bool,
    "length": int, "confidence": (int, float), "advantage": (int, float),
}  # fmt: skip
"""What a line of samples.jsonl holds."""
Samples = dict[tuple[int, str], list[dict[str, Any]]]
"""Answers of a run by (step, question)."""


def samples(runs: list[Run]) -> str:
    """HTML: answers to questions of the last rollout batch that the runs of a seed share.

    Questions with a negative group come first. If the last batch logged none, one from the newest
    batch that has one is added.

    Raises:
        UserError: a line of samples.jsonl that is no sampled answer.
    """
    for run in runs:
        for number, row in enumerate(run.samples, start=1):
            if not _is_sample(row):
                why = f"line {number} is no sampled answer"
                raise damaged(run.path / "samples.jsonl", why, COPY_AGAIN)
            for name in sorted(FIELDS.keys() & RANGES.keys()):
                if row[name] not in RANGES[name]:
                    why = f"line {number}: {name} is {str(row[name])[:40]}, not {RANGES[name]}"
                    raise damaged(run.path / "samples.jsonl", why, COPY_AGAIN)
    runs = [run for run in runs if run.samples]
    if not runs:
        return "<p>No sampled answers were logged.</p>"
    parts = []
    for seed in dict.fromkeys(run.seed for run in runs):
        mates = [run for run in runs if run.seed == seed]
        parts += _shared(mates) or ["".join(_shared([run])) for run in mates]
    return "".join(parts)


def _shared(runs: list[Run]) -> list[str]:
    by_run = [_by_question(run) for run in runs]
    common = [key for key in by_run[0] if all(key in other for other in by_run)]
    if not common:
        return []
    newest = max(step for step, _ in common)

    def kind(key: tuple[int, str]) -> int:
        return min(KIND_ORDER.index(answers[key][0]["group"]) for answers in by_run)

    chosen = sorted((key for key in common if key[0] == newest), key=kind)[:QUESTIONS]
    negative = [key for key in common if kind(key) == 0]
    if negative and kind(chosen[0]) > 0:
        chosen = [max(negative), *chosen[: QUESTIONS - 1]]
    return [_question(key, runs, [answers[key] for answers in by_run]) for key in chosen]


def _is_sample(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and all(isinstance(row.get(name), kind) for name, kind in FIELDS.items())
        and row["group"] in KIND_ORDER
    )


def _by_question(run: Run) -> Samples:
    found: Samples = {}
    for row in run.samples:
        found.setdefault((row["step"], str(row["question"])), []).append(row)
    return found


def _question(key: tuple[int, str], runs: list[Run], answers: list[list[dict[str, Any]]]) -> str:
    first = answers[0][0]
    level = "" if first["level"] is None else f", level {first['level']}"
    columns = "".join(
        f"<div><h4>{as_html(display(run.label))}: {as_html(rows[0]['group'])} group</h4>"
        + "".join(_answer(row) for row in rows[:ANSWERS])
        + "</div>"
        for run, rows in zip(runs, answers, strict=True)
    )
    return (
        f"<h3>Question {as_html(key[1])}{as_html(level)}, sampled after {as_html(key[0])} updates "
        f"(seed {runs[0].seed})</h3><pre>{as_html(first['problem'])}</pre>"
        f"<p class=note>expected: {as_html(first['answer'])}</p>"
        f"<div class=side>{columns}</div>"
    )


def _answer(row: dict[str, Any]) -> str:
    right = row["reward"] == 1
    verdict = row["reason"] + (", truncated" if row["truncated"] else "")
    advantage = f"{row['advantage']:+.2g}".replace("-", "−") if row["advantage"] else "0"
    facts = (
        f"{'✓' if right else '✗'} {verdict} · reward {row['reward']:g} · "
        f"confidence {row['confidence']:.3f} · advantage {advantage} · {row['length']} tokens"
    )
    return (
        f'<div class="answer{" right" if right else ""}"><pre>{as_html(row["response"])}</pre>'
        f"<p class=note>{as_html(facts)}</p></div>"
    )
