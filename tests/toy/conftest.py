"""One run of every experiment at a size of a second or two, shared by the tests."""

import pytest
from rich.console import Console

from toy.experiments import CurveColumn, EscapeColumn, Plan
from toy.runs import Results, run

TINY = Plan(
    columns=(EscapeColumn(1e-2, 4, "sgd", 400, ("mle_d2_demeaned",)),),
    curves=(CurveColumn("sgd", 4, 2, (4,)), CurveColumn("adam", 4, 2, (4,))),
    questions=2,
    sequence_updates=50,
    sequence_read_at=(50,),
    escape_seeds=3,
    other_seeds=2,
)


@pytest.fixture(scope="session")
def tiny_results() -> Results:
    return run(TINY, 7, Console(quiet=True))
