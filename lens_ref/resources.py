"""Files that travel with the project: beside the package in a clone, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def find(*parts: str) -> Path | None:
    """The file or folder `parts` (for example "configs", "tiny.yaml"), or None."""
    inside = (_PACKAGE / parts[0]).exists()  # then what lies beside the package is others'
    path = (_PACKAGE if inside else _PACKAGE.parent).joinpath(*parts)
    return path if path.exists() else None
