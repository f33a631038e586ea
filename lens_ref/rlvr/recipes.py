"""Configuration files: found by path or by name, and composed of one another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lens_ref.core._checks import nearest
from lens_ref.resources import find
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.files import decoded, parse_yaml

VERSION = ("revision", "split")
"""Of the data set that `data.train` names by its id."""


def read(names: str | Sequence[str] | None) -> dict[str, Any]:
    """The fields that the files set, merged from left to right: a later file wins.

    Args:
        names: YAML files, or names of recipes in `configs/` ("tiny", "paper/math-dapo").

    Raises:
        UserError: no such file, broken YAML.
    """
    names = [names] if isinstance(names, str) else names or []
    data: dict[str, Any] = {}
    for name in names:
        data = _merge(data, _read_yaml(_locate(name)))
    return data


def run_name(names: Sequence[str]) -> str:
    """A folder name for what these files make together: ["paper/x", "y.yaml"] → "x-y"."""
    return "-".join(Path(n).name.removesuffix(".yaml").removesuffix(".yml") for n in names)


def known() -> list[str]:
    """Names of the recipes that travel with the project."""
    folder = find("configs")
    files = sorted(folder.rglob("*.yaml")) if folder else []
    return [file.relative_to(folder).as_posix().removesuffix(".yaml") for file in files]


def _locate(name: str, beside: Path | None = None) -> Path:
    """A file by its path (from a file that extends it, beside that), or a recipe by its name."""
    for direct in filter(None, (beside and beside / name, Path(name))):
        if direct.is_file():
            return direct
    recipe = find("configs", f"{name}.yaml")
    if recipe is None:
        raise UserError(f"no config file {name!r}; recipes: {nearest(name, known())}")
    return recipe


def _read_yaml(path: Path, children: tuple[Path, ...] = ()) -> dict[str, Any]:
    if path in children:
        raise UserError(f"{path} extends itself")
    try:
        data = parse_yaml(decoded(path.read_bytes()))
    except ValueError as error:
        raise UserError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path} must hold a mapping of config fields")
    bases = data.pop("extends", [])
    merged: dict[str, Any] = {}
    for base in bases if isinstance(bases, list) else [bases]:
        merged = _merge(merged, _read_yaml(_locate(str(base), path.parent), (*children, path)))
    return _merge(merged, data)


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Mappings are merged, everything else (lists and null too) is replaced, and so is a data
    source by another one, whose version and size are its own: also where `train` names it by its
    id, and its version stands beside that."""
    merged = dict(base)
    if "train" in base and changes.get("train", base["train"]) != base["train"]:
        merged = {key: value for key, value in base.items() if key not in VERSION}
    for key, value in changes.items():
        old = base.get(key)
        both = isinstance(value, dict) and isinstance(old, dict)
        another = both and value.get("source", old.get("source")) != old.get("source")
        merged[key] = _merge(old, value) if both and not another else value
    return merged
