"""A browser for all tests of the site, and the site itself, built afresh."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .visits import NO_BROWSER, NO_TOOLS, chromium

ROOT = Path(__file__).resolve().parents[2]


def build(source: Path, settings: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """`sphinx-build` with every warning an error."""
    command = [sys.executable, "-m", "sphinx", "-q", "-E", "-W", "--keep-going"]
    command += ["-c", str(settings), str(source), str(out)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this repository."""
    out = tmp_path_factory.mktemp("site")
    result = build(ROOT, ROOT / "docs/site", out)
    if "No module named" in result.stderr:
        pytest.fail(f"{NO_TOOLS}\n{result.stderr}", pytrace=False)
    if result.returncode:
        pytest.fail(f"the site has warnings:\n{result.stderr}", pytrace=False)
    return out


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.fail(NO_TOOLS, pytrace=False)
    path = chromium()
    if path is None:
        pytest.fail(NO_BROWSER, pytrace=False)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()
