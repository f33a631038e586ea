"""The files of a run: configuration, manifest, logs that a resumed run cuts back and goes on."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import yaml

from lens_ref.rlvr.config import Config, from_dict, method_label, to_dict
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.untrusted import from_cell, redacted, secret_in, to_cell

PACKAGES = (
    "lens-ref",
    "torch",
    "transformers",
    "peft",
    "accelerate",
    "bitsandbytes",
    "safetensors",
    "math-verify",
    "vllm",
    "trl",
    "numpy",
)

AGAIN = "give the same command again"
"""What to do once a disk is mended, for a command that goes on or begins anew."""


def sync(path: Path) -> None:
    """Until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, text: str) -> None:
    """Replace a file as a whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _format(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(to_cell(value))


@contextmanager
def writing(path: Path, then: str | None = None) -> Iterator[None]:
    """Turn a full or unwritable disk into one line; `then` is what to do once that is mended."""
    try:
        yield
    except OSError as error:
        then = then or f"go on with --resume {path.parent}"
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; mend that and {then}"
        ) from error


def write_whole(path: Path, text: str, then: str) -> None:
    """`write_atomic`, its folder made where it is missing, with `writing`'s error."""
    with writing(path, then):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)


class Table:
    """A CSV whose first column is `step`; rows of a step are written in one go."""

    def __init__(self, path: Path, columns: Iterable[str]) -> None:
        self.path, self.columns = path, list(columns)

    def append(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add rows (and the header to a new file)."""
        cells = [[_format(row.get(column)) for column in self.columns] for row in rows]
        if not self.path.exists():
            cells.insert(0, self.columns)
        with writing(self.path), self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(_csv(cells))

    def at(self, step: int) -> list[dict[str, str]]:
        """The rows of a step."""
        found = [map(from_cell, row) for row in self._rows() if int(row[0]) == step]
        return [dict(zip(self.columns, row, strict=True)) for row in found]

    def cut(self, step: int) -> None:
        """Drop what was written after `step`, and half a last row."""
        if self.path.exists():
            kept = [row for row in self._rows() if int(row[0]) <= step]
            with writing(self.path):
                write_atomic(self.path, _csv([self.columns, *kept]))

    def _rows(self) -> list[list[str]]:
        """All whole rows: a kill can leave half a last one."""
        if not self.path.exists():
            return []
        with self.path.open(encoding="utf-8", newline="") as file:
            text = file.read()
        whole = io.StringIO(text[: text.rfind("\n") + 1], newline="")
        rows = list(csv.reader(whole))[1:]
        return [row for row in rows if len(row) == len(self.columns)]


def _csv(rows: Iterable[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def cut_jsonl(path: Path, step: int) -> None:
    """Drop the lines of a JSONL log that were written after `step`."""
    if path.exists():
        # not splitlines: an answer may hold a character that it takes for a line end
        *lines, _half = path.read_text(encoding="utf-8").split("\n")
        kept = [line + "\n" for line in lines if json.loads(line)["step"] <= step]
        with writing(path):
            write_atomic(path, "".join(kept))


class RunFolder:
    """`runs/<name>/<method>-seed<k>/`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def create(parent: Path, config: Config) -> RunFolder:
        """A new folder with its resolved config.

        Raises:
            UserError: it exists, or can't be written.
        """
        path = parent / _name(config)
        try:
            _make(path, config)
        except FileExistsError:
            raise UserError(f"{path} exists; resume it with --resume {path}") from None
        except OSError as error:
            raise UserError(f"cannot write the run folder {path}: {error.strerror}") from None
        return RunFolder(path)

    def config(self) -> Config:
        """The resolved configuration that the folder was made with."""
        path = self.path / "config.yaml"
        if not path.is_file():
            raise UserError(f"{self.path} is not a run folder: it has no config.yaml")
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError):
            data = None
        if not isinstance(data, dict):
            raise UserError(f"{path} is damaged")
        return from_dict(data)

    def manifest(self) -> dict[str, Any]:
        """The manifest, {} before the first one is written."""
        path = self.path / "manifest.json"
        loaded = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return dict(loaded)

    def write_manifest(self, **entries: Any) -> None:
        """Merge entries into the manifest."""
        merged = {**self.manifest(), **entries}
        path = self.path / "manifest.json"
        with writing(path):
            write_atomic(path, json.dumps(merged, indent=2) + "\n")

    def sync(self) -> None:
        """Until the logs are on the disk."""
        with writing(self.path):
            for path in self.path.iterdir():
                if path.is_file():
                    sync(path)

    @property
    def finished(self) -> bool:
        """Whether all updates were done."""
        return self.manifest().get("status") == "finished"


def create_all(parent: Path, configs: Sequence[Config]) -> list[RunFolder]:
    """The run folders of a session, all of them or none: a kill leaves no part of them.

    Raises:
        FileExistsError: the parent holds something already.
        UserError: it can't be written.
    """
    temporary = parent.with_name(f".new-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        for config in configs:
            _make(temporary / _name(config), config)
        temporary.rename(parent)  # an empty folder may be there
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise FileExistsError(error.errno, error.strerror, str(parent)) from None
        raise UserError(f"cannot write the run folder {parent}: {error.strerror}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return [RunFolder(parent / _name(config)) for config in configs]


def _name(config: Config) -> str:
    return f"{method_label(config.method)}-seed{config.seed}"


def _make(path: Path, config: Config) -> None:
    settings = to_dict(config)
    refuse_secrets(settings)
    path.mkdir(parents=True)
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    write_atomic(path / "config.yaml", text)


def refuse_secrets(settings: dict[str, Any]) -> None:
    """Call it before settings are written down.

    Raises:
        UserError: one of them holds a token or a password.
    """
    if found := secret_in(settings):
        raise UserError(
            f"{found[0]} holds {found[1]}, which would be written into the run folder; leave it "
            "out: the hub and Weights & Biases read theirs from the environment"
        )


def find_runs(path: Path) -> list[RunFolder]:
    """The run folder itself, or every run folder of a parent.

    Raises:
        UserError: neither.
    """
    if (path / "config.yaml").is_file():
        return [RunFolder(path)]
    runs = [RunFolder(p.parent) for p in sorted(path.glob("*/config.yaml"))]
    if not runs:
        raise UserError(f"{path} is not a run folder, nor does it hold any")
    return runs


def environment() -> dict[str, Any]:
    """Commit, versions and hardware, for the manifest."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    cuda = torch.cuda.is_available()
    return {
        "commit": _commit(),
        "python": platform.python_version(),
        "versions": versions,
        "hardware": {
            "machine": platform.machine(),
            "processor": processor(),
            "cpus": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if cuda else None,
        },
        "command": command_line("lens_ref.train"),
    }


def command_line(module: str) -> str:
    """The command that is running, for the manifest, without secrets."""
    return shlex.join(["python", "-m", module, *map(redacted, sys.argv[1:])])


@cache
def _commit() -> str | None:
    """Of the clone that this file is part of; None where it is installed."""
    root = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # else a repository around it
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if "model name" in line]
        return names[0]
    except (OSError, IndexError):
        return platform.processor()
