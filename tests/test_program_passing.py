import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from search_spaces import FORMATS
from search_spaces.quantize import quantize_with
from tuner.program import capture
from tuner.program.kernels.operands import Held
from tuner.program.passing import find_passes, keeps_order, run_held

rng = np.random.default_rng(0)
IMAGES = rng.normal(size=(2, 8, 8, 4)).astype(np.float32)
PARAMS = {
    **{name: rng.normal(size=(3, 3, 4, 4)).astype(np.float32) for name in ("a", "b", "c")},
    "head": rng.normal(size=(64, 3)).astype(np.float32),
    "bias": rng.normal(size=4).astype(np.float32),
}


def conv(x, kernel):
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def passes(apply, key=lambda site: 0.1):
    program = capture(apply, PARAMS, (IMAGES,))
    names = {id(site): layer.name for layer, sites in zip(program.layers, program.sites, strict=True) for site in sites}
    found = find_passes(program.steps, program.outputs, key)
    name = lambda site: None if site is None else names[id(site)]
    return [(name(one.producer), name(one.reader), [s.eqn.primitive.name for s in one.steps]) for one in found]


def pooled(p, x):
    x = nn.max_pool(jax.nn.relu6(conv(x, p["a"]) + p["bias"]), (2, 2), (2, 2))
    return x.reshape(2, -1) @ p["head"]


def residual(p, x):
    x = jax.nn.relu(conv(x, p["a"]))
    return conv(x + conv(x, p["b"]), p["c"])


def test_from_a_layer_through_relu_pooling_and_reshape_to_the_next():
    assert passes(pooled) == [("a", "head", ["custom_jvp_call", "reduce_window_max", "reshape"])]


def test_a_value_that_is_also_added_is_held_for_both():
    assert passes(residual) == [("a", "b", [])]


@pytest.mark.parametrize(
    "apply",
    [
        lambda p, x: conv(jax.nn.relu(conv(x, p["a"])), p["b"]),  # XLA does it in one pass anyway
        lambda p, x: conv(jax.nn.gelu(conv(x, p["a"])).reshape(2, 8, 8, 4), p["b"]).sum() + x.sum(),
        lambda p, x: ((y := conv(x, p["a"])), conv(y, p["b"])),  # it is handed out
        lambda p, x: conv(y := conv(x, p["a"]), p["b"]) * y,  # it is multiplied
        lambda p, x: conv(conv(x, p["a"])[::-1] * x, p["b"]),
        lambda p, x: conv(jnp.maximum(conv(x, p["a"]), x), p["b"]),
    ],
)
def test_nothing_is_held_where_nothing_is_gained_or_more_would_change(apply):
    assert [steps for _, _, steps in passes(apply) if steps != ["reshape"]] == []


def test_only_for_calibrated_layers_of_equal_scales():
    def two(p, x):
        x = jax.nn.relu(conv(x, p["a"]))
        return conv(x, p["b"]) + conv(x, p["c"])

    assert passes(two) == [("a", "b", [])]
    assert passes(two, lambda site: None) == []
    assert passes(two, lambda site: id(site)) == []


SCALE = jnp.float32(0.05)


def rounded(x):
    return quantize_with(x, FORMATS["i8"], SCALE)


@pytest.mark.parametrize(
    "function",
    [
        jax.nn.relu,
        jax.nn.relu6,
        lambda x: jnp.clip(x, -0.3, 2),
        lambda x: jnp.minimum(0.4, x),
        lambda x: nn.max_pool(x, (3, 3), (2, 2), "SAME"),
        lambda x: jnp.max(x, (1, 2)),
        lambda x: x.transpose(0, 3, 1, 2).reshape(8, -1)[::2],
        lambda x: x[:, None].squeeze(1),
    ],
)
def test_what_keeps_the_order_gives_the_same_on_integers(function):
    closed = jax.make_jaxpr(lambda x: function(x))(IMAGES)
    env = dict(zip(closed.jaxpr.invars, [Held(rounded(IMAGES), SCALE, "float32")], strict=True))
    for eqn in closed.jaxpr.eqns:
        values = [atom.val if hasattr(atom, "val") else env[atom] for atom in eqn.invars]
        if any(isinstance(value, Held) for value in values):
            assert keeps_order(eqn, [isinstance(value, Held) for value in values])
        env.update(zip(eqn.outvars, run_held(eqn, values), strict=True))
    found = env[closed.jaxpr.outvars[0]].values
    assert found.dtype == jnp.int8
    np.testing.assert_array_equal(found, rounded(function(IMAGES)))


@pytest.mark.parametrize("function", [jnp.tanh, jnp.negative, jax.nn.leaky_relu, lambda x: x + 1, lambda x: x.sum(0)])
def test_what_does_not_keep_the_order_or_computes_is_not_run_on_integers(function):
    (eqn,) = jax.make_jaxpr(lambda x: jax.jit(function)(x))(IMAGES).jaxpr.eqns
    assert not keeps_order(eqn, [True])
