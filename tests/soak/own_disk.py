"""A small disk of one's own, that fills up or turns read-only just before a chosen write.

Linux alone: a tmpfs in a user namespace, which needs no privilege where the system allows such
namespaces. What fails is the real system call, not a stand-in.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch

SIZE = 24  # MiB
NEW_MOUNTS, NEW_USER = 0x20000, 0x10000000
READ_ONLY, REMOUNT, BIND, PRIVATE = 1, 32, 4096, 16384 + 262144
TORN = b"3,0.25,half a ro"  # what a full disk leaves of a row
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def _call(name: str, *arguments: Any) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _mount(source: Path | str, target: Path, kind: str, flags: int, data: str = "") -> None:
    texts = [os.fsencode(str(text)) for text in (source, target, kind)]
    _call("mount", *texts, ctypes.c_ulong(flags), data.encode())


def mount_own(folder: Path) -> None:
    """Put an empty disk at this folder, for this process and its children.

    Raises:
        OSError: the system allows no user namespaces.
    """
    user, group = os.getuid(), os.getgid()
    _call("unshare", NEW_USER | NEW_MOUNTS)
    for name, text in {
        "setgroups": "deny",
        "uid_map": f"0 {user} 1",
        "gid_map": f"0 {group} 1",
    }.items():
        Path(f"/proc/self/{name}").write_text(text)
    _mount("none", Path("/"), "none", PRIVATE)
    _mount("tmpfs", folder, "tmpfs", 0, f"size={SIZE}m")


class Watch:
    """Sees every write below a folder as an audit hook; before the n-th the disk fails.

    A write is an opened, made or renamed file or folder, or a safetensors file, which is not
    written by Python.
    """

    def __init__(self, disk: Path, fail: str | None = None, at: int = -1) -> None:
        """
        Args:
            fail: "full" or "read-only".
            at: the index of the write; -1: never.
        """
        self.disk, self.fail, self.at = disk, fail, at
        self.seen: list[tuple[str, str]] = []  # (what, path below the disk)
        self.failed = False
        real = safetensors.torch.serialize_file

        def serialize(tensors: Any, filename: Any, *rest: Any, **more: Any) -> Any:
            self._write("tensors", filename, append=False)
            return real(tensors, filename, *rest, **more)

        safetensors.torch.serialize_file = serialize
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes | Path) and flags & WRITES:
                self._write("file", path, bool(flags & os.O_APPEND))
        elif event in ("os.mkdir", "os.rename"):
            self._write(event.removeprefix("os."), arguments[0], append=False)

    def _write(self, what: str, path: Any, append: bool) -> None:
        full = Path(os.fsdecode(path)).absolute()
        if self.failed or not full.is_relative_to(self.disk):
            return
        self.seen.append((what, str(full.relative_to(self.disk))))
        if len(self.seen) - 1 == self.at:
            self.failed = True
            if self.fail == "full":
                fill(self.disk)
                if append and full.exists():  # its last page has room left: this one has none
                    full.rename(_kept(full))
                    full.symlink_to("/dev/full")
            else:
                _mount(self.disk, self.disk, "none", BIND)
                _mount("none", self.disk, "none", BIND | REMOUNT | READ_ONLY)


def _kept(path: Path) -> Path:
    return path.with_name(path.name + ".kept")


def fill(disk: Path) -> None:
    """Leave not one free page."""
    with (disk / "filler").open("wb", buffering=0) as file:
        for size in (65536, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def mend(disk: Path) -> None:
    """Make room, or make it writable again; rows that found no room are left torn."""
    if (disk / "filler").exists():
        (disk / "filler").unlink()
        for kept in disk.rglob("*.kept"):
            kept.rename(kept.with_suffix(""))
            with kept.with_suffix("").open("ab") as file:
                file.write(TORN)
    else:
        _call("umount2", os.fsencode(str(disk)), 0)


def in_child(work: Callable[[], int]) -> int:
    """The exit status of a forked child that does it; its own output and its parent's are one."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            status = work()
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
