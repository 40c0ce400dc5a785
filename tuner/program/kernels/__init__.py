"""How one operation runs in one precision: what is packed beforehand, and what runs on every call."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from search_spaces import Format, Precision
from tuner import _jax_compat as compat
from tuner.policy import Assignment
from tuner.program.kernels import (
    conv,
    conv_image,
    conv_layout,
    conv_patches,
    conv_shifted,
    conv_split,
    dot,
    dot_batches,
    dot_layouts,
    gather,
    ragged,
)
from tuner.program.kernels.alike import Alike
from tuner.program.kernels.operands import OFFSET, Packed, hold
from tuner.program.kernels.registry import PLAIN, Kernel, find_kernel, kernels_for, plain_kernel
from tuner.program.kernels.slow_paths import runs_in_scalar_loop as runs_in_scalar_loop
from tuner.program.kernels.slow_paths import untimed_kernel as untimed_kernel
from tuner.program.layer import DOT, EMBEDDING, INPUT, Layer
from tuner.program.steps import Site

_ROOMS = {
    "dot_general": dot,
    "ragged_dot_general": ragged,
    "conv_general_dilated": conv,
    "gather": gather,
    "dynamic_slice": gather,
}
# Imported for the kernels that they register.
_MORE = (conv_image, conv_layout, conv_patches, conv_shifted, conv_split, dot_batches, dot_layouts)


def shared_axes(site: Site) -> tuple[int, ...]:
    """The axes of an operation's weight that share one scale."""
    axes: tuple[int, ...] = _ROOMS[site.eqn.primitive.name].shared_axes(site)
    return axes


def kernel_of(site: Site, assignment: Assignment) -> Kernel:
    """The kernel that runs an operation; the plain one where the layer's kernel is for its other operations."""
    return find_kernel(site, assignment.kernel) or plain_kernel(site)


def kernel_names(sites: Sequence[Site], precision: Precision) -> tuple[str, ...]:
    """The equivalent kernels that can run a layer's operations in a precision, the plain one first."""
    if precision.is_original:
        return (PLAIN,)
    names = {kernel.name: None for site in sites for kernel in kernels_for(site, precision)}
    return tuple(names) or (PLAIN,)


def has_kernel(site: Site, name: str) -> bool:
    """True when there is a kernel of that name for such operations, whether or not it applies to this one's shapes."""
    return find_kernel(site, name) is not None


def pack(site: Site, assignment: Assignment, weight: Any, offset: Any = None) -> dict[str, Any]:
    """The arrays that stand for the weight of an operation, laid out for its kernel, with what is added to its result."""
    packed = turn(held_weight(site, assignment, weight), kernel_of(site, assignment).order(site))
    return packed if offset is None else {**packed, OFFSET: offset}


def held_activations(
    site: Site, assignment: Assignment, operands: Sequence[Any]
) -> list[tuple[int, Format, dict[str, Any]]]:
    """The activations that an operation reads, as its kernel holds them: operand, format, and what `hold` gives."""
    precision = assignment.precision
    axes: dict[int, tuple[int, ...]] = _ROOMS[site.eqn.primitive.name].activation_axes(site)
    held = []
    for position, along in axes.items():
        left_of_two = site.weight_operand is None and position == 0
        format = precision.weights if left_of_two else precision.activations
        held.append((position, format, hold(operands[position], format, along)))
    return held


def held_weight(site: Site, assignment: Assignment, weight: Any) -> dict[str, Any]:
    """The weight of an operation in its format, in its own layout."""
    return hold(weight, assignment.precision.weights, shared_axes(site))


def turn(packed: Packed, axes: tuple[int, ...] | None) -> dict[str, Any]:
    """A packed weight with its axes in another order; None leaves it as it is."""
    if axes is None or axes == tuple(range(len(axes))):
        return dict(packed)
    return {name: part if name == OFFSET else jnp.transpose(part, axes) for name, part in packed.items()}


def run(site: Site, assignment: Assignment, packed: Packed | None, operands: list[Any]) -> Any:
    """The operation's result in the dtype (and weak type) that the user's program had, or in its output format."""
    return _run(packed, operands, operation=Alike(site), assignment=assignment)


# Traced once for operations that look alike, and then a part of the caller's program like any other.
@partial(jax.jit, static_argnames=("operation", "assignment"), inline=True)
def _run(packed: Packed | None, operands: list[Any], *, operation: Alike, assignment: Assignment) -> Any:
    site = operation.site
    result = kernel_of(site, assignment).run(site, assignment.precision, packed, operands)
    if packed is not None and OFFSET in packed:
        result = result.astype(jnp.float32) + packed[OFFSET]
    (out,) = site.eqn.outvars
    output = assignment.precision.output
    if output is not None and _bits(out.aval.dtype) > output.bits:
        return result.astype(output.dtype)
    result = result.astype(out.aval.dtype)
    return compat.weak(result) if out.aval.weak_type else result


def supports(layer: Layer, precision: Precision) -> str | None:
    """Why a layer cannot run in a precision, or None when it can."""
    if precision.is_original:
        return None
    if not layer.searchable:
        return layer.reason
    if precision.unavailable:
        return precision.unavailable
    if precision.output is not None:
        reason = _output_reason(layer, precision.output)
        if reason:
            return reason
    same = precision.weights.dtype == layer.dtype
    if layer.kind == INPUT:
        uniform = precision.weights == precision.activations == precision.accumulate
        if not uniform or precision.weights.kind != "float":
            return "an input has one float format: write f32, bf16 or f16"
        return f"the input is {layer.dtype} already" if same else None
    if layer.kind == EMBEDDING and same:
        return f"the table is {layer.dtype} already"
    if layer.kind == DOT and (precision.is_weight_only or precision.weights.kind != precision.activations.kind):
        return "a product of two activations needs both operands in floats or both in integers"
    if layer.dtype not in _FLOATS:
        return f"its operands are {layer.dtype}"
    return None


def _output_reason(layer: Layer, output: Format) -> str | None:
    if layer.kind == INPUT:
        return "an input hands nothing on"
    if layer.dtype not in _FLOATS or _bits(layer.dtype) <= output.bits:
        return f"its result is {layer.dtype}, which is no wider than {output}"
    return None


def _bits(dtype: Any) -> int:
    return 8 * int(np.dtype(dtype).itemsize)


_FLOATS = frozenset({"float32", "bfloat16", "float16", "float64"})
