import jax
import jax.numpy as jnp
import numpy as np

from tuner.measure.weights import Weights, on_host

DEVICE = jax.devices()[0]


def test_weights_leave_the_device_and_come_back_to_where_they_were():
    tree = jax.device_put({"w": np.arange(6, dtype=np.float32), "key": jax.random.key(0)}, DEVICE)
    held = Weights(tree)
    held.bring_back()
    assert held.tree is tree
    for _ in range(2):
        held.set_aside()
        assert isinstance(held.tree["w"], np.ndarray)
        assert isinstance(held.tree["key"], jax.Array)
        held.bring_back()
        assert held.tree["w"].tolist() == list(range(6))
        assert (held.tree["w"].devices(), held.tree["w"].committed) == ({DEVICE}, True)


def test_a_narrow_format_keeps_its_dtype():
    held = Weights(jax.device_put(jnp.ones(3, jnp.bfloat16), DEVICE))
    held.set_aside()
    assert held.tree.dtype == jnp.bfloat16
    held.bring_back()
    assert held.tree.dtype == jnp.bfloat16


def test_what_is_no_array_of_the_device_stays_what_it_is():
    assert on_host({"a": 3, "b": np.ones(2)}).keys() == {"a", "b"}
    assert on_host(3) == 3
