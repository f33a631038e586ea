"""The checks of the site notice what they are there for: one fault at a time in a tiny site."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import conftest, visits
from .pages import dead_links
from .visits import faults, served

pytestmark = pytest.mark.docs

SETTINGS = """
extensions = ["myst_nb", "sphinx-mathjax-offline"]
myst_enable_extensions = ["dollarmath"]
html_theme = "furo"
root_doc = "page"
"""
TEXT = """# A page

The odds of $z$ are $z/(1-z)$, [here](#further) and [there](other.md).

$$w(z) = \\\\frac{1}{z} \\\\log \\\\frac{1}{1-z} - 1$$

![a figure](figure.png)

## Further

```{toctree}
other
```
""".replace("\\\\", "\\")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pages with formulas, links and a figure."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "conf.py").write_text(SETTINGS, encoding="utf-8")
    (folder / "page.md").write_text(TEXT, encoding="utf-8")
    (folder / "other.md").write_text("# Another\n\nWords.\n", encoding="utf-8")
    shutil.copyfile(conftest.ROOT / "docs/overview.png", folder / "figure.png")
    return folder


@pytest.fixture(scope="module")
def tiny(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny site, in order."""
    out = tmp_path_factory.mktemp("tiny-site")
    result = conftest.build(sources, sources, out)
    assert result.returncode == 0, result.stderr
    return out


def edited(site: Path, to: Path, edit: Callable[[str], str]) -> Path:
    """A copy of the site with the text of page.html changed."""
    shutil.copytree(site, to, dirs_exist_ok=True)
    page = to / "page.html"
    before = page.read_text(encoding="utf-8")
    after = edit(before)
    assert after != before
    page.write_text(after, encoding="utf-8")
    return to


def replace(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new)


def test_a_site_in_order_passes(tiny: Path, browser: Any) -> None:
    assert dead_links(tiny) == []
    with served(tiny) as base:
        assert faults(browser, base, "page.html") == []


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (replace("_images/figure.png", "_images/gone.png"), "image: "),
        (replace("_images/figure.png", "_images/gone.png"), "404: "),
        (replace("tex-chtml.js", "gone.js"), "formulas: 0 of 3 are typeset"),
        (replace("tex-chtml.js", "gone.js"), r"formula: \(z\)"),
        (replace("Further<", r"Further $\pi$<"), r"formula: Further $\pi$"),
        (replace(r"\log", r"\nolog{"), "formula: "),
        (replace("</body>", "<script>nothing()</script></body>"), "script error: "),
        (replace("</body>", "<script>console.error('oh')</script></body>"), "console: oh"),
        (
            replace("</body>", '<script src="https://example.invalid/x.js"></script></body>'),
            "from elsewhere: https://example.invalid/x.js",
        ),
        (
            replace("</article>", '<p style="width: 600px">wide</p></article>'),
            "wider than a phone: ",
        ),
        (
            replace("</article>", '<p style="width: 3000px">wide</p></article>'),
            "wider than a desk: ",
        ),
        (
            replace(
                "</article>",
                "<p id=late></p><script>late.innerText = 'text '.repeat(500)</script></article>",
            ),
            "letters can be read",
        ),
        (
            replace(
                "</article>",
                "<p id=late></p><script>late.innerHTML = "
                "'<img src=_images/figure.png width=100>'</script></article>",
            ),
            "1 of 2 figures can be seen",
        ),
    ],
)
def test_a_fault_in_the_browser_is_found(
    tiny: Path, browser: Any, tmp_path: Path, edit: Callable[[str], str], complaint: str
) -> None:
    broken = edited(tiny, tmp_path / "broken", edit)
    with served(broken) as base:
        found = faults(browser, base, "page.html")
    assert any(complaint in line for line in found), found


@pytest.mark.parametrize(
    ("edit", "dead"),
    [
        (replace('href="other.html', 'href="gone.html'), "page.html: gone.html"),
        (replace('href="#further"', 'href="#gone"'), "page.html: #gone"),
        (replace('href="other.html"', 'href="other.html#gone"'), "page.html: other.html#gone"),
        (replace("_images/figure.png", "_images/gone.png"), "page.html: _images/gone.png"),
        (replace('href="other.html', 'href="../../outside.html'), "page.html: ../../outside.html"),
    ],
)
def test_a_dead_link_is_found(
    tiny: Path, tmp_path: Path, edit: Callable[[str], str], dead: str
) -> None:
    assert dead in dead_links(edited(tiny, tmp_path / "broken", edit))


@pytest.mark.parametrize(
    ("old", "new", "warning"),
    [
        ("(other.md)", "(gone.md)", "gone.md"),
        ("(#further)", "(#gone)", "gone"),
        ("figure.png", "gone.png", "gone.png"),
        ("(other.md)", "(other.md#gone)", "gone"),
    ],
)
def test_a_dead_link_in_a_source_stops_the_build(
    sources: Path, tmp_path: Path, old: str, new: str, warning: str
) -> None:
    shutil.copytree(sources, tmp_path / "broken")
    page = tmp_path / "broken/page.md"
    page.write_text(TEXT.replace(old, new), encoding="utf-8")
    result = conftest.build(tmp_path / "broken", tmp_path / "broken", tmp_path / "out")
    assert result.returncode != 0
    assert warning in result.stderr


def test_without_a_browser_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert visits.chromium() is None
    assert "apt install chromium" in visits.NO_BROWSER
