"""Units as they are written: which are known, and what else counts as a unit.

A unit is known (`_WORDS`, `_SYMBOLS`), or it is the noun of a plain phrase such as "red balls" or
"apples per day". `read_unit` takes a phrase apart; `nouns` says which words can be no unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from . import nouns

# canonical unit -> its spellings, lower case, without the plural s
_WORDS = {
    "%": ("%", "percent", "percentage", "pct", "per cent"),
    "degree": ("degree", "deg"),
    "radian": ("radian", "rad"),
    "dollar": ("dollar", "usd", "buck"),
    "cent": ("cent", "penny", "pennie"),
    "euro": ("euro", "eur"),
    "pound sterling": ("gbp", "pounds sterling"),
    "yen": ("yen",),
    "yuan": ("yuan",),
    "mm": ("millimeter", "millimetre"),
    "cm": ("cm", "centimeter", "centimetre"),
    "m": ("meter", "metre"),
    "km": ("km", "kilometer", "kilometre"),
    "inch": ("in", "inch", "inche"),
    "foot": ("ft", "foot", "feet"),
    "yard": ("yd", "yard"),
    "mile": ("mi", "mile"),
    "nautical mile": ("nautical mile",),
    "light year": ("light year", "lightyear"),
    "mg": ("milligram",),
    "gram": ("gm", "gram"),
    "kg": ("kg", "kilogram"),
    "ounce": ("oz", "ounce"),
    "fluid ounce": ("fluid ounce", "fl oz"),
    "pound": ("lb", "pound"),
    "ton": ("ton", "tonne", "metric ton"),
    "long ton": ("long ton",),
    "short ton": ("short ton",),
    "second": ("sec", "second"),
    "minute": ("min", "minute"),
    "hour": ("hr", "hour"),
    "day": ("day",),
    "week": ("week",),
    "month": ("month",),
    "year": ("yr", "year"),
    "ml": ("milliliter", "millilitre"),
    "liter": ("liter", "litre"),
    "gallon": ("gal", "gallon"),
    "quart": ("quart",),
    "pint": ("pint",),
    "acre": ("acre",),
    "mile/hour": ("mph",),
    "km/hour": ("kmph", "kmh", "kph"),
    "foot/second": ("fps",),
    "revolution/minute": ("rpm",),
    "N": ("newton",),
    "J": ("joule",),
    "W": ("watt",),
    "kW": ("kilowatt",),
    "kWh": ("kilowatt hour",),
    "V": ("volt",),
    "A": ("ampere", "amp"),
    "Hz": ("hertz",),
    "Pa": ("pascal",),
    "K": ("kelvin",),
    "mol": ("mole",),
    "unit": ("unit",),
}
_FROM_WORD = {spelling: unit for unit, names in _WORDS.items() for spelling in names}
# Symbols keep their case: m is no M. What `_SI` takes besides these stands for itself.
_SYMBOLS = {
    "mm": "mm", "m": "m", "mg": "mg", "g": "gram", "s": "second", "h": "hour", "ml": "ml",
    "mL": "ml", "l": "liter", "L": "liter", "K": "K",
}  # fmt: skip
_SI = re.compile(r"[kMGTmcdn]?(?:N|J|W|V|A|Hz|Pa|mol|eV|Wh|cal)|[kMGTmcdn](?:m|g|s|L|l|B|b)")
_TEMPERATURES = {
    "C": "C", "Celsius": "C", "celsius": "C", "F": "F", "Fahrenheit": "F", "fahrenheit": "F"
}  # fmt: skip
_RATE = re.compile(r"\s+per\s+|\s*/\s*")
_LETTER_UNIT = re.compile(
    r"(?P<value>.*[\d)}])\s*(?P<letter>[A-Za-z])(?:\s*\^\s*\{?(?P<power>[23])\}?)?"
)
# words before a known unit with which it is still that unit
_SAME_UNIT_WORDS = (
    "us american whole full complete entire exact total additional extra more consecutive "
    "different straight long"
)
_SAME_UNIT = frozenset(_SAME_UNIT_WORDS.split())
# What has squares and cubes that are units: lengths. "liters^3" are a slip, whatever was meant.
_LENGTH = re.compile(r"[kMGTmcdn]?m|inch|foot|yard|mile|nautical mile|light year|unit")
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_POWERS_BEHIND = {"squared": 2, "cubed": 3}


@dataclass(frozen=True)
class Unit:
    """What a number measures or counts.

    `name` is a known unit or a noun, "" for a phrase without one ("left"); `details` are the words
    that say more about it: {"red"} of "red balls", {"C"} of a degree. `plain`: it can be nothing
    else than a unit, so an answer may have it where the gold has none.
    """

    name: str
    power: int = 1
    details: frozenset[str] = frozenset()
    plain: bool = field(default=True, compare=False)


def agree(a: Unit, b: Unit) -> bool:
    """Whether two units are the same, or one only says more: "balls" and "red balls"."""
    same = (a.name, a.power) == (b.name, b.power)
    return same and (a.details <= b.details or b.details <= a.details)


def known_unit(text: str, power: int = 1) -> Unit | None:
    """``"square cm"`` -> Unit("cm", 2), ``"ft per second"`` -> Unit("foot/second"), else None."""
    words = re.sub(r"[.,]", "", text).replace("-", " ").split()
    if words and words[0].lower() in _POWERS:
        power = _POWERS[words[0].lower()]
        words = words[1:]
    elif len(words) > 1 and words[-1].lower() in _POWERS_BEHIND:  # cm squared
        power = _POWERS_BEHIND[words[-1].lower()]
        words = words[:-1]
    name = " ".join(words)
    if raised := re.fullmatch(r"(.*\w)\s*\^\s*([23])", name):
        name, power = raised[1], int(raised[2])
    if (scale := _scale(words)) is not None:
        return Unit("degree", power, frozenset({scale}))
    known = _from_symbol(name) or _from_word(name.lower())
    if known:
        return Unit(known, power, plain=power == 1 or _LENGTH.fullmatch(known) is not None)
    return _rate_of(_RATE.split(name), power)


def _scale(words: list[str]) -> str | None:
    """C for ``degrees C``, ``Celsius`` or a C alone."""
    name = words[1:] if words[1:] and words[0].lower() in ("degree", "degrees", "deg") else words
    return _TEMPERATURES.get(name[0]) if len(name) == 1 else None


def _from_symbol(name: str) -> str | None:
    return _SYMBOLS.get(name) or (name if _SI.fullmatch(name) and name not in _FROM_WORD else None)


def _from_word(name: str) -> str | None:
    for spelling in (name, name.removesuffix("s"), name.removesuffix("es")):
        if spelling in _FROM_WORD:
            return _FROM_WORD[spelling]
    return None


def _rate_of(names: list[str], power: int) -> Unit | None:
    sides = [known_unit(name) for name in names] if len(names) == 2 else []
    simple = sides and all(side is not None and side.power == 1 for side in sides)
    return Unit("/".join(side.name for side in sides if side), power) if simple else None


def read_unit(text: str, power: int = 1, one: bool = False) -> Unit | None:
    """The unit that the words behind a number name; None where they say something else.

    `one`: the number is at most 1, so that its noun has no plural ("1 apple", "3/4 cup").
    """
    if unit := known_unit(text, power):
        return unit
    words = nouns.words_of(text)
    if words is None or nouns.say_more(words):
        return None
    noun, details = nouns.parted(words)
    phrase = " ".join(noun)
    if unit := known_unit(phrase, power):  # "feet tall"
        return Unit(unit.name, unit.power, unit.details | details)
    for k in range(1, len(noun)):  # "US dollars", but "watt hours" and "board feet" are no hours
        unit = known_unit(" ".join(noun[k:]), power)
        if unit and all(word.lower().replace(".", "") in _SAME_UNIT for word in noun[:k]):
            return Unit(unit.name, unit.power, details | {w.lower() for w in noun[:k]})
        if unit:
            plain = power == 1 and not any(known_unit(word) for word in noun[:k])
            return Unit(" ".join([*noun[:k], unit.name]).lower(), power, details, plain)
    plain = nouns.is_plain(noun, details, one) and not any(known_unit(w) for w in noun[:-1])
    name = nouns.singular(noun[-1]) if noun else ""
    details |= {word.lower() for word in noun[:-1]}
    return Unit(name, power, details, plain and power == 1)


def letter_unit(latex: str) -> tuple[str, Unit] | None:
    """``"5 m"`` -> ("5", Unit("m")): a value with a unit of one letter, or a product with m."""
    match = _LETTER_UNIT.fullmatch(latex)
    unit = known_unit(match["letter"], int(match["power"] or 1)) if match else None
    return (match["value"], unit) if match and unit else None
