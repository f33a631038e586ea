"""Words inside answers: units, currencies, numbers in words, clock times and plain text."""

from __future__ import annotations

import re

# canonical unit -> its spellings, lower case, without the plural s. Only units that stand here are
# compared with each other; every other word behind a number ("5 meals") is taken as a remark.
_UNITS = {
    "%": ("%", "percent", "percentage", "pct", "per cent"),
    "degree": ("degree", "deg"),
    "radian": ("radian", "rad"),
    "dollar": ("dollar", "usd", "buck"),
    "cent": ("cent", "penny", "pennie"),
    "euro": ("euro",),
    "pound sterling": ("gbp",),
    "mm": ("mm", "millimeter", "millimetre"),
    "cm": ("cm", "centimeter", "centimetre"),
    "m": ("m", "meter", "metre"),
    "km": ("km", "kilometer", "kilometre"),
    "inch": ("in", "inch", "inche"),
    "foot": ("ft", "foot", "feet"),
    "yard": ("yd", "yard"),
    "mile": ("mi", "mile"),
    "mg": ("mg", "milligram"),
    "gram": ("g", "gm", "gram"),
    "kg": ("kg", "kilogram"),
    "ounce": ("oz", "ounce"),
    "pound": ("lb", "pound"),
    "ton": ("ton", "tonne"),
    "second": ("s", "sec", "second"),
    "minute": ("min", "minute"),
    "hour": ("h", "hr", "hour"),
    "day": ("day",),
    "week": ("week",),
    "month": ("month",),
    "year": ("yr", "year"),
    "ml": ("ml", "milliliter", "millilitre"),
    "liter": ("l", "liter", "litre"),
    "gallon": ("gal", "gallon"),
    "quart": ("quart",),
    "pint": ("pint",),
    "acre": ("acre",),
    "mph": ("mph", "mile per hour", "miles per hour", "mi/h"),
    "km/h": ("km/h", "kmph", "kph", "kilometers per hour", "km per hour", "kilometer per hour"),
    "m/s": ("m/s", "meters per second", "meter per second"),
    "unit": ("unit",),
}
_CANONICAL = {spelling: unit for unit, names in _UNITS.items() for spelling in names}
_MULTIPLIERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}

_SMALL = (  # noqa: SIM905
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
_NUMBER_WORDS = {word: n for n, word in enumerate(_SMALL)}
_NUMBER_WORDS |= {word: 10 * n for n, word in enumerate(_TENS, start=2)}
_NUMBER_WORDS |= {
    f"{ten} {_SMALL[n]}": 10 * k + n for k, ten in enumerate(_TENS, start=2) for n in range(1, 10)
}

_CLOCK = re.compile(
    r"(?P<hour>\d{1,2})(?::(?P<minute>[0-5]\d))?(?::(?P<second>[0-5]\d))?"
    r"\s*(?P<half>[ap]\.?\s?m\.?)?",
    re.IGNORECASE,
)
_CHOICE = re.compile(r"\(?([A-Z])[).]?")


def number_word(text: str) -> int | None:
    """``"twenty-one"`` -> 21; None where `text` is not a number from zero to ninety-nine."""
    return _NUMBER_WORDS.get(text.lower().replace("-", " ").strip())


def multiplier(text: str) -> int | None:
    """Power of ten of a word such as ``million``, else None."""
    return _MULTIPLIERS.get(text.lower().strip())


def unit_of(text: str, power: int = 1) -> tuple[str, int] | None:
    """``"square cm"`` -> ("cm", 2). None for words that are no known unit."""
    words = re.sub(r"[.,]", "", text.lower()).split()
    while words and words[0] in ("square", "sq", "cubic", "cu"):
        power = 2 if words[0] in ("square", "sq") else 3
        words = words[1:]
    name = " ".join(words)
    for spelling in (name, name.removesuffix("s"), name.removesuffix("es")):
        if spelling in _CANONICAL:
            return _CANONICAL[spelling], power
    return None


def clock_time(text: str) -> tuple[int, bool] | None:
    """Read a clock time: ``4:30 p.m.``, ``9 a.m.``, ``16:30`` or ``4:51:06``.

    Returns (seconds after midnight, whether a.m. or p.m. is marked), else None. ``3:5`` and
    ``19:60`` are no times.
    """
    match = _CLOCK.fullmatch(text.strip())
    if match is None or not (match["minute"] or match["half"]):
        return None
    hour, minute, second = (int(match[k] or 0) for k in ("hour", "minute", "second"))
    if hour > 24 or (match["half"] and not 1 <= hour <= 12):
        return None
    if match["half"]:
        hour = hour % 12 + (12 if match["half"][0] in "pP" else 0)
    return 3600 * hour + 60 * minute + second, bool(match["half"])


def choice_letter(text: str) -> str | None:
    """``"(C)"``, ``"C."`` or ``"C"`` -> ``"C"``: one capital letter and its brackets."""
    match = _CHOICE.fullmatch(text.strip())
    return match[1] if match else None


def plain_words(text: str) -> str:
    """Fold case, punctuation, blanks and a leading article: how two texts are compared."""
    words = re.sub(r"[^\w\s]", "", text.casefold()).split()
    if len(words) > 1 and words[0] in ("a", "an", "the"):
        words = words[1:]
    return " ".join(words)
