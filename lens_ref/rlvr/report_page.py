"""The parts of which every report is built: tables, embedded figures, the page around them.

Everything that a model or a user wrote is escaped: a tag in an answer stays text.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lens_ref.rlvr import report_figures
from lens_ref.rlvr.untrusted import as_html

MISSING = "–"
NOT_RUN = "not run"

STYLE = """
:root { color-scheme: light; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: WIDTH; margin: 0 auto; padding: 1rem;
       color: #111; background: #fff; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } h3 { font-size: 1rem; }
.verdict { border: 2px solid #111; padding: 0 1rem; }
figure { margin: 1.5rem 0; break-inside: avoid; } img { width: 100%; height: auto; }
figcaption, .note { font-size: .9rem; color: #333; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #bbb; padding: .2rem .45rem; text-align: right;
         vertical-align: bottom; }
td { white-space: nowrap; } td:nth-child(2):last-child { white-space: normal; }
.text { text-align: left; } thead th { border-color: #111; }
.side { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); }
.answer { border-left: 4px solid #999; padding: .1rem .6rem; margin: .6rem 0; break-inside: avoid; }
.right { border-left-style: double; border-color: #111; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; font-size: .85rem; }
summary { cursor: pointer; font-weight: 600; margin: .5rem 0; }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } .wide { overflow: visible; }
  details::details-content { content-visibility: visible; block-size: auto; } }
"""


def write_figure(path: Path, drawing: Figure | str) -> bytes:
    """A drawing as a PNG file; a sentence in its place is not written, and the PNG of an earlier
    drawing goes."""
    if isinstance(drawing, str):
        path.unlink(missing_ok=True)
        return b""
    data = report_figures.png(drawing)
    path.write_bytes(data)
    return data


def figure(path: Path, drawing: Figure | str, caption: str) -> str:
    """HTML of a drawing, which is also written to `path`; a sentence in its place is shown."""
    data = write_figure(path, drawing)
    if isinstance(drawing, str):
        return f"<p>{as_html(drawing)}</p>"
    caption = as_html(caption)
    source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return (
        f'<figure id="{as_html(path.stem)}"><img alt="{caption}" src="{source}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns of words to the left, columns of numbers to the right."""
    words = [any(_wordy(row[i]) for row in rows) for i in range(len(header))]
    sides = [" class=text" if wordy else "" for wordy in words]

    def line(tag: str, cells: Sequence[Any]) -> str:
        shown = zip(sides, cells, strict=True)
        return f"<tr>{''.join(f'<{tag}{side}>{as_html(c)}</{tag}>' for side, c in shown)}</tr>"

    body = "".join(line("td", row) for row in rows)
    return (
        f"<div class=wide><table><thead>{line('th', header)}</thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _wordy(cell: Any) -> bool:
    text = str(cell).replace(NOT_RUN, "")
    return any(letter.isalpha() for letter in text)


def page(title: str, body: Sequence[str], width: str = "46rem") -> str:
    """The whole file; `width` is what a wide screen shows of it."""
    style = STYLE.replace("WIDTH", width)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{as_html(title)}</title><style>{style}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )
