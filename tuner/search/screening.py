"""Screening of a task: what every precision of every layer costs and gains alone, from the database or found now."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from search_spaces import ORIGINAL, Precision
from tuner.capturing import capture_task
from tuner.drop import Drop
from tuner.effect import Effect, Screening
from tuner.isolation import CHILD
from tuner.measure import Evaluator, IsolatedEvaluator, KernelTable, device_fingerprint, make_evaluator
from tuner.measurement import RESIDENT, Costs, Measurement
from tuner.policy import PLAIN
from tuner.program import Program
from tuner.report.screening import ScreenedPrecision
from tuner.scales import Calibration
from tuner.search.begin import fingerprints_of
from tuner.search.budget import Budget
from tuner.search.calibrations import find_calibration
from tuner.search.kernel_times import kernel_table
from tuner.search.progress import CallbackProgress, Progress
from tuner.search.spaces import ResolvedSpace, Space, resolve_space
from tuner.search.support import complete_probe, keep_probe, known_probe, refused_of
from tuner.store import Store
from tuner.task import Task, check_task

# Of a search's wall clock. Timing kernels may take as much again, so that both stay under a fifth.
_SHARE = 0.1
_LONGEST_S = 120.0
_SHORTEST_S = 1.0

Choices = Mapping[str, Sequence[Precision]]
Kernels = dict[tuple[str, Precision], str]


class Screens(Protocol):
    """What this needs of an evaluator."""

    @property
    def baseline(self) -> Measurement:
        """The task as the user wrote it."""

    def screen(
        self, choices: Choices, kernels: Kernels, *, known: Mapping[str, Mapping[str, Effect]], budget_s: float
    ) -> Screening:
        """The effects of single layers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScreenedTask:
    """A task whose layers were timed and run alone."""

    program: Program
    resolved: ResolvedSpace
    table: KernelTable
    screening: Screening
    calibration: Calibration
    baseline: Measurement
    notes: tuple[str, ...]

    @property
    def rows(self) -> list[ScreenedPrecision]:
        """One per layer and precision, those as written included."""
        return [
            self._row(layer.name, precision)
            for layer in self.program.layers
            for precision in self.resolved.resolution.choices[layer.name]
            if len(self.resolved.resolution.choices[layer.name]) > 1
        ]

    def _row(self, layer: str, precision: Precision) -> ScreenedPrecision:
        kernel = self.table.best(layer, precision)
        return ScreenedPrecision(
            layer=layer,
            precision=str(precision),
            kernel=kernel,
            seconds=self.table.seconds(layer, precision, kernel) if layer in self.table.signatures else None,
            written=self.table.seconds(layer, ORIGINAL, PLAIN) if layer in self.table.signatures else None,
            effect=self.screening.find(layer, str(precision)),
        )


def screen_task(
    task: Task, *, space: Space | None, storage: str, say: Callable[[str], object], isolation: str = CHILD
) -> ScreenedTask:
    """A task's layers, each timed and run alone in every precision; what the database has is not found again.

    Raises:
        TunerError: the task or the space cannot be used as given, or the program as written does not run.
    """
    with screening_task(task, space=space, storage=storage, say=say, isolation=isolation) as (found, _):
        return found


@contextmanager
def screening_task(
    task: Task, *, space: Space | None, storage: str, say: Callable[[str], object], isolation: str = CHILD
) -> Iterator[tuple[ScreenedTask, Evaluator | IsolatedEvaluator]]:
    """A screened task with the evaluator that screened it; arguments and errors are those of `screen_task`."""
    check_task(task)
    program = capture_task(task)
    display = _Said(say)
    budget = Budget(trials=None, seconds=None)
    made = make_evaluator(task, program, isolation=isolation, say=say, max_drop=Drop(1.0), baseline=RESIDENT)
    with made as evaluator, Store.open(storage) as store:
        wanted = resolve_space(space, program)
        probe = complete_probe(known_probe(store), evaluator, program, wanted.resolution, display)
        keep_probe(store, probe)
        refused = refused_of(probe, program, wanted.resolution)
        resolved = resolve_space(wanted.space, program, refused)
        calibration = find_calibration(store, evaluator, task, program, resolved.resolution.choices, display)
        resolved = resolve_space(wanted.space, program, refused, calibration.problems)
        choices = resolved.resolution.choices
        table = kernel_table(store, evaluator, choices, budget, display, frozen=False)
        screening = screen(store, evaluator, task, program, choices, table, _LONGEST_S, display)
        found = ScreenedTask(
            program=program,
            resolved=resolved,
            table=table,
            screening=screening,
            calibration=calibration,
            baseline=evaluator.baseline,
            notes=tuple(display.later),
        )
        yield found, evaluator


def kernels_of(table: KernelTable, choices: Choices) -> Kernels:
    """The fastest kernel of each layer in each precision."""
    return {(name, p): table.best(name, p) for name, taken in choices.items() for p in taken if not p.is_original}


def screen(
    store: Store,
    evaluator: Screens,
    task: Task,
    program: Program,
    choices: Choices,
    table: KernelTable,
    seconds: float,
    display: Progress,
) -> Screening:
    """The effects that the database has, and those that can be found in some seconds; they are kept as well."""
    where = fingerprints_of(task, program) | device_fingerprint()
    known = store.find_effects(where)
    if seconds <= 0:
        return Screening(effects=known)
    found = evaluator.screen(choices, kernels_of(table, choices), known=known, budget_s=seconds)
    if found.count > sum(map(len, known.values())):
        store.save_effects(where, found.effects)
    if found.refusal is not None:
        display.note(
            f"Note: single layers are not run alone, and nothing is predicted of the outputs: {found.refusal}."
        )
    return found


def seconds_for_screening(budget: Budget, costs: Costs) -> float:
    """What screening may take: a tenth of the time there is, or of what the trials will take as far as can be told."""
    left = budget.seconds
    if budget.trials is not None:
        trial = costs.prepare_s + costs.trace_s + costs.compile_s + costs.quality_s + costs.latency_s
        left = min(budget.trials * trial, budget.seconds or float("inf"))
    return min(_LONGEST_S, max(_SHORTEST_S, _SHARE * (left or _LONGEST_S / _SHARE)))


class _Said(CallbackProgress):
    """Hands remarks on; those that matter for the result are kept for its end."""

    def __init__(self, say: Callable[[str], object]) -> None:
        super().__init__(lambda event: None)
        self._say = say
        self.later: list[str] = []

    def note(self, text: str) -> None:
        if text.startswith("Note: "):
            self.later.append(text.removeprefix("Note: "))
        else:
            self._say(text)
