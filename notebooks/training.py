"""What notebooks 07 to 09 share: a run in a folder that is thrown away, and memory plans drawn."""

from __future__ import annotations

import logging
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from transformers.utils import logging as transformers_logging

from lens_ref.rlvr import memory, session
from lens_ref.rlvr.config import Config
from lens_ref.rlvr.memory import Plan, Shape
from lens_ref.rlvr.policy import Policy, load_policy, resolve_device
from lens_ref.rlvr.report_data import Run, read_run
from lens_ref.rlvr.run_folder import RunFolder
from lens_ref.rlvr.stop import StopRequest
from lens_ref.rlvr.tasks import Questions
from lens_ref.rlvr.threads import one_thread
from lens_ref.rlvr.trainer import Data, Trainer
from lens_ref.rlvr.vllm_engine import as_share, memory_share
from lens_ref.verifier import Verifier

transformers_logging.disable_progress_bar()
# bitsandbytes says on every import that one of its CPU kernels can't be fetched
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

GPU = torch.device("cuda")
"""For plans, which are computed from shapes: none needs to be there."""
GB = 1e9


def train(
    config: Config, train_on: Questions | None = None, test_on: Questions | None = None
) -> tuple[Run, Policy]:
    """Train with the project's own trainer and print a line for each rollout batch.

    Args:
        config: with a single method.
        train_on, test_on: instead of the questions that the config names.

    Returns:
        The tables that the run wrote, and the trained policy. The folder itself is gone.
    """

    def say(step: int, row: dict[str, Any]) -> None:
        if step % config.loss.updates_per_rollout == 0:
            shares = f"reward {row['reward']:.2f}   negative groups {row['negative_share']:4.0%}"
            print(f"update {step:3}/{config.steps}   {shares}", flush=True)

    device = resolve_device(config.device)
    with (
        tempfile.TemporaryDirectory() as parent,
        Verifier(**asdict(config.verifier)) as verifier,
        one_thread(),
    ):
        folder = RunFolder.create(Path(parent), config)
        loaded = Data(train_on, test_on) if train_on else session.load_data(config, verifier)
        policy = load_policy(config.model, device, config.seed, config.rollout.stop_tokens)
        session.keep_activations(config, policy)
        Trainer(config, folder, policy, loaded, verifier, StopRequest(), say).run()
        return read_run(folder.path), policy


def plan_on_card(config: Config, shape: Shape, card_gb: float) -> Plan:
    """The plan that training prints on a GPU of so many GB with vLLM installed. It is computed from
    shapes, so that no such GPU is needed."""
    model, rollout = config.model, config.rollout
    limit = min(card_gb, model.memory_gb or card_gb)
    card, free = int(card_gb * GB), int(memory.USABLE * limit * GB)
    samples_with_vllm = rollout.engine != "hf" and model.lora is not None and config.same_bits
    if not samples_with_vllm:
        return memory.plan_for(config, shape, GPU, free, None)
    held = int(memory_share(shape, config, memory.PROMPT_TOKENS, card) * card)
    leanest = memory.make_plan(config, shape, GPU, shape.layers, sampler=memory.NOTHING)
    sleeps = model.memory_gb is not None or held + leanest.total > free
    return memory.plan_for(config, shape, GPU, free, as_share(held, sleeps))


PARTS = (  # name, bytes, grey, hatch
    ("weights", lambda p: p.weights, "#2b2b2b", ""),
    ("adapter and optimizer", lambda p: p.adapter + p.optimizer, "#8c8c8c", "///"),
    ("gradients", lambda p: p.gradients, "#ffffff", "xx"),
    ("activations", lambda p: p.activations, "#b9b9b9", ""),
    (
        "sampling (keys and values, vLLM awake), where larger than both",
        lambda p: max(0, p.cache + p.sampler.sampling - p.gradients - p.activations),
        "#ffffff",
        "..",
    ),
    ("vLLM", lambda p: p.sampler.updating, "#e6e6e6", "\\\\"),
)


def draw_plans(ax: Axes, plans: dict[str, Plan], cards: tuple[float, ...] = (24, 80)) -> None:
    """A bar a plan, stacked in the order of `PARTS`: greys and hatches, in GB of 10⁹ bytes."""
    names = list(plans)
    left = [0.0] * len(names)
    for part, size, grey, hatch in PARTS:
        sizes = [size(plan) / GB for plan in plans.values()]
        if max(sizes) > 0:
            style = {"color": grey, "edgecolor": "black", "hatch": hatch, "linewidth": 0.8}
            ax.barh(names, sizes, left=left, label=part, **style)
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    for row, total in enumerate(left):
        patch = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        ax.text(total + 0.8, row, f"{total:.0f} GB", va="center", weight="bold", bbox=patch)
    top = 1.15 * max(*left, *cards)
    for card in cards:
        ax.axvline(card, color="black", linestyle="--", linewidth=1.6, zorder=0)
        ax.text(card + 0.01 * top, -0.62, f"{card:g} GB card")
    ax.set(xlim=(0, top), ylim=(len(names) - 0.5, -0.95), xlabel="GPU memory at the peak, GB")
    ax.grid(visible=False)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2, frameon=False, fontsize=12)
