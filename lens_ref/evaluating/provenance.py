"""Whether counts are of the questions that a set holds: counts hold no texts, and an id may be no
more than the number of a row, so the hash that was kept beside them is made anew."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from lens_ref.evaluating.estimates import Evaluated
from lens_ref.rlvr import sources
from lens_ref.rlvr.data_config import SourceConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.sources import Row
from lens_ref.rlvr.tasks import digest, id_of, question_of, short_name


def rows_by_id(source: SourceConfig, limit: int | None) -> dict[str, Row]:
    """The first so many rows of a set."""
    rows = islice(sources.read(source, count=limit), limit)
    return {id_of(row.values, row.where): row for row in rows}


def are_of(run: Evaluated, source: SourceConfig, rows: Mapping[str, Row]) -> bool | None:
    """Whether a run was asked the questions of a set; None where that can't be told.

    It may have been asked a part of them: what it counted is hashed, in its order. Of an evaluation
    that isn't finished, whose further questions are not known, the first rows are tried: they can
    only confirm. A set of the same name may have been read by other columns, or changed since.

    Args:
        rows: of the set.
    """
    if run.data is None:
        return None
    finished = run.asked == len(run.counts)
    ids = [count.id for count in run.counts] if finished else [*rows][: run.asked]
    try:
        same = digest(question_of(rows[i].values, rows[i].where) for i in ids) == run.data
    except UserError:  # a row without an answer, which the hash is of too
        return None
    namesake = run.source is not None and short_name(run.source) == short_name(source.source)
    return same if same or (finished and not namesake) else None
