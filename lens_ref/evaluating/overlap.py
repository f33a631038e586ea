"""Questions that two sets share.

Two copies of a problem are the same text, or the same after normalisation: white space, LaTeX
spacing (`\\,`, `\\quad`, `~` …), marks of formulas (`$`, `\\(`), braces, backslashes and
punctuation are taken out, a decimal point and what divides two arguments or two digits stay, and
upper and lower case count as one. That finds copies which another tool has typeset anew, and no
paraphrases. It is the rule by which training leaves questions of the test set out (`where:
[not_in_test]`), but for the case of letters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from lens_ref.evaluating.columns import aligned, as_csv
from lens_ref.rlvr import sources
from lens_ref.rlvr.data_config import SourceConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.evaluation import level_groups
from lens_ref.rlvr.tasks import id_of, level_of, problem_of

Kind = Literal["exact", "normalised"]
COLUMNS = ("id", "level", "match", "other")


@dataclass(frozen=True)
class Problem:
    """A question without its answer."""

    id: str
    level: int | None
    text: str


@dataclass(frozen=True)
class Match:
    """A question of one set and its copy in the other."""

    id: str
    level: int | None
    kind: Kind
    other: str  # id of the copy


def normalised(problem: str) -> str:
    """The text that two copies have in common; see the top of this file."""
    return sources.bare(problem).casefold()


def read_problems(
    parts: Sequence[SourceConfig],
    limit: int | None = None,
    seed: int = 0,
    tested: Sequence[str] = (),
) -> list[Problem]:
    """The problems of one or several sources; answers are not asked for.

    Args:
        limit: the first so many (of the bundled task: generate so many).
        seed: of the bundled task's training questions.
        tested: problems of the test set, for sources that leave its questions out.

    Raises:
        UserError: no such data, a broken line, a row without a problem.
    """
    rows = (
        (f"{number}-{Path(part.source).name}/" if len(parts) > 1 else "", row)
        for number, part in enumerate(parts, start=1)
        for row in sources.read(part, count=limit, seed=seed, tested=tested)
    )
    found: list[Problem] = []
    seen: set[str] = set()
    for prefix, row in islice(rows, limit):
        text = problem_of(row.values, row.where)
        identity = prefix + id_of(row.values, row.where)
        if identity in seen:
            raise UserError(f"{row.where}: the id {identity!r} occurs twice")
        seen.add(identity)
        found.append(Problem(identity, level_of(row.values, row.where), text))
    if not found:
        raise UserError(f"{' + '.join(part.source for part in parts)}: no questions")
    return found


def find(these: Sequence[Problem], others: Sequence[Problem]) -> list[Match]:
    """Every pair of copies, in the order of `these`."""
    copies: dict[str, list[Problem]] = defaultdict(list)
    for other in others:
        copies[normalised(other.text) or other.text].append(other)  # "$$" is no copy of "{}"
    return [
        Match(one.id, one.level, "exact" if one.text == other.text else "normalised", other.id)
        for one in these
        for other in copies.get(normalised(one.text) or one.text, ())
    ]


def summary(these: Sequence[Problem], others: Sequence[Problem], matches: Sequence[Match]) -> str:
    """How many questions of `these` the others hold, by level, to the letter and in all; and the
    other way round."""
    exact, both = ({m.id for m in found} for found in (_exact(matches), matches))
    rows = [["", "exact", "all copies", "of", "share"]]
    for name, chosen in level_groups(these).items():
        ids = {these[i].id for i in chosen}
        title = "all" if name == "all" else f"level {name}"
        rows.append([title, *_shares(len(ids & exact), len(ids & both), len(ids))])
    theirs = [len({m.other for m in found}) for found in (_exact(matches), matches)]
    rows.append(["the other way round", *_shares(*theirs, len(others))])
    return aligned(rows)


def _exact(matches: Sequence[Match]) -> list[Match]:
    return [match for match in matches if match.kind == "exact"]


def _shares(exact: int, both: int, total: int) -> list[str]:
    return [f"{exact:,}", f"{both:,}", f"{total:,}", f"{both / total:.1%}"]


def ids_csv(matches: Sequence[Match]) -> str:
    """A row a pair of copies."""
    return as_csv(COLUMNS, [(m.id, m.level, m.kind, m.other) for m in matches])
