"""How the operands of a product are held, brought together and scaled back.

An operand is a dictionary of arrays. "weight": its values in the format's dtype. "scale", for formats that need one, and
"zero", for integers with a zero point, with the axes that share one kept as length one. A packed weight may carry more:
"sums" over its contracting axes, which undo the zero point of the activations; what calibration found, "input_scale" and
"input_zero" of the activations, and "correction", the mean error of its rounding, to be added to the result.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from search_spaces import Format, Precision
from search_spaces.quantize import cast, quantize, quantize_asym, quantize_with

# What prepare keeps of a weight.
Packed = Mapping[str, Any]
OFFSET = "offset"
# The parts of it that have the axes of the weight.
IN_WEIGHT_AXES = frozenset({"weight", "scale", "zero", "sums", "correction"})


@partial(jax.tree_util.register_dataclass, data_fields=("values", "scale"), meta_fields=("dtype",))
@dataclass(frozen=True, slots=True)
class Held:
    """Activations that are held as an operation reads them, by its calibrated scale.

    Attributes:
        values: in the format's dtype.
        scale: float32, one number.
        dtype: that the program has there.
    """

    values: Any
    scale: Any
    dtype: str

    @property
    def wide(self) -> Any:
        """What they stand for, in the program's dtype."""
        return (self.values.astype(jnp.float32) * self.scale).astype(self.dtype)


def widened(value: Any) -> Any:
    """A value in the dtype that the program has there."""
    return value.wide if isinstance(value, Held) else value


def hold(value: Any, format: Format, axes: tuple[int, ...], *, symmetric: bool = True) -> dict[str, Any]:
    """One operand in a format, scaled by its own values where the format needs a scale.

    Args:
        value: a floating array.
        format: what to hold it in.
        axes: the axes that share one scale, for formats that need a scale.
        symmetric: False gives integers a zero point.

    Returns:
        "weight" and, for scaled formats, "scale" and perhaps "zero".
    """
    if not format.is_scaled:
        return {"weight": cast(jnp.asarray(value), format)}  # numpy would warn of what becomes infinite
    if symmetric or format.kind != "int":
        values, scale = quantize(value, format, axes)
        return {"weight": values, "scale": scale}
    values, scale, zero = quantize_asym(value, format, axes)
    return {"weight": values, "scale": scale, "zero": zero}


def hold_activations(
    value: Any, precision: Precision, axes: tuple[int, ...], packed: Packed | None, *, left_of_two: bool = False
) -> dict[str, Any]:
    """The activations of an operation in their format: by the scale that the packed weight brings, else by their own.

    Args:
        value: a floating array, or what is held so already.
        precision: of the layer.
        axes: the axes that share one scale, where it is found at run time.
        packed: the weight beside them, None for a product of two activations.
        left_of_two: whether it is the left one of two activations, whose format is the first.
    """
    if isinstance(value, Held):
        return {"weight": value.values, "scale": jnp.reshape(value.scale, (1,) * value.values.ndim)}
    format = precision.weights if left_of_two else precision.activations
    if packed is None or "input_scale" not in packed:
        return hold(value, format, axes, symmetric=precision.symmetric)
    shape = (1,) * jnp.ndim(value)
    held = {"scale": jnp.reshape(packed["input_scale"], shape)}
    if "input_zero" in packed:
        held["zero"] = jnp.reshape(packed["input_zero"], shape)
    return {"weight": quantize_with(value, format, held["scale"], held.get("zero")), **held}


def meet(held: tuple[Packed, Packed], precision: Precision) -> tuple[Any, Any]:
    """Both operands in the one dtype that they are multiplied in; widening is exact, scales are applied to the result."""
    left, right = (part["weight"] for part in held)
    if left.dtype == right.dtype:
        return left, right
    if precision.is_weight_only:
        dtype = precision.activations.dtype
    elif precision.weights.bits == precision.activations.bits:  # bf16 and f16, or both f8, meet in float32
        dtype = "float32"
    else:
        dtype = max(precision.weights, precision.activations, key=lambda format: format.bits).dtype
    return left.astype(dtype), right.astype(dtype)


def scale_back(result: Any, held: tuple[Packed, Packed], on_result: Callable[[Any, int], Any]) -> Any:
    """The result without its operands' zero points, times their scales, plus a correction; in float32 where there are any.

    Args:
        result: what the product gave.
        held: left and right operand.
        on_result: lays a scale of operand 0 or 1 out so that it multiplies the result.
    """
    for side, part in enumerate(held):
        if "zero" in part:  # in integers: the two terms may be much larger than their difference
            result = result - on_result(part["zero"], side) * on_result(held[1 - side]["sums"], 1 - side)
    for side, part in enumerate(held):
        if "scale" in part:
            result = result.astype(jnp.float32) * on_result(part["scale"], side)
    for side, part in enumerate(held):
        if "correction" in part:
            result = result.astype(jnp.float32) + on_result(part["correction"], side)
    return result


def own_precision(eqn: Any, operands: tuple[Any, Any]) -> Any:
    """The `precision=` argument the user gave, where the operands still have the dtype it was given for."""
    same = all(value.dtype == variable.aval.dtype for value, variable in zip(operands, eqn.invars[:2], strict=True))
    return eqn.params["precision"] if same else None
