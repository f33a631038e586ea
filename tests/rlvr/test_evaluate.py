"""`python -m lens_ref.evaluate`: its numbers by hand, what it evaluates, resuming, bad input."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from lens_ref.evaluate import main
from lens_ref.evaluating import policies, sampling, session
from lens_ref.evaluating.counts import Count, read
from lens_ref.evaluating.policies import Options, Target
from lens_ref.rlvr.adapter import adapter_tensors
from lens_ref.rlvr.data_config import ColumnsConfig, SourceConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.run_folder import RunFolder
from lens_ref.rlvr.session import load_data
from lens_ref.rlvr.stop import StopRequest
from lens_ref.rlvr.tasks import Questions, load_questions
from lens_ref.tiny import POLICY_DIR
from lens_ref.verifier import Verdict
from tests.beside import ROOT
from tests.rlvr import fake_vllm
from tests.rlvr.helpers import CPU, ExactVerifier, small_config, toy_tokenizer
from tests.rlvr.runs import Killed, run

FAST = ["--n", "4", "--block", "4", "--set", "rollout.max_new_tokens=40"]


class RightVerifier(ExactVerifier):
    """Every answer is right."""

    def grade(self, golds: Any, texts: Any) -> Any:
        return [Verdict(1.0, "correct") for _ in texts]


class CoinVerifier(ExactVerifier):
    """Half of all texts are right, whatever they say: other answers give other counts."""

    def grade(self, golds: Any, texts: Any) -> Any:
        odd = [zlib.crc32(text.encode()) % 2 for text in texts]
        return [Verdict(float(bit), "correct" if bit else "wrong") for bit in odd]


class KilledVerifier(CoinVerifier):
    """The process dies while it grades the second block."""

    calls = 0

    def grade(self, golds: Any, texts: Any) -> Any:
        type(self).calls += 1
        if self.calls == 2:
            raise Killed
        return super().grade(golds, texts)


@pytest.fixture(autouse=True)
def _light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder and no grading processes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "Verifier", ExactVerifier)
    KilledVerifier.calls = 0


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command; returns exit status, standard output and standard error."""

    def call(*arguments: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as left:
            status = int(left.code or 0)
        return status, *capsys.readouterr()

    return call


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight updates of all weights, checkpoints after four and eight, tested on five questions."""
    return run(tmp_path_factory.mktemp("full"), small_config(seed=3))


@pytest.fixture(scope="module")
def adapter_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of an adapter."""
    config = small_config(model__lora={"r": 2, "alpha": 4.0}, optimizer__lr=1e-2)
    return run(tmp_path_factory.mktemp("adapter"), config)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of questions with subjects."""
    folder = tmp_path_factory.mktemp("data")
    rows = [
        {"id": f"q{i}", "problem": f"{i}+1", "answer": str(i + 1), "level": 4 + i % 2}
        | ({"subject": "Sums"} if i < 6 else {"subject": "Other\nSums"})
        for i in range(10)
    ]
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def table(folder: Path) -> dict[tuple[str, str, int], dict[str, str]]:
    with (folder / "table.csv").open(encoding="utf-8", newline="") as file:
        return {(r["name"], r["set"], int(r["k"])): r for r in csv.DictReader(file)}


def recounted(folder: Path) -> list[Count]:
    return read(folder / "counts.csv")


# --- what it does ---------------------------------------------------------------------------------


def test_help(command: Command) -> None:
    status, out, err = command("--help")
    assert (status, err) == (0, "")
    options = "--data --questions --trained-on --from --baseline --n --seed --block --device"
    for option in [*options.split(), "--engine", "--config", "--model", "--set", "--out"]:
        assert option in out
    assert command("overlap", "--help")[0] == 0


def test_the_bundled_policy_without_a_name(command: Command) -> None:
    status, out, err = command("--questions", 6, *FAST)
    assert (status, err) == (0, "")
    assert "tiny  question 4/6" in out
    assert "written to runs/evaluate" in out
    folder = Path("runs/evaluate")
    counts = recounted(folder / "tiny")
    assert [(c.n, c.subject) for c in counts] == [(4, None)] * 6
    assert Path("runs/evaluate/table.txt").read_text(encoding="utf-8") in out.replace(
        "note", "\nnote"
    )
    settings = json.loads((folder / "tiny/evaluation.json").read_text())["settings"]
    assert (settings["temperature"], settings["engine"], settings["n"]) == (1.0, "hf", 4)
    assert {row["name"] for row in table(folder).values()} == {"tiny"}


def test_all_right_and_all_truncated(
    command: Command, monkeypatch: pytest.MonkeyPatch, questions: Path
) -> None:
    monkeypatch.setattr(session, "Verifier", RightVerifier)
    one_token = [*FAST[:-1], "rollout.max_new_tokens=1"]
    assert command("tiny", "--data", questions, *one_token)[0] == 0
    assert recounted(Path("runs/evaluate/tiny"))[6] == Count("q6", 4, "Other Sums", 4, 4, 4)
    rows = table(Path("runs/evaluate"))
    names = ["all", "level 4-5", "level 4", "level 5", "Other Sums", "Sums"]
    assert [name for _, name, k in rows if k == 1] == names
    assert [int(rows["tiny", name, 2]["questions"]) for name in names] == [10, 10, 5, 5, 4, 6]
    assert {(row["pass@k"], row["truncated"]) for row in rows.values()} == {("1.0", "1.0")}


def test_graded_as_in_training(command: Command) -> None:
    """At this seed the bundled policy is right about easy questions and wrong about hard ones."""
    assert command("--questions", 50, "--n", 4)[0] == 0
    rows = table(Path("runs/evaluate"))
    assert float(rows["tiny", "level 1", 1]["pass@k"]) > 0.4
    assert float(rows["tiny", "level 5", 1]["pass@k"]) < 0.3


def test_questions_that_were_dropped_are_told(command: Command, tmp_path: Path) -> None:
    """In the manifest, with every table, and of the evaluations within a run."""
    rows = [{"problem": f"{i}+1", "answer": " " if i < 2 else str(i + 1)} for i in range(5)]
    (tmp_path / "set.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    note = "note: left out, for an answer that can't be parsed: 2 questions"
    asked = ["--data", "set.jsonl", "--n", 2]
    for arguments in (asked, asked, ["--from", "runs/evaluate", "--out", "again"]):
        status, out, _ = command(*arguments)
        assert (status, note in out.splitlines()) == (0, True)
    for folder in ("runs/evaluate", "again"):
        assert note in Path(folder, "table.txt").read_text("utf-8").splitlines()
    assert (
        json.loads(Path("runs/evaluate/tiny/evaluation.json").read_text())["dropped_unparsable"]
        == 2
    )
    one = {"questions": 3, "sha256": "a", "dropped_unparsable": 1}
    out = command("--from", write_run(tmp_path / "lens-seed0", test=one))[1]
    assert "note: left out, for an answer that can't be parsed: 1 question" in out.splitlines()


def test_comparisons_of_an_earlier_table_do_not_stay(command: Command, tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name) for name in ("grpo-seed0", "lens-seed0")]
    assert command("--from", *runs, "--out", "table")[0] == 0
    assert Path("table/comparisons.csv").is_file()
    assert command("--from", runs[0], "--out", "table")[0] == 0
    assert not Path("table/comparisons.csv").exists()


# --- resuming -------------------------------------------------------------------------------------


@pytest.fixture
def straight(command: Command, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The counts of an unbroken evaluation."""
    monkeypatch.setattr(session, "Verifier", CoinVerifier)
    assert command("--questions", 10, *FAST, "--out", "straight")[0] == 0
    return Path("straight/tiny/counts.csv").read_bytes()


def test_a_killed_evaluation_goes_on_to_the_same_counts(
    command: Command, monkeypatch: pytest.MonkeyPatch, straight: bytes
) -> None:
    arguments = ["--questions", 10, *FAST, "--out", "killed"]
    path = Path("killed/tiny/counts.csv")
    with monkeypatch.context() as patch:
        patch.setattr(session, "Verifier", KilledVerifier)
        with pytest.raises(Killed):
            command(*arguments)
    assert len(read(path)) == 4
    with path.open("ab") as file:  # what a kill in the middle of a write leaves
        file.write(straight.splitlines(keepends=True)[5] + b"tiny-te")
    torch.manual_seed(77)  # must not matter
    status, out, _ = command(*arguments)
    assert status == 0
    assert "question 0/10" not in out
    assert path.read_bytes() == straight
    assert Path("killed/table.csv").read_bytes() == Path("straight/table.csv").read_bytes()


def test_asked_to_stop_it_keeps_whole_blocks(
    command: Command, monkeypatch: pytest.MonkeyPatch, straight: bytes
) -> None:
    arguments = ["--questions", 10, *FAST, "--out", "stopped"]
    checks = 0

    def check(self: StopRequest) -> None:
        nonlocal checks
        checks += 1
        self.requested = checks == 50  # while the second block is sampled
        original(self)

    original = StopRequest.check
    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "check", check)
        status, out, err = command(*arguments)
    assert (status, err) == (130, "")
    assert "the same command goes on" in out
    assert len(recounted(Path("stopped/tiny"))) == 4
    status, out, _ = command("--from", "stopped")
    assert "note: tiny is not finished: 4 of 10 questions" in out
    assert command(*arguments)[0] == 0
    assert Path("stopped/tiny/counts.csv").read_bytes() == straight


def test_a_finished_evaluation_samples_nothing(
    command: Command, monkeypatch: pytest.MonkeyPatch, straight: bytes
) -> None:
    monkeypatch.setattr(sampling, "make_sampler", None)
    manifest = Path("straight/tiny/evaluation.json")
    whole = manifest.read_text("utf-8")
    for killed in (False, True):
        if killed:  # between the last counts and the manifest
            manifest.write_text(whole.replace('"done": 10', '"done": 8'), "utf-8")
        assert command("--questions", 10, *FAST, "--out", "straight")[0] == 0
        assert Path("straight/tiny/counts.csv").read_bytes() == straight
        assert manifest.read_text("utf-8") == whole


def test_blocks_differ_in_their_random_numbers(command: Command, tmp_path: Path) -> None:
    """The same question in each of three blocks: with one seed the answers would repeat."""
    row = {"problem": "3+4", "answer": "7"}
    (tmp_path / "same.jsonl").write_text((json.dumps(row) + "\n") * 3, encoding="utf-8")
    seen = []
    with pytest.MonkeyPatch.context() as patch:

        def answer(*arguments: Any) -> Any:
            found = original(*arguments)
            seen.append(found.samples.ids)
            return found

        original = sampling.answer
        patch.setattr(sampling, "answer", answer)
        assert command("--data", "same.jsonl", "--n", 16, "--block", 1)[0] == 0
    assert len(seen) == 3
    assert not any(torch.equal(seen[0], other) for other in seen[1:])


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (["--seed", 1], "seed = 0, not 1"),
        (["--n", 3], "n = 4, not 3"),
        (["--questions", 9], "data.questions = 10, not 9"),
        (["--block", 5], "block = 4, not 5"),
        (["--set", "rollout.max_new_tokens=41"], "max_new_tokens = 40, not 41"),
        (["--set", "rollout.max_new_tokens=40", "prompt.template=<{problem}>"], "prompt.template"),
        (["--set", "rollout.max_new_tokens=40", "rollout.batch_rows=3"], "batch_rows"),
    ],
)
def test_other_settings_do_not_mix(
    command: Command, straight: bytes, changed: list[Any], named: str
) -> None:
    arguments = ["--questions", 10, *FAST, "--out", "straight", *changed]
    status, _, err = command(*arguments)
    assert status == 2
    assert err.startswith("error: straight/tiny was begun with ")
    assert named in err
    assert Path("straight/tiny/counts.csv").read_bytes() == straight


# --- policies -------------------------------------------------------------------------------------


def target(path: Path, **overrides: Any) -> Target:
    (found,) = policies.find(str(path), Options(None, overrides))
    return found


def weights(path: Path) -> dict[str, torch.Tensor]:
    (file,) = (path / "policy").glob("*.safetensors")
    return load_file(file)


@pytest.mark.parametrize("step", [None, 4])
def test_a_run_of_all_weights(full_run: Path, step: int | None) -> None:
    at = full_run / f"checkpoints/step-{step or 8}"
    found = target(full_run if step is None else at)
    assert (found.step, found.seed, found.config.prompt.template) == (step or 8, 3, "{problem}")
    state = policies.load_target(found, CPU).model.state_dict()
    for name, tensor in weights(at).items():
        assert torch.equal(state[name], tensor)
    other = weights(full_run / f"checkpoints/step-{12 - (step or 8)}")
    assert any(not torch.equal(state[name], tensor) for name, tensor in other.items())


def test_an_adapter_as_run_and_as_checkpoint(adapter_run: Path) -> None:
    at = adapter_run / "checkpoints/step-8"
    saved = {name: tensor.float() for name, tensor in weights(at).items()}
    assert any(tensor.abs().sum() > 0 for name, tensor in saved.items() if "lora_B" in name)
    for path in (adapter_run, at, at / "policy"):
        policy = policies.load_target(target(path), CPU)
        loaded = adapter_tensors(policy, torch.float32)
        assert loaded.keys() == saved.keys()
        assert all(torch.equal(loaded[name], tensor) for name, tensor in saved.items())


def test_an_adapter_alone_is_asked_as_in_the_papers_experiments(
    adapter_run: Path, tmp_path: Path
) -> None:
    loose = tmp_path / "loose"
    shutil.copytree(adapter_run / "checkpoints/step-8/policy", loose)
    copied = tmp_path / "step-8"  # a checkpoint away from its run
    shutil.copytree(adapter_run / "checkpoints/step-8", copied)
    assert target(copied).adapter == copied / "policy"
    own = target(loose, **{"model.path": "tiny"}).config
    assert (own.model.path, own.model.lora.r, own.model.lora.alpha) == ("tiny", 2, 4.0)
    assert "boxed" in own.prompt.system
    assert own.rollout.max_new_tokens == 4096


def test_the_runs_of_a_folder_on_their_own_questions(
    command: Command, full_run: Path, questions: Path, tmp_path: Path
) -> None:
    """Without --data: the runs' test set, for the base model beside them too."""
    parent = tmp_path / "mine"
    for seed in (3, 4):
        as_seed(full_run, parent, seed, train=questions)
    status, out, err = command("tiny", parent, "--n", 2, "--trained-on")
    assert (status, err) == (0, "")
    assert "that are in the training set of the runs" in out
    assert "lens (2 runs)" in out
    assert "lens minus tiny (2 pairs of runs)" in out
    rows = table(Path("runs/evaluate"))
    assert {(row["name"], row["questions"]) for row in rows.values() if row["set"] == "all"} == {
        (name, "5") for name in ("tiny", "lens", "lens-seed3", "lens-seed4")
    }


def test_runs_of_other_settings_are_no_seeds_of_one_method(
    command: Command, full_run: Path, adapter_run: Path, tmp_path: Path
) -> None:
    """Their mean would be of nothing that was trained; nor is it, from their counts."""
    runs = [tmp_path / "lens-seed3", tmp_path / "lens-seed4"]
    for path, copy in zip((full_run, adapter_run), runs, strict=True):
        shutil.copytree(path, copy)
    told = "lens-seed3 and lens-seed4 are both of lens by their names, yet differ in model.lora, "
    status, out, err = command(*runs, "--n", 2)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert told in err
    assert "optimizer.lr: rename one, or look at each alone" in err
    for path in runs:
        assert command(path, "--n", 2)[0] == 0
    for counts in (["runs/evaluate"], runs):
        status, _, err = command("--from", *counts)
        assert (status, told in err) == (2, True)
    runs[1].rename(tmp_path / "lens-lora-seed4")
    status, out, _ = command("--from", runs[0], tmp_path / "lens-lora-seed4")
    assert (status, "lens-lora minus lens\n" in out) == (0, True)


@pytest.mark.parametrize(
    ("config", "differ"),
    [
        ({"seed": 2}, None),
        ({"steps": 9}, "steps"),
        ({"data": {"train": "x"}}, "data.train"),
        ({"eval": {"n": 8, "every": 2}, "loss": {"micro_batch_tokens": 4096}}, None),
        ({"data": {"train": "tiny", "test_questions": 20}, "rollout": {"batch_rows": 64}}, None),
        ({"model": {"path": "elsewhere"}}, None),
        ({"model": {"path": "elsewhere", "sha256": "b"}}, "weights"),
        ({"model": {"path": "elsewhere", "sha256": None}}, "model.path"),
    ],
)
def test_what_the_runs_of_a_method_may_differ_in(
    command: Command, tmp_path: Path, config: dict[str, Any], differ: str | None
) -> None:
    """The base's hash tells more than its path; how a run evaluated itself is no part of it."""
    first = {
        "seed": 1, "steps": 8, "data": {"train": "tiny", "test_questions": 9}, "device": "cpu",
        "eval": {"n": 4, "every": 4}, "loss": {"micro_batch_tokens": 0},
        "rollout": {"batch_rows": 8}, "model": {"path": "here"},
    }  # fmt: skip
    second = {**first, "device": "cuda", **config}
    for seed, settings in enumerate((first, second), 1):
        weights = settings["model"].pop("sha256", "a")
        path = write_run(tmp_path / f"mine/lens-seed{seed}", **settings | {"seed": seed})
        (path / "manifest.json").write_text(json.dumps({"policy": {"sha256": weights}}))
    status, out, err = command("--from", "mine")
    assert (status, "lens (2 runs)" in out) == ((0, True) if differ is None else (2, False))
    assert differ is None or f"differ in {differ}: rename one" in err


@pytest.mark.parametrize(
    ("seed", "lr", "told"),
    [
        (0, 1e-4, []),
        (0, 1e-2, ["lens and grpo differ in more than the method: optimizer.lr"]),
        (1, 1e-4, ["lens and grpo share no seed: their differences are not paired by it"]),
    ],
)
def test_what_sets_two_methods_apart_besides_them_is_told(
    command: Command, tmp_path: Path, seed: int, lr: float, told: list[str]
) -> None:
    for name, k, rate in (("grpo", 0, 1e-4), ("lens", seed, lr)):
        settings = {"methods": [name], "seed": k, "steps": 8, "optimizer": {"lr": rate}}
        test = {"questions": 3, "sha256": "a"}
        write_run(tmp_path / f"mine/{name}-seed{k}", test=test, **settings)
    status, out, err = command("--from", "mine")
    assert (status, err, "lens minus grpo" in out) == (0, "", True)
    notes = [line.removeprefix("note: ") for line in out.splitlines() if line.startswith("note: ")]
    assert [note for note in notes if note.startswith("lens and grpo")] == told


def test_a_run_that_was_moved_goes_on_in_the_same_folder(
    command: Command, full_run: Path, tmp_path: Path
) -> None:
    """The hash says that its weights are the same."""
    shutil.copytree(full_run, tmp_path / "a/lens-seed3")
    assert command("a/lens-seed3", "--n", 2)[0] == 0
    (tmp_path / "a").rename(tmp_path / "b")
    status, _, err = command("b/lens-seed3", "--n", 2)
    assert (status, err) == (0, "")


def test_names_take_as_much_of_the_path_as_tells_them_apart() -> None:
    paths = [("runs", "a", "lens-seed0"), ("runs", "b", "lens-seed0"), ("tiny",)]
    assert policies.names(paths) == ["a-lens-seed0", "b-lens-seed0", "tiny"]
    assert policies.names(paths[1:]) == ["lens-seed0", "tiny"]
    with pytest.raises(UserError, match="tiny is named twice"):
        policies.names([paths[2], paths[2]])
    spaced = [("a", "x y"), ("b", "x_y")]
    assert policies.names(spaced) == ["a-x_y", "b-x_y"]
    with pytest.raises(UserError, match="a/x y and a/x_y would have one name: rename"):
        policies.names([spaced[0], ("a", "x_y")])


def test_two_hub_ids_that_end_alike_have_two_names() -> None:
    both = [policies.find(f"{owner}/Qwen2.5-3B", Options())[0] for owner in ("Qwen", "unsloth")]
    assert policies.names([one.path for one in both]) == [
        "Qwen-Qwen2.5-3B",
        "unsloth-Qwen2.5-3B",
    ]
    assert policies.names([both[0].path]) == ["Qwen2.5-3B"]
    with pytest.raises(UserError, match=r"Qwen/Qwen2\.5-3B is named twice"):
        policies.names([both[0].path, both[0].path])


# --- from counts ----------------------------------------------------------------------------------


def test_a_folder_of_runs_gives_their_last_evaluations(command: Command, tmp_path: Path) -> None:
    for name, steps in {"grpo-seed0": (0,), "lens-seed0": (0, 20), "lens-seed1": (20,)}.items():
        (tmp_path / "mine" / name).mkdir(parents=True)
        rows = "".join(f"{step},q{i},1,2,{i}\n" for step in steps for i in range(3))
        text = f"step,question,level,n,correct\n{rows}"
        (tmp_path / "mine" / name / "eval_counts.csv").write_text(text, encoding="utf-8")
    status, out, err = command("--from", "mine", "--out", "table")
    assert (status, err) == (0, "")
    note = (
        "note: the runs were evaluated after different updates: 0 (grpo-seed0), 20 (lens-seed0 …)"
    )
    assert note in out.splitlines()
    assert {name for name, *_ in table(Path("table"))} == {
        *("grpo", "lens", "lens-seed0", "lens-seed1"),
    }


def write_run(
    folder: Path, rows: int = 3, test: dict[str, Any] | None = None, **settings: Any
) -> Path:
    """The files of a run that an evaluation reads: counts, manifest and, of some, settings."""
    folder.mkdir(parents=True)
    text = "".join(f"8,{i},1,2,{i % 3}\n" for i in range(rows))
    (folder / "eval_counts.csv").write_text(f"step,question,level,n,correct\n{text}")
    if test is not None:
        (folder / "manifest.json").write_text(json.dumps({"data": {"test": test}}))
    if settings:
        (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    return folder


def test_runs_that_were_tested_on_other_questions_are_not_compared(
    command: Command, tmp_path: Path
) -> None:
    """Their ids are row numbers, the same in any two files."""
    for name, sha256 in {"grpo-seed0": "a", "lens-seed0": "b", "lens-seed1": None}.items():
        write_run(tmp_path / "mine" / name, test=sha256 and {"questions": 3, "sha256": sha256})
    status, out, err = command("--from", "mine")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "grpo-seed0 and lens-seed0 were evaluated on different questions" in err
    status, _, err = command("--from", "mine/lens-seed1", "mine/lens-seed0", "mine/grpo-seed0")
    assert (status, "different questions" in err) == (2, True)
    status, out, _ = command("--from", "mine/grpo-seed0", "mine/lens-seed1")
    assert status == 0
    assert "note: nothing tells on which questions lens-seed1 was evaluated" in out
    assert "nothing tells" not in command("--from", "mine/lens-seed1")[1]  # alone
    (tmp_path / "mine/lens-seed0/manifest.json").write_text("{")
    assert "is damaged" in command("--from", "mine")[2]


def test_names_that_the_settings_contradict(command: Command, tmp_path: Path) -> None:
    """A copy of a seed is no other seed, and another method is none of this one's."""
    for name, seed, method in (("lens-seed0", 0, "lens"), ("lens-seed7", 0, "lens:preset=paper")):
        write_run(tmp_path / "twice" / name, seed=seed, methods=[method])
    status, _, err = command("--from", "twice")
    told = "lens-seed0 and lens-seed7 are no two seeds: their settings say that both were trained"
    assert (status, err.startswith(f"error: {told} with seed 0")) == (2, True)
    status, out, _ = command("--from", "twice/lens-seed7")
    assert (status, "note: lens-seed7 was trained with seed 0, as its settings say" in out) == (
        0,
        True,
    )
    write_run(tmp_path / "mixed/lens-seed0", seed=0, methods=["lens"])
    write_run(tmp_path / "mixed/lens-seed1", seed=1, methods=["grpo"])
    status, _, err = command("--from", "mixed")
    assert (status, "both of lens by their names, yet differ in method: " in err) == (2, True)


def test_a_part_of_the_questions_is_not_compared_with_all(command: Command, tmp_path: Path) -> None:
    for name, size in {"grpo-seed0": 3, "lens-seed0": 2}.items():
        tested = {"questions": size, "sha256": f"of {size}"}
        write_run(tmp_path / "mine" / name, rows=size, test=tested)
    status, _, err = command("--from", "mine")
    assert (status, "were evaluated on different questions (3 and 2): " in err) == (2, True)


def test_too_few_answers_for_a_larger_k_are_told_once(command: Command, tmp_path: Path) -> None:
    for name in ("grpo-seed0", "lens-seed0", "nsr-seed0"):
        write_run(tmp_path / "mine" / name)
    _, out, _ = command("--from", "mine")
    notes = [line for line in out.splitlines() if "larger k" in line]
    assert notes == ["note: grpo …: 2 answers a question, too few for a larger k"]


def test_an_evaluation_that_stopped_half_way_is_told(command: Command, tmp_path: Path) -> None:
    """The manifest knows how many questions there are; a row without its end is not believed."""
    tested = {"questions": 4, "sha256": "a"}
    folder = write_run(tmp_path / "lens-seed0", rows=3, test=tested)
    status, out, _ = command("--from", folder)
    assert (status, "note: lens-seed0 is not finished: 3 of 4 questions" in out) == (0, True)
    path = folder / "eval_counts.csv"
    for text in (path.read_text() + "8,3,1,16,1", path.read_text() + "8,3,1,1"):
        path.write_text(text)
        status, _, err = command("--from", folder)
        assert (status, "eval_counts.csv is damaged: " in err, err.count("\n")) == (2, True, 1)


def test_the_runs_that_a_difference_leaves_out_are_told(command: Command, tmp_path: Path) -> None:
    tested = {"questions": 3, "sha256": "a"}
    for name in ("grpo-seed1", "grpo-seed2", "lens-seed2", "lens-seed3"):
        write_run(tmp_path / "mine" / name, test=tested)
    status, out, _ = command("--from", "mine")
    assert status == 0
    assert (
        "note: lens minus grpo is of the runs that share a seed (lens-seed2 and grpo-seed2); the "
        "tables count lens-seed3, grpo-seed1 too"
    ) in out.splitlines()
    shutil.rmtree(tmp_path / "mine/grpo-seed1")
    shutil.rmtree(tmp_path / "mine/lens-seed3")
    assert "share a seed" not in command("--from", "mine")[1]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--n", 2], "--n"),
        (["--seed", 0, "--set", "rollout.max_new_tokens=3"], "--seed and --set"),
        (["--questions", 2, "--data", "tiny"], "--data and --questions"),
        (["--config", "tiny", "--model", "tiny"], "--config and --model"),
        (["--block", 1, "--device", "cpu", "--engine", "hf"], "--block and --device and --engine"),
    ],
)
def test_what_does_nothing_beside_counts_is_refused(
    command: Command, tmp_path: Path, options: list[Any], named: str
) -> None:
    folder = write_run(tmp_path / "lens-seed0")
    status, out, err = command("--from", folder, *options)
    assert (status, out) == (2, "")
    assert err == f"error: --from samples nothing: leave out {named}\n"


def test_the_checkpoints_update_is_kept(command: Command, full_run: Path) -> None:
    """In the manifest of an evaluation."""
    steps = [full_run / f"checkpoints/step-{step}" for step in (4, 8)]
    status, out, _ = command(*steps, "--n", 16, "--questions", 2)
    assert status == 0
    name = f"{full_run.name}-step-"
    told = f"note: the runs were evaluated after different updates: 4 ({name}4), 8 ({name}8)"
    assert told in out.splitlines()


def test_counts_of_the_tiny_task_without_its_training_questions(command: Command) -> None:
    assert command("--questions", 5, "--n", 1)[0] == 0
    asked = ["--data", "tiny", "--trained-on", "tiny"]
    status, out, err = command("--from", "runs/evaluate", *asked)
    assert (status, err) == (0, "")
    assert "tiny, with and without the questions that are in tiny" in out


def test_one_method_by_name_is_told_before_anything_is_sampled(
    command: Command, full_run: Path, tmp_path: Path
) -> None:
    for name in ("lens-seed3", "lens-seed03"):
        shutil.copytree(full_run, tmp_path / "copies" / name)
    status, out, err = command("copies/lens-seed3", "copies/lens-seed03")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "are both of lens, yet not two seeds of it" in err


def test_vllm_serves_a_base_model_under_an_empty_adapter(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = fake_vllm.install(monkeypatch)
    arguments = ["--questions", 5, "--n", 2, "--engine", "vllm", "--block", 3]
    status, _, err = command(*arguments, "--set", "model.dtype=bfloat16")
    assert (status, err) == (0, "")
    settings = json.loads(Path("runs/evaluate/tiny/evaluation.json").read_text())["settings"]
    assert settings["engine"] == "vllm"
    assert fake.events[-1] == "clean up"


# --- the overlap with a training set --------------------------------------------------------------


def test_three_numbers_side_by_side(
    command: Command, monkeypatch: pytest.MonkeyPatch, questions: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(session, "Verifier", RightVerifier)
    trained = [{"problem": "$ 2 + 1 $"}, {"problem": "9+1"}, {"problem": "77+1"}]
    text = "".join(json.dumps(row) + "\n" for row in trained)
    (tmp_path / "trained.jsonl").write_text(text, encoding="utf-8")
    asked = ["--data", questions, "--trained-on", "trained.jsonl"]
    status, out, _ = command("tiny", *FAST, *asked)
    assert status == 0
    (line,) = [line for line in out.splitlines() if line.startswith("all, pass@1")]
    sure = ["100.0", "[100.0,", "100.0]"]
    assert line.split()[2:] == [*sure, "10", *sure, "8", *sure, "2"]
    sizes = {name: row["questions"] for (_, name, k), row in table(Path("runs/evaluate")).items()}
    assert (sizes["level 4-5, trained on"], sizes["level 4-5, not trained on"]) == ("2", "8")
    # the same from the counts, for which the questions must be named
    status, again, _ = command("--from", "runs/evaluate", *asked, "--out", "again")
    assert status == 0
    assert table(Path("again")) == table(Path("runs/evaluate"))
    assert out.split("\ntiny\n")[1].split("written")[0] in again + "\n"


def write_sums(path: str, numbers: Iterable[int], answers: bool = True) -> None:
    """A set without ids: they are row numbers."""
    rows = [{"problem": f"{i}+1"} | ({"answer": str(i + 1)} if answers else {}) for i in numbers]
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


MAPPED = ColumnsConfig(answer="problem")
DOUBT = "note: nothing tells whether {} was asked the questions that {}.jsonl holds: "


def test_counts_of_another_set_are_not_taken_for_those_of_data(command: Command) -> None:
    """Row numbers are the same in any two sets: what was trained on would be false."""
    write_sums("own.jsonl", range(6))
    write_sums("other.jsonl", range(20, 26))
    write_sums("trained.jsonl", (1, 21, 22))
    write_sums("texts.jsonl", range(6), answers=False)
    trained = ["--trained-on", "trained.jsonl"]
    for size in ([], ["--questions", 4]):  # a part of the set too
        out = ["--out", f"eval{len(size)}"]
        assert command("--data", "own.jsonl", *size, "--n", 1, *out)[0] == 0
        told = command("--from", out[1], "--data", "own.jsonl", *trained)
        assert (told[0], "nothing tells" in told[1]) == (0, False)
        status, said, err = command("--from", out[1], "--data", "other.jsonl", *trained)
        assert (status, said, err.count("\n")) == (2, "", 1)
        assert err.startswith("error: tiny was not asked the questions that other.jsonl holds, ")
    told = command("--from", "eval0", "--data", "texts.jsonl", *trained)  # the hash is of answers
    assert (told[0], DOUBT.format("tiny", "texts") in told[1]) == (0, True)
    Path("eval0/tiny/counts.csv").rename("bare.csv")
    told = command("--from", "bare.csv", "--data", "other.jsonl", *trained)
    assert (told[0], DOUBT.format("bare", "other") in told[1]) == (0, True)


@pytest.mark.parametrize("asked", [3, 5])
def test_a_runs_own_counts_of_another_set(command: Command, tmp_path: Path, asked: int) -> None:
    """Where they are all there, its manifest decides; else it can only confirm."""
    for name, first in (("own", 0), ("other", 20)):
        write_sums(f"{name}.jsonl", range(first, first + 6))
    own = load_questions("own.jsonl", ExactVerifier(), limit=asked)
    run = write_run(tmp_path / "lens-seed0", test=own.describe())
    arguments = ["--from", run, "--trained-on", "own.jsonl", "--data"]
    status, out, _ = command(*arguments, "own.jsonl")
    assert (status, "nothing tells" in out) == (0, False)
    status, out, err = command(*arguments, "other.jsonl")
    refused = err.startswith("error: lens-seed0 was not asked the questions that other.jsonl holds")
    noted = DOUBT.format("lens-seed0", "other") in out
    assert (status, refused, noted) == ((2, True, False) if asked == 3 else (0, False, True))


def test_a_set_that_was_read_by_other_columns_is_not_refused(
    command: Command, tmp_path: Path
) -> None:
    """The hash is of answers too, which may stand in another column than `answer`."""
    write_sums("test.jsonl", range(3))
    source = {"source": "test.jsonl", "columns": {"answer": "problem"}}
    own = load_questions(SourceConfig("test.jsonl", columns=MAPPED), ExactVerifier())
    run = write_run(tmp_path / "lens-seed3", test=own.describe(), data={"test": source})
    data = {"test": source, "test_questions": None}
    Path("columns.yaml").write_text(yaml.safe_dump({"data": data}))
    assert command("--config", "columns.yaml", "--n", 1, "--out", "asked")[0] == 0
    for counts, name in ((run, "lens-seed3"), ("asked", "tiny")):
        told = command("--from", counts, "--trained-on", "test.jsonl", "--data", "test.jsonl")
        assert (told[0], DOUBT.format(name, "test") in told[1]) == (0, True)


def test_a_run_left_out_its_own_test_questions_alone(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    full_run: Path,
    questions: Path,
    tmp_path: Path,
) -> None:
    """It trained on q1 and q2 of those that are asked now; on q0, its own test question, not."""
    monkeypatch.setattr(session, "Verifier", RightVerifier)
    for name, numbers in (("train", (0, 1, 2, 50)), ("own", (0,))):
        rows = [{"problem": f"{i}+1", "answer": str(i + 1)} for i in numbers]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    copy = tmp_path / "lens-seed3"
    shutil.copytree(full_run, copy)
    config = yaml.safe_load((copy / "config.yaml").read_text())
    source = {"source": str(tmp_path / "train.jsonl"), "where": ["not_in_test"]}
    config["data"] |= {"train": [source], "test": str(tmp_path / "own.jsonl")}
    (copy / "config.yaml").write_text(yaml.safe_dump(config))
    tell(copy, load_data(RunFolder(copy).config(), ExactVerifier()).train)
    status, out, err = command(copy, *FAST, "--data", questions, "--trained-on")
    assert (status, err, "holds now" in out) == (0, "", False)
    sizes = {name: row["questions"] for (_, name, _), row in table(Path("runs/evaluate")).items()}
    assert (sizes["all, trained on"], sizes["all, not trained on"]) == ("2", "8")


def as_seed(run: Path, parent: Path, seed: int, train: Path | None = None) -> None:
    """A copy of a run as if of another seed, with its training questions or those of a file."""
    copy = parent / f"lens-seed{seed}"
    shutil.copytree(run, copy)
    config = yaml.safe_load((copy / "config.yaml").read_text()) | {"seed": seed}
    if train is not None:
        config["data"]["train"] = str(train)
    (copy / "config.yaml").write_text(yaml.safe_dump(config))
    tell(copy, load_data(RunFolder(copy).config(), ExactVerifier()).train)


def tell(folder: Path, train: Questions) -> None:
    """Of a run: that it was trained on these."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["data"]["train"] = train.describe()
    path.write_text(json.dumps(manifest))


def test_a_training_set_that_is_another_one_now_is_told(
    command: Command, full_run: Path, questions: Path, tmp_path: Path
) -> None:
    """What is in the file today says nothing of the questions that the run saw."""
    path = tmp_path / "train.jsonl"
    path.write_text('{"problem": "1+1", "answer": "2"}\n')
    for seed in (3, 4):
        as_seed(full_run, tmp_path / "mine", seed, train=path)
        path.write_text('{"problem": "2+1", "answer": "3"}\n')
    status, out, _ = command("mine", *FAST, "--data", questions, "--trained-on", "--questions", 3)
    assert status == 0
    note = (
        "note: lens-seed3 was trained on other questions than its training set holds now: which "
        "test questions were among them can't be told"
    )
    assert [line for line in out.splitlines() if "holds now" in line] == [note]
    assert note in Path("runs/evaluate/table.txt").read_text("utf-8").splitlines()


@pytest.mark.parametrize("size", [6, 4])
def test_a_test_set_that_is_another_one_now_is_told(
    command: Command, full_run: Path, tmp_path: Path, size: int
) -> None:
    """Also where the settings ask for a part of it; not where a part is asked."""
    write_sums("test.jsonl", range(6))
    copy = tmp_path / "lens-seed3"
    shutil.copytree(full_run, copy)
    config = yaml.safe_load((copy / "config.yaml").read_text())
    config["data"] |= {"test": str(tmp_path / "test.jsonl"), "test_questions": size}
    (copy / "config.yaml").write_text(yaml.safe_dump(config))
    tested = load_questions("test.jsonl", ExactVerifier(), limit=size)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["data"]["test"] = tested.describe()
    (copy / "manifest.json").write_text(json.dumps(manifest))
    note = (
        "note: lens-seed3 was tested on other questions while it was trained than its test set "
        "holds now"
    )
    asked = ([], ["--questions", 2], ["--set", "data.test_questions=3"], ["--data", "test.jsonl"])
    for changed in (False, True):
        if changed:
            write_sums("test.jsonl", [*range(3), *range(20, 23)])
        for number, options in enumerate(asked):
            out = ["--out", f"{changed}-{number}"]
            status, said, err = command(copy, "--n", 1, *options, *out)
            noted = note in said.splitlines()
            assert (status, err, noted) == (0, "", changed and number == 0)


def test_of_several_training_sets_the_union_is_told(
    command: Command, full_run: Path, tmp_path: Path
) -> None:
    """The bundled task makes other training questions by every seed."""
    for seed in (3, 4):
        as_seed(full_run, tmp_path / "mine", seed)
    status, out, _ = command("mine", "--n", 2, "--trained-on")
    assert (status, "note: lens-seed" in out) == (0, False)
    title = "lens, with and without the questions that are in one or another of the runs' 2 trai"
    assert title in out


def test_overlap_of_two_files(command: Command, questions: Path, tmp_path: Path) -> None:
    rows = [{"problem": "0+1", "id": "x"}, {"problem": " 5 + 1", "id": "y"}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "other.jsonl").write_text(text, encoding="utf-8")
    status, out, err = command("overlap", questions, "other.jsonl")
    assert (status, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert ["all", "1", "2", "10", "20.0%"] in lines
    assert ["level", "4", "1", "1", "5", "20.0%"] in lines
    assert ["the", "other", "way", "round", "1", "2", "2", "100.0%"] in lines
    assert lines[1] == ["exact", "all", "copies", "of", "share"]
    assert Path("runs/overlap/questions-in-other.csv").read_text(encoding="utf-8") == (
        "id,level,match,other\nq0,4,exact,x\nq5,5,normalised,y\n"
    )


def test_overlaps_of_sets_whose_names_have_dots_are_two_files(
    command: Command, questions: Path
) -> None:
    for name in ("set.v1.jsonl", "set.v2.jsonl"):
        shutil.copy(questions, name)
        assert command("overlap", name, questions)[0] == 0
    found = sorted(path.name for path in Path("runs/overlap").iterdir())
    assert found == ["set.v1-in-questions.csv", "set.v2-in-questions.csv"]


def test_a_signal_while_the_table_is_made(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends as at any other moment; the same command makes the table."""
    real = session.pages.text

    def text(*arguments: Any) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments)

    arguments = ["--questions", 2, "--n", 1]
    with monkeypatch.context() as patch:
        patch.setattr(session.pages, "text", text)
        status, out, err = command(*arguments)
    assert (status, err) == (130, "")
    assert "stopped; what was counted is saved: the same command goes on" in out
    assert command(*arguments)[0] == 0
    assert Path("runs/evaluate/table.txt").is_file()


# --- wrong input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n", 0], "'0' is not a whole number from 1"),
        (["--seed", -1], "'-1' is not a whole number"),
        (["nothing"], "no model folder nothing"),
        ([""], "the name of a policy is empty"),
        (["--data", "empty.jsonl"], "empty.jsonl: no questions"),
        (["--questions", 10**6], "not 1000000: ask for fewer (data.test_questions; in an evaluat"),
        (["empty"], "empty holds no run, no checkpoint, no adapter and no model"),
        (["tiny", "tiny"], "tiny is named twice"),
        (["--data", "math-tset"], "did you mean 'math-test'?"),
        (["--data", "gone.jsonl"], "no data file gone.jsonl"),
        (["--data", "bad.jsonl"], "bad.jsonl, line 1 is not valid JSON"),
        (["--data", "owner/name:"], "no questions 'owner/name:'"),
        (["--data", "tiny:dev"], "no questions 'tiny:dev'"),
        (["--baseline", "grpo"], "--baseline: no method 'grpo' here"),
        (["--set", "rollout.temperature=0.6"], "pass@k is measured at temperature 1"),
        (["--set", "rollout.top_p=0.9"], "top_p"),
        (["--set", "eval.n=4"], "eval.n can't be set here: give --n instead"),
        (["--set", "seed=4"], "seed can't be set here: give --seed instead"),
        (["--out", ""], "--out is empty: name a folder"),
        (["overlap", "tiny", "tiny", "--out", ""], "--out is empty: name a file"),
        (["study"], "no model to evaluate; those below do: give study/seed*/"),
        (["--set", "nonsense"], "write KEY=VALUE"),
        (["--config", "tinny"], "did you mean 'tiny'?"),
        (["--engine", "vllm"], "vLLM needs a GPU"),
        (["--trained-on"], "needs run folders"),
        (["--trained-on", "empty.jsonl"], "empty.jsonl: no questions"),
        (["model"], "name the questions with --data"),
        (["--from", "gone.csv"], "cannot read gone.csv"),
        (["--from", "empty"], "empty holds no counts"),
        (["--from", "a.csv", "tiny"], "cannot read tiny"),
        (["--from", "a.csv", "a.csv"], "a is named twice"),
        (["--from", "a b.csv", "a_b.csv"], "a b and "),
        (["--from", "a.csv", "--trained-on", "bad.jsonl"], "the questions with --data"),
        (["--from", "a.csv", "b.csv"], "no question that all of them were asked"),
        (["--from", "none.csv"], "none.csv holds no question yet"),
        (["--from", "a.csv", "--baseline", "x"], "no method 'x' here: known: a"),
        (["overlap", "bad.jsonl", "tiny"], "bad.jsonl, line 1 is not valid JSON"),
        (["overlap", "tiny"], "the following arguments are required: B"),
        (["--out", "a.csv", "--questions", 1], "choose another --out"),
    ],
)
def test_bad_input_is_one_line(
    command: Command, tmp_path: Path, qwen2: Path, arguments: list[Any], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "study/seed0/grpo-seed0", seed=0)
    (tmp_path / "model").symlink_to(qwen2)
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "bad.jsonl").write_text("{", encoding="utf-8")
    for name in ("a", "b", "a b", "a_b"):
        (tmp_path / f"{name}.csv").write_text(f"id,n,correct\n{name},2,1\n", encoding="utf-8")
    (tmp_path / "none.csv").write_text("id,n,correct\n", encoding="utf-8")
    status, out, err = command(*arguments)
    assert status == 2
    assert "question 0/" not in out
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def spoil(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("evaluation.json", "{", "evaluation.json is damaged"),
        ("evaluation.json", "[" * 100_000, "evaluation.json is damaged"),
        ("evaluation.json", '{"settings": {"data": {}}, "seconds": 1}', "is damaged"),
        ("evaluation.json", None, "counts.csv belongs to no evaluation"),
        ("counts.csv", "id,n,correct\nother,2,1\n", "does not hold these questions"),
        ("counts.csv", "id,n\n", "holds no counts: no column 'correct'"),
    ],
)
def test_a_spoilt_evaluation_is_not_gone_on_with(
    command: Command, name: str, text: str | None, message: str
) -> None:
    arguments = ["--questions", 1, "--n", 2, "--block", 1]
    assert command(*arguments)[0] == 0
    path = Path("runs/evaluate/tiny", name)
    path.unlink() if text is None else path.write_text(text, encoding="utf-8")
    status, _, err = command(*arguments)
    assert status == 2
    assert message in err
    assert err.count("\n") == 1
    if name == "evaluation.json" and text is not None:
        assert err.endswith("; delete runs/evaluate/tiny or choose another --out\n")
        status, _, err = command("--from", "runs/evaluate")  # the counts are whole
        assert (status, message in err, "delete" in err) == (2, True, False)
        assert err.endswith("; mend it or copy it again\n")


@pytest.mark.parametrize("kept", [1, {"config": 1, "manifest": {}}, {"manifest": {}}])
def test_what_an_evaluation_keeps_of_a_run_may_be_damaged(command: Command, kept: Any) -> None:
    assert command("--questions", 1, "--n", 2)[0] == 0
    path = Path("runs/evaluate/tiny/evaluation.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"training": kept}))
    status, _, err = command("--from", "runs/evaluate")
    assert (status, err.count("\n")) == (2, 1)
    assert "evaluation.json is damaged: training holds no config and manifest" in err


def test_a_full_disk_behind_the_console_is_one_line(tmp_path: Path) -> None:
    write_run(tmp_path / "lens-seed0")
    paths = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "lens_ref.evaluate", "--from", "lens-seed0"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=paths
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: cannot write what is shown: No space left on device")
    assert done.stderr.count("\n") == 1


def test_the_same_paths_in_another_spelling_are_the_same_evaluation(
    command: Command, questions: Path, tmp_path: Path
) -> None:
    shutil.copytree(POLICY_DIR, tmp_path / "model")
    shutil.copy(questions, "questions.jsonl")
    asked = ["--questions", 1, "--n", 2, "--config", "tiny"]
    assert command("model", "--data", "questions.jsonl", *asked)[0] == 0
    for model, data in (
        (tmp_path / "model", tmp_path / "questions.jsonl"),
        ("./model/", "./questions.jsonl"),
    ):
        status, _, err = command(model, "--data", data, *asked)
        assert (status, err) == (0, "")
    shutil.copy("questions.jsonl", "others.jsonl")
    status, _, err = command("model", "--data", "others.jsonl", *asked)
    assert (status, "was begun with data.source = questions.jsonl" in err) == (2, True)


def test_a_run_without_a_checkpoint_is_left_out_beside_others(
    command: Command, full_run: Path, tmp_path: Path
) -> None:
    for seed in (3, 4):
        shutil.copytree(full_run, tmp_path / f"mine/lens-seed{seed}")
    shutil.rmtree(tmp_path / "mine/lens-seed4/checkpoints")
    status, out, err = command("mine", "--n", 2)
    note = "note: mine/lens-seed4 has no intact checkpoint to evaluate: left out"
    assert (status, err, note in out.splitlines()) == (0, "", True)
    assert note in Path("runs/evaluate/table.txt").read_text("utf-8").splitlines()
    assert command("mine/lens-seed3", "mine/lens-seed4", "--n", 2)[0] == 2  # named itself
    shutil.rmtree(tmp_path / "mine/lens-seed3/checkpoints")
    status, _, err = command("mine", "--n", 2)
    assert (status, "mine/lens-seed3 has no intact checkpoint to evaluate" in err) == (2, True)


def test_damaged_checkpoints_are_refused(full_run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "lens-seed3"
    shutil.copytree(full_run, copy)
    (copy / "checkpoints/step-8/policy/config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UserError, match="damaged"):
        target(copy / "checkpoints/step-8")
    assert target(copy).step == 4  # as training would resume
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(UserError, match="no intact checkpoint"):
        target(copy)
    with pytest.raises(UserError, match="brings its own configuration"):
        policies.find(str(full_run), Options(("tiny",), {}))


def test_no_other_model_takes_the_place_of_a_whole_one(full_run: Path) -> None:
    """Under its name, with the base's accuracy."""
    weights = full_run / "checkpoints/step-8/policy"
    for path in (full_run, full_run / "checkpoints/step-8", weights, Path("tiny")):
        with pytest.raises(UserError, match=r"whole model: --model .* is the base of adapters"):
            target(path, **{"model.path": "tiny"})


@pytest.fixture
def other_base(tmp_path: Path) -> Path:
    """The bundled policy with one weight moved."""
    folder = tmp_path / "other-base"
    shutil.copytree(POLICY_DIR, folder)
    (path,) = folder.glob("*.safetensors")
    tensors = load_file(path)
    next(iter(tensors.values())).view(-1)[0] += 0.5
    save_file(tensors, path, {"format": "pt"})
    return folder


@pytest.mark.parametrize("option", ["--model", "--set"])
def test_a_runs_adapter_over_another_base_is_refused(
    command: Command, adapter_run: Path, other_base: Path, option: str
) -> None:
    """It would be asked under its own name, and is another policy."""
    base = ["--model", other_base] if option == "--model" else ["--set", f"model.path={other_base}"]
    for path in (adapter_run, adapter_run / "checkpoints/step-4/policy"):
        status, out, err = command(path, "--questions", 1, "--n", 2, *base)
        assert (status, err.count("\n")) == (2, 1)
        assert f"was trained over tiny, and {other_base} holds other weights (sha256 " in err
        assert "question 0/" not in out


def test_a_runs_adapter_over_its_own_base_elsewhere(
    command: Command, adapter_run: Path, other_base: Path, tmp_path: Path
) -> None:
    """A run that does not say what it was trained over is evaluated, with a note."""
    shutil.copytree(POLICY_DIR, tmp_path / "moved")
    arguments = ["--questions", 1, "--n", 2]
    status, out, _ = command(adapter_run, *arguments, "--model", "moved")
    assert (status, "nothing tells" in out) == (0, False)
    copy = tmp_path / "lens-seed7"
    shutil.copytree(adapter_run, copy)
    (copy / "manifest.json").unlink()
    status, out, _ = command(copy, *arguments, "--model", other_base)
    note = f"note: lens-seed7: nothing tells whether it was trained over {other_base}"
    assert (status, note in out.splitlines()) == (0, True)
    assert "nothing tells" not in command(copy, *arguments, "--out", "own")[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "IA3"}, "describes no LoRA adapter"),
        ({"use_dora": True}, "adapters with use_dora are not supported"),
        ({"alora_invocation_tokens": [4]}, "adapters with alora_invocation_tokens are not"),
        ({"init_lora_weights": "pissa"}, "adapters begun with pissa change the base"),
        ({"init_lora_weights": "olora"}, "adapters begun with olora change the base"),
        ({"bias": "all"}, "adapters with bias"),
        ({"r": 0}, "r and lora_alpha must be positive"),
        ({"lora_alpha": "4"}, "r and lora_alpha must be positive"),
        ({"lora_alpha": float("nan")}, "r and lora_alpha must be positive"),
        ({"target_modules": []}, "must name target_modules"),
        ({"base_model_name_or_path": None}, "must name target_modules"),
        ({"r": 3}, "is [2, "),
        ({"target_modules": ["q_proj"]}, "does not fit the model: it has"),
    ],
)
def test_adapters_that_are_not_computed_here(
    adapter_run: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "adapter"
    shutil.copytree(adapter_run / "checkpoints/step-8/policy", folder)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        policies.load_target(target(folder), CPU)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_adapter_with_nan_or_cut_short(adapter_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    shutil.copytree(adapter_run / "checkpoints/step-8/policy", folder)
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    next(iter(tensors.values()))[0, 0] = float("nan")
    save_file(tensors, path)
    with pytest.raises(UserError, match="not finite"):
        policies.load_target(target(folder), CPU)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="cannot read the adapter"):
        policies.load_target(target(folder), CPU)


def test_a_model_without_a_chat_template_says_what_to_do(
    command: Command, qwen2: Path, questions: Path
) -> None:
    assert toy_tokenizer().chat_template is None
    status, _, err = command(qwen2, "--data", questions)
    assert (status, err.count("\n")) == (2, 1)
    assert "set prompt.template to text with {problem}" in err
