"""Effect: what one precision of one layer does to a program's outputs, found without compiling a candidate.

Plain values without any back end, so that store, search and reports can read them without JAX.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """How far the outputs on calibration examples move when one layer alone is changed."""

    # ||outputs - baseline outputs|| / ||baseline outputs||; infinite where something is not finite any more.
    error: float
    # Kullback-Leibler divergence from the baseline's softmax over the last axis, per position; None where the outputs are
    # no scores of at least two classes.
    kl: float | None
    examples: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Screening:
    """What screening found of one program on one device."""

    # Layer -> precision -> effect. A precision that holds the layer's own format has none: it changes nothing.
    effects: Mapping[str, Mapping[str, Effect]] = field(default_factory=lambda: MappingProxyType({}))
    # Why there are no (more) effects, None when there is no reason but the time.
    refusal: str | None = None
    # That were wanted and could not be had in time.
    missing: int = 0
    seconds: float = 0.0

    def find(self, layer: str, precision: str) -> Effect | None:
        """The effect of a precision, None where it is not known."""
        return self.effects.get(layer, {}).get(precision)

    @property
    def count(self) -> int:
        """How many effects are known."""
        return sum(map(len, self.effects.values()))


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """What is expected of a policy that was not measured; None where nothing is known."""

    latency: float | None = None  # ratio to the baseline
    drop: float | None = None  # of the metric
    memory: float | None = None  # bytes
    fidelity: float | None = None  # relative error of the outputs
