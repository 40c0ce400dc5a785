"""Kernels: the equivalent ways to run one kind of operation in one precision, by name.

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
        kinds: the layer kinds it is for.
        applies: whether it can run this operation in this precision.
        order: the weight's axes in the order in which the packed weight has them.
        run: (site, precision, packed weight or None, operands) -> result, in the accumulator's dtype or float32.
        remark: one line on when it pays.
    """

    name: str
    kinds: tuple[str, ...]
    applies: Callable[[Site, Precision], bool]
    run: Callable[[Site, Precision, Packed | None, list[Any]], Any]
    remark: str
    order: Callable[[Site], tuple[int, ...]] = as_written


_KERNELS: dict[tuple[str, str], Kernel] = {}


def register(kernel: Kernel) -> Kernel:
    """Adds a kernel for each of its kinds; a second one of the same name is an error."""
    for kind in kernel.kinds:
        if (kind, kernel.name) in _KERNELS:
            raise ValueError(f"kernel {kernel.name!r} for {kind} is registered already")
        _KERNELS[kind, kernel.name] = kernel
    return kernel


def find_kernel(kind: str, name: str) -> Kernel | None:
    """The kernel of that name, None when there is none for this kind."""
    return _KERNELS.get((kind, name))


def plain_kernel(kind: str) -> Kernel:
    """The kernel that runs operations of a kind as written; every kind has one."""
    return _KERNELS[kind, PLAIN]


def kernels_for(site: Site, precision: Precision) -> tuple[Kernel, ...]:
    """The kernels that can run an operation in a precision, the plain one first."""
    return tuple(k for (kind, _), k in _KERNELS.items() if kind == site.kind and k.applies(site, precision))
