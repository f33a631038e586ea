"""The measured part of docs/gpu.md says what the files say, and nothing where there are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.beside import imported

PHASES = ("sync", "sample", "old_logprobs", "advantages", "update", "total")
RUNS = [dict.fromkeys(PHASES, 1.0), dict.fromkeys(PHASES, 3.0)]
ABOUT = {"versions": {"torch": "2.11.0"}, "hardware": {"gpu": "a card"}}


@pytest.fixture(scope="module")
def gpu_page() -> Any:
    return imported("docs", "gpu_page")


def write(folder: Path, part: str, **figures: Any) -> None:
    (folder / f"{part}.json").write_text(json.dumps({**ABOUT, **figures}), "utf-8")


def variant(speed: float, peak: float, **more: Any) -> dict[str, Any]:
    return {"tokens_per_second": speed, "peak_gb": peak, "mfu_4n": speed / 1e5, **more}


def test_nothing_is_claimed_without_files(gpu_page: Any, tmp_path: Path) -> None:
    assert gpu_page.page(tmp_path) == gpu_page.NONE_YET


def test_the_tables(gpu_page: Any, tmp_path: Path) -> None:
    own = {"budget": 4096, "recomputed": 0, "keeps_less": False}
    write(
        tmp_path,
        "update-qwen2.5-3b",
        rows=4,
        tokens=16384,
        memory_limit_gb=20.0,
        ratios={"hf_peft": 2.5, "hf_peft_autocast": 2.25, "trl": 1.75},
        best_within_memory="lens_ref_budget4096_recomputed0",
        profile={"seconds": {"attention": 0.1, "matrix products": 0.3}, "busy": 0.4, "wall": 0.5},
        variants={
            "hf_peft_m4": variant(10_000, 38.0),
            "lens_ref_budget4096_recomputed0": variant(25_000, 17.9, **own)
            | {"fastest": 0.6, "slowest": 0.7},
            "trl_m4": {"error": "out of memory"},
        },
    )
    speeds = {"vllm_alone": 20_000.0, "vllm_alone_logprobs": 15_000.0, "lens_ref": 19_000.0}
    speeds["lens_ref_all_logprobs"] = 16_500.0
    write(
        tmp_path,
        "rollouts",
        tokens_per_second=speeds,
        rollouts={"lens_ref": [{}] * 3},
        share_of_vllm_alone=0.95,
        share_of_vllm_with_logprobs=1.1,
        sync_seconds=0.25,
        engine_start_seconds=100.0,
    )
    write(tmp_path, "step", old_from_sampler=RUNS, old_from_trainer=RUNS[:1])
    write(tmp_path, "advantages", seconds=0.0004)
    write(tmp_path, "memory-qwen2.5-3b", status=0, peak_gb=21.5)
    write(tmp_path, "memory-llama-3.1-8b", status=1, peak_gb=30.0)  # it failed: not a result
    text = gpu_page.page(tmp_path)
    assert "4 × 4,096 tokens (a card, torch 2.11.0)" in text
    assert "| Hugging Face + PEFT, all logits | 10,000 | 38.0 | 0.10 |" in text
    assert "| this project, 4,096 tokens at once | 25,000 | 17.9 | 0.25 |" in text
    assert "TRL 1.16" not in text
    fastest = (
        "Of the 0.50 s of another update of the fastest one within 20 GB the GPU computes 0.40"
    )
    assert f"{fastest}: matrix products 75%, attention 25%." in text
    assert (
        "Within 20 GB: 2.50 × Hugging Face + PEFT, 2.25 × the same under autocast, 1.75 × TRL "
        "(medians; ours took 0.60 to 0.70 s)."
    ) in text
    assert "medians of 3: vLLM alone 20,000 tokens/s, 15,000 with" in text
    assert "19,000 (95% of vLLM alone), and 16,500 with" in text
    assert "(110% of vLLM with them)" in text
    assert "| the sampler's, median of 2 | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 | 2.00 |" in text
    assert "| the trainer's, median of 1 | " in text
    assert "0.40 ms" in text
    assert "Qwen2.5-3B: peak 21.5 GB" in text
    assert "30.0" not in text


def test_what_was_only_noted_says_so(gpu_page: Any, tmp_path: Path) -> None:
    run = {"updates": 7, "before": 0.25, "after": 0.5}
    small = {"recipe": "small", "asked_updates": 9, "test_questions": 11, "answers": 3}
    small |= {"between": 5, "largest_drift": 0.004, "runs": {"lens": run}}
    large = {"recipe": "large", "updates": 2, "limit_gb": 24, "peak_gb": 16.5}
    large |= {"tokens_per_second": 123}
    write(tmp_path, "noted", note="from the console", gsm8k=small, qlora=large)
    page = gpu_page.page(tmp_path)
    assert "(from the console; torch 2.11.0)" in page
    assert (
        "ended from outside after 7 of 9 updates, its pass@1 .250 before and .500 after 5" in page
    )
    assert "16.5 GB allocated at the peak, transformers sampled 123 tokens/s." in page


def test_what_limits_a_rollout(gpu_page: Any, tmp_path: Path) -> None:
    rates = {"vllm": [30000, 20000], "vllm_logprobs": [16000], "lens_ref": [25600, 12800]}
    sync = {"rank": 8, "tensors": 6, "pin_milliseconds": 3, "scale_milliseconds": 5, "threads": 4}
    write(
        tmp_path,
        "profile",
        note="noted",
        sync=sync | {"before_seconds": [3.0, 2.0], "after_seconds": [0.5, 0.25]},
        tokens_per_second={"0.5B": rates},
        step_of_16_milliseconds={"0.5B": 4.6, "3B": 5.1},
        profile_seconds={"all": 20.0, "scheduling": 5.0},
        without_graphs={
            **{"at_once": 1000, "answers": 2000, "mean_tokens": 100, "seconds": 20.0},
            "waiting": {
                **{"model": "0.5B", "at_once": 500, "answers": 1500},
                "tokens_per_second": [12000, 14000, 13000],
            },
        },
    )
    page = gpu_page.page(tmp_path)
    assert "takes 0.25 to 0.50 s" in page
    assert "It had taken 2.00 to 3.00 s" in page
    assert "one of 512 answers 20 to 40 ms" in page
    assert "gives 20,000 to 30,000 tokens/s" in page
    assert "12,800 to 25,600" in page
    assert "scheduling (25%)" in page
    assert "1,000 answers at once took 100 ms a step" in page
    assert "1,500 of a 0.5B model, 500 at once, came at 12,000 to 14,000 tokens/s" in page
