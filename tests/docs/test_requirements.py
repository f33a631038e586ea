"""The pins of the site's tools: exact, and beside those of the project."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def pins(path: Path) -> dict[str, str]:
    """Package → version; ValueError on a line that is not an exact pin."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {re.sub(r"[-_.]+", "-", name.lower()): version for name, version in pairs}


def test_the_tools_of_the_site_are_pinned_beside_the_project() -> None:
    tools = pins(ROOT / "docs/requirements.txt")
    assert all(re.fullmatch(r"[\d.]+(b\d+)?", version) for version in tools.values())
    assert not set(tools) & set(pins(ROOT / "requirements.txt"))
