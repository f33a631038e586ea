"""One process at a time in a folder."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.run_folder import AGAIN, writing

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

FILE = ".lock"
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What a file system without locks answers."""
NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
"""A link in the file's place would have another file overwritten."""
log = logging.getLogger("lens_ref")


@contextmanager
def alone_in(*folders: Path) -> Iterator[None]:
    """Keep every other process that asks for one of these folders out of it.

    The lock is the operating system's, on the file `.lock`, and goes with this process however it
    ends: nothing is left to clean up. Where there are no such locks (Windows, some network file
    systems) a warning says so and nobody is kept out.

    Raises:
        UserError: another process holds the folder, or the file can't be made.
    """
    with ExitStack() as held:
        for folder in folders:
            with writing(folder / FILE, AGAIN):
                file = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | NO_LINKS, 0o644)
            held.callback(os.close, file)
            _take(file, folder)
        yield


def _take(file: int, folder: Path) -> None:
    why = "this system has no file locks"
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 200).decode(errors="replace").strip() or "another process"
            raise UserError(
                f"{folder} is in use by {holder}: wait until that ends, or stop it first"
            ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise UserError(f"cannot lock {folder}: {error.strerror}") from None
            why = "its file system has no locks"
        else:
            with writing(folder / FILE, AGAIN):
                os.ftruncate(file, 0)
                os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            return
    log.warning("%s can't be locked (%s): start no second command in it", folder, why)
