"""Which method wrote an engine's checkpoint, and its state: one small JSON file in the folder."""

from __future__ import annotations

import json
from pathlib import Path

from lens_ref.methods.treatment import Treatment

STATE_FILE = "lens_ref_state.json"


def write_state(folder: Path, treatment: Treatment) -> None:
    """The method with its hyperparameters, and its state, null where it keeps none."""
    folder.mkdir(parents=True, exist_ok=True)
    saved = {"method": treatment.label, "state": treatment.state}
    (folder / STATE_FILE).write_text(json.dumps(saved), encoding="utf-8")


def read_state(folder: Path, treatment: Treatment) -> None:
    """Give the method the state that it had at a checkpoint.

    Raises:
        ValueError: another method wrote the checkpoint; or this one keeps state and there is none.
    """
    file = folder / STATE_FILE
    if not file.exists():
        if treatment.state is None:  # a checkpoint of the plain engine
            return
        raise ValueError(
            f"{folder} holds no {STATE_FILE}: {treatment.label} keeps state, and can only be "
            "resumed from a checkpoint of its own"
        )
    saved = json.loads(file.read_text(encoding="utf-8"))
    if saved["method"] != treatment.label:
        mend = "" if treatment.state is not None else ", or remove that file if it is meant"
        raise ValueError(
            f"{file}: {saved['method']} wrote this checkpoint and {treatment.label} can't go on "
            f"with it; give every method a folder of its own{mend}"
        )
    treatment.state = saved["state"]
