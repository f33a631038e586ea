"""Single expressions: LaTeX to sympy with math-verify's parser, and equality of two of them.

Runs in the worker processes only: sympy may take for ever on a hostile expression.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from itertools import count

import sympy
from math_verify import verify
from sympy.logic.boolalg import Boolean

from .parser import parse

MAX_EXPRESSION_CHARS = 500  # the golds of MATH stay below 200; the parser takes seconds beyond
_DIGITS = 30
_TOLERANCE = sympy.Float("1e-20", _DIGITS)
_NOISE = sympy.Float("1e-60", _DIGITS)
_OVER_RANGES = (sympy.Limit, sympy.Sum, sympy.Product, sympy.Integral)
# Where expressions with letters are compared: below and above one, and negative for |x| and roots.
_POINTS = tuple(
    tuple(sympy.Rational(p, q) for p, q in row)
    for row in (
        ((37, 101), (211, 103), (53, 107), (307, 109), (71, 113)),
        ((293, 101), (67, 103), (401, 107), (31, 109), (523, 113)),
        ((-59, 101), (131, 103), (-229, 107), (83, 109), (-17, 113)),
        ((-317, 101), (-41, 103), (173, 107), (-97, 109), (239, 113)),
    )
)

_SIMPLE_NUMBER = re.compile(r"(?P<sign>[+-]?)\s*(?P<whole>\d{0,2000})(?:\.(?P<part>\d{0,2000}))?")
_SIMPLE_FRACTION = re.compile(
    r"(?P<sign>[+-]?)\s*(?:\\frac\{\s*(?P<top>[+-]?\s*\d{1,40})\s*\}\{\s*(?P<bottom>\d{1,40})\s*\}"
    r"|(?P<top2>\d{1,40})\s*/\s*(?P<bottom2>\d{1,40}))"
)
_MIXED = re.compile(r"(?<![\d.^_)}A-Za-z])(\d+)\s*\\frac\{\s*(\d+)\s*\}\{\s*(\d+)\s*\}")
_MIXED_SLASH = re.compile(r"(?<![\d.^_)}A-Za-z])(?<!\d )(\d+) (\d+) ?/ ?(\d+)(?![\d.])")
# two numbers with nothing but a space between them, which the parser would glue or multiply
_SIDE_BY_SIDE = re.compile(r"(?:^|[^\d._^])[\d.]*\d\.?\s+\.?\d")
_PRIMED = re.compile(r"([A-Za-z](?:_\d|_\{\w+\})?)('+)")
_BAR = re.compile(r"(?<!\\)\|")
_OPENS = re.compile(r"[-+*/^_=<>,:(\[{]$|\\(?:cdot|times|div|pm|mp|lvert|lfloor|lceil)$")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar)\s*\{?(\d+)\}?")
_SCIENTIFIC = re.compile(r"([-+]?\s?\d*\.?\d+)[eE]([-+]?\d{1,4})")
_DECIMAL = re.compile(r"(\d*)\.(\d+)")
# what no formula has: with it the parser only loses time, seconds for a line of code
_NO_FORMULA = re.compile("[\"`@;\x00-\x1f\x7f\ud800-\udfff]|__|[(\\[]'")
# what the parser would drop: words, a second factorial (5!! is no (5!)!), a second decimal point
_DROPPED = re.compile(r"\\text|!\s*!|\.\d*\.")
# what the parser takes for a constant or an operation, but an answer uses as a name
_CAPITAL_I = re.compile(r"(?<!\\)(?:\\[A-Za-z]+|I(?:_(?:(\w)|\{(\w+)\}))?)")
_GAMMA = re.compile(r"\\(g|G)amma(?![A-Za-z])(?:_(?:(\w)|\{(\w+)\}))?")
_TRANSPOSED = re.compile(r"(?<!matrix\})\s*\^\s*(?:T|\{\s*T\s*\})")
_FLOORS = re.compile(r"\\([lr])(floor|ceil)(?![A-Za-z])")


def simple_fraction(text: str) -> Fraction | None:
    r"""Exact value of ``-12``, ``3.50``, ``\frac{7}{2}`` or ``7/2``; None for anything else."""
    text = text.strip()
    match = _SIMPLE_NUMBER.fullmatch(text)
    if match and (match["whole"] or match["part"]):
        part = match["part"] or ""
        value = Fraction(int((match["whole"] + part) or "0"), 10 ** len(part))
    else:
        match = _SIMPLE_FRACTION.fullmatch(text)
        if match is None:
            return None
        bottom = int(match["bottom"] or match["bottom2"])
        if bottom == 0:
            return None
        value = Fraction(int((match["top"] or match["top2"]).replace(" ", "")), bottom)
    return -value if match["sign"] == "-" else value


def _mixed_number(match: re.Match[str]) -> str:
    whole, top, bottom = match.groups()
    proper = int(top[:40]) < int(bottom[:40]) and len(top) <= len(bottom)
    return f"({whole}+\\frac{{{top}}}{{{bottom}}})" if proper else match[0]


def _primed_letter(match: re.Match[str]) -> str:
    """The parser drops primes; an index keeps y' apart from y."""
    name = re.sub(r"[_{}]", "", match[1])
    return f"{name[0]}_{{{name[1:]}prime{len(match[2])}}}"


def _plain_capital(match: re.Match[str]) -> str:
    """The parser reads I as the imaginary unit, with or without an index."""
    command = match[0].startswith("\\")
    return match[0] if command else f"J_{{capitalI{match[1] or match[2] or ''}}}"


def _repeating_decimal(match: re.Match[str]) -> str:
    whole, fixed, cycle = match.groups()
    tail = f"\\frac{{{cycle}}}{{{'9' * len(cycle)}{'0' * len(fixed)}}}"
    head = f"\\frac{{{whole or '0'}{fixed}}}{{1{'0' * len(fixed)}}}"
    return f"({head}+{tail})"


def _sided_bars(latex: str) -> str:
    """Tell the bars that open from those that close: of |x|+2|y| the parser makes |x(2|y|)|.

    A bar opens at the start, behind a sign or a bracket, and where none is open.
    """
    if len(_BAR.findall(latex)) % 2:  # a value at a place: x|_{x=1}
        return latex
    depth, opens = 0, False

    def sided(match: re.Match[str]) -> str:
        nonlocal depth, opens
        before = match.string[: match.start()].rstrip()
        if not before.endswith("|"):  # as the bar before it: ||x|-1|, |x-|y||
            opens = _OPENS.search(before) is not None
        opens = opens or depth == 0
        depth += 1 if opens else -1
        return r"\lvert " if opens else r"\rvert "

    return _BAR.sub(sided, latex)


def _exact(latex: str) -> str:
    """Write mixed numbers as sums and decimals as fractions, so that nothing is rounded."""
    if scientific := _SCIENTIFIC.fullmatch(latex):
        latex = rf"{scientific[1]} \cdot 10^{{{int(scientific[2])}}}"
    latex = _sided_bars(latex)
    latex = _MIXED_SLASH.sub(_mixed_number, latex)
    latex = _MIXED.sub(_mixed_number, latex)
    latex = _PRIMED.sub(_primed_letter, latex)
    latex = _CAPITAL_I.sub(_plain_capital, latex)
    latex = _GAMMA.sub(lambda m: f"{m[1]}_{{gamma{m[2] or m[3] or ''}}}", latex)
    latex = _TRANSPOSED.sub("^{T_{exponent}}", latex)
    latex = _REPEATING.sub(_repeating_decimal, latex)
    latex = _DECIMAL.sub(lambda m: f"(\\frac{{{m[1]}{m[2]}}}{{1{'0' * len(m[2])}}})", latex)
    return re.sub(r"(\d|\})\s*\\degree", r"\1 \\frac{\\pi}{180}", latex)


def _of_another_letter(expression: sympy.Basic) -> bool:
    """Whether there is a dy/dx: it is not known, and sympy takes y for a constant."""
    derivatives = expression.atoms(sympy.Derivative)
    return any(not d.expr.free_symbols.issuperset(d.variables) for d in derivatives)


@lru_cache(maxsize=4096)
def to_sympy(latex: str) -> sympy.Basic | None:
    """Parse one expression; None where the parser does not take all of it.

    Letters keep their case; ``i`` is the imaginary unit. What trails off in dots has no value.
    """
    if (number := simple_fraction(latex)) is not None:  # needs no parser
        return sympy.Rational(number.numerator, number.denominator)
    if len(latex) > MAX_EXPRESSION_CHARS:
        return None
    if _NO_FORMULA.search(latex) or _DROPPED.search(latex) or not _floors_close(latex):
        return None
    if "'" in _PRIMED.sub("", latex):  # the parser drops a prime behind anything but a name
        return None
    if _SIDE_BY_SIDE.search(_MIXED_SLASH.sub(_mixed_number, latex)) or r"\ldots" in latex:
        return None
    try:
        expression = parse(_exact(latex))
        if isinstance(expression, sympy.MatrixExpr):
            expression = expression.doit()
    except (ValueError, TypeError, ArithmeticError, AttributeError):  # a matrix without a power
        return None
    if not isinstance(expression, (sympy.Basic, sympy.MatrixBase)):
        return None
    if isinstance(expression, (sympy.Expr, sympy.MatrixBase)):
        if _counts_with_infinity(expression) or _of_another_letter(expression):
            return None
        letters = {s for s in expression.free_symbols if s.name == "i"}
        expression = expression.xreplace(dict.fromkeys(letters, sympy.I))
    elif isinstance(expression, Boolean):  # of 6==5 math-verify would compare the last side alone
        return None
    return expression


def _counts_with_infinity(expression: sympy.Basic) -> bool:
    """Whether infinity stands in a sum, product or power: sympy has 1 for its power of zero."""
    if expression in (sympy.oo, -sympy.oo) or not expression.has(sympy.oo, -sympy.oo):
        return False
    return not expression.has(*_OVER_RANGES)


def _floors_close(latex: str) -> bool:
    """Whether each floor and ceiling closes with its own sign; the parser drops lonely ones."""
    opened: list[str] = []
    for side, kind in _FLOORS.findall(latex):
        if side == "l":
            opened.append(kind)
        elif not opened or opened.pop() != kind:
            return False
    return not opened


def _value(expression: sympy.Basic, point: dict[sympy.Symbol, sympy.Rational]) -> sympy.Expr | None:
    """Number with 30 digits at `point`, or None where there is none (a pole, an unknown f(x))."""
    try:
        value = sympy.N(expression.subs(point), _DIGITS)
    except (TypeError, ValueError, ArithmeticError, AttributeError, NotImplementedError):
        return None
    if not value.is_number or value.has(sympy.nan, sympy.zoo):
        return None
    return value if value.is_infinite or value.is_finite else None


def close(a: sympy.Expr, b: sympy.Expr) -> bool:
    """Whether two numbers agree to 20 digits."""
    if a.is_infinite or b.is_infinite:
        return bool(a == b)
    return bool(abs(a - b) <= _TOLERANCE * max(abs(a), abs(b)))


def values(*expressions: sympy.Basic) -> list[tuple[sympy.Expr, ...]]:
    """Values of the expressions at common points, the points without a value left out."""
    found = []
    for point in _points(*expressions):
        numbers = [_value(e, point) for e in expressions]
        if all(n is not None for n in numbers):
            found.append(tuple(numbers))
    return found


def _points(*expressions: sympy.Basic) -> list[dict[sympy.Symbol, sympy.Rational]]:
    """Where to compare them; an empty point where they have no letters."""
    symbols = sorted(set().union(*(e.free_symbols for e in expressions)), key=str)
    # beyond five letters, coordinates move by whole numbers so that none repeats
    return [
        {s: row[k % 5] + 2 * (k // 5) for k, s in zip(count(), symbols, strict=False)}
        for row in (_POINTS if symbols else _POINTS[:1])
    ]


def same_expression(a: sympy.Basic, b: sympy.Basic) -> bool:
    """Whether two parsed expressions are equal in value for all values of their letters.

    Rational numbers are compared exactly. Anything else is evaluated with 30 digits at fixed
    rational points: a difference at any of them decides against, agreement at all of them for.
    Where that says nothing, math-verify's `verify` decides.
    """
    if isinstance(a, sympy.MatrixBase) or isinstance(b, sympy.MatrixBase):
        return _same_matrix(a, b)
    if isinstance(a, sympy.Expr) != isinstance(b, sympy.Expr):  # 5 and the set {5, 5} of 5 \pmod 0
        return False
    if not (a.free_symbols or b.free_symbols):
        exact_a, exact_b = a.doit(), b.doit()
        if exact_a.is_Rational and exact_b.is_Rational:
            return bool(exact_a == exact_b)
    pairs = values(a, b) if isinstance(a, sympy.Expr) and isinstance(b, sympy.Expr) else []
    if pairs and all(close(x, y) for x, y in pairs):
        needed = 2 if a.free_symbols | b.free_symbols else 1
        return len(pairs) >= needed and not _differ_slightly(a, b)
    if pairs and any(max(abs(x), abs(y)) > sympy.Float("1e-15") for x, y in pairs):
        return False
    if pairs:  # cancellation to almost nothing on both sides: only algebra can tell
        return bool(sympy.simplify(a - b) == 0)
    return bool(verify(a, b, float_rounding=12, timeout_seconds=None))


def _differ_slightly(a: sympy.Expr, b: sympy.Expr) -> bool:
    """Whether two that agree to 20 digits differ after all, as sqrt(10^40 + 1) and 10^20 or, at the
    first point, 3^2007 + C and 3^2007.

    A rational difference is exact. Of another one that is zero sympy finds nothing but the error of
    its last digits; for a sum up to n = 37/101 it would take 20 s.
    """
    point = _points(a, b)[0]
    difference = (a - b).subs(point)
    if difference.is_Rational:
        return bool(difference != 0)
    if point and difference.has(*_OVER_RANGES):
        return False
    difference = sympy.N(difference, 15, maxn=200)
    return bool(difference.is_finite and abs(difference) > abs(sympy.N(b.subs(point), 15)) * _NOISE)


def _same_matrix(a: sympy.Basic, b: sympy.Basic) -> bool:
    if not (isinstance(a, sympy.MatrixBase) and isinstance(b, sympy.MatrixBase)):
        return False
    return a.shape == b.shape and all(same_expression(x, y) for x, y in zip(a, b, strict=True))


def proportional(a: sympy.Basic, b: sympy.Basic) -> sympy.Expr | None:
    """The constant c with a = c·b at all common points, or None. Tells when equations agree."""
    pairs = values(a, b)
    pairs = [(x, y) for x, y in pairs if x != 0 or y != 0]
    if len(pairs) < 2 or any(x == 0 or y == 0 or x.is_infinite or y.is_infinite for x, y in pairs):
        return None
    ratios = [x / y for x, y in pairs]
    return ratios[0] if all(close(ratios[0], r) for r in ratios[1:]) else None


def real_value(latex: str) -> sympy.Expr | None:
    """Value of an end of an interval: a real number or plus or minus infinity, else None."""
    expression = to_sympy(latex)
    if not isinstance(expression, sympy.Expr) or expression.free_symbols:
        return None
    value = _value(expression, {})
    return value if value is not None and value.is_extended_real else None
