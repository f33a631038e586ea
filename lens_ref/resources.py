"""Files that travel with the project: beside the package in a clone, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def find(*parts: str) -> Path | None:
    """The file or folder `parts` (for example "configs", "tiny.yaml"), or None."""
    for root in (_PACKAGE.parent, _PACKAGE):
        path = root.joinpath(*parts)
        if path.exists():
            return path
    return None
