import jax
import numpy as np
import pytest

from tests.test_measure_latency import Machine
from tuner.measure.contention import Watch
from tuner.measure.executable import compile_baseline, compile_cast
from tuner.measure.latency import Effort, in_turns, latencies
from tuner.measure.timing import Timed, Timer
from tuner.measurement import ALTERNATE

DEVICE = jax.devices()[0]
PARAMS = {"w": np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)}
INPUTS = (np.ones((16, 8), np.float32),)
BRIEF = Effort(seconds=0.02)


def apply(params, x):
    return x @ params["w"]


def timed(executable):
    return Timed(executable=executable, call=executable.timed_call(INPUTS, DEVICE))


def make_timer(**settings):
    baseline = timed(compile_baseline(apply, PARAMS, INPUTS, DEVICE))
    return Timer(baseline, examples=16, watch=Watch(None), effort=BRIEF, **settings)


def cast():
    return timed(compile_cast(apply, PARAMS, "bfloat16", INPUTS, DEVICE))


def test_candidates_are_held_against_the_baseline():
    timer = make_timer(reference_ms=8.0)
    assert (timer.latency.ratio, timer.latency.milliseconds, timer.latency.throughput) == (1.0, 8.0, 2000.0)
    first, second = timer.compare([cast(), cast()])
    assert first.pairs == second.pairs
    assert first.milliseconds == pytest.approx(8.0 * first.ratio)
    assert first.throughput == pytest.approx(2000.0 / first.ratio)
    assert (first.baseline, timer.compare([])) == ("resident", [])


def test_a_watched_disturbance_is_kept_with_the_latency(monkeypatch):
    timer = make_timer()
    monkeypatch.setattr(Watch, "calmest", lambda self, take, effort, **_: (take(), "others kept 1.0 of 2 CPUs busy"))
    assert timer.compare([cast()])[0].contended == "others kept 1.0 of 2 CPUs busy"


def test_programs_that_alternate_have_the_device_to_themselves():
    timer = make_timer(kept=ALTERNATE)
    programs = [timer._baseline, cast(), cast()]
    seen = []

    def spied(program):
        def call():
            seen.append(tuple(isinstance(other.executable.weights["w"], jax.Array) for other in programs))
            return program.call()

        return Timed(executable=program.executable, call=call)

    timer._baseline = spied(programs[0])
    for program in programs:
        timer.make_room(program)
    found = timer.compare([spied(program) for program in programs[1:]])
    assert {sum(places) for places in seen} == {1}
    assert len(set(seen)) == 3
    assert [latency.baseline for latency in found] == [ALTERNATE] * 2
    assert not any(isinstance(program.executable.weights["w"], jax.Array) for program in programs)


def test_moving_weights_is_not_timed_and_drift_does_not_move_the_ratio_of_blocks():
    machine = Machine()
    speed = lambda now: 1 + min(now / 8, 1)
    runs = [machine.program("A", lambda now: 0.01 * speed(now)), machine.program("B", lambda now: 0.008 * speed(now))]

    def begin(index):
        machine.calls.append(f"begin {'AB'[index]}")
        machine.now += 0.2

    effort = Effort(width=0.0, seconds=8.0, pairs=6, sample_s=0.05)
    (latency,) = latencies(in_turns(runs, effort=effort, clock=machine.clock, begin=begin))
    assert latency.ratio == pytest.approx(0.8, rel=0.01)
    assert latency.high - latency.low > 0.005  # what call by call would be a hundredth of that
    blocks = "".join(machine.calls).split("begin ")[3:]
    assert {len(block) - 1 for block in blocks[:-1]} <= {1 + 7, 1 + 14}  # letter, one call that does not count, blocks
    assert [block[0] for block in blocks[:6]] == list("ABABAB")


@pytest.fixture
def times(monkeypatch):
    """Sets what the candidate and the baseline are timed at; the baseline was 1 ms when the timer began."""

    def set_times(*, best_of_two, candidate, baseline=0.001, **settings):
        timer = make_timer(slow=10.0, **settings)
        timer.baseline_s = 0.001
        best = lambda runs, seconds: [baseline if run is timer._baseline.call else candidate for run in runs]
        monkeypatch.setattr("tuner.measure.timing.quick", lambda run: best_of_two)
        monkeypatch.setattr("tuner.measure.timing.best_in_turns", best)
        return timer.times_slower(lambda: None, 0.0)

    return set_times


@pytest.mark.parametrize("kept", ["resident", "alternate"])
def test_a_slow_candidate_is_told_by_how_much(times, kept):
    assert times(best_of_two=0.009, candidate=0.009, kept=kept) is None
    assert times(best_of_two=0.012, candidate=0.012, kept=kept) == pytest.approx(12)


def test_the_baseline_is_timed_again_before_a_candidate_is_called_slow(times):
    """The machine may have slowed down for both since the baseline was timed."""
    assert times(best_of_two=0.012, candidate=0.012, baseline=0.002) is None


def test_two_interrupted_calls_do_not_make_a_candidate_slow(times):
    assert times(best_of_two=0.040, candidate=0.002) is None


def test_a_call_that_takes_seconds_is_not_called_twice_more():
    def unexpected():
        raise AssertionError("called again")

    assert make_timer().times_slower(unexpected, 5.0) > 10


def test_more_time_is_allowed_where_weights_move():
    assert make_timer(kept=ALTERNATE).allowance() > make_timer().allowance()
    assert make_timer().allowance(3) > make_timer().allowance()
