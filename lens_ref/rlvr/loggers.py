"""Metrics to TensorBoard and Weights & Biases, where a run asks for them.

metrics.csv is the record of a run; these are copies of its rows for watching. Neither package is
needed, nor loaded, unless asked for.
"""

from __future__ import annotations

import importlib
import math
import re
import threading
import uuid
from pathlib import Path
from typing import Any

from lens_ref.rlvr.config import LogConfig
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.files import damaged, read_text
from lens_ref.rlvr.run_folder import write_atomic, writing


def require_packages(log: LogConfig) -> None:
    """Call it before anything large is loaded.

    Raises:
        UserError: a package that the run asks for is missing; says how to install it.
    """
    wanted = {"tensorboard": log.tensorboard, "wandb": log.wandb is not None}
    for package in (name for name, asked in wanted.items() if asked):
        try:
            importlib.import_module(package)
        except ModuleNotFoundError as error:
            raise UserError(
                f"log.{package} needs a package that is not installed ({error.name}): "
                f"pip install {package}"
            ) from None


WANDB_SETTINGS = {
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "x_disable_meta": True,
}
"""Weights & Biases gets the metrics and the configuration: not the command line, the machine's and
the user's names, the source, or what is printed, which it would collect by itself."""


_WANDB_ID = re.compile(r"[0-9a-f]{32}")


class Loggers:
    """The loggers of one run, as a context manager; with a default `LogConfig` it does nothing.

    A resumed run goes on in the same curves. TensorBoard's rows from the first resumed step on are
    replaced. Weights & Biases keeps the rows it has: a repeated update is the same update.
    """

    def __init__(self, log: LogConfig, folder: Path, run_name: str, config: dict[str, Any]) -> None:
        """
        Args:
            folder: the run's; event files go into its `tensorboard/`.
            run_name: as Weights & Biases shows it.
            config: the resolved configuration, for Weights & Biases.

        Raises:
            UserError: a missing package.
        """
        require_packages(log)
        self.log_config, self.folder = log, folder
        self.run_name, self.config = run_name, config
        self.events = folder / "tensorboard"
        self._writer: Any = None  # made at the first row, whose step it has to know
        self._run: Any = None
        self._hook = threading.excepthook

    def __enter__(self) -> Loggers:
        if self.log_config.wandb is not None:
            self._run = self._start_wandb(self.log_config.wandb)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._writer is not None:
            self._close_tensorboard(failed=kind is not None)
        if self._run is not None:
            self._run.finish(exit_code=0 if kind is None else 1)

    def log(self, step: int, row: dict[str, Any]) -> None:
        """Log the numbers of a row; text, None and the step itself are left out."""
        numbers = {
            key: value
            for key, value in row.items()
            if key != "step" and isinstance(value, int | float) and not isinstance(value, bool)
        }
        if self.log_config.tensorboard:
            if self._writer is None:
                self._writer = self._start_tensorboard(step)
            with writing(self.events):
                for key, value in numbers.items():
                    self._writer.add_scalar(key, value, step)
        if self._run is not None:
            finite = {key: value for key, value in numbers.items() if math.isfinite(value)}
            self._run.log(finite, step=step)

    def _close_tensorboard(self, failed: bool) -> None:
        try:
            with writing(self.events):
                self._writer.close()
        except UserError:
            if not failed:  # else what went wrong first is told
                raise
        finally:
            threading.excepthook = self._hook

    def _start_tensorboard(self, step: int) -> Any:
        module = importlib.import_module("torch.utils.tensorboard")
        threading.excepthook = self._hear
        with writing(self.events):
            return module.SummaryWriter(log_dir=str(self.events), purge_step=step)

    def _hear(self, failure: threading.ExceptHookArgs) -> None:
        """TensorBoard writes in a thread of its own, and raises what failed there again at the next
        row: no traceback beside that."""
        own = type(failure.thread).__module__.startswith("tensorboard.")
        if not (own and isinstance(failure.exc_value, OSError)):
            self._hook(failure)

    def _start_wandb(self, project: str) -> Any:
        wandb = importlib.import_module("wandb")
        try:
            return wandb.init(
                project=project,
                name=self.run_name,
                id=self._wandb_id(),
                resume="allow",
                dir=str(self.folder),
                config=self.config,
                settings=WANDB_SETTINGS,
            )
        except wandb.Error as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"Weights & Biases: {reason} (log in with `wandb login`, or set WANDB_MODE=offline)"
            ) from error

    def _wandb_id(self) -> str:
        """Drawn once and kept in the run folder: a resumed run is the same run there."""
        path = self.folder / "wandb_id"
        if path.exists():
            mend = "delete it, and the curves go on in a new run there"
            kept = read_text(path, mend).strip()
            if not _WANDB_ID.fullmatch(kept):
                raise damaged(path, "it holds no id", mend)
            return kept
        drawn = uuid.uuid4().hex
        with writing(path):
            write_atomic(path, drawn + "\n")
        return drawn
