"""A page as a reader meets it: opened in Chromium, on a desk and on a phone, with JavaScript and
without. Every check returns what is wrong with the page, one line each.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

DESK = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
SIZES = {"desk": DESK, "wide screen": {"width": 1600, "height": 1000}, "phone": PHONE}
NO_BROWSER = "Chromium is not there: install it, on Debian and Ubuntu with `apt install chromium`"
NO_TOOLS = "the tools of the site are not installed: run `make test-docs`"

# Formulas that were not typeset: what a reader sees outside of code.
RAW_FORMULAS = r"""
() => {
  const raw = /\\[()[\]]|\$[^$\n]+\$|\\(frac|begin|sum|log|pi|mathrm|operatorname|text)\b/;
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (parent.closest("pre, code, script, style, noscript, mjx-container, template")) continue;
    const match = walker.currentNode.data.match(raw);
    if (match) found.push(walker.currentNode.data.trim().slice(0, 60));
  }
  return found;
}
"""

BROKEN_IMAGES = """
() => [...document.images].filter(i => !(i.complete && i.naturalWidth > 0)).map(i => i.src)
"""

# Text and figures that can be seen: in the page, not hidden, of some size.
SEEN = """
() => {
  const body = document.querySelector("article") || document.body;
  const seen = [...body.querySelectorAll("img")].filter(i => i.getBoundingClientRect().width > 9);
  return {letters: body.innerText.replace(/\\s/g, "").length, figures: seen.length};
}
"""

# The page and the column of its text stay as wide as the window; tables and code may scroll in
# boxes of their own.
WIDEST = """
() => {
  const article = document.querySelector("article") || document.body;
  const holds = e => getComputedStyle(e).overflowX !== "visible";
  const inside = e => e !== article && (holds(e) || inside(e.parentElement));
  for (let box = article; box; box = box.parentElement) {
    if (!holds(box) || box.scrollWidth <= box.clientWidth) continue;
    const right = e => e.getBoundingClientRect().right;
    const free = [...article.querySelectorAll("*")].filter(e => !inside(e.parentElement));
    const widest = free.sort((a, b) => right(b) - right(a))[0];
    return `${box.scrollWidth} px, ${widest.tagName} ${widest.textContent.slice(0, 40)}`;
  }
  return null;
}
"""

TYPESET = "() => !window.MathJax || !MathJax.startup || MathJax.startup.promise.then(() => true)"


def chromium() -> str | None:
    """The browser of the system."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class _Quiet(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        """A file; and no icon, which browsers ask for unasked."""
        if self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of what was asked for."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The address of a web server, on this machine alone, that holds the site."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def faults(browser: Any, base: str, page: str) -> list[str]:
    """Everything that is wrong with a page, on a desk, on a phone and without JavaScript."""
    wrong, with_scripts = _with_scripts(browser, base, f"{base}/{page}")
    return wrong + _without_scripts(browser, f"{base}/{page}", with_scripts)


def _with_scripts(browser: Any, base: str, address: str) -> tuple[list[str], dict[str, int]]:
    wrong: list[str] = []
    context = browser.new_context(viewport=DESK)
    tab = context.new_page()
    tab.on("console", lambda m: m.type == "error" and wrong.append(f"console: {m.text}"))
    tab.on("pageerror", lambda error: wrong.append(f"script error: {error}"))
    tab.on("requestfailed", lambda request: wrong.append(f"not loaded: {request.url}"))
    tab.on("response", lambda r: r.status >= 400 and wrong.append(f"{r.status}: {r.url}"))
    tab.on("request", lambda r: _outside(r.url, base) and wrong.append(f"from elsewhere: {r.url}"))
    tab.goto(address, wait_until="load")
    tab.evaluate(TYPESET)
    tab.evaluate("() => document.fonts.ready.then(() => true)")
    wrong += [f"image: {source}" for source in tab.evaluate(BROKEN_IMAGES)]
    formulas = tab.locator(".math").count()
    typeset = tab.locator(".math mjx-container").count()
    if typeset < formulas:
        wrong.append(f"formulas: {typeset} of {formulas} are typeset")
    wrong += [f"formula: {text}" for text in tab.evaluate(RAW_FORMULAS)]
    wrong += [f"formula: {text}" for text in tab.locator("mjx-merror").all_text_contents()]
    seen = tab.evaluate(SEEN)
    for name, size in SIZES.items():
        tab.set_viewport_size(size)
        if widest := tab.evaluate(WIDEST):
            wrong.append(f"wider than a {name}: {widest}")
    context.close()
    return wrong, seen


def _without_scripts(browser: Any, address: str, expected: dict[str, int]) -> list[str]:
    context = browser.new_context(viewport=DESK, java_script_enabled=False)
    tab = context.new_page()
    tab.goto(address, wait_until="load")
    seen = tab.evaluate(SEEN)
    wrong = [f"image, no JavaScript: {source}" for source in tab.evaluate(BROKEN_IMAGES)]
    context.close()
    if seen["letters"] < 0.8 * expected["letters"] or seen["letters"] == 0:
        wrong.append(
            f"no JavaScript: {seen['letters']} of {expected['letters']} letters can be read"
        )
    if seen["figures"] < expected["figures"]:
        wrong.append(
            f"no JavaScript: {seen['figures']} of {expected['figures']} figures can be seen"
        )
    return wrong


def _outside(url: str, base: str) -> bool:
    return not url.startswith((base, "data:", "blob:"))
