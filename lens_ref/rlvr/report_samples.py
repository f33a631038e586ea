"""Sampled answers of every method to the same questions, with what each was worth to it."""

from __future__ import annotations

from html import escape
from typing import Any

from lens_ref.rlvr.report_data import Run, display

QUESTIONS, ANSWERS = 3, 3  # shown at most: questions, and answers of each run to each
KIND_ORDER = ("negative", "mixed", "correct")

Samples = dict[tuple[int, str], list[dict[str, Any]]]
"""Answers of a run by (step, question)."""


def samples(runs: list[Run]) -> str:
    """HTML: answers to questions of the last rollout batch that the runs of a seed share.

    Questions with a negative group come first. If the last batch logged none, one from the newest
    batch that has one is added.
    """
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


def _by_question(run: Run) -> Samples:
    found: Samples = {}
    for row in run.samples:
        found.setdefault((row["step"], str(row["question"])), []).append(row)
    return found


def _question(key: tuple[int, str], runs: list[Run], answers: list[list[dict[str, Any]]]) -> str:
    first = answers[0][0]
    level = "" if first["level"] is None else f", level {first['level']}"
    columns = "".join(
        f"<div><h4>{escape(display(run.label))}: {escape(rows[0]['group'])} group</h4>"
        + "".join(_answer(row) for row in rows[:ANSWERS])
        + "</div>"
        for run, rows in zip(runs, answers, strict=True)
    )
    return (
        f"<h3>Question {escape(key[1])}{escape(level)}, sampled after {key[0]} updates "
        f"(seed {runs[0].seed})</h3><pre>{escape(str(first['problem']))}</pre>"
        f"<p class=note>expected: {escape(str(first['answer']))}</p>"
        f"<div class=side>{columns}</div>"
    )


def _answer(row: dict[str, Any]) -> str:
    right = row["reward"] == 1
    verdict = row["reason"] + (", truncated" if row["truncated"] else "")
    advantage = f"{row['advantage']:+.2g}".replace("-", "−") if row["advantage"] else "0"
    return (
        f'<div class="answer{" right" if right else ""}"><pre>{escape(str(row["response"]))}</pre>'
        f"<p class=note>{'✓' if right else '✗'} {escape(verdict)} · reward {row['reward']:g} · "
        f"confidence {row['confidence']:.3f} · advantage {advantage} · {row['length']} tokens</p>"
        "</div>"
    )
