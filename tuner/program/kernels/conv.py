"""Convolutions in one precision: any layout, strides, dilation and groups."""

from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.operands import Packed, hold, meet, own_precision, scale_back
from tuner.program.steps import Site


def shared_axes(site: Site) -> tuple[int, ...]:
    """The axes of the kernel that share one scale: all but the output channels."""
    return _all_but(site.eqn.invars[1].aval.ndim, site.eqn.params["dimension_numbers"].rhs_spec[0])


def run(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    """The convolution, in the accumulator's dtype or float32; integer activations have one scale per example."""
    params = site.eqn.params
    numbers = params["dimension_numbers"]
    assert packed is not None  # a convolution with a computed kernel is never assigned
    both = hold(operands[0], precision.activations, _all_but(operands[0].ndim, numbers.lhs_spec[0])), packed
    left, right = meet(both, precision)
    result = jax.lax.conv_general_dilated(
        left,
        right,
        window_strides=params["window_strides"],
        padding=params["padding"],
        lhs_dilation=params["lhs_dilation"],
        rhs_dilation=params["rhs_dilation"],
        dimension_numbers=numbers,
        feature_group_count=params["feature_group_count"],
        precision=own_precision(site.eqn, (left, right)),
        preferred_element_type=jnp.dtype(precision.accumulate.dtype),
    )

    def on_result(scale: Any, side: int) -> Any:
        shape = [1] * result.ndim
        shape[numbers.out_spec[side]] = scale.size  # the example axis for the image, the feature axis for the kernel
        return jnp.reshape(scale, shape)

    return scale_back(result, both, on_result)


def _all_but(ndim: int, axis: int) -> tuple[int, ...]:
    return tuple(other for other in range(ndim) if other != axis)
