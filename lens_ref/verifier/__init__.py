r"""From a response to a reward: the last balanced box, graded in killable worker processes.

    from lens_ref.verifier import Verifier

    with Verifier(workers=2, timeout=5.0) as verifier:
        verdicts = verifier.grade([r"\frac{1}{2}"], [r"so it is $\boxed{0.5}$"])

The way of an answer: `boxes` finds it, `spelling` makes its LaTeX uniform, `reading` takes it apart
(interval, list, unit, time, ...), `equality` compares it with the gold part by part, `algebra`
compares single expressions with sympy through math-verify. All but `boxes` run in `worker`
processes, which `process` starts and kills and `pool` feeds. Needs no torch.
"""

from .boxes import extract_boxed
from .pool import MAX_ANSWER_CHARS, Reason, Verdict, Verifier

__all__ = ["MAX_ANSWER_CHARS", "Reason", "Verdict", "Verifier", "extract_boxed"]
