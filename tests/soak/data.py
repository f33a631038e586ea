"""Data files as people break them, through the way that a run loads its data.

A file of a few good questions is changed once to four times: fields missing, renamed or of another
type, questions empty or twice, with the same answer or with another, golds that can't be parsed,
raw lines that are no row; and its bytes: byte-order mark, CRLF, CR, UTF-16, UTF-32, two encodings,
gzip cut short, damaged or misnamed, an array instead of lines. Half of them come with a test set
broken in the same way. Every file is either refused by one line that names file and line, or it
loads and each of its rows is used or counted as dropped, on the console and in the manifest.
A broken row is an error; a gold that can't be parsed is dropped and counted; repeated problems,
and answers that contradict each other, are kept, counted and told; a test question that is also
trained on is refused, or told under `data.overlap: report`. Not promised: that a wrong gold, well
written, is noticed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lens_ref.verifier import Verifier
from tests.rlvr.broken_data import Broken, broken, good, huge, judge
from tests.soak import Figure

EXAMPLES, FEW = 400, 40
SETTINGS = [
    *("--set", "loss.micro_batch_tokens=256", "rollout.max_new_tokens=8", "rollout.questions=4"),
    *("rollout.responses=2",),
]


def measure(quick: bool) -> list[Figure]:
    """400 generated files, lines of ten megabytes, and some through the commands."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    ends: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    faults: list[str] = []

    @settings(
        max_examples=FEW if quick else EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(broken(), st.none() | broken(), st.sampled_from(["refuse", "report"]))
    def load(one: Broken, other: Broken | None, overlap: str) -> None:
        kinds.update(set(one.what))
        ends[_end(one, other, overlap, verifier, faults)] += 1

    with Verifier(workers=2, timeout=2) as verifier:
        load()
        seconds, large = [], []
        for file in huge()[:2] if quick else huge():
            began = time.monotonic()
            large.append(_end(file, None, "refuse", verifier, faults))
            seconds.append(time.monotonic() - began)
    total = sum(ends.values())
    kept = total - ends["fault"]
    enough = kept == total and total >= (FEW if quick else 200)
    changes = ", ".join(f"{kind} ({n})" for kind, n in sorted(kinds.items()))
    told = f"{kept} of {total}: {ends['refused']} refused, {ends['loaded']} loaded"
    whole = f"{len(large) - large.count('fault')} of {len(large)}"
    return [
        Figure(
            "broken data sets: one line, or every row accounted for",
            told,
            "all of 200",
            enough,
        ),
        Figure("… what was done to them", changes),
        Figure("… the first fault", faults[0] if faults else "none", "none", not faults),
        Figure(
            "lines of 10 MB",
            f"{whole}: {large.count('refused')} refused, {large.count('loaded')} loaded",
            "all",
            "fault" not in large,
        ),
        Figure("… the slowest", f"{max(seconds):.1f} s"),
        *_commands(quick),
    ]


def _end(
    one: Broken, other: Broken | None, overlap: str, verifier: Verifier, faults: list[str]
) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = one.write(Path(folder), "train")
        test = other.write(Path(folder), "test") if other else None
        try:
            return judge(path, test, overlap, verifier)
        except Exception as error:
            faults.append(f"{one} {other}: {type(error).__name__}: {str(error)[:200]}")
            return "fault"


def _commands(quick: bool) -> list[Figure]:
    """Whole commands in processes of their own: their status, and no traceback."""
    lines = {
        "good": [good(1), good(2), good(3)],
        "a field missing": [good(1), {"problem": "p"}],
        "nothing but white space": [{"problem": " \u200b", "answer": "1"}],
        "a gold that can't be parsed": [good(1), {"problem": "p", "answer": r"\frac{"}],
        "contradictory answers": [good(1), {**good(1), "answer": "-77"}],
    }
    files = {what: "".join(json.dumps(row) + "\n" for row in rows) for what, rows in lines.items()}
    contents = {what: text.encode() for what, text in files.items()}
    contents["UTF-16"] = files["good"].encode("utf-16")
    contents["a prompt of 1 MB"] = json.dumps({"problem": "1+" * 2**19, "answer": "1"}).encode()
    expected = dict.fromkeys(contents, 2) | dict.fromkeys(
        ("good", "a gold that can't be parsed", "contradictory answers"), 0
    )
    chosen = list(contents)[:2] if quick else list(contents)
    right, wrong = 0, list[str]()
    with tempfile.TemporaryDirectory() as folder:
        for what in chosen:
            path = Path(folder) / "data.jsonl"
            path.write_bytes(contents[what])
            train = ["lens_ref.train", "--data", str(path), "--dry-run", *SETTINGS]
            out = ["--n", "1", "--out", f"{folder}/{len(wrong) + right}"]
            evaluate = ["lens_ref.evaluate", "tiny", "--data", str(path), *out, *SETTINGS[:3]]
            for command in (train, evaluate):
                done = subprocess.run(
                    [sys.executable, "-m", *command], capture_output=True, text=True, check=False
                )
                one_line = len(done.stderr.strip().splitlines()) == 1
                ok = done.returncode == expected[what] and "Traceback" not in done.stderr
                if ok and (done.returncode == 0 or one_line):
                    right += 1
                else:
                    wrong.append(f"{command[0]}, {what}: {done.returncode} {done.stderr[-200:]}")
    found = f"{right} of {2 * len(chosen)}" + (f" ({wrong[0]})" if wrong else "")
    what = (
        "python -m lens_ref.train --dry-run and lens_ref.evaluate: the right status, no traceback"
    )
    return [Figure(what, found, "all", not wrong)]
