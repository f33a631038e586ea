"""What the pages name is there: links, paths, files that commands write, modules, settings."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from lens_ref.rlvr.config import Config
from lens_ref.rlvr.recipes import known
from tests.pages.reading import FOLDERS, HIDDEN, ROOT, SOURCES, docstrings, pages

FENCED = re.compile(r"```.*?```", re.S)
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")
SUFFIXES = (
    ".py",
    ".md",
    ".csv",
    ".json",
    ".jsonl",
    ".yaml",
    ".txt",
    ".png",
    ".html",
    ".cff",
    ".sh",
)
NO_FILES = {
    "NN_topic.py": "the pattern of names",
    "notebooks/NN_topic.py": "likewise",
    "models/random-qwen2": "what an example makes",
    "build/docs/index.html": "what `make docs` makes",
    "checkpoints/lens_ref/RECIPE-METHOD-seedK": "where verl saves",
}
VERLS = "recipes/verl/README.md"  # its settings are verl's own
PAGES = [str(p.relative_to(ROOT)) for p in pages()]


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def spans(page: str) -> list[str]:
    """The code within lines, each once."""
    found = CODE.findall(FENCED.sub("", text(page)))
    return list(dict.fromkeys(" ".join(span.split()) for span in found))


@cache
def names_of_files() -> set[str]:
    folders = [*ROOT.glob("*"), *(p for f in (*FOLDERS, *SOURCES) for p in (ROOT / f).rglob("*"))]
    return {p.name for p in folders if p.is_file()}


@cache
def sources() -> str:
    folders = (ROOT / name for name in ("lens_ref", "toy", "recipes"))
    return "".join(p.read_text(encoding="utf-8") for f in folders for p in f.rglob("*.py"))


def links() -> Iterator[tuple[str, str]]:
    """(page, target) of every link that leads to a file, those of the notebooks too."""
    notebooks = [p for p in (ROOT / "notebooks").rglob("*.ipynb") if not HIDDEN.search(str(p))]
    for path in [*pages(), *notebooks]:
        whole = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            cells = json.loads(whole)["cells"]
            whole = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        prose = CODE.sub("", FENCED.sub("", whole))
        for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", prose):
            if "://" not in target:
                yield str(path.relative_to(ROOT)), target


def test_links_lead_somewhere() -> None:
    found = list(links())
    assert len(found) > 100
    assert [f"{p}: {t}" for p, t in found if not ((ROOT / p).parent / t).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_paths_are_there(page: str) -> None:
    folder = (ROOT / page).parent
    for span in spans(page):
        if not PATH.fullmatch(span) or span in NO_FILES or span in known():
            continue
        first = span.split("/")[0]
        inside = "/" in span and any((base / first).is_dir() for base in (ROOT, folder))
        if inside or span.endswith(SUFFIXES):
            there = any(any(base.glob(span.rstrip("/"))) for base in (ROOT, folder))
            written = f'"{span.rpartition("/")[2]}"' in sources()  # by a command
            assert there or written or ("/" not in span and span in names_of_files()), span


def names(page: str) -> list[str]:
    found = (re.fullmatch(r"(lens_ref(?:\.\w+)+)(?:\(\))?", span) for span in spans(page))
    return [match[1] for match in found if match]


@pytest.mark.parametrize("page", [p for p in PAGES if names(p)])
def test_modules_and_their_names_are_there(page: str) -> None:
    for name in names(page):
        path = ROOT / name.replace(".", "/")
        if path.is_dir() or path.with_suffix(".py").is_file():
            continue
        module, _, attribute = name.rpartition(".")
        if module.startswith("lens_ref.engines"):  # needs an engine to be imported
            source = (ROOT / module.replace(".", "/")).with_suffix(".py")
            assert f"class {attribute}(" in source.read_text(encoding="utf-8"), name
        else:
            assert hasattr(importlib.import_module(module), attribute), name


SECTIONS = "|".join(field.name for field in dataclasses.fields(Config))
SETTING = re.compile(rf"((?:{SECTIONS})(?:\.[a-z_]\w*)+)(?:=\S+|: \S+)?")


def settings(page: str) -> list[str]:
    found = (SETTING.fullmatch(span) for span in spans(page) if not span.endswith(SUFFIXES))
    return [match[1] for match in found if match and page != VERLS]


def dataclass_of(kind: Any) -> Any:
    """The dataclass in a type such as `VllmConfig | None`."""
    kinds = [kind, *typing.get_args(kind)]
    return next((k for k in kinds if dataclasses.is_dataclass(k)), None)


@pytest.mark.parametrize("page", [p for p in PAGES if settings(p)])
def test_settings_are_there(page: str) -> None:
    for setting in settings(page):
        owner: Any = Config
        for part in setting.split("."):
            kinds = typing.get_type_hints(owner)
            assert part in kinds, setting
            owner = dataclass_of(kinds[part])


def test_a_setting_that_is_not_there_would_be_noticed() -> None:
    assert SETTING.fullmatch("rollout.nothing")
    assert "nothing" not in typing.get_type_hints(
        dataclass_of(typing.get_type_hints(Config)["rollout"])
    )


def test_commands_in_docstrings_name_modules_and_scripts() -> None:
    """Docstrings show how a command is written; the commands themselves are tried on the pages."""
    found = 0
    for path, docstring in docstrings():
        for module in re.findall(
            r"python -m ((?:lens_ref|toy|tests|benchmarks)[\w.]*\w)", docstring
        ):
            target = ROOT / module.replace(".", "/")
            found += 1
            there = target.with_suffix(".py").is_file() or (target / "__main__.py").is_file()
            assert there, f"{path}: {module}"
        for script in re.findall(r"python (\w[\w/]*\.py)", docstring):
            found += 1
            assert (ROOT / script).is_file(), f"{path}: {script}"
    assert found > 20


def test_the_table_of_core_tests_is_complete() -> None:
    table = text("tests/README.md").split("## `core/`")[1].split("\n## ")[0]
    files = {path.name for path in (ROOT / "tests/core").glob("test_*.py")}
    assert set(re.findall(r"^\| `(test_\w+\.py)`", table, re.M)) == files


def test_every_folder_of_tests_is_told_of() -> None:
    page = text("tests/README.md")
    for path in (ROOT / "tests").iterdir():
        if path.name.startswith("test_") or (path / "__init__.py").is_file():
            name = f"{path.name}/" if path.is_dir() else path.name
            assert f"`{name}" in page, name


def test_every_extension_is_in_the_table() -> None:
    from lens_ref import extensions

    table = text("docs/extensions.md")
    assert [name for name in extensions.__all__ if f"`{name}`" not in table] == []


@pytest.mark.parametrize("folder", ["results/tiny", "results/compare", "results/toy"])
def test_every_table_of_results_is_explained(folder: str) -> None:
    page = text("results/README.md" if folder == "results/tiny" else f"{folder}/README.md")
    named = [span for span in CODE.findall(page) if span.endswith(".csv")]
    for path in (ROOT / folder).glob("*.csv"):
        assert any(path.match(name) for name in named), path.name


def test_every_folder_of_results_is_in_the_table() -> None:
    page = text("results/README.md")
    for path in (ROOT / "results").iterdir():
        assert path.is_file() or f"| `{path.name}/`" in page, path.name
