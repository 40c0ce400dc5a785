"""How a search begins: a new study, or the one that goes on, with everything that must agree checked."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import tuner
from search_spaces import SearchSpace
from tuner.diagnosis import Probe
from tuner.drop import Drop
from tuner.errors import InputError
from tuner.front import OBJECTIVES
from tuner.measure import device_fingerprint
from tuner.program import Program
from tuner.search.progress import Progress
from tuner.search.settings import Settings
from tuner.search.spaces import ResolvedSpace, find_space, resolve_space
from tuner.search.support import Tries, complete_probe, known_probe, refused_of
from tuner.shapes import weights_text
from tuner.store import Store, StudyRecord
from tuner.task import Task


@dataclass(frozen=True, kw_only=True, slots=True)
class Beginning:
    """A study, stored already or not, and its search space on this program."""

    record: StudyRecord
    resolved: ResolvedSpace
    resumed: bool

    @property
    def drop(self) -> Drop:
        """The allowed drop."""
        return Drop.parse(self.record.max_drop)


def begin(store: Store | None, settings: Settings, task: Task, program: Program, wanted: ResolvedSpace) -> Beginning:
    """The study to go on with, or what a new one will be with the wanted space; nothing is written yet.

    Args:
        store: the database; None when it is yet to be made.
        settings: of this run.
        task: as it is now.
        program: the captured task.
        wanted: the space for a new study.

    Raises:
        StoreError: a study of that name has another task, device or data.
        InputError: it was begun with another space, drop or objectives.
    """
    known = None if store is None else store.find_study(settings.study)
    if store is None or known is None:
        refused = refused_of(known_probe(store), program, wanted.resolution)
        record = _describe(settings, task, program, wanted.space)
        return Beginning(record=record, resolved=resolve_space(wanted.space, program, refused), resumed=False)
    _check_same_measuring(known, task, program)
    store.check_fingerprints(known, fingerprints_of(task, program), device_fingerprint())
    _check_same(known, settings)
    # With what the device could not run then: a study keeps its choices.
    resolved = resolve_space(SearchSpace.parse(known.space, f"of study {known.name}"), program, known.refused)
    return Beginning(record=known, resolved=resolved, resumed=True)


def begin_supported(
    begun: Beginning, probe: Probe, evaluator: Tries, program: Program, display: Progress
) -> tuple[Beginning, Probe]:
    """(a new study without the precisions that this device cannot run, what is known of the device then)."""
    resolution = resolve_space(begun.resolved.space, program).resolution
    probe = complete_probe(probe, evaluator, program, resolution, display)
    refused = refused_of(probe, program, resolution)
    resolved = resolve_space(begun.resolved.space, program, refused)
    return Beginning(record=replace(begun.record, refused=refused), resolved=resolved, resumed=False), probe


def fingerprints_of(task: Task, program: Program) -> dict[str, str]:
    """What must not change while a study goes on, the device apart."""
    return {"program": program.fingerprint, **task.fingerprints(), "tool version": tuner.__version__}


def _describe(settings: Settings, task: Task, program: Program, space: SearchSpace) -> StudyRecord:
    return StudyRecord(
        name=settings.study,
        task_reference=task.reference,
        objectives=settings.objectives or OBJECTIVES,
        max_drop=str(settings.max_drop or settings.recommended_drop),
        sampler=settings.sampler,
        seed=settings.seed,
        space=space.to_toml(),
        fingerprints=fingerprints_of(task, program),
        device=device_fingerprint(),
        program=program.signature,
        batch_size=task.batch_size,
        metric=task.metric.name,
        constraints=_constraints_of(task),
        tool_version=tuner.__version__,
    )


def _check_same_measuring(known: StudyRecord, task: Task, program: Program) -> None:
    """Raises, before fingerprints are compared, for what can be said in words: the same model measured differently."""
    if known.program.split_scans != program.signature.split_scans:
        begun, remedy = ("with", "give it") if known.program.split_scans else ("without", "leave it out")
        raise InputError(
            f"study {known.name!r} was begun {begun} --split-scans (split_scans of the task); {remedy} to resume, "
            "or begin another study with --study NAME"
        )
    if known.program.layers != program.signature.layers:
        return
    pairs = {
        "batch size": (str(known.batch_size), str(task.batch_size)),
        "metric": (known.metric, task.metric.name),
        "constraints": (_text(known.constraints), _text(_constraints_of(task))),
    }
    if known.baseline is not None:
        before, now = (weights_text(shapes) or "of its batches" for shapes in (known.baseline.shapes, task.shapes))
        pairs["input shapes"] = (before, now)
    for what, (before, now) in pairs.items():
        if before != now:
            raise InputError(
                f"study {known.name!r} was begun with the {what} {before} and cannot go on with {now}; "
                f"go back to {before} to resume it, or begin another study with --study NAME"
            )


def _constraints_of(task: Task) -> dict[str, str | None]:
    limits = {constraint.metric.name: constraint.max_drop for constraint in task.constraints}
    return {name: None if drop is None else str(drop) for name, drop in limits.items()}


def _text(constraints: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {drop or 'any'}" for name, drop in constraints.items()) or "none"


def _check_same(known: StudyRecord, settings: Settings) -> None:
    """Raises when the user asks for something that a study cannot change on its way."""
    if settings.objectives is not None and settings.objectives != tuple(known.objectives):
        raise _changed(known, "objectives", f"--objectives {','.join(known.objectives)}", ",".join(settings.objectives))
    if settings.max_drop is not None and str(settings.max_drop) != known.max_drop:
        raise _changed(known, "max-drop", f"--max-drop {known.max_drop}", str(settings.max_drop))
    if settings.space is not None:
        space = find_space(settings.space)
        if space.to_toml() != known.space:
            raise _changed(known, "space", f"another search space than {space.name!r}", "it")


def _changed(known: StudyRecord, option: str, before: str, now: str) -> InputError:
    return InputError(
        f"study {known.name!r} was begun with {before} and cannot go on with {now}; "
        f"leave --{option} out to resume it, or begin another study with --study NAME"
    )
