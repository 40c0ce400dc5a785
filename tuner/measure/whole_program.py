"""Two policies against each other in the whole program: which is faster, whatever their quality."""

import math
from collections.abc import Callable, Sequence

from tuner.errors import error_line
from tuner.kernel_choice import Comparison, unknown
from tuner.measure.latency import Effort, in_turns, latencies
from tuner.measure.shapes import Kind, Programs
from tuner.measure.weighted import weighted_latency
from tuner.measurement import ShapeLatency

# Only which of the two is faster is asked, and it is asked once per kernel and precision.
EFFORT = Effort(seconds=1.0)


def compare_programs(
    build: Callable[[], Programs], build_other: Callable[[], Programs], kinds: Sequence[Kind], seed: int = 0
) -> Comparison:
    """How long one program takes as a ratio to another, at every kind of call.

    Args:
        build: compiles the one.
        build_other: compiles what it is held against.
        kinds: of call that a task is timed with.
        seed: of the bootstraps.
    """
    try:
        other = _ready(build_other)
    except Exception as error:  # noqa: BLE001  whatever it throws, there is nothing to compare with
        return unknown(error_line(error))
    try:
        one = _ready(build)
    except Exception as error:  # noqa: BLE001  the same
        return Comparison(ratio=math.inf, low=math.inf, high=math.inf, problem=error_line(error))
    shapes = {}
    for number, kind in enumerate(kinds):
        times = in_turns([other.timed[number].call, one.timed[number].call], effort=EFFORT, seed=seed)
        (latency,) = latencies(times, seed=seed)
        shapes[kind.name] = ShapeLatency(latency=latency, weight=kind.weight)
    whole = weighted_latency(shapes)
    return Comparison(ratio=whole.ratio, low=whole.low, high=whole.high)


def _ready(build: Callable[[], Programs]) -> Programs:
    """A compiled program that ran once."""
    programs = build()
    for timed in programs.timed:
        timed.call()
    return programs
