"""The search: first candidates, then the sampler's, until the budget ends; then the front is confirmed."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.capturing import capture_task
from tuner.drop import Drop
from tuner.errors import InputError
from tuner.isolation import CHILD
from tuner.measure import Evaluator, IsolatedEvaluator, device_name, make_evaluator
from tuner.measure.sending import leave_memory_to_child
from tuner.measurement import RESIDENT, reference_ms
from tuner.policy import Policy
from tuner.policy_fit import check_fits
from tuner.program import Program
from tuner.report import numbers
from tuner.report.layers import refusal_notes, unavailable_notes
from tuner.scales import Calibration
from tuner.search.begin import Beginning, begin, begin_supported
from tuner.search.budget import Budget
from tuner.search.calibrations import find_calibration
from tuner.search.choices import ChoiceSpace
from tuner.search.first_candidates import start_proposal
from tuner.search.fusion_checks import settle_fusions
from tuner.search.interrupts import Interrupts
from tuner.search.kernel_checks import settle_kernels
from tuner.search.kernel_times import kernel_table
from tuner.search.loop import Loop, is_complete
from tuner.search.optuna_study import check_optuna, quiet_optuna
from tuner.search.progress import Progress, ProgressEvent, make_progress
from tuner.search.samplers import EXHAUSTIVE, SCREENED
from tuner.search.screening import screen, seconds_for_screening
from tuner.search.settings import DEFAULT_DEADLINE, Settings, check_settings
from tuner.search.spaces import Space, resolve_space
from tuner.search.support import keep_probe, known_probe
from tuner.shapes import Shapes, weights_text
from tuner.store import Store
from tuner.study import DEFAULT_STORAGE, Study
from tuner.task import Task, check_task

# `exhaustive` under a time budget: the fewest seconds a trial is believed to take.
_SECONDS_PER_TRIAL = 1.0


def search(
    task: Task,
    *,
    trials: int | None = None,
    budget: str | float | None = None,
    max_drop: Drop | str | float | None = None,
    space: Space | None = None,
    sampler: str = SCREENED,
    seed: int = 0,
    study: str | None = None,
    storage: str = DEFAULT_STORAGE,
    objectives: Sequence[str] | None = None,
    start: Policy | str | Path | None = None,
    around: int | None = None,
    isolation: str = CHILD,
    deadline: str | float = DEFAULT_DEADLINE,
    memory_limit: str | int | None = None,
    baseline: str = RESIDENT,
    goal: str | None = None,
    patience: int | None = None,
    progress: bool | Callable[[ProgressEvent], Any] = True,
) -> Study:
    """Search for the best precision of every layer; called again with the same study, goes on where it stopped.

    Args:
        task: what is tuned.
        trials: of the study in all, baseline included; a resumed study completes them.
        budget: wall-clock time of this call: `5m`, `90s`, or seconds. With neither, ten minutes.
        max_drop: quality that may be lost: 0.01, "1%" or "1%rel"; by default 0.01, or what the study began with.
        space: what each layer may take: a preset's name, a TOML file or a SearchSpace; by default the preset for the
            device, or what the study began with.
        sampler: screened, nsga2, tpe, gp, random or exhaustive.
        seed: of the sampler.
        study: its name; by default the task's.
        storage: the database.
        objectives: one or more of latency, quality and memory; by default all.
        start: a policy, or policy file, to try right after the baseline.
        around: a trial of the study: measure what each of its layers costs and gains, by the policies that leave one of
            them as written. Without `trials` that is all that is measured.
        isolation: "child": candidates run in a process of their own, which they may crash; "none": in this one.
        deadline: time that compiling a candidate, and one call of it, may take.
        memory_limit: what a candidate may take beyond the baseline: "8GB", or bytes; by default nearly all that is free.
            On a CPU; on an accelerator the limit is JAX's own share of its memory (XLA_PYTHON_CLIENT_MEM_FRACTION).
        baseline: "resident": candidates are timed call by call beside it; "alternate": their weights take turns on the
            device, for models whose weights do not fit twice. Blocks of calls are paired then, and intervals are wider.
        goal: stop as soon as one candidate reaches it: "latency<=0.5x,drop<=1%", with memory<=0.4x or memory<=100MB too.
        patience: stop when so many trials in a row add less than a thousandth to the hypervolume of the front; 0: never.
            By default 30, or twice the choices where they are more, where only time limits a screened search.
        progress: False for silence, or a callable that gets a ProgressEvent after every candidate.

    Raises:
        TunerError: something cannot be used as given; nothing was measured.
        KeyboardInterrupt: Ctrl-C; everything measured is kept.
    """
    if not isinstance(task, Task):
        raise InputError(
            f"tuner.search takes a tuner.Task, not a {type(task).__name__}: {task!r}; make one, or load one with "
            "tuner.load_task('module:factory')"
        )
    settings = check_settings(
        study=task.name if study is None else study,
        storage=storage,
        trials=trials,
        budget=budget,
        max_drop=max_drop,
        space=space,
        sampler=sampler,
        seed=seed,
        objectives=objectives,
        start=start,
        around=around,
        isolation=isolation,
        deadline=deadline,
        memory_limit=memory_limit,
        baseline=baseline,
        goal=goal,
        patience=patience,
    )
    return run_search(task, settings, progress)


def run_search(
    task: Task,
    settings: Settings,
    progress: bool | Callable[[ProgressEvent], Any] = True,
    *,
    verbose: bool = False,
) -> Study:
    """`search` with checked settings; `verbose` shows every candidate on a terminal too."""
    limit = settings.budget()
    if settings.isolation == CHILD:
        leave_memory_to_child()
    check_task(task)
    program = capture_task(task)
    wanted = resolve_space(settings.space if settings.space is not None else settings.recommended_space, program)
    space = ChoiceSpace.from_resolution(wanted.resolution)
    _check_affordable(settings, space)
    if settings.start is not None:
        check_fits(settings.start, program.signature, settings.start_name)
        start_proposal(settings.start, space, settings.start_name)
    with quiet_optuna(), closing(make_progress(progress, verbose=verbose)) as display, ExitStack() as stack:
        # A new file is made only when the baseline is measured, so that a search which cannot begin leaves nothing.
        store = stack.enter_context(Store.open(settings.storage)) if Store.exists(settings.storage) else None
        begun = begin(store, settings, task, program, wanted)
        if store is not None and begun.resumed and is_complete(store, begun.record, settings.trials):
            display.note(f"Study {begun.record.name!r} is complete; ask for more with --trials or --budget.")
        else:
            if store is not None:
                store.check_writable()
                check_optuna(store)
            _run(store, begun, settings, limit, task, program, display)
    return Study(name=settings.study, storage=settings.storage)


def _run(
    store: Store | None,
    begun: Beginning,
    settings: Settings,
    limit: Budget,
    task: Task,
    program: Program,
    display: Progress,
) -> None:
    """Measures; `store` is None where the first study of a file begins."""
    for note in (*program.notes, *unavailable_notes(begun.resolved.resolution.refused)):
        display.note(f"Note: {note}")
    _announce(begun, task.shapes, display)
    with _make_evaluator(begun, settings, task, program, display) as evaluator, ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        probe = known_probe(store)
        if not begun.resumed:
            with interrupts.allowed():
                begun, probe = begin_supported(begun, probe, evaluator, program, display)
            _check_start(settings, begun)
            for note in refusal_notes(begun.record.refused):
                display.note(f"Note: {note}")
        if store is None:
            store = stack.enter_context(Store.open(settings.storage))
        record = begun.record
        if not begun.resumed:
            keep_probe(store, probe)
            record = store.create_study(record)
            store.save_layers(record.id, program.layers)
        with interrupts.allowed():
            choices = begun.resolved.resolution.choices
            calibration = find_calibration(store, evaluator, task, program, choices, display)
            begun = _without_uncalibrated(begun, calibration, program, display)
            choices = begun.resolved.resolution.choices
            # Once something is measured, other kernels would make other policies of the same precisions.
            began = limit.elapsed
            table = kernel_table(store, evaluator, choices, limit, display, frozen=record.counts.total > 0)
            # Half for comparing kernels, half for screening: with timing them, a fifth of the time in all.
            worth_s = seconds_for_screening(limit, evaluator.baseline.costs) / 2
            table = settle_kernels(store, record, evaluator, program, choices, table, worth_s, display, calibration)
            record = store.find_or_raise_study(record.name)  # with its kernels
            fusions = settle_fusions(store, record, evaluator, program, choices, table, calibration, worth_s, display)
            wants_more = settings.sampler == SCREENED and not settings.only_around
            seconds = worth_s if wants_more else 0.0
            screening = screen(store, evaluator, task, program, choices, table, seconds, display)
            screened_s = limit.elapsed - began
        loop = Loop(
            store=store,
            record=record,
            program=program,
            space=ChoiceSpace.from_resolution(begun.resolved.resolution),
            table=table,
            calibration=calibration,
            fusions=fusions,
            larger_is_better=task.metric.larger_is_better,
            evaluator=evaluator,
            settings=settings,
            budget=limit,
            display=display,
            interrupts=interrupts,
            screening=screening,
        )
        loop.run()
        loop.confirm()
        share = screened_s / max(limit.elapsed, 1e-9)
        display.note(f"Timing kernels and screening layers took {screened_s:.1f} s, {share:.0%} of this search.")


def _without_uncalibrated(begun: Beginning, calibration: Calibration, program: Program, display: Progress) -> Beginning:
    """Without the precisions that layers have no numbers for, which is said."""
    for layer, problem in calibration.problems.items():
        display.note(f"Note: layer {layer!r} takes no precision that needs calibration: {problem}.")
    if not calibration.problems:
        return begun
    space, refused = begun.resolved.space, begun.record.refused
    return replace(begun, resolved=resolve_space(space, program, refused, calibration.problems))


def _announce(begun: Beginning, shapes: Shapes, display: Progress) -> None:
    """Says what begins, and how large it is."""
    space = ChoiceSpace.from_resolution(begun.resolved.resolution)
    display.note(
        f"{'Resuming' if begun.resumed else 'Beginning'} study {begun.record.name!r}: "
        f"{len(space.free)} {'choice' if len(space.free) == 1 else 'choices'}, "
        f"{numbers.amount(space.size)} {'policy' if space.size == 1 else 'policies'}, on {device_name()}."
    )
    if shapes:
        display.note(f"Latency is that of the weighted sum {weights_text(shapes)}.")


def _make_evaluator(
    begun: Beginning, settings: Settings, task: Task, program: Program, display: Progress
) -> Evaluator | IsolatedEvaluator:
    record = begun.record
    return make_evaluator(
        task,
        program,
        isolation=settings.isolation,
        memory_limit=settings.memory_limit,
        baseline=settings.baseline,
        deadline_s=settings.deadline_s,
        say=display.note,
        max_drop=begun.drop,
        objectives=record.objectives,
        reference_ms=None if record.baseline is None else reference_ms(record.baseline),
        seed=record.seed,
    )


def _check_start(settings: Settings, begun: Beginning) -> None:
    """Raises when the policy to start from asks for what the space, on this device, does not allow."""
    if settings.start is not None:
        start_proposal(settings.start, ChoiceSpace.from_resolution(begun.resolved.resolution), settings.start_name)


def _check_affordable(settings: Settings, space: ChoiceSpace) -> None:
    """Refuse to enumerate more than the budget allows.

    Raises:
        InputError: with the size and what to do.
    """
    if settings.sampler != EXHAUSTIVE:
        return
    affordable = settings.trials
    budget = f"{settings.trials} trials"
    if affordable is None:
        seconds = settings.seconds or 0.0
        affordable = int(seconds / _SECONDS_PER_TRIAL)
        budget = f"about {affordable} trials in {seconds:g} s"
    if space.size > affordable:
        raise InputError(
            f"the sampler 'exhaustive' would measure {space.size} policies, more than the budget of {budget}; "
            f"give --trials {space.size}, tie or freeze layers in the space, or use another sampler"
        )
