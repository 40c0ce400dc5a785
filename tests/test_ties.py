import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.factories import INFINITY, NAN, make_measurement, make_point, make_quality
from tuner.drop import Drop
from tuner.errors import GoalMissed
from tuner.front import OBJECTIVES, choose, pareto, values
from tuner.ties import find_ties, is_tied

numbers = st.sampled_from([0.25, 0.5, 0.75, 1.0, NAN, INFINITY, -INFINITY])
drops = st.sampled_from([-0.01, 0.0, 0.001, 0.002, 0.01, NAN, INFINITY])


@st.composite
def clouds(draw):
    rows = draw(
        st.lists(st.tuples(numbers, drops, st.sampled_from([0.0, 0.004, 0.03]), st.sampled_from([1, 2]), st.booleans()), max_size=7)
    )  # fmt: skip
    points = []
    for trial, (ratio, drop, width, memory, reference) in enumerate(rows):
        measured = replace(make_measurement(ratio, drop, 1000 * memory), quality=make_quality(drop, width))
        points.append(make_point(trial, measurement=measured, **({"policy": None} if reference else {})))
    return points


@given(clouds(), st.permutations(OBJECTIVES))
def test_a_tie_is_with_a_cheaper_member_of_no_different_quality(points, objectives):
    front = pareto(points, objectives)
    ties = find_ties(front, objectives)
    assert set(ties) <= {point.trial for point in front}
    for point in front:
        cheaper = [
            other
            for other in front
            if not other.is_reference
            and values(other, ("latency", "memory")) != values(point, ("latency", "memory"))
            and other.measurement.latency.ratio <= point.measurement.latency.ratio
            and other.measurement.memory.total_bytes <= point.measurement.memory.total_bytes
            and is_tied(point, other)
        ]
        assert (point.trial in ties) == (bool(cheaper) and not point.is_reference)
        if point.trial in ties:
            assert ties[point.trial] in cheaper


@given(clouds(), st.randoms(use_true_random=False))
def test_ties_depend_on_no_order_and_being_tied_is_mutual(points, random):
    shuffled = list(points)
    random.shuffle(shuffled)
    assert find_ties(pareto(points)) == find_ties(pareto(shuffled))
    for a, b in itertools.product(points, repeat=2):
        assert is_tied(a, b) == is_tied(b, a)


@given(clouds(), st.sampled_from(["latency", "memory"]))
def test_choosing_never_pays_for_a_quality_difference_inside_the_noise(points, minimize):
    try:
        chosen, _ = choose(points, max_drop=Drop(0.5), baseline_quality=0.9, minimize=minimize, confirmed_only=False)
    except GoalMissed:
        assume(False)
    assert chosen.trial not in find_ties(pareto(points))


def test_what_costs_nothing_is_tied_with_nothing():
    front = [make_point(1, 0.5, 0.001), make_point(2, 0.6, 0.0)]
    assert find_ties(front, ("latency", "quality"))[2].trial == 1
    assert find_ties(front, ("latency", "memory")) == {}
    assert find_ties(front, ("quality",)) == {}


@pytest.mark.parametrize(("drop", "tied"), [(0.002, True), (0.0021, False), (NAN, False), (INFINITY, False)])
def test_the_border_of_an_interval_belongs_to_it(drop, tied):
    other = make_point(2, 0.6, measurement=replace(make_measurement(0.6), quality=make_quality(drop, 0.0)))
    assert is_tied(make_point(1, 0.5, 0.0), other) is tied
