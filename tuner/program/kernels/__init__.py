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
from tuner.program.kernels.calibrated import calibrated_parts, no_numbers
from tuner.program.kernels.operands import IN_WEIGHT_AXES, OFFSET, Packed, hold_activations
from tuner.program.kernels.registry import PLAIN, Kernel, find_kernel, kernels_for, plain_kernel
from tuner.program.kernels.scaling import has_zero_point, scaling_reason
from tuner.program.kernels.scaling import needs_numbers as needs_numbers
from tuner.program.kernels.slow_paths import runs_in_scalar_loop as runs_in_scalar_loop
from tuner.program.kernels.slow_paths import untimed_kernel as untimed_kernel
from tuner.program.kernels.stored import WeightAxes, hold_weight, open_weight, pair_axis, store
from tuner.program.layer import CONV, EMBEDDING, INPUT, Layer
from tuner.program.sites import site_shape
from tuner.program.steps import Site
from tuner.scales import LayerScales

_ROOMS = {
    "dot_general": dot,
    "ragged_dot_general": ragged,
    "conv_general_dilated": conv,
    "gather": gather,
    "dynamic_slice": gather,
}
# Imported for the kernels that they register.
_MORE = (conv_image, conv_layout, conv_patches, conv_shifted, conv_split, dot_batches, dot_layouts)


def weight_axes(site: Site) -> WeightAxes:
    """The axes of an operation's weight: which share one scale, and along which groups run."""
    axes: WeightAxes = _ROOMS[site.eqn.primitive.name].weight_axes(site)
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


def pack(site: Site, assignment: Assignment, weight: Any, scale: Any = None, offset: Any = None) -> dict[str, Any]:
    """The arrays that stand for the weight of an operation, laid out for its kernel.

    Args:
        site: the operation.
        assignment: what it runs in.
        weight: as the operation reads it.
        scale: what is folded into it, laid out to multiply it; None for nothing.
        offset: what is added to the result; None for nothing.
    """
    weight = weight if scale is None else weight * scale
    order = kernel_of(site, assignment).order(site)
    pairs = pair_axis(site_shape(site), weight_axes(site), only_shared=site.kind == EMBEDDING)
    packed = store(turn(held_weight(site, assignment, weight), order), assignment.precision, order.index(pairs))
    if offset is not None:
        packed[OFFSET] = offset
    if site.kind == EMBEDDING or not assignment.precision.is_calibrated:
        return packed
    factor = jnp.broadcast_to(1.0 if scale is None else scale, _channels(site))
    return {**packed, **no_numbers(assignment.precision, jnp.transpose(factor, order))}


def with_numbers(
    site: Site, assignment: Assignment, packed: Packed, numbers: Sequence[LayerScales], layer: str
) -> dict[str, Any]:
    """A packed weight, stacked or not, with the calibrated numbers of its layer.

    Raises:
        PolicyError: there are more or fewer than the weight has channels and iterations.
    """
    order = kernel_of(site, assignment).order(site)
    return {**packed, **calibrated_parts(numbers, packed["weight"].ndim, _channels(site), order, packed, layer)}


def _channels(site: Site) -> tuple[int, ...]:
    """The shape of the weight with the axes that are summed over of length one."""
    shared = weight_axes(site).shared
    return tuple(1 if axis in shared else size for axis, size in enumerate(site_shape(site)))


def activations_of(site: Site) -> int:
    """Which operand of an operation with a weight its activations are."""
    (position,) = _ROOMS[site.eqn.primitive.name].activation_axes(site)
    return int(position)


def has_channels(site: Site) -> bool:
    """True where every result belongs to one output channel of the weight, whatever the inputs say."""
    return hasattr(_ROOMS[site.eqn.primitive.name], "mean_by_channel")


def mean_by_channel(site: Site, result: Any) -> Any:
    """The mean of a result for each output channel, in the axes of the weight."""
    return _ROOMS[site.eqn.primitive.name].mean_by_channel(site, result)


def held_activations(
    site: Site, assignment: Assignment, packed: Packed | None, operands: Sequence[Any]
) -> list[tuple[int, Format, dict[str, Any]]]:
    """The activations that an operation reads, as its kernel holds them: operand, format, and what `hold` gives."""
    precision = assignment.precision
    axes: dict[int, tuple[int, ...]] = _ROOMS[site.eqn.primitive.name].activation_axes(site)
    held = []
    for position, along in axes.items():
        left_of_two = site.weight_operand is None and position == 0
        format = precision.weights if left_of_two else precision.activations
        parts = hold_activations(operands[position], precision, along, packed, left_of_two=left_of_two)
        held.append((position, format, parts))
    return held


def held_weight(site: Site, assignment: Assignment, weight: Any) -> dict[str, Any]:
    """The weight of an operation in its format, in its own layout, before it is stored."""
    return hold_weight(weight, assignment.precision, weight_axes(site))


def turn(packed: Packed, axes: tuple[int, ...] | None) -> dict[str, Any]:
    """A packed weight with its axes in another order; None leaves it as it is."""
    if axes is None or axes == tuple(range(len(axes))):
        return dict(packed)
    return {name: jnp.transpose(part, axes) if name in IN_WEIGHT_AXES else part for name, part in packed.items()}


def run(site: Site, assignment: Assignment, packed: Packed | None, operands: list[Any]) -> Any:
    """The operation's result in the dtype (and weak type) that the user's program had, or in its output format."""
    return _run(packed, operands, operation=Alike(site), assignment=assignment)


# Traced once for operations that look alike, and then a part of the caller's program like any other.
@partial(jax.jit, static_argnames=("operation", "assignment"), inline=True)
def _run(packed: Packed | None, operands: list[Any], *, operation: Alike, assignment: Assignment) -> Any:
    site = operation.site
    kernel = kernel_of(site, assignment)
    if packed is not None and site.kind != EMBEDDING:  # a look-up opens the rows that it takes
        packed = _opened(site, kernel, assignment.precision, packed)
    if site.kind == CONV and has_zero_point(assignment.precision):
        site, image = conv.padded_before(site, operands[0])
        operands = [image, *operands[1:]]
    result = kernel.run(site, assignment.precision, packed, operands)
    if packed is not None and OFFSET in packed:
        result = result.astype(jnp.float32) + packed[OFFSET]
    (out,) = site.eqn.outvars
    output = assignment.precision.output
    if output is not None and _bits(out.aval.dtype) > output.bits:
        return result.astype(output.dtype)
    result = result.astype(out.aval.dtype)
    return compat.weak(result) if out.aval.weak_type else result


def _opened(site: Site, kernel: Kernel, precision: Precision, packed: Packed) -> dict[str, Any]:
    """A packed weight as its kernel takes it."""
    order = kernel.order(site)
    shape = site_shape(site)
    shared = tuple(order.index(axis) for axis in weight_axes(site).shared)
    return open_weight(packed, precision, tuple(shape[axis] for axis in order), shared)


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
    reason = scaling_reason(layer, precision)
    if reason:
        return reason
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
