"""Affine: what a model multiplies a layer's result by, and adds to it, as one scale and one offset per output channel.

Batch norm in evaluation, a bias, a learned scale: `scale * result + offset`, where both depend on parameters alone and differ
between output channels only. The scale can then be packed with the weight, and one addition is left of them all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from tuner.program.expression import Expression, Result
from tuner.program.kernels.dot_dimensions import Dimensions
from tuner.program.layer import CONV, MATMUL
from tuner.program.steps import Body, Reference, Site, Step, readers_by_slot

# Of `result op value`, or `value op result`, what becomes of (scale, offset).
_EFFECTS: Mapping[tuple[str, bool], Callable[[Any, Any, Any], tuple[Any, Any]]] = {
    ("add", True): lambda scale, offset, value: (scale, offset + value),
    ("add", False): lambda scale, offset, value: (scale, offset + value),
    ("sub", True): lambda scale, offset, value: (scale, offset - value),
    ("sub", False): lambda scale, offset, value: (-scale, value - offset),
    ("mul", True): lambda scale, offset, value: (scale * value, offset * value),
    ("mul", False): lambda scale, offset, value: (scale * value, offset * value),
    ("div", True): lambda scale, offset, value: (scale / value, offset / value),
}


@dataclass(frozen=True, eq=False, slots=True)
class Affine:
    """Consecutive operations on an operation's result that are one scale and one offset per output channel.

    Attributes:
        site: the operation.
        steps: those on its result, in order.
        values: for each what it adds or multiplies, as an expression.
        first: for each whether the result is its first operand.
    """

    site: Site
    steps: tuple[Step, ...]
    values: tuple[Expression, ...]
    first: tuple[bool, ...]

    @property
    def pays(self) -> bool:
        """False for a bias alone: to pack it saves nothing."""
        return len(self.steps) > 1 or self.steps[0].eqn.primitive.name != "add"

    def scale_and_offset(self, evaluate: Callable[[Expression], Any]) -> tuple[Any, Any]:
        """The scale, laid out to multiply the weight, and the offset, laid out to be added to the result."""
        (out,) = self.site.eqn.outvars
        scale, offset = jnp.float32(1.0), jnp.float32(0.0)
        for step, value, first in zip(self.steps, self.values, self.first, strict=True):
            laid = _laid_out(value, evaluate, out.aval.ndim).astype(jnp.float32)
            scale, offset = _EFFECTS[step.eqn.primitive.name, first](scale, offset, laid)
        return _on_weight(self.site, scale), offset


def find_affines(steps: Sequence[Step], outputs: Sequence[Reference]) -> dict[int, Affine]:
    """Identity of a site -> what can be folded into it, in these steps and in what they hold.

    Args:
        steps: the steps of a program or of a body.
        outputs: what it hands on.
    """
    readers = readers_by_slot(steps, outputs)
    found = {}
    for step in steps:
        for body in step.bodies:
            found.update(find_affines(body.steps, body.outputs))
        affine = None if step.site is None else _follow(step, step.site, readers)
        if affine is not None:
            found[id(affine.site)] = affine
    return found


def fold(steps: Sequence[Step], chosen: Mapping[int, Affine]) -> tuple[Step, ...]:
    """The steps with the chosen operations left out: the site hands on what the last of them did."""
    gone = {id(step) for affine in chosen.values() for step in affine.steps}
    if not gone:
        return tuple(steps)
    return tuple(_folded(step, chosen) for step in steps if id(step) not in gone)


def _folded(step: Step, chosen: Mapping[int, Affine]) -> Step:
    affine = chosen.get(id(step.site))
    if affine is not None:
        return replace(step, results=affine.steps[-1].results)
    if not any(id(site) in chosen for site in step.sites()):
        return step
    return replace(step, bodies=tuple(_fold_body(body, chosen) for body in step.bodies))


def _fold_body(body: Body, chosen: Mapping[int, Affine]) -> Body:
    return replace(body, steps=fold(body.steps, chosen))


def _follow(step: Step, site: Site, readers: Mapping[int, Sequence[Step | None]]) -> Affine | None:
    if (
        site.kind not in (MATMUL, CONV)
        or site.eqn.primitive.name == "ragged_dot_general"
        or site.weight_operand is None
    ):
        return None
    (out,) = site.eqn.outvars
    own = _own_axes(site)
    chain: list[tuple[Step, Expression, bool]] = []
    (slot,) = step.results
    while slot is not None and len(readers[slot]) == 1:
        (reader,) = readers[slot]
        link = None if reader is None else _link(reader, slot, out.aval, own)
        if link is None:
            break
        chain.append(link)
        (slot,) = link[0].results
    if not chain:
        return None
    linked, values, first = zip(*chain, strict=True)
    return Affine(site, linked, values, first)


def _link(step: Step, slot: int, result: Any, own: frozenset[int]) -> tuple[Step, Expression, bool] | None:
    """The step, what it adds or multiplies, and whether the slot is its first operand; None where it cannot be folded."""
    if len(step.operands) != 2 or step.bodies or step.eqn.effects:
        return None
    first = step.operands[0] == slot
    value = step.operands[1 if first else 0]
    (out,) = step.eqn.outvars
    if isinstance(value, int) or (step.eqn.primitive.name, first) not in _EFFECTS:
        return None
    same = out.aval.shape == result.shape and out.aval.dtype == result.dtype
    return (step, value, first) if same and _varies_along(value, result.ndim) <= own else None


def _varies_along(value: Expression, ndim: int) -> frozenset[int]:
    """The axes of a result of `ndim` axes along which a value that meets it differs."""
    inner, axes = _unbroadcast(value, ndim)
    return frozenset(axis for axis, size in zip(axes, inner.aval.shape, strict=True) if size != 1)


def _unbroadcast(value: Expression, ndim: int) -> tuple[Expression, tuple[int, ...]]:
    """What was broadcast to the value, and the axes of the result that its own lie on."""
    axes = tuple(range(ndim - value.aval.ndim, ndim))
    while isinstance(value, Result) and value.computation.eqn.primitive.name == "broadcast_in_dim":
        dimensions = value.computation.eqn.params["broadcast_dimensions"]
        axes = tuple(axes[axis] for axis in dimensions)
        value = value.computation.operands[0]
    return value, axes


def _laid_out(value: Expression, evaluate: Callable[[Expression], Any], ndim: int) -> Any:
    """The value with the axes of the result, those that it does not differ along of length one."""
    inner, axes = _unbroadcast(value, ndim)
    shape = [1] * ndim
    for axis, size in zip(axes, inner.aval.shape, strict=True):
        shape[axis] = size
    return jnp.reshape(jnp.asarray(evaluate(inner)), shape)


def _own_axes(site: Site) -> frozenset[int]:
    """The axes of the result that are the weight's own."""
    return frozenset(axis for axis, _ in _axis_pairs(site))


def _axis_pairs(site: Site) -> list[tuple[int, int]]:
    """Pairs of an axis of the result and the axis of the weight that it comes from."""
    numbers = site.eqn.params["dimension_numbers"]
    if site.kind == CONV:
        return [(numbers.out_spec[1], numbers.rhs_spec[0])]
    assert site.weight_operand is not None  # asked of operations with a weight
    dimensions, side = Dimensions.of(site.eqn), site.weight_operand
    start = len(dimensions.batch[0]) + (len(dimensions.free[0]) if side == 1 else 0)
    own = enumerate(dimensions.free[side], start)
    return [*enumerate(dimensions.batch[side]), *own]


def _on_weight(site: Site, scale: Any) -> Any:
    """A scale over the axes of the result, laid out to multiply the weight."""
    if scale.ndim == 0:
        return scale
    pairs = sorted(_axis_pairs(site), key=lambda pair: pair[1])
    assert site.weight_operand is not None  # asked of operations with a weight
    shape = [1] * site.eqn.invars[site.weight_operand].aval.ndim
    for axis, place in pairs:
        shape[place] = scale.shape[axis]
    order = [axis for axis, _ in pairs]
    rest = [axis for axis in range(scale.ndim) if axis not in order]
    return jnp.reshape(jnp.transpose(scale, (*order, *rest)), shape)
