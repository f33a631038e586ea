"""LENS, Likelihood Estimation with Negative Samples: learning from GRPO groups in which every
sampled answer is wrong.

Importing this package loads torch alone. The verifier (`lens_ref.verifier`) and the commands
(`python -m lens_ref.train`) need the `train` extra.
"""

from lens_ref import extensions, methods
from lens_ref.core import *  # noqa: F403
from lens_ref.core import __all__ as _core_names

__version__ = "0.1.0"
__all__ = [*_core_names, "extensions", "methods"]
