"""`docs/methods.md`: what every method does to a negative group, from specs and by calling it."""

from __future__ import annotations

import torch
from torch import Tensor

from lens_ref import Rollouts, methods

G = 8
CONFIDENCE = [0.9 - 0.05 * i for i in range(G)]
PRIOR = {"avspo": 0.75, "lens_pooled": 2.5}  # a collapse rate, a difficulty; else a success rate
WORDS = {
    "zero": "nothing",
    "dropped": "left out",
    "zero_sum": "zero-sum",
    "all_negative": "all down",
    "all_positive": "all **up**",
    "batch_dependent": "depends on the batch or the state",
}


def page() -> str:
    """The whole page."""
    lines = [
        "# What each method does to a group in which every answer is wrong",
        "",
        "Every method is a call, `methods.get(name)(rollouts)`, and trains with "
        "`python -m lens_ref.train --method NAME`. This page is written by `python docs/build.py` "
        "from the specs, and the numbers by calling the methods.",
        "",
        "| method | a negative group | in sign and size | cost beyond GRPO |",
        "|---|---|---|---|",
    ]
    for name in _order():
        spec = methods.spec(name)
        words = WORDS[spec.negative_class]
        lines.append(f"| `{name}` | {words} | {spec.negative_signal} | {spec.cost} |")
    lines += [
        "",
        "What each is, where it comes from and where its formula was read, with its default "
        "hyperparameters (and those of its source where they differ) and the published loss that "
        "`--as-published` uses:",
        "",
        "| method | advantages | paper | formula read in | defaults | source's | published loss |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_origin(name) for name in _order()]
    lines += [
        "",
        f"Advantages at the defaults (ddof = 0), G = {G}, confidences π̄ = 0.90, 0.85, …, 0.55, in "
        "a batch of three groups: all wrong, the first right, the first four right (REINFORCE++ "
        "and SPO look at all of them). A success rate of 0.5 for `ebpo` and `spo`, a collapse "
        "rate of 0.75 for `avspo`, D̂ = 2.5 for `lens_pooled`. `rl_zvp` would give an answer of "
        "one token 0 in the first group: its answers have two, of 0.2 and 1.2 nats, and the first "
        "token's advantage is shown.",
        "",
        "| method | all wrong: most … least confident | one right | wrong beside it |",
        "|---|---|---|---|",
    ]
    lines += [_numbers(name) for name in _order()]
    lines += [
        "",
        "Signs differ, not sizes alone: `asymre` pushes wrong answers up, `nsr` and its kin push "
        "all of them down, LENS moves probability from confident mistakes to the others. On fixed "
        "rollouts one sees the signal of one step, not what training makes of it: for that see "
        "[when to use what](when-to-use.md).",
    ]
    return "\n".join(lines) + "\n"


def _order() -> list[str]:
    """Quiet ones first, the project's own last."""
    classes = list(WORDS)
    names = sorted(methods.names(), key=lambda n: classes.index(methods.spec(n).negative_class))
    own = ("lens", "lens_pooled")
    return [name for name in names if name not in own] + list(own)


def _origin(name: str) -> str:
    spec = methods.spec(name)
    paper = spec.source
    if paper.startswith("arXiv:"):
        paper = f"[{paper}](https://arxiv.org/abs/{paper.removeprefix('arXiv:')})"
    if name in ("lens", "lens_pooled"):
        defaults, source = f"`preset={spec.defaults['preset']}`, any field of `LensConfig`", ""
    else:
        defaults = _settings(spec.defaults)
        differing = {k: v for k, v in spec.source_defaults.items() if spec.defaults[k] != v}
        source = _settings(differing)
    state = _settings(spec.state_defaults)
    defaults = "; state: ".join(part for part in (defaults, state) if part)
    loss = f"clip {spec.loss.clip_low:g} / {spec.loss.clip_high:g}, {spec.loss.aggregation}"
    if spec.loss.clip_high == float("inf"):
        loss = "no clip (its objective has no ratio)"
    cells = (f"`{name}`", spec.summary, paper, spec.evidence, defaults, source, loss)
    return f"| {' | '.join(cells)} |"


def _settings(values: dict[str, object]) -> str:
    return ", ".join(f"`{k}={v}`" for k, v in values.items())


def _numbers(name: str) -> str:
    advantages = _advantages(name)
    wrong, one = advantages[0], advantages[1]
    both = [_number(wrong[0]), _number(wrong[-1])]
    shown = both[0] if both[0] == both[1] else " … ".join(both)
    if not methods.get(name)(_rollouts(name)).keep[0].any():
        shown = "left out"
    beside = [_number(one[1]), _number(one[-1])]
    others = beside[0] if beside[0] == beside[1] else " … ".join(beside)
    keep = methods.get(name)(_rollouts(name)).keep[1]
    right = _number(one[0]) if keep[0] else "left out"
    return f"| `{name}` | {shown} | {right} | {others if keep[1] else 'left out'} |"


def _advantages(name: str) -> Tensor:
    advantages = methods.get(name)(_rollouts(name)).advantages
    return advantages[..., 0] if advantages.ndim == 3 else advantages


def _rollouts(name: str) -> Rollouts:
    rewards = torch.zeros(3, G, dtype=torch.float64)
    rewards[1, 0] = 1.0
    rewards[2, :4] = 1.0
    log_confidence = torch.tensor(CONFIDENCE, dtype=torch.float64).log()
    prior = PRIOR.get(name, 0.5)
    return Rollouts(
        rewards=rewards,
        logprobs=2 * log_confidence.expand(3, G),
        lengths=torch.full((3, G), 2),
        entropy=torch.tensor([0.2, 1.2], dtype=torch.float64).expand(3, G, 2),
        prior=torch.full((3,), prior, dtype=torch.float64),
    )


def _number(x: Tensor) -> str:
    value = float(x)
    if value == 0:
        return "0"
    digits = 2 if abs(value) >= 0.1 else 4
    return f"{value:+.{digits}f}".replace("-", "−")
