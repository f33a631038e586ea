"""One run: rollouts → rewards → advantages → up to U clipped updates, logged and resumable.

The step, the number of gradient updates done, determines everything else: rollout batch
`step // U` is in hand, with `step % U` of its updates done, and every random number is drawn from a
seed derived from the run's seed and such a counter.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lens_ref.methods.treatment import Treatment
from lens_ref.rlvr import bad_numbers, bundle, checkpoint, evaluation, metrics
from lens_ref.rlvr.adapter import adapter_hash, adapter_tensors, has_adapter
from lens_ref.rlvr.bad_numbers import BadNumbers
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.config import Config, parse_method, to_dict
from lens_ref.rlvr.errors import Interrupted, UserError, in_one_line
from lens_ref.rlvr.grading import grade
from lens_ref.rlvr.loggers import Loggers
from lens_ref.rlvr.logs import Logs
from lens_ref.rlvr.manifest import describe, other_weights, policy_entry
from lens_ref.rlvr.policy import Policy, resolve_dtype
from lens_ref.rlvr.progress import Progress, changed, check_fits
from lens_ref.rlvr.prompts import encode_prompts, question_order
from lens_ref.rlvr.run_folder import RunFolder, refuse_secrets
from lens_ref.rlvr.sampler import derive_seed, make_sampler
from lens_ref.rlvr.samplers import Samplers
from lens_ref.rlvr.stop import StopRequest
from lens_ref.rlvr.stopwatch import Stopwatch, peak_gb, reset_peak
from lens_ref.rlvr.tasks import Questions
from lens_ref.rlvr.update import Updater, UpdateStats, loss_settings
from lens_ref.verifier import Verifier

log = logging.getLogger("lens_ref")

SKIPPED_IN_A_ROW = 3
"""The run stops at so many updates in a row with a bad number: it does not come back by itself."""


@dataclass(frozen=True)
class Data:
    """The questions of a run."""

    train: Questions
    test: Questions | None


class Trainer:
    """Trains one policy with one method, in one run folder."""

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        policy: Policy,
        data: Data,
        verifier: Verifier,
        stop: StopRequest,
        report: Callable[[int, dict[str, Any]], None] = lambda step, row: None,
        samplers: Samplers | None = None,
        resumed: Callable[[int], None] = lambda step: None,
    ) -> None:
        """
        Args:
            config: with a single method.
            data: its questions are made into prompts here.
            report: called after every update with the step and its metrics.
            samplers: of the session, for what its runs can share; whoever made them closes them.
            resumed: called once, with the step of the checkpoint that the run goes on from.
        """
        self.config, self.folder, self.policy, self.data = config, folder, policy, data
        self.verifier, self.stop, self.report, self.resumed = verifier, stop, report, resumed
        name, given = parse_method(config.method)
        self.treatment = Treatment(name, hyperparameters=given)
        self.updater = Updater(
            policy, config.rollout, config.optimizer, loss_settings(config.loss, name), stop.check
        )
        self.train_prompts = encode_prompts(policy, config, data.train)
        self.test_prompts = encode_prompts(policy, config, data.test)
        self.step = 0
        self.saved: tuple[int, bool] | None = None  # the newest checkpoint: step, evaluated there
        self.batch: Batch | None = None
        self.refused: dict[int, str] = {}  # why the method took no question i of it
        self.skipped: list[int] = []  # updates that were not made, for a bad number
        self.changes: list[dict[str, Any]] = []  # of the settings, at every resumption
        self.tokens = 0  # sampled for training
        self.verdicts: Counter[str] = Counter()  # by reason, evaluations included
        self.seconds_before = 0.0  # wall time of earlier pieces of this run
        self.began = time.monotonic()
        path = folder.path
        self.logs = Logs(path, data.test)
        self.checkpoints = path / "checkpoints"
        longest = max(map(len, self.train_prompts + self.test_prompts))
        name = f"{path.parent.name}/{path.name}"
        self.loggers = Loggers(config.log, path, name, to_dict(config))
        self.samplers = samplers
        take = make_sampler if samplers is None else samplers.take
        self.sampler = take(policy, config, longest, stop.check)

    def run(self) -> None:
        """Train to `config.steps`, resuming from the newest intact checkpoint.

        Raises:
            Interrupted: after saving a checkpoint.
            UserError: a damaged run folder, a full disk, a number that is not finite (see
                `Config.bad_numbers`), a sampler that runs another policy.
        """
        try:
            self._resume()
            self._write_manifest("running")
            self.began = time.monotonic()
            self._run()
        finally:
            if self.samplers is None:
                self.sampler.close()
            else:
                self.samplers.leave(self.sampler)

    def _run(self) -> None:
        """However it ends, the manifest says it; a kill alone leaves "running" there."""
        try:
            with self.loggers:
                self._saved_run()
        except Interrupted:
            raise
        except Exception as error:
            with suppress(UserError):  # what went wrong first is told
                self._write_manifest(f"stopped: {in_one_line(error)}")
            raise

    def _saved_run(self) -> None:
        try:
            self.sampler.verify(self.train_prompts)
            self._loop()
        except Interrupted:
            self._save()
            self._write_manifest("interrupted")
            raise
        self._write_manifest("finished")

    def _loop(self) -> None:
        config = self.config
        per_batch = config.loss.updates_per_rollout
        while True:
            last = self.step >= config.steps
            every = config.checkpoint.every
            saves = last or bool(every and self.step and self.step % every == 0)
            if self._evaluation_due():
                if saves:  # an evaluation is long, and may be killed
                    self._save()
                self._evaluate()
            if saves:
                self._save()
            if last:
                return
            self.stop.check()
            clock = Stopwatch()
            reset_peak(self.policy.device)
            if self.batch is None:
                self.batch = self._new_batch(self.step // per_batch, clock)
            self.sampler.rest()  # an evaluation may have woken it
            self._update(self.batch, clock)

    def _new_batch(self, index: int, clock: Stopwatch) -> Batch:
        config = self.config
        items = self.data.train.items
        order = question_order(index, config.rollout.questions, len(items), config.seed)
        questions = tuple(items[i] for i in order)
        prompts = tuple(self.train_prompts[i] for i in order)
        self.sampler.sync()
        clock.lap("sync")
        seed = derive_seed(config.seed, "rollout", index)
        samples = self.sampler.sample(prompts, config.rollout.responses, seed)
        clock.lap("sample")
        batch = Batch(index, questions, prompts, samples)
        batch = grade(batch, self.policy.tokenizer, self.verifier)
        clock.lap("grade")
        self.sampler.rest()
        batch = self.updater.freeze_old(batch)
        whole = bad_numbers.without(batch, bad_numbers.find(batch))
        if whole is not None:
            self._check_drift(metrics.mean_drift(whole))  # 0 with the sampler's own: see _update
        clock.lap("old")
        batch, self.refused = bad_numbers.value(batch, self.treatment)
        clock.lap("advantage")
        self.tokens += int(samples.lengths.sum())
        self.verdicts.update(reason for group in batch.reasons for reason in group)
        whole = bad_numbers.without(batch, bad_numbers.find(batch))
        if whole is not None:
            self.logs.append_batch(whole, self.step)
        return batch

    def _check_drift(self, drift: float | None) -> None:
        """Nothing must be learnt from the answers of another policy."""
        if drift is not None and not drift <= self.config.rollout.max_drift:
            raise UserError(
                f"at update {self.step + 1} sampler and trainer differ by {drift:.3f} nats a token "
                f"on average, more than rollout.max_drift = {self.config.rollout.max_drift}: the "
                "sampler runs other weights, another temperature or a coarser rounding (set "
                "rollout.engine to hf, or raise the bound if the rounding is meant)"
            )

    def _update(self, batch: Batch, clock: Stopwatch) -> None:
        per_batch = self.config.loss.updates_per_rollout
        size = self.config.rollout.questions // per_batch
        position = self.step % per_batch
        questions = slice(position * size, (position + 1) * size)
        clock.lap("rest")
        try:
            row = self._train(batch, questions, clock)
        except BadNumbers as error:
            self._skip(error, batch)
            row = {}
        self.step += 1
        row = {
            "step": self.step,
            **row,
            **{f"{phase}_seconds": clock.seconds.get(phase) for phase in metrics.PHASES},
            "peak_gb": peak_gb(self.policy.device),
            "seconds": self._seconds(),
        }
        self.logs.metrics.append([row])
        self.loggers.log(self.step, row)
        self.report(self.step, row)
        if self.step % per_batch == 0:
            self.batch = None

    def _train(self, batch: Batch, questions: slice, clock: Stopwatch) -> dict[str, Any]:
        """One update, and its metrics.

        Raises:
            BadNumbers: it was not made.
        """
        wanted = range(len(batch.questions))[questions]
        refused = {i: why for i, why in self.refused.items() if i in wanted}
        if faults := bad_numbers.find(batch, questions) | refused:
            raise BadNumbers(self.step + 1, batch, faults)
        # with the sampler's old log-probabilities the first update alone compares like with like
        before = range(batch.index * self.config.loss.updates_per_rollout, self.step)
        first = {step + 1 for step in before} <= set(self.skipped)
        compares = self.config.loss.old_logprobs == "sampler" and first

        def check(stats: UpdateStats) -> None:
            if compares:
                self._check_drift(stats.drift)

        stats = self.updater.step(batch, questions, self.step, check)
        took = clock.lap("update")
        drift: float | None = metrics.mean_drift(batch, questions)
        if self.config.loss.old_logprobs == "sampler":
            drift = stats.drift if compares else None
        tokens = int(batch.samples.lengths[questions].sum())
        sampled = clock.seconds.get("sample")
        graded = clock.seconds.get("grade")
        return {
            **metrics.group_metrics(batch, questions),
            "entropy": stats.entropy,
            "clip_fraction": stats.clip_fraction,
            "mean_ratio": stats.mean_ratio,
            "approx_kl": stats.approx_kl,
            "loss": stats.loss,
            "logprob_drift": drift,
            "grad_norm": stats.grad_norm,
            "lr": stats.lr,
            "adapter": self._adapter(),
            "tokens_per_second": tokens / clock.total(),
            "rollout_tokens_per_second": _rate(batch.samples.lengths.sum(), sampled),
            "grade_answers_per_second": _rate(batch.samples.lengths.numel(), graded),
            "update_tokens_per_second": tokens / took,
            "token_budget": stats.token_budget,
        }

    def _skip(self, error: BadNumbers, batch: Batch) -> None:
        """Leave an update out, or stop, as the configuration says."""
        where = bundle.write(self.folder.path, self.step + 1, batch, to_dict(self.config), error)
        self.skipped.append(self.step + 1)
        in_a_row = range(self.step + 2 - SKIPPED_IN_A_ROW, self.step + 2)
        if self.config.bad_numbers == "stop":
            raise UserError(
                f"{error}; {where}. To leave such updates out: bad_numbers: skip in "
                f"{self.folder.path / 'config.yaml'}, then --resume {self.folder.path}"
            ) from error
        if self.skipped[-SKIPPED_IN_A_ROW:] == list(in_a_row):
            raise UserError(
                f"{error}; it is the {SKIPPED_IN_A_ROW}rd update in a row that would be left out: "
                f"the run stops; {where}"
            ) from error
        log.warning("%s; the update is left out; %s", error, where)

    def _adapter(self) -> str | None:
        """What the next rollout batch must be sampled with."""
        if not has_adapter(self.policy):
            return None
        dtype = resolve_dtype(self.config.model, self.policy.device)
        return adapter_hash(adapter_tensors(self.policy, dtype))[:12]

    def _evaluation_due(self) -> bool:
        every = self.config.eval.every
        if not every or self.data.test is None:
            return False
        due = self.step % every == 0 or self.step >= self.config.steps
        return due and not self.logs.evaluated(self.step)

    def _evaluate(self) -> None:
        assert self.data.test is not None
        self.sampler.sync()
        found = evaluation.evaluate(
            self.sampler,
            self.policy.tokenizer,
            self.verifier,
            self.data.test.items,
            self.test_prompts,
            self.config.eval.n,
            derive_seed(self.config.seed, "eval", self.step),
            self.step,
        )
        self.verdicts.update(found.verdicts)
        self.logs.eval_counts.append(found.counts)
        self.logs.evals.append(found.rows)

    def _save(self) -> None:
        now = (self.step, self.logs.evaluated(self.step))
        if self.saved == now:  # a batch sampled since then would be sampled again
            return
        self.folder.sync()  # a checkpoint counts on the rows before it, power cut or not
        progress = Progress(
            step=self.step,
            tokens=self.tokens,
            seconds=self._seconds(),
            verdicts=dict(self.verdicts),
            skipped=self.skipped,
            evaluated=now[1],
            method=self.treatment.state,
            rows=self.logs.counts(self.step, self._sampled()),
            settings=to_dict(self.config),
            changes=self.changes,
        )
        checkpoint.save(
            self.checkpoints,
            self.step,
            self.policy,
            self.updater.optimizer,
            self.batch,
            progress.to_json(),
            self.config.checkpoint.keep,
        )
        self.saved = now

    def _sampled(self) -> int:
        """The last step at which a batch may have been sampled: the next one is sampled at `step`,
        and then in hand."""
        return self.step if self.batch is not None else self.step - 1

    def _resume(self) -> None:
        checkpoint.put_back(self.checkpoints)
        newest = checkpoint.latest(self.checkpoints)
        if newest is None:
            self.logs.begin()
            return
        before = self.folder.manifest()
        self._check_weights(before)
        state, self.batch = checkpoint.restore(newest, self.policy, self.updater.optimizer)
        now = Progress.from_json(state, newest)
        check_fits(now, self.batch, self.treatment.state, self.config, newest)
        self.step, self.saved = now.step, (now.step, now.evaluated)
        self.logs.go_on(now.step, self._sampled(), now.rows, now.evaluated)
        self.tokens, self.skipped, self.seconds_before = now.tokens, now.skipped, now.seconds
        self.verdicts, self.treatment.state = Counter(now.verdicts), now.method
        self._tell_changes(now, before)
        self.resumed(now.step)

    def _check_weights(self, before: dict[str, Any]) -> None:
        """An adapter fits one base: raises UserError where that was replaced. All weights, where
        they are trained, come from the checkpoint."""
        then, now = ((entry or {}) for entry in (before.get("policy"), policy_entry(self.policy)))
        if has_adapter(self.policy) and (what := other_weights(then, now)):
            raise UserError(
                f"{self.config.model.path} holds other weights than this run began with ({what}): "
                "put those back, or begin a new run"
            )

    def _tell_changes(self, now: Progress, before: dict[str, Any]) -> None:
        """Settings and questions may be changed while a run is stopped: that is told, and kept."""
        settings = to_dict(self.config)
        refuse_secrets(settings)
        if changes := changed(now.settings, settings):
            where = self.folder.path / "config.yaml"
            log.warning("%s was changed after update %d: %s", where, now.step, ", ".join(changes))
        for which, questions in (("train", self.data.train), ("test", self.data.test)):
            then = ((before.get("data") or {}).get(which) or {}).get("sha256")
            if then and questions is not None and then != questions.sha256:
                log.warning("data.%s holds other questions since update %d", which, now.step)
                changes.append(f"data.{which} sha256 {then[:12]} → {questions.sha256[:12]}")
        self.changes = now.changes
        if changes:
            self.changes = [*now.changes, {"step": now.step, "changed": changes}]

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.began

    def _write_manifest(self, status: str) -> None:
        self.folder.write_manifest(
            status=status,
            step=self.step,
            wall_seconds=round(self._seconds(), 3),
            tokens=self.tokens,
            verifier=dict(sorted(self.verdicts.items())),
            skipped_updates=self.skipped,
            changed_settings=self.changes,
            **describe(self.config, self.policy, self.sampler, self.data.train, self.data.test),
        )


def _rate(count: Any, seconds: float | None) -> float | None:
    return None if seconds is None else int(count) / seconds
