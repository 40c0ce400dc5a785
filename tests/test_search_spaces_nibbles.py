import jax
import jax.numpy as jnp
import numpy as np
import pytest

from search_spaces.nibbles import pack_nibbles, unpack_nibbles

EVERY = np.arange(-8, 8, dtype=np.int8)


def test_every_value_comes_back_from_half_the_bytes():
    packed = pack_nibbles(jnp.asarray(EVERY), 0)
    assert (packed.dtype, packed.nbytes) == (jnp.uint8, 8)
    np.testing.assert_array_equal(jax.jit(lambda p: unpack_nibbles(p, 0, 16))(packed), EVERY)
    assert unpack_nibbles(packed, 0, 16).dtype == jnp.int8


def test_the_even_element_is_the_low_half():
    np.testing.assert_array_equal(pack_nibbles(jnp.asarray([1, 2, -1, 0], jnp.int8), 0), [0x21, 0x0F])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_along_any_axis_of_any_length(axis):
    values = np.random.default_rng(0).integers(-8, 8, (5, 4, 3)).astype(np.int8)
    packed = pack_nibbles(jnp.asarray(values), axis)
    assert packed.shape[axis] == (values.shape[axis] + 1) // 2
    np.testing.assert_array_equal(unpack_nibbles(packed, axis, values.shape[axis]), values)
