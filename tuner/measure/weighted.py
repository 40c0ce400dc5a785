"""Weighted: one latency of several kinds of call, which is that of their weighted sum."""

import math
from collections.abc import Mapping

from tuner.measurement import Latency, ShapeLatency


def shares(shapes: Mapping[str, ShapeLatency]) -> dict[str, float]:
    """What each kind of call has of the baseline's weighted sum of milliseconds; together 1."""
    parts = {name: shape.weight * _reference_ms(shape.latency) for name, shape in shapes.items()}
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}


def weighted_latency(shapes: Mapping[str, ShapeLatency]) -> Latency:
    """The weighted sum of these latencies, as a ratio to that of the baseline's.

    Each kind of call was timed on its own, so that the errors are independent and their squares add up. A sum has no
    slow calls of its own, and no examples per second: those are missing.
    """
    latencies = {name: shape.latency for name, shape in shapes.items()}
    parts = shares(shapes)
    ratio = sum(parts[name] * latency.ratio for name, latency in latencies.items())
    below = math.hypot(*(parts[name] * (latency.ratio - latency.low) for name, latency in latencies.items()))
    above = math.hypot(*(parts[name] * (latency.high - latency.ratio) for name, latency in latencies.items()))
    contended = [f"{name}: {latency.contended}" for name, latency in latencies.items() if latency.contended]
    return Latency(
        ratio=ratio,
        low=ratio - below,
        high=ratio + above,
        milliseconds=sum(shape.weight * shape.latency.milliseconds for shape in shapes.values()),
        baseline_spread=sum(parts[name] * latency.baseline_spread for name, latency in latencies.items()),
        pairs=min(latency.pairs for latency in latencies.values()),
        calls=sum(latency.calls for latency in latencies.values()),
        baseline=next(iter(latencies.values())).baseline,
        contended="; ".join(contended),
    )


def _reference_ms(latency: Latency) -> float:
    """Milliseconds of the baseline that a ratio refers to."""
    return latency.milliseconds / latency.ratio
