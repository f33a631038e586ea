"""The samplers of a session: vLLM is started once for all runs that it can serve.

It takes minutes to start, and a process does not get all of an engine's memory back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lens_ref.rlvr.config import Config
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.policy import Policy
from lens_ref.rlvr.sampler import Sampler, make_sampler


class Samplers:
    """Hands one run after the other its sampler."""

    def __init__(self) -> None:
        self._running: Any = None  # a VLLMSampler

    @property
    def running(self) -> bool:
        """Whether an engine has taken its memory already."""
        return self._running is not None

    def take(
        self, policy: Policy, config: Config, longest_prompt: int, check_stop: Callable[[], None]
    ) -> Sampler:
        """`make_sampler`, or the engine of the run before, which must be through with it.

        Raises:
            UserError: also where the run needs another engine and vLLM would not start it.
        """
        if self.running:
            if self._running.adopt(policy, config, longest_prompt, check_stop):
                kept: Sampler = self._running
                return kept
            if self._running.sleeps:
                raise UserError(
                    "this run needs another vLLM than the run before it, and one process can have "
                    "only one with sleep mode: go on with --resume, in a new process"
                )
            self.close()
        made = make_sampler(policy, config, longest_prompt, check_stop)
        if made.engine == "vllm":
            self._running = made
        return made

    def leave(self, sampler: Sampler) -> None:
        """A run is over: what can serve the next one stays, without the policy."""
        if sampler is self._running:
            self._running.rest()  # the next policy is loaded beside it
            self._running.policy = None
        else:
            sampler.close()

    def close(self) -> None:
        """Shut down what is running."""
        if self._running is not None:
            self._running.close()
            self._running = None
