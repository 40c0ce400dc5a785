"""Matrix products with the weight, or the activations, laid out otherwise."""

import math
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.dot import hold_both, multiply, weight_side
from tuner.program.kernels.dot_dimensions import Dimensions
from tuner.program.kernels.operands import Packed, widened
from tuner.program.kernels.registry import Kernel, register
from tuner.program.kernels.stored import widen_weight
from tuner.program.layer import MATMUL
from tuner.program.steps import Site


def _order(site: Site) -> tuple[int, ...]:
    """The weight's axes with those that are summed over last: (out, in)."""
    dimensions, side = Dimensions.of(site.eqn), weight_side(site)
    return (*dimensions.batch[side], *dimensions.free[side], *dimensions.contracting[side])


def _reordered(site: Site) -> Dimensions:
    """The product's axes once the weight is stored in that order."""
    dimensions, side = Dimensions.of(site.eqn), weight_side(site)
    place = {axis: position for position, axis in enumerate(_order(site))}

    def moved(axes: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        own = tuple(place[axis] for axis in axes[side])
        return (own, axes[1]) if side == 0 else (axes[0], own)

    return Dimensions(moved(dimensions.contracting), moved(dimensions.batch), moved(dimensions.free))


def _changes_order(site: Site, precision: Precision) -> bool:
    return _order(site) != tuple(range(len(_order(site))))


def _run_transposed(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    dimensions = _reordered(site)
    return multiply(site, precision, hold_both(site, precision, packed, operands, dimensions), dimensions)


register(
    Kernel(
        name="transposed",
        primitive="dot_general",
        kinds=(MATMUL,),
        applies=_changes_order,
        order=_order,
        run=_run_transposed,
        remark="weight stored (out, in): few rows read it in one pass",
    )
)


def _has_one_row(site: Site, precision: Precision) -> bool:
    dimensions, other = Dimensions.of(site.eqn), 1 - weight_side(site)
    shape = site.eqn.invars[other].aval.shape
    return not dimensions.batch[0] and math.prod(shape[axis] for axis in dimensions.free[other]) == 1


def _run_padded(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    dimensions, side = _reordered(site), weight_side(site)
    row = widened(operands[1 - side])
    if not _has_one_row(site, precision):  # the policy was made for another batch size
        return _run_transposed(site, precision, packed, operands)
    free = dimensions.free[1 - side]
    # A new leading axis of length two, its second row zero; the result has it where its own free axes begin.
    two = jnp.concatenate([row[None], jnp.zeros_like(row)[None]])
    shifted = tuple(axis + 1 for axis in dimensions.contracting[1 - side])
    pairs = [dimensions.contracting[side], shifted] if side == 0 else [shifted, dimensions.contracting[side]]
    frees = (0, *(axis + 1 for axis in free))
    wider = replace(
        dimensions,
        contracting=(pairs[0], pairs[1]),
        free=(dimensions.free[0], frees) if side == 0 else (frees, dimensions.free[1]),
    )
    given = [None, two] if side == 0 else [two, None]
    result = multiply(site, precision, hold_both(site, precision, packed, given, wider), wider)
    return jnp.take(result, 0, axis=len(dimensions.free[0]) if side == 0 else 0, mode="clip")


register(
    Kernel(
        name="padded",
        primitive="dot_general",
        kinds=(MATMUL,),
        applies=_has_one_row,
        order=_order,
        run=_run_padded,
        remark="one row padded to two, weight stored (out, in): narrow formats stay narrow",
    )
)


def _is_weight_only(site: Site, precision: Precision) -> bool:
    return precision.is_weight_only


def _run_dequantized(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    assert packed is not None  # weight-only
    whole = widen_weight(packed, jnp.dtype(precision.activations.dtype))
    dimensions = Dimensions.of(site.eqn)
    return multiply(site, precision, hold_both(site, precision, whole, operands, dimensions), dimensions)


register(
    Kernel(
        name="dequantized",
        primitive="dot_general",
        kinds=(MATMUL,),
        applies=_is_weight_only,
        run=_run_dequantized,
        remark="weight scaled before the product instead of the result after it",
    )
)
