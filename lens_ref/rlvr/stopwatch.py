"""Time and GPU memory of the phases of an update."""

from __future__ import annotations

import time
from typing import Any

import torch


class Stopwatch:
    """Wall time by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, phase: str) -> float:
        """End a phase; returns its seconds."""
        now = time.monotonic()
        self.seconds[phase] = now - self._last
        self._last = now
        return self.seconds[phase]

    def total(self) -> float:
        """Seconds of all phases together."""
        return sum(self.seconds.values())


def reset_peak(device: torch.device) -> None:
    """Begin to watch the memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_gb(device: torch.device) -> float | None:
    """Most memory in use at once since `reset_peak`, 10^9 bytes; None on a CPU."""
    return torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else None


def describe_gpu(device: torch.device) -> dict[str, Any] | None:
    """Name and memory of the card; None on a CPU."""
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    return {"name": properties.name, "memory_gb": round(properties.total_memory / 1e9, 1)}
