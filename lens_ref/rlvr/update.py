"""Clipped updates on a frozen batch: old log-probabilities once, then up to U optimizer steps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import OutOfMemoryError, Tensor
from torch.nn.utils.rnn import pad_sequence

from lens_ref import methods
from lens_ref.core import grpo_loss
from lens_ref.rlvr import memory
from lens_ref.rlvr.bad_numbers import BadNumbers, without_rounding
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.config import LossConfig, OptimizerConfig, RolloutConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.layers import checkpoint_layers, checkpointed, layers_of
from lens_ref.rlvr.policy import Policy

log = logging.getLogger("lens_ref")

Result = TypeVar("Result")
Scores = tuple[list[Tensor], list[Tensor]]


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
    token_budget: int  # of a micro-batch; halved whenever the GPU's memory did not suffice


def micro_batches(lengths: list[int], budget: int, packed: bool = False) -> list[list[int]]:
    """Cut rows into micro-batches of at most `budget` tokens, padding included.

    Args:
        lengths: tokens of each row, prompt included.
        budget: a row longer than this stands alone.
        packed: rows are laid end to end: there is no padding.

    Returns:
        Row indices, in order of length.
    """
    chunks: list[list[int]] = []
    tokens = 0
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        tokens += lengths[i]
        longest_yet = lengths[i] * (len(chunks[-1]) + 1) if chunks else 0
        if not chunks or (tokens if packed else longest_yet) > budget:
            chunks.append([])
            tokens = lengths[i]
        chunks[-1].append(i)
    return chunks


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
        self.parameters = list(policy.trainable().values())
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=optimizer.lr,
            betas=optimizer.betas,
            weight_decay=optimizer.weight_decay,
            fused=policy.device.type == "cuda",
        )
        self.token_budget = loss.micro_batch_tokens

    @torch.no_grad()
    def freeze_old(self, batch: Batch) -> Batch:
        """The batch with `old_logprobs`, from the trainer (with entropies) or the sampler."""
        if self.loss.old_logprobs == "sampler":
            return replace(batch, old_logprobs=without_rounding(batch.samples.logprobs))
        shape = batch.samples.ids.shape
        old, entropy = torch.zeros(shape).flatten(0, 1), torch.zeros(shape).flatten(0, 1)
        everything = torch.ones(shape[:2], dtype=torch.bool)
        for rows, (logprobs, entropies) in self._passes(
            batch, slice(None), everything, lambda rows, scores: scores
        ):
            for i, its_logprobs, its_entropy in zip(
                rows, _to_cpu(logprobs), _to_cpu(entropies), strict=True
            ):
                old[i, : len(its_logprobs)] = its_logprobs
                entropy[i, : len(its_entropy)] = its_entropy
        old = without_rounding(old).reshape(shape)
        return replace(batch, old_logprobs=old, entropy=entropy.reshape(shape))

    def step(
        self,
        batch: Batch,
        questions: slice,
        update: int,
        check: Callable[[UpdateStats], None] = lambda stats: None,
    ) -> UpdateStats:
        """One optimizer step on the groups of `questions`.

        Args:
            batch: graded and valued.
            questions: which of its B groups.
            update: updates done so far in the run, for the warm-up.
            check: sees the statistics before the weights change; what it raises stops the update.

        Raises:
            BadNumbers: a new log-probability, a ratio or the gradient is not finite; weights and
                moments are left as they were.
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
        advantage_rows = self._advantages(batch).flatten(0, 1)
        mask_rows = batch.samples.mask.flatten(0, 1)

        lr = self.config.lr * min(1.0, (update + 1) / max(1, self.config.warmup_updates))
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        parameters = self.parameters
        sums = torch.zeros(6, dtype=torch.float64, device=device)
        count = 0

        def accumulate(rows: list[int], scores: Scores) -> Tensor:
            """Add the gradient of these rows; returns their share of `sums`. What can run out of
            memory comes first: the gradient is added at the very end, in place, so that a
            micro-batch that fails has left nothing and can be done again."""
            logprobs, entropies = scores
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
                faults = _not_finite(rows, new.detach(), old, mask, batch.samples.ids.shape[1])
                if not faults:
                    raise
                raise BadNumbers(update + 1, batch, faults) from error
            n = mask.sum()
            drift = (new.detach() - old).abs()[mask].sum()
            entropy = torch.cat(entropies).sum()
            means = (out.clip_fraction * n, out.mean_ratio * n, out.approx_kl * n)
            share = torch.stack([out.loss.detach(), *means, entropy, drift]).double()
            gradients = torch.autograd.grad(out.loss, parameters, allow_unused=True)
            more: list[tuple[Tensor, Tensor]] = []
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None and parameter.grad is not None:
                    more.append((parameter.grad, gradient))
                elif gradient is not None:
                    parameter.grad = gradient
            if more:  # a few kernels for hundreds of small matrices
                torch._foreach_add_(*map(list, zip(*more, strict=True)))
            return share

        def norm_of(some: slice) -> float:
            nonlocal sums, count
            self.optimizer.zero_grad(set_to_none=True)
            for _, share in self._passes(batch, some, keep, accumulate):
                sums += share
                count += 1
            return float(torch.nn.utils.clip_grad_norm_(parameters, self.config.grad_clip))

        norm = norm_of(questions)
        if not norm < float("inf"):
            # whose gradient it is shows when each question has one of its own
            wanted = range(len(batch.prompts))[questions]
            norms = {i: norm_of(slice(i, i + 1)) for i in wanted}
            self.optimizer.zero_grad(set_to_none=True)
            faults = {i: _gradient(n) for i, n in norms.items() if not n < float("inf")}
            whole = f"{_gradient(norm)} over this update, though not over a question alone"
            raise BadNumbers(update + 1, batch, faults or dict.fromkeys(wanted, whole))
        loss, *totals = sums.tolist()
        clip, ratio, kl, entropy_mean, drift_mean = (x / tokens if tokens else None for x in totals)
        stats = UpdateStats(
            loss,
            clip,
            ratio,
            kl,
            entropy_mean,
            drift_mean,
            norm,
            lr,
            tokens,
            count,
            self.token_budget,
        )
        self.check_stop()
        check(stats)
        self.optimizer.step()
        return stats

    def _advantages(self, batch: Batch) -> Tensor:
        """`[B, G]` or `[B, G, T]`: the signal's, weighed by how much likelier the policy draws a
        token than the sampler did, at most `correction_cap`, where that is asked for."""
        assert batch.signal is not None
        assert batch.old_logprobs is not None
        advantages = batch.signal.advantages
        if self.loss.sampler_correction == "none":
            return advantages
        likelier = torch.where(batch.samples.mask, batch.old_logprobs - batch.samples.logprobs, 0.0)
        weights = likelier.exp().clamp(max=self.loss.correction_cap)
        return (advantages.unsqueeze(-1) if advantages.ndim == 2 else advantages) * weights

    def _passes(
        self,
        batch: Batch,
        questions: slice,
        keep: Tensor,
        use: Callable[[list[int], Scores], Result],
    ) -> Iterator[tuple[list[int], Result]]:
        """Forward passes over the kept responses, each handed to `use`.

        Where the GPU's memory does not suffice the token budget is halved, for good, and the
        micro-batch done again: `use` must leave nothing behind when it fails.

        Yields:
            Flat row indices of a micro-batch, and what `use` made of them.

        Raises:
            UserError: a single response does not fit.
        """
        _, g, _ = batch.samples.ids.shape
        ids, lengths = batch.samples.ids.flatten(0, 1), batch.samples.lengths.flatten().tolist()
        wanted = range(len(batch.prompts))[questions]
        left = [b * g + j for b in wanted for j in range(g) if keep[b, j]]
        if not self.policy.model.training:  # a walk through thousands of modules
            self.policy.model.train()
        while left:
            pending, shortage = left, None
            totals = [len(batch.prompts[i // g]) + lengths[i] for i in pending]
            for chunk in micro_batches(totals, self.token_budget, self.policy.packed):
                self.check_stop()
                rows = [pending[i] for i in chunk]
                prompts = [batch.prompts[i // g] for i in rows]
                responses = [ids[i, : lengths[i]] for i in rows]
                try:  # in one expression: nothing here may keep a failed pass's activations alive
                    result = use(
                        rows, self.policy.logprobs(prompts, responses, self.rollout.temperature)
                    )
                except OutOfMemoryError as error:
                    shortage = str(error).splitlines()[0]
                    break
                yield rows, result
                done = set(rows)
                left = [i for i in left if i not in done]
            if shortage is not None:
                self._make_do(sum(totals[i] for i in chunk), len(chunk), shortage)

    def _make_do(self, tokens: int, rows: int, shortage: str) -> None:
        """After a shortage of memory: halve the token budget, or else keep fewer activations."""
        memory.give_back()
        layers = len(layers_of(self.policy.model))
        if rows > 1:
            self.token_budget = max(1, min(self.token_budget, tokens) // 2)
            log.warning("out of GPU memory: micro-batches of %d tokens now", self.token_budget)
        elif checkpointed(self.policy.model) < layers:
            checkpoint_layers(self.policy.model, layers)
            log.warning("out of GPU memory: the activations of every layer are recomputed now")
        else:
            raise UserError(
                f"out of GPU memory on a single answer of {tokens} tokens, prompt included: set "
                f"rollout.max_new_tokens lower ({shortage})"
            )


def _gradient(norm: float) -> str:
    return f"the norm of the gradient is {norm} (is optimizer.lr too high?)"


def _not_finite(
    rows: list[int], new: Tensor, old: Tensor, mask: Tensor, group_size: int
) -> dict[int, str]:
    """Questions with a token `[N, T]` whose log-probability in this forward pass, or whose ratio to
    the old one, is not finite."""
    found: dict[int, str] = {}
    ratio = (new - old).exp()
    for name, value in (("log-probability", new), ("ratio to the old probability", ratio)):
        bad = mask & ~value.isfinite()
        for i in bad.any(-1).nonzero().flatten().tolist():
            token = int(bad[i].nonzero()[0])
            found.setdefault(
                rows[i] // group_size,
                f"the new {name} of answer {rows[i] % group_size}, token {token} (from 0) is "
                f"{float(value[i, token]):g} (is optimizer.lr too high?)",
            )
    return found


def _to_cpu(tensors: list[Tensor]) -> tuple[Tensor, ...]:
    """One transfer for all."""
    return torch.cat(tensors).cpu().split([len(tensor) for tensor in tensors])
