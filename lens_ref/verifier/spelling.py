r"""One spelling for each thing LaTeX can say in several ways (``\dfrac12`` -> ``\frac{1}{2}``).

``respell`` changes how an answer is written, never what it says: spacing, fonts, delimiters'
sizes, Unicode signs, thousands separators and the words "and" / "or" come out uniform.
"""

from __future__ import annotations

import re
import string

AND, OR = "\\AND ", "\\OR "

_UNICODE = {
    "−": "-", "–": "-", "—": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ",
    "÷": r"\div ", "°": r"^\circ ", "π": r"\pi ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ",
    "≠": r"\ne ", "≈": r"\approx ", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ",
    "∈": r"\in ", "∉": r"\notin ", "∅": r"\emptyset ", "ℝ": r"\mathbb{R}",
    "⟨": r"\langle ", "⟩": r"\rangle ",
    "∖": r"\setminus ", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}",
    "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "θ": r"\theta ",
    "α": r"\alpha ", "β": r"\beta ", "’": "'", "‘": "'", "“": '"', "”": '"', "，": ",",
    "…": r"\ldots ",
    "⅕": r"\frac{1}{5}", "⅖": r"\frac{2}{5}", "⅗": r"\frac{3}{5}", "⅘": r"\frac{4}{5}",
    "⅙": r"\frac{1}{6}", "⅚": r"\frac{5}{6}", "⅛": r"\frac{1}{8}", "⅜": r"\frac{3}{8}",
    "⅝": r"\frac{5}{8}", "⅞": r"\frac{7}{8}", "∴": r"\therefore ", "✓": r"\checkmark ",
    "✔": r"\checkmark ", "（": "(", "）": ")", "\u00a0": " ",
    "\u2009": " ", "\u202f": " ", "‐": "-", "‑": "-", "﹣": "-", "－": "-",
    "\u200b": "", "\u200c": "", "\u200d": "", "\u200e": "", "\u2060": "", "\ufeff": "",
}  # fmt: skip
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉ₙ", "0123456789n", strict=True))
_SCRIPTS = re.compile(f"(?P<up>[{''.join(_RAISED)}]+)|(?P<down>[{''.join(_LOWERED)}]+)")
# the root of all digits behind it, as √12 is printed
_ROOT_SIGN = re.compile(r"(?:(?P<cube>∛)|√|(?<![A-Za-z\\])sqrt)\s*(?P<digits>\d+(?:\.\d+)?)?")
_UNICODE_TABLE = str.maketrans(_UNICODE)

_TEXT_MACROS = (
    r"text|mbox|hbox|textbf|textit|textrm|textnormal|textsf|texttt|emph|mathrm|mathbf|mathit"
    r"|mathsf|boldsymbol|bm|operatorname\*?"
)
_FUNCTIONS = (
    "arcsin|arccos|arctan|arccot|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|gcd|lcm"
    "|max|min|det"
)

_DOTTED = r"\\dot(?![A-Za-z])\s?\{?(\d)\}?"
_VALUE_START = r"[-+]?\s*(?:\.?\d|\(|[A-Za-z]\w?\s*=|\\[dt]?frac|\\sqrt|\\[a-z]+\s*=)"
_BRACED = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_FRACTION = rf"\\frac{_BRACED}{_BRACED}"
_GREEK = "(?:alpha|beta|gamma|delta|theta|lambda|mu|pi|rho|sigma|phi|omega)(?![A-Za-z])"

# (pattern, replacement) pairs, applied in this order.
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:boxed|fbox)\s*(?=\{)", ""),
        (r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\s*\.?(?=\s*)", ""),
        (r"\\(?:displaystyle|textstyle|limits|nolimits|rm|bf|it)(?![A-Za-z])", ""),
        # sizes, colours and marks around an answer say nothing
        (r"\\(?:tiny|small|normalsize|large|Large|LARGE|huge|Huge)(?![A-Za-z])", ""),
        (r"\\(?:text)?color\s*\{[A-Za-z!0-9]*\}(?=\s*\S)", ""),
        (r"\\underline\s*\{\s*(-?[\d.,]+)\s*\}", r"\1"),
        (r"^\s*\\therefore(?![A-Za-z])|\\checkmark\s*$", ""),
        (r"\\[hv]?phantom\s*(?:\{[^{}]*\}|[^{}\s])|\\vspace\*?\s*\{[^{}]*\}", " "),
        (r"\\hspace\*?\s*\{[^{}]*\}", r"\\quad "),
        # thousands: 12,\!345  12{,}345 ; other uses of these commas are list separators
        (r"(?<=\d)\s*(?:,\s*\\!\s*|\{\s*,\s*\}|,\\,)(?=\d{3}(?!\d))", ""),
        # a wide space between two values separates them like a comma
        (r"(?<=[\w)}\]])\s*[,;]?\s*(?:\\q?quad(?![A-Za-z])\s*)+(?=" + _VALUE_START + ")", ", "),
        (r"\.{3,}|\\[cld]?dots[cbmio]?(?![A-Za-z])", r"\\ldots "),
        (r"\^\s*\{?\s*\\prime\s*\\prime\s*\}?", "''"),
        (r"\^\s*(?:\\prime(?![A-Za-z])|\{\s*\\prime\s*\})|\\prime(?![A-Za-z])", "'"),
        (r"(?<![A-Za-z])\{\s*,\s*\}", ","),
        (r"\\!", ""),
        # a backslash that follows another one ends a matrix row and must stay
        (r"(?<!\\)\\(?:[,;:> \n]|(?:quad|qquad|enspace|thinspace|space)(?![A-Za-z]))|~", " "),
        (r"\\(?:[dtcsx]|nice)frac(?![A-Za-z])", r"\\frac"),
        (r"\\log\s?_\s?(?:e(?![A-Za-z])|\{\s?e\s?\})", r"\\ln "),
        (r"\{([^{}]{1,80})\\choose(?![A-Za-z])([^{}]{1,80})\}", r"\\binom{\1}{\2}"),
        (r"(?<=[\w)}])\*\*(?=[\w({\\-])", "^"),  # x**2
        (r"\+\s?/\s?-|(?:^|(?<=[=,]))\s?\+\s?-(?=\s?[\d\\A-Za-z])", r"\\pm "),
        # repeating decimals: 0.\dot{3}, 0.\dot{1}2\dot{3}, 0.(3) and 0.1666... to one way
        (r"(?<=\.)(\d*)" + _DOTTED + r"(\d*)" + _DOTTED, r"\1\\overline{\2\3\4}"),
        (r"(?<=\.)(\d*)" + _DOTTED + r"(?!\s*\d)", r"\1\\overline{\2}"),
        (r"(?<=\d\.)\((\d+)\)$", r"\\overline{\1}"),
        (r"(?<=\.)(\d*?)(\d)\2\2+\s?\\ldots", r"\1\\overline{\2}"),
        (r"(?<=\.)(\d*?)(\d{2,6}?)\2+\s?\\ldots", r"\1\\overline{\2}"),
        (r"\^\s*\\(?:circ|degree)(?![A-Za-z])|\\degree(?![A-Za-z])", r"\\degree "),
        (r"\^\s*\{\s*(?:\\circ|\\degree)\s*\}", r"\\degree "),
        (r"\\(?:leqslant|leqq|leq)(?![A-Za-z])|<=", r"\\le "),
        (r"\\(?:geqslant|geqq|geq)(?![A-Za-z])|>=", r"\\ge "),
        (r"\\neq(?![A-Za-z])|\\not\s*=|!=", r"\\ne "),
        (r"\\not\s*\\in(?![A-Za-z])", r"\\notin "),
        (r"\\not\s*(?:<|\\lt(?![A-Za-z]))|\\nless(?![A-Za-z])", r"\\ge "),
        (r"\\not\s*(?:>|\\gt(?![A-Za-z]))|\\ngtr(?![A-Za-z])", r"\\le "),
        (r"\\not\s*\\le(?![A-Za-z])|\\nleq(?:q|slant)?(?![A-Za-z])", ">"),
        (r"\\not\s*\\ge(?![A-Za-z])|\\ngeq(?:q|slant)?(?![A-Za-z])", "<"),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\(?:simeq|doteq)(?![A-Za-z])", r"\\approx "),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"\\colon(?![A-Za-z])", ":"),
        (r"\\(?:varnothing|O)(?![A-Za-z])", r"\\emptyset "),
        (r"\\(?:smallsetminus|backslash)(?![A-Za-z])", r"\\setminus "),
        (r"\\(?:mathbf|boldsymbol|bm)\s*\{\s*([A-Za-z0-9.]+)\s*\}", r"\1"),
        (r"\\(?:mathrm|text)\s*\{\s*([ei])\s*\}", r"\1"),
        (r"\\operatorname\*?\s*\{\s*(" + _FUNCTIONS + r")\s*\}", r"\\\1 "),
        (r"\\(?:" + _TEXT_MACROS + r")\s*\{", r"\\text{"),
        (r"\\text\{([^{}]*)\}\s*/\s*\\text\{", r"\\text{\1/"),  # \text{m} / \text{s}
        (r"\\frac\s*\{\s*\\text\{([^{}]*)\}\s*\}\s*\{\s*\\text\{([^{}]*)\}\s*\}", r"\\text{\1/\2}"),
        (r"\\text\{\s*,?\s*(?:and|AND)\s*,?\s*\}|\\(?:land|wedge)(?![A-Za-z])", r"\\AND "),
        (r"\\text\{\s*,?\s*(?:or|OR)\s*,?\s*\}|\\(?:lor|vee)(?![A-Za-z])", r"\\OR "),
        (r"\\text\{\s*\(?(?:in )?base[ -]?(\w+)\)?\s*\}", r"_{\1}"),
        (r"\\text\{\s*\(?(?:in )?base\s*\}\s*\{?(\d+)\}?\)?", r"_{\1}"),
        (r"\\text\{\s*,\s*\}", ","),
        (r"\\text\{\s*\}", " "),
        (r"(?<![\^_}A-Za-z])(?:\\text)?\{\s*([-+])\s*\}", r"\1"),
        (r"(?<=[\d\s])\(\s*\\text\{([^{}()]*)\}\s*\)", r"\\text{(\1)}"),  # 42 (\text{units})
        (r"(?<![A-Za-z\\])(?:infinity|inf|oo)(?![A-Za-z])", r"\\infty "),
        (r"(^|[(\[,;=<>]|\\(?:le|ge|to)\s)\s*\+\s*\\infty", r"\1\\infty"),
        (r"(?<![A-Za-z\\{])(sqrt|pi|sin|cos|tan|log|ln)(?![A-Za-z])", r"\\\1"),
        (r"\\sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"\\sqrt\s*(\d(?![\d.])|[A-Za-z])", r"\\sqrt{\1}"),
        (r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}"),
        (r"\\frac\s*([0-9A-Za-z])\s*(?=\{)", r"\\frac{\1}"),
        (r"\\frac(?:\s+(?=[A-Za-z])|\s*(?=\d))(\w)\s*(?=[0-9A-Za-z\\])", r"\\frac{\1}"),
        (r"\\frac\s*(\\(?:" + _GREEK + r"))\s*(?=[0-9A-Za-z{\\])", r"\\frac{\1}"),
        (r"\\frac\s+\{", r"\\frac{"),
        (r"\\[dt]?binom\s*(\d)\s*(\d)", r"\\binom{\1}{\2}"),
        (r"(\\frac" + _BRACED + r")\s*([0-9A-Za-z]|\\(?:" + _GREEK + r"))", r"\1{\2}"),
        (r"\}\s+\{", "}{"),
        (r"\^\s*(-\d+(?!\s*/|[\d.])|\d{2,}|e(?![A-Za-z]))", r"^{\1}"),  # x^10 is meant as x^{10}
        (r"\^\s*\(([^()]*)\)", r"^{\1}"),
        # what a root or an exponent without braces is over
        (r"(\\sqrt(?:\s*\[[^\[\]]*\])?|\^)\s*(" + _FRACTION + ")", r"\1{\2}"),
        (r"(\\sqrt\s*\[[^\[\]]*\])\s*([0-9A-Za-z])", r"\1{\2}"),
        (r"\\sqrt\s*(\\(?:" + _GREEK + "))", r"\\sqrt{\1}"),
        (r"(\\(?:mathbb|mathbf)\s*\{?R\}?)\s*-\s*(?=\\\{)", r"\1\\setminus "),
    )
)
_BARE_CONNECTOR = re.compile(r"(?<![A-Za-z\\])(and|or)(?![A-Za-z])")
_TEXT_SEGMENT = re.compile(r"(\\text\{[^{}]*\})")
# [0, 1[ and ]0, 1[ are written [0, 1) and (0, 1) elsewhere
_OUTWARD = re.compile(
    r"(?P<lead>^|\\(?:cup|cap|in|setminus)(?![A-Za-z])\s?)(?P<open>[\[\]])"
    r"(?P<ends>[^\[\]()]*[,;][^\[\]()]*)(?P<close>[\[\]])"
    r"(?=\s?(?:$|\\(?:cup|cap|setminus)(?![A-Za-z])))"
)
# 12 345 and 1 000 000, but not 3 5, 1000 000, 2^3 125 or the mixed number 1 100/200
_SPACED_GROUPS = re.compile(r"(?<![\d.,_^])(?<!\d )\d{1,3}(?: \d{3})+(?! ?\d)(?! ?/)")
_TWO_POINTS = re.compile(r"(?:(?<!\d)\.\d*|\.)\.[.,;: ]*$")  # 0.1. ends a sentence, .1. is a slip
_BEHIND = "\\" + string.whitespace  # a space as a command, or a new line, with nothing behind it
_PLUS_MINUS = re.compile(r"\\(pm|mp)(?![A-Za-z])")
_DOLLAR = re.compile(r"(?<!\\)\$")


def respell(answer: str) -> str:
    """Return `answer` in the uniform spelling that the readers of this package expect."""
    answer = _SCRIPTS.sub(_script, answer)
    answer = _ROOT_SIGN.sub(_root, answer)
    answer = answer.translate(_UNICODE_TABLE).strip().rstrip(_BEHIND)
    text = _drop_math_delimiters(answer.strip("*"))
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    pieces = _TEXT_SEGMENT.split(text)
    for k in range(0, len(pieces), 2):  # odd pieces are \text{...}: their words are left alone
        pieces[k] = _BARE_CONNECTOR.sub(lambda m: AND if m[0] == "and" else OR, pieces[k])
    text = re.sub(r"\s+", " ", "".join(pieces))
    text = _SPACED_GROUPS.sub(lambda m: m[0].replace(" ", ""), text)
    text = text.strip(" ")
    return _OUTWARD.sub(_inward, text if _TWO_POINTS.search(text) else text.rstrip(".,;: "))


def _script(match: re.Match[str]) -> str:
    sign, letters = ("^", _RAISED) if match["up"] else ("_", _LOWERED)
    script = "".join(letters[c] for c in match[0])
    alone = len(script) == 1 and not match.string[match.end() :][:1].isdigit()  # x²9 is no x^29
    return f"{sign}{script}" if alone else f"{sign}{{{script}}}"


def _root(match: re.Match[str]) -> str:
    sign = r"\sqrt[3]" if match["cube"] else r"\sqrt"
    return f"{sign}{{{match['digits']}}}" if match["digits"] else f"{sign} "


def _inward(match: re.Match[str]) -> str:
    opening, closing = {"]": "("}.get(match["open"], "["), {"[": ")"}.get(match["close"], "]")
    return f"{match['lead']}{opening}{match['ends']}{closing}"


def _drop_math_delimiters(text: str) -> str:
    r"""Remove ``$``, ``\(`` and ``\[`` that delimit formulas; a lone ``$`` is a currency sign."""
    text = re.sub(r"(?<!\\)\\[()\[\]]", "", text)
    dollars = len(_DOLLAR.findall(text))
    return _DOLLAR.sub(lambda _: "" if dollars % 2 == 0 else r"\$", text)


def each_sign(text: str) -> list[str]:
    """``a ± b`` as two values; several ± choose independently unless a ∓ ties them together."""
    signs = [m[1] for m in _PLUS_MINUS.finditer(text)]
    if not signs or len(signs) > 4:
        return []
    if "mp" in signs:
        choices = [["+" if s == "pm" else "-" for s in signs]]
        choices.append(["-" if s == "pm" else "+" for s in signs])
    else:
        choices = [["+-"[n >> k & 1] for k in range(len(signs))] for n in range(2 ** len(signs))]
    values = []
    for choice in choices:
        picked = iter(choice)
        one = _PLUS_MINUS.sub(lambda _, p=picked: f" {next(p)} ", text).strip()
        values.append(re.sub(r"(^|[({\[,])\s*\+\s*", r"\1", one))
    return values


def split_top(text: str, separator: re.Pattern[str]) -> tuple[list[str], list[str]]:
    r"""Split at matches of `separator` outside all brackets; returns (parts, separators).

    Brackets are ``() [] {} \{ \}`` and ``\begin..\end``. An interval such as ``(0, 3]`` closes
    with another kind of bracket than it opens with, so kinds are not matched, only counted.
    """
    parts, separators = [], []
    depth, start, position = 0, 0, 0
    while position < len(text):
        if depth == 0 and (match := separator.match(text, position)) and match.end() > position:
            parts.append(text[start:position])
            separators.append(match.group().strip())
            start = position = match.end()
            continue
        step = _BRACKET.match(text, position)
        if step:
            token = step.group()
            if token in ("(", "[", "{", r"\{") or token.startswith((r"\begin", r"\langle")):
                depth += 1
            elif token in (")", "]", "}", r"\}") or token.startswith((r"\end", r"\rangle")):
                depth = max(0, depth - 1)
            position = step.end()
        else:
            position += 1
    parts.append(text[start:])
    return parts, separators


_BRACKET = re.compile(r"\\(?:begin|end|langle|rangle)(?![A-Za-z])|\\[A-Za-z]+|\\.|[()\[\]{}]")


_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")


def merge_thousands(text: str) -> str:
    """Drop thousands commas outside round, square and set brackets: in those, commas separate."""

    def merged(piece: str) -> str:
        return _THOUSANDS.sub(lambda m: m[0].replace(",", ""), piece)

    pieces, depth, start = [], 0, 0
    for step in re.finditer(r"\\[A-Za-z]+|\\.|[()\[\]]", text):
        if step.group() in ("(", "[", r"\{"):
            if depth == 0:
                pieces.append(merged(text[start : step.start()]))
                start = step.start()
            depth += 1
        elif step.group() in (")", "]", r"\}"):
            depth = max(0, depth - 1)
            if depth == 0:
                pieces.append(text[start : step.end()])
                start = step.end()
    pieces.append(text[start:] if depth else merged(text[start:]))
    return "".join(pieces)


def is_wrapped(text: str, opening: str, closing: str) -> bool:
    """Whether the first bracket of `text` is `opening` and closes only at the final `closing`."""
    if not (text.startswith(opening) and text.endswith(closing)):
        return False
    if len(text) < len(opening) + len(closing):
        return False
    depth = 0
    for step in _BRACKET.finditer(text):
        token = step.group()
        if token in ("(", "[", "{", r"\{", r"\langle"):
            depth += 1
        elif token in (")", "]", "}", r"\}", r"\rangle"):
            depth -= 1
            if depth == 0:
                return step.end() == len(text)
    return False
