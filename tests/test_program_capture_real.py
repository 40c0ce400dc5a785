"""Programs as model libraries write them: what their layers are called, and that none is missed."""

import jax
import jax.numpy as jnp
import numpy as np

from search_spaces import Precision
from tuner.program import capture, make_policy, prepare, supports


def look_up(params, tokens):
    """As `jax.vmap(eqx.nn.Embedding)` does: vmap of a scalar index."""
    return jax.vmap(lambda token: params["words"]["weight"][token])(tokens)


def test_a_vmapped_look_up_is_of_whole_rows():
    params = {"words": {"weight": np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)}}
    tokens = np.array([3, 0, 49], np.int32)
    program = capture(look_up, params, (tokens,))
    (layer,) = program.layers
    assert (layer.name, layer.kind, layer.searchable) == ("words", "embedding", True)
    precision = Precision.parse("i8/f32/f32")
    assert supports(layer, precision) is None
    model = prepare(look_up, params, make_policy(program, {"words": precision}), program=program)
    packed = model.params["layers"]["words"]
    assert packed["weight"].dtype == jnp.int8
    assert packed["scale"].shape == (50, 1)
    rows = params["words"]["weight"][tokens]
    step = np.abs(rows).max(axis=1, keepdims=True) / 127
    assert (np.abs(jax.jit(model)(model.params, tokens) - rows) < step * 0.51).all()


def test_operations_are_named_by_the_user_and_not_by_vmap():
    def attend(params, x):
        with jax.named_scope("layers/0"):
            return jnp.einsum("sd,td->st", x @ params["query"], x)

    def apply(params, xs):
        return jax.vmap(attend, (None, 0))(params, xs)

    params = {"query": jax.ShapeDtypeStruct((4, 4), jnp.float32)}
    names = [layer.name for layer in capture(apply, params, (jax.ShapeDtypeStruct((2, 3, 4), jnp.float32),)).layers]
    assert names == ["input", "query", "layers/0/sd,td->st/dot_0"]
