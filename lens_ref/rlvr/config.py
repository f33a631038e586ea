"""The configuration of a run: frozen, validated dataclasses behind YAML files and `--set`.

The defaults are the embedded run: the bundled tiny policy on the bundled task, on a CPU. Every
other recipe is a YAML file in `configs/` that names what differs.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from lens_ref import methods
from lens_ref.core._checks import nearest
from lens_ref.rlvr import recipes
from lens_ref.rlvr.data_config import STRICT, Count, DataConfig, Seed, Unsigned
from lens_ref.rlvr.errors import UserError
from lens_ref.rlvr.files import parse_yaml

PLAIN_TEMPLATE = (
    "Problem: {problem}\n\n"
    "Please reason step by step, and put your final answer within \\boxed{}.\n\n"
    "Solution:"
)
"""prompt.template = "plain": for base models that have no chat template, or do better without."""


def _named_template(text: str) -> str:
    """The resolved config holds the text itself, so that a run says what its prompts were."""
    return PLAIN_TEMPLATE if text == "plain" else text


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]

_FORM = re.compile(
    r"^(constrained-)?(str|int|bool|float|literal)$|\[|Config$"
)  # pydantic's names of the forms


@dataclass(frozen=True, config=STRICT)
class LoraConfig:
    """The adapter. The paper trained all weights; these values are this project's."""

    r: Count = 32
    alpha: Positive = 64.0
    target_modules: str = "all-linear"


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """The policy."""

    path: str = "tiny"  # "tiny" (bundled), a local folder, or a hub id
    lora: LoraConfig | None = None  # None trains all weights
    # auto: float32 on a CPU, bfloat16 on a GPU; all weights are trained in float32, computing bf16
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    quantization: Literal["nf4"] | None = None  # QLoRA: 4-bit frozen weights under the adapter
    # "auto": as many layers as memory asks for
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    compile: bool | Literal["auto"] = "auto"  # auto: on a GPU, unless the weights are 4-bit
    memory_gb: Positive | None = None  # use no more of the GPU than this, sampler included

    def __post_init__(self) -> None:
        if self.quantization and self.lora is None:
            raise ValueError("quantization: 4-bit weights can't be trained; it needs lora")


@dataclass(frozen=True, config=STRICT)
class PromptConfig:
    """How a question becomes tokens."""

    # "chat" (the model's own template), "plain" (PLAIN_TEMPLATE) or text with {problem}
    template: Annotated[str, AfterValidator(_named_template)] = "{problem}"
    system: str = ""  # system message of the chat template


@dataclass(frozen=True, config=STRICT)
class VllmConfig:
    """The vLLM engine, which runs inside the training process."""

    memory_share: Annotated[float, Field(gt=0, lt=1)] | Literal["auto"] = "auto"  # of the GPU
    # keys and values, instead of a share. None: what is left of the share, measured while nothing
    # else may touch the GPU. With a number several runs may start on one GPU at once
    cache_gb: Annotated[float, Field(ge=0.01, le=10_000)] | None = None
    max_sequences: Count = 512  # answers in flight at once
    sleep: bool | Literal["auto"] = "auto"  # free its memory during updates; auto: if it must
    eager: bool = False  # no compilation, no CUDA graphs: starts in seconds, samples more slowly
    # log-probabilities cost vLLM as much time as the tokens do. "auto": of every answer where the
    # loss uses the sampler's, else of one a question, for the drift
    logprobs: Literal["auto", "all"] = "auto"
    # "bitsandbytes": the sampler's weights in 4 bits, as the trainer's are under QLoRA
    quantization: Literal["bitsandbytes"] | None = None

    def __post_init__(self) -> None:
        if self.cache_gb is not None and self.memory_share != "auto":
            raise ValueError("memory_share and cache_gb: set one of them, not both")


@dataclass(frozen=True, config=STRICT)
class RolloutConfig:
    """Sampling. Training needs the probabilities of the policy itself: no nucleus, no top-k."""

    engine: Literal["auto", "hf", "vllm"] = "auto"  # auto: vLLM where it can serve the adapter
    questions: Count = 128  # per rollout batch
    responses: Count = 16  # G, per question
    temperature: Positive = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: Count = 64
    batch_rows: Count = 2048  # responses that transformers' `generate` samples at once
    stop_tokens: tuple[str, ...] = ()  # beside the model's own end-of-sequence tokens
    # mean |log-probability, sampler - trainer|, nats a token, above which the run stops: the
    # sampler runs other weights then. Rounding to bfloat16 alone gives about 0.02
    max_drift: Positive = 0.2
    vllm: VllmConfig = VllmConfig()

    def __post_init__(self) -> None:
        if self.responses < 2:
            raise ValueError("responses = 1: a group needs at least 2 answers to compare")
        if self.top_p != 1.0 or self.top_k != 0:
            raise ValueError(
                "top_p and top_k renormalise the sampler's probabilities, not the trainer's: "
                "training needs top_p = 1 and top_k = 0"
            )


@dataclass(frozen=True, config=STRICT)
class OptimizerConfig:
    """AdamW with linear warm-up, then constant."""

    lr: Positive = 7e-4
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    warmup_updates: Unsigned = 20
    grad_clip: Positive = 1.0


@dataclass(frozen=True, config=STRICT)
class LossConfig:
    """The clipped surrogate of the paper: ratio clipped to 1 ± 0.2, per-sequence mean, no KL."""

    clip_low: Annotated[float, Field(ge=0)] = 0.2
    clip_high: Annotated[float, Field(ge=0)] = 0.2
    aggregation: Literal["sequence_mean", "token_mean", "constant"] = "sequence_mean"
    as_published: bool = False  # take clip and aggregation from the method's own paper
    updates_per_rollout: Count = 4
    old_logprobs: Literal["trainer", "sampler"] = "trainer"
    # weigh every token by min(trainer / sampler probability, cap): for a sampler that runs a
    # rounded copy of the policy
    sampler_correction: Literal["none", "truncate"] = "none"
    correction_cap: Positive = 2.0
    micro_batch_tokens: Count = 65536  # of one forward and backward pass, prompts included

    def __post_init__(self) -> None:
        if self.sampler_correction != "none" and self.old_logprobs == "sampler":
            raise ValueError(
                "sampler_correction compares the trainer's log-probabilities with the sampler's: "
                'it needs old_logprobs = "trainer"'
            )


@dataclass(frozen=True, config=STRICT)
class EvalConfig:
    """Evaluation during training, with its own random numbers: turning it on changes nothing."""

    every: Unsigned = 20  # updates; 0: never; also before the first update and after the last
    n: Count = 16  # responses per question


@dataclass(frozen=True, config=STRICT)
class CheckpointConfig:
    """Checkpoints of everything a run needs to go on."""

    every: Unsigned = 20  # updates; 0: only at the end and when interrupted
    keep: Count = 2


@dataclass(frozen=True, config=STRICT)
class VerifierConfig:
    """Grading in worker processes."""

    workers: Count = 2
    timeout: Positive = 5.0  # seconds an answer
    memory_mb: Annotated[int, Field(ge=256)] = 1024  # address space of one process, MiB
    recycle: Count = 5000  # a process is replaced after so many answers


@dataclass(frozen=True, config=STRICT)
class LogConfig:
    """Where metrics go beside metrics.csv and the console."""

    tensorboard: bool = False  # event files in the run folder
    wandb: str | None = None  # a Weights & Biases project


@dataclass(frozen=True, config=STRICT)
class Config:
    """A run, or several that differ in the method alone."""

    methods: tuple[str, ...] = ("grpo", "lens")  # "name" or "name:key=value,key=value"
    seed: Seed = 0
    steps: Count = 60  # gradient updates
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    # at a log-probability, reward, advantage or gradient that is not finite or can't be: stop, or
    # skip that update, which counts as a step (three in a row stop the run)
    bad_numbers: Literal["stop", "skip"] = "stop"
    model: ModelConfig = ModelConfig()
    prompt: PromptConfig = PromptConfig()
    data: DataConfig = DataConfig()
    rollout: RolloutConfig = RolloutConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    loss: LossConfig = LossConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    verifier: VerifierConfig = VerifierConfig()
    log: LogConfig = LogConfig()

    def __post_init__(self) -> None:
        if not self.methods:
            raise ValueError("methods: name at least one")
        labels = [method_label(text) for text in self.methods]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"methods: {label} is named twice")
        for text in self.methods:
            self._check_method(text)
        if self.rollout.questions % self.loss.updates_per_rollout:
            raise ValueError(
                f"rollout.questions = {self.rollout.questions} must be a multiple of "
                f"loss.updates_per_rollout = {self.loss.updates_per_rollout}: no group is split"
            )
        if self.prompt.template != "chat" and "{problem}" not in self.prompt.template:
            raise ValueError('prompt.template must be "chat" or contain {problem}')

    def _check_method(self, text: str) -> None:
        name, given = parse_method(text)
        if "entropy" in methods.spec(name).needs and self.loss.old_logprobs == "sampler":
            raise ValueError(
                f"methods: {name} needs token entropies, which the trainer records with its own "
                'old log-probabilities: set loss.old_logprobs to "trainer"'
            )
        k = {**methods.spec(name).defaults, **given}.get("k", 1)
        if name == "passk" and k >= self.rollout.responses:
            raise ValueError(
                f"methods: {name} with k = {k} needs more than {k} rollout.responses, "
                f"not {self.rollout.responses}: it would give every answer 0"
            )

    @property
    def method(self) -> str:
        """The method of a single run."""
        (method,) = self.methods
        return method

    @property
    def same_bits(self) -> bool:
        """Whether vLLM's weights would be in 4 bits exactly where the trainer's are."""
        return (self.model.quantization is None) == (self.rollout.vllm.quantization is None)

    @property
    def scores_all(self) -> bool:
        """Whether the sampler's log-probabilities of every answer are needed, or wanted."""
        loss = self.loss
        needed = loss.old_logprobs == "sampler" or loss.sampler_correction != "none"
        return needed or self.rollout.vllm.logprobs == "all"

    def single(self, method: str) -> Config:
        """The same run with one method."""
        return replace(self, methods=(method,))


def as_number(value: Any) -> Any:
    """A number where YAML reads one as text: 1e-5."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def parse_method(text: str) -> tuple[str, dict[str, Any]]:
    """ "lens:preset=negative_std,alpha=0.5" → ("lens", {"preset": "negative_std", "alpha": 0.5}).

    Raises:
        ValueError: an unknown method, hyperparameter or value, with the nearest known name.
    """
    name, _, rest = text.partition(":")
    if name not in methods.names():
        raise ValueError(
            f"unknown method {name!r}: {nearest(name, methods.names())} (one of your own: --import "
            "the module that registers it)"
        )
    hyperparameters: dict[str, Any] = {}
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"method {text!r}: write hyperparameters as name:key=value,key=value")
        try:
            hyperparameters[key.strip()] = as_number(parse_yaml(value))
        except ValueError:
            raise ValueError(f"method {text!r}: {value!r} is not a value") from None
    try:
        methods.get(name, **hyperparameters)
    except TypeError as error:
        raise ValueError(f"method {text!r}: {error}") from None
    return name, hyperparameters


def method_label(text: str) -> str:
    """A folder name for a method: "lens:preset=negative_std" → "lens-negative_std"."""
    name, hyperparameters = parse_method(text)
    parts = [str(v) if k == "preset" else f"{k}{v}" for k, v in hyperparameters.items()]
    return "-".join([name, *parts]).replace("/", "_")


def load(
    path: str | Sequence[str] | None = None, overrides: dict[str, Any] | None = None
) -> Config:
    """A config from YAML files (or the embedded default) and dotted overrides.

    Args:
        path: one file, or several to merge from left to right; or names of recipes in `configs/`.
        overrides: {"optimizer.lr": 1e-5, …}, applied on top.

    Raises:
        UserError: no such file, broken YAML, an unknown key (with the nearest), a bad value.
    """
    data = recipes.read(path)
    for key, value in (overrides or {}).items():
        *parents, leaf = key.split(".")
        target = data
        for depth, parent in enumerate(parents):
            inner = target.get(parent)
            if not isinstance(inner, dict):
                _check_value(parents[: depth + 1], inner)
                target[parent] = {}
            target = target[parent]
        target[leaf] = value
    return from_dict(data)


def from_dict(data: dict[str, Any]) -> Config:
    """A validated config from nested dictionaries; UserError on anything wrong."""
    _check_keys(Config, data, "")
    try:
        return TypeAdapter(Config).validate_python(data)
    except ValidationError as error:
        # of a field with several forms, the form that the value came closest to
        first = max(error.errors(), key=lambda entry: len(entry["loc"]))
        where = ".".join(str(part) for part in first["loc"] if not _FORM.search(str(part)))
        message = str(first["msg"]).removeprefix("Value error, ")
        got = "" if isinstance(first["input"], dict) else f" (got {first['input']!r})"
        raise UserError(f"config: {where + ': ' if where else ''}{message}{got}") from None


def _check_value(path: Sequence[str], value: Any) -> None:
    """UserError where a value that an override is about to replace could not stand there at all."""
    if value is None:
        return
    for key in reversed(path):
        value = {key: value}
    from_dict(value)


def to_dict(config: Config) -> dict[str, Any]:
    """Plain nested dictionaries and lists, ready for YAML."""
    return _plain(asdict(config))  # type: ignore[no-any-return]


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"optimizer": {"lr": 1e-5}} → {"optimizer.lr": 1e-5}."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        inner = flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {}
        found |= inner or {f"{prefix}{key}": value}
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple | list) else value


def _check_keys(cls: Any, data: dict[str, Any], prefix: str) -> None:
    """Refuse unknown keys with the nearest known one, before pydantic's own longer message."""
    hints = typing.get_type_hints(cls, include_extras=False)
    known = [field.name for field in fields(cls)]
    for key, value in data.items():
        if key not in known:
            raise UserError(f"config: unknown key {prefix + str(key)!r}: {nearest(key, known)}")
        inner = _dataclass_of(hints[key])
        for entry in value if isinstance(value, list | tuple) else [value]:
            if inner is not None and isinstance(entry, dict):
                _check_keys(inner, entry, f"{prefix}{key}.")


def _dataclass_of(hint: Any) -> Any:
    """The dataclass that a field holds, alone, in a tuple or as one of several forms."""
    if is_dataclass(hint):
        return hint
    return next(filter(None, map(_dataclass_of, typing.get_args(hint))), None)
