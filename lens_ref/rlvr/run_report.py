"""The report of a parent folder of runs: one HTML file that needs nothing else, and its PNGs.

Everything that a model or a user wrote is escaped: a tag in an answer stays text.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from matplotlib.figure import Figure

from lens_ref.rlvr import report_figures as figures
from lens_ref.rlvr.metrics import METRICS
from lens_ref.rlvr.report_data import (
    PASS_COLUMNS,
    Committed,
    Run,
    differing_settings,
    display,
    read_committed,
    read_runs,
    run_name,
)
from lens_ref.rlvr.report_page import MISSING, figure, page, table
from lens_ref.rlvr.report_samples import samples
from lens_ref.rlvr.report_verdict import judge, percent
from lens_ref.rlvr.run_folder import write_whole, writing
from lens_ref.rlvr.untrusted import as_html


def write_report(parent: Path) -> Path:
    """Compare all runs of a parent folder; returns the path of `report.html`.

    Raises:
        UserError: no run folder, a damaged one, or a folder that can't be written.
    """
    runs = read_runs(parent)
    committed = read_committed()
    if committed is not None:
        committed = committed.of([run.label for run in runs])
    bands, note = _bands(runs, committed)
    body = [
        f"<h1>{as_html(' against '.join(dict.fromkeys(display(r.label) for r in runs)))}</h1>",
        _verdict(runs, bands if bands or not committed else committed.of([])),
        "<h2>Figures</h2>",
        f"<p class=note>{as_html(note)}</p>",
    ]
    again = f"python -m lens_ref.train --resume {parent} writes the report"
    for name, drawing in draw(runs, bands).items():
        with writing(parent / f"{name}.png", again):
            body.append(figure(parent / f"{name}.png", drawing, CAPTIONS[name]))
    body += ["<h2>Tables</h2>", _pass_table(runs), _fact_table(runs)]
    body += ["<h2>Samples side by side</h2>", samples(runs)]
    body += ["<h2>Settings and meanings</h2>", _settings(runs), _meanings()]
    path = parent / "report.html"
    write_whole(path, page(f"Report of {parent.resolve().name}", body), again)
    return path


def draw(runs: list[Run], bands: Committed | None = None) -> dict[str, Figure | str]:
    """The figures of a report by name, over the bands of committed runs; where there is nothing to
    draw, the sentence that says so."""
    style = figures.styles(
        [run.label for run in runs] + (list(set(bands.curves["method"])) if bands else [])
    )
    return {
        "reward": figures.reward(runs, bands, style),
        "pass1": figures.pass_at_1(runs, bands, style),
        "levels": figures.levels(runs, style),
        "negative_share": figures.negative_share(runs, style),
        "signal": figures.signal(runs, bands, style),
    }


CAPTIONS = {
    "reward": f"Reward on the training questions of each update: thin, as measured; thick, its "
    f"average over the last {figures.WINDOW} updates; of several seeds, thin, these averages and, "
    "thick, their mean over the seeds that all methods have. Shaded: lowest to highest such "
    "average over the committed seeds.",
    "pass1": "pass@1 on the test questions; bars: 95 % bootstrap intervals over questions. "
    "Shaded: lowest to highest over the committed seeds, with their mean as a thin line. The bars "
    "of two methods overlap more than their difference is uncertain: the verdict pairs the "
    "questions.",
    "levels": "pass@k by level at the first (hollow) and last evaluation (filled); thin bars: "
    "95 % bootstrap intervals over questions.",
    "negative_share": "Share of groups in which every answer is wrong, in the first (hollow) and "
    "last quarter (filled) of the rollout batches: where GRPO learns nothing.",
    "signal": "How loud negative groups are: the RMS of their advantages over that of mixed "
    "groups. Thin, as measured (gaps: updates that lack one of the two kinds); thick, the median "
    f"over the last {figures.WINDOW} updates; of several seeds as for the reward.",
}


def _bands(runs: list[Run], committed: Committed | None) -> tuple[Committed | None, str]:
    """The committed runs if they are of the same settings, and what to say about it."""
    if committed is None:
        return None, "No committed runs came along, so the figures show no bands over seeds."
    for run in runs:
        for config in committed.configs:
            different = differing_settings(run.config, config)
            if different:
                shown = ", ".join(different[:4]) + (" …" if len(different) > 4 else "")
                return None, (
                    f"The committed runs of several seeds had other settings ({shown}), so the "
                    "figures show no bands."
                )
    return committed, (
        "Shaded bands are the committed runs of several seeds at the same settings: they show "
        "how far one seed can be from another."
    )


def _verdict(runs: list[Run], committed: Committed | None) -> str:
    """`committed` holds no method where it is of other settings: it says nothing of these runs."""
    lines = [
        f"<p><strong>{as_html(s.conclusion)}</strong> {as_html(s.numbers)}</p>"
        for s in judge(runs, committed)
    ]
    different = sorted({key for r in runs for key in differing_settings(runs[0].config, r.config)})
    if different:
        lines.append(
            "<p><strong>Beware: these runs differ in more than the method.</strong> "
            f"Also different: {as_html(', '.join(different))}.</p>"
        )
    return f"<div class=verdict><h2>Verdict</h2>{''.join(lines)}</div>"


def _pass_table(runs: list[Run]) -> str:
    rows = []
    for run in runs:
        last = run.evals[run.evals["step"] == run.evals["step"].max()]
        for row in last.to_dict("records"):
            rates = [MISSING if row[c] != row[c] else f"{100 * row[c]:.1f}" for c in PASS_COLUMNS]
            rows.append((str(row["level"]), run, int(row["step"]), int(row["questions"]), rates))
    if not rows:
        return "<p>No run was evaluated on test questions, so there is no table of pass@k.</p>"
    order = list(dict.fromkeys(level for level, *_ in rows))
    rows.sort(key=lambda row: order.index(row[0]))
    return "<h3>pass@k in %, at the last evaluation</h3>" + table(
        ["level", "run", *PASS_COLUMNS, "questions", "update"],
        [
            [level, run_name(run, runs), *rates, questions, step]
            for level, run, step, questions, rates in rows
        ],
    )


def _fact_table(runs: list[Run]) -> str:
    rows = []
    for run in runs:
        shares = [
            figures.quarter_share(run.groups, last) if len(run.groups) else None
            for last in (False, True)
        ]
        seconds = float(run.metrics["seconds"].iloc[-1]) if len(run.metrics) else None
        tokens = None
        if run.manifest.get("status") != "running" and "tokens" in run.manifest:
            seconds, tokens = run.manifest.get("wall_seconds"), int(run.manifest["tokens"])
        rows.append(
            [
                run_name(run, runs),
                run.manifest.get("status", "not started"),
                f"{run.step} of {run.config.get('steps')}",
                MISSING if tokens is None else f"{tokens:,}",
                MISSING if seconds is None else f"{seconds:,.0f}",
                f"{tokens / seconds:,.0f}" if tokens is not None and seconds else MISSING,
                *(MISSING if share is None else percent(share) for share in shares),
            ]
        )
    header = ["run", "status", "updates", "answer tokens", "seconds", "tokens/s"]
    return (
        "<h3>The runs</h3>"
        + table([*header, "negative groups, first quarter", "last quarter"], rows)
        + "<p class=note>Answer tokens are those sampled for training; seconds are wall time, "
        "evaluation and grading included, and tokens/s is the one over the other.</p>"
    )


def _settings(runs: list[Run]) -> str:
    config = yaml.safe_dump(runs[0].config, sort_keys=False, allow_unicode=True)
    parts = [
        "<details><summary>Settings</summary>",
        f"<p class=note>config.yaml of {as_html(runs[0].path.name)}; the others have their own."
        "</p>",
        f"<pre>{as_html(config)}</pre></details>",
    ]
    for run in runs:
        manifest = json.dumps(run.manifest, indent=2, ensure_ascii=False)
        parts.append(
            f"<details><summary>Manifest of {as_html(run.path.name)}</summary>"
            f"<pre>{as_html(manifest)}</pre></details>"
        )
    return "".join(parts)


def _meanings() -> str:
    rows = [[name, meaning] for name, meaning in METRICS.items()]
    shown = table(["column of metrics.csv", "meaning"], rows)
    return f"<details><summary>What the metrics mean</summary>{shown}</details>"
