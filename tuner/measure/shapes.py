"""Shapes: one candidate at every kind of call that its task is timed with, and the weighted sum of what those take.

Most tasks are timed as they are scored, in batches of one size; then there is one program, one timer and no sum.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import jax

from tuner.measure.executable import Executable, Place, commit
from tuner.measure.memory import measure_memory
from tuner.measure.outputs import count_non_finite
from tuner.measure.timing import Timed, Timer
from tuner.measure.weighted import shares, weighted_latency
from tuner.measurement import Costs, Latency, Memory, ShapeLatency
from tuner.task import Task

PyTree = Any
# A call that hardly counts is not timed at any length either: it may be slower by this much more than the sum.
_SLOWER_ALONE = 10.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Kind:
    """One kind of call: its inputs on the device, and its weight. Without a name it is the only one."""

    name: str
    weight: float
    inputs: tuple[PyTree, ...]
    scored: bool  # whether these are inputs like those of the batches that are scored

    @property
    def text(self) -> str:
        """What a message adds to say which one; nothing where there is only one."""
        return f" of shape {self.name!r}" if self.name else ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Programs:
    """One candidate, or the baseline: compiled for the batches that are scored, and for each kind of call; one set of weights."""

    scored: Executable
    timed: tuple[Timed, ...]

    @property
    def executables(self) -> tuple[Executable, ...]:
        """Everything that was compiled, each once."""
        return tuple({id(one): one for one in (self.scored, *(timed.executable for timed in self.timed))}.values())

    @property
    def costs(self) -> Costs:
        """Of compiling them all."""
        first, *others = (one.costs for one in self.executables)
        return replace(
            first,
            prepare_s=first.prepare_s + sum(costs.prepare_s for costs in others),
            trace_s=first.trace_s + sum(costs.trace_s for costs in others),
            compile_s=first.compile_s + sum(costs.compile_s for costs in others),
        )

    @property
    def memory(self) -> Memory:
        """Of the kind of call that needs most."""
        return max((measure_memory(timed.executable) for timed in self.timed), key=lambda memory: memory.total_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Timings:
    """The latency of a candidate, and of each kind of call where there are several."""

    latency: Latency
    shapes: Mapping[str, ShapeLatency] = field(default_factory=lambda: MappingProxyType({}))


def kinds_of(task: Task, inputs: tuple[PyTree, ...], device: Place) -> tuple[Kind, ...]:
    """The kinds of call that a task is timed with.

    Args:
        task: what is tuned.
        inputs: one batch as it is scored, on the device.
        device: where the others go.
    """
    if not task.shapes:
        return (Kind(name="", weight=1.0, inputs=inputs, scored=True),)
    kinds = []
    for name, shape in task.shapes.items():
        scored = shape.batch_size == task.batch_size
        its_inputs = inputs if scored else commit(shape.call(task.search), device)
        kinds.append(Kind(name=name, weight=shape.weight, inputs=its_inputs, scored=scored))
    return tuple(kinds)


def programs_of(executable: Executable, kinds: Sequence[Kind], device: Place) -> Programs:
    """An executable, compiled for the other kinds of call as well."""
    timed = []
    for kind in kinds:
        one = executable if kind.scored else executable.compile_for(kind.inputs, device)
        timed.append(Timed(executable=one, call=one.timed_call(kind.inputs, device)))
    return Programs(scored=executable, timed=tuple(timed))


class ShapeTimer:
    """Times candidates against a baseline at every kind of call.

    Args:
        kinds: of the task.
        baseline: the program as written; its weights are on the device.
        make_timer: a timer of the baseline at one kind of call, given examples per call and milliseconds it once took.
        reference_ms: the study's baseline in milliseconds, by name where there are several kinds of call.
        slow: how many times slower than the baseline a candidate may be in all.
    """

    def __init__(
        self,
        kinds: Sequence[Kind],
        baseline: Programs,
        make_timer: Callable[[Timed, int | None, float | None], Timer],
        *,
        reference_ms: float | Mapping[str, float] | None,
        slow: float,
    ) -> None:
        self._kinds = tuple(kinds)
        self._timers = []
        self._non_finite = []
        for kind, timed in zip(kinds, baseline.timed, strict=True):
            timed.executable.held.bring_back()  # another timer may have made room
            self._non_finite.append(0 if kind.scored else int(count_non_finite(timed.call())))
            reference = reference_ms.get(kind.name) if isinstance(reference_ms, Mapping) else reference_ms
            self._timers.append(make_timer(timed, _examples(kind.inputs), reference))
        self.baseline = self._together([timer.latency for timer in self._timers])
        parts = shares(self.baseline.shapes)
        for kind, timer in zip(self._kinds, self._timers, strict=True):
            # A call that is a small part of the sum may be slower by more before that alone makes the sum too slow.
            timer.slow = slow * min(1 / parts.get(kind.name, 1.0), _SLOWER_ALONE)

    def make_room(self, programs: Programs) -> None:
        """Moves a program's weights out of the device, where only one program's fit."""
        self._timers[0].make_room(programs.timed[0])

    def make_ready(self, programs: Programs) -> None:
        """Moves them back in."""
        self._timers[0].make_ready(programs.timed[0])

    def allowance(self, candidates: int = 1) -> float:
        """Seconds that timing so many candidates may take."""
        return sum(timer.allowance(candidates) for timer in self._timers)

    def times_slower(self, number: int, call: Callable[[], Any], warm_up_s: float) -> float | None:
        """How many times slower than the baseline a candidate is at one kind of call, when that is beyond the cut."""
        return self._timers[number].times_slower(call, warm_up_s)

    def limit(self, number: int) -> float:
        """How many times slower than the baseline it may be there."""
        return self._timers[number].slow

    def non_finite(self, number: int, outputs: PyTree) -> str | None:
        """What is NaN or infinite in the outputs of one kind of call although it is not in the baseline's, in words."""
        bad, known = int(count_non_finite(outputs)), self._non_finite[number]
        if bad <= known:
            return None
        return f"{bad} outputs of one call{self._kinds[number].text} are NaN or infinite, {known} of the baseline's"

    def compare(self, candidates: Sequence[Programs], *, confirming: bool = False) -> list[Timings]:
        """The latency of every candidate; each kind of call in rounds of its own, together with all others' and the baseline."""
        by_kind = [
            timer.compare([programs.timed[number] for programs in candidates], confirming=confirming)
            for number, timer in enumerate(self._timers)
        ]
        return [self._together(latencies) for latencies in zip(*by_kind, strict=True)]

    def _together(self, latencies: Sequence[Latency]) -> Timings:
        if not self._kinds[0].name:
            return Timings(latency=latencies[0])
        shapes = {
            kind.name: ShapeLatency(latency=latency, weight=kind.weight)
            for kind, latency in zip(self._kinds, latencies, strict=True)
        }
        return Timings(latency=weighted_latency(shapes), shapes=MappingProxyType(shapes))


def _examples(inputs: tuple[PyTree, ...]) -> int | None:
    """Examples of one call, by the first axis of its inputs."""
    leaves = [leaf for leaf in jax.tree_util.tree_leaves(inputs) if leaf.ndim]
    return len(leaves[0]) if leaves else None
