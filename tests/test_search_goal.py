import pytest

from tests.factories import make_measurement, make_metric
from tuner.errors import InputError
from tuner.measurement import SLOW, Failure
from tuner.search.goal import Goal, Stall

BASELINE = make_measurement(1.0, 0.0, 1000)


@pytest.mark.parametrize(
    ("text", "measured", "met"),
    [
        ("latency<=0.5x", make_measurement(0.5), True),
        ("latency<=0.5x", make_measurement(0.51), False),
        ("latency<=0.5, drop<=1%", make_measurement(0.4, 0.01), True),
        ("latency<=0.5,drop<=1%", make_measurement(0.4, 0.011), False),
        ("memory<=0.4x", make_measurement(2.0, 0.5, 400), True),
        ("memory<=400B", make_measurement(2.0, 0.5, 401), False),
        ("drop<=1%", Failure(cause=SLOW, message="slow"), False),
        ("latency<=0.5x", make_measurement(0.4, metrics={"agreement": make_metric(drop=0.5, allowed=0.1)}), False),
    ],
)
def test_a_goal_is_met_or_not(text, measured, met):
    assert Goal.parse(text).is_met(measured, BASELINE) is met


@pytest.mark.parametrize("text", ["latency<=0.5x,drop<=1%", "memory<=0.4x", "drop<=0.5%rel,memory<=1000000B"])
def test_a_goal_reads_as_it_prints(text):
    goal = Goal.parse(text)
    assert str(goal) == text
    assert Goal.parse(str(goal)) == Goal.parse(goal) == goal


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speed<=2x", "'speed<=2x' is not understood here; write one or more of latency<=0.5x, drop<=1%"),
        ("", "cannot read the goal ''"),
        ("latency<=0.5x,latency<=0.4x", "'latency<=0.4x' is not understood here"),
        ("memory<=0.5x,memory<=5MB", "'memory<=5MB' is not understood here"),
        ("latency<=fast", "the latency of the goal 'fast' is no share of the baseline; give one such as 0.5x"),
        ("latency<=0x", "'0x' is no share"),
        ("drop<=-1%", "negative"),
    ],
)
def test_what_is_no_goal_is_refused(text, said):
    with pytest.raises(InputError) as caught:
        Goal.parse(text)
    assert said in str(caught.value)


def test_it_stalls_when_the_last_trials_gained_nothing():
    stall = Stall([1.0, 1.0], patience=3)
    for values in ([0.9, 0.9], [0.5, 0.5], [0.6, 0.6], None):
        stall.add(values)
        assert not stall.stalled
    stall.add([0.7, 0.5])
    assert stall.stalled
    stall.add([0.2, 0.5])
    assert not stall.stalled


def test_a_thousandth_is_nothing():
    stall = Stall([1.0], patience=2)
    for value in (0.5, 0.4999, 0.4998):
        stall.add([value])
    assert stall.stalled


def test_what_an_earlier_run_measured_is_not_waited_for():
    stall = Stall([1.0], patience=1)
    for _ in range(5):
        stall.add([0.5], counts=False)
    assert not stall.stalled
    stall.add([0.5])
    stall.add([0.5])
    assert stall.stalled


def test_without_patience_it_never_stalls():
    stall = Stall([1.0], patience=0)
    for _ in range(50):
        stall.add([0.5])
    assert not stall.stalled
