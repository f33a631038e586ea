"""The paper's figures that need no run: the overview, π* from p*, and the weight function.

Each is computed by the functions it is about.
"""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lens_ref.core import Rollouts, lens_advantages, odds, weight
from lens_ref.core.likelihood import true_difficulty
from lens_ref.methods import get
from lens_ref.rlvr.report_figures import STYLES, frame

CONFIDENCES = (0.95, 0.90, 0.84, 0.80, 0.74, 0.68, 0.60, 0.52)
"""π̄ of the wrong answers of the overview: an example, not a measurement."""
LENGTH = 100
WIDE = 8.4  # inches

GREY, DARK = "#b5b5b5", "#1f1f1f"


def one_negative_group() -> dict[str, list[float]]:
    """Rewards and advantages of GRPO and of LENS as printed in one group without a right answer."""
    confidence = torch.tensor([CONFIDENCES], dtype=torch.float64)
    rewards = torch.zeros_like(confidence)
    group = Rollouts(
        rewards, LENGTH * confidence.log(), torch.full(confidence.shape, LENGTH, dtype=torch.long)
    )
    lens = lens_advantages(group)
    return {
        "grpo_reward": rewards[0].tolist(),
        "grpo_advantage": get("grpo")(group).advantages[0].tolist(),
        "lens_reward": lens.info["calibrated_reward"][0].tolist(),
        "lens_advantage": lens.advantages[0].tolist(),
    }


def overview() -> Figure:
    """One group in which every answer is wrong: what GRPO and LENS make of it."""
    group = one_negative_group()
    figure, (confidence, reward, advantage) = frame(columns=3, width=WIDE, height=3.4)
    x = np.arange(len(CONFIDENCES))
    confidence.bar(x, CONFIDENCES, color=GREY, edgecolor=DARK, width=0.7)
    confidence.set(title="1 · eight answers, all wrong", ylabel="confidence π̄", ylim=(0, 1.12))
    for axes, key, title in (
        (reward, "reward", "2 · reward"),
        (advantage, "advantage", "3 · advantage"),
    ):
        axes.bar(
            x, group[f"lens_{key}"], color=GREY, edgecolor=DARK, width=0.7, hatch="//",
            label="LENS",
        )  # fmt: skip
        axes.plot(x, group[f"grpo_{key}"], ls="", marker="o", ms=6, color=DARK, label="GRPO: all 0")
        axes.axhline(0, color=DARK, lw=0.8)
        axes.set(title=title, ylabel=key)
        axes.margins(y=0.18)
        axes.legend(fontsize=10, loc="lower right", frameon=False)
    for axes in (confidence, reward, advantage):
        axes.set_xticks(x, [str(i + 1) for i in x])
        axes.set_xlabel("answer")
        axes.title.set_fontsize(12)
    return figure


def optimal_policy() -> Figure:
    """Six options, A and B right: π* = D p*, with D = 1/Σ p*."""
    p_star = torch.tensor([1.0, 1.0, 0, 0, 0, 0], dtype=torch.float64)
    difficulty = float(true_difficulty(p_star))
    pi_star = (difficulty * p_star).tolist()
    figure, panels = frame(columns=2, width=WIDE, height=3.2)
    left, right = panels
    _options(left, p_star.tolist(), "p*: is the option right?", "probability of being right")
    _options(
        right, pi_star, f"π* = D · p*, with D = 1/Σ p* = {difficulty:g}", "policy's probability"
    )
    return figure


def _options(axes: Axes, values: list[float], title: str, ylabel: str) -> None:
    x = np.arange(len(values))
    axes.bar(x, values, color=[GREY if v else "white" for v in values], edgecolor=DARK, width=0.7)
    for position, value in zip(x, values, strict=True):
        axes.text(position, value + 0.03, f"{value:g}", ha="center", fontsize=12)
    axes.set_xticks(x, list("ABCDEF"))
    axes.set(xlabel="option", ylabel=ylabel, ylim=(0, 1.15))
    axes.set_title(title, fontsize=12)


def weight_function() -> Figure:
    """w(z) of Theorem 2 and the odds, whose running mean it is."""
    figure, (axes,) = frame(width=WIDE, height=3.6)
    z = torch.linspace(0, 0.999, 1000, dtype=torch.float64)
    for values, name, look in (
        (weight(z), "w(z)", STYLES[0]),
        (odds(z), "odds z/(1−z)", STYLES[1]),
    ):
        axes.plot(z, values, color=look.color, ls=look.line, lw=2.2, label=name)
    axes.axvline(1, color="0.5", lw=1)
    axes.annotate(
        "pole: z → 1\n(π → D)", (1, 4.2), xytext=(-6, 0), textcoords="offset points", ha="right",
        fontsize=11,
    )  # fmt: skip
    axes.set(xlabel="z = π/D", ylabel="weight of a wrong answer", xlim=(0, 1.03), ylim=(0, 5))
    axes.legend(loc="upper left", frameon=False)
    return figure
