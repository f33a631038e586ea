"""`LensGRPOTrainer` on a tiny policy: the real trainer of TRL, on a CPU."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

pytest.importorskip("trl", reason="TRL is not installed: `make test-trl` has an environment of it")

from peft import LoraConfig
from torch import Tensor
from trl import GRPOTrainer

from lens_ref import LensConfig, Signal, grpo_loss, lens_advantages, methods
from lens_ref.engines.trl import LensGRPOTrainer, group_numbers, question_id
from lens_ref.methods.treatment import Treatment
from tests.engines.trl_helpers import (
    GROUP,
    Recorder,
    grade,
    grouped,
    policy,
    questions,
    settings,
    trainer,
)

pytestmark = pytest.mark.trl

LORA = LoraConfig(r=2, target_modules="all-linear")
EXACT = {"rtol": 0, "atol": 1e-6}


def agrees(batch: dict[str, Tensor], signal: Signal) -> None:
    """The advantages of a batch are those of the signal, row by row, to 1e-6."""
    expected = signal.advantages.flatten(0, 1).to(batch["advantages"])
    torch.testing.assert_close(batch["advantages"], expected, **EXACT)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    """A trainer whose method is changed from test to test; no step is taken."""
    run = trainer(tmp_path_factory.mktemp("ready"))
    run.model.train()
    return run


def sample(run: Recorder, seed: int = 0) -> dict[str, Tensor]:
    """One batch of responses to four questions."""
    torch.manual_seed(seed)
    rows = [row for row in questions(4) for _ in range(GROUP)]
    run._generate_and_score_completions(rows)
    return run.batches[-1]


@pytest.mark.parametrize("peft_config", [None, LORA], ids=["full", "lora"])
def test_advantages_are_those_of_lens(tmp_path: Path, peft_config: LoraConfig | None) -> None:
    run = trainer(tmp_path, peft_config=peft_config)
    before = [p.detach().clone() for p in run.model.parameters() if p.requires_grad]
    run.train()
    assert len(run.batches) == 2
    for batch in run.batches:
        signal = lens_advantages(grouped(batch))
        agrees(batch, signal)
        negative = signal.info["group_kind"] == 0
        assert negative.sum() >= 2
        assert (batch["advantages"].view(-1, GROUP)[negative].abs().amax(-1) > 1e-4).all()
    after = [p for p in run.model.parameters() if p.requires_grad]
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_grpo_learns_nothing_where_lens_does(tmp_path: Path) -> None:
    def wrong(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [0.0] * len(completion_ids)

    norms = {}
    for method in ("grpo", "lens"):
        run = trainer(tmp_path, {"method": method}, reward_funcs=wrong, max_steps=1)
        run.train()
        norms[method] = run.state.log_history[0]["grad_norm"]
    assert norms["grpo"] == 0
    assert norms["lens"] > 1e-4


@pytest.mark.parametrize("peft_config", [None, LORA], ids=["full", "lora"])
def test_one_batch_serves_several_updates(tmp_path: Path, peft_config: LoraConfig | None) -> None:
    # two slices a batch, gone through twice: four updates, one batch of responses
    run = trainer(
        tmp_path,
        per_device_train_batch_size=8,
        steps_per_generation=2,
        num_iterations=2,
        max_steps=4,
        peft_config=peft_config,
    )
    run.train()
    (batch,) = run.batches
    assert len(batch["advantages"]) == 16
    agrees(batch, lens_advantages(grouped(batch)))
    mask = batch["completion_mask"].bool()
    old, own = batch["old_per_token_logps"][mask], batch["own_logprobs"][mask]
    torch.testing.assert_close(old, own.float())


def test_updates_see_the_rows_with_their_own_advantages(tmp_path: Path) -> None:
    run = trainer(tmp_path, per_device_train_batch_size=8, steps_per_generation=2)
    seen: list[dict[str, Tensor]] = []
    inner = run._compute_loss
    run._compute_loss = lambda model, inputs: seen.append(inputs) or inner(model, inputs)
    run.train()
    (batch,) = run.batches

    def rows(of: dict[str, Tensor]) -> list[tuple[float, ...]]:
        pairs = zip(of["advantages"].tolist(), of["completion_ids"].tolist(), strict=True)
        return [(a, *ids) for a, ids in pairs]

    assert sorted(rows(seen[0]) + rows(seen[1])) == sorted(rows(batch))


def test_confidence_is_of_the_sampler_where_it_reports_log_probabilities(tmp_path: Path) -> None:
    reported: list[list[float]] = []

    def rollout(prompts: list[str], run: GRPOTrainer) -> dict[str, list]:
        ids = [[5 + i % 7, 6, 1][: 2 + i % 2] for i in range(len(prompts))]
        reported[:] = [[-0.1 * (i % 5 + 1)] * len(row) for i, row in enumerate(ids)]
        tokens = run.processing_class(prompts)["input_ids"]
        return {"prompt_ids": tokens, "completion_ids": ids, "logprobs": reported}

    run = trainer(tmp_path, rollout_func=rollout, max_steps=1)
    run.train()
    (batch,) = run.batches
    rollouts = grouped(batch)
    sums = torch.tensor([sum(row) for row in reported]).double().view(-1, GROUP)
    agrees(batch, lens_advantages(replace(rollouts, logprobs=sums, token_logprobs=None)))
    trainers = lens_advantages(rollouts).advantages.flatten().float()
    assert (batch["advantages"] - trainers).abs().max() > 1e-3


def test_a_token_that_the_sampler_could_not_score_is_scored_by_the_trainer(tmp_path: Path) -> None:
    def rollout(prompts: list[str], run: GRPOTrainer) -> dict[str, list]:
        ids = [[5 + i % 7, 6, 1] for i in range(len(prompts))]
        logprobs = [[-0.5, math.nan if i == 1 else -0.25, -0.5] for i in range(len(prompts))]
        tokens = run.processing_class(prompts)["input_ids"]
        return {"prompt_ids": tokens, "completion_ids": ids, "logprobs": logprobs}

    run = trainer(tmp_path, rollout_func=rollout, max_steps=1)
    run.train()
    (batch,) = run.batches
    sums = torch.full((16,), -1.25).double()
    sums[1] = -1.0 + batch["own_logprobs"][1, 1]
    rollouts = replace(grouped(batch), logprobs=sums.view(-1, GROUP), token_logprobs=None)
    agrees(batch, lens_advantages(rollouts))


@pytest.mark.parametrize("name", methods.names())
def test_every_method_gives_its_own_advantages(ready: Recorder, name: str) -> None:
    ready.treatment = Treatment(name)
    spec = methods.spec(name)
    state = spec.init_state() if spec.stateful else None
    ids = [question_id({"prompt": prompt}) for prompt in questions(4)["prompt"]]
    for seed in range(2):  # the second batch sees the state after the first
        batch = sample(ready, seed)
        rollouts = grouped(batch)
        given: dict[str, float] = {}
        if state is not None:
            rollouts = replace(rollouts, prior=spec.prior(state, ids))
            given = spec.state_hyperparameters(state, GROUP)
            state = spec.update(state, rollouts, ids)
        signal = methods.get(name, **given)(rollouts)
        kept = signal.keep.double().mean()
        scaled = signal.advantages / kept if kept > 0 else signal.advantages
        agrees(batch, replace(signal, advantages=scaled))
    if state is not None:
        assert ready.treatment.state is not None
        found = spec.prior(ready.treatment.state, ids)
        torch.testing.assert_close(found, spec.prior(state, ids))


def test_grpo_with_trls_constants_is_trls_grpo(ready: Recorder, monkeypatch: Any) -> None:
    ready.treatment = Treatment("grpo", hyperparameters={"ddof": 1, "eps": 1e-4})
    ours = sample(ready)["advantages"]
    plain: list[Tensor] = []
    inner = GRPOTrainer._generate_and_score_completions

    def spy(run: GRPOTrainer, inputs: list) -> dict[str, Any]:
        output = inner(run, inputs)
        plain.append(output["advantages"] * 1.0)
        return output

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", spy)
    ready.args.scale_rewards = ready.scale_rewards = "group"
    sample(ready)
    ready.args.scale_rewards = ready.scale_rewards = "none"
    assert ours.abs().max() > 0.1
    torch.testing.assert_close(ours, plain[0], **EXACT)


@pytest.mark.parametrize("method", ["psr", "lens"])
def test_the_gradient_is_that_of_the_reference_loss(ready: Recorder, method: str) -> None:
    # psr keeps correct answers alone: the rest is to be out of the loss and of its denominator
    ready.treatment = Treatment(method)
    torch.manual_seed(1)
    rows = [row for row in questions(4) for _ in range(GROUP)]
    output = ready._generate_and_score_completions(rows)
    ready.current_gradient_accumulation_steps = 1
    found = gradient(ready, ready._compute_loss(ready.model, output))

    ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
    attention = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
    logits = ready.model(input_ids=ids, attention_mask=attention).logits
    width = output["completion_ids"].shape[1]
    log_p = (logits[:, -width - 1 : -1] / 0.7).log_softmax(-1)
    new = log_p.gather(-1, output["completion_ids"].unsqueeze(-1)).squeeze(-1)
    signal = methods.get(method)(grouped(ready.batches[-1]))
    mask = output["completion_mask"].bool() & signal.keep.flatten().unsqueeze(1)
    expected = gradient(
        ready, grpo_loss(new, new.detach(), signal.advantages.flatten().float(), mask).loss
    )
    assert expected.norm() > 1e-4
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)


def gradient(run: Recorder, loss: Tensor) -> Tensor:
    run.model.zero_grad()
    loss.backward()
    found = torch.cat([p.grad.flatten() for p in run.model.parameters() if p.grad is not None])
    run.model.zero_grad()
    return found


def test_truncated_responses_may_be_left_out(ready: Recorder) -> None:
    config = LensConfig(truncated="mask")
    ready.treatment = Treatment("lens", config)
    batch = sample(ready)
    signal = lens_advantages(grouped(batch), config)
    kept = signal.keep.double().mean()
    assert 0 < kept < 1
    agrees(batch, replace(signal, advantages=signal.advantages / kept))


def test_a_response_that_nobody_scored_is_left_out(tmp_path: Path) -> None:
    def grade(completion_ids: list[list[int]], **_: Any) -> list[float | None]:
        return [None if i == 2 else 0.0 for i in range(len(completion_ids))]

    run = trainer(tmp_path, reward_funcs=grade)
    batch = sample(run)
    valid = torch.ones(4, GROUP, dtype=torch.bool)
    valid[0, 2] = False
    signal = lens_advantages(replace(grouped(batch), valid=valid))
    agrees(batch, replace(signal, advantages=signal.advantages * 16 / 15))
    assert batch["advantages"][2] == 0


def test_several_reward_functions_are_summed_with_their_weights(tmp_path: Path) -> None:
    def first(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [float(ids[0] % 2) for ids in completion_ids]

    def second(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [float(ids[0] % 4 < 2) for ids in completion_ids]

    run = trainer(tmp_path, reward_funcs=[first, second], reward_weights=[0.7, 0.3])
    batch = sample(run)
    # both: .7 + .3, which must count as fully correct; 3 modulo 4: .7, 0 modulo 4: .3
    level = torch.tensor([0.3, 1.0, 0.0, 0.7]).double()
    batch["rewards"] = level[batch["completion_ids"][:, 0] % 4]
    assert len(batch["rewards"].unique()) == 4
    agrees(batch, lens_advantages(grouped(batch)))


def test_a_reward_outside_0_and_1_is_one_line(tmp_path: Path) -> None:
    run = trainer(tmp_path, reward_funcs=lambda completion_ids, **_: [1.5] * len(completion_ids))
    with pytest.raises(ValueError, match=r"the reward of response 0 is 1\.5: .* in \[0, 1\]"):
        sample(run)


def test_a_group_of_two_questions_is_refused() -> None:
    assert group_numbers(["a", "a", "b", "b"], 2) == [0, 0, 1, 1]
    assert group_numbers(["a", "a", "a", "a"], 2) == [0, 0, 1, 1]  # one question, drawn twice
    with pytest.raises(ValueError, match="group 1 holds responses to different prompts"):
        group_numbers(["a", "a", "a", "b"], 2)


def test_conversations_have_names_too() -> None:
    chat = [{"role": "user", "content": "1 + 1"}]
    same, other = [{"content": "1 + 1", "role": "user"}], [{"role": "user", "content": "1 + 2"}]
    named = [question_id({"prompt": prompt}) for prompt in (chat, same, other)]
    assert named[0] == named[1] != named[2]


def test_trls_table_holds_these_advantages(tmp_path: Path) -> None:
    run = trainer(tmp_path, log_completions=True, num_completions_to_print=0)
    run.train()
    for step, batch in enumerate(run.batches, 1):
        torch.testing.assert_close(batch["table"], batch["advantages"], **EXACT)
        table = pd.read_parquet(tmp_path / f"out/completions/completions_0000{step}.parquet")
        shown = torch.tensor(table["advantage"].to_numpy(copy=True)).float()
        torch.testing.assert_close(shown, batch["advantages"], **EXACT)


def test_the_table_has_the_mean_of_token_advantages(ready: Recorder) -> None:
    ready.treatment = Treatment("rl_zvp")
    batch = sample(ready)
    assert batch["advantages"].shape == batch["completion_ids"].shape
    own = [
        a[m.bool()].mean()
        for a, m in zip(batch["advantages"], batch["completion_mask"], strict=True)
    ]
    torch.testing.assert_close(batch["table"][-16:], torch.stack(own), **EXACT)


def test_group_statistics_are_logged(tmp_path: Path) -> None:
    run = trainer(tmp_path, max_steps=1)
    run.train()
    log, (batch,) = run.state.log_history[0], run.batches
    right = batch["rewards"].view(-1, GROUP).sum(-1)
    assert log["lens_ref/negative_share"] == (right == 0).double().mean()
    assert log["lens_ref/correct_share"] == (right == GROUP).double().mean()
    advantages = batch["advantages"].view(-1, GROUP)
    rms = [advantages[which].square().mean().sqrt() for which in (right == 0, right % GROUP > 0)]
    assert log["lens_ref/neg_to_mixed_rms"] == pytest.approx(float(rms[0] / rms[1]), rel=1e-5)
    lengths = batch["completion_mask"].sum(1)
    confidence = ((batch["own_logprobs"] * batch["completion_mask"]).sum(1) / lengths).exp()
    assert log["lens_ref/confidence"] == pytest.approx(float(confidence.mean()), rel=1e-5)
    assert log["lens_ref/truncated_share"] == pytest.approx(log["completions/clipped_ratio"])


def test_an_evaluation_leaves_the_state_alone(tmp_path: Path) -> None:
    run = trainer(
        tmp_path, {"method": "spo"}, per_device_eval_batch_size=8, eval_dataset=questions(4)
    )
    run.train()
    state = run.treatment.state
    assert len(state["questions"]) == 8  # two batches of four
    log = run.evaluate()
    assert run.treatment.state is state
    assert log["eval_lens_ref/negative_share"] >= 0.5


def test_a_subclass_may_shape_the_rewards(tmp_path: Path) -> None:
    class Shaped(LensGRPOTrainer):
        def _calculate_rewards(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            return torch.zeros_like(super()._calculate_rewards(*args, **kwargs))

    model, tokenizer = policy(tmp_path / "policy")
    run = Shaped(
        model,
        grade,
        settings(tmp_path, max_steps=1),
        questions(),
        processing_class=tokenizer,
        method="grpo",
    )
    run.train()
    assert run.state.log_history[0]["lens_ref/negative_share"] == 1
    assert "_calculate_rewards" not in vars(run)


def test_images_tell_questions_apart() -> None:
    class Image:
        def __init__(self, data: bytes) -> None:
            self.data = data

        def tobytes(self) -> bytes:
            return self.data

    def named(data: bytes) -> str:
        return question_id({"prompt": "What is this?", "image": Image(data), "answer": "a cat"})

    assert named(b"a cat") == named(b"a cat") != named(b"a dog")
    assert question_id({"prompt": "a", "answer": "1"}) == question_id({"prompt": "a"})


def test_nothing_else_of_trls_trainer_is_overridden() -> None:
    shared = vars(LensGRPOTrainer).keys() & set(dir(GRPOTrainer))
    assert shared - {"__doc__", "__module__"} == {
        "__init__",
        "_generate_and_score_completions",
        "_get_train_sampler",
        "_load_optimizer_and_scheduler",
        "_save_checkpoint",
    }
