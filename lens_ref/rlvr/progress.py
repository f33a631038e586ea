"""How far a run has come: what its checkpoint says beside weights, moments and the batch in hand,
and whether a run can go on from that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.config import Config, flat, to_dict
from lens_ref.rlvr.data_config import Unsigned
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.files import damaged
from lens_ref.rlvr.untrusted import printable, redacted

LONGEST_VALUE = 60  # characters of a setting that are shown


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Progress:
    """`state.json` of a checkpoint."""

    step: Unsigned  # updates done
    tokens: Unsigned  # sampled for training
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # wall time
    verdicts: dict[str, Unsigned]  # answers by reason, evaluations included
    skipped: list[Unsigned]  # updates that were not made, for a bad number
    evaluated: bool  # at this step
    method: dict[str, Any] | None  # what the method remembers
    rows: dict[str, Unsigned]  # of the logs, see `Logs.counts`
    settings: dict[str, Any]  # `to_dict` of the configuration
    changes: list[dict[str, Any]]  # what was changed in the settings, at earlier resumptions

    def to_json(self) -> dict[str, Any]:
        """For `from_json`."""
        return asdict(self)

    @staticmethod
    def from_json(state: Mapping[str, Any], path: Path) -> Progress:
        """What a checkpoint says.

        Raises:
            UserError: it is not what a run writes.
        """
        try:
            return Progress(**state)
        except ValidationError as error:
            first = error.errors()[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise damaged(path / "state.json", why, _without(path)) from None


def _without(path: Path) -> str:
    return f"move {path} away, and the checkpoint before it is used"


def check_fits(
    progress: Progress, batch: Batch | None, method: Mapping[str, Any] | None, config: Config,
    path: Path,
) -> None:  # fmt: skip
    """Whether a run with these settings can go on from a checkpoint.

    Args:
        batch: in hand at the checkpoint.
        method: what the run's method remembers at first.
        path: the checkpoint.

    Raises:
        UserError: it can't; says which setting to undo.
    """
    per_batch, size = config.loss.updates_per_rollout, config.rollout.questions
    undo = f"undo that change in config.yaml, or {_without(path)}"
    if progress.step > config.steps:
        raise UserError(
            f"{path} is beyond the end of the run: set steps = {config.steps} in config.yaml to "
            f"{progress.step} or more, or {_without(path)}"
        )
    as_before = not changed(progress.settings, to_dict(config))
    if batch is None and as_before and progress.step % per_batch:
        raise damaged(path, "the batch in hand is missing", _without(path))
    if batch is not None:
        updates = range(batch.index * per_batch, (batch.index + 1) * per_batch)
        if progress.step not in updates or len(batch.questions) != size:
            if as_before:
                why = f"batch {batch.index} of {len(batch.questions)} questions is not in hand then"
                raise damaged(path / "batch.json", why, _without(path))
            raise UserError(
                f"{path} holds a batch of other settings than rollout.questions = {size} and "
                f"loss.updates_per_rollout = {per_batch}: {undo}"
            )
        correction = config.loss.sampler_correction
        if batch.samples.scored is not None and correction != "none":
            raise UserError(
                f"{path} holds a batch with the sampler's log-probabilities of some answers alone, "
                f"and loss.sampler_correction = {correction} needs all of them: {undo}"
            )
    remembered = progress.method
    if (remembered or {}).keys() != (method or {}).keys():
        raise UserError(f"{path} was saved by another method than {config.method}: {undo}")


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The settings that differ, as `optimizer.lr 0.001 → 0.5`, printable and without secrets."""
    old, new = flat(before), flat(now)
    return [
        f"{key} {_shown(old.get(key))} → {_shown(new.get(key))}"
        for key in {**old, **new}
        if old.get(key) != new.get(key)
    ]


def _shown(value: Any) -> str:
    text = printable(redacted(json.dumps(value, ensure_ascii=False)), keep="")
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
