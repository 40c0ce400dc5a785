"""Convolutions without a convolution: products with shifted images, tap by tap."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Precision
from tuner.program.kernels.conv import hold_image, on_result
from tuner.program.kernels.operands import Packed, meet, scale_back
from tuner.program.kernels.registry import Kernel, register
from tuner.program.layer import CONV
from tuner.program.layer_scope import SHIFTED_PRODUCTS
from tuner.program.steps import Site


@dataclass(frozen=True, slots=True)
class Window:
    """How a kernel moves over an image."""

    # Axis of every spatial dimension in the image, and of the examples and features.
    spatial: tuple[int, ...]
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    # (before, after, between the points) of each.
    padding: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, site: Site) -> "Window":
        """The window of a convolution."""
        params = site.eqn.params
        numbers = params["dimension_numbers"]
        kernel = site.eqn.invars[1].aval.shape
        return cls(
            spatial=tuple(numbers.lhs_spec[2:]),
            taps=tuple(kernel[axis] for axis in numbers.rhs_spec[2:]),
            strides=tuple(params["window_strides"]),
            dilation=tuple(params["rhs_dilation"]),
            padding=tuple(
                (low, high, step - 1)
                for (low, high), step in zip(params["padding"], params["lhs_dilation"], strict=True)
            ),
        )

    def pad(self, image: Any) -> Any:
        """The image with zeros around it, and between its points where it is dilated; negative padding cuts."""
        widths = [(0, 0, 0)] * image.ndim
        for axis, width in zip(self.spatial, self.padding, strict=True):
            widths[axis] = width
        return jax.lax.pad(image, jnp.zeros((), image.dtype), widths)

    def shifts(self, padded: Any, sizes: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Any]]:
        """(tap, the part of the padded image that it meets), the parts as large as the result."""
        for tap in itertools.product(*map(range, self.taps)):
            starts, limits, strides = [0] * padded.ndim, list(padded.shape), [1] * padded.ndim
            for i, axis in enumerate(self.spatial):
                starts[axis] = tap[i] * self.dilation[i]
                limits[axis] = starts[axis] + (sizes[i] - 1) * self.strides[i] + 1
                strides[axis] = self.strides[i]
            yield tap, jax.lax.slice(padded, starts, limits, strides)


def sizes_of(site: Site) -> tuple[int, ...]:
    """Spatial sizes of the result."""
    out = site.eqn.outvars[0].aval.shape
    return tuple(out[axis] for axis in site.eqn.params["dimension_numbers"].out_spec[2:])


def _same_layout(site: Site) -> bool:
    params = site.eqn.params
    numbers = params["dimension_numbers"]
    return numbers.lhs_spec == numbers.out_spec and all(sizes_of(site))


def is_depthwise(site: Site) -> bool:
    """Whether every channel has a kernel of its own."""
    numbers = site.eqn.params["dimension_numbers"]
    kernel, channels = site.eqn.invars[1].aval.shape, site.eqn.invars[0].aval.shape[numbers.lhs_spec[1]]
    return bool(kernel[numbers.rhs_spec[0]] == channels == site.eqn.params["feature_group_count"] > 1)


def _can_shift(site: Site, precision: Precision) -> bool:
    return _same_layout(site) and is_depthwise(site)


def _tap(weight: Any, site: Site, tap: tuple[int, ...]) -> Any:
    """One tap of a kernel: (output features, input features of a group)."""
    spec = site.eqn.params["dimension_numbers"].rhs_spec
    return jnp.transpose(weight, spec)[(slice(None), slice(None), *tap)]


def _run_depthwise(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    assert packed is not None  # a convolution with a computed kernel is never assigned
    both = hold_image(site, precision, operands[0], packed), packed
    image, weight = meet(both, precision)
    sums = jnp.dtype(precision.accumulate.dtype)
    window = Window.of(site)
    feature_axis = site.eqn.params["dimension_numbers"].lhs_spec[1]
    shape = [1] * image.ndim
    shape[feature_axis] = image.shape[feature_axis]
    total: Any = None
    for tap, part in window.shifts(window.pad(image), sizes_of(site)):
        factor = jnp.reshape(_tap(weight, site, tap), shape).astype(sums)
        with jax.named_scope(SHIFTED_PRODUCTS):
            product = part.astype(sums) * factor
        total = product if total is None else total + product
    return scale_back(total, both, lambda scale, side: on_result(site, scale, side))


register(
    Kernel(
        name="shifted",
        primitive="conv_general_dilated",
        kinds=(CONV,),
        applies=_can_shift,
        run=_run_depthwise,
        remark="depthwise: shifted images times one number per channel, summed",
    )
)


def _is_ungrouped(site: Site, precision: Precision) -> bool:
    return _same_layout(site) and site.eqn.params["feature_group_count"] == 1


def _run_matmuls(site: Site, precision: Precision, packed: Packed | None, operands: list[Any]) -> Any:
    assert packed is not None  # a convolution with a computed kernel is never assigned
    both = hold_image(site, precision, operands[0], packed), packed
    image, weight = meet(both, precision)
    window = Window.of(site)
    numbers = site.eqn.params["dimension_numbers"]
    features = numbers.lhs_spec[1]
    total: Any = None
    for tap, part in window.shifts(window.pad(image), sizes_of(site)):
        product = jax.lax.dot_general(
            part,
            _tap(weight, site, tap),
            (((features,), (1,)), ((), ())),
            preferred_element_type=jnp.dtype(precision.accumulate.dtype),
        )
        total = product if total is None else total + product
    moved = jnp.moveaxis(total, -1, features)  # the product puts its features last
    return scale_back(moved, both, lambda scale, side: on_result(site, scale, side))


register(
    Kernel(
        name="matmuls",
        primitive="conv_general_dilated",
        kinds=(CONV,),
        applies=_is_ungrouped,
        run=_run_matmuls,
        remark="one matmul per tap: 1x1 always, larger kernels on small images",
    )
)
