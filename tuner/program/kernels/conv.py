"""Convolutions in one precision: any layout, strides, dilation and groups."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.operands import Packed, hold_activations, meet, own_precision, scale_back
from tuner.program.kernels.registry import PLAIN, Kernel, register
from tuner.program.kernels.stored import WeightAxes
from tuner.program.layer import CONV
from tuner.program.steps import Site


def all_but(ndim: int, axis: int) -> tuple[int, ...]:
    """Every axis but one."""
    return tuple(other for other in range(ndim) if other != axis)


def weight_axes(site: Site) -> WeightAxes:
    """The axes of the kernel: all but the output channels share one scale, and groups run along the input channels."""
    shape, spec = site.eqn.invars[1].aval.shape, site.eqn.params["dimension_numbers"].rhs_spec
    return WeightAxes.of(shape, all_but(len(shape), spec[0]), main=spec[1])


def activation_axes(site: Site) -> dict[int, tuple[int, ...]]:
    """The image -> the axes of it that share one scale: all but the examples."""
    return {0: all_but(site.eqn.invars[0].aval.ndim, site.eqn.params["dimension_numbers"].lhs_spec[0])}


def hold_image(site: Site, precision: Precision, image: Any, packed: Packed) -> Packed:
    """The image in its format; scaled ones have one scale per example, or that which the packed kernel brings."""
    return hold_activations(image, precision, activation_axes(site)[0], packed)


def padded_before(site: Site, image: Any) -> tuple[Site, Any]:
    """The convolution without padding, and the image with the zeros that were put around it and between its points.

    With a zero point these are numbers like any other: none of them is zero as an integer.
    """
    params = site.eqn.params
    widths = [(0, 0, 0)] * image.ndim
    spatial = params["dimension_numbers"].lhs_spec[2:]
    for axis, (low, high), step in zip(spatial, params["padding"], params["lhs_dilation"], strict=True):
        widths[axis] = (low, high, step - 1)
    bare = {"padding": ((0, 0),) * len(spatial), "lhs_dilation": (1,) * len(spatial)}
    eqn = site.eqn.replace(params={**params, **bare})
    return replace(site, eqn=eqn), jax.lax.pad(image, jnp.zeros((), image.dtype), widths)


def mean_by_channel(site: Site, result: Any) -> Any:
    """The mean of a result over all but its channels, in the axes of the kernel, all but the output of length one."""
    numbers = site.eqn.params["dimension_numbers"]
    mean = jnp.mean(result, axis=all_but(result.ndim, numbers.out_spec[1]))
    shape = [1] * result.ndim
    shape[numbers.rhs_spec[0]] = mean.size
    return jnp.reshape(mean, shape)


def on_result(site: Site, scale: Any, side: int) -> Any:
    """A scale of the image (per example) or the kernel (per output channel) laid out to multiply the result."""
    numbers = site.eqn.params["dimension_numbers"]
    shape = [1] * len(numbers.out_spec)
    shape[numbers.out_spec[side]] = scale.size
    return jnp.reshape(scale, shape)


def _run(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    params = site.eqn.params
    assert packed is not None  # a convolution with a computed kernel is never assigned
    both = hold_image(site, precision, operands[0], packed), packed
    left, right = meet(both, precision)
    result = jax.lax.conv_general_dilated(
        left,
        right,
        window_strides=params["window_strides"],
        padding=params["padding"],
        lhs_dilation=params["lhs_dilation"],
        rhs_dilation=params["rhs_dilation"],
        dimension_numbers=params["dimension_numbers"],
        feature_group_count=params["feature_group_count"],
        precision=own_precision(site.eqn, (left, right)),
        preferred_element_type=jnp.dtype(precision.accumulate.dtype),
    )
    return scale_back(result, both, lambda scale, side: on_result(site, scale, side))


register(
    Kernel(
        name=PLAIN,
        primitive="conv_general_dilated",
        kinds=(CONV,),
        applies=lambda site, precision: True,
        run=_run,
        remark="the convolution as written",
    )
)
