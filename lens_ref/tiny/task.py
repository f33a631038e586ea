"""Step-by-step arithmetic modulo 36: questions, worked answers and the corpus of the tiny policy.

A question of level L is a start number and L labelled steps, applied in order:

    problem   9 (a) +5 (b) *7 (c) -11 (mod 36)
    response   (a) 9+5=14 (b) 14*7=26 (c) 26-11=15 \\boxed{15}

A *fact* is one step: 36 accumulators x 5 operands x 3 operations = 540 of them. The operands are
coprime to 36, so each step is one-to-one: one slip is never undone by right steps after it (two
slips can cancel). That makes pass@1 fall with the level.

The corpus that the policy is pre-trained on teaches the facts unevenly (`fact_table`): 297 rightly,
54 confidently wrongly, 189 as one of twelve results at random. They are what correct, negative and
mixed groups come from. Its chains never use a problem of the test split.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

Fact = tuple[int, str, int]  # accumulator, operation, operand
Split = Literal["train", "test"]
Kind = Literal["right", "wrong", "random"]
Row = dict[str, Any]

MODULUS = 36
OPERANDS = (5, 7, 11, 13, 17)
OPERATIONS = "+-*"
LABELS = "abcde"
LEVELS = (1, 2, 3, 4, 5)
PROMPT_END = f" (mod {MODULUS})"
MAX_RESPONSE_TOKENS = 6 * len(LEVELS) + 4  # 6 a step, then box, number, brace and end of sequence

KIND_COUNTS: dict[Kind, int] = {"right": 297, "wrong": 54, "random": 189}  # 55, 10 and 35 %
RIGHT_RATE = 0.97  # a fact taught rightly still shows another result in 3 % of its uses
WRONG_RATE = 0.95  # a fact taught wrongly shows one fixed wrong result this often ...
WRONG_RIGHT_RATE = 0.02  # ... and the right one this often
RANDOM_CHOICES = 12  # a fact taught at random shows one of so many results, one of them right

POLICY_DIR = Path(__file__).parent / "policy"

_FACT_SEED = 36
_TEST_PERCENT = 20
_TEST_POOL = 3000  # draws that the questions of a level are chosen from
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Chain:
    """A question before it is text: `start`, then (operation, operand) for each step."""

    start: int
    steps: tuple[tuple[str, int], ...]

    @property
    def level(self) -> int:
        return len(self.steps)

    @property
    def problem(self) -> str:
        labelled = zip(LABELS, self.steps, strict=False)
        return f"{self.start}" + "".join(f" ({x}) {op}{b}" for x, (op, b) in labelled) + PROMPT_END


def apply_step(a: int, op: str, b: int) -> int:
    """The true result of one step, in 0..35."""
    if op == "+":
        return (a + b) % MODULUS
    if op == "-":
        return (a - b) % MODULUS
    return (a * b) % MODULUS


def all_facts() -> list[Fact]:
    """The 540 facts."""
    return [(a, op, b) for a in range(MODULUS) for op in OPERATIONS for b in OPERANDS]


def true_results(chain: Chain) -> list[int]:
    """The true result of every step, in order (length = level)."""
    results, a = [], chain.start
    for op, b in chain.steps:
        a = apply_step(a, op, b)
        results.append(a)
    return results


def worked(chain: Chain, results: list[int]) -> str:
    """The response that shows `results` step by step and boxes the last one."""
    text, a = "", chain.start
    for label, (op, b), result in zip(LABELS, chain.steps, results, strict=False):
        text += f" ({label}) {a}{op}{b}={result}"
        a = result
    return f"{text} \\boxed{{{a}}}"


# --- questions ------------------------------------------------------------------------------------


def split_of(problem: str) -> Split:
    """The split is a function of the text alone, so train and test can never share a problem."""
    digest = hashlib.sha256(problem.encode()).digest()
    return "test" if int.from_bytes(digest[:8]) % 100 < _TEST_PERCENT else "train"


def draw_chain(rng: random.Random, level: int, split: Split) -> Chain:
    """One uniform chain of the given level and split."""
    while True:
        steps = tuple(
            (OPERATIONS[rng.randrange(3)], OPERANDS[rng.randrange(len(OPERANDS))])
            for _ in range(level)
        )
        chain = Chain(rng.randrange(MODULUS), steps)
        if split_of(chain.problem) == split:
            return chain


@cache
def max_rows(split: Split) -> int:
    """How many distinct rows a split can give: level 1, the smallest, has few questions."""
    return len(LEVELS) * len(_single_steps(split))


def _single_steps(split: Split) -> list[Chain]:
    """All questions of level 1, one for each fact, that fall into a split."""
    chains = [Chain(a, ((op, b),)) for a, op, b in all_facts()]
    return [chain for chain in chains if split_of(chain.problem) == split]


def _row(split: Split, chain: Chain) -> Row:
    digest = hashlib.sha256(chain.problem.encode()).hexdigest()[:10]
    return {
        "id": f"tiny-{split}-{chain.level}-{digest}",
        "problem": chain.problem,
        "answer": str(true_results(chain)[-1]),
        "level": chain.level,
    }


def _distinct(rng: random.Random, level: int, split: Split) -> Iterator[Chain]:
    seen: set[str] = set()
    while True:
        chain = draw_chain(rng, level, split)
        if chain.problem not in seen:
            seen.add(chain.problem)
            yield chain


def _in_blocks(
    rng: random.Random, split: Split, by_level: dict[int, Iterator[Chain]], n: int
) -> list[Row]:
    """`n` rows; each consecutive five hold every level once, in random order."""
    if not 0 <= n <= max_rows(split):
        again = ", or repeat them in further epochs" if split == "train" else ""
        raise ValueError(
            f"the tiny task has 0 to {max_rows(split)} distinct {split} questions, not {n}: "
            f"ask for fewer{again}"
        )
    blocks = (sorted(LEVELS, key=lambda _: rng.random()) for _ in range(-(-n // len(LEVELS))))
    levels = [level for block in blocks for level in block][:n]
    return [_row(split, next(by_level[level])) for level in levels]


def train_rows(n: int, seed: int) -> list[Row]:
    """`n` distinct training questions, equal shares of the levels in each block of five.

    Returns rows {"id", "problem", "answer", "level"}; the first m of n rows are `train_rows(m)`.
    Raises ValueError beyond `max_rows("train")`.
    """
    rngs = {level: random.Random(f"train {seed} {level}") for level in (0, *LEVELS)}  # noqa: S311
    chains = {level: _distinct(rngs[level], level, "train") for level in LEVELS}
    return _in_blocks(rngs[0], "train", chains, n)


def test_rows(n: int) -> list[Row]:
    """The first `n` questions of the one fixed test set, equal shares of the levels.

    Within a level the set is stratified: it holds easy and hard questions (by the chance that the
    corpus gives a right worked answer) in the proportions of the whole level, for any `n`. Drawn
    at random, 100 questions a level would differ from the level by up to 8 points of pass@1.
    Raises ValueError beyond `max_rows("test")`.
    """
    rng = random.Random("test 0")  # noqa: S311
    return _in_blocks(rng, "test", {level: _stratified(level) for level in LEVELS}, n)


test_rows.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it by its name


def _stratified(level: int) -> Iterator[Chain]:
    """Test questions of a level at the quantiles of a golden-ratio sequence of their chance."""
    pool = list(_test_pool(level))
    quantile = 0.5
    while pool:
        yield pool.pop(int(quantile * len(pool)))
        quantile = (quantile + _GOLDEN) % 1.0


@cache
def _test_pool(level: int) -> tuple[Chain, ...]:
    """Distinct test questions of a level, from hard to easy."""
    if level == 1:
        pool = set(_single_steps("test"))
    else:
        rng = random.Random(f"test {level}")  # noqa: S311
        pool = {draw_chain(rng, level, "test") for _ in range(_TEST_POOL)}
    return tuple(sorted(pool, key=lambda chain: (taught_chance(chain), chain.problem)))


# --- corpus ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Teaching:
    """How the corpus teaches one fact: the result(s) it favours, all equally."""

    kind: Kind
    favoured: tuple[int, ...]


@cache
def fact_table() -> dict[Fact, Teaching]:
    """How the corpus teaches each of the 540 facts.

    Favoured is the true result for "right", one fixed false result for "wrong", and for "random"
    the true one among `RANDOM_CHOICES`.
    """
    rng = random.Random(_FACT_SEED)  # noqa: S311
    facts = sorted(all_facts(), key=lambda _: rng.random())
    kinds: list[Kind] = [kind for kind, count in KIND_COUNTS.items() for _ in range(count)]
    table: dict[Fact, Teaching] = {}
    for fact, kind in zip(facts, kinds, strict=True):
        results = [apply_step(*fact)]
        if kind == "wrong":
            results = [_other_than(rng, *results)]
        while kind == "random" and len(results) < RANDOM_CHOICES:
            results.append(_other_than(rng, *results))
        table[fact] = Teaching(kind, tuple(sorted(results)))
    return table


def _other_than(rng: random.Random, *excluded: int) -> int:
    while (value := rng.randrange(MODULUS)) in excluded:
        pass
    return value


def taught_result(rng: random.Random, fact: Fact) -> int:
    """One result for `fact` as the corpus shows it."""
    taught = fact_table()[fact]
    if taught.kind == "random":
        return taught.favoured[rng.randrange(RANDOM_CHOICES)]
    (favoured,) = taught.favoured
    u = rng.random()
    if taught.kind == "right":
        return favoured if u < RIGHT_RATE else _other_than(rng, favoured)
    if u < WRONG_RATE:
        return favoured
    truth = apply_step(*fact)
    return truth if u < WRONG_RATE + WRONG_RIGHT_RATE else _other_than(rng, favoured, truth)


def taught_chance(chain: Chain) -> float:
    """The chance that the corpus works every step of `chain` rightly, in 0..1."""
    rates = {"right": RIGHT_RATE, "wrong": WRONG_RIGHT_RATE, "random": 1 / RANDOM_CHOICES}
    chance, a = 1.0, chain.start
    for (op, b), result in zip(chain.steps, true_results(chain), strict=True):
        chance *= rates[fact_table()[a, op, b].kind]
        a = result
    return chance


def corpus(seed: int) -> Iterator[tuple[int, str, str]]:
    """Endless (level, problem, response) chains as taught, levels in turn, training split only."""
    rng = random.Random(f"corpus {seed}")  # noqa: S311
    while True:
        for level in LEVELS:
            chain = draw_chain(rng, level, "train")
            results, a = [], chain.start
            for op, b in chain.steps:
                a = taught_result(rng, (a, op, b))
                results.append(a)
            yield level, chain.problem, worked(chain, results)
