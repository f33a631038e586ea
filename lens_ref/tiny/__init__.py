"""The bundled synthetic task and the bundled tiny policy that the default training job uses."""

from lens_ref.tiny.task import (
    LEVELS,
    MAX_RESPONSE_TOKENS,
    POLICY_DIR,
    max_rows,
    test_rows,
    train_rows,
)

__all__ = ["LEVELS", "MAX_RESPONSE_TOKENS", "POLICY_DIR", "max_rows", "test_rows", "train_rows"]
