"""How each command of the pages is tried. A command that is in none of these tables runs as it
stands, in an empty folder that holds what `places` puts there; one that can't run fails."""

from __future__ import annotations

from dataclasses import dataclass

TRAIN, EVALUATE = "lens_ref.train", "lens_ref.evaluate"
DOCS, PAGE = "tests/test_docs.py", "tests/engines/test_page.py"
OWN = "tests/test_contributing.py"

TINY = (
    *("steps=2", "data.train_questions=24", "data.test_questions=4", "eval.every=2", "eval.n=2"),
    *("rollout.questions=8", "rollout.responses=4", "rollout.max_new_tokens=16"),
    *("loss.updates_per_rollout=2", "checkpoint.every=2"),
)
LARGE = (
    *("steps=1", "rollout.questions=4", "rollout.responses=2", "rollout.max_new_tokens=4"),
    *("rollout.batch_rows=4", "loss.micro_batch_tokens=256", "eval.every=1", "eval.n=1"),
)
OWN_DATA = ("--data", "FILE.jsonl", "--test", "TEST.jsonl")


@dataclass(frozen=True)
class Shortened:
    """Options that are added to a command; `--set` joins what the page sets."""

    program: str  # a module or a script
    having: str  # an argument of the page that it must have; "" for any
    options: tuple[str, ...]
    settings: tuple[str, ...]  # KEY=VALUE
    why: str


# The first that fits counts.
SHORTENED = (
    Shortened(TRAIN, "--resume", (), (), "takes no other option; the run that it resumes is short"),
    Shortened(TRAIN, "--model", ("--test", "TEST.jsonl"), LARGE, "a step, not a thousand"),
    *(
        Shortened(TRAIN, recipe, OWN_DATA, LARGE, "no hub, and a step, not hundreds")
        for recipe in ("--lora", "--qlora", "--config")
    ),
    Shortened(TRAIN, "", (), TINY, "two updates of the bundled policy, not sixty"),
    Shortened(EVALUATE, "--from", (), (), "samples nothing"),
    Shortened(EVALUATE, "overlap", (), (), "samples nothing"),
    Shortened(
        EVALUATE,
        "",
        ("--questions", "4", "--n", "2"),
        ("rollout.max_new_tokens=8",),
        "four questions, not thousands",
    ),
    Shortened("lens_ref.tiny.study", "", ("--seeds", "2"), (), "two seeds, not twenty"),
    Shortened("lens_ref.tiny.pretrain", "", ("--steps", "2"), (), "two steps, not thousands"),
    Shortened("recipes/verl/data.py", "--data", (), (), "runs as it stands"),
    Shortened("recipes/verl/data.py", "", OWN_DATA, (), "no hub; the set is composed all the same"),
    Shortened("benchmarks.gpu", "", ("--tiny", "--out", "FOLDER"), (), "no GPU"),
    Shortened(
        "benchmarks/import_time.py",
        "",
        ("--out", "import.json"),
        (),
        "leaves the committed figures alone",
    ),
    Shortened("tests.soak", "", ("--out", "FOLDER"), (), "leaves the committed figures alone"),
)

# What stands in for a part of a command that takes too long, by the name of a function of
# `stand_ins`.
STAND_INS = {
    "toy": "a run of seconds, where the short version takes two minutes",
    "toy.compare": "cells of a few random numbers; the real ones take minutes to hours",
    "lens_ref.tiny.study": "each seed's own command is read, and a finished run laid down",
    "benchmarks.gpu": "the processes of the parts are read, not started",
    "tests.soak": "the parts measure nothing; they have tests of their own",
    EVALUATE: "a hub whose sets have the true sizes and columns, and made-up rows",
}

# Commands that a named test tries better than could be done here.
TRIED_ELSEWHERE = {
    "python docs/build.py": f"{DOCS}::test_numbers_and_metrics_page_are_those_of_the_results",
    "python -m tests.dangers": "tests/test_dangers.py::test_the_repository_names_nothing_dangerous",
}

# The same for blocks of Python: (page, a line of the block) …
PYTHON_ELSEWHERE = {
    ("CONTRIBUTING.md", "# my_method.py"): f"{OWN}::test_a_method_of_ones_own",
    ("CONTRIBUTING.md", "import my_method"): f"{OWN}::test_a_method_of_ones_own",
    ("CONTRIBUTING.md", "# my_task.py"): f"{OWN}::test_a_task_of_ones_own",
    ("CONTRIBUTING.md", "models/random-qwen2"): f"{OWN}::test_a_model_of_ones_own",
    ("docs/engines.md", "import torch"): f"{PAGE}::test_the_plain_loop_solves_what_grpo_leaves",
    ("docs/engines.md", "from trl import"): f"{PAGE}::test_the_trl_example_trains",
}

# … and of the shell: (page, how they begin).
BLOCKS_ELSEWHERE = {
    ("CONTRIBUTING.md", "python -m lens_ref.train --import my_method"): (
        f"{OWN}::test_a_method_of_ones_own"
    ),
    ("CONTRIBUTING.md", "python -m lens_ref.train --import my_task"): (
        f"{OWN}::test_a_task_of_ones_own"
    ),
    ("CONTRIBUTING.md", "python -m lens_ref.train --config my_model.yaml"): (
        f"{OWN}::test_a_model_of_ones_own"
    ),
}

# Commands of more than a few seconds, by how they begin: for `make test` alone.
SLOW = ("for seed in 0 1 2 3 4", "python -m lens_ref.tiny.study --out FOLDER")

# Programs that are not started: what they install, serve or need a cluster for is not at hand. The
# function of `inspected` that looks at the arguments instead.
INSPECTED = {
    "pip": "versions are those of the requirements, extras exist, folders are projects",
    "python3.12": "a virtual environment of a Python that the project allows",
    "conda": "the file of the environment is there and has the name",
    "hf": "logging in, with a token that no test has",
    "jupyter": "the folder that it serves is there",
    "pipx": "installs pre-commit, whose file of hooks is there",
    "pre-commit": "likewise",
    "pytest": "the marker is declared and marks something",
    "ray": "starts a cluster; what it is handed after `--` is looked at",
    "python3": "`recipes/verl/launch.sh` starts verl with it",
    "verl": "an engine, in an environment of its own: tests/engines drive it",
    "mutants": "breaks the source; the word names a mutant",
}

# Spans in prose that name a command; what they command is on another line or page.
MENTIONED = (
    "python -O",
    "git rev-parse",
    "git status",
    "git ls-files",
    "accelerate launch",
    "ray start",
    "ray status",
    "python -m lens_ref.report",
    "python -m lens_ref.tiny.study",
    "python notebooks/build.py NN",
    "… --import my_method --method mine",
)

# Words of a command that stand for something, where no file of that name can.
PLACEHOLDERS = {"NAME": "ngrpo", "WORD": "tasks"}

# Blocks without a language that hold no command, by how they begin.
NO_COMMANDS = {"lens_ref/core/ ": "the map of the folders"}
