"""The estimator `lens` and the trainer `lens_sync` inside verl, on synthetic batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("verl", reason="verl is not installed: `make test-verl` has it")

from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.v1 import PPOTrainerSync, get_trainer_cls
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.utils.config import omega_conf_to_dataclass

from lens_ref import LensConfig, Rollouts, grpo_loss, lens_advantages, methods
from lens_ref.engines import verl_settings
from lens_ref.engines.state import STATE_FILE
from lens_ref.engines.verl import STEP, LensTrainer, Step, one_response_a_session
from tests.engines.verl_helpers import RECIPES, REWARDS, Queue, batch, config, dispatch, trainer

pytestmark = pytest.mark.verl

EXACT = {"rtol": 0, "atol": 1e-6}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    return Queue(monkeypatch)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("preset", LensConfig.presets())
def test_verls_dispatcher_gives_the_advantages_of_lens(preset: str, seed: int) -> None:
    rows = batch(seed)
    found = dispatch(rows, preset=preset)
    assert found.dtype == torch.float32
    expected = torch.zeros_like(found).double()
    for members in rows.groups().values():  # each question alone: no batch, no padding
        responses = [rows.responses[row] for row in members]
        alone = Rollouts(
            rewards=torch.tensor([[r.reward for r in responses]]).double(),
            logprobs=torch.stack([r.logprobs.double().sum() for r in responses])[None],
            lengths=torch.tensor([[len(r.logprobs) for r in responses]]),
        )
        signal = lens_advantages(alone, LensConfig.preset(preset))
        for row, advantage in zip(members, signal.advantages[0], strict=True):
            expected[row, : len(rows.responses[row].mask)] = advantage
    torch.testing.assert_close(found.double(), expected, **EXACT)


def test_negative_groups_have_a_signal_and_correct_ones_none() -> None:
    rows = batch()
    found = dispatch(rows)
    totals = {question: torch.zeros(()) for question in REWARDS}
    for row, response in enumerate(rows.responses):
        if response.question:
            totals[response.question] += found[row].abs().sum()
    assert totals["never"] > 0
    assert totals["never, ragged"] > 0
    assert totals["always"] == 0


STATELESS = [name for name in methods.names() if not methods.spec(name).stateful]
STATEFUL = [name for name in methods.names() if methods.spec(name).stateful]


@pytest.mark.parametrize("name", STATELESS)
def test_every_method_without_state_gives_its_own_advantages(name: str) -> None:
    rows = batch(1)
    rollouts, cells, _ = rows.rollouts()
    signal = methods.get(name)(rollouts)
    kept = int(signal.keep.sum()) / int(rollouts.valid_rows().sum())
    expected = rows.by_row(cells, signal.advantages.double()) / kept
    torch.testing.assert_close(dispatch(rows, method=name).double(), expected, **EXACT)


@pytest.mark.parametrize("name", STATEFUL)
def test_a_method_with_state_remembers_questions_over_batches(name: str, queue: Queue) -> None:
    run = trainer("method@algorithm.lens=grpo", f"algorithm.lens.method={name}")
    spec = methods.spec(name)
    state = spec.init_state()
    for seed in range(3):  # uids differ from batch to batch, questions don't
        rows = batch(seed)
        run._compute_advantage(queue.hold(rows), {})
        rollouts, cells, questions = rows.rollouts()
        rollouts = replace(rollouts, prior=spec.prior(state, questions))
        hyperparameters = spec.state_hyperparameters(state, rollouts.rewards.shape[-1])
        signal = methods.get(name, **hyperparameters)(rollouts)
        expected = rows.by_row(cells, signal.advantages.double())
        torch.testing.assert_close(queue.padded("advantages").double(), expected, **EXACT)
        state = spec.update(state, rollouts, questions)


def test_verls_trainer_writes_the_advantages_and_reports_the_groups(queue: Queue) -> None:
    run = trainer()
    rows = batch(2)
    metrics: dict[str, float] = {}
    run._compute_advantage(queue.hold(rows), metrics)
    rollouts, cells, _ = rows.rollouts()
    expected = rows.by_row(cells, lens_advantages(rollouts).advantages)
    torch.testing.assert_close(queue.padded("advantages").double(), expected, **EXACT)
    torch.testing.assert_close(queue.padded("returns"), queue.padded("advantages"))
    assert metrics["lens_ref/negative_share"] == 2 / 5
    assert metrics["lens_ref/mixed_share"] == 2 / 5
    assert metrics["lens_ref/correct_share"] == 1 / 5
    assert metrics["lens_ref/kept_share"] == 1
    assert 0 < metrics["lens_ref/neg_to_mixed_rms"] < 0.1
    assert "rollout_corr/kl" in metrics  # verl's own are still there


def test_the_log_probabilities_are_those_of_the_loss(queue: Queue) -> None:
    """`old_log_probs`, which verl fills from the rollout engine in bypass mode."""
    run, rows = trainer(), batch()
    meta = queue.hold(rows)
    del queue.columns["rollout_log_probs"]
    run._compute_advantage(meta, {})
    plain = queue.padded("advantages")
    queue.hold(rows)
    queue.columns["old_log_probs"] = queue.columns["old_log_probs"] * 2
    run._compute_advantage(meta, {})
    assert not torch.allclose(queue.padded("advantages"), plain)


def test_token_advantages_use_verls_entropies(queue: Queue) -> None:
    run = trainer("method@algorithm.lens=grpo", "algorithm.lens.method=rl_zvp")
    rows = batch(3)
    run._compute_advantage(queue.hold(rows), {})
    rollouts, cells, _ = rows.rollouts()
    expected = rows.by_row(cells, methods.get("rl_zvp")(rollouts).advantages.double())
    torch.testing.assert_close(queue.padded("advantages").double(), expected, **EXACT)


@pytest.mark.parametrize("rule", ["mask", "exclude_from_max"])
def test_truncated_responses_are_those_at_the_length_limit(rule: str, queue: Queue) -> None:
    run = trainer(f"+algorithm.lens.truncated={rule}", "data.max_response_length=9")
    rows = batch(5)
    metrics: dict[str, float] = {}
    run._compute_advantage(queue.hold(rows), metrics)
    rollouts, cells, _ = rows.rollouts()
    assert rollouts.truncated is not None
    truncated = int(rollouts.truncated.sum())
    assert truncated >= 1
    signal = lens_advantages(rollouts, LensConfig(truncated=rule))
    scale = 17 / int(signal.keep.sum())  # verl's denominator counts all rows
    expected = rows.by_row(cells, signal.advantages) * scale
    torch.testing.assert_close(queue.padded("advantages").double(), expected, **EXACT)
    assert metrics["lens_ref/truncated_share"] == truncated / 17


AGGREGATIONS = {"seq-mean-token-mean": "sequence_mean", "token-mean": "token_mean"}


@pytest.mark.parametrize("mode", AGGREGATIONS)
@pytest.mark.parametrize("name", ["lens", "psr", "nsr", "dapo", "rl_zvp"])
def test_verls_loss_of_the_advantages_is_this_projects_loss(name: str, mode: str) -> None:
    """Value and gradient, where rows are left out of the denominator too."""
    rows = batch(4, padding=0)
    old, mask = rows.padded("logprobs").nan_to_num(0.0).double(), rows.mask()
    generator = torch.Generator().manual_seed(0)
    noise = (0.4 * torch.randn(old.shape, generator=generator).double()).clamp(-1, 1)  # ratio < 3
    new = (old + noise).requires_grad_()

    actor = omega_conf_to_dataclass(config().actor_rollout_ref.actor)
    actor.global_batch_info.update(
        dp_size=1, batch_num_tokens=int(mask.sum()), global_batch_size=len(mask)
    )
    found = dispatch(rows, loss_agg_mode=mode, method=name).double()
    loss, _ = compute_policy_loss_vanilla(old, new, found, mask, mode, actor)
    (gradient,) = torch.autograd.grad(loss, new)

    rollouts, cells, _ = rows.rollouts()
    signal = methods.get(name)(rollouts)
    advantages = rows.by_row(cells, signal.advantages.double())
    keep = rows.by_row(cells, signal.keep.double()).bool()
    expected = grpo_loss(new, old, advantages, keep, aggregation=AGGREGATIONS[mode]).loss
    torch.testing.assert_close(loss, expected, **EXACT)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, new)[0], **EXACT)


@pytest.mark.parametrize(("mode", "scale"), [("seq-mean-token-sum-norm", 17 / 7), ("token-sum", 1)])
def test_sums_over_tokens_count_rows_or_nothing(mode: str, scale: float) -> None:
    """psr keeps the 7 right answers of 17, each at advantage 1."""
    found = dispatch(batch(4), loss_agg_mode=mode, method="psr")
    assert sorted(found.unique().tolist()) == pytest.approx([0.0, scale])


def test_rejected_rows_leave_their_group() -> None:
    """verl's rejection empties the mask that the estimator gets, not the one of the responses."""
    rows = batch()
    victim = next(i for i, r in enumerate(rows.responses) if r.question == "never")
    data = rows.proto()
    data.batch["response_mask"][victim] = 0
    treatment, _ = verl_settings.treatment({})
    token = STEP.set(Step(treatment, rows.rows(), "seq-mean-token-mean"))
    try:
        found = compute_advantage(data, adv_estimator="lens").batch["advantages"]
    finally:
        STEP.reset(token)
    del rows.responses[victim]
    others = [i for i in range(len(found)) if i != victim]
    assert found[victim].abs().max() == 0
    torch.testing.assert_close(found[others, : rows.mask().shape[1]], dispatch(rows), **EXACT)


def test_verls_own_dispatch_without_the_trainer_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"trainer\.v1\.trainer_mode=lens_sync"):
        compute_advantage(batch().proto(), adv_estimator="lens", config=OmegaConf.create({}))


@pytest.mark.parametrize("reward", [-1.0, 1.5])
def test_rewards_outside_the_unit_interval_are_refused(reward: float) -> None:
    rows = batch()
    rows.responses[2].reward = reward
    with pytest.raises(ValueError, match=f"response 2 .* is {reward:g}, outside .*verl_reward"):
        dispatch(rows)


def test_a_float32_reward_that_is_almost_one_is_one() -> None:
    rows = batch()
    for response in rows.responses:
        if response.question == "always":
            response.reward = 1 - 6e-8
    torch.testing.assert_close(dispatch(rows), dispatch(batch()), rtol=0, atol=0)


def test_several_outputs_of_one_session_are_refused() -> None:
    one_response_a_session(["a_0_0", "a_1_0"])
    with pytest.raises(ValueError, match="session a_1 has several outputs"):
        one_response_a_session(["a_0_0", "a_1_0", "a_1_1"])


def test_the_trainer_is_verls_synchronous_one() -> None:
    """verl picks the asynchronous buffers for every mode whose name isn't "sync"."""
    assert get_trainer_cls("lens_sync") is LensTrainer
    run = trainer()
    assert isinstance(run, PPOTrainerSync)
    assert type(run.replay_buffer) is ReplayBuffer
    assert run.trainer_mode == "sync"


def test_the_log_says_that_it_is_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="verl.lens_ref"):
        trainer("+algorithm.lens.alpha=0.5")
        trainer("algorithm.rollout_correction.bypass_mode=True")
    first, second = (record.getMessage() for record in caplog.records)
    assert first == (
        "lens_ref is on: method lens(alpha=0.5), groups by uid, log-probabilities of the training "
        "engine"
    )
    assert second.endswith("log-probabilities of the rollout engine")


@pytest.mark.parametrize("mode", ["auto", "resume_path"])
def test_the_state_is_in_the_checkpoint(
    mode: str, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "global_step_7"
    settings = [
        "method@algorithm.lens=grpo",
        "algorithm.lens.method=spo",
        f"trainer.default_local_dir={tmp_path}",
        f"trainer.resume_mode={mode}",
        f"trainer.resume_from_path={folder}",
    ]
    there: list[bool] = []
    monkeypatch.setattr(
        PPOTrainerSync,
        "_save_checkpoint",
        lambda self: there.append((folder / STATE_FILE).exists()),
    )
    monkeypatch.setattr(
        PPOTrainerSync, "_load_checkpoint", lambda self: setattr(self, "global_steps", 7)
    )
    run = trainer(*settings)
    run._compute_advantage(queue.hold(batch()), {})
    run.global_steps = 7
    run._save_checkpoint()
    assert there == [True]  # before verl says that this checkpoint is the newest

    resumed = trainer(*settings)
    resumed._load_checkpoint()
    assert resumed.treatment.state == run.treatment.state
    assert len(resumed.treatment.state["questions"]) == 5

    saved = json.loads((folder / STATE_FILE).read_text())
    (folder / STATE_FILE).write_text(json.dumps({**saved, "method": "ebpo"}))
    with pytest.raises(ValueError, match="ebpo wrote this checkpoint and spo can't go on with it"):
        resumed._load_checkpoint()
    (folder / STATE_FILE).unlink()
    with pytest.raises(ValueError, match=f"holds no {STATE_FILE}"):
        resumed._load_checkpoint()


def test_the_baseline_does_not_go_on_with_the_methods_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would load them, find its last step done and report their scores as its own."""
    for name, step in (("_save_checkpoint", 9), ("_load_checkpoint", 7)):
        monkeypatch.setattr(
            PPOTrainerSync, name, lambda self, step=step: setattr(self, "global_steps", step)
        )
    folder = f"trainer.default_local_dir={tmp_path}"
    run = trainer(folder)
    run.global_steps = 7
    run._save_checkpoint()
    trainer(folder)._load_checkpoint()
    grpo = trainer(folder, "method@algorithm.lens=grpo")
    with pytest.raises(ValueError, match=r"lens wrote this checkpoint and grpo .* own, or remove"):
        grpo._load_checkpoint()
    louder = trainer(folder, "+algorithm.lens.guard=3")
    with pytest.raises(ValueError, match=r"and lens\(guard=3\) can't go on with it"):
        louder._load_checkpoint()
    (tmp_path / "global_step_7" / STATE_FILE).unlink()
    grpo._load_checkpoint()  # meant


def test_a_fresh_start_needs_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        PPOTrainerSync, "_load_checkpoint", lambda self: setattr(self, "global_steps", 0)
    )
    run = trainer("method@algorithm.lens=grpo", "algorithm.lens.method=ebpo")
    run._load_checkpoint()
    assert run.treatment.state["groups"] == 0


def test_verl_loads_the_module_by_itself() -> None:
    code = (
        "import verl\n"
        "from verl.trainer.ppo.core_algos import get_adv_estimator_fn\n"
        "from verl.trainer.ppo.v1 import get_trainer_cls\n"
        "print(get_adv_estimator_fn('lens').__module__, get_trainer_cls('lens_sync').__module__)\n"
    )
    module = "lens_ref.engines.verl"
    environment = {**os.environ, "VERL_USE_EXTERNAL_MODULES": module, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[-2:] == [module, module]
    assert (RECIPES / "paper.yaml").read_text().count(module + "\n") == 1
