"""The search space of a run: found by name, file or device, and resolved on one program."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import jax

from search_spaces import Precision, Resolution, SearchSpace, preset_names
from tuner.diagnosis import REFUSED, plain_text
from tuner.program import Program, supports
from tuner.program.kernels import needs_numbers
from tuner.program.layer import Layer

Refused = Mapping[str, Mapping[str, str]]
Space = SearchSpace | str | Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedSpace:
    """A search space and what it means for one program."""

    space: SearchSpace
    resolution: Resolution


def find_space(space: Space | None) -> SearchSpace:
    """A space by name, file or value; None is the preset for the device that JAX uses."""
    if isinstance(space, SearchSpace):
        return space
    if space is not None:
        return SearchSpace.load(space)
    platform = jax.default_backend()
    return SearchSpace.load(platform if platform in preset_names() else "floats")


def resolve_space(
    space: Space | None,
    program: Program,
    refused: Refused = MappingProxyType({}),
    uncalibrated: Mapping[str, str] = MappingProxyType({}),
) -> ResolvedSpace:
    """The choices of every layer of a program.

    Args:
        space: by name, file or value; None is the preset for the device.
        program: whose layers.
        refused: layer kind -> precision -> why this device cannot run it.
        uncalibrated: layer name -> why it has no calibrated numbers.

    Raises:
        SearchSpaceError: there is no such space, or it does not fit the program.
    """

    def supported(layer: Layer, precision: Precision) -> str | None:
        reason = refused.get(layer.kind, {}).get(plain_text(precision))
        if needs_numbers(layer.kind, precision) and layer.name in uncalibrated:
            return uncalibrated[layer.name]
        return supports(layer, precision) or (f"{REFUSED}: {reason}" if reason else None)

    found = find_space(space)
    return ResolvedSpace(space=found, resolution=found.resolve(program.layers, supported))
