"""The kernel table of a study: read from the database, timed where the device does not know an operation yet."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from search_spaces import Precision
from tuner.measure import KernelTable, device_fingerprint
from tuner.search.budget import Budget
from tuner.search.progress import Progress
from tuner.store import Store

_PROBE = "kernel times"
# Of a time budget, and in all: kernels are timed before the first candidate.
_SHARE = 0.1
_LONGEST_S = 60.0


class KernelTimer(Protocol):
    """What this needs of an evaluator."""

    def time_kernels(
        self, choices: Mapping[str, Sequence[Precision]], *, known: Mapping[str, float], budget_s: float
    ) -> KernelTable:
        """The table of a program's operations."""


def kernel_table(
    store: Store,
    evaluator: KernelTimer,
    choices: Mapping[str, Sequence[Precision]],
    budget: Budget,
    display: Progress,
    *,
    frozen: bool,
) -> KernelTable:
    """The times of all kernels of a program's operations on this device.

    Args:
        store: where times are kept, per device.
        evaluator: times them.
        choices: layer name -> the precisions it may take.
        budget: of the search; a share of it may be spent.
        display: told when timing begins.
        frozen: True for a study that has begun: then nothing is timed anew, so that its policies stay the same.
    """
    known = known_times(store)
    seconds = 0.0 if frozen else min(_LONGEST_S, _SHARE * budget.seconds if budget.seconds else _LONGEST_S)
    if not frozen:
        display.note("Timing the kernels of each operation.")
    table = evaluator.time_kernels(choices, known=known, budget_s=seconds)
    if len(table.times) > len(known):
        kept = {key: s if s == s else None for key, s in table.times.items()}
        store.save_probe(device_fingerprint(), _PROBE, kept)
    return table


def known_times(store: Store) -> dict[str, float]:
    """The times that the database has for this device; NaN for what could not run."""
    kept = store.find_probe(device_fingerprint(), _PROBE) or {}
    return {key: float("nan") if s is None else float(s) for key, s in kept.items()}
