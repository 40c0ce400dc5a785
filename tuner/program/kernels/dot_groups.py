"""Matrix products whose weight has scales in groups along what is summed over: one product per group, scaled, and summed."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from tuner.program.kernels.dot_dimensions import Axes, Dimensions


def product_of_groups(dimensions: Dimensions, operands: tuple[Any, Any], scale: Any, side: int, sums: Any) -> Any:
    """The product times the weight's scale, in float32 and in the layout of the product itself.

    Args:
        dimensions: the axes of both operands.
        operands: left and right, in the dtype that they are multiplied in.
        scale: of the weight, one per group along one contracting axis and per index along the others.
        side: 0 when the weight is the left operand.
        sums: the dtype that each group is summed in.
    """
    # The axis that is cut comes last, so that a group is a run of what is summed over.
    cut = [scale.shape[axis] != operands[side].shape[axis] for axis in dimensions.contracting[side]]
    turn = sorted(range(len(cut)), key=lambda number: cut[number])
    inside = [tuple(axes[number] for number in turn) for axes in dimensions.contracting]
    groups = math.prod(scale.shape[axis] for axis in inside[side])
    grouped = [
        _flat(operands[one], (*dimensions.batch[one], *dimensions.free[one]), inside[one], groups) for one in (0, 1)
    ]
    batch = tuple(range(len(dimensions.batch[0])))
    ends = [part.ndim - 1 for part in grouped]
    numbers = (((ends[0],), (ends[1],)), ((*batch, ends[0] - 1), (*batch, ends[1] - 1)))
    products = jax.lax.dot_general(grouped[0], grouped[1], numbers, preferred_element_type=sums)
    scales = _flat(scale, (*dimensions.batch[side], *dimensions.free[side]), inside[side], groups)[..., 0]
    # To the layout of the products: batches, group, and the weight's own axes before or behind the other operand's.
    scales = jnp.moveaxis(scales, -1, len(batch))
    others = (1,) * len(dimensions.free[1 - side])
    head, own = scales.shape[: len(batch) + 1], scales.shape[len(batch) + 1 :]
    laid_out = jnp.reshape(scales, (*head, *own, *others) if side == 0 else (*head, *others, *own))
    return jnp.sum(products.astype(jnp.float32) * laid_out, axis=len(batch))


def _flat(value: Any, outside: Axes, inside: Axes, groups: int) -> Any:
    """The axes that are kept, then the groups, then what is in a group."""
    turned = jnp.transpose(value, (*outside, *inside))
    kept = turned.shape[: len(outside)]
    return jnp.reshape(turned, (*kept, groups, math.prod(turned.shape[len(outside) :]) // groups))
