"""Words inside answers: units, currencies, numbers in words, clock times and plain text."""

from __future__ import annotations

import re

# canonical unit -> its spellings, lower case, without the plural s. Only units that stand here are
# compared with each other; every other word behind a number ("5 meals") is taken as a remark.
_UNITS = {
    "%": ("%", "percent", "percentage", "pct", "per cent"),
    "degree": ("degree", "deg", "degrees celsius", "degrees fahrenheit"),
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
    "mile/hour": ("mph",),
    "km/hour": ("kmph", "kph"),
    "foot/second": ("fps",),
    "unit": ("unit",),
}
_CANONICAL = {spelling: unit for unit, names in _UNITS.items() for spelling in names}
_RATE = re.compile(r"\s+per\s+|\s*/\s*")

# what a word right behind a number, the #, makes of it
_CHANGES = {"dozen": r"(#) \cdot 12", "squared": "(#)^{2}", "cubed": "(#)^{3}", "factorial": "(#)!"}
_PARTS = ("halves", "thirds", "fourths", "fifths", "sixths", "sevenths", "eighths", "ninths")
_CHANGES |= {word: rf"\frac{{#}}{{{n}}}" for n, word in enumerate(_PARTS, start=2)}
_POWERS_OF_TEN = {
    "tens": 1,
    "hundred": 2,
    "thousand": 3,
    "million": 6,
    "billion": 9,
    "trillion": 12,
}
_POWERS_OF_TEN |= {"tenths": -1, "hundredths": -2, "thousandths": -3}
_CHANGES |= {word: rf"(#) \cdot 10^{{{power}}}" for word, power in _POWERS_OF_TEN.items()}
# words behind a number that make another statement of it, so that they cannot be dropped
_STATEMENTS = (  # noqa: SIM905
    "or and least most than over under above below about around almost nearly roughly approx "
    "approximately not no never negative minus plus divided multiplied mod modulo remainder power "
    "root choose base percent double twice half third quarter quarters fourth fifth sixth seventh "
    "eighth ninth tenth hundredth thousandth dozens hundreds thousands millions billions"
).split()
_NO_REMARK = frozenset(_STATEMENTS) | frozenset(_CHANGES)

_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
_LETTER_UNIT = re.compile(
    r"(?P<value>.*[\d)}])\s*(?P<letter>[A-Za-z])(?:\s*\^\s*\{?(?P<power>[23])\}?)?"
)

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

_LARGE = (("million", 10**6), ("thousand", 1000), ("hundred", 100))

_CLOCK = re.compile(
    r"(?P<hour>\d{1,2})(?::(?P<minute>[0-5]\d))?(?::(?P<second>[0-5]\d))?"
    r"\s*(?P<half>[ap]\.?\s?m\.?)?",
    re.IGNORECASE,
)
_CHOICE_WORD = r"(?:(?i:(?:the )?(?:correct )?(?:option|choice|answer)(?: is)?)\s*:?\s*)?"
_CHOICE = re.compile(_CHOICE_WORD + r"\(?([A-Z])[).]?")
_CHOICE_AND_VALUE = re.compile(
    _CHOICE_WORD + r"\(?([A-Z])\)\s*(?!and\b|or\b|is\b|not\b)"
    r"(-?(?:[\dA-Za-z]|\\(?:frac|sqrt|pi|\$)).*)"
)
_NOTHING = re.compile(
    r"(?:there (?:is|are) )?no (?:(?:such|real|integer|valid|possible|positive) )*"
    r"(?:solution|root|value|number)s?(?: exists?)?|none|(?:empty|null) set"
)
_NO_EXISTENCE = re.compile(r"dne|(?:\w+ )?(?:does not|doesnt) exist")


def number_word(text: str) -> int | None:
    """``"twenty-one"`` -> 21, ``"two hundred and five"`` -> 205; None where `text` is no number."""
    return _number_of(text.lower().replace("-", " ").split(), _LARGE)


def _number_of(words: list[str], large: tuple[tuple[str, int], ...]) -> int | None:
    """The number that `words` name, none of them larger than the names of `large`, if any."""
    for k, (name, size) in enumerate(large):
        if name in words:
            at = words.index(name)
            many = 1 if words[:at] == ["a"] else _number_of(words[:at], large[k + 1 :])
            rest = words[at + 1 :]
            few = _number_of(rest[1:] if rest[:1] == ["and"] else rest, large[k + 1 :])
            few = 0 if not rest else few
            return None if not many or few is None or few >= size else many * size + few
    return _NUMBER_WORDS.get(" ".join(words))


def changed(value: str, name: str) -> tuple[str, str] | None:
    r"""The number that the first word of `name` makes of `value`, and the words left.

    ``("3", "dozen eggs")`` -> (``(3) \cdot 12``, ``eggs``); None where that word changes nothing.
    """
    word, _, rest = name.partition(" ")
    template = _CHANGES.get(word.lower())
    return None if template is None else (template.replace("#", value), rest)


def is_remark(text: str) -> bool:
    """Whether the words behind a number only say what it counts: they may be left out."""
    if re.fullmatch(r"[A-Za-z .\-]+", text) is None:
        return False
    words = re.findall(r"[a-z]+", text.lower())
    return not any(word in _NO_REMARK or word in _NUMBER_WORDS for word in words)


def unit_of(text: str, power: int = 1) -> tuple[str, int] | None:
    """``"square cm"`` -> ("cm", 2), ``"ft per second"`` -> ("foot/second", 1), else None."""
    words = re.sub(r"[.,]", "", text.lower()).split()
    while words and words[0] in _POWERS:
        power = _POWERS[words[0]]
        words = words[1:]
    if len(words) > 1 and words[-1] in _POWERS:  # cm squared
        power = _POWERS[words[-1]]
        words = words[:-1]
    name = " ".join(words)
    if raised := re.fullmatch(r"(.*\w)\s*\^\s*([23])", name):
        name, power = raised[1], int(raised[2])
    for spelling in (name, name.removesuffix("s"), name.removesuffix("es")):
        if spelling in _CANONICAL:
            return _CANONICAL[spelling], power
    return _rate_of(_RATE.split(name), power)


def _rate_of(names: list[str], power: int) -> tuple[str, int] | None:
    sides = [unit_of(name) for name in names] if len(names) == 2 else []
    plain = sides and all(side is not None and side[1] == 1 for side in sides)
    return ("/".join(side[0] for side in sides if side), power) if plain else None


def letter_unit(latex: str) -> tuple[str, tuple[str, int]] | None:
    """``"5 m"`` -> ("5", ("m", 1)): a value with a unit of one letter, or a product with m."""
    match = _LETTER_UNIT.fullmatch(latex)
    unit = unit_of(match["letter"], int(match["power"] or 1)) if match else None
    return (match["value"], unit) if match and unit else None


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
    """``"(C)"``, ``"C."``, ``"C"`` or ``"Option C"`` -> ``"C"``: one capital, its brackets."""
    match = _CHOICE.fullmatch(text.strip())
    return match[1] if match else None


def choice_and_value(text: str) -> tuple[str, str] | None:
    """``"(C) 12"`` -> ("C", "12")."""
    match = _CHOICE_AND_VALUE.fullmatch(text.strip())
    return (match[1], match[2]) if match else None


def says_nothing(plain: str) -> bool:
    """Whether `plain_words` say that there is no solution."""
    return _NOTHING.fullmatch(plain) is not None


def says_no_existence(plain: str) -> bool:
    """Whether `plain_words` say that a limit or a value does not exist."""
    return _NO_EXISTENCE.fullmatch(plain) is not None


def plain_words(text: str) -> str:
    """Fold case, punctuation, blanks and a leading article: how two texts are compared."""
    words = re.sub(r"[^\w\s]", "", text.casefold()).split()
    if len(words) > 1 and words[0] in ("a", "an", "the"):
        words = words[1:]
    return " ".join(words)
