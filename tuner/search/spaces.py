"""The search space of a run: found by name, file or device, and resolved on one program."""

from dataclasses import dataclass
from pathlib import Path

import jax

from search_spaces import Resolution, SearchSpace, preset_names
from tuner.program import Program, supports

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


def resolve_space(space: Space | None, program: Program) -> ResolvedSpace:
    """The choices of every layer of a program.

    Raises:
        SearchSpaceError: there is no such space, or it does not fit the program.
    """
    found = find_space(space)
    return ResolvedSpace(space=found, resolution=found.resolve(program.layers, supports))
