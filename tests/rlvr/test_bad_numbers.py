"""A number that is not finite, or impossible, stops or skips its update: it is named, its batch is
kept for whoever looks into it, and nothing is learnt from it."""

from __future__ import annotations

import csv
import json
import logging
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from lens_ref import methods
from lens_ref.core import Rollouts, Signal, calibrated_reward
from lens_ref.methods.treatment import Treatment
from lens_ref.rlvr import bad_numbers, bundle, checkpoint
from lens_ref.rlvr.bad_numbers import BadNumbers
from lens_ref.rlvr.batch import Batch
from lens_ref.rlvr.config import to_dict
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.run_folder import RunFolder
from tests.rlvr import runs, spoil
from tests.rlvr.helpers import hand_batch, load_tiny, signal, tiny_updater
from tests.rlvr.runs import Killed, assert_same_run, kill_after
from tests.rlvr.spoil import CASES, PLACES, STEP

FIRST = [(place, values[0]) for place, (_, values, _) in PLACES.items()]


def rows_of(path: Path) -> list[dict[str, str]]:
    with (path / "metrics.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def weights(made: Any) -> dict[str, torch.Tensor]:
    policy, optimizer = made.policy, made.updater.optimizer
    found = {name: p.detach().clone() for name, p in policy.trainable().items()}
    for name, p in policy.trainable().items():
        found |= {f"{name}/{k}": v.clone() for k, v in optimizer.state.get(p, {}).items()}
    return found


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- stop -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "value"),
    [case if case in FIRST else pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
)
def test_it_stops_the_run_and_is_named(place: str, value: float, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, spoil.config())
    states = []
    made = spoil.trainer(
        folder, place, value, report=lambda step, row: states.append(weights(made))
    )
    with pytest.raises(UserError) as caught:
        made.run()
    text = str(caught.value)
    name = made.data.train.items[spoil.target(made.config)].id
    assert text.startswith(f"update {STEP}: question {name!r}: ")
    assert PLACES[place][2] in text
    assert "\n" not in text
    assert "bad_numbers: skip" in text
    assert len(states) == len(rows_of(folder.path)) == STEP - 1
    assert same(weights(made), states[-1])
    kept = folder.path / "debug" / f"step-{STEP}"
    assert str(kept) in text
    fault = json.loads((kept / "fault.json").read_text(encoding="utf-8"))
    assert list(fault["questions"]) == [name]
    assert fault["message"] in text


def test_the_bundle_holds_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "hunter2-in-the-environment")
    folder = RunFolder.create(tmp_path, spoil.config())
    with pytest.raises(UserError):
        spoil.trainer(folder, "old", math.nan).run()
    kept = folder.path / "debug" / f"step-{STEP}"
    names = sorted(path.name for path in kept.iterdir())
    assert names == ["batch.json", "batch.safetensors", "config.yaml", "fault.json"]
    tensors = load_file(kept / "batch.safetensors")
    assert {name: tuple(x.shape[:2]) for name, x in tensors.items()} == dict.fromkeys(
        (
            *("ids", "lengths", "truncated", "sampler_logprobs", "rewards"),
            *("old_logprobs", "entropy", "advantages", "keep"),
        ),
        (16, 4),
    )
    assert tensors["old_logprobs"][5, 1, 0].isnan()
    assert tensors["old_logprobs"].isnan().sum() == 1
    text = json.loads((kept / "batch.json").read_text(encoding="utf-8"))
    assert [len(group) for group in text["texts"]] == [4] * 16
    assert len(text["prompts"]) == len({q["id"] for q in text["questions"]}) == 16
    assert yaml.safe_load((kept / "config.yaml").read_text()) == to_dict(folder.config())
    assert not any(b"hunter2" in path.read_bytes() for path in kept.iterdir())


def test_a_bundle_that_cannot_be_written_hides_nothing(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, spoil.config())
    (folder.path / "debug").write_text("a file in the way")
    with pytest.raises(
        UserError, match=r"the reward of answer 1 .* no debug bundle, .* Not a directory"
    ):
        spoil.trainer(folder, "reward", math.nan).run()


def test_the_newest_bundles_are_kept(tmp_path: Path) -> None:
    batch = hand_batch([[0.0, 1.0]], [[2, 2]])
    for update in range(1, bundle.KEPT + 3):
        bundle.write(tmp_path, update, batch, {}, BadNumbers(update, batch, {0: "bad"}))
    kept = {path.name for path in (tmp_path / "debug").iterdir()}
    assert kept == {f"step-{n}" for n in range(3, bundle.KEPT + 3)}


def test_many_questions_are_a_short_line() -> None:
    batch = hand_batch([[0.0, 1.0]] * 9, [[2, 2]] * 9)
    few = str(BadNumbers(3, batch, {4: "x is nan", 1: "y is nan"}))
    assert (
        few == "update 3: question 'q1': y is nan (so it is with 'q4'); the weights are unchanged"
    )
    assert "(so it is with 'q1', 'q2' and 6 more)" in str(
        BadNumbers(3, batch, dict.fromkeys(range(9), "x is nan"))
    )


# --- skip -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "value"),
    [p if p[0] == "old" else pytest.param(*p, marks=pytest.mark.slow) for p in FIRST],
)
def test_it_is_left_out_counted_and_resumed(
    place: str, value: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And killed after the update that was left out, or just before its batch: the same run."""
    config = spoil.config(bad_numbers="skip")
    whole = RunFolder.create(tmp_path / "whole", config)
    states = []
    made = spoil.trainer(whole, place, value, report=lambda step, row: states.append(weights(made)))
    with caplog.at_level(logging.WARNING, "lens_ref"):
        made.run()
    (warning,) = [r.getMessage() for r in caplog.records if "is left out" in r.getMessage()]
    assert warning.startswith(f"update {STEP}: question ")
    assert whole.manifest()["skipped_updates"] == [STEP]
    rows = rows_of(whole.path)
    assert [row["step"] for row in rows] == [str(n) for n in range(1, 9)]
    assert [row["grad_norm"] == "" for row in rows] == [n == STEP for n in range(1, 9)]
    assert [same(a, b) for a, b in pairwise(states)] == [n == STEP for n in range(2, 9)]
    for step in (5, 7):
        pieces = RunFolder.create(tmp_path / f"pieces-{step}", config)
        with pytest.raises(Killed):
            spoil.trainer(pieces, place, value, report=kill_after(step)).run()
        newest = checkpoint.latest(pieces.path / "checkpoints")
        assert newest is not None
        assert newest.name == f"step-{step - 1}"
        spoil.trainer(pieces, place, value).run()
        assert_same_run(pieces.path, whole.path)
        assert pieces.manifest()["skipped_updates"] == [STEP]


def test_a_run_that_does_not_recover_is_stopped(tmp_path: Path) -> None:
    """A policy that has blown up: its answers' probabilities are NaN for good."""
    folder = RunFolder.create(tmp_path, spoil.config(bad_numbers="skip"))

    def blow_up(step: int, row: dict[str, Any]) -> None:
        if step == 4:
            made.policy.model.model.norm.weight.data[0] = math.nan

    made = runs.trainer(folder, report=blow_up)
    with pytest.raises(UserError, match=r"update 7: .* 3rd update in a row .* the run stops"):
        made.run()
    assert [row["grad_norm"] == "" for row in rows_of(folder.path)] == [False] * 4 + [True] * 2
    groups = (folder.path / "groups.csv").read_text().splitlines()
    assert len(groups) == 1 + 16  # of the first batch alone


def test_a_bad_question_has_no_row_and_its_batch_has_the_others(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, spoil.config(bad_numbers="skip"))
    made = spoil.trainer(folder, "reward", math.nan)
    made.run()
    name = made.data.train.items[spoil.target(made.config)].id
    assert not any("nan" in row.values() for row in rows_of(folder.path))
    second = [line.split(",") for line in (folder.path / "groups.csv").read_text().splitlines()]
    second = [row for row in second if row[0] == "4"]
    assert len(second) == 15
    assert name not in {row[1] for row in second}
    samples = (folder.path / "samples.jsonl").read_text().splitlines()
    assert all(json.loads(line, parse_constant=pytest.fail)["step"] in (0, 4) for line in samples)


# --- what counts as bad ---------------------------------------------------------------------------


def valued(rewards: list[list[float]], **more: Any) -> Batch:
    batch = hand_batch(rewards, [[2, 3]] * len(rewards), **more)
    return replace(batch, signal=signal(batch, "grpo"))


def test_a_whole_batch_has_none() -> None:
    batch = valued([[0.0, 1.0], [0.0, 0.0]])
    batch.samples.logprobs[:, 0, 2] = math.nan  # behind the end of an answer
    batch.old_logprobs[:, 0, 2] = math.inf
    assert bad_numbers.find(batch) == {}


def test_what_the_sampler_did_not_tell_is_none() -> None:
    """A NaN counts where the sampler was asked."""
    batch = valued([[0.0, 1.0], [0.0, 0.0]])
    scored = torch.tensor([[True, False]] * 2)
    batch = replace(batch, samples=replace(batch.samples, scored=scored))
    batch.samples.logprobs[:, 1] = math.nan
    assert bad_numbers.find(batch) == {}
    batch.samples.logprobs[1, 0, 1] = math.nan
    assert bad_numbers.find(batch) == {
        1: "the sampler's log-probability of answer 0, token 1 (from 0) is nan"
    }
    kept = bad_numbers.without(batch, [1])
    assert kept is not None
    assert kept.samples.scored is not None
    assert kept.samples.scored.tolist() == [[True, False]]


def test_only_the_asked_questions_are_looked_at() -> None:
    batch = valued([[0.0, 1.0]] * 4)
    batch.old_logprobs[2, 1, 2] = -math.inf
    found = {2: "the old log-probability of answer 1, token 2 (from 0) is -inf"}
    assert bad_numbers.find(batch, slice(1, 3)) == bad_numbers.find(batch) == found
    assert bad_numbers.find(batch, slice(0, 2)) == {}


def test_a_row_that_is_left_out_needs_no_advantage() -> None:
    batch = valued([[0.0, 1.0]])
    batch.signal.advantages[0, 1] = math.nan
    assert bad_numbers.find(batch).keys() == {0}
    batch.signal.keep[0, 1] = False
    assert bad_numbers.find(batch) == {}


@pytest.mark.parametrize(
    ("logprob", "kept"), [(-0.1, -0.1), (0.0, 0.0), (2**-4, 0.0), (0.07, 0.07), (1.0, 1.0)]
)
def test_rounding_above_zero_is_zero_and_more_is_a_fault(
    logprob: float, kept: float, batch: Batch
) -> None:
    """A probability slightly above 1 comes of rounding; π = e^0.07 does not."""
    numbers = torch.tensor([logprob])
    assert bad_numbers.without_rounding(numbers).tolist() == pytest.approx([kept])
    batch = replace(batch, samples=replace(batch.samples, logprobs=batch.samples.logprobs.clone()))
    batch.samples.logprobs[0, 0, 0] = logprob
    frozen = tiny_updater(load_tiny(), old_logprobs="sampler").freeze_old(batch)
    assert float(frozen.old_logprobs[0, 0, 0]) == pytest.approx(kept)
    assert (bad_numbers.find(frozen).keys() == {0}) is (kept > 0)
    if kept <= 0:
        bad_numbers.value(frozen, Treatment("lens"))


# --- the others' advantages -----------------------------------------------------------------------

REWARDS = [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("method", methods.names())
def test_a_bad_question_has_no_say_in_the_others(method: str) -> None:
    """Whatever it holds, the others' advantages are the same, and so is what is remembered."""

    def found(number: float) -> tuple[torch.Tensor, Any]:
        batch = hand_batch(REWARDS, [[2, 3]] * 4, token_logprob=[[-0.5, -1.5]] * 4)
        batch = replace(batch, entropy=torch.full_like(batch.old_logprobs, 0.3))
        batch.old_logprobs[2] = number
        treatment = Treatment(method)
        result, refused = bad_numbers.value(batch, treatment)
        assert not refused
        assert bad_numbers.find(result).keys() == {2}
        assert result.signal is not None
        others = result.signal.advantages[[0, 1, 3]]
        assert others.isfinite().all()
        return others, treatment.state

    one, state = found(math.nan)
    other, again = found(math.inf)
    assert torch.equal(one, other)
    assert state == again


def test_a_refused_question_is_found_again() -> None:
    """A method that has no advantage for one question (π ≥ D there) still has the others'."""

    class Picky(Treatment):
        def __call__(self, rollouts: Any, questions: Any, learn: bool = True) -> Any:
            if "q2" in questions and bool(rollouts.valid_rows()[list(questions).index("q2")].any()):
                confidence = torch.tensor([-0.5, -0.4])
                calibrated_reward(torch.zeros(2), confidence, torch.tensor(-0.4))
            return super().__call__(rollouts, questions, learn)

    batch = hand_batch(REWARDS, [[2, 3]] * 4)
    result, refused = bad_numbers.value(batch, Picky("lens"))
    assert refused.keys() == {2}
    assert "pi >= D on a response with r < 1" in refused[2]
    assert bad_numbers.find(result) == {2: "the advantage of answer 0 (from 0) is nan"}
    whole, _ = bad_numbers.value(batch, Treatment("lens"))
    others = [0, 1, 3]
    assert torch.equal(result.signal.advantages[others], whole.signal.advantages[others])


def test_nothing_of_a_batch_without_a_good_question_is_valued() -> None:
    batch = hand_batch(REWARDS, [[2, 3]] * 4, token_logprob=math.nan)
    treatment = Treatment("lens_pooled")
    result, _ = bad_numbers.value(batch, treatment)
    assert bad_numbers.find(result).keys() == {0, 1, 2, 3}
    assert treatment.state == Treatment("lens_pooled").state


def test_a_method_that_blows_up_remembers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    treatment = Treatment("lens_pooled")
    before = treatment.state
    real = bad_numbers._advantages

    def spoilt(*arguments: Any) -> Any:
        result = real(*arguments)
        result.advantages[1, 0] = math.inf
        return result

    batch = hand_batch(REWARDS, [[2, 3]] * 4)
    bad_numbers.value(batch, treatment)
    assert treatment.state != before
    treatment.state = before
    monkeypatch.setattr(bad_numbers, "_advantages", spoilt)
    result, _ = bad_numbers.value(batch, treatment)
    assert bad_numbers.find(result) == {1: "the advantage of answer 0 (from 0) is inf"}
    assert treatment.state == before


@pytest.mark.parametrize(("threads", "used"), [(2, 2), (6, 4)])
def test_advantages_are_computed_by_few_threads(threads: int, used: int) -> None:
    """Their number is as before afterwards, refused or not."""
    seen = list[int]()

    class Watched(Treatment):
        def __call__(self, rollouts: Rollouts, *rest: Any) -> Signal:
            seen.append(torch.get_num_threads())
            if len(seen) == 2:
                raise RuntimeError
            return super().__call__(rollouts, *rest)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        batch = hand_batch(REWARDS, [[2, 3]] * 4)
        bad_numbers.value(batch, Watched("lens"))
        assert torch.get_num_threads() == threads
        with pytest.raises(RuntimeError):
            bad_numbers.value(batch, Watched("lens"))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert seen == [used, used]


# --- sampler and trainer --------------------------------------------------------------------------


def test_an_update_left_out_does_not_hide_a_drift(tmp_path: Path) -> None:
    """With the sampler's old log-probabilities the first update that is made compares them."""
    config = spoil.config(
        bad_numbers="skip", loss__old_logprobs="sampler", rollout__max_drift=1e-9, steps=2
    )
    folder = RunFolder.create(tmp_path, config)
    made = runs.trainer(folder)
    sample = made.sampler.sample

    def spoilt(*arguments: Any) -> Any:
        samples = sample(*arguments)
        samples.logprobs[0, 0, 0] = math.nan
        return samples

    made.sampler.sample = spoilt
    with pytest.raises(UserError, match="at update 2 sampler and trainer differ"):
        made.run()
