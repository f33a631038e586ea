"""Every treatment of negative groups on the same problems: `python -m toy.compare`.

signal.py     how fast each method learns, on six options and on many questions
harms.py      four places where a signal from negative groups is known to hurt
language.py   the bundled language model, trained by `lens_ref.train`'s own trainer

An experiment is a list of cells; a cell is a frame of raw rows that depends on nothing but the
cell. `runner.py` runs them in processes and keeps each finished one, so that a run can be cut off
and taken up again.
"""

from pathlib import Path

REFERENCE = Path(__file__).with_name("reference.csv")
"""Numbers of an independent simulation of the harmful settings, as `toy/reference.csv`. One row was
run to 1500 updates instead of 4000 (its `cap`), by which all its seeds had solved the question."""
