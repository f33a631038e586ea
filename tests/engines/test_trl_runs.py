"""Two processes, and a run that is cut off and goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import pad

pytest.importorskip("trl", reason="TRL is not installed: `make test-trl` has an environment of it")

from lens_ref import methods
from tests.engines.trl_helpers import GROUP, grouped, trainer

pytestmark = pytest.mark.trl

ROOT = Path(__file__).resolve().parents[2]


METHODS = ("lens", "rl_zvp", "spo")  # for a response, for a token, with state


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes saw."""
    out = tmp_path_factory.mktemp("processes")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "tests/engines/trl_run.py", str(out), *METHODS]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return [torch.load(out / f"rank-{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("method", METHODS)
def test_two_processes_share_their_groups(ranks: list[dict[str, Any]], method: str) -> None:
    spec = methods.spec(method)
    pairs = list(zip(*(rank[method]["batches"] for rank in ranks), strict=True))
    assert len(pairs) == 2
    for pair in pairs[:1] if spec.stateful else pairs:
        rollouts = grouped(joined(list(pair)))
        assert rollouts.rewards.shape == (3, GROUP)
        if spec.stateful:  # nothing is known before the first batch
            rollouts = replace(rollouts, prior=spec.prior(spec.init_state(), range(3)))
        expected = methods.get(method)(rollouts).advantages.flatten(0, 1).float()
        for rank, batch in enumerate(pair):
            found, own = batch["advantages"], expected[6 * rank : 6 * rank + 6]
            own = own if own.ndim == 1 else own[:, : found.shape[1]]
            assert found.abs().max() > 1e-3
            torch.testing.assert_close(found, own, rtol=0, atol=1e-6)
    assert ranks[0][method]["state"] == ranks[1][method]["state"]
    for name, weight in ranks[0][method]["weights"].items():
        assert torch.equal(weight, ranks[1][method]["weights"][name]), name


def joined(batches: list[dict[str, Any]]) -> dict[str, Any]:
    """The rows of both processes, padded to one length; rewards are those of both already."""
    width = max(batch["completion_ids"].shape[1] for batch in batches)
    names = ("completion_ids", "completion_mask", "own_logprobs", "own_entropy")
    rows = {
        name: torch.cat([pad(b[name], (0, width - b[name].shape[1])) for b in batches])
        for name in names
    }
    assert torch.equal(batches[0]["rewards"], batches[1]["rewards"])
    return {**rows, "rewards": batches[0]["rewards"]}


@pytest.mark.parametrize("method", ["lens", "lens_pooled"])
def test_a_resumed_run_is_the_straight_run(tmp_path: Path, method: str) -> None:
    chosen = {"method": method}
    saving = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    straight = trainer(tmp_path / "straight", chosen, **saving)
    straight.train()
    resumed = trainer(tmp_path / "straight", chosen, **saving)
    resumed.train(resume_from_checkpoint=str(tmp_path / "straight/out/checkpoint-2"))

    assert len(resumed.batches) == 2
    for again, before in zip(resumed.batches, straight.batches[2:], strict=True):
        assert torch.equal(again["completion_ids"], before["completion_ids"])
        assert torch.equal(again["advantages"], before["advantages"])
    assert resumed.treatment.state == straight.treatment.state
    weights = zip(straight.model.parameters(), resumed.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)
    saved = json.loads((tmp_path / "straight/out/checkpoint-2/lens_ref_state.json").read_text())
    assert saved["method"] == method
    assert (saved["state"] is not None) == methods.spec(method).stateful


@pytest.mark.parametrize("step", [4, 6, 8])
def test_later_epochs_are_resumed_in_their_own_order(tmp_path: Path, step: int) -> None:
    """16 questions, four a batch: an epoch has four updates."""
    saving = {"save_strategy": "steps", "save_steps": 2, "max_steps": 9, "shuffle_dataset": True}
    straight = trainer(tmp_path / "run", {"method": "spo"}, **saving)
    straight.train()
    resumed = trainer(tmp_path / "run", {"method": "spo"}, **{**saving, "save_strategy": "no"})
    resumed.train(resume_from_checkpoint=str(tmp_path / f"run/out/checkpoint-{step}"))
    for again, before in zip(resumed.batches, straight.batches[step:], strict=True):
        assert torch.equal(again["prompt_ids"], before["prompt_ids"])
        assert torch.equal(again["completion_ids"], before["completion_ids"])
    assert resumed.treatment.state == straight.treatment.state
    weights = zip(straight.model.parameters(), resumed.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in weights)


def test_a_method_does_not_resume_from_anothers_checkpoint(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1}
    trainer(tmp_path / "lens", {"method": "lens"}, **saving).train()
    folder = tmp_path / "lens/out/checkpoint-1"
    for method in ("ebpo", "grpo"):
        run = trainer(tmp_path / method, {"method": method}, max_steps=2)
        message = f"lens wrote this checkpoint and {method} can't go on with it"
        with pytest.raises(ValueError, match=message):
            run.train(resume_from_checkpoint=str(folder))
    (folder / "lens_ref_state.json").unlink()  # as of a checkpoint of the plain engine
    trainer(tmp_path / "again", {"method": "grpo"}, max_steps=2).train(
        resume_from_checkpoint=str(folder)
    )
    run = trainer(tmp_path / "state", {"method": "ebpo"}, max_steps=2)
    with pytest.raises(ValueError, match=r"holds no lens_ref_state\.json: ebpo keeps state"):
        run.train(resume_from_checkpoint=str(folder))
