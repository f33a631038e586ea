"""Texts that try to act where they are shown, pages made of them, and what is wrong with a page."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import yaml

from lens_ref.rlvr.untrusted import one_line, to_cell

RUN = "window.caught='yes'"  # what every text tries to do in a browser
TAGS = (
    f"<script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f'<svg onload="{RUN}"><desc>',
    f"</pre></details><script>{RUN}</script>",
    f"</title><script>{RUN}</script>",
    f"</style><script>{RUN}</script>",
    f'"><script>{RUN}</script>',
    f"' autofocus onfocus='{RUN}' x='",
    f'" onmouseover="{RUN}" style="position:fixed;inset:0',
    f'<a href="javascript:{RUN}">solution</a>',
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    '<meta http-equiv=refresh content="0;url=javascript:0">',
    "<base href=//elsewhere.invalid/><link rel=stylesheet href=x.css>",
    "<form action=//elsewhere.invalid/><input name=password>",
    f"<!--><script>{RUN}</script>-->",
    f"<![CDATA[<script>{RUN}</script>]]>",
    f"&lt;script&gt;{RUN}&lt;/script&gt; &#x3c;b&#x3e; &amp;amp;",
    f"<scr\0ipt>{RUN}</scr\0ipt>",
    f"<math><mtext><table><mglyph><style><img src=x onerror={RUN}>",
    "<plaintext>",
    f"{{{{constructor.constructor('{RUN}')()}}}}",
)
MARKS = (
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]8;;https://elsewhere.invalid\x1b\\link\x1b]8;;\x1b\\",
    "\x9b31m",
    "[red]rich[/red] [link=https://elsewhere.invalid]x[/link] [/]",
    "overwritten\rby this",
    "\x08\x08\x08back",
    "\u202eright to left\u2066",
    "a\u2028b\u2029c\x85d",
    "null\0byte",
    "$\\frac{$ \\input{/etc/passwd} %",
    "x\ufeffy\u200bz",
)
FORMULAS = (
    "=cmd|'/C calc'!A0",
    '=HYPERLINK("https://elsewhere.invalid","x")',
    "+1+1",
    "-2+3",
    "@SUM(1)",
    "'=1",
    "''=1",
    "\t=1",
)


def texts(count: int, seed: int = 0) -> list[str]:
    """So many different hostile texts: each attack alone, then two or three with words between."""
    generator = random.Random(seed)
    attacks = [*TAGS, *MARKS, *FORMULAS]
    found = dict.fromkeys(attacks)
    while len(found) < count:
        parts = generator.choices(attacks, k=generator.randint(2, 3))
        found[" so x = 3 ".join(parts)] = None
    return list(found)[:count]


# --- runs and counts of such texts ----------------------------------------------------------------

TEXTS_OF_A_RUN = 18
"""How many of them the report shows: three questions with three answers each."""


def make_run(path: Path, shown: Sequence[str], method: str = "grpo", seed: int = 0) -> Path:
    """A finished run of four updates whose logs hold the texts: as ids (one line each, as they are
    when they are read), problems, expected answers and answers, and as name of the model."""
    names = [one_line(name) for name in shown[:3]]
    problems, answers, responses = shown[3:6], shown[6:9], shown[9:18]
    path.mkdir(parents=True)
    config = {
        "methods": [method], "seed": seed, "steps": 4, "model": {"path": shown[0]},
        "prompt": {"template": shown[-1]},
    }  # fmt: skip
    (path / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    data = {"source": shown[1], "questions": 3, "sha256": shown[0], "dropped_unparsable": 0}
    manifest = {
        "status": "finished", "method": method, "seed": seed, "steps": 4, "wall_seconds": 8.0,
        "tokens": 4000, "command": shown[2], "data": {"train": data, "test": data},
    }  # fmt: skip
    (path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    lines = ["step,reward,negative_share,neg_to_mixed_rms,entropy,mean_length,seconds"]
    lines += [f"{s},0.1,0.5,,1.5,20.0,{s}" for s in range(1, 5)]
    (path / "metrics.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rates = ["step", "level", *(f"pass@{k}" for k in (1, 2, 4, 8, 16)), "questions", "mean_length"]
    evals: list[list[Any]] = [rates]
    for step in (0, 4):
        evals += [[step, level, *[0.25] * 5, 3, 20.0] for level in ("all", to_cell(names[0]))]
    _write(path / "eval.csv", evals)
    rows: list[list[Any]] = [["step", "question", "level", "n", "correct"]]
    rows += [[step, to_cell(id_), to_cell(names[0]), 4, 1] for step in (0, 4) for id_ in names]
    _write(path / "eval_counts.csv", rows)
    with (path / "samples.jsonl").open("w", encoding="utf-8") as file:
        for i, response in enumerate(responses):
            q = i % len(names)
            row = {
                "step": 0, "question": names[q], "level": 1, "problem": problems[q],
                "answer": answers[q], "group": "negative", "response": response, "reward": 0.0,
                "reason": response, "truncated": False, "length": 7, "confidence": 0.75,
                "advantage": -0.5,
            }  # fmt: skip
            file.write(json.dumps(row) + "\n")
    return path


def _write(path: Path, rows: list[list[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


# --- what is wrong with a page --------------------------------------------------------------------

OURS = {
    "html": {"lang"}, "meta": {"charset", "name", "content"}, "table": set(), "figure": {"id"},
    "p": {"class"}, "div": {"class"}, "th": {"class"}, "td": {"class"}, "img": {"alt", "src"},
}  # fmt: skip
PLAIN = (
    "head", "title", "style", "body", "h1", "h2", "h3", "h4", "pre", "thead", "tbody", "tr", "ul",
    "li", "figcaption", "details", "summary", "strong",
)  # fmt: skip
VOID = ("meta", "img")
NAME = re.compile(r"[a-z0-9_.-]+")
SOURCE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=]*")


class Page(HTMLParser):
    """The text of a page, and everything in it that the reports never write."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        if self._open:
            self.faults.append(f"left open: {self._open}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        allowed = set() if tag in PLAIN else OURS.get(tag)
        if allowed is None:
            self.faults.append(f"element: {tag}")
            return
        for name, value in attrs:
            if name not in allowed:
                self.faults.append(f"attribute: {tag} {name}")
            if name == "src" and not SOURCE.fullmatch(value or ""):
                self.faults.append(f"source: {value}")
            if name == "id" and not NAME.fullmatch(value or ""):
                self.faults.append(f"id: {value}")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"closed: {tag}")

    def handle_data(self, data: str) -> None:
        self.text += data
        self.faults += [f"control: {letter!r}" for letter in ACTING.findall(data)]

    def handle_comment(self, data: str) -> None:
        self.faults.append(f"comment: {data}")

    def unknown_decl(self, data: str) -> None:
        self.faults.append(f"declaration: {data}")

    def handle_pi(self, data: str) -> None:
        self.faults.append(f"instruction: {data}")


ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that act on a terminal or turn text around; line ends and tabs may stay."""
