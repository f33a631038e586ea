"""Modules that lie beside pages and notebooks, in no package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def imported(folder: str, name: str) -> ModuleType:
    """A module of one of the project's folders, as one of its neighbours imports it."""
    sys.path.insert(0, str(ROOT / folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / folder))
