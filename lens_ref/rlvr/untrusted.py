"""Text from outside, made harmless where it is shown or written.

Answers of a model, question ids, subjects, names of folders and runs are other people's words. They
may hold tags, commands to the terminal, formulas of a spreadsheet; and a command line may hold a
password. Every page, console and table passes them through here.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
import unicodedata
from collections.abc import Iterator, Mapping
from html import escape
from types import TracebackType
from typing import Any

# --- what is seen ---------------------------------------------------------------------------------

_BIDI = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
"""Marks that turn the direction of the text after them."""
_SUSPECT = re.compile("[^\t\n -~¡-\u1fff\u2100-\ud7ff]")  # looked at one by one, for speed


def printable(text: object, keep: str = "\n\t") -> str:
    r"""The text with every character that acts instead of being seen written as an escape: ESC as
    \x1b, a mark of direction as \u202e; so nothing moves the cursor, clears the screen, or turns
    the words beside it around.

    Args:
        keep: control characters that stay.
    """
    shown = _SUSPECT.sub(_visible, str(text))
    for letter in "\n\t":
        if letter not in keep:
            shown = shown.replace(letter, _escape(letter))
    return shown


def _visible(match: re.Match[str]) -> str:
    letter = match.group()
    acts = unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or ord(letter) in _BIDI
    return _escape(letter) if acts else letter


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def one_line(text: object) -> str:
    """The text as a printable name: white space, line ends too, as single spaces."""
    return printable(" ".join(str(text).split()))


def as_html(text: object) -> str:
    """The text as HTML, in an element or a quoted attribute: tags, entities and quotes stay what
    they look like."""
    return escape(printable(text))


# --- cells of a table -----------------------------------------------------------------------------

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_QUOTED = re.compile(r"'+[=+\-@\t\r]")


def to_cell(value: Any) -> Any:
    """A text for a CSV. One that a spreadsheet would compute (`=1+1`, `@SUM(…)`) gets an apostrophe
    in front, which makes it text there; `from_cell` takes it off again. Numbers stay."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def from_cell(cell: str) -> str:
    """The text that `to_cell` wrote."""
    return cell[1:] if _QUOTED.match(cell) else cell


# --- secrets --------------------------------------------------------------------------------------

HIDDEN = "***"
_NAMES = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE_KEY|_KEY$|_PAT$")
_SHORTEST = 8  # characters: a shorter value stands in too many texts by chance
_FORMS = (
    re.compile(r"(?<=:/)(/?)[^/\s'\"@]+(?=@)"),  # https://user:password@host
    re.compile(r"()\b(?:hf_|gh[oprsu]_|github_pat_|glpat-|sk-|AKIA)[\w-]{16,}"),
)
_IN_ADDRESS = re.compile(r"(?i)([?&][\w-]*(?:token|key|password|secret|signature|sig)=)[^&\s'\"]+")


def secrets(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Name → value of the environment variables that are called like a token, key or password."""
    found = os.environ if environment is None else environment
    return {
        name: value
        for name, value in found.items()
        if _NAMES.search(name.upper()) and len(value) >= _SHORTEST and not os.path.exists(value)
    }


def redacted(text: str) -> str:
    """The text without the values of `secrets`, passwords in addresses, and hub tokens."""
    for value in sorted(secrets().values(), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    for form in (*_FORMS, _IN_ADDRESS):
        text = form.sub(lambda match: match.group(1) + HIDDEN, text)
    return text


def secret_in(value: Any, path: str = "") -> tuple[str, str] | None:
    """Where a nested value holds a secret, as a dotted name, and what it is; None where it doesn't.
    What a run writes down for good is looked through with this."""
    for name, text in _texts(value, path):
        for variable, secret in secrets().items():
            if secret in text:
                return name, f"the value of the environment variable {variable}"
        if redacted(text) != text:
            return name, "a password or a token"
    return None


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, path)
    elif isinstance(value, str):
        yield path, value


def show_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """A `sys.excepthook`: Python's traceback, printable and without secrets."""
    lines = traceback.format_exception(kind, error, trace)
    print(printable(redacted("".join(lines))), end="", file=sys.stderr)
