"""The words behind a number: which only say what it counts, and which make another statement of it.

"5 red balls" states a 5; "5 thousand", "5 or fewer" and "5 is wrong" do not. There is no list of
all nouns, so the rule goes by form: a plural (a singular behind 1 or a fraction), with adjectives
before it and what it is of, in or per behind it, and no word of `_NO_NOUNS` in all of this.
"""

from __future__ import annotations

import re

from .words import NUMBER_WORDS

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

# What stands in no unit, by kinds. Adjectives and the like need no list: they are no plurals.
_WORDS_BY_KIND = {
    "multiples and parts": "dozens hundreds thousands millions billions lakh lakhs crore crores "
    "grand gross score scores double doubles twice thrice half third quarter quarters fourth fifth "
    "sixth seventh eighth ninth tenth percent mille basis grosses decade decades century centuries "
    "millennium millennia fortnight fortnights kilo mega giga tera deca hecto deci centi milli "
    "micro nano pico femto kilos myriad myriads mil mils",
    "operations": "plus minus divided multiplied mod mods modulo remainder power root choose base "
    "negative negatives reciprocal reciprocals inverse inverses opposite opposites logarithm "
    "logarithms exponents complements orders raised factorials",
    "joints of sentences": "or and but nor if unless except without versus than as because so then "
    "that which",
    "bounds and roundings": "least most over under above below about around almost nearly roughly "
    "approx approximately less fewer lower higher greater smaller too many much only up down by",
    "directions in time": "ago before after earlier until since",
    "denials and doubts": "not no non never none neither cannot maybe perhaps possibly probably "
    "wrong incorrect false invalid rejected excluded extraneous undefined impossible",
    "verbs": "is isnt isn are arent aren was were be been has have had do does doesnt doesn did "
    "didnt can will would should must may might equals equal exceeds fails works means gives makes "
    "needs seems becomes goes holds contains satisfies diverges converges divides vanishes yields "
    "says lies lacks",
    "words in s that are no nouns": "this thus always its his hers ours theirs yours others "
    "besides yes minuses pluses ths",
}
_NO_NOUNS = frozenset(_CHANGES) | frozenset(" ".join(_WORDS_BY_KIND.values()).split())
# 5 twelfths, 5 millions, 5 millionths
_FRACTION = re.compile(
    r"illions?$|(?:teen|eleven|twelf|tie|illion|hundred|thousand)ths?$|^[kn]ths?$"
)
# words that make groups of what they count, unless an adjective shows that these are counted
_GROUP_WORDS = (
    "pair pairs couple couples triple triples trio trios quadruple quadruples quintuple quintuples "
    "squares cubes"
)
_GROUPS = frozenset(_GROUP_WORDS.split())
_SINGULARS = {
    "people": "person", "men": "man", "women": "woman", "children": "child", "mice": "mouse",
    "geese": "goose", "teeth": "tooth", "dice": "die", "vertices": "vertex", "radii": "radius",
}  # fmt: skip
_OWN_PLURALS = frozenset(_SINGULARS) | {"fish", "sheep", "deer", "data", "bacteria", "cattle"}
# what may stand behind the noun, or alone: "5 apples left", "5 each"
_BEHIND = frozenset(
    (
        *("left", "leftover", "remaining", "total", "all", "altogether", "overall", "combined"),
        *("together", "each", "apiece", "away", "more", "old", "long", "tall", "high", "wide"),
        *("deep", "thick", "daily", "weekly", "monthly", "yearly", "annually", "profit"),
        *("later", "north", "south", "east", "west"),
    )
)
_PARTICIPLE = re.compile(r"^(?:sold|won|made|eaten|bought|spent)$|[a-z]{2}ed$")  # "games played"
_JOINTS = frozenset(
    ("of", "in", "per", "for", "from", "on", "at", "with", "to", "among", "between")
)
_ARTICLES = frozenset(("a", "an", "the"))


def changed(value: str, name: str) -> tuple[str, str] | None:
    r"""The number that the first word of `name` makes of `value`, and the words left.

    ``("3", "dozen eggs")`` -> (``(3) \cdot 12``, ``eggs``); None where that word changes nothing.
    """
    word, _, rest = name.partition(" ")
    template = _CHANGES.get(word.lower())
    return None if template is None else (template.replace("#", value), rest)


def words_of(text: str) -> list[str] | None:
    """The words of a phrase, "/" read as "per"; None where it holds anything but words."""
    if re.fullmatch(r"[A-Za-z .\-/]+", text) is None:
        return None
    words = text.replace(".", "").replace("/", " per ").replace("left over", "leftover").split()
    return words[1:] if words[:1] == ["in"] and len(words) > 1 else words


def say_more(words: list[str]) -> bool:
    """Whether words behind a number make another statement of it, so that they say no unit."""
    parts = [part.lower() for word in words for part in word.split("-")]
    if not parts or parts[0] in _GROUPS or parts[-1] in _JOINTS or "times" in parts[:-1]:
        return True
    if re.search(r"\b(?:square|cube) roots?\b", " ".join(parts).lower()):
        return True
    numbers = any(all(map(_is_number, word.lower().split("-"))) for word in words)
    return numbers or any(part in _NO_NOUNS or _FRACTION.search(part) for part in parts)


def _is_number(word: str) -> bool:
    """Whether `word` is "six" or "sixes"; "zeros" are things to count."""
    forms = (word, word.removesuffix("s"), word.removesuffix("es"))
    return word == "zero" or any(w in NUMBER_WORDS and w != "zero" for w in forms)


def parted(words: list[str]) -> tuple[list[str], frozenset[str]]:
    """``apples left in the box`` -> (["apples"], {"left", "in box"}): the noun and its details."""
    if words[0].lower() in _ARTICLES:
        words = words[1:]
    ends = (k for k, word in enumerate(words) if word.lower() in _JOINTS | {"a", "an"})
    first = next(ends, len(words))
    noun, rest = words[:first], [word.lower() for word in words[first:]]
    if rest and rest[0] in _ARTICLES:  # hours a week
        rest[0] = "per"
    details = {" ".join(w for w in rest if w not in _ARTICLES)} if rest else set()
    while noun and (noun[-1].lower() in _BEHIND or (noun[1:] and _PARTICIPLE.search(noun[-1]))):
        details.add(noun.pop().lower())
    return noun, frozenset(details)


def is_plain(noun: list[str], details: frozenset[str], one: bool) -> bool:
    """Whether a phrase of these parts can be nothing else than what a number counts."""
    if not noun:
        first = " ".join(sorted(details)).partition(" ")[0]
        return first in _BEHIND or first in ("of", "per", "for")
    last = noun[-1].lower()
    plural = last in _OWN_PLURALS or (last.endswith("s") and not last.endswith(("ss", "us", "is")))
    long = all(len(word) > 1 for word in noun) and len(last) > 2 and re.search("[aeiouy]", last)
    return bool(long) and (plural or one)


def singular(noun: str) -> str:
    """The noun without its plural ending, by which nouns are compared: one spelling, maybe odd.

    Short words and words with capitals inside keep their case: MB is no Mb.
    """
    if len(noun) > 2 and noun[1:].islower():
        noun = noun.lower()
    if noun in _SINGULARS:
        return _SINGULARS[noun]
    if noun.endswith("ies") and len(noun) > 4:
        return noun.removesuffix("ies") + "y"
    if noun.endswith(("xes", "ches", "shes", "sses")):
        return noun.removesuffix("es")
    return noun if noun.endswith("ss") else noun.removesuffix("s")
