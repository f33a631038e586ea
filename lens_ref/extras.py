"""The packages of the `train` extra: one line where some are missing, before anything begins.

`import lens_ref` needs torch alone, and so do these few lines.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from types import TracebackType

NEEDED = (
    "huggingface_hub", "latex2sympy2_extended", "math_verify", "matplotlib", "numpy", "pandas",
    "psutil", "pydantic", "rich", "safetensors", "scipy", "transformers", "yaml",
)  # fmt: skip
"""What every run imports sooner or later: better missed now than after hours of training."""


def missing() -> list[str]:
    """The packages among these that are not installed."""
    return [name for name in NEEDED if find_spec(name) is None]


def message(what: str, names: Sequence[str]) -> str:
    """The line for a command that needs what is not there."""
    shown = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    return (
        f"error: {what} needs the packages of the `train` extra: pip install 'lens-ref[train]' "
        f"(missing: {shown})"
    )


def check_command(module: str, what: str) -> None:
    """End with the line and status 2 where `module` is the command that runs, not an import. What
    it imports then takes seconds, in which Ctrl-C ends it without a traceback."""
    if module != "__main__":
        return
    if names := missing():
        print(message(what, names), file=sys.stderr)
        raise SystemExit(2)
    sys.excepthook = _all_but_interrupts


def _all_but_interrupts(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """A `sys.excepthook`: Python's own, silent about Ctrl-C."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
