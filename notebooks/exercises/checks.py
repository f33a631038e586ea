"""The checks of the sixteen exercises: `checks.check_5(answer)` prints "right", a hint, or "not
answered yet".

Inputs are random. The truth comes from enumeration, from autograd or from the library, so that no
solution stands here.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import lens_ref
from lens_ref import methods, resources
from lens_ref.core import Rollouts, group_kind, grpo_loss, mle_loss
from lens_ref.rlvr.statistics import t_interval
from notebooks.exercises.checking import (
    Hint,
    Unanswered,
    agree,
    begin,
    call,
    exercise,
    judge,
    named,
    numbers,
    pair,
    summary,
)
from notebooks.exercises.duel import Task, duel
from toy.flow import escape, guard_objective

__all__ = ["SAME_WRONG_GROUP", "TREATMENTS", "Task", "begin", "duel", "judge", "summary"]

ESCAPE_WITHIN, P_CORRECT = 200.0, 1e-4
TREATMENTS = {
    "grpo": methods.get("grpo"),
    "dr_grpo": methods.get("dr_grpo"),
    "dapo": methods.get("dapo"),
    "psr": methods.get("psr"),
    "nsr": methods.get("nsr"),
    "ngrpo": methods.get("ngrpo"),
    "lens": methods.get("lens"),
    "lens negative_std": methods.get("lens", preset="negative_std"),
    "lens no_demean": methods.get("lens", preset="no_demean"),
}
SAME_WRONG_GROUP = Rollouts(
    rewards=torch.zeros(1, 16, dtype=torch.float64),
    logprobs=torch.full((1, 16), math.log(0.85), dtype=torch.float64),
    lengths=torch.ones(1, 16),
)


def _uniform(low: float, high: float, *shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)


def _coins(p: float, *shape: int, seed: int) -> Tensor:
    return (_uniform(0.0, 1.0, *shape, seed=seed) < p).double()


@exercise(1, "How many groups speak?")
def check_1(answer: Any) -> None:
    p = torch.cat([torch.tensor([0.0, 1.0], dtype=torch.float64), _uniform(0.02, 0.98, 4, seed=1)])
    for size in (2, 3, 6):
        found = numbers(call(answer, p, size), (6,))
        if abs(float(found[0])) > 1e-6:
            raise Hint("At p = 0 every group is all wrong. What share of groups teaches then?")
        if abs(float(found[1])) > 1e-6:
            raise Hint("At p = 1 every group is all right. What does GRPO learn from it?")
        truth = torch.zeros(6, dtype=torch.float64)
        for rewards in itertools.product((0.0, 1.0), repeat=size):  # every possible group
            group = torch.tensor(rewards, dtype=torch.float64)
            chance = torch.where(group == 1, p.unsqueeze(-1), 1 - p.unsqueeze(-1)).prod(-1)
            truth += chance * (group_kind(group) == 1)
        agree(found, truth, lambda i, g=size: f"p = {p[i[0]]:.3g}, G = {g}")


@exercise(2, "The advantages of GRPO")
def check_2(answer: Any) -> None:
    rewards = _coins(0.4, 7, 6, seed=2)
    rewards[1], rewards[4] = 0.0, 1.0
    result = call(answer, rewards)
    if isinstance(result, Tensor) and result.shape == rewards.shape and result[1].isnan().any():
        raise Hint("NaN in a group without differences. What should it teach?")
    found = numbers(result, (7, 6))
    if not torch.allclose(found.sum(-1), torch.zeros(7, dtype=torch.float64), atol=1e-5):
        raise Hint("The advantages of each question must add up to 0, question by question.")
    group = Rollouts(rewards, torch.full_like(rewards, -1.0), torch.ones_like(rewards))
    truth = methods.get("grpo")(group).advantages
    agree(found, truth, lambda i: f"the group {rewards[i[0]].int().tolist()}, response {i[1]}")


@exercise(3, "The loss is 0, the gradient is not")
def check_3(answer: Any) -> None:
    advantages = _uniform(-2.0, 2.0, 5, seed=3)
    lengths = torch.tensor([7, 2, 4, 1, 5])
    mask = torch.arange(7) < lengths.unsqueeze(-1)
    found = numbers(call(answer, advantages, mask), (5, 7))
    if bool((found[~mask] != 0).any()):
        raise Hint("Padding is not part of any response: its gradient is 0.")
    old = _uniform(-3.0, -0.1, 5, 7, seed=33)
    new = old.clone().requires_grad_()
    grpo_loss(new, old, advantages, mask).loss.backward()
    agree(
        found, new.grad, lambda i: f"token {i[1]} of response {i[0]}, {lengths[i[0]]} tokens long"
    )


@exercise(4, "Difficulty and the optimal policy")
def check_4(answer: Any) -> None:
    p_star = _uniform(0.0, 1.0, 5, 4, seed=4)
    p_star[0] = torch.tensor([1.0, 1.0, 0.0, 0.0])
    p_star[1] = torch.tensor([0.3, 0.2, 0.1, 0.0])
    result = pair(call(answer, p_star), "D, π*")
    difficulty = numbers(result[0], (5,), "D")
    policy = numbers(result[1], (5, 4), "π*")
    truth = lens_ref.true_difficulty(p_star)
    agree(difficulty, truth, lambda i: f"D of p* = {_list(p_star[i[0]])}")
    if not torch.allclose(policy.sum(-1), torch.ones(5, dtype=torch.float64), atol=1e-5):
        raise Hint("D is right. The probabilities of π* must add up to 1.")
    agree(policy, p_star * truth.unsqueeze(-1), lambda i: f"π* of p* = {_list(p_star[i[0]])}")


@exercise(5, "Derive the calibrated reward")
def check_5(answer: Any) -> None:
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 0.5, 0.25], dtype=torch.float64)
    pi, d = _uniform(0.05, 0.45, 7, seed=5), _uniform(0.5, 2.0, 7, seed=55)
    found = numbers(call(answer, rewards, pi, d), (7,))
    log_pi = pi.log().requires_grad_()
    (-mle_loss(log_pi, rewards, d) * 7).backward()
    agree(found, log_pi.grad, named(r=rewards, π=pi, D=d))


@exercise(6, "From the odds to the weight function")
def check_6(answer: Any) -> None:
    z = torch.cat(
        [torch.tensor([0.01, 0.5, 0.99], dtype=torch.float64), _uniform(0.02, 0.98, 5, seed=6)]
    )
    found = numbers(call(answer, z), (8,))
    agree(found, lens_ref.weight(z), named(z=z))


@exercise(7, "One logarithm for each wrong answer")
def check_7(answer: Any) -> None:
    p_star = _uniform(0.0, 0.9, 6, 5, seed=7)
    p_star[:, 0], p_star[0, 1:], p_star[1, 1:] = 1.0, 0.0, torch.tensor([1.0, 0.0, 0.0, 0.0])
    pi = _uniform(0.1, 1.0, 6, 5, seed=77)
    pi = pi / pi.sum(-1, keepdim=True)
    d = _uniform(0.8, 3.0, 6, seed=777)
    found = numbers(call(answer, pi, p_star, d), (6,))
    agree(found, lens_ref.value_mle(pi, p_star, d), lambda i: f"D = {d[i[0]]:.3g}")
    elsewhere = torch.where(p_star == 1, 0.123, pi)
    if not torch.allclose(numbers(call(answer, elsewhere, p_star, d), (6,)), found, atol=1e-7):
        raise Hint("The number is right, but π of right answers still occurs in it. Use Σ π = 1.")


@exercise(8, "Where the likelihood misses the best policy")
def check_8(answer: Any) -> None:
    mu, pi = (numbers(x, (6,), name) for x, name in zip(pair(answer, "μ, π"), "μπ", strict=True))
    right = torch.tensor([1, 1, 0, 0, 0, 0], dtype=torch.bool)
    for name, policy in (("μ", mu), ("π", pi)):
        if bool((policy < 0).any()) or abs(float(policy.sum()) - 1) > 1e-5:
            raise Hint(f"{name} is no distribution: six numbers of at least 0 that add up to 1.")
    mu, pi = mu / mu.sum(), pi / pi.sum()  # what is left of rounding
    if bool((pi[~right] >= 0.5).any()):
        raise Hint("π of a wrong answer reaches D = 1/2, where the likelihood ends.")
    if bool((pi[right & (mu > 0)] <= 0).any()):
        raise Hint("π = 0 on a right answer that μ samples: the log-likelihood is minus infinity.")

    def likelihood(policy: Tensor) -> float:
        sampled = [i for i in range(6) if mu[i] > 0]
        terms = [mle_loss(policy[i : i + 1].log(), right[i : i + 1].double(), 0.5) for i in sampled]
        return -sum(float(mu[i] * term) for i, term in zip(sampled, terms, strict=True))

    best = torch.where(right, 0.5, 0.0).double()
    gain = likelihood(pi) - likelihood(best)
    if gain < 0.01:
        raise Hint(f"L(π) − L(π*) = {gain:.4f} under your μ; it should be at least 0.01.")


@exercise(9, "The confidence of a response")
def check_9(answer: Any) -> None:
    lengths = torch.tensor([1, 3, 8, 5])
    mask = torch.arange(8) < lengths.unsqueeze(-1)
    token_logprobs = torch.where(mask, _uniform(-2.5, -0.01, 4, 8, seed=9), -99.0)
    found = numbers(call(answer, token_logprobs, mask), (4,))
    total = torch.where(mask, token_logprobs, 0.0).sum(-1)
    truth = lens_ref.length_normalized(total, lengths).exp()
    agree(found, truth, lambda i: f"a response of length {int(lengths[i[0]])}")


@exercise(10, "The difficulty of a group")
def check_10(answer: Any) -> None:
    rewards = _coins(0.4, 6, 8, seed=10)
    rewards[0], rewards[1, 0], rewards[1, 1] = 0.0, 1.0, 0.0
    rewards[2:4] = torch.tensor([1.0, 0, 0, 0, 0, 1, 0, 0], dtype=torch.float64)
    lengths = torch.tensor([9, 1500, 1, 1, 4, 40]).unsqueeze(-1).expand(6, 8)
    logprobs = _uniform(-0.9, -0.3, 6, 8, seed=101) * lengths
    found = numbers(call(answer, rewards, logprobs, lengths), (6,))
    confidence = lens_ref.length_normalized(logprobs, lengths)
    truth = lens_ref.difficulty(rewards, confidence, importance_log_confidence=logprobs)

    def at(i: tuple[int, ...]) -> str:
        right, length = int(rewards[i[0]].sum()), int(lengths[i[0], 0])
        return f"a group with {right} of 8 right, responses of length {length}"

    agree(found, truth, at)


@exercise(11, "An all-wrong group by hand")
def check_11(answer: Any) -> None:
    for size in (4, 8):
        confidence = _uniform(0.2, 0.95, 3, size, seed=11)
        found = numbers(call(answer, confidence), (3, size))
        if bool((found <= 0).all()) and bool((found < 0).any()):
            raise Hint("Every answer is pushed down. The group is to be de-meaned.")
        group = Rollouts(
            torch.zeros_like(confidence), confidence.log(), torch.ones_like(confidence)
        )
        truth = lens_ref.lens_advantages(group).advantages
        agree(found, truth, named(π̄=confidence))


@exercise(12, "The jump at no correct answer")
def check_12(answer: Any) -> None:
    for size in (4, 16):
        k = torch.arange(size)
        found = numbers(call(answer, k, size), (size,))
        rewards = (torch.arange(size) < k.unsqueeze(-1)).double()
        log_confidence = torch.full_like(rewards, math.log(0.85))
        log_d = lens_ref.difficulty(rewards, log_confidence)
        wrong = -lens_ref.calibrated_reward(rewards, log_confidence, log_d)[:, -1]
        agree(found, wrong, lambda i, g=size: f"k = {i[0]} of G = {g} right")


@exercise(13, "Sixteen times the same mistake")
def check_13(answer: Any) -> None:
    if isinstance(answer, str) or not isinstance(answer, (set, list, tuple, frozenset)):
        raise Hint("A set of names is asked for, such as {'grpo', 'dapo'}.")
    names = list(answer)
    unknown = [name for name in names if not isinstance(name, str) or name not in TREATMENTS]
    if unknown:
        raise Hint(f"{unknown[0]!r} is not among {', '.join(TREATMENTS)}.")
    moves = set()
    for name, method in TREATMENTS.items():
        signal = method(SAME_WRONG_GROUP)
        if bool((signal.advantages.where(signal.keep, 0.0) != 0).any()):
            moves.add(name)
    extra, missing = len(set(names) - moves), len(moves - set(names))
    if extra or missing:
        raise Hint(f"Too many by {extra}, and {missing} missing.")


@exercise(14, "Escape, and what it costs")
def check_14(answer: Any) -> None:
    parts = pair(answer, "κ, lowest reward")
    kappa, lowest = (
        float(numbers(x, (), name)) for x, name in zip(parts, ("κ", "The reward"), strict=True)
    )
    if kappa <= 1:
        raise Hint(
            "With κ ≤ 1 the most confident wrong answer reaches π = D, where r̃ is not defined."
        )
    time = escape(guard_objective(kappa), P_CORRECT, horizon=20 * ESCAPE_WITHIN).time
    if not time <= ESCAPE_WITHIN:
        took = (
            f"takes {time:,.0f}"
            if math.isfinite(time)
            else f"needs more than {20 * ESCAPE_WITHIN:,.0f}"
        )
        raise Hint(f"With κ = {kappa:g} the flow {took}; at most {ESCAPE_WITHIN:g} is asked for.")
    zero = torch.zeros(1, dtype=torch.float64)
    truth = lens_ref.calibrated_reward(zero, zero, math.log(kappa))
    if abs(lowest / float(truth) - 1) > 0.01:
        raise Hint("κ is right; the lowest reward that a wrong answer can get under it is another.")


@exercise(15, "Is the difference real?")
def check_15(answer: Any) -> None:
    if not isinstance(answer, (tuple, list)) or len(answer) != 3:
        raise Hint("Three things are asked for: (mean, half-width, True or False).")
    if any(part is None or part is ... for part in answer):
        raise Unanswered
    mean, half = (
        float(numbers(x, (), n)) for x, n in zip(answer, ("mean", "half-width"), strict=False)
    )
    table = pd.read_csv(resources.find("results", "tiny", "curves.csv"), dtype={"level": str})
    table = table[table["level"] == "all"].set_index(["step", "seed"])
    at_end = table.loc[table.index.get_level_values("step").max()]
    by_method = {m: rows["pass@1"].sort_index() for m, rows in at_end.groupby("method")}
    truth = t_interval((by_method["lens"] - by_method["grpo"]).to_numpy()).times(100)
    if abs(mean - truth.mean) > 0.01:
        small = " It is in percentage points?" if abs(mean) < 0.1 else ""
        raise Hint(f"The mean difference at the last update is another.{small}")
    wide = half / ((truth.high - truth.low) / 2)
    if abs(wide - 1) > 0.01:
        narrow, broad = (
            "narrow for so few seeds.",
            "wide: of what is it, and what do the seeds share?",
        )
        raise Hint(f"The mean is right; the interval is too {narrow if wide < 1 else broad}")
    if bool(answer[2]) != (not truth.covers_zero):
        raise Hint("Mean and interval are right. Does the interval contain 0?")


@exercise(16, "Find a task where LENS hurts")
def check_16(answer: Any) -> None:
    if not isinstance(answer, (tuple, list)) or len(answer) != 3:
        raise Hint("Three things are asked for: (task, preset, optimizer).")
    task, preset, optimizer = answer
    if task is None or task is ...:
        raise Unanswered
    if not isinstance(call(task, np.random.default_rng(0)), Task):
        raise Hint("Your function must return a checks.Task(logits, correct, graded).")
    found = call(lambda: duel(task, preset, optimizer))
    if found.high > -0.02:
        raise Hint(
            f"LENS − GRPO in true accuracy: {found.mean:+.3f}, 95 % interval "
            f"[{found.low:+.3f}, {found.high:+.3f}]; all of it should lie below −0.02."
        )


def _list(row: Tensor) -> str:
    return "(" + ", ".join(f"{x:.3g}" for x in row.tolist()) + ")"
