"""The files of a built site: which pages there are, and which of their links lead nowhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Page(HTMLParser):
    """What a page refers to and what can be referred to in it."""

    targets: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src", "poster") and value:
                self.targets.append(value)
            if name == "id" or (name == "name" and tag == "a"):
                self.ids.add(value or "")


@cache
def parse(path: Path) -> Page:
    """The page of a file; a file must not change between two calls."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def html_files(site: Path) -> list[Path]:
    """All pages."""
    return sorted(p for p in site.rglob("*.html") if "_static" not in p.parts)


def dead_links(site: Path) -> list[str]:
    """ "page: target" for every href and src that leads to no file or to no anchor of the site."""
    dead = []
    for path in html_files(site):
        for target in parse(path).targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = path
            if parts.path:
                file = (path.parent / unquote(parts.path)).resolve()
            if file.is_dir():
                file = file / "index.html"
            anchor = unquote(parts.fragment)
            missing = not file.is_file() or not file.is_relative_to(site.resolve())
            if missing or (anchor and file.suffix == ".html" and anchor not in parse(file).ids):
                dead.append(f"{path.relative_to(site)}: {target}")
    return dead


def external_links(site: Path) -> dict[str, str]:
    """Address → a page that refers to it."""
    found = {}
    for path in html_files(site):
        for target in parse(path).targets:
            if urlsplit(target).scheme in ("http", "https"):
                found.setdefault(target.partition("#")[0], str(path.relative_to(site)))
    return found
