"""One-dimensional convolutions as those of images one pixel high, which backends have fast paths for."""

from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.conv import hold_image, on_result
from tuner.program.kernels.conv_layout import channels_last, taps_first, taps_first_order, turned
from tuner.program.kernels.operands import Packed, meet, own_precision, scale_back
from tuner.program.kernels.registry import Kernel, register
from tuner.program.layer import CONV
from tuner.program.steps import Site


def _is_a_line(site: Site, precision: Precision) -> bool:
    return len(site.eqn.params["window_strides"]) == 1


def _run(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    params = site.eqn.params
    numbers = params["dimension_numbers"]
    assert packed is not None  # a convolution with a computed kernel is never assigned
    both = hold_image(site, precision, operands[0], packed), packed
    left, right = meet(both, precision)
    line = jnp.transpose(left, turned(numbers.lhs_spec, channels_last(3)))
    result = jax.lax.conv_general_dilated(
        line[:, None],
        right[None],
        window_strides=(1, *params["window_strides"]),
        padding=((0, 0), *params["padding"]),
        lhs_dilation=(1, *params["lhs_dilation"]),
        rhs_dilation=(1, *params["rhs_dilation"]),
        dimension_numbers=jax.lax.ConvDimensionNumbers(channels_last(4), taps_first(4), channels_last(4)),
        feature_group_count=params["feature_group_count"],
        precision=own_precision(site.eqn, (left, right)),
        preferred_element_type=jnp.dtype(precision.accumulate.dtype),
    )
    back = jnp.transpose(result[:, 0], turned(channels_last(3), numbers.out_spec))
    return scale_back(back, both, lambda scale, side: on_result(site, scale, side))


register(
    Kernel(
        name="as_image",
        primitive="conv_general_dilated",
        kinds=(CONV,),
        applies=_is_a_line,
        order=taps_first_order,
        run=_run,
        remark="one spatial axis: an image one pixel high, channels last",
    )
)
