"""The trial of commands notices what it is there for, and its tables hold nothing that is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lens_ref.rlvr.errors import UserError
from tests.pages import inspected, stand_ins, tables
from tests.pages.reading import SHELLS, Block, all_blocks, blocks
from tests.pages.shell import Shell
from tests.pages.trying import FUNCTIONS, PROGRAMS, Trial, shortened

BLOCKS = all_blocks()
COMMANDS = [block for block in BLOCKS if block.language in SHELLS | {"inline"}]

FAILURES = (AssertionError, ImportError, OSError, KeyError, UserError, SystemExit)

PAGE = """# A page

Run `python -m toy` or, over a line's end, `make
test`; `python` alone is a name.

```
python a.py   # a comment
python b.py \\
  --more
```

    for i in 1 2; do
      python c.py $i
    done

```python
import torch
```

1. An item

    of two paragraphs: `make clean`
"""


def test_what_is_found_on_a_page() -> None:
    found = [(b.line, b.language, b.text) for b in blocks("page.md", PAGE)]
    assert found == [
        (3, "inline", "python -m toy"),
        (3, "inline", "make test"),
        (6, "", "python a.py   # a comment\npython b.py \\\n  --more"),
        (12, "", "for i in 1 2; do\n  python c.py $i\ndone"),
        (16, "python", "import torch"),
        (22, "inline", "make clean"),
    ]


def test_statements_are_the_shells() -> None:
    block = Block("page.md", 1, "", "a && b\nfor i in 1; do\n  c\ndone\nd \\\n  e\n# nothing\n")
    assert block.statements() == ["a && b", "for i in 1; do\n  c\ndone", "d \\\n  e"]
    with pytest.raises(AssertionError, match="no shell command"):
        Block("page.md", 1, "", "for i in 1; do\n  c").statements()


def test_the_shell_expands_and_starts_nothing(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "home", ["python", "make"])
    (tmp_path / "seed1").touch()
    (tmp_path / "seed2").touch()
    text = "for i in 1 2; do python \"a b\" $i; done && make x='$y' seed*  # a comment"
    assert shell.calls(text, tmp_path) == [
        ["python", "a b", "1"],
        ["python", "a b", "2"],
        ["make", "x=$y", "seed1", "seed2"],
    ]
    assert shell.calls("export A=1", tmp_path) == []
    for unknown in ("rm seed1", "./seed1", "curl x"):
        with pytest.raises(AssertionError):
            shell.calls(unknown, tmp_path)
    assert (tmp_path / "seed1").exists()


@pytest.mark.parametrize(
    "command",
    [
        "python -m lens_ref.nothing",
        "python nothing.py",
        "python -m lens_ref.train --no-such-option",
        "python -m lens_ref.train --config paper/no-such-recipe",
        "python -m lens_ref.train --set optimizer.no_such_field=1",
        "python -m lens_ref.train --method nothing",
        "python -m lens_ref.evaluate --from nowhere",
        "python -m verl.trainer.main_ppo algorithm.adv_estimator=other trainer.v1.trainer_mode=x",
        "python tests/mutants.py no-such-mutant",
        "make no-such-target",
        "pip install 'lens-ref[nothing]'",
        "pip install torch==0.0.1",
        "pip uninstall torch",
        "conda env create -f nothing.yml",
        ".venv/bin/jupyter lab docs",
        "pytest -m nothing",
        "unheard-of program",
    ],
)
def test_a_command_that_does_not_work_fails(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(tmp_path, monkeypatch)
    with pytest.raises(FAILURES):
        trial.statement(command)


def test_options_join_those_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    row = tables.Shortened("m", "--x", ("--n", "2"), ("a=1", "b=2"), "")
    monkeypatch.setattr(tables, "SHORTENED", (row,))
    assert shortened("m", ["--y"]) == ["--y"]
    assert shortened("m", ["--x"]) == ["--x", "--n", "2", "--set", "a=1", "b=2"]
    assert shortened("m", ["--x", "--set", "a=3", "--z", "4"]) == (
        ["--x", "--z", "4", "--n", "2", "--set", "a=1", "b=2", "a=3"]
    )


def test_every_block_has_a_language_that_is_known() -> None:
    assert {block.language for block in BLOCKS} <= SHELLS | {"python", "yaml", "inline"}


def texts() -> str:
    return "\n".join(block.text for block in COMMANDS)


@pytest.mark.parametrize("row", tables.SHORTENED, ids=lambda row: f"{row.program} {row.having}")
def test_a_row_of_shortened_commands_is_used(row: tables.Shortened) -> None:
    def fits(text: str) -> bool:
        text = text.replace("… ", f"python -m {tables.TRAIN} ")
        return any(row.program in line and row.having in line for line in text.splitlines())

    assert any(fits(block.text) for block in COMMANDS)


@pytest.mark.parametrize(
    "words", [*tables.MENTIONED, *tables.TRIED_ELSEWHERE, *tables.SLOW, *tables.PLACEHOLDERS]
)
def test_what_a_table_holds_is_on_a_page(words: str) -> None:
    assert words in texts()


def test_blocks_without_a_command_are_there() -> None:
    for start in tables.NO_COMMANDS:
        assert sum(block.text.startswith(start) for block in BLOCKS) == 1


def test_every_program_has_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(FUNCTIONS) == {"make", *tables.INSPECTED}
    assert set(PROGRAMS) - {"python"} <= set(FUNCTIONS)
    for name in tables.STAND_INS:
        assert callable(getattr(stand_ins, name.replace(".", "_")))
    known: Any = inspected.pinned("requirements.txt")
    assert "torch" in known
