"""What is known to be slow before it is timed: XLA's CPU backend convolves integers in a scalar loop, with one exception.

The exception is a convolution of images with channels last, in one group, with the kernel's taps first. Everything else
takes 10 to 100 times as long, over small images in many groups thousands of times: minutes for what takes a second.
"""

from collections.abc import Sequence

from search_spaces import Precision
from tuner.program.kernels.conv_layout import channels_last, taps_first
from tuner.program.kernels.registry import PLAIN, kernels_for
from tuner.program.layer import CONV
from tuner.program.steps import Site

# The kernels that convolve, and so may end in that loop; the others multiply matrices or elements.
_CONVOLVES = frozenset({PLAIN, "channels_first", "channels_last", "as_image", "split"})
_TWO = 2


def runs_in_scalar_loop(site: Site, precision: Precision, kernel: str, platform: str) -> bool:
    """True for an integer convolution that the backend has no fast path for when it runs through that kernel."""
    if platform != "cpu" or site.kind != CONV or precision.is_original or kernel not in _CONVOLVES:
        return False
    if precision.activations.kind != "int":
        return False
    params = site.eqn.params
    grouped = params["feature_group_count"] > 1 and kernel != "split"
    if grouped or kernel == "channels_first" or any(step > 1 for step in params["lhs_dilation"]):
        return True
    return not _is_fast_layout(site, kernel)


def _is_fast_layout(site: Site, kernel: str) -> bool:
    numbers, weight = site.eqn.params["dimension_numbers"], site.eqn.invars[1].aval
    spatial = len(numbers.lhs_spec) - _TWO
    if all(weight.shape[axis] == 1 for axis in numbers.rhs_spec[2:]):
        return True  # XLA makes a matmul of it
    if kernel == "as_image":
        return True
    if spatial != _TWO:
        return False
    image, taps = channels_last(weight.ndim), taps_first(weight.ndim)
    as_it_is = (*numbers.lhs_spec, *numbers.out_spec) == image * 2 and tuple(numbers.rhs_spec) == taps
    return kernel == "channels_last" or as_it_is


def untimed_kernel(sites: Sequence[Site], precision: Precision, platform: str) -> str:
    """The kernel for a layer that was not timed: the plain one, unless that is known to be slow and another is not."""
    for site in sites:
        if runs_in_scalar_loop(site, precision, PLAIN, platform):
            for kernel in _by_preference(site, precision):
                if not runs_in_scalar_loop(site, precision, kernel, platform):
                    return kernel
    return PLAIN


def _by_preference(site: Site, precision: Precision) -> list[str]:
    """The kernels that can run an operation, those first that rarely lose."""
    names = [kernel.name for kernel in kernels_for(site, precision)]
    order = ("shifted", "channels_last", "as_image", "patches", "rows", "matmuls", "split")
    return [name for name in order if name in names]
