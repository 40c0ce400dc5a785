"""Numbers put into a format and taken out again, in jax arithmetic; rounding is always to nearest even.

Two ways to round a float, and they differ under `jax.jit`:
- `cast` changes the dtype: what is stored and what an operation receives. When the result is widened again at once, XLA
  may skip both conversions (it allows itself excess precision) and the rounding with them.
- `round_to` keeps the dtype and rounds the value; XLA must not skip it.

What happens at the edges:
- Beyond the largest value, floats become infinite (f8_e4m3fn has no infinity: NaN) and integers stop at their largest.
- NaN and infinities pass through floats. In `cast` to an integer NaN becomes 0; `quantize` instead gives its whole group
  the scale NaN, so that `dequantize` is NaN there and the trouble is seen, never hidden. `quantize_with`, whose scale is
  known beforehand, has no such place: NaN becomes some integer there.
- f16 keeps its denormals. Those of f32 and bf16 survive a rounding, but arithmetic on most devices takes them for zero.
"""

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from search_spaces.errors import SearchSpaceError
from search_spaces.formats import Format

# Format -> its exponent and mantissa bits, for rounding without a change of dtype.
_BITS = {"f32": (8, 23), "bf16": (8, 7), "f16": (5, 10), "tf32": (8, 10)}

_SMALLEST_NORMAL_F32 = 2.0**-126
_SMALLEST_NORMAL_F16 = 2.0**-14
_SMALLEST_F16 = 2.0**-24


def cast(x: Array, format: Format) -> Array:
    """The same numbers in the format's dtype, rounded to nearest even; integers stop at their largest.

    Raises:
        SearchSpaceError: the format has no dtype (`original`).
    """
    if format.kind == "original":
        raise SearchSpaceError("nothing can be cast to 'original'; keep the array as it is")
    if format.kind == "float":
        return round_to(x, format) if format.name == "tf32" else x.astype(format.dtype)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.clip(x, -int(format.max), int(format.max)).astype(format.dtype)
    rounded = jnp.clip(lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), -format.max, format.max)
    return jnp.where(jnp.isnan(x), jnp.zeros_like(x), rounded).astype(format.dtype)


def round_to(x: Array, format: Format) -> Array:
    """The value that each number has in a float format, in the dtype that x already has; survives `jax.jit`.

    Raises:
        SearchSpaceError: the format is not f32, bf16, f16 or tf32.
    """
    if format.name not in _BITS:
        raise SearchSpaceError(f"cannot round in place to {format}; use one of {', '.join(_BITS)}")
    exponent, mantissa = _BITS[format.name]
    rounded = lax.reduce_precision(x, exponent, mantissa)
    if format.name != "f16" or x.dtype == jnp.float16:
        return rounded
    # reduce_precision takes denormals for zero; in f16 they are the multiples of 2**-24 below 2**-14.
    steps = lax.round(x * jnp.asarray(1 / _SMALLEST_F16, x.dtype), lax.RoundingMethod.TO_NEAREST_EVEN)
    denormal = steps * jnp.asarray(_SMALLEST_F16, x.dtype)
    return jnp.where(jnp.abs(x) < jnp.asarray(_SMALLEST_NORMAL_F16, x.dtype), denormal, rounded)


def quantize(x: Array, format: Format, axes: int | Sequence[int]) -> tuple[Array, Array]:
    """Values of a scaled format and their scale: x is nearly q * scale; for integers to half a scale.

    Args:
        x: floats of any width; the arithmetic is in float32.
        format: i8, i4 or an f8.
        axes: the axes that share one scale, for example the contracting axes of a weight.

    Returns:
        q in the dtype of `held_dtype` and the float32 scale, largest |x| / format.max, with `axes` kept as length one.
        Where all is zero the scale is 1; where anything is not finite the scale is NaN.

    Raises:
        SearchSpaceError: the format needs no scale.
    """
    _check_scaled(format)
    found: tuple[Array, Array] = _quantize(x, format, (axes,) if isinstance(axes, int) else tuple(axes))
    return found


def quantize_asym(x: Array, format: Format, axes: int | Sequence[int]) -> tuple[Array, Array, Array]:
    """Integers, their scale and zero point: x is nearly (q - zero) * scale, and zero itself is exact.

    Args:
        x: as of `quantize`.
        format: i8 or i4.
        axes: as of `quantize`.

    Returns:
        q over the whole range (-128 to 127 for i8), the scale, and the zero point as int32, both with `axes` kept.

    Raises:
        SearchSpaceError: the format is no integer.
    """
    _check_integer(format)
    found: tuple[Array, Array, Array] = _quantize_asym(x, format, (axes,) if isinstance(axes, int) else tuple(axes))
    return found


def quantize_with(x: Array, format: Format, scale: Array, zero: Array | None = None) -> Array:
    """Values of a scaled format by a scale that is known beforehand; what lies beyond its range stops at its ends.

    Args:
        x: floats of any width.
        format: i8, i4 or an f8.
        scale: float32, as broadcast against x.
        zero: the zero point of integers; None: symmetric.

    Raises:
        SearchSpaceError: the format needs no scale.
    """
    _check_scaled(format)
    steps = x.astype(jnp.float32) / scale
    if format.kind == "float":
        return lax.clamp(np.float32(-format.max), steps, np.float32(format.max)).astype(format.dtype)
    low, high = _range(format, symmetric=zero is None)
    whole = lax.round(steps, lax.RoundingMethod.TO_NEAREST_EVEN)
    if zero is not None:
        whole = whole + zero.astype(jnp.float32)
    return lax.clamp(np.float32(low), whole, np.float32(high)).astype(held_dtype(format))


def held_dtype(format: Format) -> str:
    """The dtype that arithmetic holds a format in: int8 for i4, which no device multiplies as it is."""
    return "int8" if format.name == "i4" else format.dtype


def _range(format: Format, symmetric: bool) -> tuple[float, float]:
    return (-format.max, format.max) if symmetric else (-format.max - 1, format.max)


def _check_scaled(format: Format) -> None:
    if not format.is_scaled:
        raise SearchSpaceError(f"{format} needs no scale; quantize to i8, i4, f8_e4m3fn or f8_e5m2, or cast")


def _check_integer(format: Format) -> None:
    if format.kind != "int" or not format.is_scaled:
        raise SearchSpaceError(f"{format} has no zero point; use i8 or i4")


# Compiled as one program where weights are packed, and traced once per shape where a model is rewritten.
@partial(jax.jit, static_argnames=("format", "axes"), inline=True)
def _quantize(x: Array, format: Format, axes: tuple[int, ...]) -> tuple[Array, Array]:
    # In as few operations as it takes: they are traced once for every operand of every layer.
    wide = x.astype(jnp.float32)
    empty = math.prod(x.shape) == 0
    largest = jnp.max(jnp.abs(wide), axis=axes, keepdims=True, initial=0.0 if empty else None)
    # A denormal scale would be taken for zero; with the smallest normal one, q is still within range.
    scale = lax.clamp(np.float32(_SMALLEST_NORMAL_F32), largest / format.max, _largest_scale(format))
    scale = lax.select(largest == 0.0, lax.full_like(scale, 1.0), scale)
    # Zero, or NaN. By subtraction: under debug_nans a constant NaN would be refused even where nothing selects it.
    scale = scale + (largest - largest)
    steps = wide / scale
    if format.kind == "float":
        return steps.astype(format.dtype), scale
    return lax.round(steps, lax.RoundingMethod.TO_NEAREST_EVEN).astype(held_dtype(format)), scale


@partial(jax.jit, static_argnames=("format", "axes"), inline=True)
def _quantize_asym(x: Array, format: Format, axes: tuple[int, ...]) -> tuple[Array, Array, Array]:
    wide = x.astype(jnp.float32)
    lowest = jnp.min(wide, axis=axes, keepdims=True, initial=0.0)
    largest = jnp.max(wide, axis=axes, keepdims=True, initial=0.0)
    low, high = _range(format, symmetric=False)
    # Halved first: the distance of two finite numbers may be none.
    half = largest / 2 - lowest / 2
    scale = lax.clamp(np.float32(_SMALLEST_NORMAL_F32), half / ((high - low) / 2), _largest_scale(format))
    scale = lax.select(half == 0.0, lax.full_like(scale, 1.0), scale) + (half - half)
    zero = lax.round(low - lowest / scale, lax.RoundingMethod.TO_NEAREST_EVEN)
    whole = lax.round(wide / scale, lax.RoundingMethod.TO_NEAREST_EVEN) + zero
    q = lax.clamp(np.float32(low), whole, np.float32(high)).astype(held_dtype(format))
    return q, scale, zero.astype(jnp.int32)


def _largest_scale(format: Format) -> np.float32:
    """Just below the largest float32 / format.max, so that q * scale is finite for every finite x."""
    return np.float32((2.0**128 - 2.0**104) / format.max * (1 - 2.0**-23))


def dequantize(q: Array, scale: Array, dtype: jax.typing.DTypeLike) -> Array:
    """The numbers that q and its scale stand for, in the dtype asked for; multiplied in float32."""
    return (q.astype(jnp.float32) * scale).astype(dtype)
