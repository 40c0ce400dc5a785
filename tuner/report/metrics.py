"""What tables and pages say about the metrics of a task besides the one that quality is in."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.measurement import FurtherMetric
from tuner.report import numbers
from tuner.report.json_text import finite
from tuner.report.table import Column

if TYPE_CHECKING:
    from tuner.front import Point


def metric_names(points: Sequence["Point"]) -> list[str]:
    """The further metrics of any of the points, in their order."""
    return list(dict.fromkeys(name for point in points for name in point.measurement.metrics))


def metric_columns(points: Sequence["Point"]) -> tuple[Column, ...]:
    """One column per further metric."""
    return tuple(Column(f"{name} drop", spare=3) for name in metric_names(points))


def metric_cells(point: "Point", names: Sequence[str]) -> tuple[str, ...]:
    """The drop in each of these metrics, with what was allowed where it is more."""
    metrics = point.measurement.metrics
    return tuple(drop_cell(metrics[name]) if name in metrics else numbers.MISSING for name in names)


def drop_cell(metric: FurtherMetric) -> str:
    """`+0.0011 (-0.0010..+0.0032)`, and `, allowed 0.0005` where that is less than the drop."""
    exact = metric.drop == metric.drop_low == metric.drop_high
    interval = numbers.signed_interval(metric.drop, metric.drop_low, metric.drop_high)
    drop = numbers.signed(metric.drop) if exact else interval
    return drop if metric.holds else f"{drop}, allowed {metric.allowed:.4g}"


def metric_facts(metrics: Mapping[str, FurtherMetric]) -> list[tuple[str, str]]:
    """Name and everything known of each further metric."""
    return [
        (name, f"{numbers.quality(metric.value)}, {_limited(metric)}, {metric.method}")
        for name, metric in metrics.items()
    ]


def _limited(metric: FurtherMetric) -> str:
    if math.isnan(metric.allowed) or not metric.holds:
        return f"drop {drop_cell(metric)}"
    return f"drop {drop_cell(metric)} of the {metric.allowed:.4g} allowed"


def explain_constraints(points: Sequence["Point"]) -> str | None:
    """What every point of the front keeps; None without constraints."""
    limits = {
        name: metric.allowed
        for point in points
        for name, metric in point.measurement.metrics.items()
        if not math.isnan(metric.allowed)
    }
    if not limits:
        return None
    allowed = ", ".join(f"{name} drops by no more than {limit:.4g}" for name, limit in limits.items())
    return f"Constraints that every point of the front keeps: {allowed}."


def metrics_report(metrics: Mapping[str, FurtherMetric]) -> dict[str, Any]:
    """The JSON form: by name, numbers that are not finite as null."""
    return {
        name: {
            "value": finite(metric.value),
            "drop": finite(metric.drop),
            "drop_low": finite(metric.drop_low),
            "drop_high": finite(metric.drop_high),
            "allowed": finite(metric.allowed),
            "holds": metric.holds,
        }
        for name, metric in metrics.items()
    }
