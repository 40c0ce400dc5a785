"""Look-ups of whole rows in a table held in one precision: weight-only, the activation field is not read."""

from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.operands import Packed
from tuner.program.kernels.registry import PLAIN, Kernel, register
from tuner.program.kernels.stored import WeightAxes, unstore, widen_weight
from tuner.program.layer import EMBEDDING
from tuner.program.sites import indexed_axes
from tuner.program.steps import Site


def weight_axes(site: Site) -> WeightAxes:
    """The axes of the table: those along one row share one scale."""
    indexed, shape = indexed_axes(site.eqn), site.eqn.invars[0].aval.shape
    return WeightAxes.of(shape, tuple(axis for axis in range(len(shape)) if axis not in indexed))


def activation_axes(site: Site) -> dict[int, tuple[int, ...]]:
    """Nothing: a look-up reads no activations."""
    return {}


def _run(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    assert packed is not None  # only look-ups in parameters are layers
    look_up = _gather if site.eqn.primitive.name == "gather" else _slice
    table, along = site.eqn.invars[0].aval.shape, weight_axes(site).shared
    taken = site.eqn.params["slice_sizes"]

    def rows(part: Any) -> Any:
        """What is looked up of one array, which may be shorter along a row, or one number for all rows."""
        whole = tuple(own if axis in along else table[axis] for axis, own in enumerate(part.shape))
        sizes = tuple(own if axis in along else taken[axis] for axis, own in enumerate(part.shape))
        return look_up(site, jnp.broadcast_to(part, whole), operands[1:], sizes)

    found = {name: rows(packed[name]) for name in ("weight", "scale", "zero") if name in packed}
    return widen_weight(unstore(found, site.eqn.outvars[0].aval.shape), jnp.float32)["weight"]


def _slice(site: Site, table: Any, starts: list[Any], slice_sizes: tuple[int, ...]) -> Any:
    return jax.lax.dynamic_slice(table, starts, slice_sizes)


def _gather(site: Site, table: Any, operands: list[Any], slice_sizes: tuple[int, ...]) -> Any:
    params, (indices,) = site.eqn.params, operands
    # Whole numbers, and f8 to be scaled, become what the scale becomes: NaN by default.
    fill = params["fill_value"] if table.dtype.itemsize > 1 else 0
    return jax.lax.gather(
        table,
        indices,
        dimension_numbers=params["dimension_numbers"],
        slice_sizes=slice_sizes,
        unique_indices=params["unique_indices"],
        indices_are_sorted=params["indices_are_sorted"],
        mode=params["mode"],
        fill_value=fill,
    )


for _primitive in ("gather", "dynamic_slice"):
    register(
        Kernel(
            name=PLAIN,
            primitive=_primitive,
            kinds=(EMBEDDING,),
            applies=lambda site, precision: True,
            run=_run,
            remark="the look-up as written",
        )
    )
