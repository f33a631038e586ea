"""What one installs: the files of the wheel and the sdist, what a plain install asks for, and that
the wheel works in a folder outside the repository, with and without the `train` extra.

Nothing is downloaded: the wheel is built by the hooks that pip calls, and unpacked where Python
finds it before the clone.
"""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from email.message import Message
from pathlib import Path

import pytest

import lens_ref
from lens_ref import extras, resources
from lens_ref.rlvr import run_folder

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
INFO = f"lens_ref-{lens_ref.__version__}.dist-info"
IMPORT_NAMES = {"math-verify": "math_verify", "pyyaml": "yaml"}
"""Of packages that are not imported by their own name."""

HIDE = """
import importlib.machinery as machinery, sys
find = machinery.PathFinder.find_spec
def find_spec(cls, name, path=None, target=None):
    return None if name.split(".")[0] in HIDDEN else find(name, path, target)
machinery.PathFinder.find_spec = classmethod(find_spec)
"""


def build(kind: str, folder: Path) -> Path:
    """The wheel or sdist, by the hook of the build back end, in a process of its own."""
    code = f"import sys, hatchling.build as b; print(b.build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as file:
        return email.message_from_bytes(file.read(f"{INFO}/METADATA"))


def in_tree(folder: str) -> set[str]:
    """The files of a folder, as names under the root; no caches."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


# --- what is in it --------------------------------------------------------------------------------


def test_the_wheel_holds_the_package_its_recipes_and_its_curves(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    beside = {f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "licenses/LICENSE")}
    sources = {name for name in in_tree("lens_ref") if name.endswith(".py")}
    recipes = {f"lens_ref/{name}" for name in in_tree("configs")}
    data = {
        *(f"lens_ref/tiny/policy/{name}" for name in (
            "PROVENANCE.json", "config.json", "generation_config.json", "model.safetensors",
            "tokenizer.json", "tokenizer_config.json",
        )),
        *(f"lens_ref/results/tiny_study/{name}" for name in (
            "curves.csv", "manifests.json", "updates.csv",
        )),
        "lens_ref/reporting/published.csv",
    }  # fmt: skip
    assert names == sources | recipes | data | beside
    assert {"lens_ref/configs/tiny.yaml", "lens_ref/configs/paper/math-dapo.yaml"} <= recipes
    assert wheel.stat().st_size < 2_000_000


def test_a_plain_install_asks_for_torch_alone(metadata: Message) -> None:
    required = metadata.get_all("Requires-Dist")
    assert [line for line in required if "extra ==" not in line] == ["torch<2.14,>=2.11"]


def test_the_metadata(metadata: Message) -> None:
    assert metadata["Name"] == "lens-ref"
    assert metadata["Version"] == lens_ref.__version__
    assert metadata["Requires-Python"] == "<3.14,>=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra")) == {"train", "gpu", "trl", "verl", "dev"}
    assert metadata.get_payload().startswith("# lens_ref\n")


def test_what_every_run_needs_is_in_the_extra() -> None:
    packages = [
        re.split(r"[\[<>=~! ]", line)[0] for line in PROJECT["optional-dependencies"]["train"]
    ]
    named = {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in packages}
    assert set(extras.NEEDED) < named
    assert named - set(extras.NEEDED) == {"peft", "accelerate", "datasets"}  # only some runs do


def test_the_sdist_is_the_repository(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    for folder in (
        "lens_ref",
        "configs",
        "tests",
        "docs",
        "notebooks",
        "toy",
        "benchmarks",
        "recipes",
    ):
        assert {n for n in in_tree(folder) if n.endswith((".py", ".md", ".yaml"))} <= names
    files = {
        "Makefile",
        "CHANGELOG.md",
        "CITATION.cff",
        "LICENSE",
        "SECURITY.md",
        "requirements.txt",
    }
    assert files | {"results/tiny_study/curves.csv", ".pre-commit-config.yaml"} <= names
    assert not [n for n in names if re.search(r"(^|/)(__pycache__|runs|build|\.venv|\.git)/", n)]


def test_what_others_call_configs_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside an installed package lie the folders of other packages; beside a clone's, its own."""
    beside, inside = tmp_path / "configs", tmp_path / "lens_ref" / "configs"
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "lens_ref")
    beside.mkdir()
    (beside / "theirs.yaml").touch()
    assert resources.find("configs", "theirs.yaml") == beside / "theirs.yaml"
    inside.mkdir(parents=True)
    assert resources.find("configs") == inside
    assert resources.find("configs", "theirs.yaml") is None


def test_a_clone_knows_its_commit() -> None:
    commit = run_folder._commit()
    assert (commit is not None) == (ROOT / ".git").exists()
    assert commit is None or re.fullmatch(r"[0-9a-f]{40}(\+changes)?", commit)


def test_the_hash_of_the_package_is_of_its_modules(tmp_path: Path) -> None:
    """The literal is of sha256sum over the two lines "name hash"."""
    for name in ("a/m.py", "b.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x = 1\n")
    before = run_folder.package_hash(tmp_path)
    assert before == "100e27c38830426dc22f62754a4de8bd207b8478c664dff8d184fc717988728b"
    (tmp_path / "a" / "__pycache__").mkdir()
    (tmp_path / "a" / "__pycache__" / "m.pyc").write_bytes(b"")
    run_folder.package_hash.cache_clear()
    assert run_folder.package_hash(tmp_path) == before
    (tmp_path / "b.py").rename(tmp_path / "c.py")
    run_folder.package_hash.cache_clear()
    assert run_folder.package_hash(tmp_path) != before


# --- installed ------------------------------------------------------------------------------------

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Run:
    """Runs code in an empty folder, with the wheel in place of the clone; some packages hidden."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    (tmp_path / "work").mkdir()

    def call(code: str, hidden: set[str] = frozenset()) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", f"HIDDEN = {set(hidden)}\n{HIDE}\n{code}"],
            cwd=tmp_path / "work",
            env={**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )

    return call


WITHOUT = {*extras.NEEDED, "peft", "accelerate", "datasets", "tokenizers", "packaging", "tqdm"}

CORE = """
import lens_ref, torch
from lens_ref import *
from lens_ref import extensions, methods, tasks
assert "site" in lens_ref.__file__
rollouts = Rollouts(
    torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0]]),
    -torch.ones(2, 4),
    torch.full((2, 4), 3),
    token_logprobs=torch.full((2, 4, 3), -1 / 3), mask=torch.ones(2, 4, 3, dtype=torch.bool),
    entropy=torch.ones(2, 4, 3), prior=torch.full((2,), 0.9),
)
signals = {name: methods.get(name)(rollouts) for name in methods.names()}
assert all(signal.advantages.isfinite().all() for signal in signals.values())
print(len(signals), len(list(tasks.rows("tiny", "train", 5, 0))), pass_at_k(4, 1, 2))
"""


def test_core_methods_and_tasks_need_torch_alone(installed: Run) -> None:
    done = installed(CORE, WITHOUT)
    assert (done.returncode, done.stdout) == (0, "17 5 0.5\n"), done.stderr


COMMANDS = {
    "lens_ref.train": "training",
    "lens_ref.evaluate": "evaluating",
    "lens_ref.report": "the report",
    "lens_ref.tiny.study": "the study",
    "lens_ref.tiny.pretrain": "pre-training",
    "lens_ref.rlvr.collect": "collecting runs",
}


@pytest.mark.parametrize("hidden", [WITHOUT - {"numpy"}, {"safetensors"}], ids=["all", "one"])
def test_without_the_extra_every_command_is_one_line(installed: Run, hidden: set[str]) -> None:
    code = f"""
import runpy, sys
for module in {list(COMMANDS)}:
    sys.argv = [module, "--out", "out"]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as left:
        print(left.code, flush=True)
"""
    done = installed(code, hidden)
    assert done.stdout.split() == ["2"] * len(COMMANDS), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(COMMANDS)
    missing = (
        "safetensors" if hidden == {"safetensors"} else "huggingface_hub, latex2sympy2_extended"
    )
    for line, what in zip(lines, COMMANDS.values(), strict=True):
        start = (
            f"error: {what} needs the packages of the `train` extra: pip install 'lens-ref[train]' "
        )
        assert line.startswith(f"{start}(missing: {missing}")


@pytest.mark.slow
def test_the_commands_work_outside_the_repository(installed: Run, tmp_path: Path) -> None:
    """The bundled policy, a recipe, the published values and the committed curves come along."""
    code = """
from lens_ref import evaluate, report, train
small = ["rollout.questions=16", "rollout.responses=4", "eval.every=0", "verifier.workers=1"]
assert train.main(["--config", "tiny", "--method", "lens", "--steps", "1", "--set", *small]) == 0
few = ["--questions", "2", "--n", "1"]
assert evaluate.main(["runs/tiny", *few, "--set", "verifier.workers=1"]) == 0
assert report.main(["--out", "report"]) == 0
"""
    around = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.invalid"]
    subprocess.run([*around, "init", "-q"], check=True)
    subprocess.run([*around, "commit", "-q", "--allow-empty", "-m", "another project"], check=True)
    done = installed(code)
    assert done.returncode == 0, done.stderr
    work = tmp_path / "work"
    manifest = (work / "runs/tiny/lens-seed0/manifest.json").read_text(encoding="utf-8")
    assert '"commit": null' in manifest  # not that of the repository around the environment
    assert f'"package": "{run_folder.package_hash()}"' in manifest  # the clone's
    assert (work / "runs/tiny/report.html").is_file()
    assert (work / "runs/evaluate/table.txt").is_file()
    assert "runs of 1 other setting" in done.stdout  # the committed curves
    assert "GRPO baseline,pass@1,54.09," in (work / "report/tables.csv").read_text(encoding="utf-8")
