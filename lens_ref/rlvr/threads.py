"""CPU threads of small work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it torch computes on the CPU with one thread: where there is little to do, several
    wait for each other longer than they work, and the more of them, the longer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
