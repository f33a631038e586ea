"""Write a set of questions as verl reads it: `python recipes/verl/data.py FOLDER [SET]`.

SET is a data recipe of this project, default paper/math-dapo; `--data` and `--test` take files of
one's own instead, as the train command does. FOLDER gets train.parquet and test.parquet.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from lens_ref.rlvr.config import load
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.session import load_data
from lens_ref.rlvr.tasks import Question, Questions
from lens_ref.verifier import Verifier


def row(question: Question, system: str, split: str) -> dict:
    """One question in the columns of verl's `RLHFDataset`; verl reports its test by data source."""
    level = "" if question.level is None or split == "train" else f"/level{question.level}"
    return {
        "data_source": f"lens_ref{level}",
        "prompt": [
            {"role": "system", "content": system},
            {"role": "user", "content": question.problem},
        ],
        "reward_model": {"style": "rule", "ground_truth": question.answer},
        "extra_info": {"split": split, "index": question.id},
    }


def write(questions: Questions, file: Path, system: str, split: str) -> None:
    """A parquet file of all questions, in their order."""
    table = pd.DataFrame([row(question, system, split) for question in questions.items])
    table.to_parquet(file, index=False)
    print(f"{file}: {len(table)} questions of {questions.source}")


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the parquet files go")
    parser.add_argument("set", nargs="?", default="paper/math-dapo", help="a data recipe")
    parser.add_argument("--data", help="training questions of one's own, .jsonl")
    parser.add_argument("--test", help="test questions of one's own, .jsonl")
    given = parser.parse_args(arguments)
    own = {"data.train": given.data, "data.test": given.test}
    overrides = {key: value for key, value in own.items() if value is not None}
    try:
        config = load(["paper/common", given.set], overrides)
        with Verifier(workers=2) as verifier:
            data = load_data(config, verifier)
        if data.test is None:
            raise UserError(f"{given.set} has no test questions: give some with --test")
        given.folder.mkdir(parents=True, exist_ok=True)
        write(data.train, given.folder / "train.parquet", config.prompt.system, "train")
        write(data.test, given.folder / "test.parquet", config.prompt.system, "test")
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
