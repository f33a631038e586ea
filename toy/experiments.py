"""What `python -m toy` runs, short and long: the cells of the tables, the lines of the figures.

Every function returns a pandas frame, one row per run (or per run and step).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from lens_ref.core import LensConfig, Rollouts, group_kind, lens_advantages, neg_to_mixed_rms
from toy import flow, sequence
from toy.rules import RULES
from toy.sampled import OPTIMIZERS, Report, accuracy_curves, steps_to_target, streams
from toy.spaces import many_questions, six_options
from toy.tables import long_frame

P_CORRECT = (1e-1, 1e-2, 1e-3, 1e-4)  # where the exact flows start


@dataclass(frozen=True)
class EscapeColumn:
    """A column of the six-option table."""

    p_c: float  # first P(correct)
    group_size: int
    optimizer: str
    cap: int  # updates; a seed that needs more is censored there
    leave_out: tuple[str, ...] = ()  # rules not run here


@dataclass(frozen=True)
class CurveColumn:
    """A column of the many-question table."""

    optimizer: str
    updates: int
    every: int
    read_at: tuple[int, ...]  # the updates at which the summary reads the accuracy
    leave_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """All sizes of a run."""

    columns: tuple[EscapeColumn, ...]
    curves: tuple[CurveColumn, ...]
    questions: int
    sequence_updates: int
    sequence_read_at: tuple[int, ...]
    escape_seeds: int = 24
    other_seeds: int = 20


# Not run from p = 1e-4 under SGD: one never solves the question, the other only takes longer than
# at 1e-3. The rules without group statistics hardly depend on G: one group size is enough.
_SLOW = ("mle_d_half_unguarded", "mle_d2_demeaned")
_GUARDED = ("mle_guarded", "mle_d2")

FULL = Plan(
    columns=(
        EscapeColumn(1e-2, 4, "sgd", 20_000),
        EscapeColumn(1e-2, 16, "sgd", 20_000),
        EscapeColumn(1e-3, 4, "sgd", 20_000),
        EscapeColumn(1e-3, 16, "sgd", 20_000),
        EscapeColumn(1e-4, 8, "sgd", 12_000, _SLOW),
        EscapeColumn(1e-4, 16, "sgd", 12_000, _SLOW + _GUARDED),
        EscapeColumn(1e-4, 4, "adam", 5_000),
        EscapeColumn(1e-4, 16, "adam", 5_000),
    ),
    curves=(
        CurveColumn("sgd", 1500, 50, (400, 800, 1500)),
        CurveColumn("adam", 800, 40, (400, 800)),
    ),
    questions=50,
    sequence_updates=1500,
    sequence_read_at=(600, 1500),
)
QUICK = Plan(
    columns=(
        EscapeColumn(1e-2, 16, "sgd", 20_000),
        EscapeColumn(1e-3, 16, "sgd", 20_000, ("mle_d_half_unguarded",)),
        EscapeColumn(1e-4, 16, "adam", 5_000, ("mle_d_half_unguarded",)),
    ),
    curves=(CurveColumn("sgd", 400, 40, (400,)), CurveColumn("adam", 400, 40, (400,))),
    questions=8,
    sequence_updates=600,
    sequence_read_at=(600,),
)

CURVE_RULES = (
    "grpo",
    "lens_paper",
    "lens_neg_unscaled",
    "lens_negative_std",
    "lens_no_demean",
    "mle_d2",
)
CURVE_GROUP_SIZE = 16

SEQUENCE_QUANTITIES = ("length", "truncated", "token_entropy", "confidence")
SEQUENCE_EVERY = 50

SIGNAL_PRESETS = ("paper", "neg_unscaled", "negative_std", "likelihood")
SPREADS = (0.003, 0.01, 0.02, 0.03, 0.04, 0.05)


@dataclass(frozen=True)
class SequenceCase:
    """One line of the sequence figure."""

    name: str  # in the CSV
    label: str
    preset: str
    confidence: str
    aggregation: str


SEQUENCE_CASES = (
    SequenceCase(
        "paper_normalized", "π̄, as printed", "paper", "length_normalized", "sequence_mean"
    ),
    SequenceCase(
        "std_normalized", "π̄, negative_std", "negative_std", "length_normalized", "sequence_mean"
    ),
    SequenceCase(
        "std_normalized_token_mean",
        "π̄, negative_std, token mean",
        "negative_std",
        "length_normalized",
        "token_mean",
    ),
    SequenceCase("std_raw", "raw π, negative_std", "negative_std", "sequence", "sequence_mean"),
    SequenceCase(
        "std_raw_token_mean",
        "raw π, negative_std, token mean",
        "negative_std",
        "sequence",
        "token_mean",
    ),
)


def flow_times() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Exact flow to P(correct) = 0.9: every objective from every start; every guard from 1e-4."""
    objectives, guards = [], []
    for name, objective in flow.OBJECTIVES.items():
        for p_c in P_CORRECT:
            result = flow.escape(objective, p_c)
            objectives.append((name, p_c, result.time, result.outcome))
    for guard in flow.GUARDS:
        result = flow.escape(flow.guard_objective(guard), 1e-4)
        guards.append((guard, 1e-4, result.time, result.outcome))
    return (
        pd.DataFrame(objectives, columns=["objective", "p_c", "time", "outcome"]),
        pd.DataFrame(guards, columns=["guard", "p_c", "time", "outcome"]),
    )


def flow_curves(p_c: float = 1e-4, points: int = 200) -> pd.DataFrame:
    """P(correct) along the flow, for the figure: REINFORCE, three guards and D = 1."""
    shown = {"REINFORCE": flow.OBJECTIVES["reinforce"]}
    shown |= {f"D={g:g} max π": flow.guard_objective(g) for g in (5.0, 2.0, 1.1, 1.01)}
    shown["D=1 (pole kept)"] = flow.OBJECTIVES["mle_d1"]
    frames = []
    for label, objective in shown.items():
        result = flow.escape(objective, p_c)
        pick = np.unique(np.linspace(0, len(result.times) - 1, points).astype(int))
        frames.append(
            pd.DataFrame(
                {"curve": label, "time": result.times[pick], "p_correct": result.p_correct[pick]}
            )
        )
    return pd.concat(frames, ignore_index=True)


def escape_cell(column: EscapeColumn, rule: str, seeds: range, report: Report) -> pd.DataFrame:
    """One cell of the six-option table: a row a seed."""
    name = f"six_options/{rule}/{column.optimizer}/{column.p_c:g}/{column.group_size}"
    result = steps_to_target(
        six_options(column.p_c, len(seeds)),
        RULES[rule].rule,
        column.group_size,
        OPTIMIZERS[column.optimizer](),
        streams(seeds, name),
        column.cap,
        report,
    )
    return pd.DataFrame(
        {
            "experiment": "six_options",
            "method": rule,
            "optimizer": column.optimizer,
            "p_c": column.p_c,
            "group_size": column.group_size,
            "seed": list(seeds),
            "cap": column.cap,
            "steps": result.steps,
            "censored": ~result.solved,
        }
    )


def curve_cell(
    column: CurveColumn, rule: str, questions: int, seeds: range, report: Report
) -> pd.DataFrame:
    """One cell of the many-question table: a row a seed and step. A seed's questions
    are the same under every rule."""
    curves = accuracy_curves(
        many_questions(streams(seeds, "many_questions"), questions),
        RULES[rule].rule,
        CURVE_GROUP_SIZE,
        OPTIMIZERS[column.optimizer](),
        streams(seeds, f"many_questions/{rule}/{column.optimizer}"),
        column.updates,
        column.every,
        report,
    )
    cell = {
        "experiment": f"questions_{questions}x100",
        "method": rule,
        "optimizer": column.optimizer,
        "group_size": CURVE_GROUP_SIZE,
    }
    values = {"accuracy": curves.accuracy, "entropy": curves.entropy}
    return long_frame(cell, curves.steps, seeds, values)


def sequence_case(case: SequenceCase, updates: int, seeds: range, report: Report) -> pd.DataFrame:
    """One line of the sequence figure: a row a seed and step."""
    curves = sequence.train_unsolvable(
        sequence.first_logits(streams(seeds, "sequence")),
        streams(seeds, f"sequence/{case.name}"),
        updates,
        SEQUENCE_EVERY,
        case.aggregation,
        report=report,
        preset=case.preset,
        confidence=case.confidence,
    )
    values = {name: getattr(curves, name) for name in SEQUENCE_QUANTITIES}
    cell = {"experiment": "sequence", "method": case.name, "optimizer": "sgd", "group_size": 16}
    return long_frame(cell, curves.steps, seeds, values)


def signal_sizes(groups: int = 2000, group_size: int = 16, seed: int = 0) -> pd.DataFrame:
    """RMS advantage of negative groups over that of mixed groups with one correct response, against
    the spread of π̄ around 0.85."""
    rng = np.random.default_rng(seed)
    rows = []
    for spread in SPREADS:
        normal = rng.normal(0.0, 1.0, (groups, group_size))
        confidence = torch.from_numpy(np.clip(0.85 + spread * normal, 0.01, 0.999))
        rewards = torch.zeros_like(confidence)
        rewards[groups // 2 :, 0] = 1.0
        rollouts = Rollouts(rewards, confidence.log(), torch.ones_like(rewards))
        for preset in SIGNAL_PRESETS:
            signal = lens_advantages(rollouts, LensConfig.preset(preset))
            ratio = neg_to_mixed_rms(signal.advantages, group_kind(rewards), signal.keep)
            rows.append((preset, group_size, spread, float(ratio)))
    return pd.DataFrame(rows, columns=["preset", "group_size", "spread", "neg_to_mixed_rms"])
