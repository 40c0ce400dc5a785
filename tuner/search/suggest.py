"""Suggestions: the best measured and the best predicted policy of a study for another budget, without measuring anything."""

from dataclasses import dataclass, replace

from search_spaces import SearchSpace
from tuner.capturing import capture_shapes, capture_task
from tuner.drop import Drop
from tuner.effect import Screening
from tuner.errors import GoalMissed, InputError
from tuner.front import Point
from tuner.measure import KernelTable, device_fingerprint, time_kernels
from tuner.measurement import Measurement
from tuner.policy import Policy
from tuner.program import Program
from tuner.scales import Calibration
from tuner.search.begin import fingerprints_of
from tuner.search.calibrations import known_calibration
from tuner.search.choices import ChoiceSpace, Proposal
from tuner.search.estimates import make_estimates
from tuner.search.foresight import Foreseen
from tuner.search.goal import Goal
from tuner.search.kernel_times import known_times
from tuner.search.optuna_study import quiet_optuna
from tuner.search.outlook import Outlook
from tuner.search.resume import proposal_of
from tuner.search.runner import run_search
from tuner.search.settings import check_settings
from tuner.search.spaces import resolve_space
from tuner.search.study_policy import study_policy
from tuner.store import CandidateRecord, Store, StudyRecord
from tuner.study import Study
from tuner.task import Task
from tuner.task_reference import load_task


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestion:
    """What a study offers within a limit."""

    measured: Point | None
    # Predicted to be faster than that; None where nothing unmeasured is.
    foreseen: Foreseen | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Opened:
    """A study with its program and all that is known of it."""

    record: StudyRecord
    candidates: list[CandidateRecord]
    task: Task
    program: Program
    space: ChoiceSpace
    outlook: Outlook
    table: KernelTable
    calibration: Calibration

    def policy(self, proposal: Proposal) -> Policy:
        """As the study's own search would make it."""
        fusions = () if self.record.kernels is None else self.record.kernels.fusions or ()
        return study_policy(self.program, self.space.precisions(proposal), self.table, self.calibration, fusions)


def suggest(study: Study, *, max_drop: Drop | None = None, memory: str | None = None) -> Suggestion:
    """The fastest measured policy within a limit, and the fastest that is predicted to be faster still.

    Args:
        study: a study of a task that can be loaded by its reference.
        max_drop: quality that may be lost; by default the study's own.
        memory: what the program may take: `0.4x` of the baseline's, or `100MB`.

    Raises:
        InputError: the task cannot be loaded, or the limit cannot be read.
        StoreError: task, data or device are not those of the study.
        GoalMissed: nothing is within the limit, measured or predicted.
    """
    opened = _open(study)
    baseline = opened.record.baseline
    if baseline is None:
        raise InputError(f"study {study.name!r} has no measured baseline yet; run `tuner search` again to resume it")
    drop = Drop.parse(opened.record.max_drop) if max_drop is None else max_drop
    limit = replace(Goal() if memory is None else Goal.parse(f"memory<={memory}"), drop=drop)
    inside = [p for p in study.points() if p.policy is not None and limit.is_met(p.measurement, baseline)]
    best = min(inside, key=lambda point: point.measurement.latency.ratio, default=None)
    foreseen = _foresee(opened, limit, baseline)
    if best is None and foreseen is None:
        raise GoalMissed(f"no policy of study {study.name!r} is within {limit}, measured or predicted; allow more")
    if best is not None and foreseen is not None and foreseen.prediction.latency is not None:
        foreseen = foreseen if foreseen.prediction.latency < best.measurement.latency.ratio else None
    return Suggestion(measured=best, foreseen=foreseen)


def measure_suggestion(study: Study, foreseen: Foreseen, *, progress: bool = True) -> CandidateRecord:
    """Measures a predicted policy as the study's next trial, and confirms it where it is on the front."""
    opened = _open(study)
    done = sum(candidate.outcome is not None for candidate in study.trials())
    settings = check_settings(
        study=study.name,
        storage=study.storage,
        trials=done + 1,
        sampler=opened.record.sampler,
        start=foreseen.policy,
    )
    run_search(opened.task, settings, progress)
    found = next((c for c in study.trials() if c.policy is not None and c.policy.hash == foreseen.policy.hash), None)
    if found is None:
        raise GoalMissed(f"the suggested policy was not measured; another process may work on study {study.name!r}")
    return found


def _foresee(opened: _Opened, limit: Goal, baseline: Measurement) -> Foreseen | None:
    """The unmeasured policy that is predicted to be fastest within the limit."""
    measured = {c.policy.hash for c in opened.candidates if c.policy is not None}
    allowed = None if limit.drop is None else limit.drop.allowed(baseline.quality.value)
    bytes_allowed = limit.memory_bytes if limit.memory is None else limit.memory * baseline.memory.total_bytes
    for proposal, told in sorted(opened.outlook.members(), key=lambda one: one[1].latency or 0.0):
        too_large = bytes_allowed is not None and told.memory is not None and told.memory > bytes_allowed
        loses = allowed is not None and told.drop is not None and told.drop > allowed
        if too_large or loses:
            continue
        policy = opened.policy(proposal)
        if policy.hash not in measured:
            return Foreseen(policy=policy, prediction=told, quality=None, baseline_bytes=baseline.memory.total_bytes)
    return None


def _open(study: Study) -> _Opened:
    with quiet_optuna(), Store.open(study.storage, create=False, read_only=True) as store:
        record = store.find_or_raise_study(study.name)
        if record.task_reference is None:
            raise InputError(
                f"study {study.name!r} was made from a live task, which is not known here; search it again as "
                "module:factory, or use study.choose() where it is"
            )
        task = load_task(record.task_reference).with_batch_size(record.batch_size)
        task = task.with_split_scans(record.program.split_scans)
        program = capture_task(task)
        store.check_fingerprints(record, fingerprints_of(task, program), device_fingerprint())
        calibration = known_calibration(store, task, program)
        own = SearchSpace.parse(record.space, f"of study {record.name}")
        resolution = resolve_space(own, program, record.refused, calibration.problems).resolution
        space = ChoiceSpace.from_resolution(resolution)
        shapes = capture_shapes(task, program)
        table = time_kernels(program, resolution.choices, shapes=shapes, known=known_times(store), budget_s=0.0)
        table = table if record.kernels is None else table.settled(record.kernels.chosen)
        effects = store.find_effects(fingerprints_of(task, program) | device_fingerprint())
        candidates = store.candidates(record.id)
    baseline = record.baseline
    if baseline is None:
        raise InputError(f"study {study.name!r} has no measured baseline yet; run `tuner search` again to resume it")
    larger = task.metric.larger_is_better
    allowed = Drop.parse(record.max_drop).allowed(baseline.quality.value)
    estimates = make_estimates(
        program.layers,
        space,
        table,
        Screening(effects=effects),
        baseline,
        allowed_drop=allowed,
        larger_is_better=larger,
    )
    outlook = Outlook(space, estimates, baseline, larger_is_better=larger)
    for candidate in candidates:
        if candidate.policy is not None and candidate.outcome is not None:
            proposal = proposal_of(candidate.policy)
            if space.contains(proposal):
                outlook.learn(proposal, candidate.outcome)
    return _Opened(
        record=record,
        candidates=candidates,
        task=task,
        program=program,
        space=space,
        outlook=outlook,
        table=table,
        calibration=calibration,
    )
