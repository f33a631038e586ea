"""The measured part of docs/gpu.md, from results/benchmarks/*.json."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from lens_ref.rlvr.report_data import display
from lens_ref.rlvr.vllm_engine import GRAPHS_BEYOND

NONE_YET = "No figures are committed yet: `python -m benchmarks.gpu` measures them."
MODELS = {"qwen2.5-3b": "Qwen2.5-3B", "llama-3.1-8b": "Llama-3.1-8B"}
VARIANTS = {
    "hf_peft_m4": "Hugging Face + PEFT, all logits",
    "hf_peft_chunked_m4": "… logits in chunks",
    "hf_peft_m4_autocast": "… under autocast",
    "hf_peft_chunked_m4_autocast": "… both",
    "trl_m4": "TRL 1.16, its own loss",
}


def page(folder: Path) -> str:
    """Tables of what is there; a line that says so where nothing is."""
    parts = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    }
    sections = [
        *(updates(name, parts.get(f"update-{name}")) for name in MODELS),
        rollouts(parts.get("rollouts")),
        step(parts.get("step"), parts.get("advantages")),
        growth(parts.get("growth")),
        memory(parts),
        profile(parts.get("profile")),
        noted(parts.get("noted")),
    ]
    return "\n\n".join(filter(None, sections)) or NONE_YET


def updates(name: str, part: dict[str, Any] | None) -> str:
    """Tokens/s and memory of an update, baselines and this project in one run."""
    if part is None:
        return ""
    rows = [
        f"**An update of {MODELS[name]}**, {part['rows']} × {part['tokens'] // part['rows']:,} "
        f"tokens ({where(part)}):",
        "",
        "| | tokens/s | peak GB | MFU (4N) |",
        "|---|---|---|---|",
    ]
    for label, title in [*VARIANTS.items(), *own(part)]:
        found = part["variants"].get(label, {})
        if "tokens_per_second" in found:
            rows.append(
                f"| {title} | {found['tokens_per_second']:,.0f} | {found['peak_gb']:.1f} | "
                f"{found['mfu_4n']:.2f} |"
            )
    ratios = part.get("ratios") or {}
    names = {
        "hf_peft": "Hugging Face + PEFT",
        "hf_peft_autocast": "the same under autocast",
        "trl": "TRL",
    }
    times = [f"{ratio:.2f} × {name}" for key, name in names.items() if (ratio := ratios.get(key))]
    if times:
        rows += ["", f"Within {part['memory_limit_gb']:.0f} GB: {', '.join(times)}{apart(part)}."]
    if "profile" in part:
        rows += ["", limits(part)]
    return "\n".join(rows)


def apart(part: dict[str, Any]) -> str:
    """How far the timed updates of the fastest one within the memory lie apart."""
    found = part["variants"].get(part.get("best_within_memory"), {})
    if "slowest" not in found:
        return ""
    return f" (medians; ours took {spread([found['fastest'], found['slowest']])} s)"


def limits(part: dict[str, Any]) -> str:
    """Where the time of the fastest update within the memory goes."""
    profile = part["profile"]
    shares = sorted(profile["seconds"].items(), key=lambda item: -item[1])
    told = ", ".join(f"{name} {seconds / profile['busy']:.0%}" for name, seconds in shares)
    limit = f"within {part['memory_limit_gb']:.0f} GB"
    return (
        f"Of the {profile['wall']:.2f} s of another update of the fastest one {limit} the GPU "
        f"computes {profile['busy']:.2f}: {told}."
    )


def own(part: dict[str, Any]) -> list[tuple[str, str]]:
    """(label, title) of this project's variants, the leanest first."""
    found = []
    for label, variant in part["variants"].items():
        if label.startswith("lens_ref") and "peak_gb" in variant:
            kept = f"{variant['recomputed']} layers recomputed" if variant["recomputed"] else ""
            less = "keeps less" if variant.get("keeps_less") else ""
            plain = "uncompiled" if "uncompiled" in label else ""
            how = ", ".join(
                filter(None, [plain, f"{variant['budget']:,} tokens at once", kept, less])
            )
            found.append((variant["peak_gb"], label, f"this project, {how}"))
    return [(label, title) for _, label, title in sorted(found)]


def rollouts(part: dict[str, Any] | None) -> str:
    """Sampling through this project against vLLM alone, one engine."""
    speeds = (part or {}).get("tokens_per_second")
    if part is None or not speeds:
        return ""
    return (
        f"**Rollouts** of Qwen2.5-3B with an adapter, 512 answers of 512 tokens ({where(part)}), "
        f"medians of {len(part['rollouts']['lens_ref'])}: vLLM alone "
        f"{speeds['vllm_alone']:,.0f} tokens/s, {speeds['vllm_alone_logprobs']:,.0f} with "
        "log-probabilities of every answer; through this project, which asks for those of one "
        f"answer a question, {speeds['lens_ref']:,.0f} ({part['share_of_vllm_alone']:.0%} of vLLM "
        f"alone), and {speeds['lens_ref_all_logprobs']:,.0f} with those of every answer "
        f"({part['share_of_vllm_with_logprobs']:.0%} of vLLM with them). {sync(part)}, starting "
        f"the engine {part['engine_start_seconds']:.0f} s."
    )


def sync(part: dict[str, Any]) -> str:
    """The first sync of an adapter, and those after it where they were measured."""
    first = f"The first sync and its check took {part['sync_seconds']:.2f} s"
    later = part.get("later_sync_seconds")
    return f"{first}, later ones {statistics.median(later):.2f} s" if later else first


def step(part: dict[str, Any] | None, advantages: dict[str, Any] | None) -> str:
    """The phases of a step."""
    if part is None or "old_from_sampler" not in part:
        return ""
    phases = ("sync", "sample", "old_logprobs", "advantages", "update", "total")
    rows = [
        f"**A step** of Qwen2.5-3B, 512 answers of up to 512 tokens ({where(part)}), seconds:",
        "",
        f"| old log-probabilities | {' | '.join(phases)} |",
        "|---|" + "---|" * len(phases),
    ]
    for side in ("sampler", "trainer"):
        runs = part.get(f"old_from_{side}")
        if runs:
            cells = [f"{statistics.median(run[phase] for run in runs):.2f}" for phase in phases]
            rows.append(f"| the {side}'s, median of {len(runs)} | {' | '.join(cells)} |")
    if advantages:
        rows += [
            "",
            f"LENS's advantages of 128 × 16 answers: {advantages['seconds'] * 1e3:.2f} ms.",
        ]
    return "\n".join(rows)


def growth(part: dict[str, Any] | None) -> str:
    """Speed and memory against length and vocabulary."""
    if part is None:
        return ""
    tables = (
        ("by_length", "answer, tokens", "peak_gb", "peak GB"),
        ("by_group", "answers of 512 tokens", "peak_gb", "peak GB"),
        ("by_vocabulary", "vocabulary", "beside_weights_gb", "peak GB beside the weights"),
    )
    rows = [
        f"**Growth**, an update of 16,384 tokens (of answers × 512 where their number varies), "
        f"4,096 at once, every layer recomputed ({where(part)}):"
    ]
    for key, title, memory_key, memory_title in tables:
        if part[key]:
            rows += ["", f"| {title} | tokens/s | {memory_title} |", "|---|---|---|"]
        for value, found in part[key].items():
            rows.append(
                f"| {int(value):,} | {found['tokens_per_second']:,.0f} | {found[memory_key]:.1f} |"
            )
    return "\n".join(rows)


def memory(parts: dict[str, Any]) -> str:
    """Runs inside 24 GB."""
    lines = [
        f"- {title}: peak {part['peak_gb']:.1f} GB, all of the process ({where(part)})"
        for name, title in MODELS.items()
        if (part := parts.get(f"memory-{name}")) and part.get("status") == 0
    ]
    head = "**Inside 24 GB**, answers of 1,024 tokens, by the train command itself:\n\n"
    return head + "\n".join(lines) if lines else ""


def profile(part: dict[str, Any] | None) -> str:
    """Where the time of a sync and of a rollout goes."""
    if part is None:
        return ""
    sync, rates = part["sync"], part["tokens_per_second"]
    everyone = [rate for model in rates.values() for rate in model["vllm"]]
    with_logprobs = [
        rate
        for model in rates.values()
        for key in ("vllm_logprobs", "lens_ref")
        for rate in model[key]
    ]
    ours = [rate for model in rates.values() for rate in model["lens_ref"]]
    small, large = part["step_of_16_milliseconds"].values()
    whole, *shares = part["profile_seconds"].items()
    named = ", ".join(f"{name} ({seconds / whole[1]:.0%})" for name, seconds in shares)
    bare = part["without_graphs"]
    waiting = bare["waiting"]
    steps = bare["answers"] * bare["mean_tokens"] / bare["at_once"]
    a_sync = (
        f"**A sync** of an adapter of rank {sync['rank']} for Qwen2.5-3B, its check included, "
        f"takes {spread(sync['after_seconds'])} s ({where(part)}). It had taken "
        f"{spread(sync['before_seconds'])} s: vLLM pinned each of {sync['tensors']} tensors "
        f"({sync['pin_milliseconds']} ms each), and scaling one on the CPU took "
        f"{sync['scale_milliseconds']} ms with {sync['threads']} threads. Adapters are now "
        "loaded unpinned, by one thread."
    )
    limits = (
        "**What limits a rollout** is vLLM's Python more than the GPU: a step of 16 answers "
        f"takes {small} ms with a 0.5B model and {large} ms with Qwen2.5-3B, one of 512 answers "
        f"{512e3 / max(ours):.0f} to {512e3 / min(ours):.0f} ms with either. Without "
        f"log-probabilities vLLM gives {min(everyone):,} to {max(everyone):,} tokens/s, with "
        "them (alone or through this project) "
        f"{min(with_logprobs):,} to {max(with_logprobs):,}. A profile of Python names {named}. "
        f"For more than 512 tokens in a step vLLM captures no CUDA graph by itself: "
        f"{bare['at_once']:,} answers at once took {bare['seconds'] / steps * 1e3:.0f} ms a step, "
        f"and {waiting['answers']:,} of a {waiting['model']} model, {waiting['at_once']} at once, "
        f"came at {min(waiting['tokens_per_second']):,} to "
        f"{max(waiting['tokens_per_second']):,} tokens/s, since who takes a free place brings a "
        f"prompt into the step. Graphs now reach {GRAPHS_BEYOND:,} tokens beyond "
        "`rollout.vllm.max_sequences`. "
        f"The figures were {part['note']}."
    )
    return f"{a_sync}\n\n{limits}"


def spread(values: list[float]) -> str:
    """0.46 to 0.63"""
    return f"{min(values):.2f} to {max(values):.2f}"


def noted(part: dict[str, Any] | None) -> str:
    """Runs of which only the console's figures are left."""
    if part is None:
        return ""
    small, large = part["gsm8k"], part["qlora"]
    runs = [
        f"{display(name)} was ended from outside after {run['updates']} of "
        f"{small['asked_updates']} updates, its pass@1 {decimal(run['before'])} before and "
        f"{decimal(run['after'])} after {small['between']}"
        for name, run in small["runs"].items()
    ]
    return (
        f"**Runs of which only the console is left** ({part['note']}; torch "
        f"{part['versions']['torch']}). `{small['recipe']}`: {'; '.join(runs)} "
        f"({small['test_questions']} test questions, {small['answers']} answers each). Every "
        f"update had another adapter hash, and the drift stayed at "
        f"{decimal(small['largest_drift'])} nats and below. `{large['recipe']}`, "
        f"{large['updates']} updates on random weights, torch held to {large['limit_gb']} GB: "
        f"{large['peak_gb']} GB allocated at the peak, transformers sampled "
        f"{large['tokens_per_second']} tokens/s."
    )


def decimal(number: float) -> str:
    """.154"""
    return f"{number:.3f}".lstrip("0")


def where(part: dict[str, Any]) -> str:
    """Card and versions; whether the benchmark ended before all was measured."""
    versions = part["versions"]
    cut = "" if part.get("finished", True) else "; cut short"
    return f"{part['hardware']['gpu']}, torch {versions['torch']}{cut}"
