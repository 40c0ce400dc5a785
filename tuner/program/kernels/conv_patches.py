"""Convolutions as matmuls over patches: the parts of the image that a kernel meets, side by side."""

import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.conv import hold_image, on_result
from tuner.program.kernels.conv_layout import channels_last, taps_first_order, turned
from tuner.program.kernels.conv_shifted import Window, is_depthwise, sizes_of
from tuner.program.kernels.operands import Packed, meet, scale_back
from tuner.program.kernels.registry import Kernel, register
from tuner.program.layer import CONV
from tuner.program.steps import Site

# Numbers that the patches of one example may be: more are slower to write and read than any convolution.
_MOST = 2**21


def _patches_fit(site: Site, taps: tuple[int, ...]) -> bool:
    channels = site.eqn.invars[0].aval.shape[site.eqn.params["dimension_numbers"].lhs_spec[1]]
    return 0 < math.prod((*sizes_of(site), *taps, channels)) <= _MOST


def _window(site: Site) -> Window:
    """How the kernel moves over the image once that has its channels last."""
    window = Window.of(site)
    return replace(window, spatial=tuple(range(1, 1 + len(window.spatial))))


def _padded(site: Site, image: Any, window: Window) -> Any:
    """The image with its channels last and zeros around it."""
    spec = site.eqn.params["dimension_numbers"].lhs_spec
    return window.pad(jnp.transpose(image, turned(spec, channels_last(image.ndim))))


def _as_written(site: Site, result: Any) -> Any:
    """A result with channels last, in the layout that the program has it in."""
    spec = site.eqn.params["dimension_numbers"].out_spec
    return jnp.transpose(result, turned(channels_last(result.ndim), spec))


def _are_small(site: Site, precision: Precision) -> bool:
    taps = Window.of(site).taps
    is_one_matmul = math.prod(taps) == 1 and not _is_grouped(site)  # `matmuls` is that
    return not is_one_matmul and not is_depthwise(site) and _patches_fit(site, taps)


def _is_grouped(site: Site) -> bool:
    return bool(site.eqn.params["feature_group_count"] > 1)


def _run_patches(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    assert packed is not None  # a convolution with a computed kernel is never assigned
    both = hold_image(site, precision, operands[0], packed), packed
    image, weight = meet(both, precision)
    window, sizes, groups = _window(site), sizes_of(site), site.eqn.params["feature_group_count"]
    parts = [part for _, part in window.shifts(_padded(site, image, window), sizes)]
    if groups == 1:
        columns = jnp.concatenate(parts, axis=-1)
        result = _matmul(columns, jnp.reshape(weight, (-1, weight.shape[-1])), precision)
    else:
        columns = jnp.concatenate([jnp.reshape(part, (*part.shape[:-1], groups, -1)) for part in parts], axis=-1)
        matrices = jnp.reshape(weight, (-1, groups, weight.shape[-1] // groups))
        result = jax.lax.dot_general(
            jnp.reshape(columns, (-1, groups, matrices.shape[0])),
            matrices,
            (((2,), (0,)), ((1,), (1,))),
            preferred_element_type=jnp.dtype(precision.accumulate.dtype),
        )
        result = jnp.reshape(jnp.transpose(result, (1, 0, 2)), (columns.shape[0], *sizes, weight.shape[-1]))
    return scale_back(_as_written(site, result), both, lambda scale, side: on_result(site, scale, side))


def _matmul(rows: Any, matrix: Any, precision: Precision) -> Any:
    """The last axis of the rows times the first of the matrix."""
    return jax.lax.dot_general(
        rows,
        matrix,
        (((rows.ndim - 1,), (0,)), ((), ())),
        preferred_element_type=jnp.dtype(precision.accumulate.dtype),
    )


register(
    Kernel(
        name="patches",
        primitive="conv_general_dilated",
        kinds=(CONV,),
        applies=_are_small,
        order=taps_first_order,
        run=_run_patches,
        remark="the patches of a small image times the kernel: one matmul, in groups a batch of them",
    )
)


def _has_rows(site: Site, precision: Precision) -> bool:
    taps = Window.of(site).taps
    if _is_grouped(site) or len(taps) < 2:
        return False
    return taps[0] > 1 and math.prod(taps[1:]) > 1 and _patches_fit(site, taps[1:])


def _run_rows(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    assert packed is not None  # a convolution with a computed kernel is never assigned
    both = hold_image(site, precision, operands[0], packed), packed
    image, weight = meet(both, precision)
    window, sizes = _window(site), sizes_of(site)
    padded = _padded(site, image, window)
    # Patches of one row of the kernel each, at every row of the image; the kernel's rows are summed.
    across = replace(window, taps=(1, *window.taps[1:]), strides=(1, *window.strides[1:]))
    columns = jnp.concatenate([part for _, part in across.shifts(padded, (padded.shape[1], *sizes[1:]))], axis=-1)
    down = replace(window, spatial=(1,), taps=window.taps[:1])
    total: Any = None
    for (row,), part in down.shifts(columns, sizes[:1]):
        product = _matmul(part, jnp.reshape(weight[row], (-1, weight.shape[-1])), precision)
        total = product if total is None else total + product
    return scale_back(_as_written(site, total), both, lambda scale, side: on_result(site, scale, side))


register(
    Kernel(
        name="rows",
        primitive="conv_general_dilated",
        kinds=(CONV,),
        applies=_has_rows,
        order=taps_first_order,
        run=_run_rows,
        remark="one matmul per row of the kernel, over blocks of image rows",
    )
)
