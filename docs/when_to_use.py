"""`docs/when-to-use.md`: which setting to take when. Every number is read from `results/`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from reproduction_page import differences, interval, read_curves  # beside this file

from lens_ref.rlvr.statistics import t_interval

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"


class Summary:
    """A summary CSV, read cell by cell."""

    def __init__(self, path: str) -> None:
        self._table = pd.read_csv(RESULTS / path)

    def rows(self, **wanted: object) -> pd.DataFrame:
        """The rows with these values; `None` means an empty cell."""
        table = self._table
        for column, value in wanted.items():
            same = table[column].isna() if value is None else table[column] == value
            table = table[same]
        return table

    def row(self, **wanted: object) -> pd.Series:
        """The one row with these values."""
        found = self.rows(**wanted)
        if len(found) != 1:
            raise ValueError(f"{wanted}: {len(found)} rows")
        return found.iloc[0]

    def text(self, digits: int = 2, factor: float = 1.0, **wanted: object) -> str:
        """ "0.96 ± 0.01", or "not solved by 3 of 24" and the cap."""
        row = self.row(**wanted)
        if row["solved"] < row["n"]:
            return f"{row['solved']:.0f} of {row['n']:.0f} seeds solve it in {row['cap']:,.0f}"
        mean, half = factor * row["mean"], factor * row["ci95"]
        return f"{mean:,.{digits}f} ± {half:,.{digits}f}".replace("-", "−")


def page() -> str:
    """The whole page."""
    signal, harms = Summary("compare/summary_signal.csv"), Summary("compare/summary_harms.csv")
    language, toy = Summary("compare/summary_language.csv"), Summary("toy/summary.csv")

    def steps(method: str, optimizer: str, p_c: float, setting: str = "published") -> str:
        return signal.text(
            0,
            experiment="six_options",
            method=method,
            optimizer=optimizer,
            p_c=p_c,
            setting=setting,
        )

    def many(
        method: str, optimizer: str, setting: str = "published", what: str = "accuracy"
    ) -> str:
        return signal.text(
            experiment="questions_50x100",
            method=method,
            optimizer=optimizer,
            setting=setting,
            quantity=what,
            step=800,
        )

    def marked(method: str, optimizer: str, what: str = "accuracy") -> str:
        return harms.text(
            experiment="mislabelled", method=method, optimizer=optimizer, quantity=what, step=800
        )

    def shared(method: str, rho: str) -> str:
        return harms.text(0, experiment="shared_features", method=method, setting=f"rho={rho}")

    def unsolvable(method: str) -> str:
        return harms.text(
            experiment="unsolvable",
            method=method,
            setting="50x100 d=32",
            quantity="accuracy",
            step=400,
        )

    def sequence(method: str, what: str, digits: int = 1) -> str:
        return harms.text(
            digits,
            experiment="sequences",
            method=method,
            setting="unsolvable",
            quantity=what,
            step=1500,
        )

    def points(method: str, k: int = 1) -> str:
        text = language.text(
            1,
            100.0,
            method=method,
            quantity=f"pass@{k} minus GRPO",
            setting="all",
            step=language.rows(quantity=f"pass@{k} minus GRPO")["step"].max(),
        )
        return text if text.startswith("−") else f"+{text}"

    def small(method: str, group_size: int, optimizer: str, p_c: float) -> str:
        return toy.text(
            0,
            experiment="six_options",
            method=method,
            group_size=group_size,
            optimizer=optimizer,
            p_c=p_c,
        )

    curves = pd.read_csv(RESULTS / "compare/many_questions.csv")
    curves = curves[(curves["setting"] == "published") & (curves["optimizer"] == "adam")]
    entropy = curves.groupby(["method", "step"])["entropy"].mean()

    def entropy_at(method: str, first: bool = False) -> float:
        return float(entropy[method].loc[0] if first else entropy[method].max())

    study = differences(read_curves(RESULTS / "tiny_study"), "lens")
    twenty = f"{interval(t_interval(study))} points of pass@1 on the language model"
    loudness = language.row(method="lens_paper", quantity="neg_to_mixed_rms", step=60)["mean"]
    seeds = int(language.row(method="grpo", quantity="pass@1", setting="all", step=60)["n"])
    return f"""# When to use what

Written by `python docs/build.py`: every number is read from `results/`, made by
`python -m toy.compare --full` (toy, 20 to 96 seeds; language model, {seeds} seeds) and
`python -m toy --full`; ± is a 95 % interval. These are toys and a model of 0.13 M weights. They say
what a signal does; they don't say what it does at 3 B.

## In short

| your case | take | because |
|---|---|---|
| nothing special, or in doubt | GRPO, or LENS as printed | LENS − GRPO is {twenty} ({len(study)} seeds, [reproduction](reproduction.md)); its negative groups are 1:{1 / loudness:,.0f} as loud as mixed ones at the end |
| many correct answers marked wrong | GRPO | it never touches such questions; under SGD pooled D, NGRPO and NSR keep them too, under Adam none does |
| hard questions, a clean verifier, parameters of their own | NGRPO, `lens:preset=no_demean` | accuracy {many("ngrpo", "adam")} and {many("lens_no_demean", "adam")} against GRPO's {many("grpo", "adam")} on 50 × 100 options under Adam; NSR does better there, but see the next line |
| a language model | not the uniform −1 (`nsr`) | {points("nsr")} points against GRPO |
| questions that can't be solved, shared weights | GRPO or LENS as printed | strong negative signals spend the shared weights on them |

## A language model

- Difference from GRPO in pass@1, points, over {seeds} seeds: LENS as printed {points("lens_paper")},
  `normalized_difficulty` {points("lens_normalized_difficulty")}, `neg_unscaled`
  {points("lens_neg_unscaled")}, `no_demean` {points("lens_no_demean")}, pooled D
  {points("lens_pooled")}, RL-ZVP {points("rl_zvp")}. All of these intervals cover 0.
- Pooled D had no past to pool there: a run of 60 updates sees every question at most once, so it is
  `neg_unscaled` with another D in mixed groups (their negative groups are equally loud in the
  figure).
- Worse: `negative_std` {points("lens_negative_std")}, `likelihood` {points("lens_likelihood")},
  NGRPO {points("ngrpo")}, NSR {points("nsr")}.
- Pass@16, where `likelihood` ({points("lens_likelihood", 16)}) and `negative_std`
  ({points("lens_negative_std", 16)}) might win by their entropy: no difference can be told.
- [language.png](../results/compare/language.png),
  [language_training.png](../results/compare/language_training.png), `summary_language.csv`.

## Many mislabelled answers

- One question in five always marked wrong though the policy has it right. True accuracy there after
  800 updates of SGD: GRPO {marked("grpo", "sgd")}, LENS as printed {marked("lens_paper", "sgd")},
  `neg_unscaled` {marked("lens_neg_unscaled", "sgd")}, `negative_std`
  {marked("lens_negative_std", "sgd")}, pooled D {marked("lens_pooled", "sgd")}.
- Under Adam the size of a signal hardly matters, and LENS as printed forgets as much as
  `neg_unscaled`: {marked("lens_paper", "adam")} and {marked("lens_neg_unscaled", "adam")}; pooled D keeps {marked("lens_pooled", "adam")}, NGRPO
  {marked("ngrpo", "adam")}, NSR {marked("nsr", "adam")}, `no_demean`
  {marked("lens_no_demean", "adam")}.
- So: check the verifier before you turn negative groups up. The log says how loud they are
  (`neg_to_mixed_rms`) and why answers failed inside them (`neg_unparsable`, …).
- [mislabelled.png](../results/compare/mislabelled.png), `summary_harms.csv`. Each question here has
  parameters of its own, the worst case for Adam.

## Hard questions, a clean verifier

- 50 questions of 100 options, 98 % negative groups at first. Accuracy after 800 updates of Adam:
  GRPO {many("grpo", "adam")}, LENS as printed {many("lens_paper", "adam")}, `no_demean`
  {many("lens_no_demean", "adam")}, NGRPO {many("ngrpo", "adam")}, NSR {many("nsr", "adam")}. The
  last three flatten the policy first: the mean entropy rises from {entropy_at("grpo", first=True):.1f}
  to {entropy_at("lens_no_demean"):.1f}, {entropy_at("ngrpo"):.1f} and {entropy_at("nsr"):.1f} nats (uniform: 4.6).
  On the language model NSR is {points("nsr")} points off all the same.
- With SGD, each at its own size: GRPO {many("grpo", "sgd")}, LENS as printed
  {many("lens_paper", "sgd")}, `negative_std` {many("lens_negative_std", "sgd")},
  `posterior_std` (no α to tune) {many("lens_posterior_std", "sgd")}, DAPO's filter
  {many("dapo", "sgd")} (its mean is over the groups it keeps: larger steps), NSR {many("nsr", "sgd")}.
- At equal size, with SGD: GRPO {many("grpo", "sgd", "equal_size")}, LENS as printed
  {many("lens_paper", "sgd", "equal_size")}, NGRPO {many("ngrpo", "sgd", "equal_size")}, NSR
  {many("nsr", "sgd", "equal_size")}: there, pushing mistakes by
  their confidence beats pushing all of them, but leaving negative groups out does as well: DAPO's
  filter {many("dapo", "sgd", "equal_size")}. Under Adam all-negative signals win (figure).
- One question of six options from P(correct) = 1e-4, updates to 0.9 under Adam: GRPO
  {steps("grpo", "adam", 1e-4)}, LENS as printed {steps("lens_paper", "adam", 1e-4)}, `no_demean`
  {steps("lens_no_demean", "adam", 1e-4)}, NGRPO {steps("ngrpo", "adam", 1e-4)}.
- [many_questions.png](../results/compare/many_questions.png),
  [six_options.png](../results/compare/six_options.png), `summary_signal.csv`.

## Long responses

- On a question that can't be solved, sequences of up to 12 tokens grow from 2.9 to
  {sequence("nsr", "length")} tokens under NSR, {sequence("ngrpo", "length")} under NGRPO,
  {sequence("lens_no_demean", "length")} under `no_demean`; under LENS as printed
  {sequence("lens_paper", "length")}, under `negative_std` {sequence("lens_negative_std", "length")}.
- LENS on π̄ pays in entropy instead: `negative_std` ends at
  {sequence("lens_negative_std", "token_entropy", 2)} nats a token, uniform being 1.10, GRPO stays at
  {sequence("grpo", "token_entropy", 2)}.
- So: a uniform penalty needs a watch on length and truncation, a loud LENS one on entropy; both are
  logged. [sequences.png](../results/compare/sequences.png), `summary_harms.csv`.

## LoRA with Adam

- Adam rescales whatever is small and steady. As printed, LENS's negative groups are
  1:{1 / loudness:,.0f} as loud as the mixed ones, and it still changes most of the outcome where a parameter sees negative groups
  alone: mislabelled questions above.
- Where parameters are shared, as in an adapter, that is milder: half of 50 questions unsolvable, 32
  parameters, Adam: accuracy on the solvable half GRPO {unsolvable("grpo")}, LENS as printed
  {unsolvable("lens_paper")}, pooled D {unsolvable("lens_pooled")}, `neg_unscaled`
  {unsolvable("lens_neg_unscaled")}, `negative_std` {unsolvable("lens_negative_std")}, NSR
  {unsolvable("nsr")}.
- The same with a right answer that shares features with a confident mistake (correlation 0.8, SGD,
  updates to 0.9): GRPO {shared("grpo", "0.8")}, LENS as printed {shared("lens_paper", "0.8")};
  `negative_std`: {shared("lens_negative_std", "0.8")}. At 0.95: GRPO
  {shared("grpo", "0.95")}, LENS as printed {shared("lens_paper", "0.95")}, pooled D
  {shared("lens_pooled", "0.95")}. Unrelated features turn the order round:
  {shared("grpo", "0")} and {shared("lens_negative_std", "0")}.
- The language model above was trained with AdamW on all weights. An adapter was trained on a larger one,
  with GRPO, LENS as printed, each half of it, `no_demean`, `normalized_difficulty`, NGRPO and NSR, which ended at 0 %: [reproduction.md](reproduction.md#qwen25-coder-05b-on-gsm8k).
- [unsolvable.png](../results/compare/unsolvable.png),
  [shared_features.png](../results/compare/shared_features.png), `summary_harms.csv`.

## Small G

- The fewer answers, the more groups are all wrong and the fewer of them hold two different ones,
  which a de-meaned signal needs. Six options from P(correct) = 1e-4, Adam, updates to 0.9: at G = 4
  GRPO {small("grpo", 4, "adam", 1e-4)}, LENS as printed
  {small("lens_paper", 4, "adam", 1e-4)}, `no_demean` {small("lens_no_demean", 4, "adam", 1e-4)}; at
  G = 16 {small("grpo", 16, "adam", 1e-4)}, {small("lens_paper", 16, "adam", 1e-4)} and
  {small("lens_no_demean", 16, "adam", 1e-4)}.
- With SGD from 1e-3: at G = 4 GRPO {small("grpo", 4, "sgd", 1e-3)}, LENS as printed
  {small("lens_paper", 4, "sgd", 1e-3)}, `negative_std` {small("lens_negative_std", 4, "sgd", 1e-3)};
  at G = 16 {small("grpo", 16, "sgd", 1e-3)}, {small("lens_paper", 16, "sgd", 1e-3)} and
  {small("lens_negative_std", 16, "sgd", 1e-3)}.
- [results/toy](../results/toy/README.md), `summary.csv`.
"""
