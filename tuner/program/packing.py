"""Packing: which operations of a layer read one packed weight, whose layout it has, and how the others turn it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.policy import Assignment
from tuner.program import kernels
from tuner.program.expression import slices_in, untransposed, weight_key
from tuner.program.layer import EMBEDDING
from tuner.program.sites import site_flops
from tuner.program.steps import Site

Axes = tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Packing:
    """One packed weight and the operations that read it.

    Attributes:
        name: its name among the packed weights.
        owner: the operation that it is laid out for.
        turns: identity of each operation that reads it -> the permutation that brings it into the layout of that
            operation's kernel, None where it is in that layout already.
    """

    name: str
    owner: Site
    turns: Mapping[int, Axes | None]


def packings(
    layer: str, sites: Sequence[Site], assignment: Assignment, around: Mapping[int, frozenset[int]]
) -> list[Packing]:
    """The packed weights of a layer, each with the operations that read it.

    Operations share one where they read the same parameter values, transposed or not, and have the scales along the
    same axes of them. It is laid out for a look-up where there is one, since a look-up cannot transpose a whole table
    on every call, else for the product with the most work: a product reads a transposed weight at no cost.

    Args:
        layer: the layer's name.
        sites: its operations.
        assignment: what they run in.
        around: identity of an operation -> numbers of the bodies that it stands in.
    """
    groups: list[tuple[tuple[Any, ...], list[Site]]] = []
    for site in sites:
        if site.weight is None:
            continue
        key = _sharing_key(site, assignment)
        fitting = (
            readers for other, readers in groups if other == key and all(_can_share(site, r, around) for r in readers)
        )
        readers = next(fitting, None)
        if readers is None:
            groups.append((key, [site]))
        else:
            readers.append(site)
    return [
        _packing(layer if number == 0 else f"{layer}#{number}", readers, assignment)
        for number, (_, readers) in enumerate(groups)
    ]


def _can_share(site: Site, other: Site, around: Mapping[int, frozenset[int]]) -> bool:
    """False where one stands inside a loop that goes through the weight for the other: there it is cut already."""
    mine, theirs = (_loops(one) for one in (site, other))
    return not ((mine - theirs) & around[id(other)] or (theirs - mine) & around[id(site)])


def _loops(site: Site) -> frozenset[int]:
    """The loops whose iterations read the weight slice by slice."""
    assert site.weight is not None  # only weights are packed
    return frozenset(piece.loop for piece in slices_in(site.weight))


def _sharing_key(site: Site, assignment: Assignment) -> tuple[Any, ...]:
    """Equal for operations that can read the same packed weight."""
    assert site.weight is not None  # only weights are packed
    base, axes = untransposed(site.weight)
    along = None
    if assignment.precision.weights.is_scaled:
        own = kernels.weight_axes(site)
        along = frozenset(axes[axis] for axis in own.shared), None if own.main is None else axes[own.main]
    iterations = None if site.rows is None else (site.rows.start, site.rows.stop)
    return weight_key(base, exact=True), along, iterations


def _packing(name: str, readers: Sequence[Site], assignment: Assignment) -> Packing:
    owner = min(readers, key=lambda site: (site.kind != EMBEDDING, -site_flops(site) * site.executions))
    stored = _stored_axes(owner, assignment)
    turns: dict[int, Axes | None] = {}
    for site in readers:
        wanted = _stored_axes(site, assignment)
        turns[id(site)] = None if wanted == stored else tuple(stored.index(axis) for axis in wanted)
    return Packing(name, owner, turns)


def _stored_axes(site: Site, assignment: Assignment) -> Axes:
    """The axes of the untransposed weight, in the order in which the operation's kernel wants them."""
    assert site.weight is not None  # only weights are packed
    _, axes = untransposed(site.weight)
    return tuple(axes[axis] for axis in kernels.kernel_of(site, assignment).order(site))
