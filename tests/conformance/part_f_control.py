"""Part F1 and F2: loops and branches whose carries change their type, custom rules, remat."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.conformance.rows import INPUT, matmul, out_of_scope, program, rows_of, square, stack
from tests.programs import Example

LAYERS = (INPUT, matmul("layers"))


@program("jax#9046", "three carries whose weak types settle only after more than two passes")
def weak_types_that_move_along() -> Example:
    def apply(params: Any, x: Any) -> Any:
        def body(carry: Any, w: Any) -> Any:
            a, b, c, h = carry
            return (b, c, c * jnp.float32(0.5), jnp.tanh(h @ w)), a

        return lax.scan(body, (0.0, 0.0, jnp.float32(3), x), params["layers"]["w"])

    return Example(apply, {"layers": stack()}, (rows_of(),), LAYERS)


@program("jax#3991 #2004 #3154", "a loop body promotes its carry: a float16 sum, a float64 constant")
def float16_sum_in_a_loop() -> Example:
    def apply(params: Any, x: Any) -> Any:
        def body(i: Any, carry: Any) -> Any:
            h, total = carry
            h = jnp.tanh(h @ params["layers"]["w"])
            return h, (total + jnp.abs(h).sum(dtype=jnp.float16) * np.float64(0.5)).astype(total.dtype)

        return lax.fori_loop(0, 3, body, (x, jnp.float16(0)))

    return Example(apply, {"layers": square()}, (rows_of(),), LAYERS)


@program("jax#9836", "scan over a rematerialized body with a weakly typed carry")
def remat_under_scan() -> Example:
    def apply(params: Any, x: Any) -> Any:
        @jax.checkpoint
        def body(carry: Any, w: Any) -> Any:
            h, scale = carry
            return (jnp.sin(h @ w) * scale, scale * 2.0), None

        return lax.scan(body, (x, 0.5), params["layers"]["w"])

    return Example(apply, {"layers": stack()}, (rows_of(),), LAYERS)


@program("jax#6051", "weak types of a while loop's carry that are not canonical")
def weak_carry_of_a_while() -> Example:
    def apply(params: Any, x: Any) -> Any:
        body = lambda state: (state[0] + 1, state[1] * 2.0, jnp.tanh(state[2] @ params["layers"]["w"]))
        return lax.while_loop(lambda state: state[0] < 3, body, (0, 1.0, x))

    return Example(apply, {"layers": square()}, (rows_of(),), LAYERS)


out_of_scope(
    "jax#39700",
    "a hijax value as carry fails under jit",
    "jax.jit refuses the program itself; a hijax value between layers has a test of its own",
)


@program("levanter#569, felafax PR#47", "a scan over layers in bfloat16 whose parameters are float32: the carry widens")
def layer_scan_in_bfloat16() -> Example:
    def apply(params: Any, x: Any) -> Any:
        def layer(h: Any, part: Any) -> Any:
            h = h @ part["w"].astype(h.dtype) + part["b"].astype(h.dtype)
            return jnp.tanh(h), h.astype(jnp.float32).mean()

        return lax.scan(layer, x.astype(jnp.bfloat16), params["layers"])

    params = {"layers": {**stack(), "b": np.ones((3, 6), np.float32) / 4}}
    return Example(apply, params, (rows_of(),), LAYERS)


@program("jax-gcm#797", "branches of cond return different dtypes once one of them was cast")
def branches() -> Example:
    def apply(params: Any, x: Any) -> Any:
        return lax.cond(x.sum() > 1e6, lambda x: x, lambda x: x @ params["layers"]["w"], x)

    return Example(apply, {"layers": square()}, (rows_of(),), LAYERS)


@program("diffusers#3039", "select between a layer's result and an input: bfloat16 against float32")
def select_of_a_layer() -> Example:
    def apply(params: Any, x: Any) -> Any:
        return lax.select(x > 0, x @ params["layers"]["w"], x)

    return Example(apply, {"layers": square()}, (rows_of(),), LAYERS)


@program("jax#1361", "a literal 0. in a carry gives a wrong type")
def literal_in_a_carry() -> Example:
    def apply(params: Any, x: Any) -> Any:
        def body(carry: Any, w: Any) -> Any:
            h = jnp.tanh(carry[0] @ w)
            return (h, carry[1] + (h**2).sum()), None

        return lax.scan(body, (x, 0.0), params["layers"]["w"])[0]

    return Example(apply, {"layers": stack()}, (rows_of(),), LAYERS)


@program("jax#1249 #3397 #4173 #19087", "custom rules lost under vmap, scan or nesting")
def nested_custom_rules() -> Example:
    @jax.custom_jvp
    def inner(h: Any) -> Any:
        return jnp.tanh(h)

    inner.defjvp(lambda primals, tangents: (inner(*primals), tangents[0]))

    @jax.custom_vjp
    def outer(h: Any, w: Any) -> Any:
        return inner(h @ w)

    outer.defvjp(lambda h, w: (outer(h, w), w), lambda w, g: (w @ g, g))

    def apply(params: Any, x: Any) -> Any:
        return lax.scan(lambda h, w: (jax.vmap(outer, (0, None))(h, w), None), x, params["layers"]["w"])[0]

    return Example(apply, {"layers": stack()}, (rows_of(),), LAYERS)


@program("jax PR#22244", "remat and reduce_precision: simulated rounding is optimized away or done differently")
def rounding_under_remat() -> Example:
    @jax.checkpoint
    def rounded(h: Any, w: Any) -> Any:
        return lax.reduce_precision(jnp.sin(h @ w), exponent_bits=8, mantissa_bits=7)

    def apply(params: Any, x: Any) -> Any:
        h = rounded(x, params["layers"]["w"])
        return h, lax.bitcast_convert_type(h, jnp.uint32) & 0xFFFF  # what bfloat16 does not have: zeros

    return Example(apply, {"layers": square()}, (rows_of(),), LAYERS)
