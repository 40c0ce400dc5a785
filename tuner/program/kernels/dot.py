"""Matrix products in one precision: any contracting and batch dimensions, the weight on either side or on none."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.operands import Packed, hold, meet, own_precision, scale_back
from tuner.program.kernels.registry import PLAIN, Kernel, register
from tuner.program.layer import DOT, MATMUL
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


def weight_side(site: Site) -> int:
    """0 when the weight is the left operand, 1 when it is the right one."""
    assert site.weight_operand is not None  # a product of two activations has no weight
    return site.weight_operand


def shared_axes(site: Site) -> Axes:
    """The axes of the weight that share one scale: those that are summed over."""
    return Dimensions.of(site.eqn).contracting[weight_side(site)]


def activation_axes(site: Site) -> dict[int, Axes]:
    """Operands that are activations -> the axes of them that share one scale: those that are summed over."""
    contracting = Dimensions.of(site.eqn).contracting
    return {side: contracting[side] for side in (0, 1) if side != site.weight_operand}


def hold_both(
    site: Site, precision: Precision, packed: Packed | None, operands: list[Any], dimensions: Dimensions
) -> tuple[Packed, Packed]:
    """Left and right operand in their formats; for a product of two activations the first format is the left one's."""

    def held(side: int) -> Packed:
        if packed is not None and side == site.weight_operand:
            return packed
        format = precision.weights if packed is None and side == 0 else precision.activations
        return hold(operands[side], format, dimensions.contracting[side])

    return held(0), held(1)


def multiply(site: Site, precision: Precision, both: tuple[Packed, Packed], dimensions: Dimensions) -> Any:
    """The product of two held operands, scaled back."""
    left, right = meet(both, precision)
    result = jax.lax.dot_general(
        left,
        right,
        dimensions.numbers,
        precision=own_precision(site.eqn, (left, right)),
        preferred_element_type=jnp.dtype(precision.accumulate.dtype),
        out_sharding=site.eqn.params.get("out_sharding"),
    )
    return scale_back(result, both, dimensions.on_result)


def _run(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    dimensions = Dimensions.of(site.eqn)
    return multiply(site, precision, hold_both(site, precision, packed, operands, dimensions), dimensions)


register(
    Kernel(
        name=PLAIN,
        primitive="dot_general",
        kinds=(MATMUL, DOT),
        applies=lambda site, precision: True,
        run=_run,
        remark="the product as written",
    )
)
