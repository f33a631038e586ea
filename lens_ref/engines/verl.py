"""verl's advantage estimator `lens` and trainer mode `lens_sync`, for any method of `lens_ref`.

verl imports this module by itself in every process where

    VERL_USE_EXTERNAL_MODULES=lens_ref.engines.verl

is set; `recipes/verl` sets it for all of Ray. verl hands an estimator rewards, mask and uids, but
no log-probabilities. They are at hand one level up, in the trainer's queue: `LensTrainer` fetches
them, and holds them where the estimator finds them while verl's own `_compute_advantage` runs.
Nothing of verl is replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lens_ref.engines import verl_rows, verl_settings
from lens_ref.engines.state import read_state, write_state
from lens_ref.engines.verl_settings import ESTIMATOR, SUPPORTED, TRAINER_MODE
from lens_ref.methods.treatment import Treatment

try:
    import transfer_queue as tq
    import verl
    from omegaconf import DictConfig, open_dict
    from verl.trainer.ppo.core_algos import register_adv_est
    from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
except ImportError as error:
    raise ImportError(
        "lens_ref.engines.verl needs verl and what its trainer imports: pip install "
        f"'verl[verl-core]>={SUPPORTED[0]},<{SUPPORTED[1]}' into an environment of its own "
        f"({error})"
    ) from error

verl_settings.check_version(verl.__version__)

logger = logging.getLogger("verl.lens_ref")  # verl sends what is below "verl" to the console


@dataclass
class Step:
    """One batch on its way through verl's `_compute_advantage`."""

    treatment: Treatment
    rows: verl_rows.Rows
    loss_agg_mode: str
    statistics: dict[str, float] = field(default_factory=dict)


STEP: ContextVar[Step] = ContextVar("STEP")
"""Set by the trainer around verl's dispatch, read by the estimator."""


@register_adv_est(ESTIMATOR)
def advantage_estimator(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: Sequence[str],
    config: Any = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """What `algorithm.adv_estimator=lens` runs.

    Args:
        token_level_rewards, response_mask: `[N, T]`.
        index: the N uids.

    Returns:
        Advantages `[N, T]`, and the same once more where verl wants returns.

    Raises:
        RuntimeError: another trainer than `lens_sync` called it.
    """
    step = STEP.get(None)
    if step is None:
        raise RuntimeError(
            f"adv_estimator={ESTIMATOR} needs log-probabilities, which verl hands to no estimator: "
            f"set trainer.v1.trainer_mode={TRAINER_MODE} (and leave trainer.use_v1=True)"
        )
    advantages, step.statistics = verl_rows.advantages(
        step.treatment, step.rows, index, token_level_rewards, response_mask, step.loss_agg_mode
    )
    return advantages, advantages


@register_trainer(TRAINER_MODE)
class LensTrainer(PPOTrainerSync):
    """verl's synchronous trainer, with the advantages of a method of `lens_ref.methods`.

    Log-probabilities are `old_log_probs`: the training engine's at the sampling temperature, or the
    rollout engine's where `algorithm.rollout_correction.bypass_mode` is on. The group statistics of
    each batch are logged as `lens_ref/…`. verl's asynchronous trainers have no such mode: their
    responses come from several policies, and `old_log_probs` from none of them.
    """

    def __init__(self, config: DictConfig) -> None:
        """
        Raises:
            ValueError: a method, a hyperparameter or a setting that can't work, in one line.
        """
        self.treatment, allow = verl_settings.treatment(config.algorithm)
        verl_settings.check(config, self.treatment, allow)
        with open_dict(config):  # the base class picks its buffers by this name
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)
        correction = config.algorithm.get("rollout_correction") or {}
        source = "rollout" if correction.get("bypass_mode") else "training"
        logger.info(
            "lens_ref is on: method %s, groups by uid, log-probabilities of the %s engine",
            self.treatment.label,
            source,
        )

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        step = Step(
            self.treatment, self._rows(batch), self.config.actor_rollout_ref.actor.loss_agg_mode
        )
        token = STEP.set(step)
        try:
            batch = super()._compute_advantage(batch, metrics)
        finally:
            STEP.reset(token)
        metrics.update({f"lens_ref/{name}": x for name, x in step.statistics.items()})
        return batch

    def _rows(self, batch: Any) -> verl_rows.Rows:
        """The batch's columns from the queue, in the batch's order."""
        one_response_a_session(batch.keys)
        wanted = {
            "old_log_probs": True,
            "response_mask": True,
            "entropy": self.treatment.needs("entropy"),
            "prompts": self.treatment.state is not None,
        }
        data = tq.kv_batch_get(
            keys=batch.keys,
            partition_id=batch.partition_id,
            select_fields=[name for name, want in wanted.items() if want],
        )
        lengths = torch.tensor([len(row) for row in data["response_mask"].unbind()])
        prompts = data.pop("prompts", None)
        data = data.to_padded_tensor()
        return verl_rows.Rows(
            logprobs=data["old_log_probs"],
            mask=data["response_mask"],
            entropy=data.get("entropy", None),
            # as verl counts response_length/clip_ratio
            truncated=lengths >= self.config.actor_rollout_ref.rollout.response_length,
            questions=None if prompts is None else verl_rows.question_names(prompts.unbind()),
        )

    def _save_checkpoint(self) -> None:
        write_state(self._folder(self.global_steps), self.treatment)
        super()._save_checkpoint()  # last of all it says which checkpoint is the newest

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps > 0:
            given = self.config.trainer.resume_mode == "resume_path"
            folder = (
                Path(self.config.trainer.resume_from_path)
                if given
                else self._folder(self.global_steps)
            )
            read_state(folder, self.treatment)

    def _folder(self, step: int) -> Path:
        return Path(self.config.trainer.default_local_dir) / f"global_step_{step}"


def one_response_a_session(keys: Sequence[str]) -> None:
    """Refuse agent loops that cut a session into several outputs, `{uid}_{session}_{output}`: they
    would count as several members of the group.

    Raises:
        ValueError: a second output.
    """
    for key in keys:
        if int(key.rpartition("_")[2]) > 0:
            raise ValueError(
                f"session {key.rpartition('_')[0]} has several outputs: {ESTIMATOR} needs one "
                "response a session, as the single-turn agent loop gives"
            )
