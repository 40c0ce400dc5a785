"""The fusions of a study: those kinds that do not lose time in the whole program, settled before the first candidate."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from search_spaces import Precision
from tuner.kernel_choice import FusionCheck, KernelChoice
from tuner.measure import KernelTable
from tuner.program import Program, available_fusions
from tuner.report.kernels import fusion_text
from tuner.scales import Calibration
from tuner.search.kernel_checks import Compares
from tuner.search.progress import Progress
from tuner.search.study_policy import study_policy, uniform_precisions
from tuner.store import Store, StudyRecord

Choices = Mapping[str, Sequence[Precision]]


def settle_fusions(
    store: Store,
    record: StudyRecord,
    evaluator: Compares,
    program: Program,
    choices: Choices,
    table: KernelTable,
    calibration: Calibration,
    seconds: float,
    display: Progress,
) -> tuple[FusionCheck, ...]:
    """What each kind of fusion does to a program of one precision; kept with the study, which uses those that pay.

    Args:
        store: where they are kept.
        record: of the study; one that has its fusions gets those.
        evaluator: compares two policies in the whole program.
        program: what is tuned.
        choices: layer name -> the precisions it may take.
        table: of the kernels that the study runs with.
        calibration: the numbers of static scales.
        seconds: that comparing may take; what is left out is not fused.
        display: told what came of each.
    """
    kept = record.kernels or KernelChoice()
    if kept.fusions is not None:
        return kept.fusions
    if record.counts.total > 0:  # it began before there was such a choice
        return ()
    started = time.perf_counter()
    checks = []
    for precision in dict.fromkeys(p for allowed in choices.values() for p in allowed if not p.is_original):
        policy = study_policy(program, uniform_precisions(precision, choices), table, calibration)
        available = available_fusions(program, policy)
        for kind in dict.fromkeys(fusion.kind for fusion in available):
            if time.perf_counter() - started > seconds:
                break
            fused = replace(policy, fusions=tuple(fusion for fusion in available if fusion.kind == kind))
            compared = evaluator.compare(fused, policy)
            check = FusionCheck(precision=str(precision), kind=kind, edges=len(fused.fusions), compared=compared)
            checks.append(check)
            display.note(fusion_text(check))
    store.save_kernels(record.id, replace(kept, fusions=tuple(checks)))
    return tuple(checks)
