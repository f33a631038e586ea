"""Runs that sample with vLLM (its stand-in): synced before every sampling, resumed, stopped."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from lens_ref.rlvr import probe, session, update
from lens_ref.rlvr.config import Config
from lens_ref.rlvr.errors import Interrupted, UserError
from lens_ref.rlvr.run_folder import RunFolder
from lens_ref.rlvr.stop import StopRequest
from lens_ref.rlvr.trainer import Trainer
from tests.rlvr import fake_vllm
from tests.rlvr.fake_vllm import Fake
from tests.rlvr.helpers import small_config
from tests.rlvr.runs import Killed, assert_same_run, kill_after, run, tensors, trainer

PROBE_SYNCS = 2  # the probe, and the policy again
Row = dict[str, str]


def config_with(**overrides: Any) -> Config:
    base = {
        "rollout__engine": "vllm",
        "rollout__questions": 8,
        "model__lora": {"r": 4},
        "optimizer__lr": 1e-2,
        "optimizer__warmup_updates": 0,
        "steps": 6,
        "loss__updates_per_rollout": 2,
        "checkpoint__every": 2,
    }
    return small_config(**base | overrides)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    return fake_vllm.install(monkeypatch)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Fake]:
    """Six updates on three batches, evaluated at 0, 4 and 6."""
    with pytest.MonkeyPatch.context() as patch:
        fake = fake_vllm.install(patch)
        return run(tmp_path_factory.mktemp("straight"), config_with()), fake


def rows_of(path: Path) -> list[Row]:
    with (path / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_is_sane(straight: tuple[Path, Fake]) -> None:
    path, _ = straight
    rows = rows_of(path)
    assert len(rows) == 6
    assert all(float(row["logprob_drift"]) < 1e-4 for row in rows)
    assert all(float(row["grad_norm"]) > 0 for row in rows)
    assert len({row["adapter"] for row in rows}) == 6
    assert all(len(row["adapter"]) == 12 for row in rows)
    first_of_batch = [rows[i] for i in (0, 2, 4)]
    for phase in ("sync", "sample", "grade", "old", "advantage"):
        assert all(float(row[f"{phase}_seconds"]) > 0 for row in first_of_batch)
        assert all(rows[i][f"{phase}_seconds"] == "" for i in (1, 3, 5))
    assert all(float(row["update_seconds"]) > 0 for row in rows)
    assert all(row["token_budget"] == "256" for row in rows)
    assert all(row["peak_gb"] == "" for row in rows)  # no GPU
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["sampler"] == {"engine": "vllm", "version": "0.20.2"}
    assert manifest["gpu"] is None


def test_it_is_synced_once_for_every_policy_that_samples(straight: tuple[Path, Fake]) -> None:
    """Before the evaluation at 0 (and the probe), then after updates 2, 4 and 6: the batch and the
    evaluation at 4 share one."""
    path, fake = straight
    assert fake.events.count("add_lora") == 1 + PROBE_SYNCS + 3
    after = [row["adapter"] for row in rows_of(path)]
    first, probed, again, *later = [name.split("-")[1] for name in fake.names]
    assert first == again
    assert len({first, probed, *after}) == 8
    assert later == [after[1], after[3], after[5]]
    assert fake.events[-2:] == ["shutdown", "clean up"]


@pytest.mark.parametrize("step", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_a_resumed_run_is_the_straight_one(
    step: int, straight: tuple[Path, Fake], fake: Fake, tmp_path: Path
) -> None:
    """Killed inside a batch and between two: a new engine is handed the restored adapter before it
    samples."""
    folder = RunFolder.create(tmp_path, config_with())
    with pytest.raises(Killed):
        trainer(folder, report=kill_after(step)).run()
    assert fake.events[-1] == "clean up"  # also then
    trainer(folder).run()
    assert len(fake.engines) == 2
    assert_same_run(folder.path, straight[0])


def test_an_interrupted_run_is_saved_and_lets_go(
    straight: tuple[Path, Fake], fake: Fake, tmp_path: Path
) -> None:
    folder = RunFolder.create(tmp_path, config_with())
    stop = StopRequest()
    with pytest.raises(Interrupted):
        trainer(folder, stop, lambda step, row: setattr(stop, "requested", step == 3)).run()
    assert fake.events[-2:] == ["shutdown", "clean up"]
    assert folder.manifest()["step"] == 3
    trainer(folder).run()
    assert_same_run(folder.path, straight[0])


def test_a_batch_in_hand_that_lacks_what_a_changed_setting_needs(
    fake: Fake, tmp_path: Path
) -> None:
    """The correction needs the sampler's log-probabilities of all answers; those of the batch in
    hand can't be asked for any more. Between two batches the change is fine."""
    folder = RunFolder.create(tmp_path, config_with())
    for step in (3, 4):
        stop = StopRequest()
        with pytest.raises(Interrupted):
            trainer(folder, stop, lambda at, row: setattr(stop, "requested", at == step)).run()  # noqa: B023
        text = (folder.path / "config.yaml").read_text(encoding="utf-8")
        changed = text.replace("sampler_correction: none", "sampler_correction: truncate")
        (folder.path / "config.yaml").write_text(changed, encoding="utf-8")
        if step == 3:
            with pytest.raises(
                UserError, match="sampler_correction = truncate needs all of them: undo"
            ):
                trainer(folder).run()
            (folder.path / "config.yaml").write_text(text, encoding="utf-8")
    trainer(folder).run()
    assert all(float(row["grad_norm"]) > 0 for row in rows_of(folder.path))


@pytest.mark.slow
def test_the_samplers_old_logprobs(fake: Fake, tmp_path: Path) -> None:
    """They agree with the trainer's to rounding, so the run is nearly the same."""
    asked = {"rollout__vllm__logprobs": "all"}  # so that both draw the same answers
    trainers = run(tmp_path / "trainer", config_with(**asked))
    path = run(tmp_path / "sampler", config_with(loss__old_logprobs="sampler"))
    a, b = tensors(path), tensors(trainers)
    gaps = [float((a[n] - b[n]).abs().max()) for n in a if n.startswith("policy/")]
    assert 0 < max(gaps) < 0.05
    assert [row["logprob_drift"] == "" for row in rows_of(path)] == [False, True] * 3


@pytest.mark.slow
def test_it_sleeps_while_the_trainer_works(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = []
    step, freeze = update.Updater.step, update.Updater.freeze_old

    def watched(method: Any) -> Any:
        def call(self: Any, *arguments: Any) -> Any:
            asleep.append(fake.llm.asleep)
            return method(self, *arguments)

        return call

    monkeypatch.setattr(update.Updater, "step", watched(step))
    monkeypatch.setattr(update.Updater, "freeze_old", watched(freeze))
    run(tmp_path, config_with(rollout__vllm={"sleep": True}))
    assert asleep == [True] * (3 + 6)
    assert fake.events.count("sleep") == 3  # after every batch
    assert fake.events.count("wake_up") == 3  # for the second, and for the evaluations at 4 and 6


def session_of(parent: Path, **second: Any) -> list[RunFolder]:
    """Two runs, of two updates each."""
    base: dict[str, Any] = {"steps": 2, "eval__every": 0}
    configs = (config_with(**base), config_with(**base | {"seed": 1} | second))
    return [RunFolder.create(parent, config) for config in configs]


@pytest.mark.slow
@pytest.mark.parametrize("longer", [False, True])
def test_the_runs_of_a_session_share_an_engine(longer: bool, fake: Fake, tmp_path: Path) -> None:
    """One that can serve the next run goes on; one too short for it is replaced. Either way the
    second run is what it is alone."""
    more = {"rollout__max_new_tokens": 2 * config_with().rollout.max_new_tokens} if longer else {}
    runs = session_of(tmp_path / "session", **more)
    assert session.train_all(runs) == 0
    assert len(fake.engines) == 1 + longer
    assert fake.events.count("shutdown") == 1 + longer
    assert fake.events[-2:] == ["shutdown", "clean up"]
    alone = run(tmp_path / "alone", runs[1].config())
    timed = ("seconds", "per_second")
    for mine, its in zip(rows_of(runs[1].path), rows_of(alone), strict=True):
        for key, value in mine.items():
            assert value == its[key] or key.endswith(timed), key


@pytest.mark.slow
def test_an_engine_that_slept_is_not_replaced(fake: Fake, tmp_path: Path) -> None:
    """vLLM starts no second one in the process. The first run is whole, asleep before the second
    policy is loaded."""
    sleeping = {"rollout__vllm": {"sleep": True}}
    more = sleeping | {"rollout__max_new_tokens": 2 * config_with().rollout.max_new_tokens}
    parent = tmp_path / "session"
    runs = [
        RunFolder.create(parent, config_with(steps=2, eval__every=0, **sleeping)),
        RunFolder.create(parent, config_with(steps=2, eval__every=0, seed=1, **more)),
    ]
    with pytest.raises(UserError, match=r"needs another vLLM .* go on with --resume"):
        session.train_all(runs)
    assert [folder.finished for folder in runs] == [True, False]
    assert fake.events[-3:] == ["sleep", "shutdown", "clean up"]


def no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the fault came up later than the check at the start."""
    monkeypatch.setattr(probe, "verify", lambda sampler, *_: sampler.sync())


@pytest.mark.parametrize("old", ["trainer", pytest.param("sampler", marks=pytest.mark.slow)])
def test_drift_beyond_the_bound_stops_the_run(
    old: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that goes on answering with its first adapter."""
    fake = fake_vllm.install(monkeypatch, stale_prefixes=True)
    no_probe(monkeypatch)
    config = config_with(optimizer__lr=0.1, loss__old_logprobs=old, eval__every=0)
    folder = RunFolder.create(tmp_path, config)
    made: Trainer = trainer(folder)
    with pytest.raises(UserError, match=r"at update 3 .* nats a token .*max_drift = 0.2") as caught:
        made.run()
    assert "\n" not in str(caught.value)
    assert len(rows_of(folder.path)) == 2
    assert fake.events[-2:] == ["shutdown", "clean up"]


def test_a_run_is_refused_before_anything_is_sampled_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = fake_vllm.install(monkeypatch, ignores_adapter=True)
    folder = RunFolder.create(tmp_path, config_with())
    with pytest.raises(UserError, match="does not follow the adapter"):
        trainer(folder).run()
    assert not (folder.path / "eval.csv").exists()
    assert fake.events[-2:] == ["shutdown", "clean up"]
