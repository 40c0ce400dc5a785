"""The kernels of a study: those that win alone, less those that lose in the whole program, settled before the first candidate."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from search_spaces import Precision
from tuner.kernel_choice import Comparison, KernelCheck, KernelChoice
from tuner.measure import KernelTable
from tuner.measurement import Measurement
from tuner.policy import PLAIN, Policy
from tuner.program import Program
from tuner.report.kernels import check_text
from tuner.scales import Calibration
from tuner.search.progress import Progress
from tuner.search.study_policy import study_policy, uniform_precisions
from tuner.store import Store, StudyRecord

# A kernel that saves less of the baseline's time than this makes no difference that could be told.
_WORTH = 0.01

Choices = Mapping[str, Sequence[Precision]]


class Compares(Protocol):
    """What this needs of an evaluator."""

    @property
    def baseline(self) -> Measurement:
        """The task as the user wrote it."""

    def compare(self, policy: Policy, against: Policy) -> Comparison:
        """How long a policy takes as a ratio to another one."""


@dataclass(frozen=True, slots=True)
class Group:
    """The layers that one kernel won alone in one precision, and the seconds it saves there."""

    precision: Precision
    kernel: str
    layers: tuple[str, ...]
    saves: float


def settle_kernels(
    store: Store,
    record: StudyRecord,
    evaluator: Compares,
    program: Program,
    choices: Choices,
    table: KernelTable,
    seconds: float,
    display: Progress,
    calibration: Calibration = Calibration(),  # noqa: B008  # frozen
) -> KernelTable:
    """The table with one kernel per layer and precision, which a study keeps while it lasts.

    Args:
        store: where the choice is kept.
        record: of the study; one that has its kernels gets those.
        evaluator: compares two policies in the whole program.
        program: what is tuned.
        choices: layer name -> the precisions it may take.
        table: the times of all kernels alone.
        seconds: that comparing may take; what is left out runs in what was fastest alone.
        display: told what came of each.
        calibration: the numbers that precisions need.
    """
    if record.kernels is not None:
        return table.settled(record.kernels.chosen)
    if record.counts.total > 0:  # it began before there was such a choice
        return table
    started = time.perf_counter()
    checks: list[KernelCheck] = []
    baseline_s = evaluator.baseline.latency.milliseconds / 1000
    while time.perf_counter() - started < seconds:
        waiting = [g for g in groups_of(table, choices) if g.saves > _WORTH * baseline_s and not _is_checked(g, checks)]
        if not waiting:
            break
        check = _check(max(waiting, key=lambda group: group.saves), evaluator, program, choices, table, calibration)
        checks.append(check)
        display.note(check_text(check))
        if check.loses:
            table = table.without(check.kernel, Precision.parse(check.precision), check.layers)
    choice = KernelChoice(chosen=table.choice(), checks=tuple(checks))
    store.save_kernels(record.id, choice)
    return table.settled(choice.chosen)


def groups_of(table: KernelTable, choices: Choices) -> list[Group]:
    """What can be compared: per precision and kernel the layers in which the plain kernel was timed and beaten."""
    found: dict[tuple[Precision, str], dict[str, float]] = {}
    for layer, precisions in choices.items():
        for precision in precisions:
            kernel = table.best(layer, precision)
            saves = table.seconds(layer, precision, PLAIN) - table.seconds(layer, precision, kernel)
            if kernel != PLAIN and saves > 0:  # not where the plain one cannot run, or is known to take minutes
                found.setdefault((precision, kernel), {})[layer] = saves
    return [Group(p, kernel, tuple(layers), sum(layers.values())) for (p, kernel), layers in found.items()]


def _is_checked(group: Group, checks: Sequence[KernelCheck]) -> bool:
    return any(
        (check.precision, check.kernel) == (str(group.precision), group.kernel)
        and set(group.layers) <= set(check.layers)
        for check in checks
    )


def _check(
    group: Group, evaluator: Compares, program: Program, choices: Choices, table: KernelTable, calibration: Calibration
) -> KernelCheck:
    """The uniform policy of a precision with its kernels, against the same with the plain one in the group's layers."""
    precisions = uniform_precisions(group.precision, choices)
    one, other = (study_policy(program, precisions, table, calibration, plain=plain) for plain in ((), group.layers))
    compared = evaluator.compare(one, other)
    return KernelCheck(precision=str(group.precision), kernel=group.kernel, layers=group.layers, compared=compared)
