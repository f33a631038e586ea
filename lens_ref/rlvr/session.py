"""A session of the train command: plan the runs, check that they fit, train one after the other,
and write the report."""

from __future__ import annotations

import logging
import resource
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers.utils import logging as transformers_logging

from lens_ref.core import Signal
from lens_ref.rlvr import memory
from lens_ref.rlvr.batch import Batch, Samples
from lens_ref.rlvr.config import Config, load
from lens_ref.rlvr.console import console
from lens_ref.rlvr.errors import Interrupted, UserError
from lens_ref.rlvr.layers import checkpoint_layers, keep_less
from lens_ref.rlvr.lock import alone_in
from lens_ref.rlvr.loggers import require_packages
from lens_ref.rlvr.policy import Policy, load_policy, resolve_device
from lens_ref.rlvr.prompts import encode_prompts
from lens_ref.rlvr.run_folder import RunFolder, create_all, find_runs, refuse_secrets
from lens_ref.rlvr.sampler import choose_engine, make_sampler
from lens_ref.rlvr.samplers import Samplers
from lens_ref.rlvr.tasks import check_disjoint, common_ids, load_questions
from lens_ref.rlvr.trainer import Data, StopRequest, Trainer
from lens_ref.rlvr.update import Updater
from lens_ref.verifier import Verifier

UNIFORM_UPDATES = 8
"""After so many updates in a row without a mixed group, the run says so."""
LONGEST_NAME = 255
"""Bytes; what the usual file systems allow."""
REPORT = "report.html"


def run(
    out: str,
    name: str | None,
    resume: str | None,
    dry_run: bool,
    recipe: str,
    config_file: str | Sequence[str] | None,
    overrides: dict[str, Any],
    again: str = "",
    more_seeds: Sequence[int] = (),
) -> int:
    """Carry out the command line; returns the exit status.

    Args:
        again: what else the command that resumes this one must say.
        more_seeds: every method is trained with each of them too, beside the configuration's.

    Raises:
        UserError, Interrupted.
    """
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it tells of every retry
    if resume is not None:
        if overrides or config_file or name or dry_run:
            raise UserError("--resume goes on with the run's own config; drop the other options")
        found = find_runs(Path(resume))
        runs = [folder for folder in found if not folder.finished]
        if runs:
            with alone_in(*(folder.path for folder in runs)):
                return train_all(runs, again)
        parent = found[0].path.parent
        if (parent / REPORT).exists():
            raise UserError(f"every run in {resume} is finished; the report: {parent / REPORT}")
        with told_how_to_go_on(parent, again):
            return report(parent)
    refuse_secrets({"--name": name, "--out": out, "--config": recipe})
    config = load(config_file, overrides)
    require_packages(config.log)
    check_fits(config)
    if dry_run:
        with Verifier(**asdict(config.verifier)) as verifier:
            worst_case_step(config, load_data(config, verifier))
        return 0
    seeds = (config.seed, *more_seeds)
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seed {' '.join(map(str, seeds))} names one of them twice")
    each = [config, *(load(config_file, overrides | {"seed": seed}) for seed in more_seeds)]
    singles = [of_seed.single(method) for of_seed in each for method in config.methods]
    runs = new_runs(Path(out), name, recipe, singles)
    parent = runs[0].path.parent
    with alone_in(*(folder.path for folder in runs)):
        try:
            return train_all(runs, again)
        except (UserError, ModuleNotFoundError):
            if not list(parent.glob("*/manifest.json")):  # no run began: leave nothing behind
                shutil.rmtree(parent, ignore_errors=True)
            raise


def new_runs(
    out: Path, name: str | None, recipe: str, configs: Sequence[Config]
) -> list[RunFolder]:
    """Run folders in `out/name`, which must not exist yet, or in the first free `out/recipe[-n]`.

    Raises:
        UserError: the name is taken, or is no plain name: it would lead out of `out`.
    """
    if name is not None:
        if name in ("", ".", "..") or "/" in name or "\\" in name:
            raise UserError(
                f"--name {shlex.quote(name)} is not a plain folder name; say where with --out"
            )
        if len(name.encode()) > LONGEST_NAME:
            raise UserError(f"--name is longer than {LONGEST_NAME} bytes; choose a shorter one")
        try:
            return create_all(out / name, configs)
        except FileExistsError:
            raise UserError(
                f"{out / name} exists; choose another --name or --resume {out / name}"
            ) from None
    candidate, n = out / recipe, 1
    while True:
        if not candidate.exists():
            with suppress(FileExistsError):  # another command has just taken it
                return create_all(candidate, configs)
        n += 1
        candidate = out / f"{recipe}-{n}"


def check_fits(config: Config) -> None:
    """Print the memory plan of a large model; refuse what does not fit.

    Raises:
        UserError: what it needs, what the machine has, and the nearest command that runs here.
    """
    device = resolve_device(config.device)
    shape = memory.read_shape(config.model.path)
    if shape is None or config.model.path == "tiny":
        return
    free = memory.available(config, device)
    plan = memory.plan_for(config, shape, device, free, planned_sampler(config, device))
    where = "GPU memory" if device.type == "cuda" else "memory, and no GPU is used"
    console.print(f"{config.model.path}: memory plan\n{plan}")
    if plan.total > free:
        raise UserError(
            f"{config.model.path} needs about {memory.gigabytes(plan.total)} with these settings"
            f"{_on_a_gpu(config, shape) if device.type == 'cpu' else ''}; "
            f"this machine has {memory.gigabytes(free)} of free {where}. What runs here: "
            "python -m lens_ref.train (the bundled tiny policy), or --model FOLDER with a smaller "
            "model, or fewer tokens: --set rollout.max_new_tokens=256 rollout.batch_rows=16 "
            "loss.micro_batch_tokens=1024"
        )
    if device.type == "cpu":
        seconds = memory.cpu_seconds_per_update(config, shape)
        console.print(
            f"on this CPU an update takes up to about {_duration(seconds)} "
            f"({config.steps} updates: {_duration(seconds * config.steps)})"
        )


def _on_a_gpu(config: Config, shape: memory.Shape) -> str:
    least = memory.make_plan(
        config, shape, torch.device("cuda"), shape.layers, sampler=memory.NOTHING
    )
    return (
        f" here (on a GPU from about {memory.gigabytes(least.total)}, vLLM's own copy not counted)"
    )


def planned_sampler(config: Config, device: torch.device) -> memory.Share | None:
    """What vLLM will take; None where transformers samples.

    Raises:
        UserError: an engine that is not there or would run another policy.
    """
    if choose_engine(config, device) == "hf":
        return None
    from lens_ref.rlvr.vllm_engine import planned_share

    return planned_share(device, config, memory.PROMPT_TOKENS)


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def load_data(config: Config, verifier: Verifier) -> Data:
    """Training and test questions, unparsable golds dropped and counted on the console."""
    data = config.data
    test = None
    if data.test is not None:
        test = load_questions(data.test, verifier, limit=data.test_questions, split="test")
    train = load_questions(
        data.train,
        verifier,
        limit=data.train_questions,
        split=data.split,
        revision=data.revision,
        seed=config.seed,
        test=test,
    )
    for questions in filter(None, (test, train)):
        for line in questions.lines():
            console.print(line, highlight=False, markup=False)
    if test is not None and data.overlap == "refuse":
        check_disjoint(train, test)
    elif test is not None and (common := common_ids(train, test)):
        console.print(f"{len(common)} of {len(test)} test questions are also trained on")
    if test is not None and not config.eval.every:
        console.print(f"eval.every is 0: the {len(test)} test questions are not used")
    return Data(train, test)


class Inputs:
    """Questions, grading processes and samplers, shared by the runs of a session that agree on
    them."""

    def __init__(self) -> None:
        self.samplers = Samplers()
        self._key: object = None
        self._loaded: tuple[Data, Verifier] | None = None
        self._open = ExitStack()

    def __enter__(self) -> Inputs:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self.samplers.close()

    def of(self, config: Config) -> tuple[Data, Verifier]:
        """What this configuration calls for; loaded anew where it differs from the last one's.

        Raises:
            UserError: the data can't be used.
        """
        key = (config.data, config.verifier, config.seed)  # the bundled task depends on the seed
        if self._loaded is None or key != self._key:
            self._open.close()
            self._loaded = None
            verifier = Verifier(**asdict(config.verifier))
            self._open.enter_context(verifier)
            self._key, self._loaded = key, (load_data(config, verifier), verifier)
        return self._loaded


def train_all(runs: list[RunFolder], again: str = "") -> int:
    """Train the runs one after the other, then write the report of their parent folder."""
    parent = runs[0].path.parent
    with told_how_to_go_on(parent, again), StopRequest() as stop:
        with Inputs() as inputs:
            for folder in runs:
                train_one(folder, inputs, stop)
        stop.check()
        return report(parent)


@contextmanager
def told_how_to_go_on(parent: Path, again: str) -> Iterator[None]:
    """Say it where the user or the system asks to stop.

    Args:
        again: what else the command must say.
    """
    try:
        yield
    except Interrupted:
        command = f"python -m lens_ref.train --resume {shlex.quote(str(parent))}{again}"
        console.print(f"stopped and saved; go on with: {command}")
        raise


def report(parent: Path) -> int:
    """Write the report of a parent folder."""
    with StopRequest(at_once=True) as stop:
        from lens_ref.rlvr.run_report import write_report  # matplotlib and pandas: not at start-up

        path = write_report(parent)
        stop.check()  # a library may have swallowed it
    console.print(f"report: {path}")
    return 0


def train_one(folder: RunFolder, inputs: Inputs, stop: StopRequest) -> None:
    """Load everything that one run needs and train it."""
    config = folder.config()
    device = resolve_device(config.device)
    progress = progress_bar()
    bar = progress.add_task(folder.path.name, total=config.steps, info="")
    plain = not console.is_terminal
    uniform = 0

    def show(step: int, row: dict[str, Any]) -> None:
        nonlocal uniform
        uniform = uniform + 1 if row.get("mixed_share") == 0 else 0
        if uniform == UNIFORM_UPDATES:
            console.print(
                f"warning: for {uniform} updates every group was all wrong or all right: GRPO has "
                "learnt nothing from them. Is the verifier right? Are the questions too hard or "
                "too easy?",
                style="yellow",
            )
        info = "left out: a number was not finite"
        if "reward" in row:
            info = f"reward {row['reward']:.3f}  negative groups {row['negative_share']:.0%}"
        progress.update(bar, completed=step, info=info)
        if plain and (step % config.loss.updates_per_rollout == 0 or step == config.steps):
            console.print(f"{folder.path.name}  update {step}/{config.steps}  {info}")

    # The bar begins when nothing can be wrong with the input any more: an error stands alone.
    memory.give_back()  # of a run before this one
    with console.status(f"{folder.path.name}: loading"):
        data, verifier = inputs.of(config)
        policy = load_policy(config.model, device, config.seed, config.rollout.stop_tokens)
        keep_activations(config, policy, inputs.samplers.running)
        trainer = Trainer(
            config, folder, policy, data, verifier, stop, show, inputs.samplers,
            resumed=lambda step: progress.reset(bar, completed=step),
        )  # fmt: skip
    progress.update(bar, info="evaluating" if data.test and config.eval.every else "sampling")
    with progress:
        trainer.run()


def keep_activations(config: Config, policy: Policy, engine_runs: bool = False) -> None:
    """Under gradient_checkpointing = "auto": let as many layers keep their activations as memory
    allows, beside the sampler; `engine_runs`: vLLM has taken its memory already."""
    shape = memory.read_shape(config.model.path)
    if config.model.gradient_checkpointing != "auto" or shape is None:
        return
    loaded = memory.make_plan(config, shape, policy.device).weights
    sampler = planned_sampler(config, policy.device)
    held = sampler.updating if engine_runs and sampler is not None else 0
    free = memory.available(config, policy.device, loaded + held)
    plan = memory.plan_for(config, shape, policy.device, free, sampler)
    keep_less(plan.less)
    checkpoint_layers(policy.model, plan.recomputed)
    if policy.device.type == "cuda":
        console.print(f"memory plan beside the loaded model\n{plan}", highlight=False)


def progress_bar() -> Progress:
    """The live bar of a run."""
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[info]}", markup=False),
        console=console,
    )


def worst_case_step(config: Config, data: Data) -> None:
    """Train on the largest micro-batch there can be, every answer at the length limit, and print
    the time it took and the peak memory. The weights are thrown away."""
    device = resolve_device(config.device)
    policy = load_policy(config.model, device, config.seed, config.rollout.stop_tokens)
    keep_activations(config, policy)
    prompt = max(encode_prompts(policy, config, data.train), key=len)
    length = len(prompt) + config.rollout.max_new_tokens
    rows = max(1, config.loss.micro_batch_tokens // length)
    rows = min(rows, config.rollout.questions * config.rollout.responses)
    shape = (1, rows, config.rollout.max_new_tokens)
    vocabulary = policy.model.get_input_embeddings().weight.shape[0]
    samples = Samples(
        ids=torch.randint(vocabulary, shape),
        lengths=torch.full(shape[:2], shape[-1]),
        logprobs=torch.zeros(shape),
        truncated=torch.ones(shape[:2], dtype=torch.bool),
    )
    sampler = make_sampler(policy, config, len(prompt), lambda: None)  # its memory counts
    sampler.rest()
    updater = Updater(policy, config.rollout, config.optimizer, config.loss, lambda: None)
    started = time.monotonic()
    batch = updater.freeze_old(Batch(0, data.train.items[:1], (prompt,), samples))
    signs = torch.ones(shape[:2]) - 2 * (torch.arange(rows) % 2)
    batch = replace(batch, signal=Signal(signs, torch.ones(shape[:2], dtype=torch.bool)))
    updater.step(batch, slice(0, 1), 0)
    took = time.monotonic() - started
    sampler.close()
    peak = (
        torch.cuda.max_memory_allocated(device)
        if device.type == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    console.print(
        f"worst-case step: {rows} answers of {shape[-1]} tokens after a prompt of {len(prompt)}: "
        f"{took:.1f} s, peak memory {memory.gigabytes(peak)}"
    )
