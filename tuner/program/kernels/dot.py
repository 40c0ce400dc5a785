"""Matrix products in one precision: any contracting and batch dimensions, the weight on either side or on none."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.operands import Packed, hold, meet, own_precision, scale_back
from tuner.program.steps import Site

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The axes of both operands of a product, by what they do."""

    contracting: tuple[Axes, Axes]
    batch: tuple[Axes, Axes]
    free: tuple[Axes, Axes]

    @classmethod
    def of(cls, eqn: Any) -> "Dimensions":
        """The axes of a `dot_general` equation."""
        contracting, batch = (tuple(map(tuple, pair)) for pair in eqn.params["dimension_numbers"])
        taken = [{*contracting[side], *batch[side]} for side in (0, 1)]
        left, right = (
            tuple(axis for axis in range(eqn.invars[side].aval.ndim) if axis not in taken[side]) for side in (0, 1)
        )
        return cls((contracting[0], contracting[1]), (batch[0], batch[1]), (left, right))

    def on_result(self, scale: Any, side: int) -> Any:
        """A scale of one operand (contracting axes of length one) laid out to multiply the result."""
        ordered = jnp.transpose(scale, (*self.batch[side], *self.free[side], *self.contracting[side]))
        batch_end = len(self.batch[side])
        own_end = batch_end + len(self.free[side])
        batch, own = ordered.shape[:batch_end], ordered.shape[batch_end:own_end]
        other = (1,) * len(self.free[1 - side])
        return jnp.reshape(ordered, (*batch, *own, *other) if side == 0 else (*batch, *other, *own))


def shared_axes(site: Site) -> Axes:
    """The axes of the weight that share one scale: those that are summed over."""
    assert site.weight_operand is not None  # a product of two activations has no weight
    return Dimensions.of(site.eqn).contracting[site.weight_operand]


def run(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    """The product, in the accumulator's dtype or float32.

    Args:
        site: the operation.
        precision: its formats; for a product of two activations the first is the left operand's.
        packed: the weight from `pack`, or None for a product of two activations.
        operands: left and right operand; the weight's place is not read.
    """
    dimensions = Dimensions.of(site.eqn)

    def held(side: int) -> Packed:
        if packed is not None and side == site.weight_operand:
            return packed
        format = precision.weights if packed is None and side == 0 else precision.activations
        return hold(operands[side], format, dimensions.contracting[side])

    both = held(0), held(1)
    left, right = meet(both, precision)
    result = jax.lax.dot_general(
        left,
        right,
        site.eqn.params["dimension_numbers"],
        precision=own_precision(site.eqn, (left, right)),
        preferred_element_type=jnp.dtype(precision.accumulate.dtype),
        out_sharding=site.eqn.params.get("out_sharding"),
    )
    return scale_back(result, both, dimensions.on_result)
