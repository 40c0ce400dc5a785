"""Ragged products in one precision: rows in groups, each group times a matrix of its own (`jax.lax.ragged_dot`)."""

from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.operands import Packed, hold_activations, meet, own_precision, scale_back
from tuner.program.kernels.registry import PLAIN, Kernel, register
from tuner.program.kernels.stored import WeightAxes
from tuner.program.layer import MATMUL
from tuner.program.sites import Ragged
from tuner.program.steps import Site


def weight_axes(site: Site) -> WeightAxes:
    """The axes of the matrices: those that are summed over share one scale."""
    return WeightAxes.of(site.eqn.invars[1].aval.shape, Ragged.of(site.eqn).contracting[1])


def activation_axes(site: Site) -> dict[int, tuple[int, ...]]:
    """The rows -> the axes of them that share one scale: those that are summed over."""
    return {0: Ragged.of(site.eqn).contracting[0]}


def _run(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    assert packed is not None  # only a weight on the right is assigned
    numbers, params, group_sizes = Ragged.of(site.eqn), site.eqn.params, operands[2]
    both = hold_activations(operands[0], precision, activation_axes(site)[0], packed), packed
    left, right = meet(both, precision)
    result = jax.lax.ragged_dot_general(
        left,
        right,
        group_sizes,
        params["ragged_dot_dimension_numbers"],
        precision=own_precision(site.eqn, (left, right)),
        preferred_element_type=jnp.dtype(precision.accumulate.dtype),
    )

    def on_result(scale: Any, side: int) -> Any:
        if side == 0:
            return jnp.reshape(scale, (-1, *(1 for _ in numbers.free)))
        of_groups = jnp.transpose(scale, (numbers.group, *numbers.free, *numbers.contracting[1]))
        of_groups = jnp.reshape(of_groups, (-1, *(scale.shape[axis] for axis in numbers.free)))
        return jnp.take(of_groups, _group_of_each_row(left.shape[numbers.rows], group_sizes), axis=0, mode="clip")

    found = scale_back(result, both, on_result)
    if "zero" not in both[0] and "correction" not in packed:
        return found
    in_groups = jnp.arange(left.shape[numbers.rows]) < jnp.sum(group_sizes)  # the other rows' results are zero
    return jnp.where(jnp.reshape(in_groups, (-1, *(1 for _ in numbers.free))), found, jnp.zeros_like(found))


def _group_of_each_row(rows: int, group_sizes: Any) -> Any:
    """The number of each row's group; rows after the last group have none, and results of zero."""
    ends = jnp.cumsum(group_sizes)
    return jnp.sum(jnp.arange(rows, dtype=ends.dtype)[:, None] >= ends[None, :], axis=1)


register(
    Kernel(
        name=PLAIN,
        primitive="ragged_dot_general",
        kinds=(MATMUL,),
        applies=lambda site, precision: True,
        run=_run,
        remark="the ragged product as written",
    )
)
