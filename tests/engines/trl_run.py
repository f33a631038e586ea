"""One process of several: trains with each method and leaves what it saw in OUT/rank-<r>.pt.

python -m torch.distributed.run --nproc-per-node 2 tests/engines/trl_run.py OUT METHOD [METHOD ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from tests.engines.trl_helpers import trainer

if __name__ == "__main__":
    out, seen = Path(sys.argv[1]), {}
    for method in sys.argv[2:]:
        # six rows a process and groups of four: the second group lies across both processes
        run = trainer(
            out / method, {"method": method}, per_device_train_batch_size=6, ddp_backend="gloo"
        )
        run.train()
        weights = {name: p.detach().clone() for name, p in run.model.named_parameters()}
        seen[method] = {"batches": run.batches, "state": run.treatment.state, "weights": weights}
    torch.save(seen, out / f"rank-{run.accelerator.process_index}.pt")
