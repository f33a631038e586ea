r"""Read an answer into the kind of thing it is: an interval, a list, a time, a choice, a number...

``read(r"x \in [-2,7)")`` gives ``Tup("[", ")", (Atom("-2"), Atom("7")))``. Kinds are decided by the
form alone, outermost structure first; what has no structure is an `Atom`, left to algebra.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from . import leads, words
from .amounts import read_amount
from .kinds import (
    Answer,
    Approximate,
    Atom,
    Based,
    Chain,
    Choice,
    Clock,
    Equation,
    Inequality,
    Items,
    Matrix,
    Named,
    Ratio,
    Reals,
    Region,
    Text,
    Tup,
    latex_of,
)
from .labels import SYMBOLS, is_constant, is_label, is_variable, plain_label
from .spelling import AND, OR, each_sign, is_wrapped, merge_thousands, respell, split_top

_COMMA = re.compile(r"\s*(?:,|;|\\AND(?![A-Za-z])|\\OR(?![A-Za-z]))\s*")
_RELATION = re.compile(r"\\(?:le|ge|ne|approx|equiv)(?![A-Za-z])|[<>=]")
_MEMBER = re.compile(r"\\(?:not)?in(?![A-Za-z])")
_NEGATION = re.compile(r"\\(?:not|neg|lnot)(?![A-Za-z])|\\n(?:subset|supset|mid|parallel|equiv)")
_UNION = re.compile(r"\\cup(?![A-Za-z])")
_INTERSECTION = re.compile(r"\\cap(?![A-Za-z])")
_MINUS = re.compile(r"\\setminus(?![A-Za-z])")
_SUCH_THAT = re.compile(r"\\(?:mid|vert)(?![A-Za-z])|[|:]")
_COLON = re.compile(r":|\\text\{\s*to\s*\}")
_REALS = re.compile(
    r"\\(?:mathbb|mathbf|Bbb)\s*\{?R\}?|\\Re(?:als?)?|\\R|\(\s*-\\infty\s*,\s*\\infty\s*\)"
)
_HALF_LINE = re.compile(
    r"\\(?:mathbb|mathbf|Bbb)\s*\{?R\}?\s*[_^]\s*\{?\s*(?:(?P<positive>\+|>\s?0)|-|<\s?0)\s*\}?"
)
_EMPTY = re.compile(r"\\emptyset|\\\{\s*\\\}")
_MATRIX = re.compile(r"\\begin\{([pbB]?matrix|smallmatrix|array)\}(?:\{[^{}]*\})?(.*)\\end\{\1\}")
_BASED = re.compile(r"(-?)\s*\(?\s*(\\text\{)?\s*([0-9A-Za-z.]+)\s*\}?\s*\)?\s*_\s*\{?(.+?)\}?")
_DOLLAR = re.compile(r"\\?\$")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_BARE_WORDS = re.compile(r"[A-Za-z][A-Za-z .,'\-()]*|[A-Za-z]{3,} [A-Za-z0-9 .,'\-]*")
_LEAD_IN = re.compile(r"\\text\{[^{}]*(?:\bis|\bare|:|=)\s*\}\s*(?P<rest>.*\w.*)")
_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}")
_POINT = re.compile(r"([A-Z])'*\s*(\(.*,.*\))")
_NAMED = re.compile(
    r"(?:m\s*)?\\(?:(?P<sign>angle|triangle)\s*\{?\s*(?P<letters>[A-Z]{1,4})"
    r"|(?P<line>overline|overrightarrow|overleftrightarrow|widehat)\s*\{\s*(?P<ends>[A-Z]{2}))"
    r"\s*\}?"
)
_ANOTHER_CHOICE = re.compile(r"(?<![\w}])\(\s*(?:\\text\{)?[A-J]\}?\s*\)")
_CLOSING = {"(": ")", "[": "]"}


def read(answer: str, thousands: bool = True) -> Answer | None:
    """Read one answer as a model or a data set wrote it; None where nothing is left to read.

    `thousands`: ``81,256`` is one number, not two.
    """
    text = respell(answer)
    if _NEGATION.search(text):  # what it denies is read nowhere
        return Text(text)
    if thousands:
        text = merge_thousands(text)
    return _read(text) if text else None


def _read(text: str) -> Answer | None:
    text = text.strip()
    while is_wrapped(text, "{", "}"):
        text = text[1:-1].strip().rstrip(".,; ")
    if not text:
        return None
    for reader in _READERS:
        found = reader(text)
        if found is not None:
            return found
    return Atom(text)


def _parts(pieces: list[str]) -> tuple[Answer, ...]:
    found = (_read(piece) for piece in pieces)
    return tuple(part for part in found if part is not None)


def _text(text: str) -> Answer | None:
    r"""Words, in ``\text{}`` or bare: a name, a day, a choice, a list of letters, a time."""
    wrapped = _TEXT.search(text) is not None
    outside = re.sub(r"\\AND|\\OR|[\s,;.()]", "", _TEXT.sub("", text))
    if wrapped and not outside:
        inner = _TEXT.sub(r"\1", text).replace(AND.strip(), " and ").replace(OR.strip(), " or ")
    elif _BARE_WORDS.fullmatch(text.replace(AND, "and ").replace(OR, "or ")):
        inner = text.replace(AND, "and ").replace(OR, "or ")
    else:
        return None
    inner = inner.rstrip(" .,;").lstrip()  # a point before a digit is no end: .5
    known = words.number_word(inner)
    if known is not None:
        return Atom(str(known))
    if share := words.fraction_words(inner):
        return Atom(f"\\frac{{{share[0]}}}{{{share[1]}}}")
    plain = words.plain_words(inner)
    if plain in ("all real numbers", "all reals", "real numbers"):
        return Reals()
    if words.says_nothing(plain):
        return Items(())
    if words.says_no_existence(plain):
        return Text("DNE")
    if words.choice_letter(inner):
        return Text(inner, bare=not wrapped and len(inner) == 1)
    pieces = [p.strip() for p in re.split(r",|;|\band\b|\bor\b|\s", inner) if p.strip()]
    if len(pieces) > 1 and all(words.choice_letter(p) for p in pieces):
        return Items(tuple(Text(p) for p in pieces))
    if wrapped and re.match(r"[-+\d.$%\\(\[]", inner):
        return _read(respell(_DOLLAR.sub(r"\$", inner))) if inner != text else None
    if not wrapped and not _WORD.search(inner):
        return None
    return Text(inner, bare=not wrapped)


def _choice(text: str) -> Answer | None:
    r"""``\text{(C) } 12``; without ``\text`` only where a number follows, not a variable."""
    found = words.choice_and_value(_TEXT.sub(r"\1", text))
    if found is None or not (r"\text" in text or re.match(r"-?\d|\\", found[1])):
        return None
    if _ANOTHER_CHOICE.search(found[1]):  # (A) 1 or (B) 2
        return Text(text)
    value = _read(found[1])
    return None if value is None else Choice(found[0], value)


def _named(text: str) -> Answer | None:
    match = _NAMED.fullmatch(text)
    if match is None:
        return None
    return Named(match["sign"] or match["line"], match["letters"] or match["ends"])


def _time(text: str) -> Answer | None:
    parsed = words.clock_time(_TEXT.sub(r"\1", text))
    return Clock(parsed[0]) if parsed and parsed[1] else None


def _list(text: str) -> Answer | None:
    pieces, separators = split_top(text, _COMMA)
    if len(pieces) == 1:
        return None
    if not pieces[0].strip() or (not pieces[-1].strip() and separators[-1].startswith("\\")):
        return Text(text)  # ",5" and "5 or"
    parts = _parts(pieces)
    if len(parts) == 1:
        return parts[0]
    if OR.strip() in separators and any(isinstance(part, Inequality) for part in parts):
        parts = tuple(map(_point_on_line, parts))  # x < 1 or x = 4
    bounded = {part.label if isinstance(part, Inequality) else None for part in parts}
    if len(bounded) == 1 and None not in bounded:
        cut = [isinstance(p.region, Region) and p.region.operation == "minus" for p in parts]
        holes = all(cut) or (any(cut) and OR.strip() not in separators)  # 0 < x < 5, x \\ne 2
        if holes or set(separators) == {AND.strip()}:
            joined = "intersection"
        else:
            joined = "union" if OR.strip() in separators else "list"
        return Inequality(parts[0].label, Region(joined, tuple(p.region for p in parts)))
    if set(separators) == {OR.strip()} and all(map(_is_interval, parts)):
        return Region("union", parts)
    unordered = OR.strip() in separators or any(_is_unordered(part) for part in parts)
    return Items(tuple(_flat(parts)), unordered) if parts else None


def _point_on_line(part: Answer) -> Answer:
    """``x = 4`` among bounds of x is one more point."""
    if not isinstance(part, Equation) or part.label is None or len(part.sides) != 2:
        return part
    return Inequality(_squeeze(part.label), Region("union", (Items((part.sides[1],)),)))


def _is_interval(answer: Answer) -> bool:
    """Whether `answer` can be no point: it closes with a square bracket, or has no end."""
    if not isinstance(answer, Tup) or len(answer.parts) != 2 or answer.labels:
        return False
    return (answer.opening, answer.closing) in (("[", ")"), ("(", "]")) or any(
        r"\infty" in latex_of(part) for part in answer.parts
    )


def _is_unordered(answer: Answer) -> bool:
    return isinstance(answer, Items) and answer.unordered and not answer.braces


def _flat(parts: tuple[Answer, ...]) -> Iterator[Answer]:
    for part in parts:
        if isinstance(part, Items) and part.parts and not part.braces:
            yield from part.parts
        else:
            yield part


def _lead_in(text: str) -> Answer | None:
    r"""``\text{The answer is } 5``."""
    match = _LEAD_IN.fullmatch(text)
    if match is None:
        return None
    announced = leads.announces_the_value(text[: match.start("rest")])
    return _read(match["rest"]) if announced else Text(text)


def _membership(text: str) -> Answer | None:
    r"""``x \in S`` is S, ``x \notin S`` all else; ``x^2 \in S``, ``6 \in S`` are other claims."""
    pieces, signs = split_top(text, _MEMBER)
    if len(pieces) != 2 or not pieces[1].strip():
        return None
    name, members = pieces[0].strip(), _read(pieces[1])
    if members is None:
        return None
    if signs == [r"\notin"] and is_variable(name):
        return Inequality(_squeeze(name), Region("minus", (Reals(), members)))
    if signs == [r"\in"] and (not name or is_variable(name) or SYMBOLS.fullmatch(name)):
        return members
    element = _read(name)
    return Text(text) if element is None else Chain((element, members), tuple(signs))


def _relation(text: str) -> Answer | None:
    sides, relations = split_top(text, _RELATION)
    if len(sides) == 1:
        return None
    sides = [side.strip() for side in sides]
    if r"\approx" in relations and set(relations) <= {"=", r"\approx"}:
        return _rounded(sides, relations.index(r"\approx"))
    if set(relations) == {"="}:
        return _labelled_tuple(sides) or _equation(sides)
    bound = _bounds(sides, relations)
    if bound:
        return bound
    read_sides = _parts(sides)
    return Chain(read_sides, tuple(relations)) if len(read_sides) == len(sides) else None


def _rounded(sides: list[str], sign: int) -> Answer | None:
    r"""``x = \frac{5}{12} \approx 0.417`` states an exact value, ``x \approx 0.417`` does not."""
    if any(side and not is_label(side) for side in sides[: sign + 1]):
        return _equation(sides[: sign + 1]) if sign else _read(sides[0])
    value = _read(sides[sign + 1])
    return None if value is None else Approximate(value)


def _labelled_tuple(sides: list[str]) -> Answer | None:
    """``(x, y) = (3, 4)``, from either side."""
    if len(sides) != 2:
        return None
    for names, values in (sides, sides[::-1]):
        match = SYMBOLS.fullmatch(names)
        point = _read(values) if match else None
        if match and isinstance(point, Tup) and not point.labels:
            labels = tuple(plain_label(name) for name in match[1].split(","))
            if len(set(labels)) == len(labels) == len(point.parts):
                return replace(point, labels=labels)
    return None


def _equation(sides: list[str]) -> Answer | None:
    parts = _parts(sides)
    label = sides[0] if is_label(sides[0]) else None
    return Equation(parts, label) if len(parts) == len(sides) else None


def _bounds(sides: list[str], relations: list[str]) -> Inequality | None:
    r"""``x > 3``, ``3 < x``, ``-2 \le x < 7``, ``x \ne 5``: constant bounds of one unknown."""
    unknown = [k for k, side in enumerate(sides) if not is_constant(side)]
    if len(unknown) != 1 or not 2 <= len(sides) <= 3:
        return None
    k = unknown[0]
    if relations == [r"\ne"]:
        hole = _read(sides[1 - k])
        return Inequality(_squeeze(sides[k]), Region("minus", (Reals(), Items((hole,)))))
    if all(r in (">", r"\ge") for r in relations):
        sides, k = sides[::-1], len(sides) - 1 - k
        relations = [{">": "<", r"\ge": r"\le"}[r] for r in relations[::-1]]
    if not all(r in ("<", r"\le") for r in relations) or (len(sides) == 3 and k != 1):
        return None
    low = _read(sides[k - 1]) if k else Atom(r"-\infty")
    high = _read(sides[k + 1]) if k + 1 < len(sides) else Atom(r"\infty")
    opening = "[" if k and relations[k - 1] == r"\le" else "("
    closing = "]" if k + 1 < len(sides) and relations[k] == r"\le" else ")"
    return Inequality(_squeeze(sides[k]), Tup(opening, closing, (low, high)))


def _squeeze(text: str) -> str:
    """Drop the blanks that separate nothing: not that of ``\\sin x``."""
    return re.sub(r"(?<![A-Za-z]) | (?![A-Za-z])", "", text)


def _plus_minus(text: str) -> Answer | None:
    values = [] if is_wrapped(text, r"\{", r"\}") else each_sign(text)
    return Items(tuple(_flat(_parts(values))), unordered=True) if values else None


def _region(text: str) -> Answer | None:
    if _REALS.fullmatch(text):
        return Reals()
    if half := _HALF_LINE.fullmatch(text):
        zero = Atom("0")
        ends = (zero, Atom(r"\infty")) if half["positive"] else (Atom(r"-\infty"), zero)
        return Tup("(", ")", ends)
    if _EMPTY.fullmatch(text):
        return Items(())
    for operation, sign in (("union", _UNION), ("intersection", _INTERSECTION), ("minus", _MINUS)):
        pieces, _ = split_top(text, sign)
        if len(pieces) > 1:
            parts = _parts(pieces)
            return Region(operation, parts) if len(parts) == len(pieces) else None
    return None


def _set(text: str) -> Answer | None:
    if not is_wrapped(text, r"\{", r"\}"):
        return None
    inner = text[2:-2].strip()
    heads, signs = split_top(inner, _SUCH_THAT)
    if signs and heads[0].strip() and not is_constant(heads[0]):
        condition = inner[len(heads[0]) :].lstrip().removeprefix(signs[0])
        return _builder(heads[0].strip(), condition.strip())
    # the elements of {1,234, 5} are separated by commas, so no thousands are merged here
    elements, _ = split_top(inner, _COMMA)
    return Items(tuple(_flat(_parts(elements))), unordered=True, braces=True)


def _builder(head: str, condition: str) -> Answer | None:
    r"""``\{x \in D : condition\}``: a set of reals if the condition bounds x itself."""
    pieces, signs = split_top(head, _MEMBER)
    name, domain = pieces[0].strip(), _read(pieces[1]) if signs == [r"\in"] else Reals()
    met = _read(condition)
    if met is None or domain is None:
        return None
    about, members = split_top(condition, _MEMBER)
    bounds = isinstance(met, Inequality) and met.label == _squeeze(name)
    bounds |= members == [r"\in"] and about[0].strip() == name
    bounds |= all(isinstance(p, Equation) and p.label == name for p in getattr(met, "parts", [met]))
    if is_variable(name) and bounds and len(pieces) <= 2:
        return met if isinstance(domain, Reals) else Region("intersection", (domain, met))
    elements = _read(head)
    return None if elements is None else Chain((elements, met), (":",))


def _brackets(text: str) -> Answer | None:
    if is_wrapped(text, r"\langle", r"\rangle"):
        pieces, _ = split_top(text[7:-7], _COMMA)
        return Tup("(", ")", _parts(pieces))
    if (match := _POINT.fullmatch(text)) and is_wrapped(match[2], "(", ")"):  # P(3, 4)
        return _equation([match[1], match[2]])
    if len(text) < 2 or text[0] not in _CLOSING or text[-1] not in ")]":
        return None
    if not (is_wrapped(text, "(", text[-1]) or is_wrapped(text, "[", text[-1])):
        return None
    pieces, _ = split_top(text[1:-1], _COMMA)
    if len(pieces) == 1:
        return _read(pieces[0]) if text[-1] == _CLOSING[text[0]] else None
    parts = _parts(pieces)
    return Tup(text[0], text[-1], parts) if len(parts) == len(pieces) else None


def _matrix(text: str) -> Answer | None:
    match = _MATRIX.fullmatch(text)
    if match is None:
        return None
    lines = [line for line in re.split(r"\\\\(?:\[[^\]]*\])?", match[2]) if line.strip()]
    cells = [split_top(line, re.compile("&"))[0] for line in lines]
    rows = tuple(map(_parts, cells))
    empty = any(len(row) < len(line) for row, line in zip(rows, cells, strict=True))
    return Matrix(rows) if len({len(row) for row in rows}) == 1 and not empty else None


def read_based(text: str, sure: bool = False) -> Based | None:
    r"""Digits in a base. Without ``\text`` ``A5_{11}`` may be a name; `sure`: it is none."""
    match = _BASED.fullmatch(text)
    if match is None or not (sure or match[2] or match[3][0].isdigit()):
        return None
    name = re.sub(r"base|[\s()]", "", _TEXT.sub(r"\1", match[4]).strip("{} "))
    base = int(name) if name.isdecimal() and len(name) < 3 else words.number_word(name)
    digits = match[3].upper()
    if base is None or not 2 <= base <= 36 or digits.count(".") > 1:
        return None
    if any(int(d, 36) >= base for d in digits if d != "."):
        return None
    return Based(match[1] + (digits.lstrip("0") or "0"), base)


def _ratio(text: str) -> Answer | None:
    pieces, _ = split_top(text, _COLON)
    if len(pieces) == 1:
        return None
    parts = _parts(pieces)
    return Ratio(parts, text) if len(pieces) == len(parts) else None


def _amount(text: str) -> Answer | None:
    return read_amount(text, _read)


_READERS = (
    _time, _choice, _text, _lead_in, _list, _membership, _relation, _plus_minus, _region, _set,
    _matrix, read_based, _ratio, _named, _amount, _brackets,
)  # fmt: skip
