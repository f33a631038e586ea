"""Whether two answers of any kind say the same thing.

The gold comes first: it may be more explicit than the answer has to be (``x = 5`` for 5, ``12 cm``
for 12), and the answer may be more explicit than the gold; what both state must agree.
"""

from __future__ import annotations

import re
from fractions import Fraction

from . import algebra, labels, units, words
from .kinds import (
    Answer,
    Approximate,
    Atom,
    Based,
    Chain,
    Choice,
    Clock,
    Compound,
    Equation,
    Inequality,
    Items,
    Matrix,
    Named,
    Quantity,
    Ratio,
    Reals,
    Region,
    Text,
    Tup,
    latex_of,
    units_in,
)
from .line import line_cells
from .reading import read_based
from .several import same_in_any_order, same_several
from .units import Unit

_CENTS = {Unit("dollar"): 100, Unit("cent"): 1}
_SET_KINDS = (Region, Reals, Inequality)


def same(gold: Answer, answer: Answer, shortcuts: bool = True) -> bool:
    """Compare two answers; `shortcuts=False` sends equal strings and plain numbers to sympy too."""
    return _Comparison(shortcuts).same(gold, answer)


class _Comparison:
    def __init__(self, shortcuts: bool) -> None:
        self.shortcuts = shortcuts

    def same(self, gold: Answer, answer: Answer) -> bool:
        gold, answer = _single(gold), _single(answer)
        if isinstance(gold, Approximate):  # a rounded gold is met by its digits
            given = answer.value if isinstance(answer, Approximate) else answer
            return self.same(gold.value, given)
        if isinstance(answer, Approximate):
            return False
        if isinstance(gold, Choice) or isinstance(answer, Choice):
            return self._choices(gold, answer)
        if isinstance(gold, Equation) or isinstance(answer, Equation):
            return self._equations(gold, answer)
        if isinstance(gold, Compound) or isinstance(answer, Compound):
            return self._compounds(gold, answer)
        if isinstance(gold, Quantity) or isinstance(answer, Quantity):
            if isinstance(gold, Clock | Based) or isinstance(answer, Clock | Based):
                return False
            return self._quantities(gold, answer)
        if isinstance(gold, _SET_KINDS) or isinstance(answer, _SET_KINDS):
            return self._regions(gold, answer)
        if isinstance(gold, Based) or isinstance(answer, Based):
            return self._based(gold, answer)
        if isinstance(gold, Clock) or isinstance(answer, Clock):
            return _clocks(gold, answer)
        if isinstance(gold, Named) or isinstance(answer, Named):
            return self._named(gold, answer)
        if isinstance(gold, Text) or isinstance(answer, Text):
            return self._texts(gold, answer)
        if isinstance(gold, Ratio) or isinstance(answer, Ratio):
            return self._ratios(gold, answer)
        if isinstance(gold, Items | Tup) and isinstance(answer, Items | Tup):
            return same_several(gold, answer, self._same_part)
        if isinstance(gold, Chain) and isinstance(answer, Chain):
            return self._chains(gold, answer)
        if isinstance(gold, Matrix) or isinstance(answer, Matrix):
            return self._matrices(gold, answer)
        if isinstance(gold, Atom) and isinstance(answer, Atom):
            return self._atoms(gold.latex, answer.latex)
        return False

    def _each(self, gold: tuple[Answer, ...], answer: tuple[Answer, ...]) -> bool:
        return len(gold) == len(answer) and all(map(self.same, gold, answer))

    def _same_part(self, gold: Answer, answer: Answer) -> bool:
        """Compare parts of two lists, sets or tuples: there, the set {1} is not 1."""
        sets = [isinstance(part, Items) and part.braces for part in (gold, answer)]
        return sets[0] == sets[1] and self.same(gold, answer)

    def _atoms(self, gold: str, answer: str) -> bool:
        if self.shortcuts:
            if _squeeze(gold) == _squeeze(answer):
                return True
            exact = algebra.simple_fraction(gold), algebra.simple_fraction(answer)
            if None not in exact:
                return exact[0] == exact[1]
        a, b = algebra.to_sympy(gold), algebra.to_sympy(answer)
        return a is not None and b is not None and algebra.same_expression(a, b)

    def _equations(self, gold: Answer, answer: Answer) -> bool:
        if not (isinstance(gold, Equation) and isinstance(answer, Equation)):
            return self._stated_value(gold, answer)
        gold, answer = _label_first(gold), _label_first(answer)
        if self._each(gold.sides, answer.sides):
            return True
        last = gold.sides[-1]
        values = answer.sides[1:]  # x = 6 = 5 is no way to say x = 5
        if _same_label(gold.label, answer.label) and all(self.same(last, v) for v in values):
            return True
        # the answer to "x = 5" must be solved for x too; other equations may be rearranged
        solved = gold.label and isinstance(last, Atom) and _is_number(last.latex)
        return not solved and self._rearranged(gold, answer)

    def _rearranged(self, gold: Equation, answer: Equation) -> bool:
        differences = []
        for equation in (gold, answer):
            plain = all(
                isinstance(side, Atom) or (isinstance(side, Text) and side.bare)
                for side in equation.sides
            )
            if len(equation.sides) != 2 or not plain:
                return False
            sides = [algebra.to_sympy(latex_of(side)) for side in equation.sides]
            if any(side is None or not hasattr(side, "is_commutative") for side in sides):
                return False
            differences.append(sides[0] - sides[1])
        return algebra.proportional(*differences) is not None

    def _stated_value(self, gold: Answer, answer: Answer) -> bool:
        """``x = 5`` against 5, or a true chain such as ``0.56 = 56%`` against either side."""
        equation = _label_first(gold if isinstance(gold, Equation) else answer)
        named = equation.label is not None
        if equation is not gold and not isinstance(gold, Equation):
            named = labels.states_its_value(latex_of(equation.sides[0]), equation.label)
        sides = equation.sides[1:] if named else equation.sides
        if not named and not all(
            isinstance(side, Atom | Quantity) and _is_number(latex_of(side)) for side in sides
        ):
            return False
        if isinstance(gold, Equation):
            return all(self.same(side, answer) for side in sides)
        return all(self.same(gold, side) for side in sides)

    def _quantities(self, gold: Answer, answer: Answer) -> bool:
        if isinstance(gold, Quantity) and isinstance(answer, Quantity):
            if units.agree(gold.unit, answer.unit):
                return self.same(gold.value, answer.value)
            return self._same_money(gold, answer)
        quantity, other = (gold, answer) if isinstance(gold, Quantity) else (answer, gold)
        if quantity is answer and not quantity.unit.plain:  # an added unit must be one for sure
            return False
        if quantity.unit.name == "degree" and r"\pi" in latex_of(quantity.value):
            return False  # pi / 4 without a sign is in radians
        if self.same(quantity.value, other):
            return True
        tail = units.letter_unit(other.latex) if isinstance(other, Atom) else None
        if tail and tail[1] == quantity.unit:  # "5 m" might be a product, but not against metres
            return self.same(quantity.value, Atom(tail[0]))
        if quantity.unit.name != "%" or not isinstance(quantity.value, Atom):
            return False
        return self.same(Atom(f"\\frac{{{quantity.value.latex}}}{{100}}"), other)

    def _compounds(self, gold: Answer, answer: Answer) -> bool:
        """3 hours 30 minutes are 3 h and 30 min; nothing may be left out or converted."""
        sides = [_by_unit(side) for side in (gold, answer)]
        if None in sides or sides[0].keys() != sides[1].keys():
            return False
        return all(self.same(sides[0][unit], sides[1][unit]) for unit in sides[0])

    def _same_money(self, gold: Quantity, answer: Quantity) -> bool:
        """50 cents are $0.50."""
        if gold.unit not in _CENTS or answer.unit not in _CENTS:
            return False
        ours, theirs = (
            Atom(f"({latex_of(side)}) \\cdot {_CENTS[side.unit]}") for side in (gold, answer)
        )
        return self.same(ours, theirs)

    def _choices(self, gold: Answer, answer: Answer) -> bool:
        """``(C) 12`` against the letter, or against 12."""
        if isinstance(gold, Choice) and isinstance(answer, Choice):
            return gold.letter == answer.letter and self.same(gold.value, answer.value)
        choice, other = (gold, answer) if isinstance(gold, Choice) else (answer, gold)
        letter = words.choice_letter(latex_of(other))
        if letter:
            return letter == choice.letter
        gold, answer = (a.value if a is choice else a for a in (gold, answer))
        return self.same(gold, answer)

    def _named(self, gold: Answer, answer: Answer) -> bool:
        """``\\overline{AB}`` against AB or BA; rays read one way, triangles any."""
        if isinstance(gold, Named) and isinstance(answer, Named):
            if gold.sign != answer.sign or gold.letters == answer.letters:
                return gold.sign == answer.sign
            if gold.sign == "triangle":
                return sorted(gold.letters) == sorted(answer.letters)
            return gold.sign != "overrightarrow" and gold.letters == answer.letters[::-1]
        named, other = (gold, answer) if isinstance(gold, Named) else (answer, gold)
        return self.same(Text(named.letters, bare=True), other)

    def _texts(self, gold: Answer, answer: Answer) -> bool:
        if isinstance(gold, Text) and isinstance(answer, Text):
            letters = words.choice_letter(gold.raw), words.choice_letter(answer.raw)
            if gold.raw.count("'") != answer.raw.count("'"):  # B'C' and BC
                return False
            if gold.bare and answer.bare and _may_be_product(gold.raw, answer.raw):
                return self._atoms(gold.raw, answer.raw)
            if None not in letters:
                return letters[0] == letters[1]
            return words.plain_words(gold.raw) == words.plain_words(answer.raw)
        text, other = (gold, answer) if isinstance(gold, Text) else (answer, gold)
        if isinstance(other, Atom) and (text.bare or len(text.raw) == 1):
            a, b = (gold, answer) if text is gold else (answer, gold)
            return self._atoms(latex_of(a), latex_of(b))
        return False

    def _ratios(self, gold: Answer, answer: Answer) -> bool:
        if isinstance(gold, Ratio) and isinstance(answer, Ratio):
            if len(gold.parts) != len(answer.parts):
                return False
            if self._each(gold.parts, answer.parts):
                return True
            if words.clock_time(gold.text):  # 2:15 and 4:30 are different times
                return False
            shares = [_share(r) for r in (gold, answer)]
            return None not in shares and shares[0] == shares[1]
        ratio, other = (gold, answer) if isinstance(gold, Ratio) else (answer, gold)
        if len(ratio.parts) != 2 or not all(isinstance(p, Atom) for p in ratio.parts):
            return False
        if words.clock_time(ratio.text):  # 10:30 is no third
            return False
        top, bottom = (latex_of(part) for part in ratio.parts)
        quotient = Atom(f"\\frac{{{top}}}{{{bottom}}}")
        return isinstance(other, Atom) and self.same(quotient, other)

    def _based(self, gold: Answer, answer: Answer) -> bool:
        """An answer without a base is taken to be in the gold's; a gold without one is in ten."""
        if isinstance(gold, Based) and isinstance(answer, Atom):
            answer = read_based(answer.latex, sure=True) or answer
        if isinstance(gold, Based) and isinstance(answer, Based):
            return gold == answer
        based, other = (gold, answer) if isinstance(gold, Based) else (answer, gold)
        if based.base == 10:
            return self.same(Atom(based.digits), other)
        digits = latex_of(other) if isinstance(other, Atom | Text) else ""
        same_digits = digits.upper().lstrip("0") == based.digits.lstrip("0")
        return based is gold and bool(digits) and same_digits

    def _chains(self, gold: Chain, answer: Chain) -> bool:
        flip = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
        if gold.relations == answer.relations and self._each(gold.sides, answer.sides):
            return True
        mirrored = tuple(flip.get(r, r) for r in answer.relations[::-1])
        return gold.relations == mirrored and self._each(gold.sides, answer.sides[::-1])

    def _matrices(self, gold: Answer, answer: Answer) -> bool:
        if isinstance(gold, Matrix) and isinstance(answer, Matrix):
            shapes = [(len(m.rows), len(m.rows[0])) for m in (gold, answer)]
            return shapes[0] == shapes[1] and all(map(self._each, gold.rows, answer.rows))
        matrix, other = (gold, answer) if isinstance(gold, Matrix) else (answer, gold)
        if isinstance(other, Tup) and (other.opening, other.closing) == ("(", ")"):
            column, point = tuple(row[0] for row in matrix.rows), labels.in_order(other)
            return len(matrix.rows[0]) == 1 and point is not None and self._each(column, point)
        parsed = algebra.to_sympy(other.latex) if isinstance(other, Atom) else None
        if not hasattr(parsed, "tolist"):
            return False
        entries = [[algebra.to_sympy(latex_of(e)) for e in row] for row in matrix.rows]
        theirs = parsed.tolist()
        return [len(r) for r in entries] == [len(r) for r in theirs] and all(
            a is not None and algebra.same_expression(a, b)
            for row, their_row in zip(entries, theirs, strict=True)
            for a, b in zip(row, their_row, strict=True)
        )

    def _regions(self, gold: Answer, answer: Answer) -> bool:
        both = isinstance(gold, Inequality) and isinstance(answer, Inequality)
        if both and gold.label != answer.label:
            return False
        if not both and isinstance(answer, Inequality) and not labels.is_variable(answer.label):
            return False  # 2x > 3 is not x > 3
        if not both and isinstance(gold, Inequality) and not labels.may_be_bounded(gold.label):
            return False
        gold, answer = (a.region if isinstance(a, Inequality) else a for a in (gold, answer))
        cells = line_cells(gold, answer) if _units_agree(gold, answer) else None
        if cells is not None:
            return cells[0] == cells[1]
        if isinstance(gold, Region) and isinstance(answer, Region):  # ends with letters
            ours, theirs = (
                "union" if r.operation == "list" else r.operation for r in (gold, answer)
            )
            same_operation = ours == theirs
            if gold.operation == "minus":
                return same_operation and self._each(gold.parts, answer.parts)
            return same_operation and same_in_any_order(gold.parts, answer.parts, self.same)
        intervals = isinstance(gold, Tup) and isinstance(answer, Tup)  # 1 < x < 2 is no vector
        return intervals and self.same(gold, answer)


def _single(answer: Answer) -> Answer:
    """A list or set of one is that one; the set of a set is not that set."""
    if not isinstance(answer, Items) or len(answer.parts) != 1:
        return answer
    only = answer.parts[0]
    return answer if isinstance(only, Items) and (only.braces or not only.parts) else only


def _units_agree(gold: Answer, answer: Answer) -> bool:
    """Whether the ends of two sets of numbers have one unit, or the answer's a plain one more."""
    ours, theirs = (set(units_in(side)) for side in (gold, answer))
    if not ours:
        return len(theirs) <= 1 and all(unit.plain for unit in theirs)
    return all(units.agree(a, b) for a in ours for b in theirs)


def _by_unit(answer: Answer) -> dict[Unit, Answer] | None:
    """The values of a `Compound`, or of a list that could be one, by their units."""
    listed = isinstance(answer, Items) and not answer.unordered
    parts = answer.parts if listed or isinstance(answer, Compound) else ()
    found = {part.unit: part.value for part in parts if isinstance(part, Quantity)}
    return found if len(found) == len(parts) > 1 else None


def _squeeze(latex: str) -> str:
    """Drop the spaces that separate nothing: not those of ``3 5`` or ``\\pi r``."""
    return re.sub(r"(?<![\w.]) | (?![\w.])", "", latex)


def _may_be_product(gold: str, answer: str) -> bool:
    """xy is yx, and the segment AB is BA; three capitals are a name or a code."""
    longest = max(len(gold), len(answer))
    return longest <= 3 and not (longest == 3 and gold.isupper() and answer.isupper())


def _is_number(latex: str) -> bool:
    parsed = algebra.to_sympy(latex)
    return parsed is not None and not parsed.free_symbols


def _label_first(equation: Equation) -> Equation:
    """``4 = b`` is ``b = 4``."""
    last = equation.sides[-1]
    if equation.label is None and len(equation.sides) == 2 and isinstance(last, Text | Atom):
        name = latex_of(last)
        if len(name) == 1 and name.isalpha():
            return Equation(equation.sides[::-1], name)
    return equation


def _same_label(gold: str | None, answer: str | None) -> bool:
    """Equal names; one in words, such as "Area", may stand for any."""
    if gold is None or answer is None:
        return False
    return "\\text" in gold + answer or gold.replace(" ", "") == answer.replace(" ", "")


def _share(ratio: Ratio) -> tuple[Fraction, ...] | None:
    """The ratio scaled to a first part of 1; None if not of plain numbers or a zero comes first."""
    numbers = [algebra.simple_fraction(p.latex) for p in ratio.parts if isinstance(p, Atom)]
    if len(numbers) < len(ratio.parts) or None in numbers or not numbers[0]:
        return None
    return tuple(n / numbers[0] for n in numbers)


def _clocks(gold: Answer, answer: Answer) -> bool:
    """A missing a.m./p.m. mark is forgiven, a different one is not; 9 a.m. may be given as 9."""
    if isinstance(gold, Clock) and isinstance(answer, Clock):
        return gold.seconds == answer.seconds
    clock, other = (gold, answer) if isinstance(gold, Clock) else (answer, gold)
    if isinstance(other, Ratio):
        time = words.clock_time(other.text)
        # 16:30 and 0:30 leave no doubt, and 12:30 without a mark is half past noon
        sure = time is not None and not 3600 <= time[0] < 12 * 3600
        return time is not None and (clock.seconds - time[0]) % (86400 if sure else 43200) == 0
    hour = algebra.simple_fraction(latex_of(other)) if isinstance(other, Atom) else None
    if hour is None or hour.denominator > 1 or not 0 < hour <= 12:
        return False
    return (clock.seconds - 3600 * hour) % (86400 if hour == 12 else 43200) == 0
