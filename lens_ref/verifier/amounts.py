"""A number and what stands with it: a unit, a percent sign, a currency, words."""

from __future__ import annotations

import re
from collections.abc import Callable

from . import words
from .kinds import Answer, Atom, Quantity, Text

_UNIT_TAIL = re.compile(
    r"(?P<value>.*?[\d\w})\]])\s*(?:\\text\{(?P<words>[^{}]*)\}"
    r"|(?<=[\d\s}])(?P<bare>(?:[A-Za-z]{2}|[A-Za-z](?=/|\s+per\b))[A-Za-z./ ]*))"
    r"\s*(?:\^\s*\{?(?P<power>\d)\}?)?"
)
_COUNTED = re.compile(r"-?[\d.,/ ]+ (?=\w*[aeiou])[A-Za-z]{3,}( [A-Za-z]+)*")
_SIGN_TAIL = re.compile(r"(?P<value>.*?\S)\s*(?P<sign>\\%|%|\\degree)(?:\s*\\text\{\s*[CF]\s*\})?")
_TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_STACKED = re.compile(r"(?:\\?%|\\degree)\s*(?:\\?%|\\degree)|\\\$\s*\\\$")
_MONEY = re.compile(
    r"(?P<sign>-?)\s*(?:(?P<dollar>(?:US\s?)?\\\$|\\text\{\s*(?:(?:US\s?)?\\?\$|USD)\s*\})"
    r"|(?P<euro>€|\\text\{\s*(?:€|EUR)\s*\}|\\euro(?![A-Za-z]))"
    r"|(?P<pound>£|\\text\{\s*(?:£|GBP)\s*\}|\\pounds(?![A-Za-z])))\s*(?P<value>.+)"
)
_CURRENCIES = {"dollar": "dollar", "euro": "euro", "pound": "pound sterling"}
_ORDINAL = re.compile(r"(\d+)\s*(?:\^\s*)?\{?\s*(?:\\text\{\s*)?(?:st|nd|rd|th)\s*\}?\s*\}?")


def read_amount(text: str, read: Callable[[str], Answer | None]) -> Answer | None:
    r"""A number with its unit, percent or degree sign, currency, or a remark in ``\text{}``."""
    if _STACKED.search(text):  # 5%% is no amount; and each sign would be one more reading
        return Text(text)
    if money := _MONEY.fullmatch(text):
        value = read(money["sign"] + money["value"])
        if isinstance(value, Quantity):  # "$5 dollars"
            value = value.value
        (name,) = (name for name in _CURRENCIES if money[name])
        return None if value is None else Quantity(value, (_CURRENCIES[name], 1))
    if ordinal := _ORDINAL.fullmatch(text):
        return Atom(ordinal[1])
    if (sign := _SIGN_TAIL.fullmatch(text)) and not _TRIGONOMETRY.search(text):
        value = read(sign["value"])
        unit = "degree" if sign["sign"] == r"\degree" else "%"
        return None if value is None else Quantity(value, (unit, 1))
    if not (tail := _UNIT_TAIL.fullmatch(text)):
        return None
    name = (tail["words"] or tail["bare"] or "").strip(" .()")
    if tail["bare"] and len(name) == 1:  # 5m is a product
        return None
    value, unit = tail["value"], words.unit_of(name, int(tail["power"] or 1))
    if unit is None and (change := words.changed(value, name)):  # "3 dozen", "5 million dollars"
        value, name = change
        unit = words.unit_of(name)
    # letters without \text may be variables: "18 eggs" is a number and a word, "2abc" is a product
    if tail["bare"] and unit is None and name and not _COUNTED.fullmatch(tail[0]):
        return None
    if unit is None and name and not words.is_remark(name):
        return Text(f"{value} {name}") if re.fullmatch(r"[A-Za-z .\-]+", name) else None
    quantity = read(value)
    return quantity if quantity is None or unit is None else Quantity(quantity, unit)
