"""Two i4 per byte: how four-bit integers lie in memory, as uint8, and are taken apart inside a program.

The even element of a pair is the low half of its byte. Every pair lies side by side along one axis, so that an array split
over devices along any axis stays split where it was.
"""

import jax.numpy as jnp
from jax import Array, lax

_HALF = 4


def pack_nibbles(values: Array, axis: int) -> Array:
    """The bytes of integers from -8 to 7; `axis` is half as long, rounded up: the last half of an odd length is zero."""
    odd = values.shape[axis] % 2
    if odd:
        widths = [(0, odd if i == axis else 0) for i in range(values.ndim)]
        values = jnp.pad(values, widths)
    low, high = (lax.slice_in_dim(values, start, None, 2, axis).astype(jnp.uint8) for start in (0, 1))
    return (low & 0xF) | (high << _HALF)


def unpack_nibbles(packed: Array, axis: int, size: int) -> Array:
    """The integers, as int8; `size` is the length of the axis before it was packed."""
    pairs = lax.broadcast_in_dim(
        packed,
        (*packed.shape[: axis + 1], 2, *packed.shape[axis + 1 :]),
        (*range(axis + 1), *range(axis + 2, packed.ndim + 1)),
    )
    second = lax.broadcasted_iota(jnp.uint8, pairs.shape, axis + 1)
    # The wanted half is moved to the top, so that moving it down again brings its sign along.
    top = lax.shift_left(pairs, (1 - second) * jnp.uint8(_HALF))
    signed = lax.shift_right_arithmetic(lax.bitcast_convert_type(top, jnp.int8), jnp.int8(_HALF))
    flat = lax.reshape(signed, (*packed.shape[:axis], 2 * packed.shape[axis], *packed.shape[axis + 1 :]))
    return lax.slice_in_dim(flat, 0, size, axis=axis)
