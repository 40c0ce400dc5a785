"""What tables and pages say where a task is timed with several kinds of call, whose weighted sum its latency is."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.measurement import ShapeLatency
from tuner.report import numbers
from tuner.report.json_text import finite
from tuner.report.points import latency_text
from tuner.report.table import Column
from tuner.shapes import weights_text

if TYPE_CHECKING:
    from tuner.front import Point


def shape_names(points: Sequence["Point"]) -> list[str]:
    """The kinds of call of any of the points, in their order."""
    return list(dict.fromkeys(name for point in points for name in point.measurement.shapes))


def shape_columns(points: Sequence["Point"]) -> tuple[Column, ...]:
    """One column per kind of call."""
    return tuple(Column(f"{name} (95 %)", spare=2) for name in shape_names(points))


def shape_cells(point: "Point", names: Sequence[str]) -> tuple[str, ...]:
    """The latency at each of these kinds of call."""
    shapes = point.measurement.shapes
    return tuple(latency_text(shapes[name].latency) if name in shapes else numbers.MISSING for name in names)


def shape_facts(shapes: Mapping[str, ShapeLatency]) -> list[tuple[str, str]]:
    """Name, and latency, milliseconds and weight, of each kind of call."""
    return [
        (
            f"  {name}",
            f"{latency_text(shape.latency)}, {numbers.milliseconds(shape.latency.milliseconds)} ms, counted "
            f"{times_text(shape.weight)}{f'; contended: {shape.latency.contended}' if shape.latency.contended else ''}",
        )
        for name, shape in shapes.items()
    ]


def times_text(weight: float) -> str:
    """`once`, `64 times`."""
    return "once" if weight == 1 else f"{weight:g} times"


def explain_shapes(points: Sequence["Point"]) -> list[str]:
    """What the latency of the points is the sum of; nothing where there is one kind of call."""
    shapes = next((point.measurement.shapes for point in points if point.measurement.shapes), {})
    return [f"Latency is that of the weighted sum {weights_text(shapes)}."] if shapes else []


def shapes_report(shapes: Mapping[str, ShapeLatency]) -> dict[str, Any]:
    """The JSON form: by name, numbers that are not finite as null."""
    return {
        name: {
            "weight": shape.weight,
            "latency_ratio": finite(shape.latency.ratio),
            "latency_low": finite(shape.latency.low),
            "latency_high": finite(shape.latency.high),
            "latency_ms": finite(shape.latency.milliseconds),
            "latency_p95_ms": finite(shape.latency.p95_ms),
            "latency_p99_ms": finite(shape.latency.p99_ms),
            "throughput": finite(shape.latency.throughput),
            "contended": shape.latency.contended or None,
        }
        for name, shape in shapes.items()
    }
