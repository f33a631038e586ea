"""Clipped updates on a frozen batch: old log-probabilities once, then up to U optimizer steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lens_ref import methods
from lens_ref.core import grpo_loss
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.config import LossConfig, OptimizerConfig, RolloutConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.policy import Policy, token_logprobs


@dataclass(frozen=True)
class UpdateStats:
    """Numbers of one optimizer step; means are over the trained tokens, None if there are none."""

    loss: float
    clip_fraction: float | None
    mean_ratio: float | None
    approx_kl: float | None
    entropy: float | None  # nats a token, of the policy before this step
    drift: float | None  # mean |log-probability, this forward pass − old|
    grad_norm: float  # before clipping
    lr: float
    tokens: int
    micro_batches: int


def micro_batches(lengths: list[int], budget: int) -> Iterator[list[int]]:
    """Cut rows into micro-batches of at most `budget` tokens, padding included.

    Args:
        lengths: tokens of each row, prompt included.
        budget: a row longer than this stands alone.

    Yields:
        Row indices, in order of length.
    """
    chunk: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if chunk and lengths[i] * (len(chunk) + 1) > budget:
            yield chunk
            chunk = []
        chunk.append(i)
    if chunk:
        yield chunk


def loss_settings(config: LossConfig, method: str) -> LossConfig:
    """The clip and aggregation to use: this run's, or the method's own published ones."""
    if not config.as_published:
        return config
    published = methods.spec(method).loss
    return replace(
        config,
        clip_low=published.clip_low,
        clip_high=published.clip_high,
        aggregation=published.aggregation,
    )


class Updater:
    """The optimizer and the two passes over a batch."""

    def __init__(
        self,
        policy: Policy,
        rollout: RolloutConfig,
        optimizer: OptimizerConfig,
        loss: LossConfig,
        check_stop: Callable[[], None],
    ) -> None:
        self.policy, self.rollout, self.config, self.loss = policy, rollout, optimizer, loss
        self.check_stop = check_stop
        self.optimizer = torch.optim.AdamW(
            policy.trainable().values(),
            lr=optimizer.lr,
            betas=optimizer.betas,
            weight_decay=optimizer.weight_decay,
        )

    @torch.no_grad()
    def freeze_old(self, batch: Batch) -> Batch:
        """The batch with `old_logprobs`, from the trainer (with entropies) or the sampler."""
        if self.loss.old_logprobs == "sampler":
            return replace(batch, old_logprobs=batch.samples.logprobs)
        shape = batch.samples.ids.shape
        old, entropy = torch.zeros(shape).flatten(0, 1), torch.zeros(shape).flatten(0, 1)
        everything = torch.ones(shape[:2], dtype=torch.bool)
        for rows, logprobs, entropies in self._passes(batch, slice(None), everything):
            for i, its_logprobs, its_entropy in zip(rows, logprobs, entropies, strict=True):
                old[i, : len(its_logprobs)] = its_logprobs.cpu()
                entropy[i, : len(its_entropy)] = its_entropy.cpu()
        return replace(batch, old_logprobs=old.reshape(shape), entropy=entropy.reshape(shape))

    def step(self, batch: Batch, questions: slice, update: int) -> UpdateStats:
        """One optimizer step on the groups of `questions`.

        Args:
            batch: graded and valued.
            questions: which of its B groups.
            update: updates done so far in the run, for the warm-up.

        Raises:
            UserError: the policy, a ratio or the gradient is not finite; the weights are left as
                they were.
        """
        assert batch.signal is not None
        assert batch.old_logprobs is not None
        keep = batch.signal.keep
        device = self.policy.device
        chosen_mask = batch.samples.mask[questions][keep[questions]]
        tokens, responses = int(chosen_mask.sum()), len(chosen_mask)
        denominator = {
            "sequence_mean": responses,
            "token_mean": tokens,
            "constant": responses * self.rollout.max_new_tokens,
        }[self.loss.aggregation]
        old_rows = batch.old_logprobs.flatten(0, 1)
        advantage_rows = batch.signal.advantages.flatten(0, 1)
        mask_rows = batch.samples.mask.flatten(0, 1)

        lr = self.config.lr * min(1.0, (update + 1) / max(1, self.config.warmup_updates))
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        sums = torch.zeros(6, dtype=torch.float64)
        count = 0
        for rows, logprobs, entropies in self._passes(batch, questions, keep):
            width = max(map(len, logprobs))
            mask = mask_rows[rows, :width].to(device)
            new = pad_sequence(logprobs, batch_first=True)
            old = old_rows[rows, :width].to(device)
            advantages = advantage_rows[rows].to(device)
            try:
                out = grpo_loss(
                    new,
                    old,
                    advantages[:, :width] if advantages.ndim > 1 else advantages,
                    mask,
                    self.loss.clip_low,
                    self.loss.clip_high,
                    self.loss.aggregation,
                    max(denominator, 1),
                )
            except ValueError as error:
                raise UserError(
                    f"update {update + 1}: {error}; the weights are unchanged "
                    "(is optimizer.lr too high?)"
                ) from error
            out.loss.backward()
            n = mask.sum()
            drift = (new.detach() - old).abs()[mask].sum()
            entropy = torch.cat(entropies).sum()
            means = (out.clip_fraction * n, out.mean_ratio * n, out.approx_kl * n)
            sums += torch.stack([out.loss.detach(), *means, entropy, drift]).cpu().double()
            count += 1
        parameters = list(self.policy.trainable().values())
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.config.grad_clip))
        if not norm < float("inf"):
            self.optimizer.zero_grad(set_to_none=True)
            raise UserError(
                f"update {update + 1}: gradient norm {norm}; the weights are unchanged "
                "(is optimizer.lr too high?)"
            )
        self.check_stop()
        self.optimizer.step()
        loss, *totals = sums.tolist()
        clip, ratio, kl, entropy_mean, drift_mean = (x / tokens if tokens else None for x in totals)
        return UpdateStats(loss, clip, ratio, kl, entropy_mean, drift_mean, norm, lr, tokens, count)

    def _passes(
        self, batch: Batch, questions: slice, keep: Tensor
    ) -> Iterator[tuple[list[int], list[Tensor], list[Tensor]]]:
        """Forward passes over the kept responses: (flat row indices, log-probs, entropies)."""
        _, g, _ = batch.samples.ids.shape
        ids, lengths = batch.samples.ids.flatten(0, 1), batch.samples.lengths.flatten()
        wanted = range(len(batch.prompts))[questions]
        rows = [b * g + j for b in wanted for j in range(g) if keep[b, j]]
        totals = [len(batch.prompts[i // g]) + int(lengths[i]) for i in rows]
        self.policy.model.train()
        for chunk in micro_batches(totals, self.loss.micro_batch_tokens):
            self.check_stop()
            picked = [rows[i] for i in chunk]
            logprobs, entropies = token_logprobs(
                self.policy.model,
                [batch.prompts[i // g] for i in picked],
                [ids[i, : int(lengths[i])] for i in picked],
                self.rollout.temperature,
            )
            yield picked, logprobs, entropies
