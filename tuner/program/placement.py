"""Placement: where a program wants a weight to lie when it is read, by `with_sharding_constraint` or `reshard`.

A weight is packed where its parameter lies and brought there on every call, as the parameter was: what a user spreads over
devices for its size, and gathers layer by layer, stays spread.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner import _jax_compat as compat
from tuner.program.expression import PLACEMENT, Expression, Result, computed

Axes = tuple[int, ...]
# What may stand between a placement and the operation: each axis stays one axis.
_KEEPING_AXES = frozenset({"transpose", "convert_element_type", "copy", "copy_p"})


@dataclass(frozen=True, eq=False, slots=True)
class Placement:
    """The equation that places a weight, and for each axis of the weight the axis there."""

    eqn: Any
    axes: Axes


def unplaced(expression: Expression) -> tuple[Expression, Placement | None]:
    """A weight as it is before it is placed, and where it is placed; the weight itself where nothing places it."""
    axes: Axes = tuple(range(expression.aval.ndim))
    placement: Placement | None = None
    between: list[Result] = []
    current = expression
    while isinstance(current, Result):
        name = current.computation.eqn.primitive.name
        if name in PLACEMENT:
            placement = placement or Placement(current.computation.eqn, axes)
        elif name in _KEEPING_AXES:
            between.append(current)
            if name == "transpose":
                axes = tuple(current.computation.eqn.params["permutation"][axis] for axis in axes)
        else:
            break
        (current,) = current.computation.operands
    if placement is None:
        return expression, None
    for step in reversed(between):
        old = step.computation
        (current,) = computed(old.eqn, old.scope, (current,), old.body)
    return current, placement


def place(placement: Placement, packed: Mapping[str, Any], order: Axes) -> dict[str, Any]:
    """A packed weight where the program wants it.

    Args:
        placement: where that is.
        packed: the weight, and scales with the axes that share one of length one.
        order: for each of its axes the axis of the weight as the operation reads it.
    """
    axes = [placement.axes[axis] for axis in order]
    return {
        name: compat.place_like(placement.eqn, part, axes) if part.ndim == len(axes) else part
        for name, part in packed.items()
    }
