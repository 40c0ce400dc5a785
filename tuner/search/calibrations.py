"""The calibration of a study: read from the database, found where it does not know a layer or precision yet."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Protocol

from search_spaces import Precision
from tuner.calibrating import calibrated_on
from tuner.measure import device_fingerprint
from tuner.program import Program
from tuner.program.kernels import needs_numbers
from tuner.scales import Calibration
from tuner.scales_json import calibration_from_json, calibration_to_json
from tuner.search.progress import Progress
from tuner.store import Store
from tuner.task import Task


class Calibrates(Protocol):
    """What this needs of an evaluator."""

    def calibrate(self, choices: Mapping[str, Sequence[Precision]]) -> Calibration:
        """The numbers that layers need to run in these precisions."""


def find_calibration(
    store: Store,
    evaluator: Calibrates,
    task: Task,
    program: Program,
    choices: Mapping[str, Sequence[Precision]],
    display: Progress,
) -> Calibration:
    """The numbers of every layer in every precision it may take; kept per task and device, so that they stay the same.

    Args:
        store: where they are kept.
        evaluator: finds them.
        task: whose calibration examples are looked at.
        program: the captured task.
        choices: layer name -> the precisions it may take.
        display: told when looking begins.
    """
    kinds = {layer.name: layer.kind for layer in program.layers}
    wanted = {name: [p for p in precisions if needs_numbers(kinds[name], p)] for name, precisions in choices.items()}
    if not any(wanted.values()):
        return Calibration()
    known = known_calibration(store, task, program)
    missing = {name: [p for p in wanted[name] if not known.knows(name, str(p))] for name in wanted}
    missing = {name: precisions for name, precisions in missing.items() if precisions}
    if not missing:
        return known
    on = calibrated_on(task)
    display.note(f"Calibrating {len(missing)} {'layer' if len(missing) == 1 else 'layers'} on {on}.")
    found = known.merged(evaluator.calibrate(missing))
    store.save_probe(device_fingerprint(), _key(task, program), calibration_to_json(found))
    return found


def known_calibration(store: Store, task: Task, program: Program) -> Calibration:
    """What the database has of it; nothing is looked at."""
    kept = store.find_probe(device_fingerprint(), _key(task, program))
    return Calibration() if kept is None else calibration_from_json(kept, f"the calibration in {store.file}")


def _key(task: Task, program: Program) -> str:
    """Equal where the same numbers must come out."""
    facts = [program.fingerprint, task.fingerprints()["parameters"], calibrated_on(task).fingerprint, task.batch_size]
    return f"calibration {hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]}"
