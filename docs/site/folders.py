"""A README is the page of its folder, on the site as in the repository: links to a folder lead to
it, it answers to index.html too, and the site's tables of contents are added to it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

NAVIGATION = Path(__file__).with_name("navigation.md")

EXERCISES = """
```{toctree}
:caption: In this folder
:maxdepth: 1
:glob:

*
```
"""

FOLDER_LINK = re.compile(r"\]\(((?:\.\.?/|[\w.-]+/)+)(#[\w-]+)?\)")
"""[text](folder/) or [text](folder/#anchor)"""


def complete(app: Sphinx, docname: str, source: list[str]) -> None:
    """Lead links to folders on to their README, and add tables of contents."""
    source[0] = FOLDER_LINK.sub(r"](\1README.md\2)", source[0])
    if docname == app.config.root_doc:
        source[0] += NAVIGATION.read_text(encoding="utf-8")
        app.env.note_dependency(NAVIGATION)
    if docname.startswith("notebooks/exercises/") and docname.endswith("/README"):
        source[0] += EXERCISES


def add_index(app: Sphinx, error: Exception | None) -> None:
    """README.html again as index.html: what a web server shows for a folder."""
    if error is None and app.builder.format == "html":
        for page in app.outdir.rglob("README.html"):
            shutil.copyfile(page, page.with_name("index.html"))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", complete)
    app.connect("build-finished", add_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
