"""Usage: what the system's books say of who keeps the CPUs busy."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
# Columns of a line of /proc/stat behind the name, in ticks.
_BUSY = (0, 1, 2, 5, 6)  # user, nice, system, interrupts, soft interrupts
_STOLEN = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """CPU seconds so far, of this process and on the CPUs that it may use; None where the system does not say."""

    wall_s: float
    own_s: float
    busy_s: float | None  # of anyone, this process included
    stolen_s: float | None  # taken by the hypervisor for other machines
    cpus: int
    load: float | None  # mean number of running and waiting threads in the last minute


def read_usage() -> Usage:
    """The usage until now."""
    cpus = allowed_cpus()
    totals = _read_stat(cpus)
    return Usage(
        wall_s=time.monotonic(),
        own_s=time.process_time(),
        busy_s=totals[0] if totals else None,
        stolen_s=totals[1] if totals else None,
        cpus=len(cpus),
        load=_load(),
    )


def allowed_cpus() -> frozenset[int]:
    """The numbers of the CPUs that this process may use."""
    try:
        return frozenset(os.sched_getaffinity(0))
    except AttributeError:  # no such call on this system
        return frozenset(range(os.cpu_count() or 1))


def _read_stat(cpus: frozenset[int], file: Path = _STAT) -> tuple[float, float] | None:
    """(busy, stolen) seconds of those CPUs together, None where the system keeps no such books."""
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
        rows = [list(map(int, row)) for name, *row in lines if name[:3] == "cpu" and name[3:] in map(str, cpus)]
        ticks = os.sysconf("SC_CLK_TCK")
        busy, stolen = sum(row[i] for row in rows for i in _BUSY), sum(row[_STOLEN] for row in rows)
    except (OSError, ValueError, IndexError):
        return None
    return (busy / ticks, stolen / ticks) if busy else None


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None
