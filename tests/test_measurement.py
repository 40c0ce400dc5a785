import math
from dataclasses import replace

from tests.factories import make_latency
from tuner.measurement import FurtherMetric


def test_what_is_missing_in_both_is_no_difference():
    latency = make_latency(0.5)
    again = replace(latency, p95_ms=float("nan"), throughput=float("nan"))
    assert math.isnan(latency.p95_ms)
    assert latency == again
    assert hash(latency) == hash(again)


def test_what_is_missing_in_one_alone_is_one():
    metric = FurtherMetric(value=1.0, drop=0.0, drop_low=0.0, drop_high=0.0, method="mcnemar", allowed=math.nan)
    assert metric != replace(metric, allowed=0.1)
    assert metric != make_latency(0.5)
