"""The verdict of a report: who is better, in plain words, and how far that can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd
import torch

from lens_ref.core import pass_at_k
from lens_ref.rlvr.report_data import (
    BASELINE,
    Committed,
    Run,
    as_committed,
    display,
    label_order,
)
from lens_ref.rlvr.statistics import RESAMPLES, Interval, bootstrap_interval, seeds_interval

FEW_QUESTIONS = 20
ONE_SEED = (
    "Such a comparison is of single training runs. Its interval says how far the result could move "
    "with other test questions, not how far it would move with another seed."
)


@dataclass(frozen=True)
class Statement:
    """A conclusion in one sentence, and the numbers behind it."""

    conclusion: str
    numbers: str = ""


def question_rates(counts: pd.DataFrame, step: int, k: int = 1) -> pd.Series:
    """pass@k of every test question evaluated at a step, indexed by question."""
    rows = counts[counts["step"] == step]
    n, c = (torch.tensor(rows[name].astype(int).tolist()) for name in ("n", "correct"))
    return pd.Series(torch.as_tensor(pass_at_k(n, c, k)).tolist(), index=rows["question"].tolist())


def judge(runs: list[Run], committed: Committed | None) -> list[Statement]:
    """Every statement of the verdict, in the order in which to read them.

    Args:
        committed: the runs of several seeds that came along, if any did.
    """
    learned = [s for run in runs if (s := _learned(run)) is not None]
    if not learned:
        statements = [
            Statement(
                "No held-out evaluation, so no verdict on accuracy from these runs.",
                "None of the runs was evaluated on test questions; the rewards below are measured "
                "on the training questions and compare less sharply.",
            )
        ]
    elif all(run.label == BASELINE for run in runs):
        statements = [Statement("Only GRPO was trained here: nothing to compare it with.")]
    else:
        statements = _of_these(runs)
    return [*statements, *over_seeds(committed), *learned]


def _of_these(runs: Sequence[Run]) -> list[Statement]:
    """Each method against GRPO over the seeds of these runs, then seed by seed; with one seed, what
    that can't tell."""
    own = as_committed(runs)
    by_seed = [over_questions(run, runs) for run in runs if run.label != BASELINE]
    if len(own.seeds(BASELINE)) < 2:
        return [*by_seed, Statement("One seed can't tell more than this.", ONE_SEED)]
    return [*over_seeds(own, "these runs"), *by_seed]


def _learned(run: Run) -> Statement | None:
    """How far a run came from its first to its last evaluation."""
    if run.counts.empty:
        return None
    first, last = int(run.counts["step"].min()), int(run.counts["step"].max())
    before, after = question_rates(run.counts, first), question_rates(run.counts, last)
    name = f"{display(run.label)}, seed {run.seed}"
    if first == last or len(after) < 2:
        return Statement(f"{name}:", f"pass@1 is {percent(after.mean())} after {last} updates.")
    change = bootstrap_interval((after - before).dropna().to_numpy()).times(100)
    return Statement(
        f"{name}:",
        f"pass@1 went from {percent(before.mean())} to {percent(after.mean())} between update "
        f"{first} and {last}, a change of {points(change)} over questions.",
    )


def over_questions(run: Run, runs: Sequence[Run]) -> Statement:
    """One run against GRPO of the same seed, at the last step at which both were evaluated; who is
    better is left to the seeds where GRPO has several."""
    name = display(run.label)
    against = f"{name} against GRPO, seed {run.seed}"
    baseline = next((r for r in runs if r.label == BASELINE and r.seed == run.seed), None)
    if baseline is None:
        return Statement(
            f"{name}, seed {run.seed}: no comparison,",
            "since there is no GRPO run of that seed beside it.",
        )
    steps = set(run.counts["step"]) & set(baseline.counts["step"])
    if not steps:
        return Statement(
            f"{against}: no comparison,", "since they were never evaluated at the same update."
        )
    step = int(max(steps))
    rates = pd.concat(
        [question_rates(baseline.counts, step), question_rates(run.counts, step)],
        axis=1,
        join="inner",
        keys=["grpo", "other"],
    )
    caution = "".join(
        f" {display(r.label)} has done {r.step} of {r.config.get('steps')} updates only."
        for r in (baseline, run)
        if not r.finished
    )
    if len(rates) < 2:
        return Statement(f"{against}: no comparison,", "for want of common test questions.")
    if len(rates) < FEW_QUESTIONS:
        caution += f" {len(rates)} questions are few: the interval is a rough one."
    difference = bootstrap_interval((rates["other"] - rates["grpo"]).to_numpy()).times(100)
    seeds = {r.seed for r in runs if r.label == BASELINE}
    if step == 0:
        conclusion = "both were evaluated only before training."
    elif len({r.seed for r in runs if r.label == run.label} & seeds) > 1:
        conclusion = "one seed of several."
    elif len(seeds) > 1:
        conclusion = "one seed is too few to tell the methods apart."
    elif difference.covers_zero:
        conclusion = "no difference can be told."
    else:
        winner, loser = (name, "GRPO") if difference.mean > 0 else ("GRPO", name)
        conclusion = f"{winner} is better than {loser} on these questions."
    return Statement(
        f"{against}: {conclusion}",
        f"After {step} updates, pass@1 on the same {len(rates):,} test questions is "
        f"{percent(rates['grpo'].mean())} (GRPO) and {percent(rates['other'].mean())} ({name}), "
        f"a difference of {points(difference)} (paired bootstrap over questions, "
        f"{RESAMPLES:,} resamples)"
        f"{', which covers 0' if difference.covers_zero else ''}.{caution}",
    )


BUNDLED = "the committed runs on the bundled task"


def over_seeds(committed: Committed | None, where: str = BUNDLED) -> list[Statement]:
    """LENS as printed, and every stronger or weaker variant, against GRPO over seeds.

    Args:
        committed: the runs of one setting.
        where: what they are, in words.
    """
    if committed is None:
        return [
            Statement(
                "Over several seeds: nothing to say,",
                "since no committed runs (results/tiny_study) came with this copy of the project.",
            )
        ]
    labels = sorted(set(committed.curves["method"]) - {BASELINE}, key=label_order)
    return [_compare_seeds(committed, label, where) for label in labels]


def seed_pairs(
    curves: pd.DataFrame, label: str, column: str = "pass@1", level: str = "all"
) -> tuple[int, pd.DataFrame] | None:
    """GRPO and another method on the same seeds, at the last update at which both were evaluated.

    Args:
        curves: columns method, seed, step, level, pass@k.

    Returns:
        that update, and a row a seed with a column a method; None without a common seed.
    """
    rows = curves[curves["level"] == level]
    table = rows.pivot_table(index=["seed", "step"], columns="method", values=column)
    if BASELINE not in table or label not in table:
        return None
    both = table[[BASELINE, label]].dropna()
    if both.empty:
        return None
    step = int(both.index.get_level_values("step").max())
    return step, both.xs(step, level="step")


def _compare_seeds(committed: Committed, label: str, where: str) -> Statement:
    pairs, name = seed_pairs(committed.curves, label), display(label)
    if pairs is None:
        return Statement(
            f"Over several seeds, {name}: no comparison,",
            f"since {where} hold no GRPO run of the same seed.",
        )
    step, last = pairs
    change = (last[label] - last[BASELINE]).to_numpy()
    where = f"({where}, update {step})"
    if len(change) < 2:
        return Statement(
            f"{name}: one seed only,",
            f"with {signed(100 * change[0])} points against GRPO {where}: no interval.",
        )
    interval = seeds_interval(change)
    if interval is None:
        return Statement(
            f"{name}: no interval over {len(change)} seeds,",
            f"since each of them gives {signed(100 * change[0])} points against GRPO {where}.",
        )
    difference = interval.times(100)
    if difference.covers_zero:
        conclusion = f"{name} does not beat GRPO, nor GRPO it: no difference can be told."
    elif difference.mean > 0:
        conclusion = f"{name} is better than GRPO."
    else:
        conclusion = f"{name} does not beat GRPO: it is worse."
    return Statement(
        f"Over {len(change)} seeds, {conclusion}",
        f"Mean pass@1 is {percent(last[BASELINE].mean())} (GRPO) and {percent(last[label].mean())} "
        f"({name}), a difference of {points(difference)} over seeds {where}.",
    )


def percent(share: float) -> str:
    """0.2337 → "23.4 %"."""
    return f"{100 * share:.1f} %"


def points(interval: Interval) -> str:
    """An interval in percentage points, in words."""
    return f"{signed(interval.mean)} points, 95 % interval {bounds(interval)}"


def bounds(interval: Interval) -> str:
    """[−0.1, +0.7]."""
    return f"[{signed(interval.low)}, {signed(interval.high)}]"


def counted(number: int, name: str) -> str:
    """1 seed, 2 seeds."""
    return f"{number} {name}{'' if number == 1 else 's'}"


def named_seeds(seeds: Iterable[int]) -> str:
    """seed 1; seeds 0, 1 and 2."""
    words = list(map(str, seeds))
    return f"seed{'s' if len(words) > 1 else ''} {listed(words)}"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def signed(value: float) -> str:
    """1.26 → "+1.3"; a second decimal, or a third, where fewer would read as zero but the value is
    not."""
    texts = (f"{value:+.{digits}f}" for digits in (1, 2, 3))
    return next((text.replace("-", "−") for text in texts if float(text) != 0), "0.0")
