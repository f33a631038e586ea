"""What a run says of its training: its settings, its seed, the hashes of what it was given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lens_ref.rlvr.config import method_label
from lens_ref.rlvr.files import COPY_AGAIN, damaged, read_yaml
from lens_ref.rlvr.manifest_file import check_manifest, read_manifest

KEPT = ("policy", "data")
"""Of a manifest, beside the counts of an evaluation: base weights and questions."""


@dataclass(frozen=True)
class Training:
    """`config.yaml` and `manifest.json` of a run, as they are there; {} for one that is not."""

    config: dict[str, Any]
    manifest: dict[str, Any]

    @property
    def seed(self) -> Any:
        """Of the run."""
        return self.config.get("seed")

    @property
    def method(self) -> str | None:
        """Its label, as in the folder's name; None where the settings don't say."""
        methods = self.config.get("methods")
        if not (isinstance(methods, list) and len(methods) == 1 and isinstance(methods[0], str)):
            return None
        try:
            return method_label(methods[0])
        except ValueError:
            return methods[0]

    @property
    def base(self) -> dict[str, Any]:
        """The weights that it began with: their source, and a hash where it is known."""
        return self.manifest.get("policy") or {}

    def questions(self, which: str) -> dict[str, Any]:
        """What the manifest says of the questions of "train" or "test"; {} for nothing."""
        return (self.manifest.get("data") or {}).get(which) or {}

    def kept(self) -> dict[str, Any]:
        """What an evaluation of the run keeps of this."""
        manifest = {key: self.manifest[key] for key in KEPT if key in self.manifest}
        return {"config": self.config, "manifest": manifest}


def read(folder: Path) -> Training | None:
    """Of a run folder, or a copy of one; None where it says nothing.

    Raises:
        UserError: one of the two files is damaged.
    """
    config, manifest = folder / "config.yaml", folder / "manifest.json"
    if not config.is_file() and not manifest.is_file():
        return None
    return Training(
        read_yaml(config, COPY_AGAIN) if config.is_file() else {},
        read_manifest(manifest, COPY_AGAIN) if manifest.is_file() else {},
    )


def given_back(kept: Any, path: Path, then: str) -> Training | None:
    """What `kept` put into the file at `path`; None for nothing.

    Raises:
        UserError: it is damaged.
    """
    if kept is None:
        return None
    whole = isinstance(kept, dict)
    config, manifest = (kept.get(key) if whole else None for key in ("config", "manifest"))
    if not isinstance(config, dict) or not isinstance(manifest, dict):
        raise damaged(path, "training holds no config and manifest", then)
    check_manifest(manifest, path, then)
    return Training(config, manifest)
