"""docs/engines.md runs as printed, and the environments' pins agree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/engines.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The Python block under a heading."""
    text = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    return code


def test_the_plain_loop_solves_what_grpo_leaves() -> None:
    solved = {}
    for config in ("LensConfig()", "LensConfig(alpha=0)"):
        names: dict[str, Any] = {}
        exec(section("Plain torch").replace("LensConfig()", config), names)
        solved[config] = names["rewards"].mean()
    assert solved["LensConfig()"] > 0.95
    assert solved["LensConfig(alpha=0)"] < 0.9


def test_the_plain_loop_is_short() -> None:
    lines = [line for line in section("Plain torch").splitlines() if line.strip()]
    assert len(lines) <= 30


def test_the_first_batch_is_as_hard_as_it_says() -> None:
    names: dict[str, Any] = {}
    exec(section("Plain torch").replace("range(100)", "range(1)"), names)
    assert names["signal"].info["group_kind"].tolist() == [0] * 8
    assert names["V"] ** names["T"] == 216


def test_pins_of_the_trl_environment_are_exact_and_those_of_the_project() -> None:
    def pins(name: str) -> dict[str, str]:
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        named = [line for line in lines if line and not line.startswith("#")]
        assert all(re.fullmatch(r"[a-z0-9.-]+==[\w.]+", line) for line in named)
        return dict(line.split("==") for line in named)

    ours, theirs = pins("requirements.txt"), pins("requirements-trl.txt")
    assert {name: v for name, v in theirs.items() if name in ours} == {
        name: v for name, v in ours.items() if name in theirs
    }


@pytest.mark.trl
def test_the_trl_example_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trl = pytest.importorskip("trl", reason="TRL is not installed: `make test-trl` has it")
    from tests.engines.trl_helpers import grade, policy, questions, settings

    def on_a_cpu(**given: Any) -> Any:
        trl_own(output_dir=str(tmp_path / "own"), use_cpu=True, bf16=False, **given)  # as printed
        return settings(tmp_path, max_steps=1, **{**given, "num_generations": 4})

    trl_own = trl.GRPOConfig

    monkeypatch.setattr(trl, "GRPOConfig", on_a_cpu)
    model, _ = policy(tmp_path / "policy")
    names: dict[str, Any] = {"model": model, "correct": grade, "dataset": questions()}
    exec(section("TRL"), names)
    names["trainer"].train()
    assert names["trainer"].state.log_history[0]["lens_ref/kept_share"] == 1


@pytest.mark.trl
def test_the_page_names_every_refusal() -> None:
    pytest.importorskip("packaging")
    from lens_ref.engines.trl_settings import REFUSALS, SUPPORTED

    assert SUPPORTED in PAGE
    for refusal in REFUSALS:
        (row,) = re.findall(rf"^\| `{refusal.name}` \|.*", PAGE, re.M)
        assert ("*" in row.split("|")[2]) == refusal.allowable, refusal.name
