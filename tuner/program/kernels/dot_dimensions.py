"""The axes of a matrix product."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

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

    @property
    def numbers(self) -> tuple[tuple[Axes, Axes], tuple[Axes, Axes]]:
        """As `lax.dot_general` takes them."""
        return self.contracting, self.batch

    def on_result(self, scale: Any, side: int) -> Any:
        """A scale of one operand (contracting axes of length one) laid out to multiply the result."""
        order = (*self.batch[side], *self.free[side], *self.contracting[side])
        sizes = tuple(scale.shape[axis] for axis in order)
        long = [axis for axis in order if scale.shape[axis] != 1]
        if long != sorted(long):  # otherwise the reshape below does it alone
            scale = jnp.transpose(scale, order)
        batch_end = len(self.batch[side])
        own_end = batch_end + len(self.free[side])
        batch, own = sizes[:batch_end], sizes[batch_end:own_end]
        other = (1,) * len(self.free[1 - side])
        return jnp.reshape(scale, (*batch, *own, *other) if side == 0 else (*batch, *other, *own))
