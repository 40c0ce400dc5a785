"""Leave one out: what each layer of a policy costs and gains, from policies that were measured and differ in it alone."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from search_spaces import ORIGINAL, Precision

if TYPE_CHECKING:
    from tuner.front import Point


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerEffect:
    """One layer of a policy put back to original, everything else as it is; differences to the policy."""

    layer: str
    precision: Precision  # what it runs in now
    ratio: float  # latency ratio gained or lost by putting it back; positive is slower
    ratio_margin: float  # half the width of its 95 % interval, that of two independent measurements
    drop: float  # change of the quality drop; negative is better
    drop_margin: float  # at most: both policies are scored on the same examples, which is not used here
    memory_bytes: int
    trial: int  # the measured point that shows it


def leave_one_out(point: "Point", points: Iterable["Point"]) -> list[LayerEffect]:
    """The effect of each layer for which the policy without it was measured, largest gain of quality first."""
    if point.policy is None:
        return []
    ours = point.policy.precisions
    found: dict[str, LayerEffect] = {}
    for other in points:
        if other.policy is None or other.policy.names != point.policy.names:
            continue
        different = [name for name, precision in other.policy.precisions.items() if precision != ours[name]]
        if len(different) == 1 and other.policy.precisions[different[0]].is_original:
            found[different[0]] = _effect(different[0], point, other)
    return sorted(found.values(), key=lambda effect: (effect.drop, effect.ratio))


def unmeasured_layers(point: "Point", effects: Iterable[LayerEffect]) -> list[str]:
    """The layers that are not original and whose effect nothing measured shows."""
    known = {effect.layer for effect in effects}
    assigned = point.policy.precisions if point.policy is not None else {}
    return [name for name, precision in assigned.items() if not precision.is_original and name not in known]


def layer_losses(point: "Point", points: Iterable["Point"]) -> list[tuple[str, Precision, float]]:
    """(layer, precision, loss) of what costs a policy its quality, largest first, as far as pairs of policies show it.

    A pair are two measured policies that differ in that layer alone, which one of them leaves original; whatever the
    other layers run in. The loss is the median over all pairs.
    """
    if point.policy is None:
        return []
    drops = {_key(p.policy.precisions): p.measurement.quality.drop for p in points if p.policy is not None}
    wanted = {name: precision for name, precision in point.policy.precisions.items() if not precision.is_original}
    losses: dict[str, list[float]] = {}
    for key, drop in drops.items():
        precisions = dict(key)
        for name, precision in wanted.items():
            without = _key({**precisions, name: ORIGINAL})
            if precisions.get(name) == precision and without in drops:
                losses.setdefault(name, []).append(drop - drops[without])
    found = [(name, wanted[name], median(values)) for name, values in losses.items()]
    return sorted((entry for entry in found if entry[2] > 0), key=lambda entry: -entry[2])


def _key(precisions: Mapping[str, Precision]) -> tuple[tuple[str, Precision], ...]:
    return tuple(precisions.items())


def _margin(*widths: float) -> float:
    """Half the width of the interval of a difference, from those of what is subtracted."""
    return math.hypot(*widths) / 2


def _effect(layer: str, point: "Point", other: "Point") -> LayerEffect:
    now, without = point.measurement, other.measurement
    return LayerEffect(
        layer=layer,
        precision=point.policy.precisions[layer],  # type: ignore[union-attr]  # its caller has looked
        ratio=without.latency.ratio - now.latency.ratio,
        ratio_margin=_margin(*(m.latency.high - m.latency.low for m in (now, without))),
        drop=without.quality.drop - now.quality.drop,
        drop_margin=_margin(*(m.quality.drop_high - m.quality.drop_low for m in (now, without))),
        memory_bytes=without.memory.total_bytes - now.memory.total_bytes,
        trial=other.trial,
    )
