"""What `import lens_ref` adds to `import torch`: `python benchmarks/import_time.py`.

Each repetition is a fresh process; the two imports take turns, so that a slow minute of the machine
meets both. Where totals vary more than their difference, `added` is the surer figure: the time from
torch's end to lens_ref's in one process. The target is 0.2 s. Figures go to
results/benchmarks/import.json, or to --out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

from lens_ref.rlvr.run_folder import environment

REPEATS = 5
TARGET = 0.2  # seconds
CLOCK = "from time import perf_counter as now; start = now(); import torch; middle = now(); "
BASELINE = CLOCK + "print(middle - start)"
OURS = CLOCK + "import lens_ref; print(now() - start, now() - middle)"
OUT = Path(__file__).resolve().parent.parent / "results/benchmarks/import.json"


def seconds(code: str) -> list[float]:
    """What the code prints in a fresh process."""
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, capture_output=True, check=True).stdout  # noqa: S603
    return [float(number) for number in printed.split()]


def main() -> int:
    """Measure, print a line and write the file; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE")
    out: Path = parser.parse_args().out
    seconds(OURS)  # byte code and the file cache
    rows = [[*seconds(BASELINE), *seconds(OURS)] for _ in range(REPEATS)]
    times = dict(zip(("torch", "lens_ref", "added"), zip(*rows, strict=True), strict=True))
    middle = {name: median(found) for name, found in times.items()}
    ratio = middle["lens_ref"] / middle["torch"]
    about = environment() | {"command": "python benchmarks/import_time.py"}
    figures = {"seconds": times, "median": middle, "ratio": ratio}
    text = json.dumps({"part": "import", **about, "finished": True, **figures}, indent=1)
    out.write_text(text + "\n", encoding="utf-8")
    print(
        f"medians of {REPEATS}, in turn: import torch {middle['torch']:.2f} s, import lens_ref "
        f"{middle['lens_ref']:.2f} s, ratio {ratio:.2f}; added {middle['added']:.3f} s "
        f"(target {TARGET} s)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
