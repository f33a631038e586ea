"""What is evaluated: a base model, an adapter, a checkpoint, or a run's last checkpoint; with the
configuration that says how to ask it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from lens_ref.evaluating import trainings
from lens_ref.evaluating.trainings import Training
from lens_ref.rlvr import checkpoint, sampler
from lens_ref.rlvr.adapter import WEIGHTS_FILE, adapter_hash, adapter_tensors, has_adapter
from lens_ref.rlvr.config import Config, LoraConfig, flat, load
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.files import damaged, read_object
from lens_ref.rlvr.manifest import comparable, other_weights, policy_entry
from lens_ref.rlvr.policy import Policy, load_policy, model_folder
from lens_ref.rlvr.run_folder import RunFolder, find_runs, runs_below

ADAPTER_CONFIG = "adapter_config.json"
DEFAULT_RECIPE = "paper/common"
"""How a model that comes without a configuration is asked: as in the paper's experiments."""
FIXED = {
    "rollout.temperature": 1.0,
    "model.compile": False,  # nothing is trained here
    "model.gradient_checkpointing": False,
}
ELSEWHERE = {"eval.n": "--n", "seed": "--seed"}
"""Of how policies are asked; the configuration tells how a run was trained."""
UNSUPPORTED = (
    "use_dora", "use_rslora", "modules_to_save", "rank_pattern", "alpha_pattern", "lora_bias",
    "layers_to_transform", "target_parameters", "exclude_modules", "alora_invocation_tokens",
    "layer_replication", "fan_in_fan_out", "trainable_token_indices", "use_qalora",
)  # fmt: skip
"""Fields of a peft configuration that mean another function than W x + s·B(A x)."""
INITIAL = (True, False, None, "gaussian", "eva", "orthogonal")
"""Values of `init_lora_weights` that leave the base as it is; pissa, olora and others change it."""


@dataclass(frozen=True)
class Options:
    """What the command line says about policies."""

    config: tuple[str, ...] | None = None  # files or recipes
    overrides: dict[str, Any] | None = None


@dataclass(frozen=True)
class Target:
    """A policy to evaluate, not loaded yet."""

    path: tuple[str, ...]  # parts of its path, the last ones name it
    config: Config
    adapter: Path | None = None  # folder, on top of `config.model`
    seed: int | None = None  # of its training run
    step: int | None = None  # of its training run
    own_data: bool = False  # the configuration is its own: its test set is meant
    trained: Training | None = None  # as its run folder tells


class NoCheckpointError(UserError):
    """A run that can't be evaluated yet."""


def find(text: str, options: Options, notes: list[str] | None = None) -> list[Target]:
    """The policy that an argument names, or one for each run of a parent folder.

    Args:
        notes: a line is added for every run of a parent that is left out, since it has no
            checkpoint yet.

    Raises:
        UserError: nothing there, or it can't be evaluated.
    """
    if not text:  # as a path the working folder
        raise UserError("the name of a policy is empty: name one, or leave it out for tiny")
    folder = Path(text).expanduser()
    if not folder.is_dir():
        return [_model(text, tuple(text.rstrip("/").split("/")), options)]
    if (folder.parent / "state.json").is_file() and folder.name == "policy":
        folder = folder.parent
    parts = folder.resolve().parts
    if (folder / "state.json").is_file():
        return [_checkpoint(folder, options)]
    if (folder / ADAPTER_CONFIG).is_file():
        return [_adapter(folder, parts, options)]
    if (folder / "config.json").is_file():
        return [_model(text, parts, options)]
    try:
        runs = find_runs(folder)
    except UserError:
        raise UserError(
            f"{text} holds no run, no checkpoint, no adapter and no model to evaluate"
            f"{runs_below(folder)}"
        ) from None
    found, left = list[Target](), list[NoCheckpointError]()
    for run in runs:
        try:
            found.append(_run(run.path, options))
        except NoCheckpointError as error:
            left.append(error)
    if not found:
        raise left[0]
    if notes is not None:
        notes += [f"{error}: left out" for error in left]
    return found


def names(paths: Sequence[tuple[str, ...]]) -> list[str]:
    """A folder name for each path: its last part, and as much before as tells them apart.

    Raises:
        UserError: one path twice, or two that have one name in the characters of folder names.
    """
    found: list[str] = []
    for width in range(1, max(map(len, paths)) + 1):
        whole = ("-".join(path[-width:]).replace("/", "") for path in paths)
        found = [re.sub(r"[^\w.+=-]", "_", name) for name in whole]
        if len(set(found)) == len(found):
            return found
    one, other = next(
        (paths[found.index(name)], path)
        for i, (name, path) in enumerate(zip(found, paths, strict=True))
        if name in found[:i]
    )
    if one == other:
        raise UserError(f"{'/'.join(other[-2:])} is named twice")
    raise UserError(
        f"{'/'.join(one[-2:])} and {'/'.join(other[-2:])} would have one name: rename one of them"
    )


def load_target(target: Target, device: torch.device) -> Policy:
    """The policy with its weights.

    On a GPU a base model carries an adapter that adds nothing (B = 0): it is computed in the same
    precision as trained adapters, and vLLM serves it like them.

    Raises:
        UserError: weights that are not there, or don't fit; another base than the adapter's own.
    """
    config = target.config
    policy = load_policy(config.model, device, config.seed, config.rollout.stop_tokens)
    if target.adapter is not None:
        base = target.trained.base if target.trained is not None else {}
        if what := other_weights(base, policy_entry(policy)):
            raise UserError(
                f"{'/'.join(target.path[-2:])} was trained over {base.get('source')}, and "
                f"{config.model.path} holds other weights ({what}): name its own base with --model"
            )
        _load_adapter(policy, target.adapter)
    return policy


def base_unknown(target: Target, policy: Policy) -> bool:
    """Whether nothing tells if the loaded model is the one that a run's adapter was trained over,
    though another path or hub id than that one's was given."""
    if target.adapter is None or target.trained is None:
        return False
    own = flat(target.trained.config).get("model.path")
    moved = target.config.model.path != own
    return moved and not comparable(target.trained.base, policy_entry(policy))


def prepared(target: Target, device: torch.device) -> Target:
    """With the empty adapter that `load_target` speaks of."""
    model = target.config.model
    if not sampler.on_gpu(device) or model.lora is not None or model.dtype == "float32":
        return target
    model = replace(model, lora=LoraConfig(r=8, alpha=8.0))
    return replace(target, config=replace(target.config, model=model))


def weights_hash(policy: Policy) -> dict[str, str | None]:
    """Of the loaded model (from the hub: the commit, where it is known) and of the adapter."""
    adapter = None
    if has_adapter(policy):
        adapter = adapter_hash(adapter_tensors(policy, torch.float32))
    model = policy.sha256 or getattr(policy.model.config, "_commit_hash", None)
    return {"model": model, "adapter": adapter}


# --- kinds of policies ----------------------------------------------------------------------------


def _config(
    files: str | Sequence[str] | None, overrides: dict[str, Any], options: Options
) -> Config:
    given = options.overrides or {}
    for key in FIXED:
        if key in given:
            raise UserError(f"{key} can't be set here: pass@k is measured at temperature 1")
    for key, option in ELSEWHERE.items():
        if key in given:
            raise UserError(f"{key} can't be set here: give {option} instead")
    return load(files, {**overrides, **given, **FIXED})


def _whole(name: str, options: Options) -> None:
    """UserError where the command line would put another model into the place of this one."""
    if "model.path" in (options.overrides or {}):
        raise UserError(
            f"{name} is a whole model: --model (model.path) is the base of adapters alone"
        )


def _model(text: str, parts: tuple[str, ...], options: Options) -> Target:
    files = options.config
    if files is None and text != "tiny":
        files = (DEFAULT_RECIPE,)
    _whole(text, options)
    config = _config(files, {"model.path": text}, options)
    model_folder(config.model.path)  # a slip of the pen is told before anything is loaded
    if config.model.quantization is None:  # 4-bit weights come with an adapter, empty here
        config = replace(config, model=replace(config.model, lora=None))
    return Target(parts, config, own_data=text == "tiny" or options.config is not None)


def _adapter(folder: Path, parts: tuple[str, ...], options: Options) -> Target:
    files = options.config or (DEFAULT_RECIPE,)
    config = _config(files, read_adapter_config(folder), options)
    return Target(parts, config, folder, own_data=options.config is not None)


def _run(folder: Path, options: Options, at: Path | None = None) -> Target:
    """A run at a checkpoint, its last one where none is given."""
    if options.config is not None:
        raise UserError(
            f"{folder} brings its own configuration: drop --config, change fields with --set"
        )
    parts = folder.resolve().parts
    if at is None:
        at = checkpoint.latest(folder / "checkpoints")
        if at is None:
            raise NoCheckpointError(f"{folder} has no intact checkpoint to evaluate")
    else:
        parts = (*parts[:-1], f"{parts[-1]}-{at.name}")
    weights, step = at / "policy", int(at.name.removeprefix("step-"))
    adapted = (weights / ADAPTER_CONFIG).is_file()
    overrides: dict[str, Any] = {}
    if not adapted:
        _whole(str(folder), options)
        overrides = {"model.path": str(weights), "model.lora": None}
    RunFolder(folder).config()  # what is wrong with it is said of this file
    config = _config(str(folder / "config.yaml"), overrides, options)
    adapter, trained = weights if adapted else None, trainings.read(folder)
    return Target(parts, config, adapter, config.seed, step, own_data=True, trained=trained)


def _checkpoint(folder: Path, options: Options) -> Target:
    if what := checkpoint.damage(folder):
        raise damaged(folder, what, "evaluate another one, or copy it again")
    run = folder.resolve().parent.parent
    if (run / "config.yaml").is_file() and re.fullmatch(r"step-\d+", folder.resolve().name):
        return _run(run, options, folder.resolve())
    weights, parts = folder / "policy", folder.resolve().parts
    if (weights / ADAPTER_CONFIG).is_file():
        return _adapter(weights, parts, options)
    return _model(str(weights), parts, options)


# --- adapters -------------------------------------------------------------------------------------


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """Overrides of the configuration from a peft adapter's own.

    Raises:
        UserError: not JSON, no LoRA adapter, or of a kind that is not computed here.
    """
    path = folder / ADAPTER_CONFIG
    raw = read_object(path, "copy the adapter again")
    if raw.get("peft_type") != "LORA":
        raise UserError(f"{path} describes no LoRA adapter")
    for name in UNSUPPORTED:
        if raw.get(name):
            raise UserError(f"{path}: adapters with {name} are not supported")
    if (start := raw.get("init_lora_weights", True)) not in INITIAL:
        raise UserError(f"{path}: adapters begun with {start} change the base and aren't supported")
    if raw.get("bias", "none") != "none":
        raise UserError(f"{path}: adapters with bias are not supported")
    r, alpha = raw.get("r"), raw.get("lora_alpha")
    if type(r) is not int or r < 1 or type(alpha) not in (int, float) or not 0 < alpha < math.inf:
        raise UserError(f"{path}: r and lora_alpha must be positive numbers")
    base, modules = raw.get("base_model_name_or_path"), raw.get("target_modules")
    if isinstance(modules, list) and modules and all(isinstance(name, str) for name in modules):
        modules = rf"(.*\.)?({'|'.join(map(re.escape, sorted(modules)))})"
    if not isinstance(modules, str) or not isinstance(base, str) or not base:
        raise UserError(f"{path} must name target_modules and base_model_name_or_path")
    lora = {"r": r, "alpha": float(alpha), "target_modules": modules}
    return {"model.path": base, "model.lora": lora}


def _load_adapter(policy: Policy, folder: Path) -> None:
    from peft import set_peft_model_state_dict

    path = folder / WEIGHTS_FILE
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read the adapter {path}: {str(error).splitlines()[0]}") from None
    wanted = {name: own.shape for name, own in adapter_tensors(policy, torch.float32).items()}
    if set(wanted) != set(weights):
        strange = sorted(set(wanted) ^ set(weights))[0]
        where = "lacks" if strange in wanted else "has"
        raise UserError(f"the adapter {folder} does not fit the model: it {where} {strange}")
    for name, shape in wanted.items():
        if weights[name].shape != shape:
            raise UserError(
                f"the adapter {folder} does not fit the model: {name} is "
                f"{list(weights[name].shape)} instead of {list(shape)}"
            )
        if not weights[name].isfinite().all():
            raise UserError(f"the adapter {folder} holds numbers that are not finite ({name})")
    set_peft_model_state_dict(policy.model, weights)
