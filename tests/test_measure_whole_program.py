"""Two programs against each other, whatever they compute."""

import math
import time
from types import SimpleNamespace
from typing import Any

from tuner.measure.whole_program import compare_programs

KINDS: Any = (SimpleNamespace(name="", weight=1.0),)
TWO: Any = (SimpleNamespace(name="prefill", weight=1.0), SimpleNamespace(name="decode", weight=10.0))


def program(*seconds: float) -> Any:
    calls = [lambda seconds=one: time.sleep(seconds) for one in seconds]
    return lambda: SimpleNamespace(timed=[SimpleNamespace(call=call) for call in calls])


def broken() -> Any:
    raise RuntimeError("it does not compile\nat all")


def test_a_program_that_takes_longer_is_certainly_slower() -> None:
    slower = compare_programs(program(0.02), program(0.002), KINDS)
    assert 1 < slower.low <= slower.ratio <= slower.high
    assert compare_programs(program(0.002), program(0.02), KINDS).high < 1


def test_several_kinds_of_call_count_by_their_weights() -> None:
    # Faster at the one that counts once, slower at the one that counts ten times.
    assert compare_programs(program(0.002, 0.01), program(0.01, 0.002), TWO).low > 1


def test_one_that_does_not_run_is_infinitely_slow_and_against_one_nothing_is_known() -> None:
    first, second = compare_programs(broken, program(0.002), KINDS), compare_programs(program(0.002), broken, KINDS)
    assert (first.low, first.problem) == (math.inf, "RuntimeError: it does not compile")
    assert math.isnan(second.ratio)
    assert second.problem == "RuntimeError: it does not compile"
