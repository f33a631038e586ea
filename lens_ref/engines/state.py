"""The state of a method in an engine's checkpoint folder: one small JSON file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lens_ref.methods.treatment import Treatment

STATE_FILE = "lens_ref_state.json"


def write_state(folder: Path, treatment: Treatment) -> None:
    """Nothing for a method that keeps no state."""
    if treatment.state is not None:
        folder.mkdir(parents=True, exist_ok=True)
        saved = {"method": treatment.spec.name, "state": treatment.state}
        (folder / STATE_FILE).write_text(json.dumps(saved), encoding="utf-8")


def read_state(folder: Path, method: str) -> dict[str, Any]:
    """The state that a method had at a checkpoint.

    Raises:
        ValueError: there is none, or another method's.
    """
    file = folder / STATE_FILE
    if not file.exists():
        raise ValueError(
            f"{folder} holds no {STATE_FILE}: {method} keeps state, and can only be resumed from a "
            "checkpoint of its own"
        )
    saved = json.loads(file.read_text(encoding="utf-8"))
    if saved["method"] != method:
        raise ValueError(f"{file} is of {saved['method']!r}: it can't resume {method!r}")
    return saved["state"]
