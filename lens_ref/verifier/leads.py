"""Words before a value: "The answer is", "Total:", "area =" may be dropped, others change it.

Behind "is" or ":" anything may be claimed of a value ("below: 5"), so only phrases around a noun of
`_HEADS` are dropped. Before "=" any noun names the value, unless it is a part or a multiple of one.
"""

from __future__ import annotations

import re

from .words import NUMBER_WORDS, names_another_value

# what a phrase before a value may be about
_HEAD_WORDS = (
    "answer answers result results solution solutions value values total sum product difference "
    "quotient remainder area perimeter circumference volume length width height depth radius "
    "diameter distance speed rate time duration age price cost amount number count probability "
    "chance ratio percentage measure angle slope intercept degree mean median mode range average "
    "domain center centre vertex vertices point points coordinates midpoint focus foci roots zeros "
    "interval expression equation function polynomial matrix vector weight mass temperature profit "
    "income salary payment date day month year side sides diagonal hypotenuse base minimum maximum "
    "min max gcd lcm coefficient constant term set options choice option"
)
_HEADS = frozenset(_HEAD_WORDS.split())
# what may stand before such a noun
_ADJECTIVE_WORDS = (
    "a an the our my its their so thus hence therefore then and final correct required desired "
    "requested total overall exact actual resulting only unique sole maximum minimum maximal "
    "minimal max min least greatest smallest largest highest lowest shortest longest possible "
    "average mean expected surface lateral combined remaining common new"
)
_ADJECTIVES = frozenset(_ADJECTIVE_WORDS.split())
# operations, parts and bounds: no value is named by them
_CHANGES = re.compile(
    r"\b(?:square root|square|cube|power|squared|cubed|divided|multiplied|multiples?|raised"
    r"|(?:in|de)creased|reduced|added|subtracted|scaled|rounded|truncated|estimated?|estimates?"
    r"|over|under|above|below|beyond|before|after|past|beside|but|bounds?|bounded|limits?"
    r"|mod|modulo|factorial|logs?|logarithms?|roots?|exponents?"
    r"|inverses?|reciprocals?|opposites?|negat\w+|complements?|conjugates?"
    r"|quarters?|halves|thirds?|fourths?|fifths?|sixths?|sevenths?|eighths?|ninths?|tenths?"
    r"|\w+dths?|\w+teenths?|\w+tieths?|twelfths?|elevenths?"
    r"|doubled?|tripled?|quadrupled?|halved|dozens?|scores|gross"
    r"|hundreds?|thousands?|millions?|billions?|percent of|or|than|if|unless"
    r"|next|previous|another|errors?|guess|when|suppose)\b",
    re.IGNORECASE,
)
_SOUGHT = re.compile(
    r"\b(?:another|other|answers?|results?|solutions?|values?|it|that|this)\b", re.IGNORECASE
)
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_PHRASE = re.compile(r"[A-Za-z][A-Za-z.' \-]*")


def names_the_value(words: str) -> bool:
    """Whether ``words =`` name the value that follows: words alone, and no change of a value."""
    phrase = " ".join(_TEXT.sub(r" \1 ", words).split())
    if _PHRASE.fullmatch(phrase) is None or names_another_value(phrase):
        return False
    numbers = any(word in NUMBER_WORDS for word in re.split("[ -]", phrase.lower()))
    return not numbers and _changes(phrase) is None


def announces_the_value(words: str) -> bool:
    """Whether words that end in "is", "are", ":" or "=" only announce the value behind them."""
    phrase = " ".join(_TEXT.sub(r" \1 ", words).replace("$", "").split())
    phrase = re.sub(r"(?:\s*\b(?:is|are|equals)\b|\s*[:=])+$", "", phrase)
    if not names_the_value(phrase):
        return False
    parts = re.split(r"\b(?:of|for|to|in)\b", phrase.lower(), maxsplit=1)
    before = parts[0].split()
    if not before or before[-1] not in _HEADS or _SOUGHT.search("".join(parts[1:])):
        return False
    return all(word in _ADJECTIVES for word in before[:-1])


def _changes(phrase: str) -> re.Match[str] | None:
    """The word of `phrase` that changes a value; in "area of the square" there is none."""
    of = re.search(r"\b(?:of|in)\b", phrase)
    figure = re.search(r"\b(?:square|cube|roots)$", phrase) if of else None
    return _CHANGES.search(phrase[: figure.start()] if figure else phrase)
