"""A reward function for verl: 1 where the last boxed answer equals the gold, else 0.

    reward.custom_reward_function.path=pkg://lens_ref.engines.verl_reward

Needs math-verify beside verl. verl's Hydra pins antlr4-python3-runtime to 4.9, which
latex2sympy2-extended reads too: install it without its `antlr4_13_2` extra.
"""

from __future__ import annotations

import atexit
from functools import cache
from typing import Any

from lens_ref.verifier import Verifier


@cache
def _verifier() -> Verifier:
    """One a process; its grading process starts at the first answer that needs one."""
    verifier = Verifier(workers=1)
    atexit.register(verifier.close)
    return verifier


def compute_score(
    data_source: str, solution_str: str, ground_truth: str | float, extra_info: Any = None, **_: Any
) -> float:
    """The reward of one response, 0.0 or 1.0; called from verl's threads.

    Args:
        data_source, extra_info: as verl passes them; every source is graded alike.
        solution_str: the response.
        ground_truth: the gold answer; a number counts as its text.

    Raises:
        TypeError: a gold that is neither text nor a number.
    """
    if not isinstance(ground_truth, str | int | float):
        kind = type(ground_truth).__name__
        raise TypeError(f"ground_truth must be text or a number, got {kind} ({data_source})")
    return _verifier().grade([str(ground_truth)], [solution_str])[0].reward
