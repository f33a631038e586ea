"""The site: complete, without dead links, and every page in order in a real browser."""

from __future__ import annotations

import inspect
import json
import os
import re
import zlib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

import lens_ref
from lens_ref import extensions, methods, verifier
from lens_ref.rlvr import config, data_config

from .conftest import ROOT
from .pages import dead_links, external_links, html_files
from .visits import faults, served

pytestmark = pytest.mark.docs

NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.ipynb"))
NOTEBOOKS = [p for p in NOTEBOOKS if ".ipynb_checkpoints" not in p.parts]


def names_in_inventory(site: Path) -> set[str]:
    """Every name that the reference documents, from the inventory that Sphinx writes."""
    content = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    lines = zlib.decompress(content).decode().splitlines()
    return {line.split(" py:")[0] for line in lines if " py:" in line}


def page_text(site: Path, page: str) -> str:
    """What a page says, without its tags."""
    return re.sub(r"<[^>]+>", "", (site / page).read_text(encoding="utf-8"))


def is_copy(page: Path) -> bool:
    """index.html of a folder, which is its README.html again."""
    readme = page.with_name("README.html")
    return page.name == "index.html" and readme.read_bytes() == page.read_bytes()


def figures_stored(notebook: Path) -> int:
    """The figures among the outputs of a notebook."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize(
    ("module", "public"),
    [
        ("lens_ref", lens_ref.core.__all__),
        ("lens_ref.methods", methods.__all__),
        ("lens_ref.extensions", extensions.__all__),
        ("lens_ref.verifier", verifier.__all__),
    ],
)
def test_the_reference_has_every_public_name(site: Path, module: str, public: list[str]) -> None:
    documented = {name.rpartition(".")[2] for name in names_in_inventory(site)}
    assert set(public) <= documented, module


def test_the_reference_has_every_setting_of_a_run(site: Path) -> None:
    text = page_text(site, "docs/site/api/config.html")
    classes = [
        cls
        for module in (config, data_config)
        for cls in vars(module).values()
        if inspect.isclass(cls) and is_dataclass(cls) and cls.__module__ == module.__name__
    ]
    assert len(classes) > 10
    for cls in classes:
        for setting in fields(cls):
            assert re.search(rf"\b{setting.name}\b", text), f"{cls.__name__}.{setting.name}"


def test_the_table_has_every_method(site: Path) -> None:
    text = page_text(site, "docs/methods.html")
    assert [name for name in methods.names() if name not in text] == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_shown_with_all_its_figures(site: Path, notebook: Path) -> None:
    page = site / notebook.relative_to(ROOT).with_suffix(".html")
    article = page.read_text(encoding="utf-8").partition("<article")[2].partition("</article")[0]
    assert article.count("<img") >= figures_stored(notebook)


def test_no_link_is_dead(site: Path) -> None:
    assert dead_links(site) == []


@pytest.mark.skipif(
    not os.environ.get("LENS_REF_EXTERNAL_LINKS"), reason="LENS_REF_EXTERNAL_LINKS=1 asks for it"
)
def test_no_link_to_elsewhere_is_dead(site: Path) -> None:
    dead = []
    for address, page in external_links(site).items():
        try:
            status = requests.get(address, timeout=20, stream=True).status_code
        except requests.RequestException as error:
            dead.append(f"{page}: {address} ({type(error).__name__})")
        else:
            if status >= 400:
                dead.append(f"{page}: {address} ({status})")
    assert dead == []


def test_every_page_in_a_browser(site: Path, browser: Any) -> None:
    """No error, nothing missing, nothing from elsewhere, formulas typeset, at home on a phone, and
    readable without JavaScript (the search page, which is a script, excepted)."""
    files = [p for p in html_files(site) if not is_copy(p)]
    pages = [str(p.relative_to(site)) for p in files]
    wrong = []
    with served(site) as base:
        for page in pages:
            found = faults(browser, base, page)
            if page == "search.html":
                found = [line for line in found if not line.startswith("no JavaScript")]
            wrong += [f"{page}: {line}" for line in found]
    assert len(pages) > 15
    assert wrong == []


def test_it_opens_from_a_folder_without_a_server(site: Path, browser: Any) -> None:
    notebook = NOTEBOOKS[0].relative_to(ROOT).with_suffix(".html")
    base = site.as_uri()
    assert faults(browser, base, "index.html") == []
    assert faults(browser, base, str(notebook)) == []
