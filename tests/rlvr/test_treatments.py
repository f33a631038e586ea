"""Every method trains the bundled policy, and what it remembers survives an interruption."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

from lens_ref import methods
from lens_ref.methods.treatment import Treatment
from lens_ref.rlvr import checkpoint
from lens_ref.rlvr.config import parse_method
from lens_ref.rlvr.errors import Interrupted, UserError
from lens_ref.rlvr.run_folder import RunFolder
from tests.rlvr.helpers import small_config
from tests.rlvr.runs import StopAt, assert_same_run, run, tensors, trainer

STATEFUL = [name for name in methods.names() if methods.spec(name).stateful]


@pytest.mark.parametrize("name", methods.names())
def test_trains(name: str, tmp_path: Path) -> None:
    """Four updates on one batch; an update that keeps no answer says so by empty cells."""
    method = "passk:k=2" if name == "passk" else name
    path = run(tmp_path, small_config(methods=[method], steps=4, eval__every=0))
    with (path / "metrics.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert any(float(row["grad_norm"]) > 0 for row in rows)
    trained = [row["entropy"] for row in rows if row["entropy"]]
    assert all(float(entropy) > 0 for entropy in trained)
    assert len(trained) == 4 or methods.spec(name).negative_class == "dropped"
    ratios = [float(row["neg_to_mixed_rms"]) for row in rows if row["neg_to_mixed_rms"]]
    if methods.spec(name).negative_class in ("zero", "dropped"):
        assert set(ratios) <= {0.0}
    elif methods.spec(name).negative_class != "batch_dependent":
        assert min(ratios) > 0


@pytest.mark.parametrize("name", STATEFUL)
def test_state_survives_an_interruption(name: str, tmp_path: Path) -> None:
    """A second pass over the questions depends on what the first one left behind: twenty training
    questions, sixteen a batch."""
    config = small_config(methods=[name], data__train_questions=20)
    straight = run(tmp_path / "a", config)
    folder = RunFolder.create(tmp_path / "b", config)
    stop = StopAt()

    def ask(done: int, row: object) -> None:
        stop.requested = done == 6  # in the middle of the second batch

    with pytest.raises(Interrupted):
        trainer(folder, stop, ask).run()
    trainer(folder).run()
    assert_same_run(straight, folder.path)
    states = [checkpointed(path) for path in (straight, folder.path)]
    assert states[0] == states[1]
    assert states[0] != methods.spec(name).init_state()


def checkpointed(path: Path) -> object:
    newest = checkpoint.latest(path / "checkpoints")
    assert newest is not None
    return json.loads((newest / "state.json").read_text(encoding="utf-8"))["method"]


def test_forgetting_the_state_would_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above can fail: with a prior that never learns the run ends elsewhere."""
    config = small_config(methods=["spo"], data__train_questions=20)
    straight = run(tmp_path / "a", config)
    memory = type(methods.spec("spo").memory)
    monkeypatch.setattr(memory, "update", lambda self, state, rollouts, questions: state)
    forgetful = run(tmp_path / "b", config)
    a, b = tensors(straight), tensors(forgetful)
    assert any(not torch.equal(a[name], b[name]) for name in a if name.startswith("policy"))


def test_settings_of_the_state_come_from_the_command() -> None:
    name, given = parse_method("lens_pooled:count=4,d0=2,alpha=0.5")
    treatment = Treatment(name, hyperparameters=given)
    assert treatment.state == {"count": 4.0, "d0": 2.0, "questions": {}}
    assert Treatment("grpo").state is None


def test_a_method_that_cannot_work_is_refused() -> None:
    with pytest.raises(UserError, match=r"k = 4 needs more than 4 rollout\.responses, not 4"):
        small_config(methods=["passk"])
    with pytest.raises(UserError, match=r"rl_zvp needs token entropies.*loss\.old_logprobs"):
        small_config(methods=["rl_zvp"], loss__old_logprobs="sampler")
