"""Kernels: the equivalent ways to run one operation in one precision, by name.

Kernels of one precision give equal results up to the order of one accumulation, so which one runs is decided by time alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from search_spaces import Precision
from tuner.program.kernels.operands import Packed
from tuner.program.steps import Site

PLAIN = "plain"


def as_written(site: Site) -> tuple[int, ...]:
    """The weight's axes as the operation reads them."""
    assert site.weight_operand is not None  # a product of two activations has no weight
    return tuple(range(site.eqn.invars[site.weight_operand].aval.ndim))


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """One way to run an operation.

    Attributes:
        name: as policies spell it.
        primitive: the operation it is for, as jaxprs call it.
        kinds: the layer kinds it is for.
        applies: whether it can run this operation in this precision.
        order: the weight's axes in the order in which the packed weight has them.
        run: (site, precision, packed weight or None, operands) -> result, in the accumulator's dtype or float32.
        remark: one line on when it pays.
    """

    name: str
    primitive: str
    kinds: tuple[str, ...]
    applies: Callable[[Site, Precision], bool]
    run: Callable[[Site, Precision, Packed | None, list[Any]], Any]
    remark: str
    order: Callable[[Site], tuple[int, ...]] = as_written


_KERNELS: dict[tuple[str, str, str], Kernel] = {}


def register(kernel: Kernel) -> Kernel:
    """Adds a kernel for each of its kinds; a second one of the same name is an error."""
    for kind in kernel.kinds:
        key = (kernel.primitive, kind, kernel.name)
        if key in _KERNELS:
            raise ValueError(f"kernel {kernel.name!r} for {kernel.primitive} of {kind} is registered already")
        _KERNELS[key] = kernel
    return kernel


def find_kernel(site: Site, name: str) -> Kernel | None:
    """The kernel of that name, None when there is none for such an operation."""
    return _KERNELS.get((site.eqn.primitive.name, site.kind, name))


def plain_kernel(site: Site) -> Kernel:
    """The kernel that runs such an operation as written; every operation has one."""
    return _KERNELS[site.eqn.primitive.name, site.kind, PLAIN]


def kernels_for(site: Site, precision: Precision) -> tuple[Kernel, ...]:
    """The kernels that can run an operation in a precision, the plain one first."""
    operation = (site.eqn.primitive.name, site.kind)
    return tuple(k for key, k in _KERNELS.items() if key[:2] == operation and k.applies(site, precision))
