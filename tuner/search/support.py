"""Support: what this device cannot run of what a study's space asks for is found out before the study begins."""

from typing import Protocol

import tuner
from search_spaces import Precision, Resolution
from tuner.diagnosis import OPERATION_OF, PROBE_KEY, Attempt, Finding, Probe, plain_text, probe_from_json, probe_to_json
from tuner.measure import device_fingerprint
from tuner.program import Program
from tuner.search.progress import Progress
from tuner.store import Store


class Tries(Protocol):
    """What this needs of an evaluator."""

    def try_precision(self, operation: str, precision: Precision) -> Attempt:
        """Whether one operation runs in a precision here."""


def known_probe(store: Store | None) -> Probe:
    """What is known of this device; nothing where the database is yet to be made."""
    value = None if store is None else store.find_probe(device_fingerprint(), PROBE_KEY)
    return probe_from_json(value, tuner.__version__)


def keep_probe(store: Store, probe: Probe) -> None:
    """Keeps what is known, where it is more than was kept."""
    if len(probe.findings) > len(known_probe(store).findings):
        store.save_probe(device_fingerprint(), PROBE_KEY, probe_to_json(probe))


def complete_probe(
    probe: Probe, evaluator: Tries, program: Program, resolution: Resolution, display: Progress
) -> Probe:
    """The probe with all that the resolution lets layers take; what it lacks is tried now, once and untimed."""
    asked = {(OPERATION_OF[kind], plain_text(precision)) for kind, precision in _asked(program, resolution)}
    missing = sorted(pair for pair in asked if probe.find(pair[0], Precision.parse(pair[1])) is None)
    if not missing:
        return probe
    display.note("Trying which of these precisions run here; what is found is kept for this device.")
    return probe.merged(
        Finding(operation=operation, precision=text, attempt=evaluator.try_precision(operation, Precision.parse(text)))
        for operation, text in missing
    )


def refused_of(probe: Probe, program: Program, resolution: Resolution) -> dict[str, dict[str, str]]:
    """Layer kind -> precision -> why this device cannot run it, of what the resolution lets layers take."""
    asked = {(kind, plain_text(precision)) for kind, precision in _asked(program, resolution)}
    found = {
        kind: {text: reason for text, reason in reasons.items() if (kind, text) in asked}
        for kind, reasons in probe.refused().items()
    }
    return {kind: reasons for kind, reasons in found.items() if reasons}


def _asked(program: Program, resolution: Resolution) -> set[tuple[str, Precision]]:
    """Every (kind, precision) that some layer may take; an input is only cast."""
    return {
        (layer.kind, precision)
        for layer in program.layers
        if layer.kind in OPERATION_OF
        for precision in resolution.choices[layer.name]
        if not precision.is_original
    }
