"""Synthetic batches as verl holds them, a queue without Ray, and the recipes' configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transfer_queue
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from tensordict import NonTensorStack, TensorDict
from torch import Tensor
from verl import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage

from lens_ref import Rollouts
from lens_ref.engines import verl_settings
from lens_ref.engines.verl import STEP, LensTrainer, Step
from lens_ref.engines.verl_rows import Rows

RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "verl"
NAN = float("nan")


@dataclass(eq=False)
class Response:
    """One row."""

    uid: str
    question: str
    logprobs: Tensor  # [t] nats
    entropy: Tensor  # [t] nats
    reward: float
    mask: Tensor  # [t] 1 on tokens; all 0 in the rows that verl itself pads a batch with


@dataclass
class Batch:
    """Rows in verl's order, and what else its trainer would know."""

    responses: list[Response]
    keys: list[str] = field(default_factory=list)

    def padded(self, name: str) -> Tensor:
        """`[N, T]`, NaN off the responses."""
        rows = [getattr(response, name).float() for response in self.responses]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=NAN)

    def mask(self) -> Tensor:
        """`[N, T]` of 0 and 1."""
        rows = [response.mask for response in self.responses]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    def token_rewards(self) -> Tensor:
        """`[N, T]`, the reward on the last token."""
        rewards = torch.zeros(self.mask().shape)
        for row, response in enumerate(self.responses):
            rewards[row, len(response.mask) - 1] = response.reward
        return rewards

    def uids(self) -> np.ndarray:
        """N objects."""
        return np.array([response.uid for response in self.responses], dtype=object)

    def rows(self) -> Rows:
        """What the trainer hands to the estimator."""
        return Rows(self.padded("logprobs"), self.mask(), self.padded("entropy"))

    def proto(self) -> DataProto:
        """What verl's dispatcher takes."""
        tensors = {"token_level_rewards": self.token_rewards(), "response_mask": self.mask()}
        return DataProto.from_dict(tensors=tensors, non_tensors={"uid": self.uids()})

    def groups(self) -> dict[str, list[int]]:
        """Rows of each uid, verl's padding left out."""
        found: dict[str, list[int]] = {}
        for row, response in enumerate(self.responses):
            if response.mask.any():
                found.setdefault(response.uid, []).append(row)
        return found

    def rollouts(self) -> tuple[Rollouts, list[list[int]], list[str]]:
        """The groups by hand: `Rollouts` `[B, G]`, the row of each cell (-1: none), questions."""
        groups = list(self.groups().values())
        size, width = max(map(len, groups)), self.mask().shape[1]
        shape = (len(groups), size)
        cells = [[*rows, *[-1] * (size - len(rows))] for rows in groups]
        tokens = {name: torch.zeros(*shape, width).double() for name in ("logprobs", "entropy")}
        rewards, lengths = torch.zeros(shape).double(), torch.zeros(shape, dtype=torch.int64)
        valid = torch.zeros(shape, dtype=torch.bool)
        for b, rows in enumerate(cells):
            for g, row in enumerate(rows):
                if row < 0:
                    continue
                response = self.responses[row]
                valid[b, g] = True
                rewards[b, g], lengths[b, g] = response.reward, len(response.logprobs)
                for name, column in tokens.items():
                    column[b, g, : lengths[b, g]] = getattr(response, name).double()
        rollouts = Rollouts(
            rewards=rewards,
            logprobs=tokens["logprobs"].sum(-1),
            lengths=lengths,
            token_logprobs=tokens["logprobs"],
            mask=torch.arange(width) < lengths.unsqueeze(-1),
            entropy=tokens["entropy"],
            valid=valid,
            truncated=lengths >= 9,
        )
        return rollouts, cells, [self.responses[rows[0]].question for rows in cells]

    def by_row(self, cells: list[list[int]], values: Tensor) -> Tensor:
        """`[B, G]` or `[B, G, T]` back onto `[N, T]`, 0 off the responses."""
        found = torch.zeros(self.mask().shape).double()
        for b, rows in enumerate(cells):
            for g, row in enumerate(rows):
                if row >= 0:
                    found[row] = values[b, g] * self.mask()[row]
        return found


REWARDS = {
    "never": [0.0, 0.0, 0.0, 0.0],
    "some": [1.0, 0.0, 0.0, 1.0],
    "always": [1.0, 1.0, 1.0, 1.0],
    "never, ragged": [0.0, 0.0, 0.0],
    "some, ragged": [0.0, 1.0],
}
"""By question: a negative, a mixed and a correct group, and two that lost responses."""


def batch(seed: int = 0, padding: int = 3) -> Batch:
    """Shuffled rows of ragged groups, and rows that verl added to fill its batch."""
    generator = torch.Generator().manual_seed(seed)
    rows: list[tuple[str, Response]] = []
    for number, (question, rewards) in enumerate(REWARDS.items()):
        for session, reward in enumerate(rewards):
            length = int(torch.randint(1, 10, (), generator=generator))
            logprobs = -2 * torch.rand(length, generator=generator)
            entropy = 2 * torch.rand(length, generator=generator)
            uid, mask = f"{seed}-{number}", torch.ones(length, dtype=torch.int64)
            response = Response(uid, question, logprobs, entropy, reward, mask)
            rows.append((f"{uid}_{session}_0", response))
    for session in range(padding):
        nothing = torch.zeros(1)
        response = Response(f"pad{seed}", "", nothing, nothing, 0.0, nothing.long())
        rows.append((f"pad{seed}_{session}_0", response))
    order = torch.randperm(len(rows), generator=generator).tolist()
    return Batch([rows[i][1] for i in order], [rows[i][0] for i in order])


class Queue:
    """TransferQueue's `kv_batch_get` and `kv_batch_put` over one batch, without its processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.columns: dict[str, Any] = {}
        self.asked: list[list[str]] = []
        monkeypatch.setattr(transfer_queue, "kv_batch_get", self.get)
        monkeypatch.setattr(transfer_queue, "kv_batch_put", self.put)

    def hold(self, batch: Batch) -> transfer_queue.KVBatchMeta:
        """The columns that are there when verl comes to the advantages."""
        responses = batch.responses
        codes = {question: i for i, question in enumerate(["", *REWARDS])}
        prompts = [torch.tensor([7, codes[r.question]]) for r in responses]
        self.columns = {
            "uid": NonTensorStack(*[r.uid for r in responses]),
            "prompts": nested(prompts),
            "response_mask": nested([r.mask for r in responses]),
            "old_log_probs": nested([r.logprobs for r in responses]),
            "rollout_log_probs": nested([r.logprobs - 0.001 for r in responses]),
            "entropy": nested([r.entropy for r in responses]),
            "rm_scores": nested([torch.eye(len(r.mask))[-1] * r.reward for r in responses]),
        }
        return transfer_queue.KVBatchMeta(
            partition_id="train", keys=list(batch.keys), tags=[{} for _ in responses]
        )

    def get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> TensorDict:
        assert partition_id == "train"
        self.asked.append(select_fields)
        found = {name: self.columns[name] for name in select_fields if name in self.columns}
        return TensorDict(found, batch_size=len(keys))

    def put(self, keys: list[str], partition_id: str, fields: TensorDict) -> list[str]:
        self.columns |= {name: fields[name] for name in fields.keys()}  # noqa: SIM118
        return keys

    def padded(self, name: str) -> Tensor:
        """`[N, T]`, 0 off the responses."""
        return self.columns[name].to_padded_tensor(0.0)


def nested(rows: list[Tensor]) -> Tensor:
    """Rows of different lengths, as TransferQueue returns them."""
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def config(*overrides: str, recipe: str = "qwen2.5-3b") -> DictConfig:
    """A recipe as Hydra composes it for verl's command."""
    with initialize_config_dir(str(RECIPES), version_base=None):
        return compose(recipe, overrides=list(overrides))


def trainer(*overrides: str) -> LensTrainer:
    """verl's own trainer with the recipe's settings, no model loaded."""
    return LensTrainer(config(*overrides))


def dispatch(rows: Batch, loss_agg_mode: str = "seq-mean-token-mean", **lens: object) -> Tensor:
    """verl's own `compute_advantage`, called as its trainer does."""
    algorithm = OmegaConf.create({"adv_estimator": "lens", "lens": lens})
    treatment, _ = verl_settings.treatment(algorithm)
    token = STEP.set(Step(treatment, rows.rows(), loss_agg_mode))
    try:
        data = compute_advantage(rows.proto(), adv_estimator="lens", config=algorithm)
    finally:
        STEP.reset(token)
    assert data.batch["returns"] is data.batch["advantages"]
    return data.batch["advantages"]
