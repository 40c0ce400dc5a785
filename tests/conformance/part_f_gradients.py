"""Part F2 and the gradients of F1 and F3: programs that differentiate themselves, as forces are the gradient of an energy.

The gradient of a prepared model is refused; one that the program takes itself is traced with it and is inference like the rest.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.conformance.checks import EXACT
from tests.conformance.rows import INPUT, WIDTH, matmul, out_of_scope, program, rows_of, square, stack
from tests.programs import Example, normal

PLAIN = (((1,), (0,)), ((), ()))
NHC = ("NHC", "HIO", "NHC")
LAYERS = (INPUT, matmul("layers"))


def with_gradient(forward: Any, params: Any, x: Any, layers: Any) -> Example:
    """What `forward(params, x)` gives, and its gradient by x."""

    def apply(params: Any, x: Any) -> Any:
        total = lambda x: forward(params, x).astype(jnp.float32).sum()
        return forward(params, x), jax.grad(total)(x)

    return Example(apply, params, (x,), layers)


@program("jax#22045", "the gradient of a scan with an integer among its carries")
def integer_carry() -> Example:
    def forward(params: Any, x: Any) -> Any:
        body = lambda carry, w: ((jnp.tanh(carry[0] @ w), carry[1] + 1), None)
        return lax.scan(body, (x, 0), params["layers"]["w"])[0][0]

    return with_gradient(forward, {"layers": stack()}, rows_of(), LAYERS)


@program("jax#27144", "a custom_vjp, forward in bfloat16 and backward in float32, under a scan in float32")
def custom_rule_in_bfloat16() -> Example:
    @jax.custom_vjp
    def dense(h: Any, w: Any) -> Any:
        return (h.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16)).astype(jnp.float32)

    dense.defvjp(lambda h, w: (dense(h, w), w), lambda w, g: (g @ w.T, jnp.zeros_like(w)))

    def forward(params: Any, x: Any) -> Any:
        return lax.scan(lambda h, w: (jnp.tanh(dense(h, w)), None), x, params["layers"]["w"])[0].astype(jnp.bfloat16)

    return with_gradient(forward, {"layers": stack()}, rows_of(), LAYERS)


@program("jax#18931", "a custom_vjp with an int8 argument, whose cotangent is float0")
def custom_rule_with_int8() -> Example:
    @jax.custom_vjp
    def shifted(h: Any, steps: Any) -> Any:
        return h + steps.astype(h.dtype)

    none = lambda steps: np.zeros(steps.shape, jax.dtypes.float0)
    shifted.defvjp(lambda h, steps: (shifted(h, steps), steps), lambda steps, g: (g, none(steps)))

    def apply(params: Any, x: Any, steps: Any) -> Any:
        forward = lambda x: shifted(jnp.tanh(x @ params["layers"]["w"]), steps)
        return forward(x), jax.grad(lambda x: forward(x).sum())(x), steps

    layers = (("input/0", "input"), matmul("layers"))
    return Example(apply, {"layers": square()}, (rows_of(), np.ones((4, 6), np.int8)), layers)


@program("jax PR#23779 #7651 #7652", "float0 in a custom_vjp that is differentiated by a float and holds integers")
def float0_among_residuals() -> Example:
    @jax.custom_vjp
    def picked(h: Any, index: Any) -> Any:
        return jnp.take_along_axis(h, index, axis=1)

    def backward(saved: Any, g: Any) -> Any:
        width, index = saved
        return jnp.put_along_axis(jnp.zeros((len(index), width)), index, g, axis=1, inplace=False), None

    picked.defvjp(lambda h, index: (picked(h, index), (h.shape[1], index)), backward)

    def forward(params: Any, x: Any) -> Any:
        return picked(jnp.tanh(x @ params["layers"]["w"]), jnp.arange(2 * len(x)).reshape(-1, 2) % WIDTH)

    return with_gradient(forward, {"layers": square()}, rows_of(), LAYERS)


@program("jax#9994", "the dtype of a cotangent must be that of the primal output, bfloat16 here")
def cotangent_in_bfloat16() -> Example:
    @jax.custom_vjp
    def narrowed(h: Any) -> Any:
        return jnp.sin(h).astype(jnp.bfloat16)

    def backward(h: Any, g: Any) -> Any:
        assert g.dtype == jnp.bfloat16
        return ((jnp.cos(h).astype(jnp.bfloat16) * g).astype(h.dtype),)

    narrowed.defvjp(lambda h: (narrowed(h), h), backward)
    forward = lambda params, x: narrowed(x @ params["layers"]["w"])
    return with_gradient(forward, {"layers": square()}, rows_of(), LAYERS)


@program("jax#7780", "jacrev by float16 and float32 arguments")
def jacobian_of_two_formats() -> Example:
    def apply(params: Any, x: Any) -> Any:
        def one(half: Any, full: Any) -> Any:
            return jnp.tanh((half.astype(jnp.float32) + full) @ params["layers"]["w"])

        return jax.vmap(jax.jacrev(one, argnums=(0, 1)))(x.astype(jnp.float16), x)

    return Example(apply, {"layers": square()}, (rows_of(2),), LAYERS)


@program("jax#5832", "the gradient of a custom_vjp under vmap under scan, with float0")
def custom_rule_under_vmap_under_scan() -> Example:
    @jax.custom_vjp
    def halved(h: Any, index: Any) -> Any:
        return h / (index + 1).astype(h.dtype)

    halved.defvjp(lambda h, index: (halved(h, index), index), lambda index, g: (g / (index + 1), None))

    def forward(params: Any, x: Any) -> Any:
        def body(carry: Any, w: Any) -> Any:
            h, index = carry
            return (jax.vmap(halved, (0, None))(h @ w, index), index + 1), None

        return lax.scan(body, (x, 0), params["layers"]["w"])[0][0]

    return with_gradient(forward, {"layers": stack()}, rows_of(), LAYERS)


out_of_scope("optax#377", "an accumulator of MultiSteps in bfloat16", "training: an optimizer's state")


@program("jax#10818", "the gradient of a bfloat16 product that asks for a float32 result")
def float32_of_bfloat16() -> Example:
    def forward(params: Any, x: Any) -> Any:
        w = params["layers"]["w"].astype(jnp.bfloat16)
        return lax.dot_general(x.astype(jnp.bfloat16), w, PLAIN, preferred_element_type=jnp.float32)

    return with_gradient(forward, {"layers": square()}, rows_of(), LAYERS)


@program("jax#34330, jax PR#34475", "bfloat16 times float32 to bfloat16, whose gradient multiplies in bfloat16")
def mixed_operands() -> Example:
    def forward(params: Any, x: Any) -> Any:
        left = x.astype(jnp.bfloat16)
        return lax.dot_general(left, params["layers"]["w"], PLAIN, preferred_element_type=jnp.bfloat16)

    return with_gradient(forward, {"layers": square()}, rows_of(), LAYERS)


@program("jax#31592, jax PR#36734", "the gradient of a convolution with a result type of its own")
def float32_of_a_bfloat16_convolution() -> Example:
    def forward(params: Any, x: Any) -> Any:
        image, kernel = x.astype(jnp.bfloat16), params["fc"]["w"].astype(jnp.bfloat16)
        return lax.conv_general_dilated(
            image, kernel, (1,), "SAME", dimension_numbers=NHC, preferred_element_type=jnp.float32
        )

    return with_gradient(forward, {"fc": {"w": normal(3, WIDTH, 4)}}, normal(2, 8, WIDTH), (INPUT, ("fc", "conv")))


@program("jax#38885", "the gradient of max counts ties in bfloat16, which sticks at 256")
def gradient_of_ties() -> Example:
    def apply(params: Any, x: Any) -> Any:
        ties = (jnp.ones((2, 300)) + 0 * x[0, 0]).astype(jnp.bfloat16)
        share = jax.grad(lambda h: h.max(-1).sum())
        return {"y": share(x @ params["layers"]["w"]), EXACT: share(ties)}

    return Example(apply, {"layers": square()}, (rows_of(),), LAYERS)
