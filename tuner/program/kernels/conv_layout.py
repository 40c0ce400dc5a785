"""Convolutions run with channels last, whatever the model's own layout is."""

from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.conv import hold_image, on_result
from tuner.program.kernels.operands import Packed, meet, own_precision, scale_back
from tuner.program.kernels.registry import Kernel, register
from tuner.program.layer import CONV
from tuner.program.steps import Site


def _inner_spec(ndim: int) -> tuple[int, ...]:
    """Examples first, features last: positions of (examples, features, spatial...)."""
    return (0, ndim - 1, *range(1, ndim - 1))


def _kernel_spec(ndim: int) -> tuple[int, ...]:
    """Spatial axes first, then input and output features: positions of (output, input, spatial...)."""
    return (ndim - 1, ndim - 2, *range(ndim - 2))


def _order(spec: tuple[int, ...], inner: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that brings an array with layout `spec` to layout `inner`."""
    source = dict(zip(inner, spec, strict=True))
    return tuple(source[position] for position in range(len(spec)))


def _features_elsewhere(site: Site, precision: Precision) -> bool:
    numbers = site.eqn.params["dimension_numbers"]
    spec: tuple[int, ...] = tuple(numbers.lhs_spec)
    return spec != _inner_spec(len(spec))


def _kernel_order(site: Site) -> tuple[int, ...]:
    spec = site.eqn.params["dimension_numbers"].rhs_spec
    return _order(spec, _kernel_spec(len(spec)))


def _run(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    params = site.eqn.params
    numbers = params["dimension_numbers"]
    assert packed is not None  # a convolution with a computed kernel is never assigned
    both = hold_image(site, precision, operands[0]), packed
    left, right = meet(both, precision)
    ndim = left.ndim
    inner = _inner_spec(ndim)
    result = jax.lax.conv_general_dilated(
        jnp.transpose(left, _order(numbers.lhs_spec, inner)),
        right,
        window_strides=params["window_strides"],
        padding=params["padding"],
        lhs_dilation=params["lhs_dilation"],
        rhs_dilation=params["rhs_dilation"],
        dimension_numbers=jax.lax.ConvDimensionNumbers(inner, _kernel_spec(ndim), inner),
        feature_group_count=params["feature_group_count"],
        precision=own_precision(site.eqn, (left, right)),
        preferred_element_type=jnp.dtype(precision.accumulate.dtype),
    )
    back = jnp.transpose(result, _order(inner, numbers.out_spec))
    return scale_back(back, both, lambda scale, side: on_result(site, scale, side))


register(
    Kernel(
        name="channels_last",
        primitive="conv_general_dilated",
        kinds=(CONV,),
        applies=_features_elsewhere,
        order=_kernel_order,
        run=_run,
        remark="image and kernel transposed to channels last around the convolution",
    )
)
