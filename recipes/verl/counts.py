"""Count verl's evaluation by question: `python recipes/verl/counts.py VAL/250.jsonl TEST OUT.csv`.

VAL is `trainer.validation_data_dir`, TEST the test.parquet that data.py wrote. From OUT.csv
`python -m lens_ref.evaluate --from OUT.csv` makes the table: unbiased pass@k with intervals, all
questions, levels 4-5 and each level.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

import pandas as pd

from lens_ref.evaluating.counts import Count, write
from lens_ref.rlvr.errors import UserError


def count(answers: Path, test: Path) -> list[Count]:
    """Answers and correct ones of every question, in the order of the test set.

    Args:
        answers: a JSON object a line, with verl's `uid` (the question's, `_session_output`),
            `input` (the prompt as text), `gts` (the gold) and `score`.
        test: the questions, of which each is found by its text within the prompt.

    Raises:
        UserError: a file that can't be read, a prompt that is no question of the test set.
    """
    problems, golds, found = _questions(test), defaultdict(list), {}
    for row, (problem, gold, _, _) in enumerate(problems):
        golds[gold].append((row, problem))
    scores: dict[str, list[float]] = defaultdict(list)
    try:
        lines = answers.read_text(encoding="utf-8").splitlines()
        for line in filter(None, lines):
            answer = json.loads(line)
            uid = answer["uid"].rsplit("_", 2)[0]
            scores[uid].append(float(answer["score"]))
            found.setdefault(uid, (answer["input"], str(answer["gts"])))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{answers} is no evaluation of verl's: {error!r}") from None
    counted: dict[int, Count] = {}
    for uid, (prompt, gold) in found.items():
        fits = [(len(problem), row) for row, problem in golds[gold] if problem in prompt]
        if not fits:
            raise UserError(f"{answers}: the question of uid {uid} is not in {test}")
        row = max(fits)[1]  # a problem may be part of a longer one
        _, _, level, name = problems[row]
        correct = sum(score == 1 for score in scores[uid])
        if row in counted:
            raise UserError(f"{answers}: two uids have the question {name}")
        counted[row] = Count(name, level, None, len(scores[uid]), correct, None)
    return [counted[row] for row in sorted(counted)]


def _questions(test: Path) -> list[tuple[str, str, int | None, str]]:
    """(problem, gold, level, id) of every row."""
    try:
        table = pd.read_parquet(test)
        rows = zip(
            table["prompt"],
            table["reward_model"],
            table["data_source"],
            table["extra_info"],
            strict=True,
        )
        return [
            (
                prompt[-1]["content"],
                str(reward["ground_truth"]),
                int(source.rpartition("/level")[2]) if "/level" in source else None,
                str(extra["index"]),
            )
            for prompt, reward, source, extra in rows
        ]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{test} is not a test set of data.py's: {error!r}") from None


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("answers", type=Path, help="<step>.jsonl of trainer.validation_data_dir")
    parser.add_argument("test", type=Path, help="test.parquet")
    parser.add_argument("out", type=Path, help="a CSV file")
    given = parser.parse_args(arguments)
    try:
        counts = count(given.answers, given.test)
        write(given.out, counts)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{given.out}: {len(counts)} questions, {sum(c.n for c in counts)} answers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
