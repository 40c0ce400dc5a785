"""Scales: the numbers that calibration found for a policy's layers, and on which examples. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.policy import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerScales:
    """The calibrated numbers of one layer; a field is empty where its precision needs none.

    A layer whose weights are stacked along the iterations of a scan has its numbers once per iteration, or once for all.
    """

    # Of the activations: a number is (q - zero point) * scale.
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    # Added to the result of each output channel, in the order of the weight's axes.
    correction: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibratedOn:
    """The examples that the numbers come from."""

    examples: int
    # Where they were taken: a slice of the "search" split, or "given" by the user.
    split: str
    # Hex digest of their values.
    fingerprint: str

    def __str__(self) -> str:
        source = "of the search split" if self.split == "search" else "given for it"
        return f"{self.examples} examples {source} ({self.fingerprint[:12]})"


# Layer -> precision as text -> its numbers.
Numbers = Mapping[str, Mapping[str, LayerScales]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """The numbers of every layer in every precision that was asked for."""

    on: CalibratedOn | None = None
    numbers: Numbers = field(default_factory=lambda: MappingProxyType({}))
    # Layer -> why there are none for it.
    problems: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def has(self, layer: str, precision: str) -> bool:
        """True when there are numbers for the layer in this precision."""
        return precision in self.numbers.get(layer, {})

    def knows(self, layer: str, precision: str) -> bool:
        """True when the layer was looked at in this precision, with success or without."""
        return layer in self.problems or self.has(layer, precision)

    def complete(self, policy: "Policy") -> "Policy":
        """The policy with the numbers that its layers need, as far as they are known."""
        found = [
            (name, self.numbers[name][str(assignment.precision)])
            for name, assignment in policy.assignments
            if self.has(name, str(assignment.precision))
        ]
        return replace(policy, scales=tuple(found), calibrated_on=self.on) if found else policy

    def merged(self, other: "Calibration") -> "Calibration":
        """With what another calibration on the same examples found."""
        layers = {*self.numbers, *other.numbers}
        numbers = {name: {**self.numbers.get(name, {}), **other.numbers.get(name, {})} for name in layers}
        return Calibration(on=other.on or self.on, numbers=numbers, problems={**self.problems, **other.problems})
