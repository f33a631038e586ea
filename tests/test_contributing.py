"""CONTRIBUTING.md: a method, a task and a model of one's own, by the very blocks of the page; and
one line for whatever can be wrong with a module of one's own."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lens_ref import evaluate, methods, tasks, train
from lens_ref.methods import registry
from lens_ref.rlvr import config, run_report, session
from lens_ref.rlvr.run_folder import find_runs
from tests.methods import test_properties as properties
from tests.methods.batches import batch
from tests.rlvr.helpers import ExactVerifier

PAGE = (Path(__file__).resolve().parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
COMMANDS = {"lens_ref.train": train.main, "lens_ref.evaluate": evaluate.main}
PROPERTIES = [
    properties.test_the_order_of_questions_and_responses_does_not_matter,
    properties.test_groups_do_not_touch_each_other,
    properties.test_pure_detached_and_in_the_right_dtype,
    properties.test_edges,
]


class Section:
    """The blocks under a heading: files (`# name` is their first line), code and commands."""

    def __init__(self, heading: str) -> None:
        text = re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], flags=re.M)[0]
        found = re.findall(r"^```(\w+)\n(.*?)^```", text, re.M | re.S)
        blocks = [(kind, body, re.match(r"# (\S+\.\w+)\n", body)) for kind, body in found]
        self.files = {name[1]: body for _, body, name in blocks if name}
        self.code = [body for kind, body, name in blocks if kind == "python" and not name]
        self.commands = [body.replace("\\\n", "") for kind, body, _ in blocks if kind == "sh"]

    def write(self) -> None:
        """Its files, into the working folder."""
        for name, body in self.files.items():
            Path(name).write_text(body, encoding="utf-8")

    def run(self) -> list[int]:
        """Its commands; returns their exit statuses."""
        return [
            COMMANDS[module]([*arguments])
            for _, _, module, *arguments in map(shlex.split, self.commands)
        ]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, as where `python -m` is typed; what is registered here goes away again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    monkeypatch.setattr(tasks, "_TASKS", dict(tasks._TASKS))
    monkeypatch.setattr(session, "Verifier", ExactVerifier)
    monkeypatch.setattr(run_report, "write_report", lambda parent: parent / "report.html")
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and name.startswith("my_"):
            del sys.modules[name]


# --- the page -------------------------------------------------------------------------------------


@pytest.mark.parametrize("heading", ["A method", "A task", "A model"])
def test_every_example_is_short(heading: str) -> None:
    section = Section(heading)
    assert [len(body.splitlines()) < 30 for body in section.files.values()] == [True]
    assert len(section.commands) == 1


def test_a_method_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = Section("A method")
    section.write()
    (check,) = section.code
    exec(check, {})
    printed = capsys.readouterr().out.strip()
    assert printed == "[[-0.0625, -0.0625, -0.0625, -0.0625], [0.75, -0.25, -0.25, -0.25]]"
    assert f"# {printed}\n" in check
    assert "flat" in methods.names()
    assert methods.spec("flat").defaults == {"size": 0.25}
    three = batch([[0, 0, 0], [1, 1, 0]], valid=torch.tensor([[True, True, False], [True] * 3]))
    third = 1 / 3  # −0.6/2 for the two that count; 1 − 2/3 and 0 − 2/3
    expected = torch.tensor([[-0.3, -0.3, 0], [third, third, -2 * third]], dtype=torch.float64)
    torch.testing.assert_close(methods.get("flat", size=0.6)(three).advantages, expected)
    for holds in PROPERTIES:
        holds("flat")
    monkeypatch.setattr(properties, "EVERYTHING", ["flat"])
    properties.test_negative_class_is_what_happens()
    properties.test_mixed_signs_are_never_against_the_verdict()
    assert section.run() == [0]
    grpo, flat = sorted(find_runs(Path("runs/tiny")), key=lambda run: run.config().method)[::-1]
    assert (grpo.config().method, flat.config().method) == ("grpo", "flat:size=0.5")
    assert grpo.finished
    assert flat.finished


def test_a_task_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    section = Section("A task")
    section.write()
    assert section.run() == [0]
    assert "additions" in tasks.names()
    (run,) = find_runs(Path("runs/tiny"))
    assert run.finished
    test = list(tasks.rows("additions", "test", 1000, 0))
    assert len(test) == 8 * 5  # 0, 5, …, 35, and five steps each
    assert {"problem": "35 (a) +17 (mod 36)", "answer": "16", "level": 1} in test
    assert len(list(tasks.rows("additions", "train", 7, 0))) == 7
    # the task has a name for the evaluation too
    done = ["runs/tiny", "--import", "my_task", "--data", "additions", "--n", "1"]
    assert evaluate.main([*done, "--questions", "3", "--set", "verifier.workers=1"]) == 0
    assert evaluate.main(["overlap", "additions", "additions:train", "--import", "my_task"]) == 0
    assert re.search(r"^the other way round +0 +0 +140 ", capsys.readouterr().out, re.M)


def test_a_model_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    section = Section("A model")
    section.write()
    loaded = config.load("my_model.yaml")
    assert (loaded.model.path, loaded.rollout.questions) == ("models/random-qwen2", 32)
    assert loaded.model.lora == config.LoraConfig(r=8, alpha=16.0)
    (make,) = section.code
    exec(make, {})
    assert section.run() == [0]
    assert "worst-case step: 256 answers of 64 tokens" in capsys.readouterr().out


def test_what_the_page_names_exists() -> None:
    root = Path(__file__).resolve().parent.parent
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    for line in re.findall(r"\bmake ([a-z][a-z -]+?)(?:`|  |$)", PAGE, re.M):
        for target in line.split():
            assert re.search(rf"^{target}\b.*:", makefile, re.M), target
    for name in re.findall(r"`((?:lens_ref|tests|docs|configs)/[\w./-]*)`", PAGE):
        assert (root / name).exists(), name


# --- modules of one's own -------------------------------------------------------------------------


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The one line that a command prints before it gives up."""

    def call(*arguments: str, main: Callable[[list[str]], int] = train.main) -> str:
        assert main([*arguments]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert error.count("\n") == 1
        return error

    return call


@pytest.mark.parametrize(
    ("code", "module", "expected"),
    [
        (None, "my_absent", "--import my_absent: no module 'my_absent'\n"),
        ("", "my_module.py", "no module 'my_module.py' (did you mean my_module?)"),
        ("import my_other", "my_module", "--import my_module: no module 'my_other'"),
        ("1 / 0", "my_module", "ZeroDivisionError: division by zero (--debug shows where)"),
        ("def", "my_module", "--import my_module: SyntaxError: "),
        ("", ".my_module", "--import .my_module: TypeError: "),
    ],
)
@pytest.mark.parametrize("main", [train.main, evaluate.main])
def test_a_module_that_cannot_be_imported(
    code: str | None, module: str, expected: str, main: Any, refused: Callable[..., str]
) -> None:
    if code is not None:
        Path("my_module.py").write_text(code)
    assert expected in refused("--import", module, main=main)
    assert not Path("runs").exists()


def test_without_the_module_its_method_is_unknown(refused: Callable[..., str]) -> None:
    Section("A method").write()
    error = refused("--method", "flat")
    assert "unknown method 'flat': known: asymre, " in error
    assert error.endswith("(one of your own: --import the module that registers it)\n")


def test_a_configuration_names_no_module(refused: Callable[..., str]) -> None:
    Path("my_config.yaml").write_text("import: [my_module]\n")
    assert "unknown key 'import'" in refused("--config", "my_config.yaml")


def test_a_stopped_run_says_what_to_import_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise session.Interrupted

    Path("my_module.py").touch()
    monkeypatch.setattr(session, "train_one", stop)
    assert train.main(["--import", "my_module", "json"]) == 130
    command = "python -m lens_ref.train --resume runs/tiny"
    assert f"go on with: {command} --import my_module json\n" in capsys.readouterr().out
    assert train.main(["--resume", "runs/tiny"]) == 130
    assert f"go on with: {command}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return [7]", "my-task: a row must be a dictionary with problem and answer"),
        ("return [{'problem': 'a'}]", "my-task: a row needs a non-empty 'answer'"),
        (
            "raise ValueError('too few')",
            "too few (data.test_questions; in an evaluation --questions)",
        ),
        ("return 1 / 0", "the task my-task fails: ZeroDivisionError: division by zero"),
        ("yield split.undefined", "the task my-task fails: AttributeError: 'str' object has no"),
        ("return []", "my-task: no questions"),
    ],
)
def test_a_task_that_fails(body: str, expected: str, refused: Callable[..., str]) -> None:
    code = f"from lens_ref import tasks\ndef rows(split, count, seed):\n    {body}\n"
    Path("my_module.py").write_text(f"{code}tasks.register('my-task', rows)\n")
    assert expected in refused("--import", "my_module", "--data", "tiny", "--test", "my-task")


def test_a_task_gives_no_more_than_it_is_asked_for() -> None:
    def endless(split: str, count: int, seed: int) -> Iterator[dict[str, Any]]:
        while True:
            yield {"problem": "a", "answer": "1"}

    tasks.register("endless", endless)
    from lens_ref.rlvr.data_config import SourceConfig
    from lens_ref.rlvr.sources import read

    assert len(list(read(SourceConfig("endless"), count=3))) == 3
    assert len(list(read(SourceConfig("endless")))) == 1000


def test_names_of_tasks_and_methods() -> None:
    with pytest.raises(ValueError, match="a task named 'tiny' is registered already"):
        tasks.register("tiny", lambda split, count, seed: [])
    for name in ("owner/name", "q.jsonl", "", "7", "a b"):
        with pytest.raises(ValueError, match="a letter, then letters, digits"):
            tasks.register(name, lambda split, count, seed: [])
    for name in ("my:method", "a,b", "a/b", "", "lens=", "A b"):
        spec = registry.replace(methods.spec("grpo"), name=name)
        with pytest.raises(ValueError, match="a letter, then letters, digits and _"):
            methods.register(spec)
