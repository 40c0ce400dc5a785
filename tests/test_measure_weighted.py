import math

import pytest

from tests.factories import make_latency
from tuner.measure.weighted import shares, weighted_latency
from tuner.measurement import Latency, ShapeLatency


def latency(ratio, milliseconds, width=0.0, contended="", pairs=10):
    return Latency(
        ratio=ratio,
        low=ratio - width,
        high=ratio + width,
        milliseconds=milliseconds,
        baseline_spread=0.1,
        pairs=pairs,
        calls=3 * pairs,
        p95_ms=9.0,
        throughput=100.0,
        contended=contended,
    )


def test_the_ratio_is_that_of_the_weighted_sums_of_milliseconds():
    # The baseline takes 10 ms and 1 ms, the second one 30 times.
    shapes = {
        "prefill": ShapeLatency(latency=latency(0.5, 5.0), weight=1),
        "decode": ShapeLatency(latency=latency(2.0, 2.0), weight=30),
    }
    assert shares(shapes) == pytest.approx({"prefill": 0.25, "decode": 0.75})
    found = weighted_latency(shapes)
    assert found.milliseconds == pytest.approx(5 + 60)
    assert found.ratio == pytest.approx((5 + 60) / (10 + 30))
    assert found.low == found.ratio == found.high
    assert (found.pairs, found.calls) == (10, 60)
    assert math.isnan(found.p95_ms)
    assert math.isnan(found.throughput)


def test_independent_errors_add_up_as_squares():
    shapes = {
        "a": ShapeLatency(latency=latency(1.0, 10.0, width=0.06), weight=1),
        "b": ShapeLatency(latency=latency(1.0, 10.0, width=0.08), weight=1),
    }
    found = weighted_latency(shapes)
    assert found.high - found.ratio == pytest.approx(0.05)
    assert found.ratio - found.low == pytest.approx(0.05)


def test_one_shape_is_what_it_is_and_a_disturbance_says_where():
    only = make_latency(0.7)
    found = weighted_latency({"one": ShapeLatency(latency=only, weight=5)})
    assert (found.ratio, found.low, found.high) == pytest.approx((only.ratio, only.low, only.high))
    assert found.milliseconds == pytest.approx(5 * only.milliseconds)
    shapes = {
        "a": ShapeLatency(latency=latency(1.0, 1.0), weight=1),
        "b": ShapeLatency(latency=latency(1.0, 1.0, contended="the load was 9"), weight=1),
    }
    assert weighted_latency(shapes).contended == "b: the load was 9"
