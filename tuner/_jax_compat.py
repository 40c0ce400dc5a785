"""The one file that may touch JAX internals or differ by JAX version.

JAX gives no compatibility promise for what is used here; everything else in the project stands on its public names.
"""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
from jax._src import core as _core
from jax._src import source_info_util as _source_info
from jax._src import xla_bridge as _xla_bridge
from jax._src.lax import lax as _lax
from jax.extend import core as jex_core

Jaxpr = jex_core.Jaxpr
ClosedJaxpr = jex_core.ClosedJaxpr
JaxprEqn = jex_core.JaxprEqn
Literal = jex_core.Literal
Var = jex_core.Var
Primitive = jex_core.Primitive
NameStack = _source_info.NameStack


def open_jaxpr(jaxpr: Any, consts: Sequence[Any] = ()) -> tuple[Any, list[Any]]:
    """The inner jaxpr and its constants, whether given closed or open."""
    if isinstance(jaxpr, ClosedJaxpr) and hasattr(jaxpr, "jaxpr"):
        return jaxpr.jaxpr, list(jaxpr.consts)
    return jaxpr, list(consts)


def is_dropped(variable: Any) -> bool:
    """True for an output that the program throws away."""
    return isinstance(variable, _core.DropVar)


def jaxprs_in(params: dict[str, Any]) -> list[Any]:
    """Every jaxpr, open or closed, held by an equation's parameters."""
    found: list[Any] = []
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, (Jaxpr, ClosedJaxpr)):
                found.append(item)  # noqa: PERF401  # two nested conditions read worse as one comprehension
    return found


def inner_operands(eqn: Any, jaxpr: Any, operands: Sequence[Any], *, missing: Any) -> list[Any]:
    """What each input of a jaxpr held by an equation receives of the operands; `missing` where that is not known."""
    unknown = len(jaxpr.invars) - len(operands)
    if unknown > 0 and eqn.primitive.name == "pallas_call":  # further inputs are its outputs and scratch space
        return [*operands, *[missing] * unknown]
    return [missing] * len(jaxpr.invars) if unknown else list(operands)


def repetitions(eqn: Any) -> int:
    """How often the function held by an equation runs each time the equation does, as far as that is known."""
    if eqn.primitive.name == "scan":
        return int(eqn.params["length"])
    if eqn.primitive.name == "pallas_call":
        return math.prod(size for size in eqn.params["grid_mapping"].grid if isinstance(size, int))
    return 1


def is_plain_jit(eqn: Any) -> bool:
    """True for a `jit` call that only groups operations: no shardings, layouts or compiler options of its own."""
    params = eqn.params
    shardings = (*params.get("in_shardings", ()), *params.get("out_shardings", ()))
    layouts = (*params.get("in_layouts", ()), *params.get("out_layouts", ()))
    unspecified = all(type(sharding).__name__ == "UnspecifiedValue" for sharding in shardings)
    return unspecified and all(layout is None for layout in layouts) and not params.get("compiler_options_kvs")


def scan_counts(eqn: Any) -> tuple[int, int]:
    """How many operands of a scan are constants and how many are carries; the rest are stacks."""
    params = eqn.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carries, _ = params["ft_in"].unpack()  # since jax 0.11
    return len(consts), len(carries)


def place_like(eqn: Any, value: Any, axes: Sequence[int]) -> Any:
    """The value on the devices that a `reshard` or `sharding_constraint` puts its own value on.

    Args:
        eqn: the equation.
        value: what is placed.
        axes: for each axis of the value the equation's axis that it stands for; one of length one is not split.
    """
    name = "dst_sharding" if "dst_sharding" in eqn.params else "sharding"
    sharding = eqn.params[name]
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return value
    whole = (*sharding.spec, *(None for _ in range(len(axes) - len(sharding.spec))))
    entries = [whole[axis] if value.shape[i] != 1 else None for i, axis in enumerate(axes)]
    changes: dict[str, Any] = {name: sharding.update(spec=jax.sharding.PartitionSpec(*entries))}
    if "unconstrained_dims" in eqn.params:
        free = jax.sharding.PartitionSpec.UNCONSTRAINED
        changes["unconstrained_dims"] = frozenset(i for i, entry in enumerate(entries) if entry is free)
    return eqn.primitive.bind(value, **{**eqn.params, **changes})


def shard_map_settings(eqn: Any) -> dict[str, Any]:
    """What `jax.shard_map` was called with: mesh, in_specs, out_specs, axis_names, check_vma."""
    params = eqn.params
    axes = params["newly_manual_axes"] if "newly_manual_axes" in params else params["manual_axes"]
    named = {name: params[name] for name in ("mesh", "in_specs", "out_specs", "check_vma")}
    return {**named, "axis_names": set(axes)}


def bind(eqn: Any, values: Sequence[Any]) -> list[Any]:
    """The results of one equation on new operands, under the current name scope."""
    bind_params = eqn.primitive.get_bind_params(eqn.params)
    if isinstance(bind_params, tuple):  # before jax 0.10: (functions, params)
        functions, keywords = bind_params
        results = eqn.primitive.bind(*functions, *values, **keywords)
    else:
        results = eqn.primitive.bind(*values, **bind_params)
    return list(results) if eqn.primitive.multiple_results else [results]


def bind_within(eqn: Any, scope: Any, values: Sequence[Any]) -> list[Any]:
    """The same under `equation_context`, for the many equations that are bound one by one: without its generator."""
    stack = _source_info.current_name_stack() + scope
    with _source_info.user_context(eqn.source_info.traceback, name_stack=stack), eqn.ctx.manager:
        return bind(eqn, values)


@contextmanager
def equation_context(eqn: Any, scope: Any) -> Iterator[None]:
    """Source line, name scope and configuration that the equation was traced with."""
    stack = _source_info.current_name_stack() + scope
    with _source_info.user_context(eqn.source_info.traceback, name_stack=stack), eqn.ctx.manager:
        yield


def scope_of(eqn: Any) -> Any:
    """The equation's own part of the name scope."""
    return eqn.source_info.name_stack


def scope_within(scope: Any, eqn: Any) -> Any:
    """The name scope of an equation whose program stands in a scope; mostly that scope itself, not another like it."""
    own = eqn.source_info.name_stack
    return scope + own if own.stack else scope


def scope_text(scope: Any) -> str:
    """The names that the user gave, joined with `/`; transformations such as `vmap` leave no trace in it."""
    return "/".join(part.name for part in scope.stack if not isinstance(part, _source_info.Transform))


def empty_scope() -> Any:
    """The name scope of a program's outermost equations."""
    return NameStack()


def source_line(eqn: Any) -> str | None:
    """`file.py:12` of the user's line that made the equation, or None where the trace kept none."""
    frame = _source_info.user_frame(eqn.source_info.traceback)
    if frame is None:
        return None
    return f"{frame.file_name.replace(os.sep, '/').rpartition('/')[2]}:{frame.start_line}"


def abstract(leaf: Any) -> Any:
    """Shape, dtype and weak type of an array, or of what already says only that."""
    return leaf if isinstance(leaf, jax.ShapeDtypeStruct | _core.AbstractValue) else jax.typeof(leaf)


def weak(value: Any) -> Any:
    """The value with a weak type."""
    return _lax._convert_element_type(value, weak_type=True)


def backends_are_initialized() -> bool:
    """True once this process holds its devices, and on most accelerators their memory."""
    return bool(_xla_bridge.backends_are_initialized())


def configuration() -> dict[str, Any]:
    """Every setting of JAX that is a plain value, as it is in force here and now."""
    values = {name: getattr(jax.config, name, None) for name in jax.config.values}
    return {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}


def configure(settings: dict[str, Any]) -> None:
    """Brings the configuration of this process to the given one; what this version does not know is left alone."""
    for name, value in settings.items():
        if getattr(jax.config, name, value) != value:
            jax.config.update(name, value)
