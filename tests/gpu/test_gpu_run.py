"""Whole runs with vLLM on a GPU: resumed in a new engine, and several methods in one session.

vLLM starts one engine with sleep mode in a process: the second test has it.
"""

from __future__ import annotations

import csv
import itertools
import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from lens_ref.rlvr.policy import load_policy
from lens_ref.rlvr.run_folder import RunFolder
from lens_ref.rlvr.session import load_data, train_all
from lens_ref.rlvr.stop import StopRequest
from lens_ref.rlvr.trainer import Trainer
from tests.gpu.test_gpu_vllm import MEAN_BOUND, config_for, model_folder
from tests.rlvr.helpers import ExactVerifier
from tests.rlvr.runs import Killed, kill_after

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or find_spec("vllm") is None, reason="needs a GPU and vLLM"
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


def questions_file(folder: Path) -> Path:
    words = ("he", "llo", "hello", "a", "b")
    problems = [" ".join(three) for three in itertools.product(words, repeat=3)][:32]
    lines = [json.dumps({"problem": problem, "answer": "1"}) + "\n" for problem in problems]
    (folder / "data.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder / "data.jsonl"


def rows_of(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def trained(run_folder: RunFolder, killed_after: int | None = None) -> list[dict[str, str]]:
    config, verifier = run_folder.config(), ExactVerifier()
    policy = load_policy(config.model, torch.device("cuda"), config.seed)
    report = kill_after(killed_after) if killed_after is not None else lambda step, row: None
    data = load_data(config, verifier)  # type: ignore[arg-type]
    made = Trainer(config, run_folder, policy, data, verifier, StopRequest(), report)  # type: ignore[arg-type]
    if killed_after is not None:
        with pytest.raises(Killed):
            made.run()
    else:
        made.run()
    del made, policy
    torch.cuda.empty_cache()
    return rows_of(run_folder.path)


def test_a_run_is_resumed(folder: Path, tmp_path: Path) -> None:
    """The resumed run starts a new engine and hands it the restored adapter: its drift stays in
    bounds. Sampling on a GPU does not repeat to the bit: the runs agree in what they train on."""
    awake = {"memory_share": 0.1, "max_sequences": 64, "eager": True, "sleep": False}
    config = config_for(folder, data__train=str(questions_file(tmp_path)), rollout__vllm=awake)
    straight = trained(RunFolder.create(tmp_path / "straight", config))
    pieces = RunFolder.create(tmp_path / "pieces", config)
    trained(pieces, killed_after=2)
    resumed = trained(pieces)
    assert [row["step"] for row in resumed] == [row["step"] for row in straight] == list("1234")
    for row in straight + resumed:
        assert float(row["logprob_drift"]) < MEAN_BOUND
        assert float(row["peak_gb"]) > 0
    for rows in (straight, resumed):
        assert len({row["adapter"] for row in rows}) == 4
    questions = [
        [line.split(",")[:2] for line in (run / "groups.csv").read_text("utf-8").splitlines()]
        for run in (next((tmp_path / "straight").iterdir()), pieces.path)
    ]
    assert questions[0] == questions[1]


def test_two_methods_in_one_session(folder: Path, tmp_path: Path) -> None:
    """With one engine, which sleeps while each trains; then the report."""
    both = config_for(folder, data__train=str(questions_file(tmp_path)), methods=["grpo", "lens"])
    parent = tmp_path / "runs"
    assert train_all([RunFolder.create(parent, both.single(m)) for m in both.methods]) == 0
    for run in (parent / "grpo-seed0", parent / "lens-seed0"):
        rows = rows_of(run)
        assert [row["step"] for row in rows] == list("1234")
        if "lens" in run.name:  # GRPO learns nothing where every answer is wrong
            assert len({row["adapter"] for row in rows}) == 4
        assert json.loads((run / "manifest.json").read_text("utf-8"))["sampler"]["engine"] == "vllm"
    assert (parent / "report.html").is_file()
