"""Contention: what disturbs a timing, told from the baseline's own times and from the system's books.

A ratio of times taken side by side survives a machine that is slow, but not one that gives two programs unequal shares of
itself: a neighbor on one of two CPUs costs a program of two threads more than one of a single thread. So a timing that
was disturbed is taken again, the least disturbed one is kept, and where none was calm the measurement says so.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from tuner.measure.latency import Clock, Effort, Times, samples_of
from tuner.measure.usage import Usage

# A timing beyond any of these counts as disturbed; quiet shared machines stay under half of each.
# Of the baseline's samples: (p90 - p10) / median, the ratio of the medians of the last and the first third, and the
# median as a multiple of the usual one.
_SPREAD = 0.5
_DRIFT = 1.3
_SLOW = 1.5
# CPUs that others kept busy while none was idle, the idle share up to which that is so, and the share of CPU time that a
# hypervisor took.
_OTHERS = 0.25
_IDLE = 0.15
_STOLEN = 0.05
# Running and waiting threads per CPU, where a system tells nothing better.
_LOAD = 1.5
# The books tick a hundred times a second: of less than this they say nothing.
_SHORTEST_S = 0.2

_USUAL = 5
_AGAIN = 2
# Timings in all may take so many times what one of them may.
_PATIENCE = 2.5
# After so many measurements that were disturbed to the end it is no use to wait for the disturbance to pass.
_HOPELESS = 2

# What disturbed, in words, and how much in multiples of its limit.
Sign = tuple[str, float]


class Watch:
    """Watches all timings against one baseline, and so knows what the baseline usually takes.

    Args:
        usage: reads the system's books; None where they say nothing of the device, as of an accelerator.
        clock: monotonic seconds.
    """

    def __init__(self, usage: Callable[[], Usage] | None, clock: Clock = time.perf_counter) -> None:
        self._usage = usage
        self._clock = clock
        self._usual: deque[float] = deque(maxlen=_USUAL)
        self._hopeless = 0

    def calmest(self, take: Callable[[], Times], effort: Effort, *, insist: bool = False) -> tuple[Times, str]:
        """The least disturbed of up to three timings, and what disturbed it, empty for nothing.

        Args:
            take: times everything once, the baseline first.
            effort: of one timing; all together take little more than twice its time.
            insist: whether to try again even though that did not help with the measurements before.
        """
        started = self._clock()
        times, signs = self._observe(take)
        again = _AGAIN if insist or self._hopeless < _HOPELESS else 0
        limit = _PATIENCE * effort.seconds * times.shape[1] / 2
        one = self._clock() - started
        while signs and again and self._clock() - started + one <= limit:
            other, others = self._observe(take)
            if _severity(others) < _severity(signs):
                times, signs = other, others
            again -= 1
        self._hopeless = self._hopeless + 1 if signs else 0
        self._usual.append(_median(times))
        return times, ", ".join(text for text, _ in signs)

    def _observe(self, take: Callable[[], Times]) -> tuple[Times, list[Sign]]:
        before = self._usage() if self._usage else None
        times = take()
        books = signs_in_books(before, self._usage()) if before and self._usage else ()
        usual = float(np.median(self._usual)) if self._usual else None
        return times, [*signs_in_times(samples_of(times[:, 0]), usual), *books]


def signs_in_times(baseline_s: Times, usual_s: float | None = None) -> Iterator[Sign]:
    """What the baseline's samples, in the order taken, tell of a disturbed machine."""
    p10, median, p90 = np.percentile(baseline_s, [10, 50, 90])
    third = max(1, len(baseline_s) // 3)
    drift = float(np.median(baseline_s[-third:]) / np.median(baseline_s[:third]))
    if not 1 / _DRIFT <= drift <= _DRIFT:
        yield f"the machine's speed changed {max(drift, 1 / drift):.1f} times", max(drift, 1 / drift) / _DRIFT
    elif (spread := float((p90 - p10) / median)) > _SPREAD:
        yield f"the baseline's own times spread by {spread:.0%}", spread / _SPREAD
    if usual_s is not None and (slow := float(median) / usual_s) > _SLOW:
        yield f"the baseline took {slow:.1f} times as long as usual", slow / _SLOW


def signs_in_books(before: Usage, after: Usage) -> Iterator[Sign]:
    """What the system's books tell of the time between two looks at them."""
    wall, cpus = after.wall_s - before.wall_s, after.cpus
    busy, stolen = _more(before.busy_s, after.busy_s), _more(before.stolen_s, after.stolen_s)
    if busy is None or stolen is None:
        if after.load is not None and after.load > _LOAD * cpus:
            yield f"the load was {after.load:.1f} on {_cpus(cpus)}", after.load / cpus / _LOAD
        return
    if wall < _SHORTEST_S:
        return
    others = (busy - (after.own_s - before.own_s)) / wall
    idle = 1 - (busy + stolen) / wall / cpus
    if others > _OTHERS and idle < _IDLE:
        yield f"others kept {others:.1f} of {_cpus(cpus)} busy", others / _OTHERS
    if stolen / wall / cpus > _STOLEN:
        yield f"the hypervisor took {stolen / wall / cpus:.0%} of the CPU time", stolen / wall / cpus / _STOLEN


def _more(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _severity(signs: list[Sign]) -> float:
    return sum(severity for _, severity in signs)


def _median(times: Times) -> float:
    return float(np.median(samples_of(times[:, 0])))


def _cpus(count: int) -> str:
    return f"{count} CPU{'' if count == 1 else 's'}"
