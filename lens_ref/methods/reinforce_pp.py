"""REINFORCE++: rewards whitened over the whole batch instead of the group."""

from __future__ import annotations

from typing import Literal

import torch

from lens_ref.core._checks import nearest
from lens_ref.core.groups import Rollouts, Signal, centred
from lens_ref.methods._shared import ddof_and_eps, prepare, whitened
from lens_ref.methods.registry import Method, MethodSpec, register

_WEIGHTINGS = ("sequence", "token")
_BASELINES = ("none", "group")


def reinforce_pp(
    weighting: Literal["sequence", "token"] = "sequence",
    baseline: Literal["none", "group"] = "none",
    ddof: int = 0,
    eps: float = 0.0,
) -> Method:
    """A = (r − mean_batch) / (std_batch + eps).

    A negative group gets −mean/std each, for free. With `baseline="group"` the group mean goes
    first, and a uniform group should then get 0; but weighted by tokens the batch mean of what is
    left is not 0 where wrong answers are longer than right ones, and whitening leaks a constant
    into the uniform groups.

    Args:
        weighting: "sequence", one weight a response, or "token", its length.
        baseline: "none", or "group": subtract the group mean before whitening.
        ddof: the variance divides by the sum of weights − ddof.
        eps: added to the std, ≥ 0.
    """
    for name, value, known in (
        ("weighting", weighting, _WEIGHTINGS),
        ("baseline", baseline, _BASELINES),
    ):
        if value not in known:
            raise ValueError(f"{name} = {value!r}: {nearest(value, known)}")
    ddof, eps = ddof_and_eps(ddof, eps)

    @torch.no_grad()
    def method(rollouts: Rollouts) -> Signal:
        p = prepare(rollouts)
        x = centred(p.rewards, p.valid) if baseline == "group" else p.rewards
        weights = rollouts.lengths if weighting == "token" else None
        return p.signal(whitened(x, p.valid, weights, ddof, eps))

    return method


register(
    MethodSpec(
        name="reinforce_pp",
        build=reinforce_pp,
        summary="rewards whitened over the batch, no group statistic",
        source="arXiv:2501.03262",
        negative_class="batch_dependent",
        negative_signal="−mean/std of the batch's rewards each (−1 at accuracy ½); 0 if all are "
        "wrong",
        evidence="code of verl and OpenRLHF",
        source_defaults={"weighting": "token", "ddof": 1, "eps": 1e-8},
    )
)
