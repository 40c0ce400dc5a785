"""Random small programs against the invariants: identity to the bit, structure, and closeness in f32."""

from collections.abc import Callable
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from search_spaces import Precision
from tests.programs import normal
from tuner.program import capture, original_policy, prepare, uniform_policy

WIDTH = 6

# Each operation takes (parameter, value) of shapes (WIDTH, WIDTH) and (n, WIDTH) and keeps the value's shape.
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "matmul": lambda w, x: x @ w / 2,
    "left": lambda w, x: jnp.einsum("oi,ni->no", w, x) / 2,
    "own product": lambda w, x: jnp.einsum("ni,nj->nj", x, x) / WIDTH + w[0],
    "convolution": lambda w, x: jax.lax.conv_general_dilated(
        x[None], w[:3, None, :], (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=WIDTH
    )[0],
    "look-up": lambda w, x: jnp.asarray(w)[jnp.argmax(x, -1)],
    "bias": lambda w, x: x + w.sum(0),
    "tanh": lambda w, x: jnp.tanh(x),
    "softmax": lambda w, x: jax.nn.softmax(x),
    "gelu": lambda w, x: jax.nn.gelu(x),
    "norm": lambda w, x: x / (1e-2 + jnp.linalg.norm(x, axis=-1, keepdims=True)) * w[0],
    "sort": lambda w, x: jnp.sort(x, -1),
}

structures = st.recursive(
    st.sampled_from(sorted(OPERATIONS)),
    lambda inner: st.tuples(st.sampled_from(["jit", "remat", "scan", "stack", "cond", "while", "pair"]), inner, inner),
    max_leaves=5,
)


def build(structure: Any, params: Any, x: Any, path: str = "r") -> Any:
    """Runs a structure; every operation reads a parameter of its own, made on demand in `params`."""
    if isinstance(structure, str):
        return OPERATIONS[structure](params.setdefault(path, normal(WIDTH, WIDTH, seed=len(path))), x)
    kind, first, second = structure
    then = lambda x: build(second, params, build(first, params, x, path + "0"), path + "1")
    if kind == "jit":
        return jax.jit(then)(x)
    if kind == "remat":
        return jax.checkpoint(then)(x)
    if kind == "scan":
        return jax.lax.scan(lambda h, _: (then(h), None), x, None, length=2)[0]
    if kind == "stack":
        stack = params.setdefault(path + "s", normal(2, WIDTH, WIDTH))
        return then(jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, stack)[0])
    if kind == "cond":
        return jax.lax.cond(x.sum() > 0, then, lambda x: build(second, params, x, path + "2"), x)
    if kind == "while":
        return jax.lax.fori_loop(0, 2, lambda i, h: then(h), x)
    return then(x) + x


@hypothesis.given(structure=structures)
@hypothesis.settings(max_examples=25)
def test_identity_and_closeness(structure: Any) -> None:
    x = jnp.asarray(normal(4, WIDTH))
    names: dict[str, Any] = {}
    jax.eval_shape(lambda x: build(structure, names, x), x)
    params = {path: jnp.asarray(normal(*value.shape, seed=len(path))) for path, value in names.items()}
    apply = lambda params, x: build(structure, params, x)
    program = capture(apply, params, (x,))
    expected = jax.jit(apply)(params, x)
    same = prepare(apply, params, original_policy(program), program=program)
    np.testing.assert_array_equal(jax.jit(same)(same.params, x), expected)
    f32 = prepare(apply, params, uniform_policy(program, Precision.parse("f32/f32/f32")), program=program)
    np.testing.assert_allclose(jax.jit(f32)(f32.params, x), expected, rtol=1e-3, atol=1e-4)
    for text in ("bf16/bf16/f32", "i8/i8/i32"):
        model = prepare(apply, params, uniform_policy(program, Precision.parse(text)), program=program)
        found = jax.eval_shape(model, model.params, x)
        assert (found.shape, found.dtype, found.weak_type) == (expected.shape, expected.dtype, expected.weak_type)
