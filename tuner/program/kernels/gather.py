"""Look-ups of whole rows in a table held in one precision: weight-only, the activation field is not read."""

from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.operands import Packed
from tuner.program.kernels.registry import PLAIN, Kernel, register
from tuner.program.layer import EMBEDDING
from tuner.program.sites import indexed_axes
from tuner.program.steps import Site


def shared_axes(site: Site) -> tuple[int, ...]:
    """The axes of the table that share one scale: those along one row."""
    indexed = indexed_axes(site.eqn)
    return tuple(axis for axis in range(site.eqn.invars[0].aval.ndim) if axis not in indexed)


def activation_axes(site: Site) -> dict[int, tuple[int, ...]]:
    """Nothing: a look-up reads no activations."""
    return {}


def _run(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    assert packed is not None  # only look-ups in parameters are layers
    look_up = _gather if site.eqn.primitive.name == "gather" else _slice
    rows = look_up(site, packed["weight"], operands[1:], site.eqn.params["slice_sizes"])
    if "scale" not in packed:
        return rows
    along = shared_axes(site)
    sizes = tuple(1 if axis in along else size for axis, size in enumerate(site.eqn.params["slice_sizes"]))
    return rows.astype(jnp.float32) * look_up(site, packed["scale"], operands[1:], sizes)


def _slice(site: Site, table: Any, starts: list[Any], slice_sizes: tuple[int, ...]) -> Any:
    return jax.lax.dynamic_slice(table, starts, slice_sizes)


def _gather(site: Site, table: Any, operands: list[Any], slice_sizes: tuple[int, ...]) -> Any:
    params, (indices,) = site.eqn.params, operands
    fill = params["fill_value"] if jnp.issubdtype(table.dtype, jnp.floating) else 0
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
