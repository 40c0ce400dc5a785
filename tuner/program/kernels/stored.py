"""How a weight is stored, and how a kernel gets it: its scales per channel, tensor, row or group, two i4 in a byte.

What is stored tells by its shapes how it is to be read: bytes are half as long along one axis as the weight, and a scale is
as long as the weight where each index has its own, one where all share it, and in between where groups do.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from search_spaces import Precision
from search_spaces.nibbles import pack_nibbles, unpack_nibbles
from tuner.program.kernels.operands import Packed, hold

Axes = tuple[int, ...]
_GROUPS = {"g32": 32, "g64": 64, "g128": 128}


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightAxes:
    """The axes of an operation's weight.

    Attributes:
        shared: those that share one scale, where each channel has its own: what is summed over.
        main: of these the one along which groups and rows run, and bytes are pairs; None where there is none.
    """

    shared: Axes
    main: int | None

    @classmethod
    def of(cls, shape: tuple[int, ...], shared: Axes, main: int | None = None) -> "WeightAxes":
        """With the longest of the shared axes as the main one, the last of equals, unless it is given."""
        longest = max(shared, key=lambda axis: (shape[axis], axis), default=None)
        return cls(shared=tuple(shared), main=longest if main is None else main)


def group_size(precision: Precision) -> int | None:
    """How many numbers share a scale along the main axis; None where no groups are asked for."""
    return _GROUPS.get(precision.granularity)


def hold_weight(value: Any, precision: Precision, axes: WeightAxes) -> dict[str, Any]:
    """A weight in its format, in its own layout, as it is before it is stored."""
    format = precision.weights
    if not format.is_scaled:
        return hold(value, format, ())
    value = jnp.asarray(value)
    # A zero point is for the activations, where they are integers.
    symmetric = precision.symmetric or not precision.is_weight_only
    held = _hold_scaled(value, precision, axes, symmetric)
    if "zero" in held:
        held["zero"] = held["zero"].astype(jnp.int8)  # it is one of the values
    if not precision.symmetric and not precision.is_weight_only:
        held["sums"] = jnp.sum(held["weight"], axis=axes.shared, keepdims=True, dtype=jnp.int32)
    return held


def _hold_scaled(value: Any, precision: Precision, axes: WeightAxes, symmetric: bool) -> dict[str, Any]:
    format, main, group = precision.weights, axes.main, group_size(precision)
    every = tuple(range(value.ndim))
    if precision.granularity == "tensor":
        return hold(value, format, every, symmetric=symmetric)
    if precision.granularity == "row" and main is not None:
        return hold(value, format, tuple(axis for axis in every if axis != main), symmetric=symmetric)
    if group is None or main is None:
        return hold(value, format, axes.shared, symmetric=symmetric)
    shape = value.shape
    cut = jnp.reshape(value, (*shape[:main], shape[main] // group, group, *shape[main + 1 :]))
    held = hold(cut, format, (main + 1,), symmetric=symmetric)
    return {
        name: jnp.reshape(part, shape) if name == "weight" else jnp.squeeze(part, main + 1)
        for name, part in held.items()
    }


def pair_axis(shape: tuple[int, ...], axes: WeightAxes, *, only_shared: bool) -> int:
    """The axis of a weight along which two i4 lie in one byte: the main one where that wastes nothing, else the longest.

    Args:
        shape: of the weight.
        axes: its axes.
        only_shared: whether the others are picked from, as rows are, before bytes are taken apart.
    """
    able = axes.shared if only_shared else range(len(shape))
    return max(able, key=lambda axis: (shape[axis] % 2 == 0, axis == axes.main and shape[axis] > 1, shape[axis], axis))


def store(held: Packed, precision: Precision, axis: int) -> dict[str, Any]:
    """A held weight as it lies in memory.

    Args:
        held: in the layout of its kernel.
        precision: of the layer.
        axis: along which two i4 lie in one byte, in that layout.
    """
    if precision.weights.name != "i4":
        return dict(held)
    return {**held, "weight": pack_nibbles(held["weight"], axis)}


def unstore(packed: Packed, shape: tuple[int, ...]) -> dict[str, Any]:
    """What `store` was given.

    Args:
        packed: as it lies in memory, perhaps transposed.
        shape: of the weight in that layout.
    """
    weight = packed["weight"]
    if weight.dtype != jnp.uint8:
        return dict(packed)
    # Where no axis is shorter, there is one element.
    differing = (axis for axis, size in enumerate(shape) if weight.shape[axis] != size)
    axis = next(differing, weight.ndim - 1)
    return {**packed, "weight": unpack_nibbles(weight, axis, shape[axis])}


def widen_weight(packed: Packed, dtype: Any) -> dict[str, Any]:
    """A weight multiplied by its scale beforehand, where it has one, in a floating dtype."""
    if "scale" not in packed:
        return dict(packed)
    values = packed["weight"].astype(jnp.float32)
    if "zero" in packed:
        values = values - spread(packed["zero"], values.shape).astype(jnp.float32)
    values = values * spread(packed["scale"], values.shape)
    rest = {name: part for name, part in packed.items() if name not in ("scale", "zero")}
    return {**rest, "weight": values.astype(dtype)}


def open_weight(packed: Packed, precision: Precision, shape: tuple[int, ...], shared: Axes) -> dict[str, Any]:
    """A stored weight as products take it: one value per element, its scale one that multiplies the result.

    With integer activations a scale that differs along what is summed over stays, for the kernel to apply in between.

    Args:
        packed: as it lies in memory.
        precision: of the layer.
        shape: of the weight in that layout.
        shared: the axes there that are summed over.
    """
    opened = unstore(packed, shape)
    if "scale" not in opened or not precision.is_weight_only:
        return opened
    dtype = jnp.dtype(precision.activations.dtype)
    if any(opened["scale"].shape[axis] != 1 for axis in shared):
        return widen_weight(opened, dtype)
    if "zero" in opened:  # whole numbers up to 255, which every float format holds
        zero = opened.pop("zero").astype(dtype)
        opened["weight"] = opened["weight"].astype(dtype) - zero
    return opened


def spread(scale: Any, shape: tuple[int, ...]) -> Any:
    """A scale, or zero point, with its groups written out, so that it goes with an array of that shape."""
    for axis, size in enumerate(shape):
        own = scale.shape[axis]
        if own not in (1, size):
            scale = jnp.repeat(scale, size // own, axis=axis, total_repeat_length=size)
    return scale
