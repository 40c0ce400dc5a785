import json
import math
from pathlib import Path

import numpy as np
import pytest

from tuner.measure.latency import (
    Effort,
    baseline_latency,
    best_in_turns,
    compare,
    median_interval,
    order_of_round,
    quick,
    summarize,
    time_alone,
)

RECORDED = np.array(json.loads((Path(__file__).parent / "assets" / "noisy_times.json").read_text())["pairs"]) / 1e6
EXACTLY = Effort(width=0.0, seconds=0.0, pairs=len(RECORDED))


class Machine:
    """A clock that moves only while one of its programs runs."""

    def __init__(self):
        self.now = 0.0
        self.calls = []

    def clock(self):
        return self.now

    def program(self, name, seconds):
        """A program that takes `seconds`: a number, or a function of the time it starts at."""

        def run():
            self.calls.append(name)
            self.now += seconds(self.now) if callable(seconds) else seconds

        return run

    def replay(self, name, seconds):
        times = iter(seconds)
        return self.program(name, lambda now: next(times))


def replayed(baseline, candidate):
    """What `compare` says of recorded times; two calls of each come before the first pair."""
    machine = Machine()
    runs = [
        machine.replay(name, [times[0], max(times[0], 0.001), *times])
        for name, times in (("A", baseline), ("B", candidate))
    ]
    (latency,) = compare(runs[0], [runs[1]], effort=EXACTLY, clock=machine.clock)
    return latency


def test_recorded_noise_does_not_move_the_ratio():
    """Recorded while the machine's speed changed: both columns are the same program, so the truth is known."""
    baseline, candidate = RECORDED[:, 0], 1.05 * RECORDED[:, 1]
    latency = replayed(baseline, candidate)
    assert latency.pairs == len(RECORDED)
    assert latency.ratio == pytest.approx(1.05, rel=0.01)
    assert latency.low < 1.05 < latency.high
    # The ratio of two medians, which would pass on a quiet machine, is far off on these times.
    of_medians = np.median(candidate) / np.median(baseline)
    assert not 0.9 * 1.05 < of_medians < 1.1 * 1.05


def test_a_machine_that_slows_down_to_half_its_speed_does_not_move_the_ratio():
    machine = Machine()
    speed = lambda now: 1 + min(now / 2, 1)
    baseline = machine.program("A", lambda now: 0.010 * speed(now))
    candidate = machine.program("B", lambda now: 0.008 * speed(now))
    (latency,) = compare(baseline, [candidate], effort=Effort(width=0.0), clock=machine.clock)
    assert latency.ratio == pytest.approx(0.8, rel=0.01)
    assert latency.baseline_spread > 0.5


@pytest.mark.parametrize(("slower", "found"), [(1.05, True), (1.005, False)])
def test_five_percent_slower_is_found_and_half_a_percent_is_a_tie(slower, found):
    machine, rng = Machine(), np.random.default_rng(1)
    noise = lambda: rng.lognormal(0, 0.03)
    baseline = machine.program("A", lambda now: 0.010 * noise())
    candidate = machine.program("B", lambda now: 0.010 * slower * noise())
    (latency,) = compare(baseline, [candidate], clock=machine.clock)
    assert (latency.low > 1.0) == found
    assert latency.low <= slower <= latency.high
    assert latency.high - latency.low < 0.02 * latency.ratio


def test_order_alternates():
    machine = Machine()
    baseline, candidate = machine.program("A", 0.01), machine.program("B", 0.01)
    compare(baseline, [candidate], effort=Effort(width=0.0, seconds=0.0, pairs=6), clock=machine.clock)
    assert "".join(machine.calls[-12:]) == "ABBAABBAABBA"


def test_every_round_holds_everyone_and_everyone_gets_every_place():
    orders = [order_of_round(index, 4) for index in range(8)]
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert all({order[place] for order in orders} == {0, 1, 2, 3} for place in range(4))


def test_a_steady_machine_is_believed_after_six_pairs():
    machine = Machine()
    (latency,) = compare(machine.program("A", 0.5), [machine.program("B", 0.25)], clock=machine.clock)
    assert (latency.ratio, latency.low, latency.high, latency.pairs) == (0.5, 0.5, 0.5, 6)
    assert latency.milliseconds == pytest.approx(500 * 0.5)


def test_noise_is_measured_for_three_seconds_and_shown_as_wide():
    machine, rng = Machine(), np.random.default_rng(2)
    baseline = machine.program("A", lambda now: 0.01 * rng.lognormal(0, 1))
    candidate = machine.program("B", lambda now: 0.01 * rng.lognormal(0, 1))
    (latency,) = compare(baseline, [candidate], clock=machine.clock)
    assert 3.0 < machine.now < 3.6
    assert latency.high - latency.low > 0.02 * latency.ratio


def test_slow_programs_get_ten_pairs_however_long_that_takes():
    machine, rng = Machine(), np.random.default_rng(3)
    baseline = machine.program("A", lambda now: rng.lognormal(0, 1))
    candidate = machine.program("B", lambda now: rng.lognormal(0, 1))
    (latency,) = compare(baseline, [candidate], clock=machine.clock)
    assert latency.pairs == 10


def test_short_programs_are_called_several_times_and_interruptions_are_outvoted():
    machine, rng = Machine(), np.random.default_rng(4)
    interrupted = lambda now: 1e-4 + (0.01 if rng.random() < 0.1 else 0.0)
    baseline, candidate = machine.program("A", interrupted), machine.program("B", 1e-4)
    (latency,) = compare(baseline, [candidate], effort=Effort(seconds=0.0), clock=machine.clock)
    assert latency.ratio == pytest.approx(1.0)
    assert machine.calls.count("B") >= 11 * latency.pairs


def test_several_candidates_share_the_baseline_of_their_round():
    machine = Machine()
    drift = lambda factor: lambda now: 0.01 * factor * (1 + now)
    runs = [machine.program(name, drift(factor)) for name, factor in (("A", 1.0), ("B", 0.5), ("C", 2.0))]
    first, second = compare(runs[0], runs[1:], effort=Effort(width=0.0), clock=machine.clock)
    assert first.pairs == second.pairs
    assert first.ratio == pytest.approx(0.5, rel=0.02)
    assert second.ratio == pytest.approx(2.0, rel=0.02)


def test_milliseconds_are_those_of_the_reference_baseline():
    times = np.full(10, 0.02)
    assert summarize(times / 2, times, reference_ms=10.0).milliseconds == pytest.approx(5.0)
    assert summarize(times / 2, times).milliseconds == pytest.approx(10.0)


def test_the_baseline_has_a_ratio_of_exactly_one():
    latency = baseline_latency(np.array([0.01, 0.03, 0.02]))
    assert (latency.ratio, latency.low, latency.high) == (1.0, 1.0, 1.0)
    assert latency.milliseconds == pytest.approx(20.0)


def test_intervals_are_the_same_every_time_and_hold_the_median():
    ratios = np.random.default_rng(5).lognormal(0, 0.1, 40)
    assert median_interval(ratios, seed=7) == median_interval(ratios, seed=7)
    median, low, high = median_interval(ratios)
    assert low <= median <= high


def test_the_interval_covers_the_true_median_as_often_as_it_says():
    rng = np.random.default_rng(6)
    intervals = [median_interval(rng.lognormal(0, 0.1, 60), resamples=300) for _ in range(300)]
    assert np.mean([low <= 1.0 <= high for _, low, high in intervals]) > 0.9


def test_quick_is_the_better_of_two():
    machine = Machine()
    assert quick(machine.replay("A", [0.3, 0.2]), clock=machine.clock) == pytest.approx(0.2)


def test_best_in_turns_calls_each_as_often_for_the_time_it_is_given():
    machine = Machine()
    runs = [machine.replay("A", [0.3, 0.2, 0.4, 0.1]), machine.replay("B", [0.1, 0.3, 0.1, 0.1])]
    assert best_in_turns(runs, 0.8, clock=machine.clock) == pytest.approx([0.2, 0.1])
    assert machine.calls == ["A", "B"] * 2
    assert best_in_turns([machine.program("C", 5.0)], 0.1, clock=machine.clock) == [5.0]


def test_best_in_turns_outlasts_a_machine_that_is_busy_for_a_while():
    """Both take 0.1 ms; for the first 30 ms every call is kept waiting. One after the other, only one would see it."""
    machine = Machine()
    busy = lambda now: 0.003 if now < 0.030 else 0.0001
    assert best_in_turns(
        [machine.program("A", busy), machine.program("B", busy)], 0.05, clock=machine.clock
    ) == pytest.approx([0.0001, 0.0001])


def test_time_alone_takes_at_least_the_asked_number_of_samples():
    machine = Machine()
    times = time_alone(machine.program("A", 2.0), clock=machine.clock)
    assert times.tolist() == [[[2.0]]] * 10


def slow_at_times(share, seconds=0.01):
    """A program that takes ten times as long in a share of its calls."""
    rng = np.random.default_rng(8)
    return lambda now: seconds * (10 if rng.random() < share else 1)


def test_the_slowest_calls_are_known_beside_the_median():
    machine = Machine()
    baseline, candidate = machine.program("A", 0.02), machine.program("B", slow_at_times(0.07))
    (latency,) = compare(baseline, [candidate], effort=Effort(width=0.0, seconds=20), examples=64, clock=machine.clock)
    assert latency.calls > 400
    assert (latency.milliseconds, latency.p95_ms, latency.p99_ms) == pytest.approx((10, 100, 100))
    assert latency.throughput == pytest.approx(6400)


def test_the_slowest_of_several_calls_in_one_sample_are_known_too():
    machine = Machine()
    baseline, candidate = machine.program("A", 1e-4), machine.program("B", slow_at_times(0.07, 1e-4))
    (latency,) = compare(baseline, [candidate], effort=Effort(seconds=1), clock=machine.clock)
    assert (latency.milliseconds, latency.p95_ms) == pytest.approx((0.1, 1.0))
    assert latency.calls == 11 * latency.pairs


def test_a_machine_that_slows_down_makes_no_slow_calls():
    machine = Machine()
    halved = lambda seconds: lambda now: seconds if now < 1.5 else 2 * seconds
    baseline, candidate = machine.program("A", halved(0.01)), machine.program("B", halved(0.005))
    (latency,) = compare(baseline, [candidate], effort=Effort(width=0.0), reference_ms=10.0, clock=machine.clock)
    assert latency.calls > 100
    assert (latency.milliseconds, latency.p95_ms, latency.p99_ms) == pytest.approx((5, 5, 5), rel=0.01)


def test_few_calls_have_no_percentiles():
    machine = Machine()
    (latency,) = compare(machine.program("A", 0.5), [machine.program("B", 0.25)], clock=machine.clock)
    assert latency.calls == 6
    assert all(math.isnan(value) for value in (latency.p95_ms, latency.p99_ms, latency.throughput))


def test_a_steady_program_is_called_for_long_enough_to_see_what_disturbs_it():
    machine = Machine()
    (latency,) = compare(machine.program("A", 0.01), [machine.program("B", 0.01)], clock=machine.clock)
    assert 0.25 <= 0.02 * latency.pairs < 0.4
