"""math-verify's parser of LaTeX, made strict: what has two readings has none.

Runs in the worker processes only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy

_CASE_KEPT = ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False)
_DIVISIONS = ("/", r"\div", ":")
_OPERATION = re.compile(r"[*/:]|\\(?:cdot|times|div)(?![A-Za-z])")
_TRIGONOMETRY = r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)"
_FUNCTION = re.compile(rf"{_TRIGONOMETRY}|\\(?:log|ln|lg|exp)")
_ANGLE = re.compile(rf"{_TRIGONOMETRY}(?:\^\{{?\d+\}}?)?\d*\\pi/\d+")
_BRACKET_BEHIND = re.compile(r"[\w}][(\[]")
_SIGNED_GROUP = re.compile(r"\{+[-+]|\{[^(\[]*[\w}][-+]")
_DIGITS = re.compile(r"\{*[\d.]+\}*")
_PRINTS_DIGITS = re.compile(r"\{*[\d.]|\{+\\frac|\\frac\{\{|\\frac\{\d+\}\{\{")
_RAISED_NAME = re.compile(r"\\?[A-Za-z]+(?:_\w|_\{\w+\})?\^(?:\w|\{[^{}]*\})")


class _TwoReadingsError(Exception):
    """What is written may mean two things."""


def parse(latex: str) -> object | None:
    """The reading of the whole expression, None where there is none.

    `math_verify.parse` would go on there, and take any fraction inside for the whole.
    """
    try:
        return _Parser(config=_CASE_KEPT).parse(latex)
    except Exception:  # the parser's are bare ones
        return None


class _Parser(_Latex2Sympy):
    """Each method has the name of a rule of the grammar, whose node it takes."""

    def convert_postfix_list(self, factors: Sequence[Any], first: int = 0) -> Any:
        r"""Side by side is a product. The parser would add an integer and the fraction behind it,
        whatever its settings say of mixed numbers."""
        factor = self.convert_postfix(factors[first])
        if isinstance(factor, list):  # d/dx of what follows
            return super().convert_postfix_list(factors, first)
        if first == len(factors) - 1 or not isinstance(factor, (sympy.Expr, sympy.MatrixBase)):
            return factor
        ours, behind = (factors[first + i].getText() for i in (0, 1))
        if _DIGITS.fullmatch(ours) and _PRINTS_DIGITS.match(behind):
            raise _TwoReadingsError  # 2{3} is seen as 23, 3{\frac12} as a mixed number
        rest = self.convert_postfix_list(factors, first + 1)
        matrix = any(getattr(part, "is_Matrix", False) for part in (factor, rest))
        return (self.mat_mul_flat if matrix else self.mul_flat)(factor, rest)

    def convert_postfix(self, postfix: Any) -> Any:
        """Where a value at a place starts is not seen: 2x + 1|_{x=3} might be 7."""
        if any(sign.eval_at() for sign in postfix.postfix_op()):
            raise _TwoReadingsError
        return super().convert_postfix(postfix)

    def convert_exp(self, exp: Any) -> Any:
        """TeX takes no 2^3^2: it might be 64 or 512. An index behind the exponent is dropped by the
        parser: 2^{5}_6."""
        base = exp.exp() if hasattr(exp, "exp") else exp.exp_nofunc()
        nested = base and (base.exp() if hasattr(base, "exp") else base.exp_nofunc())
        if nested or (base and _RAISED_NAME.fullmatch(base.getText())):
            raise _TwoReadingsError
        if base and exp.subexpr():
            raise _TwoReadingsError
        return super().convert_exp(exp)

    def convert_atom(self, atom: Any) -> Any:
        """The parser drops the index of a number: 2^5_6."""
        if atom.number_subexpr() and atom.number_subexpr().subexpr():
            raise _TwoReadingsError
        return super().convert_atom(atom)

    def convert_mp(self, mp: Any) -> Any:
        """A slash has one factor behind it: 1/2(x+1) might be half of x+1."""
        if mp.getChildCount() == 3:
            _, sign, operand = mp.getChildren()
            if sign.getText() in _DIVISIONS and _factors(operand) > 1:
                raise _TwoReadingsError
        return super().convert_mp(mp)

    def convert_func(self, func: Any) -> Any:
        r"""Of \ln 2 \cdot \ln 3 the parser takes all behind it for the argument of the first ln;
        here that is the first operand, and a function may follow. Anything else may belong to
        either side: \ln 2/2 might be the ln of 1. Only \sin \pi/6 is clear."""
        value = super().convert_func(func)
        based = func.getText().startswith((r"\log", r"\ln"))
        if func.func_normal_single_arg() and func.subexpr() and not based:
            raise _TwoReadingsError  # the parser drops the index of \sin_2 x
        alone = func.func_normal_single_arg() and func.func_single_arg_noparens()
        if not alone or _ANGLE.fullmatch(func.getText()):
            return value
        _, *others = _operands(alone.mp_nofunc())
        for sign, operand in zip(others[::2], others[1::2], strict=True):
            text, divides = operand.getText(), sign.getText() in _DIVISIONS
            if not _FUNCTION.match(text) or (divides and _OPERATION.search(text)):
                raise _TwoReadingsError
            other = self.convert_mp(operand)
            value = self.mul_flat(value, sympy.Pow(other, -1, evaluate=False) if divides else other)
        return value

    def convert_func_arg(self, arg: Any) -> Any:
        if hasattr(arg, "expr") or _ANGLE.fullmatch(arg.parentCtx.getText()):
            return super().convert_func_arg(arg)
        operand = _operands(arg.mp_nofunc())[0]
        if _BRACKET_BEHIND.search(operand.getText()):  # sin x(1+y), sin 2(x+y)
            raise _TwoReadingsError
        return self.convert_mp(operand)

    def convert_comp(self, comp: Any) -> Any:
        """Braces alone print nothing: {-2}^2 is seen as -2^2."""
        if comp.group() and _SIGNED_GROUP.match(comp.getText()):
            raise _TwoReadingsError
        return super().convert_comp(comp)


def _operands(mp: Any) -> list[Any]:
    """The operands of a product or quotient and the signs between them, from the left."""
    if mp.getChildCount() != 3:
        return [mp]
    return [*_operands(mp.getChild(0)), mp.getChild(1), mp.getChild(2)]


def _factors(operand: Any) -> int:
    """How many factors stand side by side."""
    unary = operand.getChild(0)
    while unary.getChild(0).getText() in ("+", "-"):
        unary = unary.getChild(1)
    return int(unary.getChildCount())
