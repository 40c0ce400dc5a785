"""Timing: candidates against the one baseline that they all are held against, by single calls or in blocks.

While the baseline is resident, its calls and a candidate's alternate one by one, and both see the same machine. Where the
weights of two programs do not fit the device at once, they take turns on it: a pair is then a block of calls of each,
further apart in time, and its ratio is noisier.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.measure.contention import Watch
from tuner.measure.executable import Executable
from tuner.measure.latency import (
    FULL_EFFORT,
    Effort,
    Run,
    baseline_latency,
    best_in_turns,
    in_turns,
    latencies,
    quick,
    time_alone,
)
from tuner.measurement import ALTERNATE, RESIDENT, Latency

_SECOND_LOOK_S = 0.05
# Blocks long enough that the first call on weights which have just arrived does not count for much.
_BLOCK_S = 0.1
_BLOCK_SHARE = 0.03
_BLOCK_PAIRS = 6
# A confirmation is not taken again and is what people act on.
_CONFIRMING_SHARE = 1 / 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Timed:
    """A program ready to be timed: its executable, and one call of it."""

    executable: Executable
    call: Run


class Timer:
    """Times candidates against a baseline, which is timed alone first.

    Args:
        baseline: the baseline; its weights are on the device.
        examples: per call, where that is known.
        watch: tells what disturbs.
        reference_ms: the study's baseline in milliseconds; its median now when None.
        effort: of one candidate.
        seed: of the bootstraps.
        slow: how many times slower than the baseline a candidate may be; may be set later.
        kept: "resident", or "alternate": whether the baseline's weights make room for a candidate's.
    """

    def __init__(
        self,
        baseline: Timed,
        *,
        examples: int | None,
        watch: Watch,
        reference_ms: float | None = None,
        effort: Effort = FULL_EFFORT,
        seed: int = 0,
        slow: float = 3.0,
        kept: str = RESIDENT,
    ) -> None:
        self._baseline = baseline
        self._examples = examples
        self._watch = watch
        self._seed = seed
        self.slow = slow
        self._alternate = kept == ALTERNATE
        self._effort = _in_blocks(effort) if self._alternate else effort
        self._move_s = 0.0
        baseline.call()
        times, contended = watch.calmest(lambda: time_alone(baseline.call, effort=effort), effort, insist=True)
        self.baseline_s = float(times.min())
        latency = baseline_latency(times[:, 0], reference_ms, examples)
        self.latency = replace(latency, contended=contended, baseline=kept)
        if self._alternate:
            started = time.perf_counter()
            self.make_room(baseline)
            self.make_ready(baseline)
            self._move_s = time.perf_counter() - started
            self.make_room(baseline)

    def make_room(self, program: Timed) -> None:
        """Moves a program's weights out of the device, where only one program's fit."""
        if self._alternate:
            program.executable.held.set_aside()

    def make_ready(self, program: Timed) -> None:
        """Moves them back in."""
        if self._alternate:
            program.executable.held.bring_back()

    def allowance(self, candidates: int = 1) -> float:
        """Seconds that timing so many candidates may take."""
        pair_s = (1 + self.slow) * self.baseline_s
        if self._alternate:  # every block begins with a call that does not count
            pair_s = 2 * (pair_s + self._move_s)
        return candidates * (10 * self._effort.seconds + 3 * self._effort.pairs * pair_s)

    def times_slower(self, call: Run, warm_up_s: float) -> float | None:
        """How many times slower than the baseline a candidate is when that is beyond the cut, else None."""
        limit = self.slow * self.baseline_s
        if warm_up_s > max(1.0, 3 * limit):  # no warm-up costs that much; do not wait for two more
            return warm_up_s / self.baseline_s
        seconds = quick(call)
        if seconds <= limit:
            return None
        # Two short calls may both have been interrupted, and the machine may have slowed down since the baseline was timed.
        runs = [call] if seconds < _SECOND_LOOK_S else []
        if not self._alternate:
            runs.insert(0, self._baseline.call)
        best = best_in_turns(runs, _SECOND_LOOK_S * len(runs))
        baseline_s = self.baseline_s if self._alternate else best.pop(0)
        ratio = min([seconds, *best]) / baseline_s
        return ratio if ratio > self.slow else None

    def compare(self, candidates: Sequence[Timed], *, confirming: bool = False) -> list[Latency]:
        """The latency of every candidate, all in the same rounds with the baseline.

        Args:
            candidates: none of them, when none is left.
            confirming: whether to take more time, also to wait for a disturbance to pass.
        """
        if not candidates:
            return []
        effort = self._effort
        if confirming:
            effort = replace(effort, least_s=max(effort.least_s, _CONFIRMING_SHARE * effort.seconds))
        programs = [self._baseline, *candidates]
        runs = [program.call for program in programs]
        begin = self._turns([program.executable for program in programs]) if self._alternate else None
        try:
            times, contended = self._watch.calmest(
                lambda: in_turns(runs, effort=effort, seed=self._seed, begin=begin), effort, insist=confirming
            )
        finally:
            for program in programs:
                self.make_room(program)
        return [
            replace(latency, contended=contended, baseline=ALTERNATE if self._alternate else RESIDENT)
            for latency in latencies(
                times, reference_ms=self.latency.milliseconds, examples=self._examples, seed=self._seed
            )
        ]

    def _turns(self, executables: Sequence[Executable]) -> Callable[[int], Any]:
        """Gives the device to one of several programs."""

        def begin(index: int) -> None:
            for other, executable in enumerate(executables):
                if other != index:
                    executable.held.set_aside()
            executables[index].held.bring_back()

        return begin


def _in_blocks(effort: Effort) -> Effort:
    """The effort with samples that last, of which fewer are asked for."""
    return replace(
        effort,
        sample_s=max(effort.sample_s, min(_BLOCK_S, _BLOCK_SHARE * effort.seconds)),
        pairs=min(effort.pairs, max(effort.least_pairs, _BLOCK_PAIRS)),
    )
