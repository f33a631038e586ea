"""What surrounds the code: changelog, citation, hooks for pre-commit, templates for issues."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import lens_ref

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
FORMS = [path for path in TEMPLATES if path.name != "config.yml"]


def read(path: str | Path) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_every_entry_of_the_changelog_says_what_happens_to_curves() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = [" ".join(e.split()) for e in re.split(r"^- |^## .*$", text, flags=re.M)[1:]]
    entries = [entry for entry in entries if entry]
    assert len(entries) > 10
    said = re.compile(r"\. Curves: (the same|the first|changed)\b.*\.$")
    assert [entry for entry in entries if not said.search(entry)] == []


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", text, re.M)[0] == lens_ref.__version__


def test_the_citation_is_valid() -> None:
    """What version 1.2.0 of the format asks for, and no field that it does not know."""
    citation = read("CITATION.cff")
    assert citation.keys() >= {"cff-version", "message", "title", "authors"}
    assert citation.keys() <= {
        "cff-version", "message", "title", "authors", "type", "version", "license", "references",
        "abstract", "keywords", "date-released", "doi", "identifiers", "repository-code", "url",
    }  # fmt: skip
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] in ("software", "dataset")
    assert citation["version"] == lens_ref.__version__
    assert citation["license"] == "Apache-2.0"
    (paper,) = citation["references"]
    assert paper.keys() >= {"type", "title", "authors"}
    assert isinstance(paper["year"], int)
    assert "arXiv:2510.08696" in paper["notes"]
    for person in paper["authors"]:
        assert person.keys() == {"family-names", "given-names"}


def test_the_hooks_are_pinned_and_run_what_make_lint_runs() -> None:
    *others, own = read(".pre-commit-config.yaml")["repos"]
    for repo in others:
        assert re.fullmatch(r"v\d+\.\d+\.\d+", repo["rev"])
    assert {hook["id"] for repo in others for hook in repo["hooks"]} >= {
        "end-of-file-fixer", "check-added-large-files",
    }  # fmt: skip
    assert own["repo"] == "local"
    entries = [hook["entry"].removeprefix(".venv/bin/python -m ") for hook in own["hooks"]]
    lint = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nlint:")[2]
    for command in re.findall(r"\$\(RUN\) -m (ruff \w+|tests\.\w+)", lint.split("\n\n")[0]):
        assert any(entry.startswith(command) for entry in entries), command
    assert all(hook["language"] == "system" for hook in own["hooks"])


def test_every_line_of_a_text_file_ends() -> None:
    """As the hook wants it, so that it has nothing to change in what is there."""
    (hook,) = [
        hook
        for hook in read(".pre-commit-config.yaml")["repos"][0]["hooks"]
        if hook["id"] == "end-of-file-fixer"
    ]
    folders = ("lens_ref", "tests", "docs", "configs", "toy", "notebooks", "recipes", ".github")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    for path in [*paths, *ROOT.glob("*.*")]:
        name = path.relative_to(ROOT).as_posix()
        is_text = path.suffix in (".py", ".md", ".yaml", ".yml", ".toml", ".rst", ".json", ".txt")
        if is_text and path.is_file() and not re.search(hook["exclude"], name):
            content = path.read_bytes()
            assert not content or re.search(rb"(^|[^\n])\n\Z", content), name


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_is_one(path: Path) -> None:
    form = read(path)
    assert form.keys() == {"name", "description", "labels", "body"}
    fields = [part for part in form["body"] if part["type"] != "markdown"]
    assert fields
    assert {part["type"] for part in fields} <= {"input", "textarea", "dropdown", "checkboxes"}
    ids = [part["id"] for part in fields]
    assert len(set(ids)) == len(ids)
    for part in form["body"]:
        if part["type"] == "markdown":
            assert part["attributes"].keys() == {"value"}
        else:
            assert part["attributes"]["label"]
            assert all(isinstance(o, str) for o in part["attributes"].get("options", []))
    assert any(part.get("validations", {}).get("required") for part in fields)


def test_a_wrong_verdict_is_told_with_what_a_test_needs() -> None:
    fields = {
        p["id"]: p for p in read(".github/ISSUE_TEMPLATE/wrong-verdict.yml")["body"] if "id" in p
    }
    for name in ("gold", "answer", "expected"):
        assert fields[name]["validations"]["required"] is True
    assert fields["expected"]["attributes"]["options"] == ["correct", "wrong"]


def test_the_forms_are_there() -> None:
    assert {path.stem for path in TEMPLATES} == {"bug", "config", "question", "wrong-verdict"}
    assert (ROOT / ".github/pull_request_template.md").is_file()
