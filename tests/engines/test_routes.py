"""One set of rollouts, one set of numbers, whichever way they go: plain torch, TRL, verl.

The engines can't share an environment, so each compares with the same literals, worked out in
30-digit arithmetic apart from this package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lens_ref import LensConfig, lens_advantages
from lens_ref.engines.groups import to_rollouts

KINDS = ["never", "some", "always"]
REWARDS = [0.0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1]
LOGPROBS = [
    *([-0.5, -1.25], [-2.5], [-0.125, -0.375, -0.25], [-1.0, -3.0]),
    *([-0.25, -0.125], [-0.5], [-1.5, -0.75, -0.75], [-1.25]),
    *([-0.5], [-1.0, -1.0], [-0.25, -0.5], [-3.0]),
]
EXPECTED = {
    "paper": [
        *(0.0008514361737, 0.02021393682, -0.03880910296, 0.01774372997),
        *(1.731045158, -0.6313116907, -0.560387201, -0.5393462663),
        *(0.0, 0.0, 0.0, 0.0),
    ],
    "normalized_difficulty": [
        *(0.0008514361737, 0.02021393682, -0.03880910296, 0.01774372997),
        *(1.73143722, -0.6195105183, -0.5643709962, -0.5475557052),
        *(0.0, 0.0, 0.0, 0.0),
    ],
}
EXACT = {"rtol": 0, "atol": 1e-6}
PRESETS = pytest.mark.parametrize("preset", EXPECTED)


def padded(rows: list[list[float]]) -> Tensor:
    """`[N, T]`, NaN behind each row's end."""
    tensors = [torch.tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=torch.nan)


@PRESETS
def test_plain_torch(preset: str) -> None:
    logprobs = padded(LOGPROBS)
    uids = [kind for kind in KINDS for _ in range(4)]
    rollouts, _ = to_rollouts(uids, torch.tensor(REWARDS), logprobs, ~logprobs.isnan())
    found = lens_advantages(rollouts, LensConfig.preset(preset)).advantages
    torch.testing.assert_close(found.flatten(), torch.tensor(EXPECTED[preset]).double(), **EXACT)


@pytest.mark.trl
@PRESETS
def test_trl(preset: str, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="TRL is not installed: `make test-trl` has it")
    from tests.engines.trl_helpers import trainer

    def rollout(prompts: list[str], run: Any) -> dict[str, list]:
        ids = [[5] * (len(row) - 1) + [1] for row in LOGPROBS]
        tokens = run.processing_class(prompts)["input_ids"]
        return {"prompt_ids": tokens, "completion_ids": ids, "logprobs": LOGPROBS}

    run = trainer(
        tmp_path,
        {"config": LensConfig.preset(preset)},
        rollout_func=rollout,
        reward_funcs=lambda completion_ids, **_: list(REWARDS),
        per_device_train_batch_size=12,
        max_steps=1,
    )
    run.train()
    torch.testing.assert_close(
        run.batches[0]["advantages"], torch.tensor(EXPECTED[preset]), **EXACT
    )


@pytest.mark.verl
@PRESETS
def test_verl(preset: str) -> None:
    pytest.importorskip("verl", reason="verl is not installed: `make test-verl` has it")
    from tests.engines.test_verl import dispatch
    from tests.engines.verl_helpers import Batch, Response

    rows = []
    for row, (reward, logprobs) in enumerate(zip(REWARDS, LOGPROBS, strict=True)):
        question, ones = KINDS[row // 4], torch.ones(len(logprobs), dtype=torch.int64)
        rows.append(
            Response(question, question, torch.tensor(logprobs), ones.float(), reward, ones)
        )
    order = [5, 0, 11, 3, 8, 7, 1, 10, 4, 2, 9, 6]  # verl balances its batch: groups are torn
    found = dispatch(Batch([rows[i] for i in order]), preset=preset)
    for place, row in enumerate(order):
        length = len(LOGPROBS[row])
        expected = torch.full((length,), EXPECTED[preset][row])
        torch.testing.assert_close(found[place, :length], expected, **EXACT)
        assert (found[place, length:] == 0).all()
