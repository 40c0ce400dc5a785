"""Matrix products in one precision: any contracting and batch dimensions, the weight on either side or on none."""

from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.dot_dimensions import Axes, Dimensions
from tuner.program.kernels.dot_groups import product_of_groups
from tuner.program.kernels.operands import Packed, hold_activations, meet, own_precision, scale_back
from tuner.program.kernels.registry import PLAIN, Kernel, register
from tuner.program.kernels.stored import WeightAxes
from tuner.program.layer import DOT, MATMUL
from tuner.program.steps import Site


def weight_side(site: Site) -> int:
    """0 when the weight is the left operand, 1 when it is the right one."""
    assert site.weight_operand is not None  # a product of two activations has no weight
    return site.weight_operand


def weight_axes(site: Site) -> WeightAxes:
    """The axes of the weight: those that are summed over share one scale."""
    side = weight_side(site)
    return WeightAxes.of(site.eqn.invars[side].aval.shape, Dimensions.of(site.eqn).contracting[side])


def activation_axes(site: Site) -> dict[int, Axes]:
    """Operands that are activations -> the axes of them that share one scale: those that are summed over."""
    contracting = Dimensions.of(site.eqn).contracting
    return {side: contracting[side] for side in (0, 1) if side != site.weight_operand}


def mean_by_channel(site: Site, result: Any) -> Any:
    """The mean of a result over what is no axis of the weight, in the axes of the weight, those summed over of length one."""
    dimensions, side = Dimensions.of(site.eqn), weight_side(site)
    batch, own, others = len(dimensions.batch[0]), len(dimensions.free[side]), len(dimensions.free[1 - side])
    start = batch + (own if side == 0 else 0)
    mean = jnp.mean(result, axis=tuple(range(start, start + others)))
    order = (*dimensions.batch[side], *dimensions.free[side], *dimensions.contracting[side])
    in_order = jnp.reshape(mean, (*mean.shape, *(1 for _ in dimensions.contracting[side])))
    return jnp.transpose(in_order, tuple(order.index(axis) for axis in range(len(order))))


def hold_both(
    site: Site, precision: Precision, packed: Packed | None, operands: list[Any], dimensions: Dimensions
) -> tuple[Packed, Packed]:
    """Left and right operand in their formats; for a product of two activations the first format is the left one's."""

    def held(side: int) -> Packed:
        if packed is not None and side == site.weight_operand:
            return packed
        left_of_two = packed is None and side == 0
        return hold_activations(
            operands[side], precision, dimensions.contracting[side], packed, left_of_two=left_of_two
        )

    return held(0), held(1)


def multiply(site: Site, precision: Precision, both: tuple[Packed, Packed], dimensions: Dimensions) -> Any:
    """The product of two held operands, scaled back."""
    left, right = meet(both, precision)
    side, sums = site.weight_operand, jnp.dtype(precision.accumulate.dtype)
    if side is not None and _differs_inside(both[side], dimensions.contracting[side]):
        result = product_of_groups(dimensions, (left, right), both[side]["scale"], side, sums)
        rest = {name: part for name, part in both[side].items() if name != "scale"}
        return scale_back(result, (rest, both[1]) if side == 0 else (both[0], rest), dimensions.on_result)
    result = jax.lax.dot_general(
        left,
        right,
        dimensions.numbers,
        precision=own_precision(site.eqn, (left, right)),
        preferred_element_type=sums,
        out_sharding=site.eqn.params.get("out_sharding"),
    )
    return scale_back(result, both, dimensions.on_result)


def _differs_inside(weight: Packed, contracting: Axes) -> bool:
    """True when the scale of a weight differs along what is summed over."""
    return "scale" in weight and any(weight["scale"].shape[axis] != 1 for axis in contracting)


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
