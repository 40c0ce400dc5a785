"""What a bare operation of one layer's signature is compiled to: what the report of a whole program is compared with."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.measure.effective import AS_REQUESTED, Ran
from tuner.measure.hlo import Module, parse_hlo
from tuner.program.layer import EMBEDDING
from tuner.program.steps import Site

# What takes the most time to compile, and changes nothing that is checked here; not every version of XLA knows all.
_SLOW_PARTS = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}
_SHORT = {
    "float64": "f64",
    "float32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
    "int8": "s8",
    "int32": "s32",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
}

# What else makes the signature of an operation.
_SETTINGS = {
    "dot_general": ("dimension_numbers",),
    "ragged_dot_general": ("ragged_dot_dimension_numbers",),
    "conv_general_dilated": (
        *("dimension_numbers", "window_strides", "padding", "lhs_dilation", "rhs_dilation"),
        *("feature_group_count", "batch_group_count"),
    ),
}


@cache
def quick() -> dict[str, Any]:
    """Settings under which XLA compiles small programs in a third of the time."""
    known = {}
    for name, value in _SLOW_PARTS.items():
        try:
            jax.jit(lambda x: x).lower(0.0).compile({name: value})
        except jax.errors.JaxRuntimeError:
            continue
        known[name] = value
    return known


def expected_verdict(sites: tuple[Site, ...], precision: Precision) -> str:
    """What is reported of a layer when it runs as its bare operations do: as requested, or what they became."""
    wanted = _wanted(precision)
    others = {str(ran) for site in sites for ran in _probe_of(site, precision) if ran != wanted}
    return f"different: {', '.join(sorted(others))}" if others else AS_REQUESTED


def _operand(precision: Precision) -> str:
    """The dtype in which both operands are multiplied: the wider one's, that of the activations for scaled weights."""
    weights, activations = precision.weights.dtype, precision.activations.dtype
    if precision.is_weight_only:
        return activations
    if "i4" in (precision.weights.name, precision.activations.name):
        return "int8"  # what four bits are multiplied in
    return str(jnp.promote_types(weights, activations))


def _wanted(precision: Precision) -> Ran:
    operand = _SHORT[_operand(precision)]
    return Ran((operand, operand), _SHORT[precision.accumulate.dtype])


def _probe_of(site: Site, precision: Precision) -> tuple[Ran, ...]:
    if site.kind == EMBEDDING:
        return ()  # a table is read as it lies
    shapes = tuple(tuple(variable.aval.shape) for variable in site.eqn.invars)
    params = site.eqn.params
    keep = _SETTINGS[site.eqn.primitive.name]
    settings = tuple((name, params[name]) for name in keep if name in params)
    return _compiled(site.eqn.primitive.name, shapes, settings, _operand(precision), precision.accumulate.dtype)


@cache
def _compiled(
    primitive: str,
    shapes: tuple[tuple[int, ...], ...],
    settings: tuple[tuple[str, Any], ...],
    operand: str,
    result: str,
) -> tuple[Ran, ...]:
    function = getattr(jax.lax, primitive)
    bare = lambda *operands: function(*operands, **dict(settings), preferred_element_type=jnp.dtype(result))
    arguments = [jax.ShapeDtypeStruct(shape, operand) for shape in shapes[:2]]
    arguments += [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes[2:]]  # the groups of a ragged product
    return tuple(products(parse_hlo(jax.jit(bare).lower(*arguments).compile(quick()).as_text() or "")))


def products(module: Module) -> list[Ran]:
    """The products of a program of nothing else, as they run; one over an axis of length one is a multiplication."""
    found: dict[str, list[Ran]] = {"product": [], "multiply": []}
    for where, item in module:
        kind = "product" if item.opcode in ("dot", "convolution") or item.opcode == "custom-call" else item.opcode
        if kind in found:
            operands = tuple(where.instructions[name].dtype for name in item.operands[:2] if name in where.instructions)
            found[kind].append(Ran(operands, item.dtype))
    return found["product"] or found["multiply"]
