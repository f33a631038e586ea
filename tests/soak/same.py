"""The same seed, twice: two processes that know nothing of each other.

On one machine, with one version of every package and one number of threads, the same seed gives the
same run on the CPU: weights, optimizer moments and all logs agree to the last bit (times apart).
Every random number comes from a generator seeded by the run's seed and a counter, none from a
global state, so neither evaluation nor logging nor resuming shifts any other draw. Another seed
gives another run, and so may another number of threads, another processor or another version of
PyTorch, whose sums then run in another order.

On a GPU bits are not promised, and this project does not switch PyTorch's deterministic mode on.
The backward pass of FlashAttention, which packed batches use, adds with atomic operations in an
order that the hardware chooses. Compiled parts of the model and the matrix library may choose
another kernel on another machine or for another shape. Where memory runs out, micro-batches become
smaller, and gradients are summed in other pieces. AdamW runs fused there: the same formula, rounded
otherwise than on the CPU. vLLM samples together what happens to be in flight, so that a token's
log-probabilities depend in their last bits on its neighbours; a draw near a border can fall to the
other side, and from there the answer is another one. The order of questions and all seeds stay the
same; what differs is rounding, and what follows from it. On a GPU a resumed run is therefore a
valid run, not the same one to the bit, and methods are to be compared over several seeds. None of
this page's figures was measured on a GPU.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.rlvr.runs import assert_same_run, logged, tensors
from tests.rlvr.test_processes import finish
from tests.soak import Figure
from tests.soak.crash import command


def train(out: Path, *settings: str) -> Path:
    """One run in a process of its own."""
    status, _, err = finish(command(out, *settings))
    assert (status, err) == (0, ""), err
    return out / "run" / next(path.name for path in (out / "run").glob("*/") if path.is_dir())


def same(a: Path, b: Path) -> bool:
    """Whether two runs agree to the last bit."""
    try:
        assert_same_run(a, b)
    except AssertionError:
        return False
    return True


def weights(run: Path) -> set[bytes]:
    """Every trained tensor."""
    return {value.numpy().tobytes() for name, value in tensors(run).items() if "policy/" in name}


def measure(quick: bool) -> list[Figure]:
    """The figures of this part."""
    figures = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = None
        for what, settings in {
            "all weights": (),
            "LoRA": ("model.lora.r=4", "optimizer.lr=1e-2"),
        }.items():
            runs = [train(folder / f"{what}-{n}", *settings) for n in range(2)]
            first = first or runs[0]
            agree = same(*runs)
            found = "bit-identical" if agree else "different"
            figures.append(Figure(f"one seed, two processes, {what}", found, "identical", agree))
            if quick:
                break
        other = train(folder / "other", "seed=1")
        differ = not weights(first) & weights(other)
        differ = differ and logged(first)["samples.jsonl"] != logged(other)["samples.jsonl"]
        found = "no weight matrix and not the answers in common" if differ else "partly the same"
        figures.append(Figure("two seeds", found, "different", differ))
    return figures
