"""Known vulnerabilities in the pinned packages: `make audit`, or

    python -m tests.audit [FILE …]

asks pip-audit about every requirements file. Exit status: 0 none is known; 1 some are, they are
listed; 3 the advisory database could not be asked about some package, so nothing is promised.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CLEAN, VULNERABLE, UNASKED = 0, 1, 3
SECONDS = 600  # for one file


def files() -> list[Path]:
    """Every file of exact pins."""
    return [*sorted(ROOT.glob("requirements*.txt")), ROOT / "docs/requirements.txt"]


def ask(path: Path) -> tuple[dict[str, Any] | None, str]:
    """pip-audit's answer about a file; None, and why, where there is none."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(path), "--no-deps"]
    command += ["--disable-pip", "--format", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"no answer within {SECONDS} seconds"
    try:
        return dict(json.loads(done.stdout)), ""
    except ValueError:
        said = done.stderr.strip().splitlines()
        return None, said[-1] if said else f"exit status {done.returncode}"


def audit(
    paths: Sequence[Path],
    asking: Callable[[Path], tuple[dict[str, Any] | None, str]] = ask,
) -> int:
    """Print what is known about each file, a line a vulnerability; returns the exit status."""
    vulnerable = unasked = 0
    for path in paths:
        name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        answer, why = asking(path)
        if answer is None:
            unasked += 1
            print(f"{name}: NOT AUDITED, the advisory database could not be asked: {why}")
            continue
        packages = answer.get("dependencies", [])
        skipped = [p for p in packages if "skip_reason" in p]
        faulty = {f"{p['name']} {p['version']}": p["vulns"] for p in packages if p.get("vulns")}
        for package, vulnerabilities in faulty.items():
            for one in vulnerabilities:
                mend = ", ".join(one.get("fix_versions") or ["no mended version"])
                print(f"{name}: {package}: {one['id']} (mended in: {mend})")
        asked = len(packages) - len(skipped)
        print(f"{name}: {asked} packages audited, {len(faulty)} with known vulnerabilities")
        if skipped:
            names = ", ".join(p["name"] for p in skipped[:3]) + (" …" if len(skipped) > 3 else "")
            why = skipped[0]["skip_reason"]
            print(f"{name}: {len(skipped)} packages NOT AUDITED ({names}): {why}")
        vulnerable += bool(faulty)
        unasked += bool(skipped or not asked)
    return VULNERABLE if vulnerable else UNASKED if unasked else CLEAN


if __name__ == "__main__":
    sys.exit(audit([Path(name) for name in sys.argv[1:]] or files()))
