"""What calibration found, as arrays beside a packed weight: `input_scale`, `input_zero` and `correction`."""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from search_spaces import Precision
from tuner.errors import PolicyError
from tuner.program.kernels.operands import Packed
from tuner.scales import LayerScales

Axes = tuple[int, ...]


def no_numbers(precision: Precision, factor: Any) -> dict[str, Any]:
    """Such arrays before the numbers are there; a kernel can be timed with them.

    Args:
        precision: of the layer.
        factor: by how much each output channel is larger than what was calibrated, in the layout of the kernel.
    """
    parts: dict[str, Any] = {}
    if precision.scaling == "static":
        parts["input_scale"] = jnp.ones((), jnp.float32)
        if not precision.symmetric and precision.activations.kind == "int":
            parts["input_zero"] = jnp.zeros((), jnp.int32)
    if precision.bias_correction:
        parts["correction"] = factor.astype(jnp.float32)
    return parts


def calibrated_parts(
    numbers: Sequence[LayerScales], ndim: int, channels: Axes, order: Axes, packed: Packed, layer: str
) -> dict[str, Any]:
    """The arrays of a layer's numbers.

    Args:
        numbers: of the layer, or of each of the iterations that stand behind it.
        ndim: axes of the packed weight, stacked or not.
        channels: the shape of a correction, in the weight's own axes.
        order: of the weight's axes in the layout of its kernel.
        packed: the weight, with what `no_numbers` gave.
        layer: what messages call it.

    Raises:
        PolicyError: there are more or fewer than the weight has channels and iterations.
    """
    stacked = packed["weight"].shape[: ndim - len(order)]
    own = tuple(channels[axis] for axis in order)
    parts: dict[str, Any] = {}
    scales = np.concatenate([one.scale for one in numbers])
    if scales.size:
        parts["input_scale"] = jnp.asarray(_laid_out(scales, stacked, (), layer), jnp.float32)
    zeros = np.concatenate([one.zero_point for one in numbers])
    if zeros.size:
        parts["input_zero"] = jnp.asarray(_laid_out(zeros, stacked, (), layer), jnp.int32)
    corrections = np.concatenate([one.correction for one in numbers])
    if corrections.size:
        whole = _laid_out(corrections, stacked, channels, layer)
        turned = (*range(len(stacked)), *(len(stacked) + axis for axis in order))
        found = jnp.reshape(jnp.asarray(np.transpose(whole, turned), jnp.float32), (*stacked, *own))
        parts["correction"] = found * packed.get("correction", jnp.float32(1.0))
    return parts


def _laid_out(values: NDArray[Any], stacked: Axes, shape: Axes, layer: str) -> NDArray[Any]:
    """Numbers for every iteration of a stacked weight: one for all, one for each, or one for each outermost one."""
    each = math.prod(shape)
    count, rest = divmod(values.size, each)
    if rest == 0 and count == math.prod(stacked):
        return values.reshape((*stacked, *shape))
    if rest == 0 and count in (1, *stacked[:1]):
        lead = (count, *(1 for _ in stacked[1:])) if stacked else ()
        return np.broadcast_to(values.reshape((*lead, *shape)), (*stacked, *shape))
    wanted = " or ".join(str(number * each) for number in dict.fromkeys((1, math.prod(stacked))))
    raise PolicyError(
        f"the policy has {values.size} numbers for layer {layer!r} where {wanted} belong; "
        "make them with tuner.calibrate(task, policy)"
    )
