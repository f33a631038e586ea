"""Hostile answers by kind: text that a model might write, or be led to write, to break a grader.

`KINDS` maps a name to a function of a random generator that gives one response. None of them is a
right answer to any of `GOLDS`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from lens_ref.verifier import MAX_ANSWER_CHARS

GOLDS = (
    r"\frac{7919}{104729}",
    "31337",
    "x^3+7919x",
    "(-7919,31337]",
    r"\{2, 7919\}",
    r"\text{Wednesday}",
    r"\begin{pmatrix} 7919 & 1 \\ 0 & 1 \end{pmatrix}",
    "31337 \\text{ cm}",
    "7919\\%",
)

Make = Callable[[random.Random], str]


def _box(content: str) -> str:
    return rf"so it is $\boxed{{{content}}}$."


def _digits(rng: random.Random, n: int) -> str:
    return str(rng.randint(1, 9)) + "".join(rng.choices("0123456789", k=n - 1))


def _length(rng: random.Random, low: int, high: int) -> int:
    """Short lengths as often as long ones: of equal probability on a scale of powers."""
    return round(low * (high / low) ** rng.random())


def _filled(unit: str, rng: random.Random) -> str:
    return unit * _length(rng, 2, max(2, (MAX_ANSWER_CHARS - 60) // len(unit)))


def _tower(rng: random.Random) -> str:
    height, numbers = rng.randint(3, 6), [str(rng.randint(7, 99)) for _ in range(6)]
    return _box("^{".join(numbers[:height]) + "}" * (height - 1))


def _huge_work(rng: random.Random) -> str:
    """Exact values that no machine can hold."""
    n = rng.randint(10**7, 10**9)
    return _box(
        rng.choice(
            (rf"{n}!", rf"2^{{{n}0}}", rf"\binom{{{n}}}{{{n // 2}}}", rf"({n}!)!", rf"3^{{{n}}}!")
        )
    )


def _endless_sums(rng: random.Random) -> str:
    n, k = rng.randint(10**7, 10**9), rng.randint(2, 9)
    return _box(
        rng.choice(
            (
                rf"\sum_{{k=1}}^{{{n}}} \frac{{1}}{{k^{k}+1}}",
                rf"\prod_{{k=1}}^{{{n}}} (k^{k}+1)",
                rf"\int_0^{{{n}}} \sin(x^{{{k}}}) e^{{-x^x}} \, dx",
                rf"\lim_{{x \to \infty}} (\sin x)^{{x^{{{n}}}}}",
                rf"\int e^{{x^{k}}} \ln(\sin(x^{{{n}}})) dx",
            )
        )
    )


def _big_integers(rng: random.Random) -> str:
    return _box(_digits(rng, rng.randint(50, MAX_ANSWER_CHARS)))


def _decimals(rng: random.Random) -> str:
    return _box(f"0.{_digits(rng, _length(rng, 30, 1900))}" + rng.choice(("", r"\overline{3}")))


def _exponents(rng: random.Random) -> str:
    n = _digits(rng, rng.randint(5, 12))
    return _box(rng.choice((f"1e{n}", f"-1e-{n}", rf"1 \times 10^{{{n}}}", f"0.{n}E{n}")))


def _nested(rng: random.Random) -> str:
    opening, closing = rng.choice(
        (("(", ")"), ("[", "]"), ("{", "}"), (r"\{", r"\}"), (r"\sqrt{", "}"), ("|", "|"),
         (r"\left(", r"\right)"), (r"\frac{1}{1+", "}"), (r"\text{", "}"), ("x^{", "}"))
    )  # fmt: skip
    depth = rng.randint(5, MAX_ANSWER_CHARS // len(opening + closing) - 5)
    return _box(opening * depth + str(rng.randint(1, 9999)) + closing * depth)


def _megabyte(rng: random.Random) -> str:
    unit = rng.choice(("{", "}", "{}", "\\", r"\boxed{", r"\boxed", r"\{", "$", "x"))
    lead = rng.choice(("", _box(str(rng.randint(1, 999))), r"\boxed{"))
    return lead + unit * ((1_000_000 + rng.randint(0, 9999)) // len(unit))


def _bytes(rng: random.Random) -> str:
    odd = ("\x00", "\x01", "\x1b[2J", "\x7f", "\ufffe", "\r", "\x85", "\u2028", "\b")
    pieces = [rng.choice((*odd, str(rng.randint(0, 999)), "x")) for _ in range(rng.randint(2, 300))]
    return _box("".join(pieces) + "\x00")


def _surrogates(rng: random.Random) -> str:
    return _box("".join(chr(rng.randint(0xD800, 0xDFFF)) for _ in range(rng.randint(1, 200))))


def _invisible(rng: random.Random) -> str:
    marks = "\u202e\u202d\u2066\u2069\u200b\u200d\u200f\ufeff\u00ad\u0301\u20dd\U000e0041"
    return _box(
        "".join(rng.choice(marks) + rng.choice("123x+") for _ in range(rng.randint(2, 400)))
    )


def _unicode_digits(rng: random.Random) -> str:
    zeros = (0x660, 0x6F0, 0x966, 0xFF10, 0x1D7CE, 0x2070, 0x2460, 0x3007)
    return _box(
        "".join(chr(rng.choice(zeros) + rng.randint(0, 9)) for _ in range(rng.randint(4, 99)))
    )


def _any_characters(rng: random.Random) -> str:
    return _box("".join(chr(rng.randint(0, 0x10FFFF)) for _ in range(rng.randint(1, 300))))


def _code(rng: random.Random) -> str:
    mark = f"canary{rng.randint(0, 10**9)}"
    return _box(
        rng.choice(
            (
                f"__import__('os').system('touch {mark}')",
                f'__import__("os").system("touch {mark}")',
                f"open('{mark}','w')",
                f"exec(\"open('{mark}','w').write('x')\")",
                f"[].__class__.__base__.__subclasses__(){mark}",
                f"lambda: open('{mark}', 'w')",
                f"\\text{{open('{mark}','w')}}",
                f"sympify(\"open('{mark}','w')\")",
                f"; touch {mark}",
                f"$(touch {mark})",
                f"`touch {mark}`",
                f"{{{{ open('{mark}','w') }}}}",
                f"!!python/object/apply:os.system ['touch {mark}']",
                rf"\input{{/etc/passwd}} {mark}",
                rf"\immediate\write18{{touch {mark}}}",
                rf"\newwrite\f\immediate\openout\f={mark}",
                f"<script>fetch('{mark}')</script>",
                f"x.subs(x, open('{mark}','w'))",
            )
        )
    )


def _macros(rng: random.Random) -> str:
    bomb = r"\def\a{\b\b}\def\b{\c\c}\def\c{\d\d}\def\d{\a\a}"
    return _box(
        rng.choice((bomb, r"\newcommand{\x}{\x\x}\x", r"\let\a=\b", r"\csname a\endcsname"))
        + rng.choice((r"\a", r"\unknown", r"\frac")) * rng.randint(1, 300)
    )


def _boxes(rng: random.Random) -> str:
    n, number = rng.randint(2, 400), rng.randint(1, 9999)
    return rng.choice(
        (
            r"\boxed{" * n + str(number),
            r"\boxed{" * n + str(number) + "}" * (n // 2),
            rf"\boxed{{{number}}} \boxed{{" + "{" * n,
            rf"\boxed{{\boxed{{{number}}} \text{{" * n,
            "".join(rf"\boxed{{{k}}}" for k in range(n)) + rf"\boxed{{{number}+",
            r"\boxed" + " " * n + rf"\boxed{{\boxed{{}}{number}",
        )
    )


def _unclosed(rng: random.Random) -> str:
    pieces = (
        r"\frac{",
        r"\left(",
        r"\begin{pmatrix}",
        r"\sqrt[",
        "(",
        "[",
        r"\text{",
        "^",
        "_",
        "|",
    )
    inner = "".join(rng.choice((*pieces, "1", "x", "&", r"\\")) for _ in range(rng.randint(2, 150)))
    return _box(inner + "}" * (inner.count("{") - inner.count("}")))


def _matrices(rng: random.Random) -> str:
    rows, columns = _length(rng, 1, 20), _length(rng, 1, 20)
    row = "&".join(str(rng.randint(0, 9)) for _ in range(columns))
    body = r"\\".join([row] * rows)
    power = rng.choice(("", f"^{{{rng.randint(2, 10**6)}}}", "^{-1}"))
    return _box(rf"\begin{{pmatrix}}{body}\end{{pmatrix}}{power}")


def _long_lists(rng: random.Random) -> str:
    opening, closing = rng.choice(((r"\{", r"\}"), ("(", ")"), ("", ""), ("[", "]")))
    parts = [str(rng.randint(-99, 99)) for _ in range(_length(rng, 3, 500))]
    return _box(opening + rng.choice((",", ", ", ";")).join(parts) + closing)


def _long_regions(rng: random.Random) -> str:
    sign = rng.choice(
        (r"\cup", r"\cap", r"\setminus", "<", r"\le", r"\text{ or }", r"\in", "=", ":")
    )
    one = rng.choice(("[{},{})", "({},{})", "x_{{{}}}+{}", r"\{{{},{}\}}"))
    parts = [one.format(k, k + rng.randint(1, 9)) for k in range(_length(rng, 2, 100))]
    return _box(sign.join(parts))


def _many_letters(rng: random.Random) -> str:
    letters = "abcdfghjklmnpqrstuvwxyz"
    names = [f"{rng.choice(letters)}_{{{k}}}" for k in range(_length(rng, 6, 60))]
    body = rng.choice(("+", "", r" \cdot ", "^2-")).join(names)
    return _box(body + rng.choice(("", " = 0", " > 0", r" \ge 1, " + body + "=1")))


def _expansions(rng: random.Random) -> str:
    n = rng.randint(20, 3000)
    return _box(
        rng.choice(
            (
                rf"(a+b+c+d)^{{{n}}}",
                rf"(x+1)^{{{n}}} - (x-1)^{{{n}}}",
                rf"\frac{{(x+y)^{{{n}}}}}{{(x-y)^{{{n}}}+z}}",
                rf"|x+|x-|x+{n}|||^{{{n}}}",
                "(" * 8 + "x" + rf"^2+{n})^2" * 8,
            )
        )
    )


def _long_names(rng: random.Random) -> str:
    name = "".join(rng.choices("abcdefgxyz", k=_length(rng, 60, 1900)))
    return _box(rng.choice(("", "\\", r"\text{", "x_{")) + name)


def _stacks(rng: random.Random) -> str:
    unit = rng.choice(
        (r"\%", "%", r"^\circ", r"\degree ", r"\$", r"\text{ cm}", " per hour", r"\pm ", "'", "!",
         "-", "+", r"\sqrt", "^2", "_2", r"\text{(A) }", r"\text{is }", r"\quad ", "st", "3 dozen ")
    )  # fmt: skip
    return _box(str(rng.randint(2, 999)) + _filled(unit, rng))


def _pumped(rng: random.Random) -> str:
    """One piece of an answer over and over, with a last character that no pattern wants."""
    unit = rng.choice(
        (" ", "1", "a", "A", "1 ", "a ", "1,", "1,000", "1 000 ", "1.", r"\frac{1}", r"\frac{1}{2}",
         r"\text{a} ", r"\ ", r"\,", "a per ", r"\begin{array}", r"\\", r"\overline{", "x=",
         r"\phantom{", "no real ", "and ", "(1)", "x_1", "1:", r"\mathbf{a", "f(", "\t", "a/", "1/")
    )  # fmt: skip
    start = rng.choice(("", "1", "a", "A(", r"\text{", r"\begin{matrix}", r"\$"))
    return _box(start + _filled(unit, rng) + rng.choice(("!", "?", "#", "\\", "\x00", "&")))


def _just_below(rng: random.Random) -> str:
    unit = rng.choice(("1+", "x+", r"\frac{1}{2}+", "2(", "sin ", r"\pi ", "x^2-", "-", "7 "))
    content = (unit * MAX_ANSWER_CHARS)[: MAX_ANSWER_CHARS - rng.randint(1, 9)]
    return _box(content + str(rng.randint(1, 9)))


def _near_nothing(rng: random.Random) -> str:
    n = rng.randint(1, 10**6)
    forms = (r"\frac{{{}}}{{0}}", "{}/0", r"0^{{-{}}}", r"\ln(0 \cdot {})", r"\log_1 {}",
             r"\infty - {}\infty", r"\tan(90^\circ) + {}", r"\sqrt[0]{{{}}}", r"{}^\infty",
             r"\gcd({}, 0/0)", r"\emptyset + {}", r"i^{{i^{{{}i}}}}")  # fmt: skip
    return _box(rng.choice(forms).format(n))


KINDS: dict[str, Make] = {
    "towers of powers": _tower,
    "values that no machine can hold": _huge_work,
    "sums, integrals and limits": _endless_sums,
    "integers of up to 2000 digits": _big_integers,
    "long decimals": _decimals,
    "1e999999999": _exponents,
    "deep nesting": _nested,
    "a megabyte of braces": _megabyte,
    "null bytes and controls": _bytes,
    "lone surrogates": _surrogates,
    "invisible and combining marks": _invisible,
    "digits of other scripts": _unicode_digits,
    "any characters": _any_characters,
    "code": _code,
    "macros": _macros,
    "boxes, unclosed and nested": _boxes,
    "unclosed brackets": _unclosed,
    "matrices": _matrices,
    "long lists and sets": _long_lists,
    "long unions and chains": _long_regions,
    "many letters": _many_letters,
    "expansions": _expansions,
    "very long names": _long_names,
    "stacked signs and units": _stacks,
    "pumped patterns": _pumped,
    "just below the longest answer": _just_below,
    "no value": _near_nothing,
}
SLOW = {
    "towers of powers": 20,
    "values that no machine can hold": 20,
    "sums, integrals and limits": 15,
    "a megabyte of braces": 20,
    "expansions": 40,
    "many letters": 60,
    "no value": 100,
    "just below the longest answer": 150,
    "1e999999999": 150,
    "long unions and chains": 150,
    "matrices": 200,
    "long lists and sets": 200,
    "stacked signs and units": 250,
    "deep nesting": 250,
    "code": 400,
}
"""How many of the kinds of which fewer are made: these may take until the deadline."""


def hostile(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """`count` different (kind, response), in random order."""
    rng = random.Random(seed)
    share = count / 10_000
    wanted = {kind: max(2, round(n * share)) for kind, n in SLOW.items()}
    rest = [kind for kind in KINDS if kind not in SLOW]
    seen: dict[str, str] = {}
    for kind, number in wanted.items():
        made = 0
        while made < number:
            response = KINDS[kind](rng)
            made += response not in seen
            seen.setdefault(response, kind)
    while len(seen) < count:
        kind = rng.choice(rest)
        seen.setdefault(KINDS[kind](rng), kind)
    found = [(kind, response) for response, kind in seen.items()]
    rng.shuffle(found)
    yield from found


def new_files(folder: Path) -> list[str]:
    """What was written into the folder where the graders ran."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
