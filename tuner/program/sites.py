"""Which equations carry precision: products, convolutions and look-ups, and what is known of each without running it."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax.numpy as jnp

from tuner.program.expression import Expression, repeated_axes, sources, weight_key
from tuner.program.layer import CONV, DOT, EMBEDDING, MATMUL
from tuner.program.placement import Placement, unplaced
from tuner.program.steps import Reference, Site

PRODUCTS = frozenset({"dot_general", "conv_general_dilated", "ragged_dot_general"})


def find_site(
    eqn: Any, scope: Any, operands: tuple[Reference, ...], *, number: int, executions: int, reason: str | None
) -> Site | None:
    """The site that an equation is, or None when it carries no precision.

    Args:
        eqn: the equation.
        scope: its full name scope.
        operands: where its operands are found.
        number: how many sites were found before; sets operations without a weight apart.
        executions: how often it runs in one call.
        reason: why nothing here can be assigned (inside a loop, say), else None.
    """
    recognize = _RECOGNIZERS.get(eqn.primitive.name)
    if recognize is None:
        return None
    found = recognize(eqn, operands)
    if found is None:
        return None
    kind, weight_operand, own_reason = found
    weight: Expression | None = None
    placement: Placement | None = None
    key: tuple[Any, ...] = ("site", number)
    if weight_operand is not None:
        weight, placement = unplaced(operands[weight_operand])  # type: ignore[arg-type]  # it picked an expression
        key = weight_key(weight)
    return Site(
        kind,
        eqn,
        weight_operand,
        weight,
        key,
        scope,
        executions,
        reason or own_reason,
        placement=placement,
        repeated=() if weight is None else repeated_axes(weight),
    )


Found = tuple[str, int | None, str | None]


def _holds_parameters(reference: Reference) -> bool:
    return not isinstance(reference, int) and bool(sources(reference))


def _is_float(variable: Any) -> bool:
    return _is_floating(variable.aval.dtype)


@cache  # asked of every operand of every layer, about a handful of dtypes
def _is_floating(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating))


def _float_reason(*variables: Any) -> str | None:
    for variable in variables:
        if not _is_float(variable):
            return f"its operands are {variable.aval.dtype}, not floating point"
    return None


def _recognize_dot(eqn: Any, operands: tuple[Reference, ...]) -> Found:
    reason = _float_reason(*eqn.invars, *eqn.outvars)
    for side in (1, 0):
        if _holds_parameters(operands[side]):
            return MATMUL, side, reason
    return DOT, None, reason


def _recognize_ragged(eqn: Any, operands: tuple[Reference, ...]) -> Found:
    side = 1 if _holds_parameters(operands[1]) else None
    reason = _float_reason(*eqn.invars[:2], *eqn.outvars)
    if side is None or not Ragged.of(eqn).is_rows_in_groups:
        reason = reason or "it is a ragged product, and not of rows in groups with one parameter matrix per group"
    return (MATMUL if side else DOT), side, reason


def _recognize_convolution(eqn: Any, operands: tuple[Reference, ...]) -> Found:
    reason = _float_reason(*eqn.invars, *eqn.outvars)
    if eqn.params["batch_group_count"] != 1:
        reason = reason or f"it has {eqn.params['batch_group_count']} batch groups, so examples share their scales"
    if _holds_parameters(operands[1]):
        return CONV, 1, reason
    return CONV, None, reason or "its kernel is no parameter"


def _recognize_look_up(eqn: Any, operands: tuple[Reference, ...]) -> Found | None:
    if not _holds_parameters(operands[0]) or not _is_float(eqn.invars[0]):
        return None
    shape, indexed = eqn.invars[0].aval.shape, indexed_axes(eqn)
    if not indexed:
        return None
    whole = all(size == shape[i] for i, size in enumerate(eqn.params["slice_sizes"]) if i not in indexed)
    if not whole or len(indexed) == len(shape):
        return EMBEDDING, 0, "it looks up parts of rows, and a row has one scale"
    return EMBEDDING, 0, None


def indexed_axes(eqn: Any) -> frozenset[int]:
    """The axes of a table that a look-up picks positions of; `vmap` of a look-up keeps them with length one."""
    sizes, shape = eqn.params["slice_sizes"], eqn.invars[0].aval.shape
    if eqn.primitive.name == "dynamic_slice":
        return frozenset(axis for axis, size in enumerate(sizes) if size < shape[axis])
    numbers = eqn.params["dimension_numbers"]
    kept = {axis for axis in numbers.start_index_map if sizes[axis] == 1 < shape[axis]}
    return frozenset({*numbers.collapsed_slice_dims, *numbers.operand_batching_dims, *kept})


@dataclass(frozen=True, slots=True)
class Ragged:
    """The axes of a ragged product, by what they do."""

    contracting: tuple[tuple[int, ...], tuple[int, ...]]
    # Axis of the left operand that falls into groups, axis of the right one that counts them, the right one's others.
    rows: int
    group: int
    free: tuple[int, ...]
    is_rows_in_groups: bool

    @classmethod
    def of(cls, eqn: Any) -> "Ragged":
        """The axes of a `ragged_dot_general` equation."""
        numbers = eqn.params["ragged_dot_dimension_numbers"]
        contracting, batch = (tuple(map(tuple, pair)) for pair in numbers.dot_dimension_numbers)
        (rows,), groups = numbers.lhs_ragged_dimensions, tuple(numbers.rhs_group_dimensions)
        taken = {*contracting[1], *batch[1], *groups}
        left, right = (variable.aval.ndim for variable in eqn.invars[:2])
        simple = not batch[0] and len(groups) == 1 and {rows, *contracting[0]} == set(range(left))
        return cls(
            contracting=(contracting[0], contracting[1]),
            rows=rows,
            group=groups[0] if groups else -1,
            free=tuple(axis for axis in range(right) if axis not in taken),
            is_rows_in_groups=simple and rows not in contracting[0] and eqn.params.get("group_offset") is None,
        )


_RECOGNIZERS = {
    "dot_general": _recognize_dot,
    "ragged_dot_general": _recognize_ragged,
    "conv_general_dilated": _recognize_convolution,
    "gather": _recognize_look_up,
    "dynamic_slice": _recognize_look_up,
}


def site_shape(site: Site) -> tuple[int, ...]:
    """The weight as the operation reads it; for a product of two activations its left operand."""
    operand = 0 if site.weight_operand is None else site.weight_operand
    return tuple(int(size) for size in site.eqn.invars[operand].aval.shape)


def site_flops(site: Site) -> int:
    """Floating-point operations of one execution, a multiply-add counted as two; a look-up costs none."""
    (out,) = site.eqn.outvars
    if site.kind == EMBEDDING:
        return 0
    if site.eqn.primitive.name == "ragged_dot_general":
        numbers = site.eqn.params["ragged_dot_dimension_numbers"].dot_dimension_numbers
        summed = [site.eqn.invars[0].aval.shape[axis] for axis in numbers[0][0]]
        return 2 * int(math.prod(out.aval.shape)) * int(math.prod(summed))
    if site.kind == CONV:
        rhs_spec = site.eqn.params["dimension_numbers"].rhs_spec
        kernel = site.eqn.invars[1].aval.shape
        per_output = int(math.prod(kernel)) // int(kernel[rhs_spec[0]])
    else:
        (contracting, _), _ = site.eqn.params["dimension_numbers"]
        per_output = math.prod(site.eqn.invars[0].aval.shape[axis] for axis in contracting)
    return 2 * int(math.prod(out.aval.shape)) * per_output
