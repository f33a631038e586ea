"""CPU threads of small work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch


@contextmanager
def at_most(count: int) -> Iterator[None]:
    """Within it torch computes on the CPU with so many threads at most: where there is little to
    do, many wait for each other longer than they work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(min(threads, count))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def one_thread() -> AbstractContextManager[None]:
    """`at_most(1)`."""
    return at_most(1)
