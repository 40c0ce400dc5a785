"""Convolutions run in another layout than the model's own."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.conv import hold_image, on_result
from tuner.program.kernels.operands import Packed, meet, own_precision, scale_back
from tuner.program.kernels.registry import Kernel, register
from tuner.program.layer import CONV
from tuner.program.steps import Site

Axes = tuple[int, ...]


def channels_last(ndim: int) -> Axes:
    """Examples first, features last: positions of (examples, features, spatial...)."""
    return (0, ndim - 1, *range(1, ndim - 1))


def taps_first(ndim: int) -> Axes:
    """Spatial axes first, then input and output features: positions of (output, input, spatial...) in a kernel."""
    return (ndim - 1, ndim - 2, *range(ndim - 2))


def as_listed(ndim: int) -> Axes:
    """Examples and features, or output and input features, before the spatial axes."""
    return tuple(range(ndim))


def turned(spec: Axes, wanted: Axes) -> Axes:
    """The permutation that brings an array with layout `spec` to layout `wanted`."""
    source = dict(zip(wanted, spec, strict=True))
    return tuple(source[position] for position in range(len(spec)))


def taps_first_order(site: Site) -> Axes:
    """The axes of the kernel with the spatial ones first."""
    spec = site.eqn.params["dimension_numbers"].rhs_spec
    return turned(spec, taps_first(len(spec)))


def _in_layout(image_spec: Callable[[int], Axes], kernel_spec: Callable[[int], Axes], name: str, remark: str) -> None:
    """Registers the convolution in one layout, for those that are written in another."""

    def differs(site: Site, precision: Precision) -> bool:
        numbers = site.eqn.params["dimension_numbers"]
        ndim = len(numbers.lhs_spec)
        image, kernel = image_spec(ndim), kernel_spec(ndim)
        return (*numbers.lhs_spec, *numbers.out_spec) != image * 2 or tuple(numbers.rhs_spec) != kernel

    def order(site: Site) -> Axes:
        spec = site.eqn.params["dimension_numbers"].rhs_spec
        return turned(spec, kernel_spec(len(spec)))

    def run(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
        params = site.eqn.params
        numbers = params["dimension_numbers"]
        assert packed is not None  # a convolution with a computed kernel is never assigned
        both = hold_image(site, precision, operands[0], packed), packed
        left, right = meet(both, precision)
        inner = image_spec(left.ndim)
        result = jax.lax.conv_general_dilated(
            jnp.transpose(left, turned(numbers.lhs_spec, inner)),
            right,
            window_strides=params["window_strides"],
            padding=params["padding"],
            lhs_dilation=params["lhs_dilation"],
            rhs_dilation=params["rhs_dilation"],
            dimension_numbers=jax.lax.ConvDimensionNumbers(inner, kernel_spec(left.ndim), inner),
            feature_group_count=params["feature_group_count"],
            precision=own_precision(site.eqn, (left, right)),
            preferred_element_type=jnp.dtype(precision.accumulate.dtype),
        )
        back = jnp.transpose(result, turned(inner, numbers.out_spec))
        return scale_back(back, both, lambda scale, side: on_result(site, scale, side))

    register(
        Kernel(
            name=name,
            primitive="conv_general_dilated",
            kinds=(CONV,),
            applies=differs,
            order=order,
            run=run,
            remark=remark,
        )
    )


_in_layout(channels_last, taps_first, "channels_last", "image and kernel transposed to channels last around it")
_in_layout(as_listed, as_listed, "channels_first", "image and kernel transposed to channels first around it")
