"""The methods that are compared, and what each makes of the draws of a step.

Hyperparameters are the library's defaults, which are those of the sources but for details of the
standard deviation: it is the biased one without an ε throughout, as in the reference simulations,
where some sources divide by G − 1 (3 % at G = 16). Where a response is one option, three methods
are less than they could be: RL-ZVP gives a negative group 0, the presets `normalized_difficulty`
and `raw_all` are LENS as printed, and REINFORCE++ whitens over a single group if a seed has one
question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from lens_ref import methods
from lens_ref.core import Rollouts
from toy.rules import Draws
from toy.spaces import Bools, Floats, entropy

Size = Literal["published", "equal_size"]
"""published: every method's own advantages, averaged over the responses it keeps.
equal_size: those of an update divided by their RMS, so that every update that has a signal at all
pushes equally hard, and shape and sign alone differ."""


@dataclass(frozen=True)
class Treatment:
    """A row of the tables."""

    label: str
    method: str
    hyperparameters: tuple[tuple[str, Any], ...] = ()


def _lens(preset: str, **fields: Any) -> Treatment:
    name = "posterior_std" if fields else preset
    return Treatment(f"LENS, {name}", "lens", (("preset", preset), *fields.items()))


TREATMENTS: dict[str, Treatment] = {
    "grpo": Treatment("GRPO", "grpo"),
    "dr_grpo": Treatment("Dr. GRPO", "dr_grpo"),
    "rloo": Treatment("RLOO", "rloo"),
    "dapo": Treatment("DAPO (filter)", "dapo"),
    "passk": Treatment("pass@4", "passk"),
    "psr": Treatment("PSR", "psr"),
    "nsr": Treatment("NSR", "nsr"),
    "w_reinforce": Treatment("W-REINFORCE", "w_reinforce"),
    "ngrpo": Treatment("NGRPO", "ngrpo"),
    "rl_zvp": Treatment("RL-ZVP", "rl_zvp"),
    "reinforce_pp": Treatment("REINFORCE++", "reinforce_pp"),
    "asymre": Treatment("AsymRE", "asymre", (("delta_v", -0.05),)),
    "lens_paper": _lens("paper"),
    "lens_neg_unscaled": _lens("neg_unscaled"),
    "lens_no_scale": _lens("no_scale"),
    "lens_negative_std": _lens("negative_std"),
    "lens_posterior_std": _lens("neg_unscaled", negative_norm="posterior_std", alpha=1.0),
    "lens_no_demean": _lens("no_demean"),
    "lens_likelihood": _lens("likelihood"),
    "lens_normalized_difficulty": _lens("normalized_difficulty"),
    "lens_pooled": Treatment("LENS, pooled D", "lens_pooled"),
}
AT_LENGTH_ONE_THE_SAME = ("lens_normalized_difficulty",)  # π̄ = π there: as lens_paper
STATELESS = tuple(
    name
    for name, treatment in TREATMENTS.items()
    if not methods.spec(treatment.method).stateful and name not in AT_LENGTH_ONE_THE_SAME
)


class Lesson(NamedTuple):
    """What a step's draws teach."""

    advantages: Floats  # [S, Q, G], of the mean over all S·Q·G draws; 0 in rows left out
    learns: Bools  # [S]: False where every response was left out, so that no update is made


def over_kept(advantages: Floats, keep: Bools) -> Floats:
    """Advantages whose mean over all responses of a seed is the mean over the kept ones; 0 in the
    others. `advantages`, `keep`: `[S, …]`."""
    share = keep.mean(tuple(range(1, keep.ndim)), keepdims=True)
    return np.where(keep, advantages, 0.0) / np.where(share > 0, share, 1.0)


class Teacher:
    """One treatment at work on all seeds of a cell; remembers what its method remembers."""

    def __init__(self, name: str, size: Size = "published") -> None:
        self.treatment, self.size = TREATMENTS[name], size
        spec = methods.spec(self.treatment.method)
        self._method = methods.get(self.treatment.method, **dict(self.treatment.hyperparameters))
        self._needs = spec.needs
        self._per_seed = spec.negative_class == "batch_dependent"
        self._past: PooledSums | None = PooledSums() if spec.name == "lens_pooled" else None

    def __call__(self, draws: Draws) -> Lesson:
        """The advantages of a step."""
        advantages, keep = self._advantages(draws)
        advantages = np.where(keep, advantages, 0.0)
        kept = keep.sum((1, 2))
        if self.size == "equal_size":
            mean_square = (advantages**2).sum((1, 2)) / np.maximum(kept, 1)
            rms = np.sqrt(mean_square)[:, None, None]
            advantages = advantages / np.where(rms > 0, rms, 1.0)
        return Lesson(over_kept(advantages, keep), kept > 0)

    def keep(self, rows: Bools) -> None:
        """Go on with these seeds only. `rows`: `[S]`."""
        if self._past is not None:
            self._past.keep(rows)

    def _advantages(self, draws: Draws) -> tuple[Floats, Bools]:
        prior = None if self._past is None else self._past.prior(draws)
        if self._per_seed:
            parts = [self._call(draws, slice(s, s + 1), prior) for s in range(len(draws.rewards))]
            found = tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))
        else:
            found = self._call(draws, slice(None), prior)
        if self._past is not None:
            self._past.add(draws)
        return found  # type: ignore[return-value]

    def _call(self, draws: Draws, seeds: slice, prior: Floats | None) -> tuple[Floats, Bools]:
        """The library's own method, on responses of one token."""
        rewards = draws.rewards[seeds]
        shape, flat = rewards.shape, (-1, rewards.shape[-1])
        fields: dict[str, torch.Tensor] = {}
        if prior is not None:
            fields["prior"] = torch.from_numpy(prior[seeds].reshape(-1))
        if "entropy" in self._needs:
            nats = np.broadcast_to(entropy(draws.policy[seeds])[..., None], shape)
            fields["entropy"] = torch.from_numpy(nats.reshape(flat).copy()).unsqueeze(-1)
        rollouts = Rollouts(
            rewards=torch.from_numpy(rewards.reshape(flat)),
            logprobs=torch.from_numpy(draws.log_pi[seeds].reshape(flat)),
            lengths=torch.ones(rewards.reshape(flat).shape),
            **fields,
        )
        signal = self._method(rollouts)
        advantages = signal.advantages
        if advantages.ndim == 3:  # one token a response
            advantages = advantages.squeeze(-1)
        return advantages.reshape(shape).numpy(), signal.keep.reshape(shape).numpy()


class PooledSums:
    """The state of `lens_pooled` for all seeds at once: `count` = G and D₀ = 1, so that
    1/D̂ = (G + Σ r/π) / (G + n)."""

    def __init__(self) -> None:
        self._n: Floats | float = 0.0
        self._sum: Floats | float = 0.0

    def prior(self, draws: Draws) -> Floats:
        """`[S, Q]`: D̂ of the past."""
        group_size = draws.rewards.shape[-1]
        pooled = (group_size + self._n) / (group_size + self._sum)
        return np.broadcast_to(pooled, draws.rewards.shape[:2]).copy()

    def add(self, draws: Draws) -> None:
        """Put a step into the past."""
        self._n = self._n + np.full(draws.rewards.shape[:2], float(draws.rewards.shape[-1]))
        self._sum = self._sum + (draws.rewards * np.exp(-draws.log_pi)).sum(-1)

    def keep(self, rows: Bools) -> None:
        """Go on with these seeds only."""
        self._n, self._sum = self._n[rows], self._sum[rows]  # type: ignore[index]
