"""Program: the traced task as a flat list of steps, and the layers found in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.policy import ProgramSignature
from tuner.program.expression import Expression
from tuner.program.layer import Layer

# Where a step finds an operand: a slot number for what depends on the inputs, an expression for what does not.
Reference = int | Expression


@dataclass(frozen=True, eq=False, slots=True)
class Site:
    """One operation of a layer."""

    kind: str
    eqn: Any
    # Which operand is the weight, or None for a product of two activations.
    weight_operand: int | None
    weight: Expression | None
    # Equal for sites that hold the same weight: they make one layer.
    key: tuple[Any, ...]
    scope: Any
    executions: int
    reason: str | None


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """One equation to run."""

    eqn: Any
    scope: Any
    operands: tuple[Reference, ...]
    results: tuple[int | None, ...]  # slots, None for what is thrown away
    site: Site | None


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """What capture knows: steps, layers, and how parameters and inputs are laid out.

    Attributes:
        layers: every layer in program order, input layers first.
        sites: for each layer its operations; empty for an input layer.
        steps: the equations that depend on the inputs, call boundaries removed.
        outputs: where the results are found.
        leaf_paths: one path per parameter leaf, as in the layer names.
        notes: what was kept but could not be looked into, and callbacks, which disturb timing.
        fingerprint: hex SHA-256 of the equations; equal for the same function, shapes and dtypes.
    """

    layers: tuple[Layer, ...]
    sites: tuple[tuple[Site, ...], ...]
    steps: tuple[Step, ...]
    outputs: tuple[Reference, ...]
    input_slots: tuple[int, ...]
    # Input leaf -> position of its layer, for floating inputs.
    input_layers: tuple[int | None, ...]
    input_avals: tuple[Any, ...]
    input_tree: Any
    leaf_paths: tuple[str, ...]
    leaf_avals: tuple[Any, ...]
    parameter_tree: Any
    output_avals: tuple[Any, ...]
    output_tree: Any
    notes: tuple[str, ...]
    fingerprint: str
    signature: ProgramSignature

    def layer(self, name: str) -> Layer:
        """The layer of that name.

        Raises:
            KeyError: there is none.
        """
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    def layer_of_site(self) -> dict[int, str]:
        """Identity of a site -> name of its layer."""
        return {id(site): layer.name for layer, sites in zip(self.layers, self.sites, strict=True) for site in sites}


def last_uses(steps: Sequence[Step], outputs: Sequence[Reference]) -> list[tuple[int, ...]]:
    """For each step the slots that nothing reads after it."""
    kept = {reference for reference in outputs if isinstance(reference, int)}
    freed: list[tuple[int, ...]] = []
    for step in reversed(steps):
        here = {slot for slot in (*step.operands, *step.results) if isinstance(slot, int)} - kept
        kept |= here
        freed.append(tuple(here))
    return freed[::-1]
