"""The pages that users read: numbers come from results/, code runs, versions agree."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import lens_ref

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def pins(lines: list[str]) -> dict[str, str]:
    """Package → version of the exact pins among requirement lines."""
    found = (re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line) for line in lines)
    return {m[1].lower().replace("_", "-"): m[2] for m in found if m}


def requirements() -> dict[str, str]:
    return pins((ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines())


def test_numbers_and_metrics_page_are_those_of_the_results() -> None:
    command = [sys.executable, str(ROOT / "docs/build.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_readme_example_does_what_its_comment_says() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    names: dict[str, object] = {}
    exec(code, names)
    advantages = names["signal"].advantages[0]  # type: ignore[attr-defined]
    assert advantages.sum().abs() < 1e-7
    assert 0.001 < advantages.abs().max() < 0.02
    confidences = torch.tensor([-20.0 / 80, -32.0 / 90, -41.0 / 100, -55.0 / 110])
    assert advantages.argmin() == confidences.argmax()


@pytest.mark.parametrize("preset", lens_ref.LensConfig.presets())
def test_the_readme_names_every_preset(preset: str) -> None:
    assert f"`{preset}`" in README


def test_folders_of_the_map_exist() -> None:
    folders = re.findall(r"^([a-z_/]+/)  ", README, re.M)
    assert len(folders) > 10
    for folder in folders:
        assert (ROOT / folder).is_dir(), folder


def test_versions_agree() -> None:
    exact = requirements()
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    (listed,) = (d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    for package, version in pins(listed).items():
        assert exact.get(package, version) == version, package
    assert exact["torch"] == torch.__version__.split("+")[0]


def test_requirements_are_exact() -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    named = [line for line in lines if line and not line.startswith("#")]
    assert len(requirements()) == len(named)


def test_the_first_number_of_the_readme_is_of_all_levels() -> None:
    with (ROOT / "results/tiny_study/curves.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == "grpo"]
    ends = []
    for step in ("0", "60"):
        found = [float(r["pass@1"]) for r in rows if (r["level"], r["step"]) == ("all", step)]
        ends.append(f"{100 * sum(found) / len(found):.1f} %")
    assert f"GRPO takes pass@1 from {ends[0]} to {ends[1]} " in README
