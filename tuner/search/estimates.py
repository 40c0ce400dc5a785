"""Estimates: a study's objectives as sums over its layers, from the timed kernels, the screened effects and the sizes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from search_spaces import ORIGINAL, Format, Precision
from tuner.effect import Screening
from tuner.front import LATENCY, MEMORY, QUALITY
from tuner.measure import KernelTable
from tuner.measurement import Measurement
from tuner.policy import PLAIN
from tuner.program import Layer
from tuner.search.choices import ChoiceSpace
from tuner.search.predict import LOG_ROOT, ROOT, Estimate

_MANTISSA = {"bf16": 7, "f16": 10, "tf32": 10, "f8_e4m3fn": 3, "f8_e5m2": 2, "f32": 23}
# A kernel that cannot run alone, or was far too slow to be timed.
_CANNOT_RUN = 3.0
# What a relative error of one is taken to cost, in allowed drops, before anything is measured.
_DROPS_PER_ERROR = 5.0
_HARDLY_SLOWER, _SLOWER_BUT_SMALL = 1.02, 1.25
# The square of an error that is not finite, and the smallest: effects below it are rounding.
_INFINITE, _ROUNDING = 1e6, 1e-14

Costs = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimates:
    """What is expected of a policy, by objective; quality is the metric's own value."""

    latency: Estimate | None  # None where no layer was timed
    quality: Estimate
    memory: Estimate
    fidelity: Estimate | None  # the logarithm of the relative error; None where nothing was screened

    def of(self, objectives: Sequence[str]) -> list[Estimate | None]:
        """One per objective."""
        by_name: dict[str, Estimate | None] = {LATENCY: self.latency, QUALITY: self.quality, MEMORY: self.memory}
        return [by_name[name] for name in objectives]


def make_estimates(
    layers: Sequence[Layer],
    space: ChoiceSpace,
    table: KernelTable,
    screening: Screening,
    baseline: Measurement,
    *,
    allowed_drop: float,
    larger_is_better: bool,
) -> Estimates:
    """The estimates of one study.

    Args:
        layers: of the program.
        space: what each may take; layers of a group count as one.
        table: kernel times.
        screening: effects of single layers.
        baseline: the program as written.
        allowed_drop: in the metric's own unit.
        larger_is_better: the metric's direction.
    """
    squares = _squares(layers, space, screening)
    slope = _DROPS_PER_ERROR * (allowed_drop or 0.01 * abs(baseline.quality.value) or 0.01)
    return Estimates(
        latency=_latency(space, table, baseline),
        quality=Estimate(
            base=baseline.quality.value, costs=squares, link=ROOT, slope=-slope if larger_is_better else slope
        ),
        memory=_memory(layers, space, baseline),
        fidelity=Estimate(costs=squares, link=LOG_ROOT) if screening.count else None,
    )


def reference_of(
    objectives: Sequence[str], baseline: Measurement, allowed_drop: float, larger_is_better: bool
) -> list[float]:
    """Per objective the value from which on a policy is worthless, in what Optuna is told.

    With memory among the objectives a policy may be a little slower than the program as written.
    """
    quality, sign = baseline.quality.value, -1.0 if larger_is_better else 1.0
    room = 1.05 * allowed_drop + 1e-3 * (abs(quality) or 1.0)
    by_name = {
        LATENCY: _SLOWER_BUT_SMALL if MEMORY in objectives else _HARDLY_SLOWER,
        QUALITY: quality + sign * room,
        MEMORY: _HARDLY_SLOWER * baseline.memory.total_bytes,
    }
    return [by_name[name] for name in objectives]


def _latency(space: ChoiceSpace, table: KernelTable, baseline: Measurement) -> Estimate | None:
    """The ratio: what each layer takes of the baseline's time, and all that is no layer."""
    total = baseline.latency.milliseconds / 1000
    written = {name: _seconds(table, name, ORIGINAL) for name in space.choices}
    if not any(written.values()):
        return None
    # Timed alone, operations take a little longer than inside the program: all of it is no more than all.
    scale = 1.0 / max(total, sum(written.values()))
    costs = _by_leader(space, lambda name, precision: scale * _seconds(table, name, precision))
    return Estimate(base=1.0 - scale * sum(written[name] for name in _decided(space)), costs=costs)


def _seconds(table: KernelTable, layer: str, precision: Precision) -> float:
    kernel = table.best(layer, precision)
    seconds = table.seconds(layer, precision, kernel)
    if math.isfinite(seconds):
        return seconds
    written = table.seconds(layer, ORIGINAL, PLAIN)
    if not math.isfinite(written):
        return 0.0
    parts = table.signatures.get(layer, ())
    tried = all(f"{signature} {precision} {kernel}" in table.times for signature, _ in parts)
    return written * (_CANNOT_RUN if tried else 1.0)


def _squares(layers: Sequence[Layer], space: ChoiceSpace, screening: Screening) -> Costs:
    """The squared error of each layer and choice.

    What was not screened costs what the choice costs other layers, and where none was, what its formats do in general.
    """
    found: dict[str, list[float]] = {}
    for effects in screening.effects.values():
        for text, effect in effects.items():
            found.setdefault(text, []).append(_square(effect.error))
    usual = {text: sorted(values)[len(values) // 2] for text, values in found.items()}
    dtypes = {layer.name: layer.dtype for layer in layers}

    def cost(name: str, precision: Precision) -> float:
        effect = screening.find(name, str(precision))
        if effect is not None:
            return _square(effect.error)
        if precision.is_original or (precision.output is None and _formats(precision) == {dtypes[name]}):
            return 0.0
        return usual.get(str(precision), _nominal(precision))

    return _by_leader(space, cost)


def _formats(precision: Precision) -> set[str]:
    return {precision.weights.dtype, precision.activations.dtype, precision.accumulate.dtype}


def _nominal(precision: Precision) -> float:
    """The squared error that rounding to the coarser operand causes, roughly."""
    return max(_rounding(format) ** 2 for format in (precision.weights, precision.activations))


def _rounding(format: Format) -> float:
    """The relative error of numbers in a format, half of the largest."""
    if format.kind == "int":
        return 0.5 / float(2 ** (format.bits - 1) - 1)
    mantissa = _MANTISSA.get(format.name)
    return 0.0 if mantissa is None else 2.0 ** -(mantissa + 2)


def _square(error: float) -> float:
    return max(min(error**2, _INFINITE), _ROUNDING) if math.isfinite(error) else _INFINITE


def _memory(layers: Sequence[Layer], space: ChoiceSpace, baseline: Measurement) -> Estimate:
    """Bytes: the weights in their formats, and all that is no weight."""
    params = {layer.name: layer.params for layer in layers}
    own_bits = {layer.name: 8 * _itemsize(layer.dtype) for layer in layers}

    def size(name: str, precision: Precision) -> float:
        bits = own_bits[name] if precision.is_original else precision.weights.bits
        return params[name] * bits / 8

    total = float(baseline.memory.total_bytes)
    return Estimate(base=total - sum(size(name, ORIGINAL) for name in _decided(space)), costs=_by_leader(space, size))


def _itemsize(dtype: str) -> int:
    import jax.numpy as jnp

    return int(jnp.dtype(dtype).itemsize)


def _decided(space: ChoiceSpace) -> list[str]:
    """The layers that a sampler decides on, those of their groups included."""
    return [name for name in space.choices if space.leader[name] in space.free]


def _by_leader(space: ChoiceSpace, cost: Callable[[str, Precision], float]) -> dict[str, dict[str, float]]:
    """Costs of every layer added to those of the layer that decides for it."""
    found: dict[str, dict[str, float]] = {name: {} for name in space.choices}
    for name, taken in space.choices.items():
        leader = space.leader[name]
        for precision in taken:
            text = str(precision)
            found[leader][text] = found[leader].get(text, 0.0) + cost(name, precision)
    return found
