from dataclasses import replace

import numpy as np
import pytest

from tests.test_measure_latency import Machine
from tuner.measure.contention import Watch, signs_in_books, signs_in_times
from tuner.measure.latency import FULL_EFFORT, Effort, in_turns, latencies
from tuner.measure.usage import Usage

START = Usage(wall_s=100.0, own_s=10.0, busy_s=200.0, stolen_s=5.0, cpus=2, load=0.5)


def later(seconds=1.0, *, own=0.0, others=0.0, stolen=0.0, **changes):
    """The books after some time, in which this process, others and the hypervisor took so many CPU seconds."""
    fields = {
        "wall_s": START.wall_s + seconds,
        "own_s": START.own_s + own,
        "busy_s": START.busy_s + own + others,
        "stolen_s": START.stolen_s + stolen,
    }
    return replace(START, **fields | changes)


def words(signs):
    return [text for text, _ in signs]


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (later(own=2.0), []),
        (later(own=1.0, others=0.1), []),
        (later(own=1.0, others=1.0), ["others kept 1.0 of 2 CPUs busy"]),
        (later(own=0.5, others=0.8), []),  # one of the CPUs was idle for much of the time: there was room for both
        (later(own=1.7, stolen=0.3), ["the hypervisor took 15% of the CPU time"]),
        (later(0.1, own=0.1, others=0.1), []),  # too short for the books to tell
        (later(4.0, own=4.0, others=4.0, stolen=0.5), ["others kept 1.0 of 2 CPUs busy", "the hypervisor took 6%"]),
        (later(load=4.2, busy_s=None, stolen_s=None), ["the load was 4.2 on 2 CPUs"]),
        (later(load=2.5, busy_s=None, stolen_s=None), []),
    ],
)
def test_the_books_tell_who_else_was_busy(after, said):
    found = words(signs_in_books(START, after))
    assert len(found) == len(said)
    assert all(text.startswith(expected) for text, expected in zip(found, said, strict=True))


def test_the_baselines_own_times_tell_too():
    steady = np.full(30, 0.01)
    assert words(signs_in_times(steady)) == []
    assert words(signs_in_times(steady, usual_s=0.009)) == []
    assert words(signs_in_times(steady, usual_s=0.005)) == ["the baseline took 2.0 times as long as usual"]
    assert words(signs_in_times(np.linspace(0.01, 0.02, 30))) == ["the machine's speed changed 1.6 times"]
    assert words(signs_in_times(np.linspace(0.02, 0.01, 30))) == ["the machine's speed changed 1.6 times"]
    assert words(signs_in_times(np.tile([0.01, 0.02, 0.01], 10))) == ["the baseline's own times spread by 100%"]


class Neighborhood(Machine):
    """A machine of two CPUs that a neighbor shares while `busy` says so; what is in the books follows."""

    def __init__(self, busy):
        super().__init__()
        self.busy = busy
        self.others_s = 0.0

    def program(self, name, seconds, threads=2):
        """A program of so many threads; it takes twice as long for two where the neighbor has one of the CPUs."""

        def run():
            self.calls.append(name)
            shared = self.busy(self.now)
            lasts = seconds * (2 if shared and threads == 2 else 1)
            self.others_s += lasts if shared else 0.0
            self.now += lasts

        return run

    def usage(self):
        own = 2 * self.now - self.others_s
        return later(self.now, own=own, others=self.others_s)


def measured(machine, watch=None, effort=FULL_EFFORT, **options):
    """What is kept of a baseline with two threads and a candidate that takes as long with one."""
    watch = watch or Watch(machine.usage, machine.clock)
    runs = [machine.program("A", 0.01), machine.program("B", 0.01, threads=1)]
    times, contended = watch.calmest(lambda: in_turns(runs, effort=effort, clock=machine.clock), effort, **options)
    (latency,) = latencies(times)
    return latency, contended


def test_a_calm_timing_is_taken_once():
    machine = Neighborhood(lambda now: False)
    latency, contended = measured(machine)
    assert (latency.ratio, contended) == (pytest.approx(1.0), "")
    assert machine.now < 0.5


def test_a_disturbance_that_passes_is_waited_for():
    """The neighbor halves the ratio, narrowly: only the books tell that it is wrong."""
    machine = Neighborhood(lambda now: now < 0.3)
    latency, contended = measured(machine)
    assert (latency.ratio, contended) == (pytest.approx(1.0), "")


def test_a_disturbance_that_lasts_is_said():
    machine = Neighborhood(lambda now: True)
    latency, contended = measured(machine)
    assert latency.ratio == pytest.approx(0.5)
    assert contended == "others kept 1.0 of 2 CPUs busy"
    assert 0.75 < machine.now < 1.5  # three timings


def test_the_least_disturbed_timing_is_kept():
    """The neighbor leaves the machine alone more and more."""
    machine = Neighborhood(lambda now: now < 0.3 or (now * 100) % 10 < 5)
    latency, contended = measured(machine)
    assert "others kept 0." in contended
    assert latency.ratio > 0.7


def test_all_timings_together_stay_within_twice_the_time_of_one():
    machine = Neighborhood(lambda now: True)
    measured(machine, effort=Effort(width=0.0, seconds=3.0))
    assert 5.0 < machine.now < 6.5
    machine = Neighborhood(lambda now: True)
    measured(machine, effort=Effort(width=0.0, seconds=0.1, pairs=200))  # it takes longer than its time once already
    assert machine.calls.count("B") < 210


def test_after_waiting_twice_in_vain_nobody_waits_until_it_is_calm_again():
    machine = Neighborhood(lambda now: True)
    watch = Watch(machine.usage, machine.clock)

    def timings(**options):
        before = machine.now
        contended = measured(machine, watch, **options)[1]
        return round((machine.now - before) / (0.4 if machine.busy(0) else 0.25)), bool(contended)

    assert [timings() for _ in range(3)] == [(3, True), (3, True), (1, True)]
    assert timings(insist=True) == (3, True)
    machine.busy = lambda now: False
    assert timings() == (1, False)
    machine.busy = lambda now: True
    assert timings() == (3, True)


def test_a_machine_that_stays_slow_is_the_usual_one_after_a_while():
    machine, speed = Machine(), {"now": 1.0}
    watch = Watch(None, machine.clock)
    run = machine.program("A", lambda now: 0.01 * speed["now"])

    def contended():
        take = lambda: in_turns([run], effort=Effort(), clock=machine.clock)
        return watch.calmest(take, Effort())[1]

    assert [contended() for _ in range(5)] == [""] * 5
    speed["now"] = 2.0
    found = [contended() for _ in range(5)]
    assert found[0] == "the baseline took 2.0 times as long as usual"
    assert found[-1] == ""


def test_a_machine_that_halves_its_speed_is_said_and_moves_the_ratio_by_less_than_one_percent():
    machine = Machine()
    speed = lambda now: 1 + min(now / 2, 1)
    runs = [machine.program("A", lambda now: 0.01 * speed(now)), machine.program("B", lambda now: 0.008 * speed(now))]
    effort = Effort(width=0.0, seconds=3.0)
    take = lambda: in_turns(runs, effort=effort, clock=machine.clock)
    times, contended = Watch(None, machine.clock).calmest(take, replace(effort, seconds=1.0))
    (latency,) = latencies(times)
    assert latency.ratio == pytest.approx(0.8, rel=0.01)
    assert contended.startswith("the machine's speed changed 1.")
