"""Program: the traced task, and the layers found in it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tuner.policy import ProgramSignature
from tuner.program.fingerprint import fingerprint
from tuner.program.layer import Layer
from tuner.program.steps import Reference, Site, Step

_SHOWN = 8


@dataclass(frozen=True, eq=False)
class Program:
    """What capture knows: steps, layers, and how parameters and inputs are laid out.

    Attributes:
        layers: every layer in program order, input layers first.
        sites: for each layer its operations; empty for an input layer.
        steps: the equations that depend on the inputs, call boundaries removed.
        outputs: where the results are found.
        leaf_paths: one path per parameter leaf, as in the layer names.
        iterations: for each layer the iteration of a scan that it is, None for a layer of all iterations.
        split_loops: numbers of the bodies whose layers are listed by iteration.
        notes: what was kept but could not be looked into, and callbacks, which disturb timing.
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
    signature: ProgramSignature
    iterations: tuple[int | None, ...]
    split_loops: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        names = [layer.name for layer in self.layers]
        more = f", ... {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"Program({len(names)} layers: {', '.join(names[:_SHOWN])}{more})"

    @cached_property
    def fingerprint(self) -> str:
        """Hex SHA-256 of the equations; equal for the same function, shapes and dtypes."""
        listing = "by iteration" if self.signature.split_scans else ""
        return fingerprint(self.steps, self.input_avals, self.outputs, listing)

    def layer(self, name: str) -> Layer:
        """The layer of that name.

        Raises:
            KeyError: there is none.
        """
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)
