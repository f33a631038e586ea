"""Every treatment of negative groups behind one call: `methods.get("lens")(rollouts) -> Signal`.

What one calls:

    methods.names()                   the registered names
    methods.spec("grpo")              what a method needs, what it does to a negative group
    methods.get("grpo", ddof=1)       the method with its hyperparameters bound
    methods.register(MethodSpec(…))   a method of one's own (CONTRIBUTING.md has an example)
"""

from lens_ref.methods import (  # noqa: F401  (each registers what it defines)
    asymre,
    entropy,
    grpo,
    lens,
    passk,
    polarity,
    prior,
    reinforce_pp,
    virtual,
)
from lens_ref.methods.registry import (
    Method,
    MethodSpec,
    PublishedLoss,
    State,
    get,
    names,
    register,
    spec,
)

__all__ = ["Method", "MethodSpec", "PublishedLoss", "State", "get", "names", "register", "spec"]
