"""How the operands of a product are held, brought together and scaled back."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

from search_spaces import Format, Precision
from search_spaces.quantize import cast, quantize

# What prepare keeps of a weight: "weight", "scale" where the format needs one, and "offset" where something is folded in.
Packed = Mapping[str, Any]
OFFSET = "offset"


def hold(value: Any, format: Format, axes: tuple[int, ...]) -> dict[str, Any]:
    """One operand in a format.

    Args:
        value: a floating array.
        format: what to hold it in.
        axes: the axes that share one scale, for formats that need a scale.

    Returns:
        "weight": the array in the format's dtype; "scale": float32, `axes` kept with length one, only for integers.
    """
    if format.kind == "int":
        values, scale = quantize(value, format, axes)
        return {"weight": values, "scale": scale}
    return {"weight": cast(jnp.asarray(value), format)}  # numpy would warn of what becomes infinite


def meet(held: tuple[Packed, Packed], precision: Precision) -> tuple[Any, Any]:
    """Both operands in the one dtype that they are multiplied in; widening is exact, scales are applied to the result."""
    left, right = (part["weight"] for part in held)
    if left.dtype == right.dtype:
        return left, right
    if precision.is_weight_only:
        dtype = precision.activations.dtype
    elif precision.weights.bits == precision.activations.bits:  # bf16 and f16 meet in float32
        dtype = "float32"
    else:
        dtype = max(precision.weights, precision.activations, key=lambda format: format.bits).dtype
    return left.astype(dtype), right.astype(dtype)


def scale_back(result: Any, held: tuple[Packed, Packed], on_result: Callable[[Any, int], Any]) -> Any:
    """The result times its operands' scales, in float32 where there are any.

    Args:
        result: what the product gave.
        held: left and right operand.
        on_result: lays a scale of operand 0 or 1 out so that it multiplies the result.
    """
    for side, part in enumerate(held):
        if "scale" in part:
            result = result.astype(jnp.float32) * on_result(part["scale"], side)
    return result


def own_precision(eqn: Any, operands: tuple[Any, Any]) -> Any:
    """The `precision=` argument the user gave, where the operands still have the dtype it was given for."""
    same = all(value.dtype == variable.aval.dtype for value, variable in zip(operands, eqn.invars[:2], strict=True))
    return eqn.params["precision"] if same else None
