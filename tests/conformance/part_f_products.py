"""Part F3: products whose operands, accumulator or result have formats of their own."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.conformance.rows import INPUT, WIDTH, matmul, program, rows_of, square
from tests.programs import Example, normal

PLAIN = (((1,), (0,)), ((), ()))
LAYERS = (INPUT, matmul("fc"))
NHC = ("NHC", "HIO", "NHC")


@program("jax#37922", "a dilated bfloat16 convolution is an internal error (there on one device only)")
def dilated_convolution() -> Example:
    def apply(params: Any, x: Any) -> Any:
        settings = {"lhs_dilation": (2,), "rhs_dilation": (2,), "dimension_numbers": NHC}
        return lax.conv_general_dilated(x, params["fc"]["w"], (1,), ((2, 2),), **settings)

    return Example(apply, {"fc": {"w": normal(3, WIDTH, 4)}}, (normal(2, 8, WIDTH),), (INPUT, ("fc", "conv")))


@program(
    "jax#11678", "a product that asks for float64 is wrong (there on one device only)", lambda: jax.enable_x64(True)
)
def float64_of_float32() -> Example:
    def apply(params: Any, x: Any) -> Any:
        return lax.dot_general(x, params["fc"]["w"], PLAIN, preferred_element_type=jnp.float64)

    return Example(apply, {"fc": square()}, (rows_of(),), LAYERS)


@program("jax#24794", "an algorithm by name for float16 operands (there F16_F16_F32, which a CPU does not have)")
def float16_algorithm_by_name() -> Example:
    def apply(params: Any, x: Any) -> Any:
        w = params["fc"]["w"].astype(jnp.float16)
        return jnp.dot(x.astype(jnp.float16), w, precision="F16_F16_F16").astype(jnp.float32) + x

    return Example(apply, {"fc": square()}, (rows_of(),), LAYERS)


@program("keras#21112", "attention asks for an algorithm by name that not every operand type has")
def algorithm_by_name() -> Example:
    def apply(params: Any, x: Any) -> Any:
        h = jnp.dot(x, params["fc"]["w"], precision="BF16_BF16_F32")
        return jnp.einsum("bi,ci->bc", h, x, precision="BF16_BF16_F32")

    layers = (INPUT, matmul("fc"), ("bi,ci->bc/dot_0", "dot"))
    return Example(apply, {"fc": square()}, (rows_of(),), layers)


@program("jax#22313", "an 8-bit float product that is widened to bfloat16 instead of going to the library's own")
def widened_float8() -> Example:
    def apply(params: Any, x: Any) -> Any:
        scale = jnp.abs(x).max() / 448
        left = (x / scale).astype(jnp.float8_e4m3fn).astype(jnp.bfloat16)
        right = params["fc"]["w"].astype(jnp.bfloat16)
        return lax.dot_general(left, right, PLAIN, preferred_element_type=jnp.float32) * scale

    params = {"fc": {"w": jnp.asarray(square()["w"], jnp.float8_e4m3fn)}}
    return Example(apply, params, (rows_of(),), LAYERS)


@program("jax PR#21211, flax PR#3416", "operands in two 8-bit float formats must not be promoted to one")
def two_float8_formats() -> Example:
    def apply(params: Any, x: Any) -> Any:
        left, right = x.astype(jnp.float8_e4m3fn), params["fc"]["w"].astype(jnp.float8_e5m2)
        h = lax.dot_general(left, right, PLAIN, preferred_element_type=jnp.float32)
        return h @ params["out"]["w"], h

    return Example(apply, {"fc": square(), "out": square(1)}, (rows_of(),), (*LAYERS, matmul("out")))


@program("jax#7637 #14585", "an integer convolution is unsupported, or slow and wrong")
def integer_convolution() -> Example:
    def apply(params: Any, x: Any) -> Any:
        kernel = (params["fc"]["w"] * 4).astype(jnp.int8)
        image = (x * 4).astype(jnp.int8)
        return lax.conv_general_dilated(
            image, kernel, (1,), "SAME", dimension_numbers=NHC, preferred_element_type=jnp.int32
        )

    return Example(apply, {"fc": {"w": normal(3, WIDTH, 4)}}, (np.round(normal(2, 8, WIDTH)),), (INPUT, ("fc", "conv")))


@program("jax#40581", "a product of floats and integers that asks for an integer result")
def floats_times_integers() -> Example:
    def apply(params: Any, x: Any) -> Any:
        h = lax.dot_general(x, params["whole"]["w"], PLAIN, preferred_element_type=jnp.float32)
        return h @ params["fc"]["w"]

    whole = {"w": np.arange(36, dtype=np.int8).reshape(6, 6) % 5}
    return Example(apply, {"fc": square(), "whole": whole}, (rows_of(),), (INPUT, matmul("whole"), matmul("fc")))


@program("xla#9431 #5796, jax#17688", "int8 products of odd sizes are wrong, or far slower (there on one device only)")
def odd_sizes() -> Example:
    params = {"fc": {"w": normal(7, 13)}, "out": {"w": normal(13, 3)}}
    apply = lambda params, x: jnp.tanh(x @ params["fc"]["w"]) @ params["out"]["w"]
    return Example(apply, params, (normal(3, 7),), (*LAYERS, matmul("out")))


@program("jax#19682", "an int4 product was unsupported, and later was not")
def int4_weights() -> Example:
    def apply(params: Any, x: Any) -> Any:
        return x @ (params["fc"]["w"].astype(jnp.float32) * params["fc"]["scale"])

    w = jnp.asarray(np.arange(36).reshape(6, 6) % 15 - 7, jnp.int4)
    params = {"fc": {"w": w, "scale": np.full((6,), 0.1, np.float32)}}
    return Example(apply, params, (rows_of(),), (INPUT, matmul("fc/{scale,w}")))


@program("jax#16705 #16673 #19033, jax PR#16832", "8-bit floats have no implicit promotion, and few operations")
def float8_weights() -> Example:
    def apply(params: Any, x: Any) -> Any:
        return x @ params["fc"]["w"].astype(jnp.float32)

    params = {"fc": {"w": jnp.asarray(square()["w"], jnp.float8_e4m3fn)}}
    return Example(apply, params, (rows_of(),), LAYERS)


@program("jax#30176 #38825", "inverse, QR and Cholesky have no half-precision kernel: they must stay in float32")
def linear_algebra() -> Example:
    def apply(params: Any, x: Any) -> Any:
        h = x @ params["fc"]["w"]
        gram = h.T @ h + 9 * jnp.eye(WIDTH)
        return jnp.linalg.inv(gram), jnp.linalg.cholesky(gram), jnp.abs(jnp.linalg.qr(gram)[1])

    return Example(apply, {"fc": square()}, (rows_of(),), (*LAYERS, ("dot_0", "dot")))
