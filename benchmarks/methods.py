"""How long a method's advantages take: `python benchmarks/methods.py`.

128 questions × 16 responses, float32, one core, with the token tensors of 512 positions that a
trainer hands over. The targets are 2 ms, and 20 ms for token-level methods. The ratio is against
centring and scaling by hand, two lines of torch, in the same run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from lens_ref import Rollouts, methods

QUESTIONS, RESPONSES, TOKENS = 128, 16, 512
REPEATS = 50


def rollouts() -> Rollouts:
    """A batch with 40 % negative groups and responses of 1 to 512 tokens."""
    generator = torch.Generator().manual_seed(0)
    shape = (QUESTIONS, RESPONSES)
    rewards = (torch.rand(shape, generator=generator) < 0.3).float()
    rewards[: int(0.4 * QUESTIONS)] = 0.0
    lengths = torch.randint(1, TOKENS + 1, shape, generator=generator)
    mask = torch.arange(TOKENS) < lengths.unsqueeze(-1)
    logprobs = -torch.rand((*shape, TOKENS), generator=generator) * mask
    return Rollouts(
        rewards=rewards,
        logprobs=logprobs.sum(-1),
        lengths=lengths,
        token_logprobs=logprobs,
        mask=mask,
        entropy=torch.rand((*shape, TOKENS), generator=generator),
        prior=torch.full((QUESTIONS,), 0.6),
        truncated=lengths == TOKENS,
    )


def milliseconds(call: Callable[[], object]) -> float:
    """The median of many calls."""
    for _ in range(3):
        call()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def main() -> None:
    """Print a line a method."""
    torch.set_num_threads(1)
    batch = rollouts()

    def by_hand() -> torch.Tensor:
        centred = batch.rewards - batch.rewards.mean(-1, keepdim=True)
        return centred / (batch.rewards.std(-1, keepdim=True) + 1e-6)

    baseline = milliseconds(by_hand)
    print(f"{QUESTIONS} x {RESPONSES} groups, T = {TOKENS}, one core, median of {REPEATS}")
    print(f"{'method':<16}{'ms':>8}{'ratio':>8}{'target':>10}")
    print(f"{'(by hand)':<16}{baseline:>8.3f}{1:>8.1f}")
    for name in methods.names():
        method, spec = methods.get(name), methods.spec(name)
        took = milliseconds(partial(method, batch))
        target = 20 if spec.level == "token" else 2
        verdict = f"< {target} ms" if took < target else f"> {target} ms!"
        print(f"{name:<16}{took:>8.3f}{took / baseline:>8.1f}{verdict:>10}")
        if spec.stateful:
            state = spec.update(spec.init_state(), batch, range(QUESTIONS))
            took = milliseconds(partial(spec.update, state, batch, range(QUESTIONS)))
            print(f"{'  its state':<16}{took:>8.3f}{took / baseline:>8.1f}")


if __name__ == "__main__":
    main()
