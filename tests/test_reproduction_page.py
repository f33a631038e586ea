"""docs/reproduction.md says what the runs say, and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.beside import imported

LEVELS = ("all", "1", "2", "3", "4", "5")


@pytest.fixture(scope="module")
def page() -> Any:
    return imported("docs", "reproduction_page")


def made_up(page: Any, folder: Path, change: dict[str, tuple[float, ...]]) -> Path:
    """Five seeds of all arms; `change`: points against GRPO after 60 updates, one a seed."""
    curves, updates, runs = [], [], []
    change = {"grpo": (0.0,) * 5, **change}
    for method in ("grpo", *page.ARMS):
        for seed in range(5):
            gain = change.get(method, (0.0, 0.2, -0.2, 0.1, -0.1))[seed] / 100
            for step in (0, 30, 60):
                at = 0.2 if step == 0 else 0.3 + 0.01 * seed + gain * (step == 60)
                curves += [(method, seed, step, level, *[at] * 5) for level in LEVELS]
            ratio = 0.0 if method in ("grpo", "lens-groupsmixed") else 0.002
            updates += [(method, seed, s, 0.4, 0.5, ratio, 0.1, 20.0) for s in range(1, 61)]
            runs.append({"commit": "a" * 40, "wall_seconds": 120.0})
    head = ["method", "seed", "step", "level", "pass@1", *page.MORE]
    pd.DataFrame(curves, columns=head).to_csv(folder / "curves.csv", index=False)
    head = ["method", "seed", "step", "reward", "negative_share", "neg_to_mixed_rms", "entropy"]
    head.append("mean_length")
    pd.DataFrame(updates, columns=head).to_csv(folder / "updates.csv", index=False)
    (folder / "manifests.json").write_text(json.dumps(runs), "utf-8")
    return folder


def test_a_null_result_is_said_with_what_could_have_been_found(page: Any, tmp_path: Path) -> None:
    text = page.study(made_up(page, tmp_path, {"nsr": (-9.0, -10.0, -11.0, -10.0, -10.0)}))
    # sd of (0, .2, -.2, .1, -.1) is .1581; t = 2.776, so ± .196; five pairs find 1.68 sd = .27
    assert (
        "LENS as printed: no difference from GRPO in pass@1 can be told, 0.0 [−0.2, +0.2] points."
        in text
    )
    assert "An effect of 0.3 points or more would probably have shown" in text
    # sd .7071: ± .878
    assert "NSR ends worse than GRPO in pass@1, −10.0 [−10.9, −9.1] points." in text
    assert "| 1 : 500 |" in text
    assert "pass@1 20.0 %" in text


def test_a_gain_is_said_too(page: Any, tmp_path: Path) -> None:
    text = page.study(made_up(page, tmp_path, {"lens": (1.0, 1.2, 0.8, 1.1, 0.9)}))
    assert "LENS as printed ends better than GRPO in pass@1, +1.0 [+0.8, +1.2] points." in text
    assert "would probably have shown" not in text


def test_what_stands_apart_beyond_pass_1_answers_for_all_comparisons(
    page: Any, tmp_path: Path
) -> None:
    """Without a gain nothing is said; one of .2, .3, .4, .3, .3 points in pass@8 alone has
    t = .3/(.0707/√5) = 9.487, p = .00069; as much below 0 at level 1 is said too. NSR says
    nothing here."""
    made_up(page, tmp_path, {"nsr": (-9.0, -10.0, -11.0, -10.0, -10.0)})
    curves = page.read_curves(tmp_path)
    assert page.beyond(curves) == ""
    own = (curves["method"] == "lens-no_demean") & (curves["step"] == 60)
    base = curves.loc[(curves["method"] == "grpo") & (curves["step"] == 60), "pass@8"].to_numpy()
    points = (0.2, 0.3, 0.4, 0.3, 0.3)
    gains = curves.loc[own, "seed"].map(dict(enumerate(points))).to_numpy()
    curves.loc[own, "pass@8"] = base + gains / 100
    # 5 arms × (5 pass@k, 5 levels, update 30); NSR's ten last differences come before it in Holm's
    # order: 45 are left, .0311
    said = (
        "Beyond pass@1 of all questions at the end, for which the study was planned, intervals lie"
    )
    above, end = "above 0: LENS no_demean in pass@8 (+0.3 points)", "is .031 (Holm)."
    assert page.beyond(curves) == (
        f"{said} {above}. Among all 55 comparisons, NSR's too, the smallest p of these {end}"
    )
    harmed = (
        (curves["method"] == "lens-groupsnegative")
        & (curves["step"] == 60)
        & (curves["level"] == "1")
    )
    at = (curves["method"] == "grpo") & (curves["step"] == 60) & (curves["level"] == "1")
    both = curves.copy()
    both.loc[harmed, "pass@1"] = curves.loc[at, "pass@1"].to_numpy() - np.array(points) / 100
    below = "below 0: LENS, negative groups only in pass@1 at level 1 (−0.3 points)"
    assert f"{above}; {below}. Among all 55" in page.beyond(both)
    weak = gains + np.where(curves.loc[own, "seed"] == 0, -0.19, 0.0)
    curves.loc[own, "pass@8"] = base + weak / 100
    assert page.beyond(curves).endswith("(Holm): a hint, not a result.")


def test_pairs_are_those_of_a_seed(page: Any, tmp_path: Path) -> None:
    made_up(page, tmp_path, {"lens": (1.0, 2.0, 3.0, 4.0, 5.0)})
    curves = pd.read_csv(tmp_path / "curves.csv", dtype={"level": str})
    shuffled = curves.sample(frac=1.0, random_state=0)
    assert np.allclose(np.sort(page.differences(shuffled, "lens")), [1.0, 2.0, 3.0, 4.0, 5.0])
    without = curves[~((curves["method"] == "grpo") & (curves["seed"] == 4))]
    assert len(page.differences(without, "lens")) == 4
    with pytest.raises(ValueError, match="no seed has both lens and grpo"):
        page.differences(curves[curves["method"] != "grpo"], "lens")


def test_the_figure(page: Any, tmp_path: Path) -> None:
    made_up(page, tmp_path, {})
    page.figure(tmp_path, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
