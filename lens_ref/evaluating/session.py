"""A session of the evaluate command: find the policies and the questions, count correct answers,
and write the table; or make the table from counts that are there already."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from lens_ref import tasks
from lens_ref.core._checks import nearest
from lens_ref.evaluating import counts, overlap, pages, policies, provenance, sampling, trainings
from lens_ref.evaluating import questions as named
from lens_ref.evaluating.counts import Count
from lens_ref.evaluating.estimates import Evaluated, Overlap, by_method, compare, groups
from lens_ref.evaluating.policies import Options, Target
from lens_ref.evaluating.sampling import Plan
from lens_ref.rlvr import memory
from lens_ref.rlvr.config import Config
from lens_ref.rlvr.console import console
from lens_ref.rlvr.data_config import SourceConfig
from lens_ref.rlvr.errors import Interrupted, UserError
from lens_ref.rlvr.lock import alone_in
from lens_ref.rlvr.policy import resolve_device
from lens_ref.rlvr.run_folder import AGAIN, refuse_secrets, write_whole, writing
from lens_ref.rlvr.session import progress_bar
from lens_ref.rlvr.stop import StopRequest
from lens_ref.rlvr.tasks import Questions, load_questions, short_name
from lens_ref.verifier import Verifier

LINES = 20
"""Printed while an evaluation runs, where there is no live bar."""


@dataclass(frozen=True)
class Request:
    """The command line."""

    what: tuple[str, ...]  # policies
    options: Options
    plan: Plan
    counts: tuple[str, ...] = ()  # make the table from these, sample nothing
    data: str | None = None
    questions: int | None = None  # the first so many
    trained_on: tuple[str, ...] | None = None  # (): what the runs were trained on
    baseline: str | None = None
    out: Path | None = None


def run(request: Request) -> int:
    """Carry out the command line; returns the exit status.

    Raises:
        UserError, Interrupted.
    """
    refuse_secrets({"--out": str(request.out)})
    if request.counts:
        return _from_counts(request)
    _quiet()
    notes: list[str] = []
    targets = [t for text in request.what for t in policies.find(text, request.options, notes)]
    names = policies.names([target.path for target in targets])
    named_targets = zip(names, targets, strict=True)
    alike = by_method(Evaluated(name, (), trained=target.trained) for name, target in named_targets)
    _check_baseline(request.baseline, alike)
    source, limit = _tested(request, targets)
    out = request.out or Path("runs/evaluate")
    refuse_secrets({"the name of a policy": names})
    first = targets[0].config.verifier
    evaluated: list[Evaluated] = []
    try:
        with StopRequest() as stop, Verifier(**asdict(first)) as verifier:
            questions = _load(source, limit, verifier)
            if request.data is None:
                notes += _tested_on_others(request, targets, names, questions)
            shared = _overlap_of(request, targets, names, questions, verifier)
            for target, name in zip(targets, names, strict=True):
                if evaluated:
                    memory.give_back()  # of the policy before this one
                done = _evaluate(target, name, questions, verifier, request.plan, out, stop)
                evaluated.append(_evaluated(name, done, out / name))
        with StopRequest(at_once=True):
            _conclude(evaluated, shared, request.baseline, out, notes)
    except Interrupted:
        console.print("stopped; what was counted is saved: the same command goes on")
        raise
    return 0


def _quiet() -> None:
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it tells of every retry


def compare_sets(these: str, others: str, out: Path | None) -> int:
    """`overlap A B`: how many questions of A are in B too, and which.

    Raises:
        UserError.
    """
    _quiet()
    sources = [named.source(name) for name in (these, others)]
    a, b = (overlap.read_problems([one], named.usual_size(one)) for one in sources)
    matches = overlap.find(a, b)
    console.print(f"questions of {these} that are in {others} too", markup=False, highlight=False)
    console.print(overlap.summary(a, b, matches), markup=False, highlight=False)
    short = [short_name(name).replace(":", "-") for name in (these, others)]
    path = out or Path("runs/overlap") / f"{short[0]}-in-{short[1]}.csv"
    refuse_secrets({"the name of the table": str(path)})
    _write(path, overlap.ids_csv(matches))
    console.print(f"ids: {path}", markup=False, highlight=False)
    return 0


# --- questions ------------------------------------------------------------------------------------


def _tested(request: Request, targets: Sequence[Target]) -> tuple[SourceConfig, int | None]:
    """The test set that is asked for, or else the one that the runs (without a run the models)
    bring along."""
    if request.data is not None:
        source = named.source(request.data)
        return source, request.questions or named.usual_size(source)
    runs = [target for target in targets if target.seed is not None]
    found = {
        (source, request.questions or target.config.data.test_questions)
        for target in runs or [target for target in targets if target.own_data]
        if (source := named.tested_by(target.config)) is not None
    }
    if len(found) != 1:
        why = "the policies have different test sets" if found else "no test set comes with these"
        raise UserError(f"{why}: name the questions with --data ({named.FORMS})")
    return found.pop()


def _load(source: SourceConfig, limit: int | None, verifier: Verifier) -> Questions:
    with console.status(f"{source.source}: loading"):
        questions = load_questions(source, verifier, limit=limit, split=source.split)
    for line in questions.lines():
        console.print(line, markup=False, highlight=False)
    return questions


def _tested_on_others(
    request: Request, targets: Sequence[Target], names: Sequence[str], questions: Questions
) -> list[str]:
    """A line for each run whose test set is another one today; none where other questions, or a
    part of them, were asked for, or by another verifier, which may leave out others."""
    overrides = request.options.overrides or {}
    meant = any(key.startswith(("data", "verifier")) for key in overrides)
    notes = []
    for name, target in zip(names, targets, strict=True):
        then = target.trained.questions("test").get("sha256") if target.trained else None
        whole = request.questions in (None, target.config.data.test_questions)
        if then and whole and not meant and then != questions.sha256:
            notes.append(
                f"{name} was tested on other questions while it was trained than its test set "
                "holds now"
            )
    return notes


def _overlap_of(
    request: Request,
    targets: Sequence[Target],
    names: Sequence[str],
    questions: Questions,
    verifier: Verifier,
) -> Overlap | None:
    """Which test questions were trained on, as `--trained-on` says."""
    if request.trained_on is None:
        return None
    tested = _problems(questions)
    if request.trained_on:
        return _overlap(tested, request.trained_on)
    runs = [(n, t) for n, t in zip(names, targets, strict=True) if t.seed is not None]
    if not runs:
        raise UserError("--trained-on without a name needs run folders: name the training set")
    sets: dict[object, Questions] = {}
    notes = []
    for name, target in runs:
        key = _training_key(target.config)
        if key not in sets:
            sets[key] = _training_set(target.config, verifier)
        then = target.trained.questions("train").get("sha256") if target.trained else None
        if then and then != sets[key].sha256:
            notes.append(
                f"{name} was trained on other questions than its training set holds now: which "
                "test questions were among them can't be told"
            )
    distinct = {found.sha256: _problems(found) for found in sets.values()}
    several = f"one or another of the runs' {len(distinct)} training sets"
    label = several if len(distinct) > 1 else "the training set of the runs"
    trained = [problem for found in distinct.values() for problem in found]
    return replace(_matched(tested, trained, label), notes=tuple(notes))


def _training_key(config: Config) -> object:
    """What the training questions of a run follow from."""
    parts, own = named.trained_by(config), named.left_out_by(config)
    made = any(part.source in tasks.names() for part in parts)  # by the run's seed
    limits = (config.data.train_questions, config.data.test_questions if own else None)
    return parts, own, limits, config.seed if made else None


def _training_set(config: Config, verifier: Verifier) -> Questions:
    """The questions that a run of these settings trains on today. What it leaves out is what it is
    tested on itself, not what it is evaluated on here."""
    data, own = config.data, named.left_out_by(config)
    test = load_questions(own, verifier, limit=data.test_questions) if own else None
    parts, limit = named.trained_by(config), data.train_questions
    return load_questions(parts, verifier, limit=limit, seed=config.seed, test=test)


def _problems(questions: Questions) -> list[overlap.Problem]:
    return [overlap.Problem(q.id, q.level, q.problem) for q in questions.items]


def _overlap(tested: Sequence[overlap.Problem], names: Sequence[str]) -> Overlap:
    trained: list[overlap.Problem] = []
    for name in names:
        source = named.source(name, split="train")
        trained += overlap.read_problems([source], named.usual_size(source))
    return _matched(tested, trained, " + ".join(names))


def _matched(
    tested: Sequence[overlap.Problem], trained: Sequence[overlap.Problem], source: str
) -> Overlap:
    matches = overlap.find(tested, trained)
    return Overlap(source, frozenset(match.id for match in matches))


# --- one policy -----------------------------------------------------------------------------------


def _evaluate(
    target: Target,
    name: str,
    questions: Questions,
    verifier: Verifier,
    plan: Plan,
    out: Path,
    stop: StopRequest,
) -> list[Count]:
    device = resolve_device(target.config.device)
    target = policies.prepared(target, device)
    _check_fits(target, device)
    folder = out / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}; choose another --out") from None
    progress = progress_bar()
    bar = progress.add_task(name, total=len(questions), info="")
    live = ExitStack()
    told = -1

    def show(done: Sequence[Count]) -> None:
        nonlocal told
        if told < 0:
            live.enter_context(progress)  # not before: an error in the input stands alone
        answers = sum(count.n for count in done)
        right = sum(count.correct for count in done)
        info = f"accuracy {right / answers:.3f}" if answers else "sampling"
        progress.update(bar, completed=len(done), info=info)
        part = len(done) * LINES // len(questions)
        if part > told and not console.is_terminal:
            line = f"{name}  question {len(done)}/{len(questions)}  {info}"
            console.print(line, markup=False, highlight=False)
        told = max(told, part)

    with alone_in(folder), live:
        with console.status(f"{name}: loading"):
            policy = policies.load_target(target, device)
        if policies.base_unknown(target, policy):
            base = target.config.model.path
            line = f"note: {name}: nothing tells whether it was trained over {base}"
            console.print(line, markup=False, highlight=False)
        return sampling.evaluate(
            target, policy, questions, verifier, plan, folder, stop.check, show
        )


def _check_fits(target: Target, device: torch.device) -> None:
    shape = memory.read_shape(target.config.model.path)
    if shape is None:
        return
    needed = memory.make_plan(target.config, shape, device).weights
    free = memory.available(target.config, device)
    if needed > free:
        raise UserError(
            f"the weights of {target.config.model.path} need about {memory.gigabytes(needed)}; "
            f"{memory.gigabytes(free)} of memory are free here: use a smaller model, or a larger "
            "machine"
        )


# --- the table ------------------------------------------------------------------------------------


def _from_counts(request: Request) -> int:
    paths = [path for text in request.counts for path in _files(Path(text))]
    names = policies.names([_parts(path) for path in paths])
    evaluated = [_counted(path, name) for path, name in zip(paths, names, strict=True)]
    shared = None
    if request.trained_on is not None:
        shared = _overlap_by_id(request, evaluated)
    _conclude(evaluated, shared, request.baseline, request.out)
    return 0


def _counted(path: Path, name: str) -> Evaluated:
    """The counts of a file, with what the files beside it say."""
    done, step = counts.read_last(path)
    if not done:
        raise UserError(f"{path} holds no question yet")
    if path.name == counts.FILE:
        return _evaluated(name, done, path.parent)
    found = Evaluated(name, done, step=step)
    trained = trainings.read(path.parent) if path.name == counts.OF_A_RUN else None
    if trained is None:
        return found
    tested = trained.questions("test")
    return replace(
        found,
        asked=tested.get("questions"),
        data=tested.get("sha256") or None,
        trained=trained,
        dropped=tested.get("dropped_unparsable", 0),
        source=tested.get("source"),
    )


def _overlap_by_id(request: Request, evaluated: Sequence[Evaluated]) -> Overlap:
    """Counts hold no texts: the questions' own set tells which id is which.

    Raises:
        UserError: `--data` names another set than a run was asked, as far as it is known.
    """
    if not request.trained_on or request.data is None:
        raise UserError("--from with --trained-on needs its name, and the questions with --data")
    source = named.source(request.data)
    limit = request.questions or named.usual_size(source)
    tested = overlap.read_problems([source], limit)
    known = {problem.id for problem in tested}
    for run in evaluated:
        for count in run.counts:
            if count.id not in known:
                raise UserError(f"{run.name}: the question {count.id!r} is not in {request.data}")
    shared = _overlap(tested, request.trained_on)
    return replace(shared, notes=_doubts(evaluated, source, limit, request.data))


def _doubts(
    evaluated: Sequence[Evaluated], source: SourceConfig, limit: int | None, name: str
) -> tuple[str, ...]:
    """Of which runs nothing tells whether they were asked the questions of a set.

    Raises:
        UserError: a run was asked others.
    """
    unknown = evaluated
    if any(run.data for run in evaluated):
        rows = provenance.rows_by_id(source, limit)
        same = [provenance.are_of(run, source, rows) for run in evaluated]
        if False in same:
            raise UserError(
                f"{evaluated[same.index(False)].name} was not asked the questions that {name} "
                "holds, though their ids are the same: name its own with --data"
            )
        unknown = [run for run, known in zip(evaluated, same, strict=True) if known is None]
    if not unknown:
        return ()
    return (
        f"nothing tells whether {pages.some([run.name for run in unknown])} was asked the "
        f"questions that {name} holds: those of the same id are taken for the same, and an id may "
        "be no more than the number of a row",
    )


def _evaluated(name: str, done: Sequence[Count], folder: Path) -> Evaluated:
    """Counts with what the manifest beside them says, if there is one."""
    manifest = sampling.read_manifest(folder)
    if manifest is None:
        return Evaluated(name, done)
    settings = manifest["settings"]
    data = settings["data"]
    how = {key: settings.get(key) for key in ("prompt", "max_new_tokens")}
    told = json.dumps(how, sort_keys=True)
    step = settings.get("training_step")
    step = step if type(step) is int else None
    trained = sampling.training_of(manifest, folder)
    dropped = manifest.get("dropped_unparsable")
    dropped = dropped if type(dropped) is int else 0  # older ones don't say
    source = data["source"] if isinstance(data.get("source"), str) else None
    return Evaluated(
        name, done, data["questions"], data["sha256"], told, step, trained, dropped, source
    )


def _files(path: Path) -> list[Path]:
    """A file of counts, or those of a folder or of its folders."""
    if not path.is_dir():
        return [path]
    names = (counts.FILE, counts.OF_A_RUN)
    for pattern in (*names, *(f"*/{name}" for name in names)):
        if found := sorted(file for file in path.glob(pattern) if file.is_file()):
            return found
    raise UserError(f"{path} holds no counts: no {' or '.join(names)}, nor folders with one")


def _parts(path: Path) -> tuple[str, ...]:
    path = path.resolve()
    return (
        path.parts[:-1]
        if path.name in (counts.FILE, counts.OF_A_RUN)
        else (*path.parts[:-1], path.stem)
    )


def _check_baseline(name: str | None, methods: Iterable[str]) -> None:
    if name is not None and name not in methods:
        raise UserError(f"--baseline: no method {name!r} here: {nearest(name, methods)}")


def _conclude(
    evaluated: Sequence[Evaluated],
    shared: Overlap | None,
    baseline: str | None,
    out: Path | None,
    notes: Sequence[str] = (),
) -> None:
    """Print the table and write it.

    Args:
        notes: what else is to be told.
    """
    methods = groups(evaluated, shared)
    by_name = {group.method: group for group in methods}
    _check_baseline(baseline, by_name)
    base = methods[0] if baseline is None else by_name[baseline]
    comparisons = [compare(group, base) for group in methods if group is not base]
    text = pages.text(methods, comparisons, shared)
    told = pages.notes(evaluated, methods, comparisons)
    notes = [*notes, *told, *(shared.notes if shared else ())]
    lines = [f"note: {note}" for note in notes]
    console.print(text, end="", markup=False, highlight=False)
    for line in lines:
        console.print(line, markup=False, highlight=False)
    if out is None:
        return
    _write(out / "table.txt", "\n".join([text, *lines]))
    _write(out / "table.csv", pages.table_csv(methods))
    path = out / "comparisons.csv"
    if comparisons:
        _write(path, pages.comparison_csv(comparisons, methods))
    else:
        with writing(path, AGAIN):
            path.unlink(missing_ok=True)  # of an earlier table
    console.print(f"written to {shlex.quote(str(out))}", markup=False, highlight=False)


def _write(path: Path, text: str) -> None:
    write_whole(path, text, AGAIN)
