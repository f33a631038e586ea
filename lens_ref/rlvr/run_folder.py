"""The folder of a run: made, found, its configuration and manifest; and writing, which may fail."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import yaml

from lens_ref.rlvr.config import Config, from_dict, method_label, to_dict
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.files import read_yaml
from lens_ref.rlvr.manifest_file import read_manifest
from lens_ref.rlvr.untrusted import redacted, secret_in

_PACKAGE = Path(__file__).resolve().parents[1]
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
        """The resolved configuration that the folder was made with.

        Raises:
            UserError: there is none, or it can't be used.
        """
        path = self.path / "config.yaml"
        if not path.is_file():
            raise UserError(f"{self.path} is not a run folder: it has no config.yaml")
        data = read_yaml(path, "put a whole copy of it back")
        try:
            config = from_dict(data)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        if len(config.methods) != 1:
            raise UserError(f"{path} must name the one method of this run in `methods`")
        return config

    def manifest(self) -> dict[str, Any]:
        """The manifest, {} before the first one is written.

        Raises:
            UserError: it is damaged.
        """
        path = self.path / "manifest.json"
        if not path.exists():
            return {}
        return read_manifest(path, f"delete it: --resume {self.path} writes it anew")

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
            f"{found[0]} holds {found[1]}, which would be written to the disk; leave it out: the "
            "hub and Weights & Biases read theirs from the environment"
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
        raise UserError(f"{path} is not a run folder, nor does it hold any{runs_below(path)}")
    return runs


def runs_below(path: Path) -> str:
    """The end of an error about a folder without runs: where they are, one level further down, as
    a study has them."""
    parents = sorted({run.parent.parent.name for run in path.glob("*/*/config.yaml")})
    if not parents:
        return ""
    pattern = "seed*" if all(name.startswith("seed") for name in parents) else "*"
    return f"; those below do: give {path / pattern}/"


def environment() -> dict[str, Any]:
    """Code, versions and hardware, for the manifest."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    cuda = torch.cuda.is_available()
    return {
        "commit": _commit(),
        "package": package_hash(),
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
def package_hash(root: Path = _PACKAGE) -> str:
    """SHA-256 over the names and contents of the package's modules: which code ran, also where no
    commit is known or the clone had changes."""
    modules = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    digest = hashlib.sha256()
    for name, path in sorted(modules.items()):
        digest.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


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
