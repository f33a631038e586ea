"""Draw the README's figure and fill in its numbers from results/: `python docs/build.py`.

`--check` changes nothing and fails if a page would change.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gpu_page  # these six are beside this file
import gsm8k_page
import matplotlib as mpl
import methods_page
import pandas as pd
import reliability_page
import reproduction_page
import torch
import when_to_use

mpl.use("Agg")
import matplotlib.pyplot as plt

from lens_ref import Rollouts, methods
from lens_ref.reporting.find import find
from lens_ref.rlvr.metrics import markdown
from lens_ref.rlvr.report_data import display
from lens_ref.rlvr.report_verdict import percent, points
from lens_ref.rlvr.statistics import detectable, t_interval

ROOT = Path(__file__).resolve().parent.parent
STUDY = ROOT / "results/tiny_study"
LARGER = {
    "GSM8K": ROOT / "results/reproduction-0.5b",
    "MATH": ROOT / "results/reproduction-0.5b-math",
}
"""The runs of Qwen2.5-Coder-0.5B, by what it was trained on."""
MARKS = ("<!-- {}: begin -->", "<!-- {}: end -->")
CONFIDENCES = (0.9, 0.8, 0.5, 0.2)
STYLES = {"grpo": ("0.45", "--", "o"), "lens": ("tab:blue", "-", "s")}
OTHER = ("tab:orange", ":", "^")


def curves() -> pd.DataFrame:
    """pass@1 on all test questions: a row a method, seed and update."""
    table = pd.read_csv(ROOT / "results/tiny/curves.csv")
    return table[table["level"] == "all"]


def one_group() -> dict[str, list[float]]:
    """The advantages of GRPO and of LENS as printed on one all-wrong group of four."""
    pi = torch.tensor([CONFIDENCES], dtype=torch.float64)
    group = Rollouts(torch.zeros(1, 4), pi.log(), torch.ones(1, 4))
    return {name: methods.get(name)(group).advantages[0].tolist() for name in ("grpo", "lens")}


def figure(path: Path) -> None:
    """Left: what LENS does with a group in which every answer is wrong. Right: what it changes."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    for i, (name, advantages) in enumerate(one_group().items()):
        color, _, _ = STYLES[name]
        places = [j + 0.36 * (i - 0.5) for j in range(4)]
        hatch = "" if i else "//"
        left.bar(places, advantages, 0.34, label=display(name), color=color, hatch=hatch)
    left.axhline(0, color="black", linewidth=0.8)
    left.set_xticks(range(4), [f"{c:g}" for c in CONFIDENCES])
    left.set_xlabel("confidence π̄ of each of four wrong answers")
    left.set_ylabel("advantage")
    left.set_title("one group, every answer wrong")
    left.legend(title="GRPO gives all four 0")

    table = reproduction_page.read_curves(STUDY)
    table = table[table["level"] == "all"]
    for label in ("grpo", "lens", "nsr"):
        rows = table[table["method"] == label].groupby("step")["pass@1"]
        mean, low, high = 100 * rows.mean(), 100 * rows.min(), 100 * rows.max()
        color, line, marker = STYLES.get(label, OTHER)
        right.plot(mean.index, mean, line, color=color, marker=marker, label=display(label))
        right.fill_between(mean.index, low, high, color=color, alpha=0.15, linewidth=0)
    right.set_xlabel("updates")
    right.set_ylabel("pass@1 on test questions, %")
    right.set_title(f"bundled policy: mean and range of {table['seed'].nunique()} seeds")
    right.legend()
    fig.savefig(path, dpi=130)
    plt.close(fig)


def against_grpo(table: pd.DataFrame, label: str) -> str:
    """−0.1 points, 95 % interval […], and what can be said."""
    return reproduction_page.in_words(t_interval(reproduction_page.differences(table, label)))


def numbers() -> str:
    """The paragraph of the README that states what was measured."""
    table = reproduction_page.read_curves(STUDY)
    whole = table[table["level"] == "all"]
    at_end = whole[whole["step"] == whole["step"].max()].pivot_table(
        index="seed", columns="method", values="pass@1"
    )
    before = whole[(whole["step"] == 0) & (whole["method"] == "grpo")].set_index("seed")["pass@1"]
    gain = t_interval((at_end["grpo"] - before).to_numpy()).times(100)
    limit = detectable(reproduction_page.differences(table, "lens").std(ddof=1), len(at_end))
    parts = {
        name: t_interval(reproduction_page.differences(table, f"lens-{part}"))
        for name, part in (
            ("In mixed groups only", "groupsmixed"),
            ("in negative groups only", "groupsnegative"),
            ("without de-meaning", "no_demean"),
        )
    }
    lines = [
        f"- **Tiny language model** ({len(at_end)} seeds, {table['step'].max()} updates, "
        f"[docs/reproduction.md](docs/reproduction.md)): GRPO takes pass@1 from "
        f"{percent(before.mean())} to {percent(at_end['grpo'].mean())} ({points(gain)}).",
        f"  LENS as printed: {against_grpo(table, 'lens')} ({limit:.1f} points would probably have "
        "shown).",
        f"  {reproduction_page.together_in_words(parts)}. Negative samples alone "
        f"(NSR): {against_grpo(table, 'nsr')}.",
        *(["  " + found] if (found := reproduction_page.beyond(table)) else []),
    ]
    five = curves()
    lines.append(
        f"  Louder, with the standard deviation as scale (negative_std, {five['seed'].nunique()} "
        f"seeds): {against_grpo(five, 'lens-negative_std')}."
    )
    updates = pd.read_csv(STUDY / "updates.csv")
    signal = updates[updates["method"] == "lens"]["neg_to_mixed_rms"].median()
    lines.append(
        f"  LENS as printed gives negative groups 1/{1 / signal:,.0f} of the RMS advantage of "
        "mixed ones (median over updates)."
    )
    for task, folder in LARGER.items():
        lines += gsm8k_page.headline(folder, task)
    toy = pd.read_csv(ROOT / "results/toy/summary.csv")
    steps = toy[(toy["experiment"] == "six_options") & (toy["quantity"] == "steps_to_90")]
    cell = steps[(steps["p_c"] == 1e-4) & (steps["group_size"] == 16)].set_index(
        ["optimizer", "method"]
    )
    flow = pd.read_csv(ROOT / "results/toy/flow.csv").set_index(["objective", "p_c"])["time"]

    def steps_of(optimizer: str, method: str) -> str:
        row = cell.loc[(optimizer, method)]
        return f"{row['mean']:,.0f} ± {row['ci95']:,.0f}"

    lines.append(
        "- **Six options, P(correct) = 10⁻⁴**, updates to 90 %, G = 16: with SGD GRPO "
        f"{steps_of('sgd', 'grpo')}, LENS as printed {steps_of('sgd', 'lens_paper')}; with Adam "
        f"{steps_of('adam', 'grpo')} and {steps_of('adam', 'lens_paper')}, without the de-meaning "
        f"of negative groups {steps_of('adam', 'lens_no_demean')}. Exact flow: REINFORCE "
        f"{flow['reinforce', 1e-4]:,.0f}, the likelihood objective with D = 1 "
        f"{flow['mle_d1', 1e-4]:,.1f}, with the guard D ≥ 2 max π "
        f"{flow['mle_guarded', 1e-4]:,.0f}: "
        "the escape in constant time comes from the pole π = D, and the guard takes it away."
    )
    runs = len(find(results=ROOT / "results").finished)
    lines.append(
        f"  ({runs} committed training runs, {len(steps)} toy cells of 24 seeds; intervals are "
        "95 %.)"
    )
    return "\n".join(lines)


def filled(path: Path, **parts: str) -> str:
    """The page with what stands between its marks replaced, by name of the marks."""
    text = path.read_text(encoding="utf-8")
    for name, found in parts.items():
        begin, end = (mark.format(name) for mark in MARKS)
        head, rest = text.split(begin)
        _, tail = rest.split(end)
        text = f"{head}{begin}\n{found}\n{end}{tail}"
    return text


def main() -> int:
    """Write, or check, everything that is made from results."""
    front, gpu, runs = (
        ROOT / name for name in ("README.md", "docs/gpu.md", "docs/reproduction.md")
    )
    larger = {task.lower(): gsm8k_page.page(folder, task) for task, folder in LARGER.items()}
    pages = {
        front: filled(front, numbers=numbers()),
        runs: filled(runs, numbers=reproduction_page.study(STUDY), **larger),
        gpu: filled(gpu, numbers=gpu_page.page(ROOT / "results/benchmarks")),
        ROOT / "docs/metrics.md": markdown(),
        ROOT / "docs/methods.md": methods_page.page(),
        ROOT / "docs/when-to-use.md": when_to_use.page(),
        ROOT / "docs/reliability.md": reliability_page.page(
            ROOT / "tests/soak", ROOT / "results/reliability"
        ),
    }
    if "--check" in sys.argv:
        stale = [p.name for p, text in pages.items() if p.read_text(encoding="utf-8") != text]
        print(f"stale: {', '.join(stale)}; run python docs/build.py" if stale else "up to date")
        return 1 if stale else 0
    for page, text in pages.items():
        page.write_text(text, encoding="utf-8")
    figure(ROOT / "docs/overview.png")
    reproduction_page.figure(STUDY, ROOT / "docs/reproduction.png")
    for task, folder in LARGER.items():
        if folder.is_dir():
            gsm8k_page.figure(folder, ROOT / f"docs/{task.lower()}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
