"""`LensGRPOTrainer`: `trl.GRPOTrainer` with the advantages of any method of `lens_ref.methods`.

TRL computes advantages from rewards alone, in the middle of one private method and without a hook.
So `_generate_and_score_completions` is wrapped here: what `_calculate_rewards` returns within it,
gathered over all processes, is put aside, and the advantages are replaced before TRL shuffles the
rows and forgets the groups. And a resumed run is given the order of questions of its own epoch.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lens_ref.core import LensConfig, Rollouts
from lens_ref.engines.groups import (
    REWARD_ROUNDING,
    GroupIndex,
    kept_scale,
    scatter,
    to_rollouts,
    whole_rewards,
)
from lens_ref.engines.state import read_state, write_state
from lens_ref.engines.statistics import group_statistics
from lens_ref.engines.trl_settings import SUPPORTED, check, check_model, check_version
from lens_ref.methods.treatment import Treatment

try:
    import trl
    from accelerate.utils import gather_object
    from transformers.trainer import TRAINER_STATE_NAME
    from transformers.trainer_callback import TrainerState
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
    from trl import GRPOConfig, GRPOTrainer
except ImportError as error:
    raise ImportError(
        f"lens_ref.engines.trl needs TRL: pip install '{SUPPORTED}' into an environment of its own "
        f"({error})"
    ) from error

check_version(trl.__version__)


class LensGRPOTrainer(GRPOTrainer):
    """A drop-in for `trl.GRPOTrainer`: the same arguments and four more.

    The weighted sum of the reward functions must lie in [0, 1]. Log-probabilities are those of the
    policy that sampled, at the sampling temperature: what vLLM or a rollout function reports, else
    those that TRL computes before its first update, else one forward pass. Groups are formed over
    all processes. Responses that every reward function declined to score (None) are left out.

    Under TRL's logger `lens_ref/…` holds the group statistics of each batch of responses; TRL's own
    `frac_reward_zero_std` is about raw rewards and counts negative groups as lost.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        *positional: Any,
        method: str = "lens",
        config: LensConfig | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        allow: Collection[str] = (),
        **keywords: Any,
    ) -> None:
        """
        Args:
            model, reward_funcs, args, positional, keywords: as `trl.GRPOTrainer` takes them.
            method: a name of `lens_ref.methods.names()`.
            config: the reading of LENS, for `lens` and `lens_pooled`; default: the paper's.
            hyperparameters: of the method and of its state.
            allow: settings that `lens_ref.engines.trl_settings` would refuse but that are meant.

        Raises:
            ValueError: a method, a hyperparameter or a setting of `args` that can't work, in one
                line, before the model is loaded.
        """
        if args is None:
            args = GRPOConfig(loss_type="grpo", scale_rewards="none")
        self.treatment = Treatment(method, config, hyperparameters)
        check(args, self.treatment.label, allow)
        self._train_sampler: Any = None
        super().__init__(model, reward_funcs, args, *positional, **keywords)
        check_model(self.model, self.args)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        training = self.model.training
        questions = gather_object([question_id(row) for row in inputs])
        calculate, scores = self._calculate_rewards, []  # a subclass's, where it has one

        def noted(*args: Any, **kwargs: Any) -> Tensor:
            scores.append(calculate(*args, **kwargs))
            return scores[-1]

        self._calculate_rewards = noted
        try:
            output = super()._generate_and_score_completions(inputs)
        finally:
            del self._calculate_rewards
        size = self.num_generations if training else self.num_generations_eval
        rewards = self._rewards(scores[-1])
        rollouts, index = self._rollouts(output, rewards, group_numbers(questions, size))
        signal = self.treatment(rollouts, questions[::size], learn=training)

        advantages, keep = scatter(signal, index)  # [N] or [N, T], every process's rows
        advantages = advantages.float() * kept_scale(keep)  # TRL divides by all rows
        output["advantages"] = self._own(advantages, output["completion_ids"])

        mode = "train" if training else "eval"
        for name, number in group_statistics(rollouts, signal).items():
            self._metrics[mode][f"lens_ref/{name}"].append(number)
        if advantages.ndim == 2:
            lengths = rollouts.lengths[index.group, index.column].clamp(min=1)
            advantages = advantages.sum(-1) / lengths
        self._rewrite_table(advantages)
        return output

    def _rollouts(
        self, output: dict[str, Any], rewards: Tensor, groups: list[int]
    ) -> tuple[Rollouts, GroupIndex]:
        """The groups of all processes, on the CPU."""
        mask = output["completion_mask"].bool()
        if "tool_mask" in output:  # what a tool or an environment wrote is not the policy's
            mask = mask & output["tool_mask"].bool()
        logprobs, entropy = self._logprobs(output, mask)
        return to_rollouts(
            groups,
            rewards.nan_to_num(0.0),
            self._everyone(logprobs),
            self._everyone(mask.int()),
            truncated=self.accelerator.gather(self._truncated(output)).cpu(),
            entropy=None if entropy is None else self._everyone(entropy),
            valid=~rewards.isnan(),
        )

    def _rewards(self, scores: Tensor) -> Tensor:
        """`[N]`: the weighted sum over reward functions; NaN where none of them scored."""
        scores = scores.double().cpu()
        rewards = (scores * self.reward_weights.double().cpu()).nansum(-1)
        rewards = rewards.masked_fill(scores.isnan().all(-1), torch.nan)
        outside = ((rewards < -REWARD_ROUNDING) | (rewards > 1 + REWARD_ROUNDING)).nonzero()
        if len(outside):
            row = int(outside[0])
            raise ValueError(
                f"the reward of response {row} is {rewards[row]:g}: the reward functions, weighted "
                "by reward_weights, must sum to a number in [0, 1]"
            )
        return whole_rewards(rewards)

    def _logprobs(self, output: dict[str, Any], mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """`[N, T]` of the policy that sampled; entropies too where the method needs them."""
        logprobs = output.get("sampling_per_token_logps")
        if logprobs is None:
            logprobs = output.get("old_per_token_logps")
        entropy = None
        missing = logprobs is None or self._anywhere(~logprobs.isfinite() & mask)
        if missing or self.treatment.needs("entropy"):
            computed, entropy = self._forward(output)
            # vLLM reports no finite number for a token now and then: the trainer's stands in
            scored = None if logprobs is None else logprobs.isfinite()
            logprobs = computed if scored is None else logprobs.where(scored, computed)
        return logprobs, entropy

    @torch.no_grad()
    def _forward(self, output: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
        """One pass of the policy over the responses, by TRL's own method."""
        compute = self._get_per_token_logps_and_entropies
        batch_size = self.args.per_device_train_batch_size
        if not self.model.training:
            batch_size = self.args.per_device_eval_batch_size
        accepted = inspect.signature(compute).parameters
        images = {name: output[name] for name in accepted if name in output}
        result = compute(
            self.model,
            torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1),
            torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1),
            output["completion_ids"].size(1),
            batch_size=batch_size,
            compute_entropy=self.treatment.needs("entropy"),
            **images,
        )
        return result[0], result[1]

    def _truncated(self, output: dict[str, Any]) -> Tensor:
        """`[N]` bool, as TRL counts `completions/clipped_ratio`: the last token ends nothing."""
        ids, mask = output["completion_ids"], output["completion_mask"]
        ends = getattr(self, "eos_token_ids", [self._tokenizer.eos_token_id])
        last = ids.gather(1, (mask.sum(1, keepdim=True) - 1).clamp(min=0)).squeeze(1)
        return ~torch.isin(last, last.new_tensor([*ends, self._tokenizer.pad_token_id]))

    def _everyone(self, rows: Tensor) -> Tensor:
        """`[n, t]` here → `[N, T]` of all processes, on the CPU. Not for bool: accelerate's padding
        makes int64 of it, in those processes alone that have to pad."""
        return self.accelerator.gather(self.accelerator.pad_across_processes(rows, dim=1)).cpu()

    def _anywhere(self, flags: Tensor) -> bool:
        """Whether any process has one set: a forward pass may need all of them."""
        return bool(self.accelerator.gather(flags.any().reshape(1)).any())

    def _own(self, advantages: Tensor, completion_ids: Tensor) -> Tensor:
        """This process's rows, cut to its own padded length."""
        rows, width = completion_ids.shape
        start = self.accelerator.process_index * rows
        own = advantages[start : start + rows].to(completion_ids.device)
        return own if own.ndim == 1 else own[:, :width].contiguous()

    def _rewrite_table(self, advantages: Tensor) -> None:
        """`[N]` into TRL's table of completions, in place of those that TRL has just put there."""
        table = self._logs["advantages"]
        for _ in range(min(len(advantages), len(table))):
            table.pop()
        table.extend(advantages.tolist())

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial))
            write_state(
                folder / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}", self.treatment
            )

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        self._train_sampler = super()._get_train_sampler(*args, **kwargs)
        return self._train_sampler

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            read_state(Path(checkpoint), self.treatment)
            state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
            skip_orders(self._train_sampler, int(state.epoch or 0))


def skip_orders(sampler: Any, epochs: int) -> None:
    """Draw the orders of the questions of so many epochs, and forget them.

    TRL's sampler draws one an epoch from a generator of its own, which a resumed run starts again:
    without this the second epoch, resumed, would have the order of the first.
    """
    if getattr(sampler, "shuffle", False):
        for _ in range(epochs):
            torch.randperm(sampler.num_samples, generator=sampler.generator)


def question_id(row: Mapping[str, Any]) -> str:
    """A name for a question, text or messages with their images, that is the same in every process
    and every run."""
    names = ("prompt", "image", "images")
    question = {name: row[name] for name in names if name in row} or row
    text = json.dumps(question, sort_keys=True, default=_as_text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _as_text(other: Any) -> str:
    """An image (PIL's, an array) by its bytes, anything else by its type."""
    data = other.tobytes() if hasattr(other, "tobytes") else b""
    return type(other).__name__ + hashlib.sha256(data).hexdigest()


def group_numbers(questions: list[str], size: int) -> list[int]:
    """TRL's groups are `size` rows in a row; the same question may come twice in a batch.

    Raises:
        ValueError: a group that holds two questions.
    """
    groups = [row // size for row in range(len(questions))]
    for row, group in enumerate(groups):
        if questions[row] != questions[group * size]:
            raise ValueError(
                f"group {group} holds responses to different prompts: the sampler must hand out "
                f"each prompt {size} times in a row (num_generations)"
            )
    return groups
