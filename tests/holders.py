"""One program per primitive that holds a jaxpr and that we know; each has a layer inside and one behind."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas
from jax.sharding import AxisType, PartitionSpec

from tests.programs import Example, normal

SIZE = 6
INPUT, INSIDE, BEHIND = ("input", "input"), ("inside", "matmul"), ("behind", "matmul")

# Primitive -> the program that holds it, and the names that JAX versions have for it.
HOLDERS: dict[str, Callable[[], Example]] = {}
NAMES: dict[str, set[str]] = {}


def holds(primitive: str, *also: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a program that runs the decorated function of (weight, x) and multiplies the result with another weight."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        def make() -> Example:
            apply = lambda params, x: jnp.tanh(function(params["inside"]["w"], x)) @ params["behind"]["w"]
            params = {"inside": {"w": normal(SIZE, SIZE) / 2}, "behind": {"w": normal(SIZE, 4, seed=1)}}
            return Example(apply, params, (normal(4, SIZE),), (INPUT, INSIDE, BEHIND))

        HOLDERS[primitive], NAMES[primitive] = make, {primitive, *also}
        return function

    return add


@holds("scan")
def scanned(w: Any, x: Any) -> Any:
    return jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), None), x, None, length=3)[0]


@holds("while")
def looped(w: Any, x: Any) -> Any:
    return jax.lax.while_loop(lambda state: state[0] < 2, lambda state: (state[0] + 1, jnp.sin(state[1] @ w)), (0, x))[
        1
    ]


@holds("cond")
def branching(w: Any, x: Any) -> Any:
    return jax.lax.switch(jnp.int32(x[0, 0]), [lambda x: x @ w, lambda x: -x, lambda x: jnp.sin(x) @ w], x)


holds("jit", "pjit")(jax.jit(lambda w, x: jax.nn.gelu(x @ w)))
holds("remat", "remat2", "checkpoint")(jax.checkpoint(lambda w, x: jnp.sin(x @ w)))


@holds("custom_jvp_call")
@jax.custom_jvp
def with_tangent(w: Any, x: Any) -> Any:
    return x @ w + 1


with_tangent.defjvp(lambda primals, tangents: (with_tangent(*primals), with_tangent(*tangents)))


@holds("custom_vjp_call", "custom_vjp_call_jaxpr")
@jax.custom_vjp
def with_cotangent(w: Any, x: Any) -> Any:
    return x @ w - 1


with_cotangent.defvjp(lambda w, x: (x @ w, (w, x)), lambda saved, g: (saved[1].T @ g, g @ saved[0].T))


@holds("shard_map")
def on_each_device(w: Any, x: Any) -> Any:
    mesh = jax.make_mesh((1,), ("data",), axis_types=(AxisType.Auto,))
    rows = PartitionSpec("data")
    return jax.shard_map(lambda w, x: x @ w, mesh=mesh, in_specs=(PartitionSpec(), rows), out_specs=rows)(w, x)


@holds("custom_linear_solve")
def solved(w: Any, x: Any) -> Any:
    return jax.lax.custom_linear_solve(lambda v: v, x, lambda matvec, b: jnp.tanh(b @ w), symmetric=True)


@holds("pallas_call")
def by_hand(w: Any, x: Any) -> Any:
    """A kernel over two blocks of rows, interpreted, so that it runs everywhere."""

    def kernel(rows: Any, weight: Any, out: Any) -> None:
        out[...] = rows[...] @ weight[...]

    blocks = pallas.BlockSpec((2, SIZE), lambda i: (i, 0))
    return pallas.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0] // 2,),
        in_specs=[blocks, pallas.BlockSpec((SIZE, SIZE), lambda i: (0, 0))],
        out_specs=blocks,
        interpret=True,
    )(x, w)
