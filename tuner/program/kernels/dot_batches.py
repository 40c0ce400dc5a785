"""Matrix products in batches: with one weight for all of them, or with the operands in another order."""

from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.dot import hold_both, multiply, weight_side
from tuner.program.kernels.dot_dimensions import Axes, Dimensions
from tuner.program.kernels.operands import Packed
from tuner.program.kernels.registry import Kernel, plain_kernel, register
from tuner.program.layer import DOT, MATMUL
from tuner.program.steps import Site


def _ordered(side: int, own: Axes, other: Axes) -> tuple[Axes, Axes]:
    """What belongs to the left and to the right operand, given that of one side."""
    return (own, other) if side == 0 else (other, own)


def _has_one_weight(site: Site, precision: Precision) -> bool:
    batch = Dimensions.of(site.eqn).batch[weight_side(site)]
    placed = site.eqn.params.get("out_sharding") is not None
    return bool(batch) and set(batch) <= set(site.repeated) and not placed


def _run_flattened(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    if not _has_one_weight(site, precision):  # the policy was made for a program that repeats the weight
        return plain_kernel(site).run(site, precision, packed, operands)
    assert packed is not None  # a product with a weight
    dimensions, side = Dimensions.of(site.eqn), weight_side(site)
    batch, batch_of_rows = dimensions.batch[side], dimensions.batch[1 - side]
    first = tuple(0 if axis in batch else slice(None) for axis in range(packed["weight"].ndim))
    once = {name: part[first] if part.ndim == len(first) else part for name, part in packed.items()}

    def left(axes: Axes) -> Axes:
        """Where axes of the weight are once its batch axes are gone."""
        return tuple(axis - sum(gone < axis for gone in batch) for axis in axes)

    rows = tuple(sorted((*batch_of_rows, *dimensions.free[1 - side])))
    flat = Dimensions(
        _ordered(side, left(dimensions.contracting[side]), dimensions.contracting[1 - side]),
        ((), ()),
        _ordered(side, left(dimensions.free[side]), rows),
    )
    result = multiply(site, precision, hold_both(site, precision, once, operands, flat), flat)
    # It has the rows' axes in their own order, beside the weight's; the product as written has the batch first.
    own = len(flat.free[side])
    begin = own if side == 0 else 0
    of_rows = {axis: begin + position for position, axis in enumerate(rows)}
    of_weight = range(own) if side == 0 else range(len(rows), len(rows) + own)
    others = [of_rows[axis] for axis in dimensions.free[1 - side]]
    order = [*(of_rows[axis] for axis in batch_of_rows), *of_weight, *others]
    if side == 1:
        order = [*(of_rows[axis] for axis in batch_of_rows), *others, *of_weight]
    return jnp.transpose(result, order)


register(
    Kernel(
        name="flattened",
        primitive="dot_general",
        kinds=(MATMUL,),
        applies=_has_one_weight,
        run=_run_flattened,
        remark="a batch of products with the same weight as one product of all rows",
    )
)


def _is_free(site: Site, precision: Precision) -> bool:
    return site.eqn.params.get("out_sharding") is None


def _run_swapped(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    dimensions = Dimensions.of(site.eqn)
    left, right = hold_both(site, precision, None, operands, dimensions)
    turned = Dimensions(dimensions.contracting[::-1], dimensions.batch[::-1], dimensions.free[::-1])
    result = multiply(site, precision, (right, left), turned)
    batch, lefts, rights = len(dimensions.batch[0]), len(dimensions.free[0]), len(dimensions.free[1])
    order = (*range(batch), *range(batch + rights, batch + rights + lefts), *range(batch, batch + rights))
    return jnp.transpose(result, order)


register(
    Kernel(
        name="swapped",
        primitive="dot_general",
        kinds=(DOT,),
        applies=_is_free,
        run=_run_swapped,
        remark="right times left, the result transposed: a single row times many",
    )
)


def _to_front(dimensions: Dimensions, side: int, ndim: int) -> Axes:
    """The axes of one operand with those of the batch first."""
    batch = dimensions.batch[side]
    return (*batch, *(axis for axis in range(ndim) if axis not in batch))


def _has_batch_elsewhere(site: Site, precision: Precision) -> bool:
    dimensions = Dimensions.of(site.eqn)
    return any(batch != tuple(range(len(batch))) for batch in dimensions.batch)


def _run_batch_first(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    dimensions = Dimensions.of(site.eqn)
    orders = [_to_front(dimensions, side, operands[side].ndim) for side in (0, 1)]

    def moved(axes: tuple[Axes, Axes]) -> tuple[Axes, Axes]:
        one, two = (tuple(orders[side].index(axis) for axis in axes[side]) for side in (0, 1))
        return one, two

    fronted = Dimensions(moved(dimensions.contracting), moved(dimensions.batch), moved(dimensions.free))
    turned = [jax.lax.transpose(operands[side], orders[side]) for side in (0, 1)]
    return multiply(site, precision, hold_both(site, precision, None, turned, fronted), fronted)


register(
    Kernel(
        name="batch_first",
        primitive="dot_general",
        kinds=(DOT,),
        applies=_has_batch_elsewhere,
        run=_run_batch_first,
        remark="both operands transposed so that their batch axes come first",
    )
)
