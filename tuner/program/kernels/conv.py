"""Convolutions in one precision: any layout, strides, dilation and groups."""

from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.operands import Packed, hold, meet, own_precision, scale_back
from tuner.program.kernels.registry import PLAIN, Kernel, register
from tuner.program.layer import CONV
from tuner.program.steps import Site


def all_but(ndim: int, axis: int) -> tuple[int, ...]:
    """Every axis but one."""
    return tuple(other for other in range(ndim) if other != axis)


def shared_axes(site: Site) -> tuple[int, ...]:
    """The axes of the kernel that share one scale: all but the output channels."""
    return all_but(site.eqn.invars[1].aval.ndim, site.eqn.params["dimension_numbers"].rhs_spec[0])


def activation_axes(site: Site) -> dict[int, tuple[int, ...]]:
    """The image -> the axes of it that share one scale: all but the examples."""
    return {0: all_but(site.eqn.invars[0].aval.ndim, site.eqn.params["dimension_numbers"].lhs_spec[0])}


def hold_image(site: Site, precision: Precision, image: Any) -> Packed:
    """The image in its format; integers have one scale per example."""
    return hold(image, precision.activations, activation_axes(site)[0])


def on_result(site: Site, scale: Any, side: int) -> Any:
    """A scale of the image (per example) or the kernel (per output channel) laid out to multiply the result."""
    numbers = site.eqn.params["dimension_numbers"]
    shape = [1] * len(numbers.out_spec)
    shape[numbers.out_spec[side]] = scale.size
    return jnp.reshape(scale, shape)


def _run(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    params = site.eqn.params
    assert packed is not None  # a convolution with a computed kernel is never assigned
    both = hold_image(site, precision, operands[0]), packed
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
