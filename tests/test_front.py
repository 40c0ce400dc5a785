import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.factories import INFINITY, NAN, make_confirmation, make_latency, make_measurement, make_metric, make_point
from tuner.drop import Drop
from tuner.errors import GoalMissed, InputError
from tuner.front import BASELINE, OBJECTIVES, choose, dominates, knee, pareto, values
from tuner.measurement import Failure

BROKEN = {"agreement": make_metric(0.05, 0.01)}
KEPT = {"agreement": make_metric(0.005, 0.01), "mse": make_metric(0.5, NAN)}
LATENCY_QUALITY = ("latency", "quality")

# Few different numbers, so that ties and equal points are common; and what must never enter.
numbers = st.sampled_from([0.25, 0.5, 1.0, NAN, INFINITY, -INFINITY])
objectives = st.sampled_from([tuple(names) for size in (1, 2, 3) for names in itertools.permutations(OBJECTIVES, size)])


@st.composite
def clouds(draw, finite=False):
    pick = st.sampled_from([0.25, 0.5, 1.0]) if finite else numbers
    rows = draw(
        st.lists(st.tuples(pick, pick, st.sampled_from([100, 200, 300]), st.booleans(), st.booleans()), max_size=8)
    )
    return [
        make_point(
            trial,
            measurement=make_measurement(ratio, drop, memory, metrics=BROKEN if breaks and not finite else {}),
            **({"policy": None} if reference else {}),
        )
        for trial, (ratio, drop, memory, reference, breaks) in enumerate(rows)
    ]


def is_finite(point, names):
    return all(abs(value) < INFINITY for value in values(point, names))


@given(clouds(), objectives)
def test_nothing_dominates_itself_and_nothing_mutually(points, names):
    for a in points:
        assert not dominates(a, a, names)
        for b in points:
            assert not (dominates(a, b, names) and dominates(b, a, names))


@given(clouds(), objectives)
def test_dominance_is_transitive(points, names):
    for a, b, c in itertools.product(points, repeat=3):
        if dominates(a, b, names) and dominates(b, c, names):
            assert dominates(a, c, names)


@given(clouds(), objectives)
def test_what_is_not_finite_neither_dominates_nor_enters(points, names):
    front = pareto(points, names)
    assert all(is_finite(point, names) for point in front)
    for a, b in itertools.product(points, repeat=2):
        if not is_finite(a, names) or not is_finite(b, names):
            assert not dominates(a, b, names)


@given(clouds(), objectives)
def test_the_front_is_exactly_what_no_policy_beats_or_equals_earlier(points, names):
    def pushed_off(point):
        rivals = [p for p in eligible if point.is_reference or not p.is_reference]
        equals = (
            p for p in rivals if values(p, names) == values(point, names) and p is not point and p.trial < point.trial
        )
        return any(dominates(p, point, names) for p in rivals) or any(equals)

    eligible = [p for p in points if is_finite(p, names) and p.keeps_constraints]
    expected = [point for point in eligible if not pushed_off(point)]
    # A reference equal to a policy is covered by it, whatever the order of their trials.
    policies = {values(p, names) for p in eligible if not p.is_reference}
    expected = [p for p in expected if not (p.is_reference and values(p, names) in policies)]
    assert sorted(p.trial for p in pareto(points, names)) == [p.trial for p in expected]


@given(clouds(), objectives)
def test_what_breaks_a_constraint_neither_dominates_nor_enters(points, names):
    assert all(point.keeps_constraints for point in pareto(points, names))
    for a, b in itertools.product(points, repeat=2):
        if not a.keeps_constraints:
            assert not dominates(a, b, names)
        elif not b.keeps_constraints and is_finite(a, names) and is_finite(b, names):
            assert dominates(a, b, names)


@given(clouds(), objectives, st.randoms(use_true_random=False))
def test_the_front_depends_on_no_order_and_is_its_own_front(points, names, random):
    front = pareto(points, names)
    assert pareto(front, names) == front
    shuffled = list(points)
    random.shuffle(shuffled)
    assert pareto(shuffled, names) == front
    assert [values(p, names) for p in front] == sorted(values(p, names) for p in front)


@given(clouds(), objectives)
def test_a_front_can_be_renewed_point_by_point(points, names):
    front = []
    for point in points:
        front = pareto([*front, point], names)
    assert front == pareto(points, names)


def test_a_point_is_shown_in_one_line():
    assert repr(make_point(2, 0.5, 0.001)) == (
        "Point(trial 2, trial 2: latency 0.500 (0.490..0.510), drop +0.0010 (-0.0010..+0.0030))"
    )


def test_quality_counts_as_drop_so_that_losses_work_too():
    better, worse = make_point(1, drop=-0.01), make_point(2, drop=0.01)
    assert dominates(better, worse, LATENCY_QUALITY)


def test_a_reference_point_is_compared_but_hides_no_policy():
    cast = make_point(-1, ratio=0.3, policy=None, label="astype(bf16)")
    policy = make_point(1, ratio=0.5)
    assert pareto([cast, policy]) == [cast, policy]
    assert pareto([replace(cast, measurement=policy.measurement), policy]) == [policy]


def test_unknown_or_doubled_objectives_are_refused():
    with pytest.raises(InputError, match="unknown objective 'speed'; use latency, quality, memory"):
        pareto([make_point()], ("speed",))
    with pytest.raises(InputError, match="give one or more of latency, quality, memory, each once"):
        pareto([make_point()], ("latency", "latency"))
    with pytest.raises(InputError, match="give one or more of"):
        dominates(make_point(), make_point(), ())


def test_the_knee_lies_where_the_front_bends():
    points = [make_point(0, 1.0, 0.0), make_point(1, 0.4, 0.01), make_point(2, 0.35, 0.1), make_point(3, 0.9, 0.009)]
    assert knee(points, LATENCY_QUALITY).trial == 1


def test_differences_inside_the_noise_do_not_make_a_knee():
    # All drops are within an interval of 0.004: the fastest is the knee, however its drop ranks.
    points = [make_point(0, 1.0, 0.0), make_point(1, 0.6, 0.0001), make_point(2, 0.2, 0.0003)]
    assert knee(points, LATENCY_QUALITY).trial == 2


@given(clouds(finite=True))
def test_the_knee_is_a_policy_on_the_front(points):
    if all(point.is_reference for point in points):
        with pytest.raises(GoalMissed, match="no point was measured, so there is no knee; run `tuner search`"):
            knee(points)
    else:
        assert knee(points) in pareto(points)
        assert not knee(points).is_reference


def test_a_front_of_one_point_is_its_own_knee():
    assert knee([make_point(0, 1.0, 0.0, 100)]).trial == 0


BASE = make_point(0, 1.0, 0.0, 4000, label=BASELINE)


def confirmed(trial, ratio, drop, memory=1000, *, holdout=None, again=None):
    confirmation = make_confirmation(again or ratio, drop if holdout is None else holdout)
    return make_point(trial, ratio, drop, memory, confirmation=confirmation)


def pick(*points, max_drop="1%", **kwargs):
    return choose(points, max_drop=max_drop, baseline_quality=0.9, **kwargs)


def missed(*points, **kwargs):
    with pytest.raises(GoalMissed) as caught:
        pick(*points, **kwargs)
    return str(caught.value)


def test_the_fastest_within_the_allowed_drop_is_chosen():
    point, rejected = pick(BASE, confirmed(1, 0.5, 0.004), confirmed(2, 0.3, 0.02), confirmed(3, 0.4, 0.01))
    assert (point.trial, rejected) == (3, [])


def test_the_smallest_within_the_allowed_drop_is_chosen():
    point, _ = pick(BASE, confirmed(1, 0.3, 0.0, 2000), confirmed(2, 1.2, 0.0, 1000), minimize="memory")
    assert point.trial == 2


def test_rounding_of_the_drop_does_not_decide():
    assert 0.98 - 0.97 > 0.01
    assert pick(BASE, confirmed(1, 0.5, 0.98 - 0.97))[0].trial == 1


def test_a_relative_drop_is_a_share_of_the_baseline():
    points = (BASE, confirmed(1, 0.5, 0.0095))
    assert pick(*points, max_drop=Drop(0.01))[0].trial == 1
    assert "no point within max drop 1%rel" in missed(*points, max_drop="1%rel")


def test_what_the_holdout_rejects_is_passed_over_and_returned():
    point, rejected = pick(BASE, confirmed(1, 0.3, 0.009, holdout=0.02), confirmed(2, 0.4, 0.009))
    assert (point.trial, [p.trial for p in rejected]) == (2, [1])


def test_the_holdout_only_confirms_and_never_promotes():
    point, rejected = pick(BASE, confirmed(1, 0.5, 0.005), confirmed(2, 0.3, 0.02, holdout=0.0))
    assert (point.trial, rejected) == (1, [])
    # Nor does a better holdout number move a point forward among those within the drop.
    assert pick(BASE, confirmed(1, 0.5, 0.005, holdout=-0.01), confirmed(2, 0.4, 0.005))[0].trial == 2


def test_a_failed_confirmation_rejects():
    crashed = make_point(1, 0.3, confirmation=Failure(cause="non-finite", message="NaN"))
    point, rejected = pick(BASE, crashed, confirmed(2, 0.4, 0.0))
    assert (point.trial, rejected) == (2, [crashed])


def test_a_speed_up_that_is_certainly_gone_rejects_for_latency_only():
    gone = confirmed(1, 0.9, 0.0, again=1.1)
    point, rejected = pick(BASE, gone, confirmed(2, 0.95, 0.0))
    assert (point.trial, rejected) == (2, [gone])
    assert pick(BASE, gone, minimize="memory")[0] == gone
    doubtful = confirmed(1, 0.9, 0.0, again=1.005)  # its interval reaches below 1
    assert pick(BASE, doubtful)[0] == doubtful


def test_a_nan_on_the_holdout_rejects_and_elsewhere_never_enters():
    assert "rejected" in missed(BASE, confirmed(1, 0.5, 0.0, holdout=NAN))
    assert pick(BASE, confirmed(1, NAN, 0.0), confirmed(2, 0.5, NAN)) == (BASE, [])


def constrained(trial, ratio, metrics, again=None):
    confirmation = make_confirmation(ratio, 0.0, metrics=metrics if again is None else again)
    return make_point(trial, measurement=make_measurement(ratio, 0.0, 1000, metrics=metrics), confirmation=confirmation)


def test_what_breaks_a_constraint_is_not_chosen():
    point, rejected = pick(BASE, constrained(1, 0.3, BROKEN), constrained(2, 0.5, KEPT))
    assert (point.trial, rejected) == (2, [])
    assert missed(BASE, constrained(1, 0.3, BROKEN)) == (
        "no point within max drop 1% and the constraint on agreement is faster than the baseline: the nearest is trial 1 "
        "(trial 1) at 0.3 of the baseline's latency with a drop of 0 [-0.002, 0.002], and of 0.05 in agreement where "
        "0.01 is allowed; allow a larger --max-drop or search for longer"
    )


def test_a_constraint_that_does_not_hold_on_the_holdout_rejects():
    broken = constrained(1, 0.3, KEPT, again=BROKEN)
    point, rejected = pick(BASE, broken, constrained(2, 0.5, KEPT))
    assert (point.trial, rejected) == (2, [broken])
    assert "and there a drop of 0, and of 0.05 in agreement where 0.01 is allowed at 0.3" in missed(BASE, broken)


def test_unconfirmed_points_count_only_when_asked_for():
    fast = make_point(1, 0.3, 0.002)
    assert pick(BASE, fast, confirmed(2, 0.4, 0.0))[0].trial == 2
    assert pick(BASE, fast, confirmed(2, 0.4, 0.0), confirmed_only=False)[0] == fast
    assert missed(BASE, fast) == (
        "no point within max drop 1% is confirmed: the best unconfirmed one is trial 1 (trial 1) at 0.3 of the "
        "baseline's latency with a drop of 0.002 [0, 0.004]; run the same `tuner search` again to confirm it, "
        "or take it with --unconfirmed"
    )


def test_a_missed_goal_says_how_near_the_best_came():
    assert missed(BASE, confirmed(1, 0.3, 0.05), confirmed(2, 0.6, 0.02)) == (
        "no point within max drop 1% is faster than the baseline: the nearest is trial 2 (trial 2) at 0.6 of the "
        "baseline's latency with a drop of 0.02 [0.018, 0.022]; allow a larger --max-drop or search for longer"
    )
    assert "is smaller than the baseline: the nearest is trial 1" in missed(
        BASE, confirmed(1, 0.3, 0.05), minimize="memory"
    )


def test_a_goal_missed_on_the_holdout_says_so():
    assert missed(BASE, confirmed(1, 0.3, 0.009, holdout=0.02), confirmed(2, 0.4, 0.0, holdout=0.03)) == (
        "no point within max drop 1% was confirmed on the holdout split: 2 rejected, the best of them trial 1 "
        "(trial 1) at 0.3 of the baseline's latency with a drop of 0.009 [0.007, 0.011], and there a drop of 0.02 "
        "at 0.3; allow a larger --max-drop or search for longer"
    )
    crashed = make_point(1, 0.3, confirmation=Failure(cause="out of memory", message=""))
    assert "which failed there: out of memory" in missed(BASE, crashed)


def test_the_baseline_is_the_answer_only_where_nothing_measured_beats_it():
    assert pick(BASE) == (BASE, [])
    assert pick(BASE, confirmed(1, 1.2, 0.0)) == (BASE, [])
    assert pick(BASE, confirmed(1, 1.2, 0.0, 1000))[0] == BASE


def test_a_reference_point_is_never_chosen():
    cast = make_point(-1, 0.2, policy=None, confirmation=make_confirmation(0.2))
    assert pick(BASE, cast, confirmed(1, 0.5, 0.0))[0].trial == 1


def test_no_points_at_all():
    assert missed() == "no point within max drop 1%: nothing was measured; run `tuner search` for longer"


def test_equal_points_are_chosen_by_trial_and_ties_by_quality():
    assert pick(BASE, confirmed(2, 0.5, 0.0), confirmed(1, 0.5, 0.0))[0].trial == 1
    assert pick(BASE, confirmed(1, 0.5, 0.002), confirmed(2, 0.5, 0.001))[0].trial == 2


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"minimize": "quality"}, "minimize is 'quality'; use latency or memory"),
        ({"max_drop": "lots"}, "max drop 'lots' cannot be read"),
    ],
)
def test_a_goal_that_cannot_be_used_is_named(kwargs, message):
    with pytest.raises(InputError, match=message):
        pick(BASE, **kwargs)


def test_the_interval_is_part_of_the_point():
    measurement = replace(make_measurement(), latency=make_latency(0.5, width=0.2))
    assert make_point(measurement=measurement).measurement.latency.high == pytest.approx(0.6)
