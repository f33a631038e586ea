"""What every notebook begins with: versions and time, figures that survive a grey printer, and
sliders with a figure in their place where nothing can move."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from lens_ref import resources

# Dark to light, each with its own dash and marker: lines stay apart in grey.
COLOURS = ("#000000", "#3b3b98", "#0a7e6e", "#c0392b", "#8a6d00", "#b05fc2", "#e08214", "#7f8c8d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))


def start(minutes: float, *packages: str) -> torch.device:
    """Print versions, device and the expected time; fix the seed and the style of figures.

    Args:
        minutes: what "restart and run all" takes on two CPU cores.
        packages: names to print beside Python, torch and lens_ref.

    Returns:
        the first GPU, or the CPU.
    """
    torch.manual_seed(0)
    torch.set_printoptions(precision=4, sci_mode=False)
    plt.rcParams.update(
        {
            "figure.figsize": (8, 4.2),
            "figure.dpi": 110,
            "figure.constrained_layout.use": True,
            "font.size": 13,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "lines.linewidth": 2.2,
            "lines.markersize": 7,
        }
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    where = (
        torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {os.cpu_count()} cores"
    )
    names = ("torch", "lens-ref", *packages)
    print(f"Python {platform.python_version()}, " + ", ".join(f"{n} {_version(n)}" for n in names))
    print(f"Device: {where}")
    print(f"Expected: about {minutes:g} minute{'s' if minutes != 1 else ''} on two CPU cores")
    return device


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


def line(index: int) -> dict[str, object]:
    """Colour, dash and marker of the index-th line: `ax.plot(x, y, **line(2))`."""
    i = index % len(COLOURS)
    return {"color": COLOURS[i], "linestyle": DASHES[i], "marker": MARKERS[i]}


def results(*parts: str) -> Path | None:
    """A file or folder under `results/`, or None where that run has not been made."""
    return resources.find("results", *parts)


def slider(draw: Callable[..., None], **controls: tuple[float, float, float, float]) -> None:
    """Show `draw(**values)` under sliders; without a live page, once, at the first values.

    Args:
        draw: draws a figure with `plt` and ends with `plt.show()`.
        controls: name=(lowest, highest, step, first value).

    The stored notebooks are built with LENS_REF_STATIC=1: they hold the figure alone, which needs no
    kernel. Without that variable the sliders appear.
    """
    if os.environ.get("LENS_REF_STATIC"):
        draw(**{name: first for name, (_, _, _, first) in controls.items()})
        return
    from ipywidgets import FloatSlider, interact

    interact(
        draw,
        **{
            name: FloatSlider(min=low, max=high, step=step, value=first, continuous_update=False)
            for name, (low, high, step, first) in controls.items()
        },
    )
