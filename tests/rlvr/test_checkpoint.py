"""Checkpoints: complete, atomic, kept in number, intact whatever happens during a save."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM

from lens_ref.rlvr import checkpoint
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.config import LoraConfig, ModelConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.logs import JsonLines, Table
from lens_ref.rlvr.policy import Policy, load_policy, model_folder
from lens_ref.rlvr.run_folder import RunFolder, write_atomic
from tests.rlvr.helpers import CPU, load_tiny, signal, small_config, tiny_updater
from tests.rlvr.runs import trainer

ALL = slice(None)


def trained(policy: Policy, batch: Batch) -> torch.optim.Optimizer:
    """The optimizer after one update."""
    updater = tiny_updater(policy)
    updater.step(replace(batch, signal=signal(batch, "lens")), ALL, 0)
    return updater.optimizer


def save(folder: Path, step: int, policy: Policy, batch: Batch | None = None, **kw: Any) -> Path:
    optimizer = kw.pop("optimizer", None) or torch.optim.AdamW(policy.trainable().values())
    return checkpoint.save(folder, step, policy, optimizer, batch, {"tokens": 7}, kw.pop("keep", 2))


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# --- round trip -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [False, True])
def test_the_step_counter_lies_where_the_optimizer_wants_it(fused: bool) -> None:
    """A fused AdamW refuses a counter on another device than the weights; here that is "meta"."""
    weight = torch.nn.Parameter(torch.empty(2, device="meta"))
    policy = SimpleNamespace(trainable=lambda: {"w": weight})
    optimizer = torch.optim.AdamW([weight])
    optimizer.param_groups[0]["fused"] = fused
    saved = {"step/w": torch.tensor(3.0), "exp_avg/w": torch.ones(2), "exp_avg_sq/w": torch.ones(2)}
    checkpoint._load_optimizer(policy, optimizer, saved)  # type: ignore[arg-type]
    state = optimizer.state[weight]
    assert state["exp_avg"].device.type == state["exp_avg_sq"].device.type == "meta"
    assert state["step"].device.type == ("meta" if fused else "cpu")


def test_a_batch_comes_back_with_what_the_sampler_told(batch: Batch, tmp_path: Path) -> None:
    policy = load_tiny()
    scored = torch.zeros(batch.samples.lengths.shape, dtype=torch.bool)
    scored[:, 0] = True
    batch = replace(batch, samples=replace(batch.samples, scored=scored))
    path = save(tmp_path, 3, policy, replace(batch, signal=signal(batch, "lens")))
    _, again = checkpoint.restore(path, policy, torch.optim.AdamW(policy.trainable().values()))
    assert again is not None
    assert again.samples.scored is not None
    assert torch.equal(again.samples.scored, scored)


@pytest.mark.parametrize("lora", [None, LoraConfig(r=2)], ids=["full", "lora"])
def test_weights_moments_and_batch_come_back(
    lora: LoraConfig | None, batch: Batch, tmp_path: Path
) -> None:
    policy = load_tiny(lora=lora)
    optimizer = trained(policy, batch)
    valued = replace(batch, signal=signal(batch, "lens"))
    path = save(tmp_path, 3, policy, valued, optimizer=optimizer)

    fresh = load_policy(ModelConfig(lora=lora), CPU, seed=1)
    its_optimizer = torch.optim.AdamW(fresh.trainable().values())
    state, again = checkpoint.restore(path, fresh, its_optimizer)
    assert (state["step"], state["tokens"]) == (3, 7)
    for name, parameter in policy.trainable().items():
        assert torch.equal(fresh.trainable()[name], parameter), name
        before, after = optimizer.state[parameter], its_optimizer.state[fresh.trainable()[name]]
        assert before.keys() == after.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(before[key], after[key]) for key in before)
    assert again is not None
    for name in ("index", "questions", "prompts", "texts", "reasons"):
        assert getattr(again, name) == getattr(valued, name), name
    for name in ("rewards", "old_logprobs", "entropy"):
        assert torch.equal(getattr(again, name), getattr(valued, name)), name
    for name in ("ids", "lengths", "logprobs", "truncated"):
        assert torch.equal(getattr(again.samples, name), getattr(valued.samples, name)), name
    assert torch.equal(again.signal.advantages, valued.signal.advantages)
    assert torch.equal(again.signal.keep, valued.signal.keep)
    assert again.signal.info.keys() == valued.signal.info.keys()


def test_a_checkpoint_is_a_model_folder(batch: Batch, tmp_path: Path) -> None:
    """What was trained can be loaded by transformers, and by --model."""
    policy = load_tiny()
    trained(policy, batch)
    folder = save(tmp_path, 1, policy) / "policy"
    assert model_folder(str(folder)) == str(folder)
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    weight = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(loaded.state_dict()[weight], policy.model.state_dict()[weight])
    assert not torch.equal(loaded.state_dict()[weight], load_tiny().model.state_dict()[weight])
    assert load_policy(ModelConfig(path=str(folder)), CPU, 0).stop_ids == policy.stop_ids


@pytest.mark.parametrize("stop_tokens", [(), ("a",)])
def test_a_checkpoint_ends_its_answers_as_the_policy_did(
    stop_tokens: tuple[str, ...], llama: Path, tmp_path: Path
) -> None:
    """Also where generation_config.json alone names a token; the run's own are learnt, too."""
    model = Path(shutil.copytree(llama, tmp_path / "model"))
    (model / "generation_config.json").write_text('{"eos_token_id": [5, 1], "top_k": 3}')
    policy = load_policy(ModelConfig(path=str(model)), CPU, 0, stop_tokens)
    assert policy.stop_ids == (1, 5, 6)[: 2 + len(stop_tokens)]
    folder = save(tmp_path, 1, policy) / "policy"
    assert set(load_policy(ModelConfig(path=str(folder)), CPU, 0).stop_ids) == set(policy.stop_ids)
    assert "top_k" not in json.loads((folder / "generation_config.json").read_text())


def test_nothing_is_pickled(tiny: Policy, batch: Batch, tmp_path: Path) -> None:
    path = save(tmp_path, 1, tiny, optimizer=trained(load_tiny(), batch))
    kinds = {Path(name).suffix for name in files(path)}
    assert kinds <= {".safetensors", ".json", ".jinja", ".txt", ".md"}


def test_the_newest_are_kept(tiny: Policy, tmp_path: Path) -> None:
    for step in (2, 4, 10, 12):  # 10 sorts after 4, not before
        save(tmp_path, step, tiny, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-10", "step-12"]
    assert checkpoint.latest(tmp_path).name == "step-12"


def test_a_run_keeps_two(tmp_path: Path) -> None:
    config = small_config(checkpoint__every=1, eval__every=0, steps=5)
    folder = RunFolder.create(tmp_path, config)
    trainer(folder).run()
    kept = [path.name for path in checkpoint.checkpoints(folder.path / "checkpoints")]
    assert kept == ["step-4", "step-5"]


@pytest.mark.parametrize("change", ["missing", "extra", "edited", "cut"])
def test_a_checkpoint_that_was_tampered_with_is_not_the_latest(
    change: str, tiny: Policy, tmp_path: Path
) -> None:
    save(tmp_path, 1, tiny)
    weights = save(tmp_path, 2, tiny) / "policy" / "model.safetensors"
    content = weights.read_bytes()
    if change == "missing":
        weights.unlink()
    elif change == "extra":
        (weights.parent / "more.safetensors").write_bytes(content)
    elif change == "edited":
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        weights.write_bytes(content[:-1])
    assert checkpoint.latest(tmp_path).name == "step-1"


@pytest.mark.parametrize("name", ["state.json", "sha256.json", "policy/config.json"])
def test_every_bit_counts(name: str, tiny: Policy, tmp_path: Path) -> None:
    """The counters and the hashes themselves included."""
    path = save(tmp_path, 2, tiny) / name
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 1 if name == "state.json" else 7):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        assert not checkpoint.intact(tmp_path / "step-2"), (bit, bytes(damaged))
    path.write_bytes(content)
    assert checkpoint.intact(tmp_path / "step-2")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("optimizer.safetensors", "optimizer.safetensors is missing"),
        ("state.json", "state.json is missing"),
        ("sha256.json", "sha256.json: No such file or directory"),
    ],
)
def test_a_damaged_checkpoint_is_told_in_one_line(
    name: str, what: str, tiny: Policy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (1, 2):
        save(tmp_path, step, tiny)
    assert checkpoint.latest(tmp_path).name == "step-2"
    assert caplog.messages == []
    (tmp_path / "step-2" / name).unlink()
    assert checkpoint.latest(tmp_path).name == "step-1"
    told = f"the checkpoint {tmp_path / 'step-2'} is damaged ({what}): step-1 is used instead"
    assert caplog.messages == [told]
    caplog.clear()
    (tmp_path / "step-1" / name).unlink()
    assert checkpoint.latest(tmp_path) is None
    assert [text.split("): ")[1] for text in caplog.messages] == ["no intact one is left"] * 2


def test_a_damaged_later_checkpoint_does_not_push_out_a_good_one(
    tiny: Policy, tmp_path: Path
) -> None:
    """The run went back to step 2, and saves step 4 while a damaged step 7 lies there."""
    for step in (2, 7):
        save(tmp_path, step, tiny)
    (tmp_path / "step-7" / "state.json").unlink()
    save(tmp_path, 4, tiny, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-4"]
    assert checkpoint.latest(tmp_path).name == "step-4"


def test_a_folder_without_checkpoints(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path / "absent") is None
    (tmp_path / "step-3").mkdir()  # a copy that never got its state
    assert checkpoint.latest(tmp_path) is None


# --- a full disk ----------------------------------------------------------------------------------


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def full_in_safetensors(*_: object, **__: object) -> None:
    raise SafetensorError(
        "Error while serializing: I/O error: No space left on device (os error 28)"
    )


FAILURES: list[tuple[str, Callable[..., None]]] = [
    ("lens_ref.rlvr.checkpoint.save_file", full),
    ("lens_ref.rlvr.checkpoint.save_file", full_in_safetensors),
    ("transformers.PreTrainedModel.save_pretrained", full_in_safetensors),
    ("transformers.PreTrainedTokenizerBase.save_pretrained", full),
    ("pathlib.Path.write_text", full),
    ("os.fsync", full),
    ("pathlib.Path.rename", full),
    ("pathlib.Path.mkdir", full),
]


@pytest.mark.parametrize(
    ("where", "failure"), FAILURES, ids=[f"{w.split('.', 2)[-1]}-{f.__name__}" for w, f in FAILURES]
)
def test_a_full_disk_leaves_the_earlier_checkpoint_intact(
    where: str,
    failure: Callable[..., None],
    tiny: Policy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "checkpoints"
    save(folder, 1, tiny, keep=1)
    before = files(folder)
    with monkeypatch.context() as patch:
        patch.setattr(where, failure)
        with pytest.raises(UserError, match="No space left on device") as caught:
            save(folder, 2, tiny, keep=1)
    assert "\n" not in str(caught.value)
    assert f"--resume {tmp_path}" in str(caught.value)
    assert files(folder) == before
    assert checkpoint.latest(folder).name == "step-1"
    save(folder, 2, tiny, keep=1)
    assert [p.name for p in folder.iterdir()] == ["step-2"]


def test_the_hashes_are_of_every_other_file(tiny: Policy, tmp_path: Path) -> None:
    path = save(tmp_path, 1, tiny)
    assert json.loads((path / "state.json").read_text("utf-8")) == {"step": 1, "tokens": 7}
    found = {
        name: hashlib.sha256(content).hexdigest()
        for name, content in files(path).items()
        if name != "sha256.json"
    }
    assert json.loads((path / "sha256.json").read_text("utf-8")) == found


@pytest.mark.parametrize("where", ["metrics.csv", "groups.csv", "samples.jsonl", "manifest.json"])
def test_a_full_disk_while_logging_is_one_line(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path, small_config(eval__every=0, steps=4))
    real = Path.open

    class Full:
        """A file that takes nothing."""

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        write = writelines = staticmethod(full)

    def opened(self: Path, mode: str = "r", *rest: Any, **kw: Any) -> Any:
        return Full() if where in self.name and mode != "r" else real(self, mode, *rest, **kw)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(UserError, match="No space left on device") as caught:
        trainer(folder).run()
    assert f"cannot write {folder.path / where}" in str(caught.value)
    assert f"--resume {folder.path}" in str(caught.value)
    monkeypatch.undo()
    trainer(folder).run()
    assert folder.finished


# --- logs -----------------------------------------------------------------------------------------


def test_a_table_is_cut(tmp_path: Path) -> None:
    table = Table(tmp_path / "log.csv", ["step", "name", "value"])
    table.cut(3)
    assert not table.path.exists()
    assert table.read() == []
    names = ["plain", "a,b", "a\nb", 'say "x"', "\u2028\x85"]
    table.append({"step": n, "name": name, "value": n / 3} for n, name in enumerate(names))
    table.append([{"step": 5, "value": None}])
    text = table.path.read_bytes()
    table.cut(9)
    assert table.path.read_bytes() == text
    rows = table.read()
    assert [row.step for row in rows] == [0, 1, 2, 3, 4, 5]
    assert rows[1].value == ["1", "a,b", "0.3333333333333333"]
    assert rows[5].value == ["5", "", ""]
    assert (table.rows.total(), table.until(3)) == (6, 4)
    with table.path.open("a", encoding="utf-8") as file:
        file.write('6,"half\n')
    table.cut(9)
    assert table.path.read_bytes() == text
    table.cut(2)
    assert table.path.read_text(encoding="utf-8") == (
        'step,name,value\n0,plain,0.0\n1,"a,b",0.3333333333333333\n2,"a\nb",0.6666666666666666\n'
    )
    table.append([{"step": 3, "name": "again", "value": 1}])
    assert table.read()[-1] == (3, ["3", "again", "1"])
    assert table.rows == {0: 1, 1: 1, 2: 1, 3: 1}


def test_a_jsonl_log_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    JsonLines(path).cut(3)
    assert not path.exists()
    lines = [json.dumps({"step": n, "text": "a\u2028b\x85"}, ensure_ascii=False) for n in range(3)]
    path.write_text("\n".join(lines) + '\n{"step": 3', encoding="utf-8")
    JsonLines(path).cut(1)
    assert path.read_text(encoding="utf-8") == "\n".join(lines[:2]) + "\n"


def test_a_file_is_replaced_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            write_atomic(path, "new")
    assert files(tmp_path) == {"file": b"old"}
    write_atomic(path, "new")
    assert files(tmp_path) == {"file": b"new"}


def test_a_leftover_of_a_killed_save_is_removed(tiny: Policy, tmp_path: Path) -> None:
    shutil.copytree(save(tmp_path, 1, tiny), tmp_path / ".step-7.tmp")
    save(tmp_path, 2, tiny)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-1", "step-2"]
