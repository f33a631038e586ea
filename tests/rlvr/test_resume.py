"""N updates straight through, and the same run interrupted, killed or damaged and then resumed:
weights, optimizer and logs agree to the last bit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from lens_ref.rlvr import checkpoint, evaluation
from lens_ref.rlvr.adapter import adapter_tensors
from lens_ref.rlvr.errors import Interrupted, UserError
from lens_ref.rlvr.policy import load_policy
from lens_ref.rlvr.run_folder import RunFolder
from lens_ref.rlvr.update import Updater
from tests.rlvr.helpers import small_config
from tests.rlvr.runs import (
    Killed,
    StopAt,
    assert_same_run,
    kill_after,
    logged,
    run,
    tensors,
    trainer,
)


@pytest.fixture(scope="module")
def phases(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """In which phase of such a run each of its checks for a stop is made."""
    stop = StopAt()
    trainer(RunFolder.create(tmp_path_factory.mktemp("phases"), small_config()), stop).run()
    return stop.phases


def interrupt(parent: Path, check: int) -> RunFolder:
    """A run that was asked to stop at its n-th check, and saved."""
    folder = RunFolder.create(parent, small_config())
    with pytest.raises(Interrupted):
        trainer(folder, StopAt(check)).run()
    assert folder.manifest()["status"] == "interrupted"
    assert not folder.finished
    return folder


def interrupt_after(folder: RunFolder, step: int) -> None:
    """Ask the run to stop when it reports an update."""
    stop = StopAt()

    def ask(done: int, row: object) -> None:
        stop.requested = done == step

    with pytest.raises(Interrupted):
        trainer(folder, stop, ask).run()


def test_a_run_is_logged(straight: Path) -> None:
    """The reference itself: eight updates, three evaluations, two rollout batches."""
    found = logged(straight)
    assert [row["step"] for row in found["metrics.csv"]] == [str(n) for n in range(1, 9)]
    evals = [line.split(",")[:2] for line in found["eval.csv"].splitlines()[1:]]
    assert [step for step, level in evals if level == "all"] == ["0", "4", "8"]
    groups = [line.split(",")[0] for line in found["groups.csv"].splitlines()[1:]]
    assert groups == ["0"] * 16 + ["4"] * 16
    samples = [json.loads(line)["step"] for line in found["samples.jsonl"].splitlines()]
    assert samples == [0] * 16 + [4] * 16
    assert all(float(row["grad_norm"]) > 0 for row in found["metrics.csv"])
    assert any(float(row["mixed_share"]) > 0 for row in found["metrics.csv"])
    assert any(float(row["clip_fraction"]) > 0 for row in found["metrics.csv"])
    assert found["manifest"]["status"] == "finished"
    assert found["manifest"]["step"] == 8
    # two rollout batches of 16 x 4 answers, three evaluations of 5 x 2
    assert sum(found["manifest"]["verifier"].values()) == 158
    assert any(name.startswith("optimizer") for name in tensors(straight))


def test_two_runs_of_a_seed_are_one(straight: Path, tmp_path: Path) -> None:
    assert_same_run(run(tmp_path, small_config()), straight)
    other = run(tmp_path, small_config(seed=1))
    assert logged(other)["metrics.csv"] != logged(straight)["metrics.csv"]


@pytest.mark.parametrize("step", [2, 4])
def test_interrupted_between_updates(step: int, straight: Path, tmp_path: Path) -> None:
    """After step 4 between rollout batches, after 2 inside one."""
    folder = RunFolder.create(tmp_path, small_config())
    interrupt_after(folder, step)
    assert folder.manifest()["step"] == step
    newest = checkpoint.latest(folder.path / "checkpoints")
    assert newest.name == f"step-{step}"
    assert (newest / "batch.safetensors").exists() == (step != 4)
    trainer(folder).run()
    assert_same_run(folder.path, straight)


@pytest.mark.parametrize("phase", ["evaluate", "sample", "freeze_old", "step"])
def test_interrupted_within(phase: str, straight: Path, phases: list[str], tmp_path: Path) -> None:
    """In the middle of the second evaluation, sampling, scoring or updating."""
    where = [n for n, name in enumerate(phases, start=1) if name == phase]
    folder = interrupt(tmp_path, where[3 * len(where) // 4])
    trainer(folder).run()
    assert_same_run(folder.path, straight)


def test_interrupted_again_and_again(straight: Path, phases: list[str], tmp_path: Path) -> None:
    """Each piece of the run ends a few checks later in its own life than the one before."""
    folder, pieces, checks = RunFolder.create(tmp_path, small_config()), 0, 1
    while not folder.finished:
        try:
            trainer(folder, StopAt(checks)).run()
        except Interrupted:
            pieces, checks = pieces + 1, checks + 11
            assert pieces < 50
    assert pieces >= 4
    assert checks < len(phases)
    assert_same_run(folder.path, straight)


def test_killed_without_a_chance_to_save(straight: Path, tmp_path: Path) -> None:
    """Logs run ahead of the newest checkpoint, end in half lines, and a temporary folder is left;
    the updates since then are done again."""
    folder = RunFolder.create(tmp_path, small_config())
    with pytest.raises(Killed):
        trainer(folder, report=kill_after(7)).run()
    assert folder.manifest()["status"] == "running"
    torn = {
        "metrics.csv": "8,0.25,0.",
        "eval.csv": "8,all,0.4",
        "eval_counts.csv": "8,tiny-test-1",
        "groups.csv": '8,"tiny',
        "samples.jsonl": '{"step": 8, "resp',
    }
    for name, text in torn.items():
        with (folder.path / name).open("a", encoding="utf-8") as file:
            file.write(text)
    half = folder.path / "checkpoints" / ".step-6.tmp"
    shutil.copytree(folder.path / "checkpoints" / "step-4", half)
    trainer(folder).run()
    assert_same_run(folder.path, straight)
    assert not half.exists()


def test_killed_within_the_last_evaluation(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It alone is done again: all updates are in a checkpoint before it begins."""
    folder = RunFolder.create(tmp_path, small_config())
    evaluate, step = evaluation.evaluate, Updater.step

    def killed(*args: Any) -> Any:
        if args[-1] == 8:
            raise Killed
        return evaluate(*args)

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "evaluate", killed)
        with pytest.raises(Killed):
            trainer(folder).run()
    newest = checkpoint.latest(folder.path / "checkpoints")
    assert newest is not None
    assert newest.name == "step-8"
    updates: list[int] = []
    monkeypatch.setattr(Updater, "step", lambda *args: updates.append(1) or step(*args))
    trainer(folder).run()
    assert updates == []
    assert_same_run(folder.path, straight)


@pytest.mark.parametrize("renamed", [False, True])
def test_killed_while_a_checkpoint_was_replaced(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renamed: bool
) -> None:
    """After the last evaluation the last step's is written again: nothing is lost in between."""
    folder = RunFolder.create(tmp_path, small_config(checkpoint__keep=1))
    rename = Path.rename

    def killed(path: Path, target: Path) -> Path:
        if path.name == ".step-8.tmp" and (path.parent / ".step-8.old").exists():
            if renamed:
                rename(path, target)
            raise Killed
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(Killed):
            trainer(folder).run()
    left = sorted(path.name for path in (folder.path / "checkpoints").iterdir())
    assert left == [".step-8.old", "step-8" if renamed else ".step-8.tmp"]
    monkeypatch.setattr(Updater, "step", None)  # none is made
    trainer(folder).run()
    assert_same_run(folder.path, straight)
    assert [path.name for path in (folder.path / "checkpoints").iterdir()] == ["step-8"]


def test_killed_before_the_first_checkpoint(straight: Path, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, small_config())
    with pytest.raises(Killed):
        trainer(folder, report=kill_after(2)).run()
    trainer(folder).run()
    assert_same_run(folder.path, straight)


def test_killed_between_the_two_logs_of_an_evaluation(straight: Path, tmp_path: Path) -> None:
    """One of them is written: the evaluation is done again as a whole."""
    folder = RunFolder.create(tmp_path, small_config())
    with pytest.raises(Killed):
        trainer(folder, report=kill_after(1)).run()
    assert (folder.path / "eval_counts.csv").exists()
    (folder.path / "eval.csv").unlink()
    trainer(folder).run()
    assert_same_run(folder.path, straight)


def drop_last_line(path: Path) -> None:
    *lines, _ = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines), encoding="utf-8")


def test_killed_while_the_levels_of_an_evaluation_were_written(
    straight: Path, tmp_path: Path
) -> None:
    folder = RunFolder.create(tmp_path, small_config())
    with pytest.raises(Killed):
        trainer(folder, report=kill_after(1)).run()
    drop_last_line(folder.path / "eval.csv")
    trainer(folder).run()
    assert_same_run(folder.path, straight)


def test_levels_lost_though_the_checkpoint_was_kept(straight: Path, tmp_path: Path) -> None:
    """A machine that loses power may keep the one and lose the end of the other."""
    folder = RunFolder.create(tmp_path, small_config())
    interrupt_after(folder, 4)
    with pytest.raises(Killed):
        trainer(folder, report=kill_after(5)).run()
    drop_last_line(folder.path / "eval.csv")
    trainer(folder).run()
    for name in ("eval.csv", "eval_counts.csv"):
        assert logged(folder.path)[name] == logged(straight)[name]


@pytest.mark.parametrize("content", ["", "step"])
def test_killed_while_the_logs_were_being_created(
    content: str, straight: Path, tmp_path: Path
) -> None:
    folder = RunFolder.create(tmp_path, small_config())
    for name in ("metrics.csv", "eval.csv", "eval_counts.csv", "groups.csv", "samples.jsonl"):
        (folder.path / name).write_text(content, encoding="utf-8")
    trainer(folder).run()
    assert_same_run(folder.path, straight)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["policy/model.safetensors", "batch.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_passed_over(name: str, straight: Path, tmp_path: Path) -> None:
    """One flipped bit in the newest: the run goes on from the one before, and ends the same."""
    folder = RunFolder.create(tmp_path, small_config())
    interrupt_after(folder, 6)
    damage(folder.path / "checkpoints" / "step-6" / name)
    assert checkpoint.latest(folder.path / "checkpoints").name == "step-4"
    trainer(folder).run()
    assert_same_run(folder.path, straight)


def test_a_damaged_last_checkpoint_is_written_again(straight: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / straight.name)
    shutil.copytree(straight, folder.path)
    damage(folder.path / "checkpoints" / "step-8" / "policy" / "model.safetensors")
    trainer(folder).run()
    assert checkpoint.latest(folder.path / "checkpoints").name == "step-8"
    assert_same_run(folder.path, straight)


def test_an_adapter_goes_on_over_its_own_base_alone(tmp_path: Path) -> None:
    """The manifest has the hash of the weights that the run began with."""
    config = small_config(model__lora={"r": 4})
    folder = RunFolder.create(tmp_path, config)
    interrupt_after(folder, 3)
    path = folder.path / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["policy"].keys() == {"source", "sha256", "commit"}
    manifest["policy"]["sha256"] = "b" * 64
    path.write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"holds other weights than .* \(sha256 bbbbbbbbbbbb… then"):
        trainer(folder).run()


def test_saving_an_adapter_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """peft would ask the hub, at every update, whether the base's embeddings were resized."""
    policy = load_policy(small_config(model__lora={"r": 4}).model, torch.device("cpu"), 0)
    policy.model.peft_config["default"].base_model_name_or_path = "owner/name"
    asked = []
    monkeypatch.setattr(
        "peft.utils.save_and_load.check_file_exists_on_hf_hub", lambda *it: asked.append(it)
    )
    assert adapter_tensors(policy, torch.float32)
    assert not asked


def test_an_adapter_is_resumed(tmp_path: Path) -> None:
    config = small_config(model__lora={"r": 4}, optimizer__lr=1e-2)
    whole = run(tmp_path / "whole", config)
    assert any("lora_B" in name for name in tensors(whole))
    folder = RunFolder.create(tmp_path / "pieces", config)
    with pytest.raises(Killed):
        trainer(folder, report=kill_after(6)).run()
    trainer(folder).run()
    assert_same_run(folder.path, whole)


def test_the_samplers_logprobs_are_resumed(tmp_path: Path) -> None:
    """A batch without entropies is in hand."""
    config = small_config(loss__old_logprobs="sampler")
    whole = run(tmp_path / "whole", config)
    folder = RunFolder.create(tmp_path / "pieces", config)
    interrupt_after(folder, 6)
    trainer(folder).run()
    assert_same_run(folder.path, whole)


def test_text_that_looks_like_a_line_end_survives(tmp_path: Path) -> None:
    """Ids and problems may hold separators that some line splitters take for a new line."""
    rows = [
        {"problem": f"{n} (a) +5 (mod 36)", "answer": str(n + 5), "id": f"q\u2028{n}\n,\x85\x1c"}
        for n in range(20)
    ]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = small_config(data__train=str(path), data__test=None)
    whole = run(tmp_path / "whole", config)
    folder = RunFolder.create(tmp_path / "pieces", config)
    with pytest.raises(Killed):
        trainer(folder, report=kill_after(6)).run()
    trainer(folder).run()
    assert_same_run(folder.path, whole)


def test_evaluation_changes_nothing(straight: Path, tmp_path: Path) -> None:
    without = run(tmp_path, small_config(eval__every=0))
    assert not (without / "eval.csv").exists()
    first, second = tensors(without), tensors(straight)
    assert first.keys() == second.keys()
    assert all((first[name] == second[name]).all() for name in first)
    a, b = logged(without), logged(straight)
    assert a["metrics.csv"] == b["metrics.csv"]


def test_the_order_of_questions_is_that_of_the_seed_for_every_method(
    straight: Path, tmp_path: Path
) -> None:
    """GRPO and LENS are compared on the same questions, and on the same first answers."""
    other = run(tmp_path, small_config(methods=["grpo"]))
    a, b = logged(other)["groups.csv"].splitlines(), logged(straight)["groups.csv"].splitlines()
    assert [row.split(",")[:3] for row in a] == [row.split(",")[:3] for row in b]
    assert a[:17] == b[:17]
    assert logged(other)["metrics.csv"] != logged(straight)["metrics.csv"]
