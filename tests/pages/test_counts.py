"""Numbers in the prose of the pages: counts are counted, sizes are those of the code, and what was
measured is what the files in results/ say."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lens_ref import methods
from lens_ref.evaluating import questions, resampling
from lens_ref.evaluating.sampling import Plan
from lens_ref.reporting.paper import published
from lens_ref.reporting.settings import at_end, quarter
from lens_ref.rlvr.config import Config, load
from lens_ref.rlvr.logprobs import LOGITS_CHUNK
from lens_ref.rlvr.report_data import Run, read_runs
from lens_ref.rlvr.report_verdict import bounds, signed
from lens_ref.rlvr.statistics import RESAMPLES, detectable, t_interval
from lens_ref.rlvr.untrusted import secrets
from lens_ref.tiny import study, task
from lens_ref.tiny.study import METHODS
from lens_ref.verifier import MAX_ANSWER_CHARS, algebra, grading
from notebooks.exercises import checks  # noqa: F401  (it fills EXERCISES)
from notebooks.exercises.checking import EXERCISES
from tests.pages.inspected import PROJECT
from tests.pages.reading import ROOT, pages
from tests.rlvr.test_estimates import HARD, HARD_SHARED, SHARED
from tests.soak import long
from toy import reference
from toy.tables import compare, read_table

ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
WORDS = f"{ONES} fifteen sixteen seventeen eighteen nineteen twenty".split()
WORDS += [f"twenty-{one}" for one in WORDS[1:10]]
NUMBERS = re.compile(r"<!-- (numbers|gsm8k|math): begin -->.*?<!-- \1: end -->", re.S)
RESULTS = ROOT / "results"


def say(number: int) -> str:
    """The number as a word."""
    return WORDS[number]


@cache
def prose(page: str) -> str:
    """The page on one line, without what is written from results/."""
    return " ".join(NUMBERS.sub("", (ROOT / page).read_text(encoding="utf-8")).split())


@cache
def table(name: str) -> pd.DataFrame:
    return pd.read_csv(RESULTS / name, dtype={"level": str})


def read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def notebooks() -> int:
    return len(list((ROOT / "notebooks").glob("[0-9]*.ipynb")))


def parameters() -> int:
    text = (ROOT / "lens_ref/tiny/policy/PROVENANCE.json").read_text(encoding="utf-8")
    return json.loads(text)["parameters"]


def soak_hours() -> str:
    seconds = sum(json.loads(p.read_text())["seconds"] for p in RESULTS.glob("reliability/*.json"))
    return "an hour" if 0.6 < seconds / 3600 < 1.4 else f"{seconds / 3600:.1f} hours"


def updates_of_512(recipe: str = "paper/common") -> str:
    rollout, loss = load(recipe).rollout, load(recipe).loss
    return (
        f"{rollout.questions} questions × {rollout.responses} answers of up to "
        f"{rollout.max_new_tokens:,} tokens, {say(loss.updates_per_rollout)} clipped updates of "
        f"{rollout.questions * rollout.responses // loss.updates_per_rollout} answers"
    )


def bundled() -> tuple[int, int, int]:
    """Updates, questions an update, answers a question of the demo."""
    config = Config()
    return (
        config.steps,
        config.rollout.questions // config.loss.updates_per_rollout,
        config.rollout.responses,
    )


def gains() -> list[float]:
    """What the paper reports of LENS beyond GRPO, pass@1, points."""
    values = published()
    keys = {(t, row.split(":")[0]) for t, row, _ in values}
    ours = [(t, f"{m}: LENS (Ours)", f"{m}: GRPO baseline") for t, m in keys]
    return [
        float(values[t, lens, "pass@1"]) - float(values[t, grpo, "pass@1"])
        for t, lens, grpo in ours
        if (t, lens, "pass@1") in values
    ]


def spread(seeds: int) -> float:
    """Standard deviation over the first seeds of LENS − GRPO at the end, points of pass@1."""
    curves = table("tiny_study/curves.csv")
    end = curves[(curves["level"] == "all") & (curves["step"] == curves["step"].max())]
    by_seed = end.pivot_table(index="seed", columns="method", values="pass@1")
    return 100 * (by_seed["lens"] - by_seed["grpo"])[by_seed.index < seeds].std(ddof=1)


@cache
def agreement(one_question_set: bool) -> pd.DataFrame:
    """Uncensored cells of the toy and of the independent simulation, `z` standard errors apart."""
    theirs = read_table(reference.SAMPLED)
    if not one_question_set:
        theirs = theirs.drop(columns="one_question_set")
    cells = compare(read_table(RESULTS / "toy/summary.csv"), theirs).cells
    cells = cells[~cells["censored"]]
    return cells.assign(
        z=cells["standard_errors"].abs(), hundred=cells["experiment"] != "six_options"
    )


def covered(one_question_set: bool, hundred: bool) -> tuple[int, int]:
    """Cells whose 95 % interval covers 0, of how many."""
    cells = agreement(one_question_set)
    chosen = cells[cells["hundred"] == hundred]
    return int((chosen["z"] <= 1.96).sum()), len(chosen)


def seeds_of(name: str) -> list[str]:
    return [str(seed) for seed in sorted(set(table(f"tiny/{name}.csv")["seed"]))]


Stated = tuple[str, str, Callable[[], Any]]
STATED: list[Stated] = [
    ("README.md", "{} notebooks that run", lambda: say(notebooks())),
    ("README.md", "{} exercises with checks", lambda: say(len(EXERCISES))),
    ("README.md", "says for all {} what they do", lambda: say(len(methods.names()))),
    ("README.md", "{} treatments of negative groups", lambda: say(len(methods.names()))),
    ("README.md", "{} treatments on the bundled policy, 20 seeds", lambda: say(len(METHODS))),
    ("README.md", "arithmetic modulo {}", lambda: task.MODULUS),
    ("README.md", "{} levels", lambda: say(len(task.LEVELS))),
    ("README.md", "policy ({} M weights)", lambda: f"{parameters() / 1e6:.2f}"),
    ("README.md", "{:,} updates", lambda: long.UPDATES),
    ("README.md", "updates: {} (", soak_hours),
    ("CHANGELOG.md", "seeds of {} treatments on the bundled policy", lambda: say(len(METHODS))),
    ("docs/gpu.md", "{}", updates_of_512),
    ("docs/gpu.md", "({} MiB)", lambda: LOGITS_CHUNK["cuda"] * 4 // 2**20),
    (
        "docs/gpu.md",
        "{0[0]} runs of {0[1]} updates each",
        lambda: (say(len(larger_runs())).capitalize(), larger_runs()[0].config["steps"]),
    ),
    ("docs/gpu.md", "it says {:.1f} GB where", lambda: read_memory()["peak_gb"].max()),
    ("docs/gpu.md", "where {:.1f} GB are in use", lambda: read(MEMORY)["peak_gb"]),
    ("docs/gpu.md", "took {0[0]:.0f} to {0[1]:.0f} s. Three", lambda: evaluation_seconds()),
    (
        "docs/gpu.md",
        "as fast as Hugging Face + PEFT, and are {:.2f} times where",
        lambda: read(UPDATE)["ratios"]["hf_peft"],
    ),
    (
        "CHANGELOG.md",
        "Within 20 GB Qwen2.5-3B: {:.2f} times",
        lambda: read(UPDATE)["ratios"]["hf_peft"],
    ),
    ("CHANGELOG.md", "with two rows at once {:.2f};", lambda: speed_up(TWO_ROWS)),
    ("CHANGELOG.md", "Llama-3.1-8B: {:.2f} times", lambda: read(LLAMA)["ratios"]["hf_peft"]),
    ("CHANGELOG.md", "GSM8K, {} seeds each", lambda: say(len(larger_seeds()))),
    ("docs/gpu.md", "are {:.2f} times as fast: under", lambda: speed_up(TWO_ROWS)),
    (
        "docs/gpu.md",
        "cuDNN's attention ({:.2f} s of an update",
        lambda: read(UPDATE)["profile"]["seconds"]["attention"],
    ),
    (
        "docs/gpu.md",
        "What is left is {:.2f} s in which the GPU waits",
        lambda: read(UPDATE)["profile"]["wall"] - read(UPDATE)["profile"]["busy"],
    ),
    (
        "docs/gpu.md",
        "two runs of the 0.5B model sampled about {:,} tokens/s each",
        lambda: int(round(sampling_speed(larger_runs(*PAIR)), -3)),
    ),
    (
        "docs/gpu.md",
        "Three on one card (`no_demean`) sampled about {:,} each",
        lambda: int(round(sampling_speed(larger_runs(NO_DEMEAN)), -3)),
    ),
    (
        "docs/gpu.md",
        "took {:.1f} times as long, an eighth more in all;",
        lambda: times_as_long(NO_DEMEAN),
    ),
    (
        "docs/gpu.md",
        "negative groups only) {0[0]:,} each in {0[1]:.1f} times as long, a quarter",
        lambda: (int(round(sampling_speed(larger_runs(*HALVES)), -3)), times_as_long(*HALVES)),
    ),
    (
        "docs/gpu.md",
        "the last {} of the runs",
        lambda: say(len(larger_runs(*HALVES, NO_DEMEAN, "nsr", *SINGLE))),
    ),
    (
        "docs/gpu.md",
        "once now: {0[0]:.0f} to {0[1]:.0f} ms with seeds 3 and 4",
        lambda: advantage_milliseconds(3, 4),
    ),
    (
        "docs/gpu.md",
        "{0[0]:.0f} to {0[1]:.0f} ms with four threads, seeds 0 and 1,",
        lambda: advantage_milliseconds(0, 1),
    ),
    (
        "docs/gpu.md",
        "{0[0]:.0f} to {0[1]:.0f} ms with one, seed 2,",
        lambda: advantage_milliseconds(2),
    ),
    ("docs/evaluation.md", "`math-test` ({:,})", lambda: questions.source("math-test").expect),
    ("docs/evaluation.md", "`gsm8k-test` ({:,})", lambda: questions.source("gsm8k-test").expect),
    ("docs/evaluation.md", "holds {} of the 5,000 MATH", lambda: SHARED),
    ("docs/evaluation.md", "{:.1f} % of levels 4 and 5", lambda: 100 * HARD_SHARED / HARD),
    ("docs/evaluation.md", "{:,} resamples", lambda: RESAMPLES),
    ("docs/evaluation.md", "Up to {} questions that differ", lambda: resampling.ENUMERATED),
    ("docs/evaluation.md", "(`--n`, default {})", lambda: Plan().n),
    ("docs/verifier.md", "at most {:,} characters", lambda: MAX_ANSWER_CHARS),
    ("docs/verifier.md", "at most {} levels deep", lambda: grading.MAX_DEPTH),
    ("docs/verifier.md", "at most {} characters", lambda: algebra.MAX_EXPRESSION_CHARS),
    ("docs/reproduction.md", "and reports {:.1f} to", lambda: min(gains())),
    ("docs/reproduction.md", "to {:.1f} points of pass@1 more", lambda: max(gains())),
    ("docs/reproduction.md", "{} million weights", lambda: f"{parameters() / 1e6:.2f}"),
    ("docs/reproduction.md", "arithmetic modulo {}", lambda: task.MODULUS),
    ("docs/reproduction.md", "one of {} results", lambda: say(task.RANDOM_CHOICES)),
    ("docs/reproduction.md", "{} arms", lambda: say(len(METHODS)).title()),
    ("docs/reproduction.md", "the {} updates were fixed", lambda: bundled()[0]),
    (
        "docs/reproduction.md",
        "all {} arms of the protocol, with all their seeds",
        lambda: say(len({run.label for run in larger_runs()})),
    ),
    (
        "docs/reproduction.md",
        "{} seeds exclude little",
        lambda: say(len(ends(NO_DEMEAN))).title(),
    ),
    ("docs/reproduction.md", "the last {} arms: `cache_gb`", lambda: say(len(arms_by_cache()))),
    ("docs/reproduction.md", "nats: LENS as printed {},", lambda: of_entropy("lens")),
    ("docs/reproduction.md", "mixed groups only {},", lambda: of_entropy(HALVES[0])),
    ("docs/reproduction.md", "negative groups only {},", lambda: of_entropy(HALVES[1])),
    ("docs/reproduction.md", "`no_demean` {}).", lambda: of_entropy(NO_DEMEAN)),
    ("docs/reproduction.md", "`no_demean` is at {} points", lambda: against_lens(NO_DEMEAN)),
    ("docs/reproduction.md", "mixed groups only at {},", lambda: against_lens(HALVES[0])),
    ("docs/reproduction.md", "negative groups only at {}.", lambda: against_lens(HALVES[1])),
    (
        "docs/reproduction.md",
        "end between {0[0]:.1f} and {0[1]:.1f} %.",
        lambda: [extreme(ends(*PAIR, *HALVES, NO_DEMEAN, *SINGLE)) for extreme in (min, max)],
    ),
    (
        "docs/reproduction.md",
        "first lie among those of LENS's other arms with that seed, {0[0]} to {0[1]}; with seeds 1 "
        "and 2 the same arms stand at {0[2]} to {0[3]}.",
        lambda: pass_at_8(),
    ),
    ("docs/reproduction.md", "and {} seeds can't tell that", lambda: say(len(larger_seeds()))),
    (
        "docs/reproduction.md",
        "deviation of {0[0]:.1f} points under GRPO, {0[1]:.1f} under LENS, and their difference "
        "one of {0[2]:.1f}.",
        lambda: deviations(),
    ),
    (
        "docs/reproduction.md",
        "from {0[0]:.0f} % in the first eight updates to {0[1]:.0f} % in the last.",
        lambda: first_and_last("negative_share"),
    ),
    (
        "docs/reproduction.md",
        "about {0[0]:.0f} % were cut at 320 tokens in the first eight updates, "
        "{0[1]:.0f} % in the last.",
        lambda: first_and_last("truncated_share"),
    ),
    (
        "docs/gpu.md",
        "one sampled {:,} (MATH).",
        lambda: int(round(sampling_speed([on_math(label) for label in PAIR]), -3)),
    ),
    (
        "docs/reproduction.md",
        "works where {:.0f} % of the groups are negative in its first quarter",
        lambda: 100 * np.mean([quarter(on_math(x), "negative_share", last=False) for x in PAIR]),
    ),
    (
        "docs/reproduction.md",
        "a standard deviation over seeds of {0[0]:.1f} points in pass@1 and {0[1]:.1f} in pass@2;",
        lambda: [(ends("lens", k=k) - ends("grpo", k=k)).std(ddof=1) for k in (1, 2)],
    ),
    (
        "docs/reproduction.md",
        "neither the {0[0]} nor the {0[1]} of pass@2,",
        lambda: [
            signed(100 * (at_end(on_math("lens"), k) - at_end(on_math("grpo"), k)))
            for k in ("pass@1", "pass@2")
        ],
    ),
    (
        "docs/reproduction.md",
        "that are {0[0]:.0f} times smaller an answer, much as on GSM8K ({0[1]:.0f}).",
        lambda: [1 / loud.median() for loud, _ in loudness()],
    ),
    (
        "docs/reproduction.md",
        "there are {} times as many negative ones here",
        lambda: say(round(np.divide(*negative_a_mixed_group()))),
    ),
    (
        "docs/reproduction.md",
        "they weigh 1 : {0[0]:,.0f} where it was 1 : {0[1]:,.0f}:",
        lambda: [1 / together.median() for _, together in loudness()],
    ),
    (
        "docs/reproduction.md",
        "{0[0]:.0f} % in the first quarter and {0[1]:.0f} % in the last under GRPO, {0[2]:.0f} and "
        "{0[3]:.0f} % under LENS.",
        lambda: [
            100 * quarter(on_math(x), "truncated_share", last)
            for x in PAIR
            for last in (False, True)
        ],
    ),
    (
        "docs/reproduction.md",
        "({0[0]:.0f} tokens, GRPO's {0[1]:.0f}; {0[2]:.0f} before)",
        lambda: [
            *(at_end(on_math(label), "mean_length") for label in ("lens", "grpo")),
            on_math("grpo").evals.iloc[0]["mean_length"],
        ],
    ),
    (
        "docs/reproduction.md",
        "last quarter {0[1]:.0f} % of its groups are negative, not {0[0]:.0f} % as",
        lambda: [100 * quarter(on_math(x), "negative_share", last=True) for x in PAIR],
    ),
    (
        "docs/reproduction.md",
        "deviations of {0[0]:.0f} tokens and {0[1]:.1f} points over seeds",
        lambda: (
            seed_spread(lambda run: at_end(run, "mean_length")),
            seed_spread(lambda run: 100 * quarter(run, "negative_share", last=True)),
        ),
    ),
    (
        "docs/reproduction.md",
        "two H200, {0[1]:.0f} and {0[0]:.0f} minutes,",
        lambda: [on_math(label).manifest["wall_seconds"] / 60 for label in PAIR],
    ),
    ("configs/README.md", "MATH + {:,} of DAPO", lambda: dapo().sample),
    ("results/README.md", "with {} treatments", lambda: say(len(METHODS))),
    ("results/README.md", "{0[0]} updates of {0[1]} questions × {0[2]} answers", bundled),
    ("results/README.md", "{} test questions × 16", lambda: Config().data.test_questions),
    ("results/README.md", "GRPO only, seeds {} |", lambda: " and ".join(seeds_of("grpo_sweep"))),
    ("results/compare/README.md", "{} runs, an hour on two", lambda: language()["cells"]),
    (
        "results/compare/README.md",
        "each took {:.0f} s",
        lambda: language()["cpu_seconds"] / language()["cells"],
    ),
    (
        "results/toy/README.md",
        "Of its {} uncensored cells the 95 % interval of the difference covers 0 in",
        lambda: len(agreement(True)),
    ),
    (
        "results/toy/README.md",
        "covers 0 in {} and",
        lambda: covered(True, True)[0] + covered(True, False)[0],
    ),
    ("results/toy/README.md", "errors ({:.1f} at most)", lambda: agreement(True)["z"].max()),
    ("results/toy/README.md", "all {0[1]} of the six-option", lambda: covered(True, False)),
    ("results/toy/README.md", "{0[0]} of {0[1]} of the 100-option", lambda: covered(True, True)),
    ("results/toy/README.md", "alone it is {0[0]} of {0[1]}", lambda: covered(False, True)),
    (
        "results/toy/README.md",
        "up to {:.1f} standard errors",
        lambda: agreement(False).query("hundred")["z"].max(),
    ),
]


MEMORY, UPDATE = "benchmarks/memory-qwen2.5-3b.json", "benchmarks/update-qwen2.5-3b.json"
LLAMA = "benchmarks/update-llama-3.1-8b.json"


def read_memory() -> pd.DataFrame:
    """What the run inside 24 GB logged."""
    return pd.read_csv(io.StringIO("\n".join(read(MEMORY)["metrics"])))


PAIR, NO_DEMEAN = ("grpo", "lens"), "lens-no_demean"
HALVES = ("lens-groupsmixed", "lens-groupsnegative")
SINGLE = ("lens-normalized_difficulty", "ngrpo")


@cache
def larger_runs(*labels: str) -> list[Run]:
    """Those of some methods, or all."""
    runs = read_runs(RESULTS / "reproduction-0.5b")
    return [run for run in runs if run.label in labels or not labels]


@cache
def on_math(label: str) -> Run:
    """The run of a method on MATH."""
    (run,) = [run for run in read_runs(RESULTS / "reproduction-0.5b-math") if run.label == label]
    return run


def lens_on_both() -> list[pd.DataFrame]:
    """What LENS as printed logged on MATH and, all seeds together, on GSM8K."""
    return [on_math("lens").metrics, pd.concat([run.metrics for run in larger_runs("lens")])]


def loudness() -> list[tuple[pd.Series, pd.Series]]:
    """RMS advantage of negative groups over that of mixed ones by update, and the same times their
    numbers: on MATH, on GSM8K."""
    return [
        (rows["neg_to_mixed_rms"],
         rows["neg_to_mixed_rms"] * rows["negative_share"] / rows["mixed_share"])
        for rows in lens_on_both()
    ]  # fmt: skip


def negative_a_mixed_group() -> list[float]:
    """Negative groups for each mixed one: on MATH, on GSM8K."""
    return [rows["negative_share"].sum() / rows["mixed_share"].sum() for rows in lens_on_both()]


def seed_spread(measure: Callable[[Run], float]) -> float:
    """Standard deviation over GSM8K's seeds of LENS minus GRPO."""
    base, lens = (np.array([measure(run) for run in larger_runs(label)]) for label in PAIR)
    return float((lens - base).std(ddof=1))


def larger_seeds() -> set[int]:
    return {run.seed for run in larger_runs()}


def ends(*labels: str, k: int = 1) -> np.ndarray:
    """pass@k of some larger runs, or all, at the end, points, by seed."""
    return 100 * np.array([at_end(run, f"pass@{k}") for run in larger_runs(*labels)])


def arms_by_cache() -> set[str]:
    """Those of which all runs set how much vLLM keeps for keys and values."""
    runs = larger_runs()
    others = {run.label for run in runs if "cache_gb" not in run.manifest["command"]}
    return {run.label for run in runs} - others


def against_lens(label: str) -> str:
    """Points of pass@1 minus LENS as printed of the same seeds."""
    its = ends(label)
    found = t_interval(its - ends("lens")[: len(its)])
    return f"{signed(found.mean)} {bounds(found)}"


def pass_at_8() -> list[str]:
    """Lowest and highest of LENS's arms of several seeds minus GRPO, points: seed 0, seeds 1, 2."""
    arms = ("lens", *HALVES, NO_DEMEAN)
    changes = np.array([ends(each, k=8)[:3] - ends("grpo", k=8)[:3] for each in arms])
    return [signed(x) for part in (changes[:, 0], changes[:, 1:]) for x in (part.min(), part.max())]


def deviations() -> list[float]:
    """Of pass@1 over seeds, points: GRPO's, LENS's, that of their difference."""
    base, lens = ends("grpo"), ends("lens")
    return [float(x.std(ddof=1)) for x in (base, lens, lens - base)]


def first_and_last(column: str) -> tuple[float, float]:
    """A share in the first and last eight updates, %, over the runs of GRPO and LENS."""
    rows = pd.concat([run.metrics for run in larger_runs(*PAIR)])
    first, last = rows[rows["step"] <= 8][column], rows[rows["step"] > 112][column]
    return 100 * first.mean(), 100 * last.mean()


def evaluation_seconds() -> tuple[float, float]:
    """Shortest and longest of the two evaluations of a run, the first with the sampler's check:
    what the phases of its first update and the time of its last one leave."""
    seconds = list[float]()
    for run in larger_runs(*PAIR):
        first, whole = run.metrics.iloc[0], run.metrics["seconds"]
        phases = sum(first[name] for name in first.index if name.endswith("_seconds"))
        seconds += [first["seconds"] - phases, run.manifest["wall_seconds"] - whole.iloc[-1]]
    return min(seconds), max(seconds)


TWO_ROWS = "lens_ref_budget8192_recomputed0_less"


def speed_up(variant: str) -> float:
    """Of an update of Qwen2.5-3B, over Hugging Face + PEFT."""
    variants = read(UPDATE)["variants"]
    return variants[variant]["tokens_per_second"] / variants["hf_peft_m4"]["tokens_per_second"]


def sampling_speed(runs: list[Run]) -> float:
    """Tokens/s, median over all batches."""
    rows = pd.concat([run.metrics for run in runs])
    return float(rows["rollout_tokens_per_second"].median())


def advantage_milliseconds(*seeds: int) -> tuple[float, float]:
    """Smallest and largest median over a run's batches."""
    runs = [run for run in larger_runs(*PAIR) if run.seed in seeds]
    medians = [1e3 * run.metrics["advantage_seconds"].median() for run in runs]
    return min(medians), max(medians)


def wall_seconds(*labels: str) -> float:
    return float(np.mean([run.manifest["wall_seconds"] for run in larger_runs(*labels)]))


def times_as_long(*labels: str) -> float:
    """Of a run with two others on its card, against one with one other."""
    return wall_seconds(*labels) / wall_seconds(*PAIR)


def entropies(label: str) -> np.ndarray:
    """In the last 30 updates, by seed."""
    runs = larger_runs(label)
    return np.array([run.metrics.query("step > 90")["entropy"].mean() for run in runs])


def of_entropy(label: str) -> str:
    """Minus GRPO's, nats, with Student's interval."""
    its = entropies(label)
    found = t_interval(its - entropies("grpo")[: len(its)])
    mean, *bounds = (
        f"{value:+.3f}".replace("0.", ".").replace("-", "−")
        for value in (found.mean, found.low, found.high)
    )
    assert found.covers_zero
    return f"{mean} [{', '.join(bounds)}]"


def test_what_the_seeds_say_without_the_de_meaning() -> None:
    """ "losses of 3.5 and gains of 3.9 points … for `no_demean`, more for the halves", "a hundred
    times as loud, at a fifth", "an eighth more in all", "a quarter more in all" """
    found = {each: t_interval(ends(each) - ends("grpo")[:3]) for each in (*HALVES, NO_DEMEAN)}
    least, most = found[NO_DEMEAN].low, found[NO_DEMEAN].high
    assert (least, most) == pytest.approx((-3.5, 3.9), abs=0.05)
    assert all(found[half].low < least and found[half].high > most for half in HALVES)
    loud = [
        pd.concat([run.metrics for run in larger_runs(label)])["neg_to_mixed_rms"].median()
        for label in (NO_DEMEAN, "lens")
    ]
    assert loud[0] == pytest.approx(1 / 5, rel=0.05)
    assert 80 < loud[0] / loud[1] < 130
    assert 3 / times_as_long(NO_DEMEAN) / 2 == pytest.approx(9 / 8, 0.02)
    assert 3 / times_as_long(*HALVES) / 2 == pytest.approx(5 / 4, 0.02)


def test_all_arms_have_grpos_runs_on_the_other_side() -> None:
    """ "two ended below every arm in pass@1 and the third above every one" """
    arms = ("lens", *HALVES, NO_DEMEAN)
    signs = {tuple(np.sign(ends(each)[:3] - ends("grpo")[:3])) for each in arms}
    assert signs == {(1, 1, -1)}
    assert ends(SINGLE[0]) > ends("grpo")[0]  # "all arms of LENS", says notebook 10


def test_what_nsr_does() -> None:
    """ "before update 50", "95 % or more are cut", "from .34–.35 nats … to 2.1–4.3", "none …,
    the third 5" """
    runs = larger_runs("nsr")
    assert all(run.metrics.query("negative_share == 1")["step"].min() < 50 for run in runs)
    last = [run.metrics.iloc[-1]["truncated_share"] for run in runs]
    assert 0.95 < min(last) < 0.96
    parts = [
        [run.metrics.query(steps)["entropy"].mean() for run in runs]
        for steps in ("step <= 10", "step > 110")
    ]
    ranges = [(min(part), max(part)) for part in parts]
    assert ranges[0] == pytest.approx((0.34, 0.35), abs=0.005)
    assert ranges[1] == pytest.approx((2.1, 4.3), abs=0.05)
    right = [int(run.counts.query("step == 120")["correct"].sum()) for run in runs]
    assert sorted(right) == [0, 0, 5]


def test_what_the_seeds_say_of_the_papers_gains() -> None:
    """ "above GRPO with three", "in pass@8 above it with four", and where the interval ends"""
    changes = {k: ends("lens", k=k) - ends("grpo", k=k) for k in (1, 8)}
    assert [int((changes[k] > 0).sum()) for k in (1, 8)] == [3, 4]
    assert t_interval(changes[1]).high == pytest.approx(min(gains()), abs=0.1)


def test_runs_of_a_seed_begin_alike() -> None:
    """ "they had every count of the 1,319 × 8 answers alike", "the first four updates have the same
    rewards and lengths", and they lost that on the way."""
    runs = {(run.label, run.seed): run.counts for run in larger_runs()}
    metrics = {(run.label, run.seed): run.metrics for run in larger_runs()}
    for (label, seed), counts in runs.items():
        base = runs["grpo", seed]
        before, after = (counts["step"] == step for step in (0, counts["step"].max()))
        assert before.sum() == after.sum() == 1319
        assert (counts["n"] == 8).all()
        assert counts[before].equals(base[before])
        first = metrics[label, seed].loc[:3, ["reward", "mean_length"]]
        assert first.equals(metrics["grpo", seed].loc[:3, first.columns])
        assert counts is base or not counts[after].equals(base[after])


def dapo() -> Any:
    return load("paper/math-dapo").data.train[1]


def language() -> dict[str, Any]:
    return read("compare/manifest_language.json")


@pytest.mark.parametrize(("page", "sentence", "number"), STATED)
def test_what_is_stated_is_so(page: str, sentence: str, number: Callable[[], Any]) -> None:
    assert sentence.format(number()) in prose(page)


# Counts of what the project itself has, that no row above holds, and why.
OTHERS = {
    "two notebooks": "days 2 and 4 of a plan, whose table names them",
    "two seeds": "the paper's runs",
    "20 seeds": "the study's default, below",
    "twenty seeds": "the same",
    "three seeds": "a project for students",
    "five seeds": "an exam question",
    "two methods": "any two",
    "50 of exercises": "minutes",
}
GENERATED = {"docs/when-to-use.md", "docs/reliability.md", "docs/methods.md", "docs/metrics.md"}
COUNTED = re.compile(
    rf"(?i)\b(?:{'|'.join(WORDS)}|\d[\d,]*) (?:of )?"
    r"(?:methods|notebooks|exercises|mutants|presets|treatments|seeds|arms)\b"
)


def test_no_count_of_the_project_stands_unchecked() -> None:
    others = set()
    for path in pages():
        page = str(path.relative_to(ROOT))
        checked = " ".join(s.format(n()) for p, s, n in STATED if p == page)
        for count in COUNTED.findall(prose(page)):
            if page not in GENERATED and count not in checked:
                assert count.lower() in OTHERS, f"{page}: {count}"
                others.add(count.lower())
    assert others == set(OTHERS)


def test_the_study_has_no_more_seeds_than_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = list[int]()
    monkeypatch.setattr(study, "run_seed", lambda out, seed, methods: seeds.append(seed) or 0)
    assert study.main(["--out", str(tmp_path)]) == 0
    assert len(seeds) == 20
    assert table("tiny_study/curves.csv")["seed"].nunique() <= len(seeds)
    assert table("tiny_study/curves.csv")["method"].nunique() == len(METHODS)


def test_what_the_first_five_seeds_had_shown() -> None:
    """ "half a point, which would have let 20 seeds find a third of a point", of more seeds more"""
    assert spread(5) == pytest.approx(0.5, abs=0.05)
    assert detectable(spread(5), 20) == pytest.approx(1 / 3, abs=0.03)
    assert spread(20) > spread(5)


def test_as_many_groups_are_negative_as_of_the_papers() -> None:
    updates = table("tiny_study/updates.csv")
    first = updates[updates["step"] <= Config().loss.updates_per_rollout]
    assert first["negative_share"].mean() == pytest.approx(0.45, abs=0.02)


def test_versions_that_ran_on_a_gpu_are_those_of_the_environment() -> None:
    said = re.search(r"with (torch 2[^:]*):", prose("docs/gpu.md"))
    assert said is not None
    lines = (ROOT / "environment.yml").read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))
    versions = re.findall(r"(\w+) (\d+\.\d+\.\d+)", said[1])
    assert len(versions) == 5
    for package, version in versions:
        assert f"{package.lower()} {version}" in comment


def test_pythons_are_those_that_are_allowed() -> None:
    assert PROJECT["project"]["requires-python"] == ">=3.11,<3.14"
    for page in ("README.md", "docs/teaching.md"):
        assert "Python 3.11 to 3.13" in prose(page)


def test_corpora_were_chosen_on_other_seeds() -> None:
    assert seeds_of("corpus_sweep") == ["100", "101", "102", "201", "202", "203", "204", "205"]
    assert "seeds 100 to 102 and 201 to 205" in prose("results/README.md")
    assert seeds_of("curves") == ["0", "1", "2", "3", "4"]
    assert "seeds 0 to 4 of `curves.csv` were never used" in prose("results/README.md")


def test_how_long_a_secret_is() -> None:
    assert "(8 characters or more)" in prose("SECURITY.md")
    assert not secrets({"A_TOKEN": "x" * 7})
    assert secrets({"A_TOKEN": "x" * 8})
