"""verl's own command and queue, over a local Ray on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("verl", reason="verl is not installed: `make test-verl` has it")

import ray
import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict

from lens_ref import lens_advantages
from tests.engines.verl_helpers import RECIPES, Queue, batch, config, trainer

pytestmark = [pytest.mark.verl, pytest.mark.slow]

ROOT = RECIPES.parents[1]
ONE_UNIT = "transfer_queue.backend.SimpleStorage.num_data_storage_units=1"


@pytest.fixture
def real_queue() -> Iterator[None]:
    """TransferQueue with its processes."""
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    settings = config(ONE_UNIT).transfer_queue
    with open_dict(settings):
        settings.enable = True
    tq.init(settings)
    yield
    tq.close()
    ray.shutdown()


def test_the_advantages_go_through_verls_queue(real_queue: None) -> None:
    rows = batch(6)
    with pytest.MonkeyPatch.context() as patch:  # only to lay the columns out
        columns = Queue(patch)
        meta = columns.hold(rows)
    fields = TensorDict(columns.columns, batch_size=len(meta.keys))
    tq.kv_batch_put(keys=meta.keys, partition_id="train", fields=fields, tags=meta.tags)
    metrics: dict[str, float] = {}
    trainer()._compute_advantage(meta, metrics)
    written = tq.kv_batch_get(
        keys=meta.keys, partition_id="train", select_fields=["advantages", "returns"]
    )
    rollouts, cells, _ = rows.rollouts()
    expected = rows.by_row(cells, lens_advantages(rollouts).advantages)
    for name in ("advantages", "returns"):
        found = written[name].to_padded_tensor(0.0).double()
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert metrics["lens_ref/neg_to_mixed_rms"] > 0


def test_the_launch_command_reaches_the_trainer_through_ray(tmp_path: Path) -> None:
    """Hydra, Ray and the external module are real; the run ends where the model would be loaded."""
    for name in ("train", "test"):
        (tmp_path / f"{name}.parquet").touch()
    folder = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        [
            *("bash", str(RECIPES / "launch.sh"), "llama3.1-8b", str(tmp_path)),
            *("ray_kwargs.ray_init.num_cpus=4", ONE_UNIT),
            *("actor_rollout_ref.model.path=/no/such/model", f"hydra.run.dir={tmp_path}/hydra"),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    console = done.stdout + done.stderr
    assert done.returncode != 0
    assert "lens_ref is on: method lens, groups by uid" in console
    assert "/no/such/model" in console.rpartition("lens_ref is on")[2]


def test_the_launch_command_says_what_it_takes() -> None:
    done = subprocess.run(["bash", str(RECIPES / "launch.sh")], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("launch.sh RECIPE DATA [override ...]")
