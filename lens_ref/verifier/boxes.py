r"""Find the final answer of a response: the last balanced ``\boxed{...}``."""

from __future__ import annotations

import re

# `\\boxed{` (doubled backslash) is a frequent slip of models that imitate JSON escapes, so one or
# two backslashes are taken. `\{` and `\}` are literal braces and must not count.
_TOKEN = re.compile(
    r"(?P<box>\\?\\(?:boxed|fbox)\s*\{)"
    r"|(?P<short>\\?\\boxed\s*(?P<bare>-?\d+(?:[.,/]\d+)*|(?<=\s)[A-Za-z](?![A-Za-z])))"
    r"|(?P<escaped>\\.)|(?P<open>\{)|(?P<close>\})",
    re.DOTALL,
)


def extract_boxed(text: str) -> str | None:
    r"""Return the content of the last balanced ``\boxed{...}`` or ``\fbox{...}``, else None.

    "Last" is the balanced box that opens last, so of nested boxes the innermost counts. A box that
    never closes (a truncated response) does not count and leaves the balanced one before it in
    force. ``\boxed 5`` (a bare number or a single letter) counts too, and an empty box gives
    ``""``. One pass over the text: the time is linear in its length.

    >>> extract_boxed(r"\boxed{5}, no: \boxed{3} and then \boxed{")
    '3'
    """
    open_braces: list[tuple[int, int] | None] = []  # (command, content start); None: other brace
    last_command, last_content = -1, (0, 0)
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "box":
            open_braces.append(token.span())
        elif kind == "open":
            open_braces.append(None)
        elif kind == "short":
            last_command, last_content = token.start(), token.span("bare")
        elif kind == "close" and open_braces:
            box = open_braces.pop()
            if box is not None and box[0] > last_command:
                last_command, last_content = box[0], (box[1], token.start())
    return None if last_command < 0 else text[slice(*last_content)].strip()
