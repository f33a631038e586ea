"""`manifest.json` as it lies on a disk: what it says must be of the kinds that training writes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lens_ref.rlvr.data_config import Unsigned
from lens_ref.rlvr.files import damaged, first_fault, read_object


class _Shape(BaseModel):
    """Any entry may be missing, and others may be there: another version wrote it."""

    model_config = ConfigDict(strict=True)


class _Questions(_Shape):
    source: str = ""
    questions: Unsigned = 0
    dropped_unparsable: Unsigned = 0
    notes: list[str] = []
    sha256: str = ""


class _Data(_Shape):
    train: _Questions | None = None
    test: _Questions | None = None


class _Manifest(_Shape):
    status: str = ""
    method: str = ""
    seed: int = 0
    step: Unsigned = 0
    steps: Unsigned = 0
    wall_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    tokens: Unsigned = 0
    verifier: dict[str, Unsigned] = {}
    skipped_updates: list[Unsigned] = []
    changed_settings: list[dict[str, Any]] = []
    parameters: dict[str, Unsigned] = {}
    policy: dict[str, str | None] = {}
    device: str = ""
    sampler: dict[str, str | None] = {}
    gpu: dict[str, Any] | None = None
    data: _Data = _Data()
    commit: str | None = None
    package: str = ""
    python: str = ""
    versions: dict[str, str] = {}
    hardware: dict[str, Any] = {}
    command: str = ""


def read_manifest(path: Path, then: str) -> dict[str, Any]:
    """A run's manifest.

    Args:
        then: what to do where it is damaged.

    Raises:
        UserError: it is damaged.
    """
    manifest = read_object(path, then)
    check_manifest(manifest, path, then)
    return manifest


def check_manifest(manifest: dict[str, Any], path: Path, then: str) -> None:
    """Of a file that holds it.

    Raises:
        UserError: an entry is of another kind than training writes.
    """
    try:
        _Manifest.model_validate(manifest)
    except ValidationError as error:
        raise damaged(path, first_fault(error), then) from None
