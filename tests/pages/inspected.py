"""Commands that are not started, looked at: what they name exists, versions are those pinned."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import yaml

from lens_ref import methods
from lens_ref.engines import verl_settings
from tests import mutants as mutant_list
from tests.pages.reading import ROOT

Again = Callable[[str], None]  # tries another statement
ON_A_GPU = {"torch": "2.11.0", "flash-attn": "2.8.3"}  # requirements-verl.txt is the CPU set
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pinned(name: str) -> dict[str, str]:
    """Package → version of a file of pins."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return dict(re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^\s;]+)", text))


def pip(arguments: list[str], again: Again) -> None:
    assert arguments[0] == "install"
    pins = pinned("requirements-verl.txt") | ON_A_GPU
    for argument in arguments[1:]:
        name, _, version = argument.partition("==")
        package, _, extras = name.rstrip("]").partition("[")
        if argument == ".":
            assert (ROOT / "pyproject.toml").is_file()
        elif package == PROJECT["project"]["name"]:
            assert set(extras.split(",")) <= set(PROJECT["project"]["optional-dependencies"])
        elif version:
            assert version == pins[package], f"{package} is pinned at {pins[package]}"
        else:
            assert argument in ("--no-deps", "--no-build-isolation", "-e"), argument


def python312(arguments: list[str], again: Again) -> None:
    assert arguments[:2] == ["-m", "venv"]
    assert PROJECT["project"]["requires-python"] == ">=3.11,<3.14"


def conda(arguments: list[str], again: Again) -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    known = (["env", "create", "-f", "environment.yml"], ["activate", environment["name"]])
    assert arguments in known


def hf(arguments: list[str], again: Again) -> None:
    assert arguments == ["auth", "login"]


def pipx(arguments: list[str], again: Again) -> None:
    assert arguments == ["install", "pre-commit"]
    assert yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]


def pre_commit(arguments: list[str], again: Again) -> None:
    assert arguments == ["install"]


def jupyter(arguments: list[str], again: Again) -> None:
    kind, folder = arguments
    assert kind == "lab"
    assert list((ROOT / folder).glob("*.ipynb"))


def pytest(arguments: list[str], again: Again) -> None:
    option, marker = arguments
    assert option == "-m"
    declared = PROJECT["tool"]["pytest"]["ini_options"]["markers"]
    assert marker in {line.partition(":")[0] for line in declared}
    files = (ROOT / "tests").rglob("test_*.py")
    assert any(f"pytest.mark.{marker}" in path.read_text(encoding="utf-8") for path in files)


def ray(arguments: list[str], again: Again) -> None:
    assert arguments[0] in ("start", "job")
    if "--" in arguments:
        bash, script, *rest = arguments[arguments.index("--") + 1 :]
        assert bash == "bash"
        again(
            " ".join(
                [str(Path("recipes") / Path(script).relative_to(Path.cwd() / "recipes")), *rest]
            )
        )


def python3(arguments: list[str], again: Again) -> None:
    """`launch.sh` has put the command together: the recipe, the data and the method are there."""
    assert arguments[:3] == ["-m", "verl.trainer.main_ppo", "--config-path"]
    folder = Path(arguments[3])
    assert (folder / f"{arguments[5]}.yaml").is_file()
    overrides = dict(argument.split("=", 1) for argument in arguments[6:])
    assert Path(overrides["data.train_files"]).is_file()
    assert Path(overrides["data.val_files"]).is_file()
    method = overrides.get("method@algorithm.lens", "lens")
    assert (folder / "method" / f"{method}.yaml").is_file()
    assert overrides.get("algorithm.lens.method", "lens") in methods.names()


def verl(arguments: list[str], again: Again) -> None:
    """The two names are those that the module registers."""
    overrides = dict(argument.split("=", 1) for argument in arguments)
    assert overrides["algorithm.adv_estimator"] == verl_settings.ESTIMATOR
    assert overrides["trainer.v1.trainer_mode"] == verl_settings.TRAINER_MODE


def mutants(arguments: list[str], again: Again) -> None:
    for word in arguments:
        assert any(word in mutant.name for mutant in mutant_list.MUTANTS), word


def make(arguments: list[str], again: Again) -> None:
    """The target is there, and so are the modules and scripts that it runs."""
    assert arguments, "make without a target"
    command = ["make", "--always-make", "--dry-run", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for module in re.findall(r"python -m ((?:lens_ref|toy|tests|benchmarks)[\w.]*)", done.stdout):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module
    for script in re.findall(r"python (\w\S+\.py)", done.stdout):
        assert (ROOT / script).is_file(), script
