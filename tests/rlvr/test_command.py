"""`python -m lens_ref.train`: what it prints, what it leaves, and one line for every bad input."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lens_ref.rlvr import memory, run_report, session
from lens_ref.rlvr.policy import model_folder
from lens_ref.rlvr.run_folder import RunFolder
from lens_ref.train import main
from tests.rlvr.helpers import ExactVerifier, ZeroVerifier, save_model, small_config
from tests.rlvr.runs import StopAt, assert_same_run, run

SMALL = [
    "data.train_questions=40",
    "data.test_questions=5",
    "rollout.questions=16",
    "rollout.responses=4",
    "rollout.max_new_tokens=12",
    "optimizer.lr=1e-3",
    "optimizer.warmup_updates=2",
    "loss.micro_batch_tokens=256",
    "eval.every=4",
    "eval.n=2",
    "checkpoint.every=4",
    "steps=8",
]


@pytest.fixture(autouse=True)
def _light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, no grading processes and no figures."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "Verifier", ExactVerifier)
    monkeypatch.setattr(run_report, "write_report", lambda parent: parent / "report.html")


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


def refused(command: Command, *arguments: Any) -> str:
    """The one line that the command printed before it gave up, leaving nothing behind."""
    before = list(Path.cwd().rglob("*"))
    status, out, err = command(*arguments)
    assert status == 2
    assert "-seed0" not in out  # no bar of a run that never began
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    left = {path for path in Path.cwd().rglob("*") if path.name != ".lock"} - set(before)
    assert left <= {Path.cwd() / "runs"}
    return err


# --- what it does ---------------------------------------------------------------------------------


def test_help(command: Command) -> None:
    status, out, err = command("--help")
    assert (status, err) == (0, "")
    options = (
        "--config --lora --qlora --full --model --data --test --method --seed --steps --device"
    )
    more = "--set --engine --memory-gb --tensorboard --wandb"
    for option in [
        *options.split(),
        *more.split(),
        "--out",
        "--name",
        "--resume",
        "--dry-run",
        "--debug",
    ]:
        assert option in out


def test_a_session_trains_every_method(command: Command, tmp_path: Path) -> None:
    status, out, err = command("--set", *SMALL)
    assert (status, err) == (0, "")
    parent = tmp_path / "runs" / "tiny"
    assert sorted(path.name for path in parent.iterdir()) == ["grpo-seed0", "lens-seed0"]
    assert "report:" in out
    assert "lens-seed0  update 8/8  reward" in out
    assert_same_run(parent / "lens-seed0", run(tmp_path / "alone", small_config()))
    manifest = json.loads((parent / "lens-seed0" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["status"] == "finished"
    assert manifest["wall_seconds"] > 0
    assert manifest["versions"]["torch"] == torch.__version__
    assert {"commit", "package", "hardware", "python", "seed", "data", "command"} <= manifest.keys()
    assert manifest["data"]["train"]["questions"] == 40
    assert len(manifest["data"]["test"]["sha256"]) == 64


def test_the_runs_of_a_session_share_data_and_verifier(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifiers, loads = list[int](), list[str]()
    load_data = session.load_data

    def verifier(workers: int, **limits: float) -> ExactVerifier:
        assert limits == {"timeout": 5.0, "memory_mb": 1024, "recycle": 5000}
        verifiers.append(workers)
        return ExactVerifier()

    def load(config: Any, verifier: Any) -> Any:
        loads.append(config.method)
        return load_data(config, verifier)

    monkeypatch.setattr(session, "Verifier", verifier)
    monkeypatch.setattr(session, "load_data", load)
    assert command("--set", *SMALL)[0] == 0
    assert (verifiers, loads) == ([2], ["grpo"])
    for path in (tmp_path / "runs" / "tiny").iterdir():  # each counts its own verdicts
        assert sum(RunFolder(path).manifest()["verifier"].values()) == 158


def test_runs_of_one_folder_that_differ_in_their_data(command: Command, tmp_path: Path) -> None:
    configs = [
        small_config(),
        small_config(methods=["grpo"], data__train_questions=24),
        small_config(seed=1),
        small_config(methods=["grpo"], seed=1, verifier__timeout=1.0),
    ]
    folders = [RunFolder.create(tmp_path / "runs", config) for config in configs]
    assert command("--resume", "runs")[0] == 0
    for folder, config in zip(folders, configs, strict=True):
        assert_same_run(folder.path, run(tmp_path / "alone", config))


def test_every_method_with_every_seed(command: Command, tmp_path: Path) -> None:
    """A run is the one that it would be alone."""
    status, out, _ = command("--seed", "1", "0", "--set", *SMALL)
    assert status == 0
    parent = tmp_path / "runs" / "tiny"
    done = [line.split()[0] for line in out.splitlines() if "update 8/8" in line]
    assert done == ["grpo-seed1", "lens-seed1", "grpo-seed0", "lens-seed0"]
    for seed in (0, 1):
        alone = run(tmp_path / f"alone{seed}", small_config(seed=seed))
        assert_same_run(parent / f"lens-seed{seed}", alone)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        (["1", "2", "1"], "--seed 1 2 1 names one of them twice"),
        (["0", "-1"], "seed: Input should be greater than or equal to 0 (got -1)"),
    ],
)
def test_seeds_that_are_none(seeds: list[str], message: str, command: Command) -> None:
    assert message in refused(command, "--seed", *seeds, "--set", *SMALL)


def test_two_ways_to_say_the_seed(command: Command) -> None:
    """Neither may win unsaid: a run of another seed looks like the one that was asked for."""
    for seeds in ("1", "0 1"):
        err = refused(command, "--seed", *seeds.split(), "--set", *SMALL, "seed=5")
        assert err == "error: --seed and --set seed=… both name seeds: choose one\n"


def test_folders_are_numbered_or_named(command: Command, tmp_path: Path) -> None:
    one = ("--method", "grpo", "--set", *SMALL, "eval.every=0", "steps=1")
    for _ in range(2):
        assert command(*one)[0] == 0
    assert command(*one, "--out", "elsewhere", "--name", "mine", "--seed", "7")[0] == 0
    names = {str(p.parent.relative_to(tmp_path)) for p in tmp_path.rglob("manifest.json")}
    assert names == {
        "runs/tiny/grpo-seed0",
        "runs/tiny-2/grpo-seed0",
        "elsewhere/mine/grpo-seed7",
    }
    assert "exists; choose another --name or --resume" in refused(
        command, *one, "--out", "elsewhere", "--name", "mine"
    )


@pytest.mark.parametrize("name", ["../../x", "/x", "a/b", "a\\b", "..", ".", ""])
def test_a_name_does_not_lead_out_of_the_parent_folder(name: str, command: Command) -> None:
    arguments = ("--out", "deep/runs", "--name", name, "--set", *SMALL)
    assert "is not a plain folder name; say where with --out" in refused(command, *arguments)


def test_a_name_that_is_too_long(command: Command) -> None:
    text = refused(command, "--name", "n" * 300, "--set", *SMALL)
    assert "--name is longer than 255 bytes; choose a shorter one" in text


def test_a_data_file_and_a_model_folder(command: Command, tmp_path: Path) -> None:
    rows = [{"problem": f"{n} (a) +5 (mod 36)", "answer": str(n + 5)} for n in range(8)]
    rows.append({"problem": "9 (a) +5 (mod 36)", "answer": " "})
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    folder = shutil.copytree(model_folder("tiny"), tmp_path / "model")
    arguments = ("--model", folder, "--data", data, "--method", "lens", "--set", *SMALL)
    status, out, _ = command(*arguments, "data.train_questions=null", "steps=4")
    assert status == 0
    assert "memory plan" in out
    assert "on this CPU an update takes up to about" in out
    assert "dropped 1 of 9 questions whose answer can't be parsed (8)" in out
    path = tmp_path / "runs" / "tiny" / "lens-seed0"
    assert not (path / "eval.csv").exists()
    assert RunFolder(path).config().model.path == str(folder)


def test_dry_run(command: Command, tmp_path: Path) -> None:
    status, out, err = command("--dry-run", "--set", *SMALL)
    assert (status, err) == (0, "")
    assert "worst-case step:" in out
    assert "peak memory" in out
    assert list(tmp_path.iterdir()) == []


def test_a_reward_that_never_varies_is_noticed(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "Verifier", ZeroVerifier)
    status, out, _ = command("--method", "grpo", "--set", *SMALL, "eval.every=0")
    assert status == 0
    assert "for 8 updates every group was all wrong or all right" in " ".join(out.split())


# --- stopping and going on ------------------------------------------------------------------------


def test_stopped_in_the_first_of_two_runs_and_resumed(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(session, "StopRequest", lambda: StopAt(60))
        status, out, err = command("--set", *SMALL)
    assert (status, err) == (130, "")
    parent = tmp_path / "runs" / "tiny"
    resume = f"python -m lens_ref.train --resume {Path('runs') / 'tiny'}"
    assert f"stopped and saved; go on with: {resume}" in out
    assert not any(RunFolder(path).finished for path in parent.iterdir())
    assert list((parent / "grpo-seed0" / "checkpoints").iterdir())

    status, out, err = command(*resume.split()[3:])
    assert (status, err) == (0, "")
    assert all(RunFolder(path).finished for path in parent.iterdir())
    assert_same_run(parent / "lens-seed0", run(tmp_path / "alone", small_config()))
    status, out, err = command("--resume", parent)  # its report has not been written
    assert (status, out, err) == (0, f"report: {parent / 'report.html'}\n", "")
    (parent / "report.html").touch()
    for where in (parent, parent / "lens-seed0"):
        assert "is finished" in refused(command, "--resume", where)


def test_one_run_of_a_folder_is_resumed(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(session, "StopRequest", lambda: StopAt(60))
        command("--set", *SMALL)
    parent = tmp_path / "runs" / "tiny"
    assert command("--resume", parent / "lens-seed0")[0] == 0
    assert RunFolder(parent / "lens-seed0").finished
    assert not RunFolder(parent / "grpo-seed0").finished


def test_the_bar_of_a_resumed_run_goes_on_where_it_stopped(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(session, "StopRequest", lambda: StopAt(40))
        assert command("--method", "grpo", "--set", *SMALL)[0] == 130
    folder = RunFolder(tmp_path / "runs" / "tiny" / "grpo-seed0")
    step = folder.manifest()["step"]
    assert 0 < step < 8
    shown: list[float] = []

    class Watched(session.Progress):
        def refresh(self) -> None:
            shown.extend(task.completed for task in self.tasks)

    monkeypatch.setattr(session, "Progress", Watched)
    assert command("--resume", folder.path)[0] == 0
    assert list(dict.fromkeys(shown))[:2] == [0, step]


def test_resume_takes_no_other_options(command: Command, tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "runs", small_config())
    for more in (["--steps", 4], ["--config", "tiny"], ["--name", "new"], ["--dry-run"]):
        assert "drop the other options" in refused(command, "--resume", "runs", *more)


# --- bad input ------------------------------------------------------------------------------------

BROKEN = '{"problem": "1", "answer": "1"}\n{"problem": "2"}\n{"problem'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--data absent.jsonl", "no data file absent.jsonl"),
        ("--data broken.jsonl", "broken.jsonl, line 2: a row needs a non-empty 'answer'"),
        ("--data empty.jsonl", "empty.jsonl: no question"),
        ("--test absent.jsonl", "no data file absent.jsonl"),
        ("--data tinyy", "no data 'tinyy': did you mean 'tiny'?"),
        ("--test tinyy", "no data 'tinyy': did you mean 'tiny'?"),
        ("--data owner/absent", "cannot load the data set 'owner/absent'"),
        ("--data good.jsonl --test good.jsonl", "2 of 2 test questions are also training"),
        ("--method grppo", "unknown method 'grppo': did you mean 'grpo'?"),
        ("--method grpo grpo", "grpo is named twice"),
        ("--method lens:alpha=[", "alpha"),
        ("--config absent", "no config file 'absent'"),
        ("--config bad.yaml", "unknown key 'rolout': did you mean 'rollout'?"),
        (
            "--full --qlora",
            "--full trains all weights, --qlora an adapter on 4-bit weights: choose",
        ),
        ("--config tiny absent", "no config file 'absent'"),
        ("--memory-gb 0", "model.memory_gb"),
        ("--set optimizer.lrr=1", "unknown key 'optimizer.lrr': did you mean 'lr'?"),
        ("--set optimizer.lr", "write KEY=VALUE"),
        ("--set steps=2024-02-30", "'2024-02-30' is not a YAML value"),
        (f"--set methods={'[' * 5000}", "is not a YAML value"),
        ("--set model={lora:{r:[8]}}", "model.lora"),
        (f"--seed {2**63}", "seed"),
        ("--set rollout.responses=1", "a group needs at least 2 answers"),
        ("--set rollout.top_k=5", "training needs top_p = 1 and top_k = 0"),
        ("--set data.train_questions=100000", "distinct train questions"),
        ("--set rollout.stop_tokens=[nope]", "'nope' is not a token of this model"),
        ("--set prompt.template=chat", "no chat template"),
        ("--set rollout.max_new_tokens=120", "exceed the model's 128 positions"),
        ("--model absent", "no model folder absent"),
        ("--model owner/absent", "cannot load the model 'owner/absent'"),
        ("--model weightless", "has no weights"),
        ("--model headless", "has no config.json"),
        ("--model broken", "config.json is damaged: no JSON (character 2: "),
        ("--model truncated", "cannot load the model 'truncated'"),
        ("--device cuda", "'cuda' is not available here; use --device cpu"),
        ("--resume absent", "absent is not a run folder"),
        ("--resume damaged", "damaged"),
        ("--out good.jsonl", "cannot write the run folder"),
    ],
)
def test_one_clear_line(
    arguments: str,
    message: str,
    command: Command,
    llama: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    good = "".join(f'{{"problem": "{n} (a) +5 (mod 36)", "answer": "7"}}\n' for n in range(2))
    files = {"good.jsonl": good, "broken.jsonl": BROKEN, "empty.jsonl": "\n"}
    for name, text in {**files, "bad.yaml": "rolout: {questions: 8}"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name in ("weightless", "headless", "broken", "truncated"):
        shutil.copytree(llama, tmp_path / name)
    (tmp_path / "weightless" / "model.safetensors").unlink()
    (tmp_path / "headless" / "config.json").unlink()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "truncated" / "model.safetensors").write_bytes(b"\0" * 100)
    damaged = RunFolder.create(tmp_path / "damaged", small_config()).path
    (damaged / "config.yaml").write_text("steps: [")
    settings = [] if "--resume" in arguments else ["--set", *SMALL]
    if "--set" in arguments:
        arguments, _, setting = arguments.partition("--set")
        settings += setting.split()
    assert message in refused(command, *arguments.split(), *settings)


def test_the_hubs_libraries_keep_quiet(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = dict[str, bool]()

    def load_dataset(*_: object, **__: object) -> None:
        for name in ("huggingface_hub.utils._http", "datasets.load"):
            heard[name] = logging.getLogger(name).isEnabledFor(logging.WARNING)
        raise ConnectionError

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    assert "cannot load the data set" in refused(command, "--data", "owner/absent")
    assert heard == {"huggingface_hub.utils._http": False, "datasets.load": False}


def test_an_unwritable_run_folder(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a read-only disk."""

    def read_only(self: Path, *_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system", str(self))

    monkeypatch.setattr(Path, "mkdir", read_only)
    text = refused(command, "--set", *SMALL)
    assert "cannot write the run folder" in text
    assert "Read-only file system" in text


def test_debug_shows_the_traceback(command: Command) -> None:
    from lens_ref.rlvr.errors import UserError

    with pytest.raises(UserError, match="no config file"):
        main(["--config", "absent", "--debug"])


def test_a_learning_rate_that_blows_the_policy_up(command: Command, tmp_path: Path) -> None:
    """No traceback, and the run can be looked at."""
    status, _, err = command("--method", "grpo", "--set", *SMALL, "optimizer.lr=1e30")
    assert status == 2
    assert err.startswith("error: update ")
    assert "optimizer.lr" in err
    assert err.count("\n") == 1
    assert (tmp_path / "runs" / "tiny" / "grpo-seed0" / "manifest.json").exists()


# --- large models ---------------------------------------------------------------------------------


def test_the_gpu_recipe_without_a_gpu(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it needs, what the machine has, and what runs here; nothing is downloaded."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(memory, "available", lambda config, device: 16_000_000_000)
    text = refused(command, "--lora")
    assert "Qwen/Qwen2.5-3B needs about" in text
    assert float(text.split("needs about ")[1].split(" GB")[0]) > 16
    assert "16.0 GB" in text
    assert "no GPU" in text
    assert "python -m lens_ref.train" in text


def test_a_plan_by_hand(tmp_path: Path) -> None:
    """A Llama of hidden 16, two layers, one key-value head of 8, MLP 32, eight tokens, float32."""
    shape = memory.read_shape(str(save_model(tmp_path, "llama")))
    block = 16 * 16 + 2 * 16 * 8 + 16 * 16 + 3 * 16 * 32
    assert shape.parameters == 2 * block + 2 * 8 * 16
    assert shape.adapter(4) == 2 * 4 * ((32 + 24 + 24 + 32) + 3 * 48)
    config = small_config(model__path=str(tmp_path))
    plan = memory.make_plan(config, shape, torch.device("cpu"))
    assert plan.weights == 4 * shape.parameters
    assert plan.optimizer == 2 * plan.weights
    assert plan.gradients == 2 * plan.weights  # the sum, and those of one micro-batch
    assert plan.cache == 64 * (512 + 12) * 2 * 2 * 8 * 4
    lora = small_config(model__path=str(tmp_path), model__lora={"r": 4})
    assert memory.make_plan(lora, shape, torch.device("cpu")).optimizer == 8 * shape.adapter(4)


def test_models_of_other_shapes_have_no_plan(command: Command, tmp_path: Path) -> None:
    assert memory.read_shape(str(save_model(tmp_path / "gpt2", "gpt2"))) is None
    assert memory.read_shape("owner/unknown") is None
    known = memory.read_shape("Qwen/Qwen2.5-3B")
    assert known.parameters == pytest.approx(3.086e9, rel=0.01)
    assert memory.read_shape("meta-llama/Llama-3.1-8B-Instruct").parameters == pytest.approx(
        8.03e9, rel=0.01
    )


# --- packages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["transformers", "pydantic", "yaml", "safetensors"])
def test_without_the_train_extra(
    package: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("lens_ref.rlvr")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("lens_ref.rlvr")
    monkeypatch.setitem(sys.modules, package, None)
    text = refused(command, "--config", "absent")
    assert "pip install 'lens-ref[train]'" in text
    assert f"(missing: {package})" in text


@pytest.mark.parametrize("package", ["matplotlib", "pandas", "scipy"])
def test_what_the_report_needs_is_missed_before_training(
    package: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert f"(missing: {package})" in refused(command, "--set", *SMALL)


def test_what_the_report_needs_is_not_loaded_at_start_up() -> None:
    script = (
        "import sys, lens_ref.train, lens_ref.rlvr.session\n"
        "print({'matplotlib', 'pandas', 'datasets'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_without_peft(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    text = refused(command, "--set", *SMALL, "model.lora.r=2")
    assert "(missing: peft)" in text
