"""Random small programs, held to the checks of the table under a policy drawn with them."""

from collections.abc import Callable
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from tests.conformance import checks
from tests.conformance.checks import Case, Run
from tests.conformance.probes import quick
from tests.conformance.table import POLICIES
from tests.programs import Example, normal

WIDTH = 6


@jax.custom_jvp
def _bent(x: Any) -> Any:
    return jnp.where(x > 0, x, 0.1 * x)


_bent.defjvp(lambda primals, tangents: (_bent(*primals), tangents[0]))


def _convolve(kernel: Any, x: Any, groups: int) -> Any:
    return jax.lax.conv_general_dilated(
        x[None], kernel, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC"), feature_group_count=groups
    )[0]


# Each operation takes (parameter, value) of shapes (WIDTH, WIDTH) and (n, WIDTH) and keeps the value's shape. None of them
# jumps or squares: where a rounding decides between two results, or grows without end, no bound on their distance exists.
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "matmul": lambda w, x: x @ w / 2,
    "left": lambda w, x: jnp.einsum("oi,ni->no", w, x) / 2,
    "own product": lambda w, x: jnp.einsum("ni,nj->nj", jnp.tanh(x), jnp.sin(x)) / WIDTH + w[0],
    "half": lambda w, x: (x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32) / 2,
    "convolution": lambda w, x: _convolve(jnp.stack([w, w.T, -w]) / 3, x, 1),
    "depthwise": lambda w, x: _convolve(w[:3, None, :], x, WIDTH),
    "look-up": lambda w, x: x + jnp.asarray(w)[jnp.arange(len(x)) % WIDTH],
    "bias": lambda w, x: x + w.sum(0),
    "tanh": lambda w, x: jnp.tanh(x),
    "relu": lambda w, x: jax.nn.relu(x),
    "bent": lambda w, x: _bent(x),
    "gelu": lambda w, x: jax.nn.gelu(x, approximate=False),
    "softmax": lambda w, x: jax.nn.softmax(x),
    "norm": lambda w, x: x / (1e-1 + jnp.linalg.norm(x, axis=-1, keepdims=True)) * w[0],
    "centered": lambda w, x: x - x.mean(0),
    "largest": lambda w, x: x - x.max(-1, keepdims=True),
    "running sum": lambda w, x: jnp.cumsum(x, -1) / 3,
    "sort": lambda w, x: jnp.sort(x, -1),
    "noise": lambda w, x: x + jax.random.uniform(jax.random.key(7), x.shape),
    "moved": lambda w, x: jnp.roll(jnp.flip(x, 1), 1, 0),
}
HOLDERS = ["jit", "remat", "scan", "stack", "cond", "while", "sum", "named"]

structures = st.recursive(
    st.sampled_from(sorted(OPERATIONS)),
    lambda inner: st.tuples(st.sampled_from(HOLDERS), inner, inner),
    max_leaves=5,
)


def build(structure: Any, params: Any, x: Any, flag: Any, path: str = "r") -> Any:
    """Runs a structure; every operation reads a parameter of its own, made on demand in `params`."""
    if isinstance(structure, str):
        return OPERATIONS[structure](params.setdefault(path, normal(WIDTH, WIDTH, seed=len(path))), x)
    kind, first, second = structure
    then = lambda x: build(second, params, build(first, params, x, flag, path + "0"), flag, path + "1")
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
        return jax.lax.cond(flag, then, lambda x: build(second, params, x, flag, path + "2"), x)
    if kind == "while":
        return jax.lax.fori_loop(0, 2, lambda i, h: then(h), x)
    if kind == "named":
        with jax.named_scope(path):
            return then(x)
    return then(x) + x


def example_of(structure: Any, flag: bool) -> Example:
    x = normal(4, WIDTH)
    params: dict[str, Any] = {}
    jax.eval_shape(lambda x: build(structure, params, x, np.bool_(flag)), x)
    params = {path: normal(*value.shape, seed=len(path)) for path, value in params.items()}
    return Example(lambda params, x, flag: build(structure, params, x, flag), params, (x, np.bool_(flag)), ())


@hypothesis.given(structure=structures, flag=st.booleans(), policy=st.sampled_from(sorted(POLICIES)))
@hypothesis.settings(max_examples=25)
def test_every_check_holds(structure: Any, flag: bool, policy: str) -> None:
    case = Case(example_of(structure, flag), quick())
    checks.names_do_not_depend_on_the_batch(case.example, case.program)
    checks.all_original_is_identical(case)
    run = Run(case, POLICIES[policy](case.program))
    for check in (*checks.EVERYWHERE, checks.nothing_is_hidden):
        check(run)
