"""A number and what stands with it: a unit, a percent sign, a currency, words."""

from __future__ import annotations

import re
from collections.abc import Callable

from . import nouns
from .algebra import simple_fraction
from .kinds import Answer, Atom, Compound, Quantity, Text
from .units import Unit, known_unit, read_unit

Read = Callable[[str], Answer | None]

_UNIT_TAIL = re.compile(
    r"(?P<value>.*?[\d\w})\]])\s*(?:\\text\{(?P<words>[^{}]*)\}"
    r"|(?<=[\d\s}])(?P<bare>(?:[A-Za-z]{2}|[A-Za-z](?=/|\s+per\b))[A-Za-z./ ]*))"
    r"\s*(?:\^\s*\{?(?P<power>\d)\}?)?"
)
_COUNTED = re.compile(r"-?[\d.,/ ]+ (?=\w*[aeiou])[A-Za-z]{3,}( [A-Za-z]+)*")
_SIGN_TAIL = re.compile(
    r"(?P<value>.*?\S)\s*(?P<sign>\\%|%|\\degree|€|£|\\\$)\s*(?P<scale>\\text\{\s*[CF]\s*\}|[CF])?"
)
_PRIME_TAIL = re.compile(r"(?P<value>-?\d[\d.,/ ]*)(?P<sign>'{1,3})")
_TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_STACKED = re.compile(r"(?:\\?%|\\degree)\s*(?:\\?%|\\degree)|\\\$\s*\\\$")
_MONEY = re.compile(
    r"(?P<sign>-?)\s*(?:(?P<dollar>(?:US\s?)?\\\$|\\text\{\s*(?:(?:US\s?)?\\?\$|USD)\s*\})"
    r"|(?P<euro>€|\\text\{\s*(?:€|EUR)\s*\}|\\euro(?![A-Za-z]))"
    r"|(?P<pound>£|\\text\{\s*(?:£|GBP)\s*\}|\\pounds(?![A-Za-z])))\s*(?P<value>.+)"
)
_SIGNS = {r"\degree": "degree", "€": "euro", "£": "pound sterling", r"\$": "dollar"}
_CURRENCIES = {"dollar": "dollar", "euro": "euro", "pound": "pound sterling"}
_ORDINAL = re.compile(r"(\d+)\s*(?:\^\s*)?\{?\s*(?:\\text\{\s*)?(?:st|nd|rd|th)\s*\}?\s*\}?")
_PIECE = re.compile(
    r"\s*(?P<value>\d[\d.]*(?:\s?/\s?\d+)?|\\frac\{\d+\}\{\d+\})\s*"
    r"(?:\\text\{(?P<words>[^{}]*)\}|(?P<sign>\\degree|'{1,2})|(?P<bare>[A-Za-z]{2,}\.?))\s*"
)


def read_amount(text: str, read: Read) -> Answer | None:
    r"""A number with its unit, percent or degree sign, currency, or a remark in ``\text{}``."""
    if _STACKED.search(text):  # 5%% is no amount; and each sign would be one more reading
        return Text(text)
    if compound := _compound(text):
        return compound
    if money := _MONEY.fullmatch(text):
        (currency,) = (name for name in _CURRENCIES if money[name])
        return _with_unit(read(money["sign"] + money["value"]), Unit(_CURRENCIES[currency]), text)
    if ordinal := _ORDINAL.fullmatch(text):
        return Atom(ordinal[1])
    if prime := _PRIME_TAIL.fullmatch(text):  # feet, minutes of arc or a slip
        return Quantity(Atom(prime["value"]), Unit(prime["sign"], plain=False))
    if (sign := _SIGN_TAIL.fullmatch(text)) and not _TRIGONOMETRY.search(text):
        name = _SIGNS.get(sign["sign"], "%")
        scale = frozenset(re.findall("[CF]", sign["scale"] or ""))
        return _with_unit(read(sign["value"]), Unit(name, details=scale), text)
    tail = _UNIT_TAIL.fullmatch(text)
    return _with_words(text, tail, read) if tail else None


def _with_words(text: str, tail: re.Match[str], read: Read) -> Answer | None:
    name = (tail["words"] or tail["bare"] or "").strip(" .()").replace(r"\degree", "degree")
    if tail["bare"] and len(name) == 1:  # 5m is a product
        return None
    value, unit = tail["value"], known_unit(name, int(tail["power"] or 1))
    if unit is None and (change := nouns.changed(value, name)):  # "3 dozen", "5 million dollars"
        value, name = change
    if not name:
        return read(value)
    if unit is None:
        number = simple_fraction(value)
        one = number is not None and abs(number) <= 1
        unit = read_unit(name, int(tail["power"] or 1), one)
        known = unit is not None and known_unit(unit.name)
        # letters without \text may be variables: "18 eggs" is a number and a word, "2abc" a product
        if tail["bare"] and not known and not _COUNTED.fullmatch(tail[0]):
            return None
    if unit is None:
        return Text(f"{value} {name}") if re.fullmatch(r"[A-Za-z .\-]+", name) else None
    return _with_unit(read(value), unit, text)


def _with_unit(value: Answer | None, unit: Unit, text: str) -> Answer | None:
    """`value` in `unit`; words only where `value` has another unit already."""
    if value is None or not isinstance(value, Quantity):
        return None if value is None else Quantity(value, unit)
    inner = value.unit
    if inner == unit:  # "$5 dollars"
        return value
    if inner.name and unit.name:
        return Text(text)
    named, plain = inner if inner.name else unit, inner.plain and unit.plain
    both = Unit(named.name, named.power, inner.details | unit.details, plain)  # "$12 per hour"
    return Quantity(value.value, both)


def _compound(text: str) -> Compound | None:
    r"""``3\text{ hours }30\text{ minutes}``, ``5 ft 3 in``, ``5\degree 30'``."""
    parts, position = [], 0
    while match := _PIECE.match(text, position):
        mark = {r"\degree": "degree"}.get(match["sign"], match["sign"])
        name = (match["words"] or match["bare"] or "").strip(" ,.").removesuffix(" and")
        unit = Unit(mark) if mark else known_unit(name)
        if unit is None:
            return None
        parts.append(Quantity(Atom(match["value"]), unit))
        position = match.end()
    alone = len({part.unit.name for part in parts}) == len(parts) > 1
    return Compound(tuple(parts)) if alone and position == len(text) else None
