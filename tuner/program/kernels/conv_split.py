"""Grouped convolutions as one convolution per group."""

from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.conv import hold_image, on_result
from tuner.program.kernels.conv_shifted import is_depthwise
from tuner.program.kernels.operands import Packed, meet, own_precision, scale_back
from tuner.program.kernels.registry import Kernel, plain_kernel, register
from tuner.program.layer import CONV
from tuner.program.steps import Site

# More would take longer to compile than they could save.
_MOST_GROUPS = 16


def _has_few_groups(site: Site, precision: Precision) -> bool:
    return 1 < site.eqn.params["feature_group_count"] <= _MOST_GROUPS and not is_depthwise(site)


def _run(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    params = site.eqn.params
    numbers, groups = params["dimension_numbers"], params["feature_group_count"]
    if not _has_few_groups(site, precision):  # the policy was made for a program with other groups
        return plain_kernel(site).run(site, precision, packed, operands)
    assert packed is not None  # a convolution with a computed kernel is never assigned
    both = hold_image(site, precision, operands[0], packed), packed
    left, right = meet(both, precision)
    images = jnp.split(left, groups, axis=numbers.lhs_spec[1])
    kernels = jnp.split(right, groups, axis=numbers.rhs_spec[0])
    results = [
        jax.lax.conv_general_dilated(
            image,
            kernel,
            window_strides=params["window_strides"],
            padding=params["padding"],
            lhs_dilation=params["lhs_dilation"],
            rhs_dilation=params["rhs_dilation"],
            dimension_numbers=numbers,
            precision=own_precision(site.eqn, (left, right)),
            preferred_element_type=jnp.dtype(precision.accumulate.dtype),
        )
        for image, kernel in zip(images, kernels, strict=True)
    ]
    result = jnp.concatenate(results, axis=numbers.out_spec[1])
    return scale_back(result, both, lambda scale, side: on_result(site, scale, side))


register(
    Kernel(
        name="split",
        primitive="conv_general_dilated",
        kinds=(CONV,),
        applies=_has_few_groups,
        run=_run,
        remark="a few groups: one convolution for each",
    )
)
