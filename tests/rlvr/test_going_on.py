"""What a run goes on from: a checkpoint that is whole, settings that fit it and whose changes are
told; and what its manifest says of how it ended."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lens_ref import train
from lens_ref.evaluating import policies
from lens_ref.evaluating.policies import Options
from lens_ref.rlvr import checkpoint, run_report
from lens_ref.rlvr.errors import Interrupted, UserError
from lens_ref.rlvr.run_folder import RunFolder
from lens_ref.rlvr.saved import SHAPES
from tests.rlvr import spoil
from tests.rlvr.helpers import load_tiny, small_config
from tests.rlvr.runs import StopAt, assert_same_run, trainer
from tests.rlvr.tampering import Tensors, edit, forge, forge_tensors, refused

pytestmark = pytest.mark.usefixtures("light")
STEP = 6  # of the newest checkpoint


# --- checkpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda state: state.clear(), "state.json names no step"),
        (lambda state: state.update(step=99), "state.json is of step 99"),
        (lambda state: state.update(step="6"), "state.json is of step 6"),
        (lambda state: state.update(step=True), "state.json is of step True"),
    ],
)
def test_a_forged_state_is_a_damaged_checkpoint(
    change: Any, what: str, folder: Path, straight: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = folder / "checkpoints" / f"step-{STEP}"
    forge(newest, change)
    with pytest.raises(UserError, match=r"step-6 is damaged: state\.json"):
        policies.find(str(newest), Options())
    trainer(RunFolder(folder)).run()
    told = f"the checkpoint {newest} is damaged ({what}): step-4 is used instead"
    assert caplog.messages == [told]
    assert_same_run(folder, straight)


@pytest.mark.parametrize("written", [b"[" * 100_000, b"[1]", b"", b"\xff", b'{"state.json": null}'])
def test_hashes_that_are_none(written: bytes, folder: Path) -> None:
    (folder / "checkpoints/step-6/sha256.json").write_bytes(written)
    assert checkpoint.latest(folder / "checkpoints").name == "step-4"


@pytest.mark.parametrize("name", ["step-06", "step-٦", "step-x", "step-99"])
def test_a_checkpoint_under_another_name_is_none(name: str, folder: Path, straight: Path) -> None:
    (folder / "checkpoints/step-6").rename(folder / "checkpoints" / name)
    assert checkpoint.latest(folder / "checkpoints").name == "step-4"
    trainer(RunFolder(folder)).run()
    assert_same_run(folder, straight)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda state: state.pop("tokens"), "tokens: Field required"),
        (lambda state: state.update(tokens=-1), "tokens: Input should be greater than or equal"),
        (lambda state: state.update(tokens="7"), "tokens: Input should be a valid integer"),
        (lambda state: state.update(seconds=float("nan")), "seconds: Input should be a finite"),
        (lambda state: state.update(verdicts={"wrong": []}), "verdicts.wrong: Input should be"),
        (lambda state: state.update(skipped=None), "skipped: Input should be a valid list"),
        (lambda state: state.update(rows=[]), "rows: Input should be a valid dictionary"),
        (lambda state: state.update(more=1), "more: Unexpected keyword argument"),
    ],
)
def test_a_state_that_no_run_writes_is_one_line(
    change: Any, what: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = folder / "checkpoints" / f"step-{STEP}"
    forge(newest, change)
    line = refused(folder, capsys)
    assert line.startswith(f"{newest / 'state.json'} is damaged: {what}")
    assert line.endswith(f"; move {newest} away, and the checkpoint before it is used")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda batch: batch.clear(), "index: Field required"),
        (lambda batch: batch.update(questions=[{}]), "questions.0.id: Field required"),
        (lambda batch: batch.update(prompts=3), "prompts is not a valid list"),
        (lambda batch: batch.update(index="a"), "index is not a valid integer"),
        (lambda batch: batch.update(index=0), "batch 0 of 16 questions is not in hand then"),
        (lambda batch: batch["questions"].pop(), "samples.ids are [16, 4, "),
        (lambda batch: batch["prompts"].pop(), "15 prompts to 16 questions"),
        (lambda batch: batch["prompts"][3].append(9999), "prompts hold a token beyond the "),
        (lambda batch: batch["texts"][3].pop(), "texts are not 16 times 4"),
    ],
)
def test_a_forged_batch_is_one_line(
    change: Any, what: str, folder: Path, straight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = folder / "checkpoints" / f"step-{STEP}"
    forge(newest, change, "batch.json")
    assert re.match(
        rf"{newest}/batch\.\w+ is damaged: {re.escape(what)}.*; move {newest} away, and the "
        "checkpoint before it is used$",
        refused(folder, capsys),
    )


def _drop(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.pop(name)


def _cut(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: tensors[name][:-1]})


def _fill(name: str, value: float) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: torch.full_like(tensors[name], value)})


@pytest.mark.parametrize(
    ("change", "what"),
    [
        *((_cut(name), f"{name} is [15, ") for name in SHAPES if name != "samples.ids"),
        *((_drop(name), f"{name} is missing") for name in SHAPES),
        (_cut("samples.ids"), "samples.ids are [15, "),
        (_cut("entropy"), "entropy is [15, "),
        (lambda t: t.update(rewards=t["rewards"].long()), "rewards holds torch.int64"),
        (
            lambda t: t.update({"samples.scored": t["samples.lengths"]}),
            "samples.scored holds torch.int64",
        ),
        (
            lambda t: t.update({"samples.scored": t["samples.truncated"][:, :-1].clone()}),
            "samples.scored is [16, 3] instead of [16, 4]",
        ),
        (
            lambda t: t.update({"samples.scored": torch.arange(64).reshape(16, 4) > 3}),
            "samples.scored names no answer to a question",
        ),
        (_fill("samples.ids", -1), "samples.ids hold a token that is none of the policy's "),
        (_fill("samples.ids", 9999), "samples.ids hold a token that is none of the policy's "),
        (_fill("samples.lengths", 0), "samples.lengths are not all from 1 to "),
        (_fill("samples.lengths", 99), "samples.lengths are not all from 1 to "),
    ],
)
def test_tensors_of_no_batch_are_one_line(change: Any, what: str, folder: Path) -> None:
    newest = folder / "checkpoints" / f"step-{STEP}"
    forge_tensors(newest / "batch.safetensors", change)
    with pytest.raises(UserError) as caught:
        _restore(newest)
    assert str(caught.value).startswith(f"{newest / 'batch.safetensors'} is damaged: {what}")


@pytest.mark.parametrize(
    ("of", "change", "what"),
    [
        ("exp_avg", lambda t, name: t.pop(name), "{} is missing"),
        ("exp_avg_sq", lambda t, name: t.pop(name), "{} is missing"),
        ("step", lambda t, name: t.pop(name), "{} is missing"),
        ("exp_avg", lambda t, name: _cut(name)(t), "{} is ["),
        ("exp_avg", lambda t, name: _fill(name, float("nan"))(t), "{} is not finite"),
        ("exp_avg_sq", lambda t, name: _fill(name, -1)(t), "{} is negative"),
        ("step", lambda t, name: _fill(name, -5)(t), "{} is negative"),
        ("step", lambda t, name: _fill(name, 7)(t), "{} is 7 after 6 updates"),
        ("step", lambda t, name: t.update({"step/x": t[name]}), "step/x is of no trained"),
    ],
)
def test_moments_of_no_optimizer_are_one_line(
    of: str, change: Any, what: str, folder: Path
) -> None:
    newest = folder / "checkpoints" / f"step-{STEP}"
    file = newest / "optimizer.safetensors"
    name = min(name for name in load_file(file) if name.startswith(f"{of}/"))
    forge_tensors(file, lambda tensors: change(tensors, name))
    with pytest.raises(UserError) as caught:
        _restore(newest)
    assert str(caught.value).startswith(f"{file} is damaged: {what.format(name)}")


def _restore(path: Path) -> None:
    policy = load_tiny()
    checkpoint.restore(path, policy, torch.optim.AdamW(policy.trainable().values()))


def test_forged_tensors_are_one_line_and_the_checkpoint_before_is_used(
    folder: Path, straight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = folder / "checkpoints" / f"step-{STEP}"
    forge_tensors(newest / "batch.safetensors", _drop("rewards"))
    line = refused(folder, capsys)
    assert line == (
        f"{newest / 'batch.safetensors'} is damaged: rewards is missing; move {newest} away, and "
        "the checkpoint before it is used"
    )
    shutil.move(newest, folder.parent / "away")
    assert train.main(["--resume", str(folder)]) == 0
    assert_same_run(folder, straight)


def test_a_batch_that_is_gone_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newest = folder / "checkpoints" / f"step-{STEP}"
    for name in ("batch.json", "batch.safetensors"):
        (newest / name).unlink()
    (newest / checkpoint.HASHES).write_text(json.dumps(checkpoint._hashes(newest)))
    assert refused(folder, capsys).startswith(f"{newest} is damaged: the batch in hand is missing")


def test_a_step_beyond_the_end_ends_the_loop(tmp_path: Path) -> None:
    made = trainer(RunFolder.create(tmp_path, small_config(eval__every=0, steps=4)))
    made.step = 5
    made._loop()
    assert made.saved == (5, False)


# --- settings -------------------------------------------------------------------------------------


def test_changed_settings_are_told_and_kept(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again after the next interruption, which begins at the same checkpoint; and for good."""
    monkeypatch.setenv("MY_TOKEN", "canary-canary")
    edit(folder / "config.yaml", r"lr: 0\.001", "lr: 0.002")
    edit(folder / "config.yaml", r"bad_numbers: stop", "bad_numbers: skip")
    told = 'bad_numbers "stop" → "skip"', "optimizer.lr 0.001 → 0.002"
    for _ in range(2):
        caplog.clear()
        with pytest.raises(Interrupted):
            trainer(RunFolder(folder), StopAt(1)).run()
        assert len(caplog.messages) == 1
        line = caplog.messages[0]
        assert line.startswith(f"{folder / 'config.yaml'} was changed after update {STEP}: ")
        assert all(change in line for change in told)
    manifest = RunFolder(folder).manifest()
    assert manifest["changed_settings"] == [{"step": STEP, "changed": list(told)}]
    trainer(RunFolder(folder)).run()
    assert RunFolder(folder).manifest()["changed_settings"] == manifest["changed_settings"]
    caplog.clear()
    edit(folder / "config.yaml", r"steps: 8", "steps: 12")
    trainer(RunFolder(folder)).run()
    (line,) = caplog.messages
    assert line.endswith("was changed after update 8: steps 8 → 12")
    kept = RunFolder(folder).manifest()["changed_settings"]
    assert [change["step"] for change in kept] == [6, 8]


def test_other_weights_are_refused_and_other_questions_told(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Under the same path and name, since the run began: the manifest has the hashes. An adapter
    needs its base; where all weights are trained, as here, they come from the checkpoint."""
    manifest = folder / "manifest.json"
    then = json.loads(manifest.read_text())
    now = then["data"]["train"]["sha256"]
    then["data"]["train"]["sha256"] = "a" * 64
    then["policy"] = {"source": "tiny", "sha256": "b" * 64}
    manifest.write_text(json.dumps(then))
    with pytest.raises(Interrupted):
        trainer(RunFolder(folder), StopAt(1)).run()
    assert caplog.messages == [f"data.train holds other questions since update {STEP}"]
    told = {"step": STEP, "changed": [f"data.train sha256 {'a' * 12} → {now[:12]}"]}
    kept = RunFolder(folder).manifest()
    assert kept["changed_settings"] == [told]
    assert kept["data"]["train"]["sha256"] == now
    caplog.clear()
    with pytest.raises(Interrupted):
        trainer(RunFolder(folder), StopAt(1)).run()
    assert caplog.messages == []


def test_comments_and_spaces_change_nothing(
    folder: Path, straight: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (folder / "config.yaml").open("a") as file:
        file.write("\n# a note\n")
    trainer(RunFolder(folder)).run()
    assert caplog.messages == []
    assert RunFolder(folder).manifest()["changed_settings"] == []
    (folder / "config.yaml").write_bytes((straight / "config.yaml").read_bytes())
    assert_same_run(folder, straight)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "steps: 8",
            "steps: 5",
            "step-6 is beyond the end of the run: set steps = 5 in config.yaml",
        ),
        ("questions: 16", "questions: 8", "holds a batch of other settings than"),
        ("updates_per_rollout: 4", "updates_per_rollout: 2", "holds a batch of other settings"),
        ("- lens", "- lens_pooled", "step-6 was saved by another method than lens_pooled: undo"),
        ("lora: null", "lora: {r: 2}", "step-6 does not fit this run ("),
        ("system: .*", "system: be canary-canary", "prompt.system holds the value of"),
    ],
)
def test_settings_that_a_checkpoint_does_not_fit_are_one_line(
    old: str,
    new: str,
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MY_TOKEN", "canary-canary")
    edit(folder / "config.yaml", old, new)
    line = refused(folder, capsys)
    assert message in line
    assert "canary" not in line


# --- how it ended ---------------------------------------------------------------------------------


def test_the_manifest_tells_of_a_stop_for_a_bad_number_and_how_it_went_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As the message of the stop says: `skip` in config.yaml, then --resume."""
    made = RunFolder.create(tmp_path, spoil.config())
    with pytest.raises(UserError) as caught:
        spoil.trainer(made, "reward", float("nan")).run()
    assert "bad_numbers: skip" in str(caught.value)
    manifest = made.manifest()
    assert manifest["status"] == f"stopped: {caught.value}"
    assert (manifest["step"], manifest["skipped_updates"]) == (5, [6])
    edit(made.path / "config.yaml", "bad_numbers: stop", "bad_numbers: skip")
    spoil.trainer(made, "reward", float("nan")).run()
    assert 'bad_numbers "stop" → "skip"' in caplog.text
    assert made.finished
    assert made.manifest()["changed_settings"][0]["step"] == 4


@pytest.mark.parametrize("moment", ["update", "logger"])
def test_the_manifest_tells_of_every_error(moment: str, tmp_path: Path) -> None:
    """Of one that no user caused too; printable and without secrets."""
    made = trainer(RunFolder.create(tmp_path, small_config(eval__every=0, steps=4)))

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a\n\x1b[2J https://ada:lovelace@host")

    if moment == "update":
        made.updater.step = fail  # type: ignore[method-assign, assignment]
    else:
        made.loggers.log = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(ZeroDivisionError):
        made.run()
    status = made.folder.manifest()["status"]
    assert status == r"stopped: ZeroDivisionError: a \x1b[2J https://***@host"
    trainer(made.folder).run()
    assert made.folder.finished


def test_an_error_is_told_though_the_manifest_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(RunFolder.create(tmp_path, small_config(eval__every=0, steps=4)))

    def fail(*_: object) -> None:
        (made.folder.path / "manifest.json").write_text("{")
        raise ZeroDivisionError

    monkeypatch.setattr(made.updater, "step", fail)
    with pytest.raises(ZeroDivisionError):
        made.run()


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_report_is_written(
    whole: bool,
    sent: int,
    folder: Path,
    straight: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ends as at any other moment, even where a library swallows it: status 130, how to go on."""

    def write(parent: Path) -> Path:
        try:
            os.kill(os.getpid(), sent)
        except Interrupted:
            if whole:
                raise
        return parent / "report.html"

    before = signal.getsignal(sent)
    monkeypatch.setattr(run_report, "write_report", write)
    for _ in range(2):  # the second time there is nothing but the report to write
        assert train.main(["--resume", str(folder)]) == 130
        out, err = capsys.readouterr()
        assert err == ""
        assert (
            f"stopped and saved; go on with: python -m lens_ref.train --resume {folder.parent}"
            in (" ".join(out.split()))
        )
        assert RunFolder(folder).finished
    assert_same_run(folder, straight)
    assert signal.getsignal(sent) == before
    monkeypatch.setattr(run_report, "write_report", lambda parent: parent / "report.html")
    assert train.main(["--resume", str(folder)]) == 0
