"""Reports over hostile texts in a real browser: nothing of them runs, loads or can be clicked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lens_ref import report
from lens_ref.rlvr.run_report import write_report
from lens_ref.rlvr.untrusted import printable
from tests import hostile
from tests.hostile import TEXTS_OF_A_RUN

from .visits import DESK

pytestmark = pytest.mark.docs

# Elements and attributes that act, and the sentinel that every hostile text tries to set.
ACTING = """
() => {
  const acting = "script, iframe, object, embed, form, input, link, base, svg, math, a, video";
  const handlers = [...document.querySelectorAll("*")].filter(
    e => [...e.attributes].some(a => /^on/i.test(a.name) || /^\\s*javascript:/i.test(a.value)));
  const refresh = [...document.querySelectorAll("meta[http-equiv]")];
  return [...document.querySelectorAll(acting), ...handlers, ...refresh].map(e => e.outerHTML)
    .concat(window.caught ? ["a script ran"] : []);
}
"""


def acts(browser: Any, page: Path) -> list[str]:
    """What the page did that a page of text does not do."""
    context = browser.new_context(viewport=DESK)
    tab = context.new_page()
    seen: list[str] = []
    tab.on("dialog", lambda dialog: (seen.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    tab.on("pageerror", lambda error: seen.append(f"script error: {error}"))
    tab.on("console", lambda message: seen.append(f"console: {message.text}"))
    tab.on("popup", lambda popup: seen.append(f"window: {popup.url}"))
    tab.on(
        "request",
        lambda r: (
            r.url.startswith("data:image/png")
            or r.url == page.as_uri()
            or seen.append(f"asked for {r.url}")
        ),
    )
    tab.goto(page.as_uri(), wait_until="load")
    tab.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
    for element in tab.locator("pre, td, h3, figcaption").all()[:200]:
        element.dispatch_event("mouseover")
        element.dispatch_event("focus")
        element.dispatch_event("click")
    seen += tab.evaluate(ACTING)
    if tab.url != page.as_uri():
        seen.append(f"went to {tab.url}")
    context.close()
    return seen


def shown(browser: Any, page: Path) -> list[str]:
    """The texts in the `pre` elements, as the browser has them."""
    tab = browser.new_page()
    tab.goto(page.as_uri(), wait_until="load")
    found: list[str] = tab.eval_on_selector_all("pre", "all => all.map(e => e.textContent)")
    tab.close()
    return found


def test_the_check_sees_an_attack_that_works(tmp_path: Path, browser: Any) -> None:
    page = tmp_path / "page.html"
    missed = []
    for attack in hostile.TAGS[:10]:
        unescaped = f"""<pre title="{attack}">{attack}</pre><pre title='{attack}'></pre>"""
        page.write_text(f"<!doctype html><meta charset=utf-8>{unescaped}")
        if not acts(browser, page):
            missed.append(attack)
    assert missed == []


def test_the_report_of_a_run(tmp_path: Path, browser: Any) -> None:
    texts = hostile.texts(5 * TEXTS_OF_A_RUN)
    parent = tmp_path / "a\"><script>window.caught='yes'<"
    for seed in range(5):
        part = texts[TEXTS_OF_A_RUN * seed :][:TEXTS_OF_A_RUN]
        hostile.make_run(parent / f"<img src=x onerror=1>-seed{seed}", part, seed=seed)
    page = write_report(parent)
    assert acts(browser, page) == []
    there = set(shown(browser, page))
    answers = [t for i, t in enumerate(texts) if i % TEXTS_OF_A_RUN >= 9]
    # a browser leaves out a line end right after <pre>
    assert [t for t in answers if printable(t).removeprefix("\n") not in there] == []


def test_the_report_of_a_reproduction(tmp_path: Path, browser: Any) -> None:
    texts = hostile.texts(2 * TEXTS_OF_A_RUN, seed=1)[TEXTS_OF_A_RUN:]
    parent = tmp_path / "b'\"><script>window.caught='yes'<"
    for method in ("grpo", f"lens:preset={texts[0]}"):
        hostile.make_run(parent / method[:4], texts, method)
    assert report.main([str(parent), "--out", str(tmp_path / "<out>")]) == 0
    assert acts(browser, tmp_path / "<out>" / "report.html") == []
