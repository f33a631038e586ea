"""Words inside answers: numbers in words, clock times, choices and plain text."""

from __future__ import annotations

import re

_SMALL = (  # noqa: SIM905
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
NUMBER_WORDS = {word: n for n, word in enumerate(_SMALL)}
NUMBER_WORDS |= {word: 10 * n for n, word in enumerate(_TENS, start=2)}
NUMBER_WORDS |= {
    f"{ten} {_SMALL[n]}": 10 * k + n for k, ten in enumerate(_TENS, start=2) for n in range(1, 10)
}

_FRACTIONS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6}
_FRACTIONS |= {"seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10}
_LARGE = (("million", 10**6), ("thousand", 1000), ("hundred", 100))

_CLOCK = re.compile(
    r"(?P<hour>\d{1,2})(?::(?P<minute>[0-5]\d))?(?::(?P<second>[0-5]\d))?"
    r"\s*(?P<half>[ap]\.?\s?m\.?)?",
    re.IGNORECASE,
)
_CHOICE_WORD = r"(?:(?i:(?:the )?(?:correct )?(?:option|choice|answer)(?: is)?)\s*:?\s*)?"
_CHOICE = re.compile(_CHOICE_WORD + r"\(?([A-Z])[).]?")
_CHOICE_AND_VALUE = re.compile(
    _CHOICE_WORD + r"(?:\(?([A-Z])\)\s*|([A-Z])\.\s+)(?!(?:and|or|is|not|wrong|incorrect)\b)"
    r"(-?(?:[\dA-Za-z]|\\(?:frac|sqrt|pi|\$)).*)"
)
_NOTHING = re.compile(
    r"(?:there (?:is|are) )?no (?:(?:such|real|valid|possible) )*"
    r"(?:solution|root|value|number)s?(?: exists?)?|none|(?:empty|null) set"
)
# words before a value, as in "twice the answer is", with which it is not the value asked for
_OTHER_VALUE = re.compile(
    r"\b(?:not|no(?!\.)|never|cannot|\w+n.?t|neither|nor|wrong|incorrect|false|except|without"
    r"|invalid|rejected|excluded|extraneous"
    r"|minus|plus|twice|double|triple|half|times the|third of|quarter of"
    r"|about|around|approx\w*|nearly|almost|roughly|at (?:least|most)|up to"
    r"|(?:more|less|fewer|greater|smaller|larger) than"
    r"|negative|negation|reciprocal|(?:opposite|inverse|square|cube|root|logarithm) of)\b",
    re.IGNORECASE,
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
    return NUMBER_WORDS.get(" ".join(words))


def fraction_words(text: str) -> tuple[int, int] | None:
    """``"two-thirds"`` -> (2, 3); None where `text` is no such fraction."""
    top, _, bottom = text.lower().replace("-", " ").rpartition(" ")
    many, part = NUMBER_WORDS.get(top), _FRACTIONS.get(bottom.removesuffix("s"))
    part = 2 if bottom == "halves" else part
    return (many, part) if many and part else None


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
    return (match[1] or match[2], match[3]) if match else None


def names_another_value(text: str) -> bool:
    """Whether words such as "The answer is not" or "Half of it" announce a value not asked for."""
    return _OTHER_VALUE.search(text) is not None


def says_nothing(plain: str) -> bool:
    """Whether `plain_words` say that there is no solution."""
    return _NOTHING.fullmatch(plain) is not None


def says_no_existence(plain: str) -> bool:
    """Whether `plain_words` say that a limit or a value does not exist."""
    return _NO_EXISTENCE.fullmatch(plain) is not None


def plain_words(text: str) -> str:
    """Fold case, punctuation, blanks and a leading article: how two texts are compared.

    What may tell texts apart stays: the case of single letters, signs, a point between digits.
    """
    text = re.sub(r"(?<=[A-Za-z])-(?=[A-Za-z]{2})|(?<!\d)[,;:]|[,;:](?!\d)", " ", text)
    text = re.sub(r"(?<!\d)\.|\.(?!\d)|[!'\"()\[\]]", "", text)
    words = [word if len(word) == 1 else word.casefold() for word in text.split()]
    if len(words) > 1 and len(words[1]) > 1 and words[0].lower() in ("a", "an", "the"):
        words = words[1:]
    return " ".join(words)
