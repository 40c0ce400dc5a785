"""Part F4: reductions, rounding that must happen, choices that must not change."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, PartitionSpec

from tests.conformance.checks import EXACT
from tests.conformance.rows import INPUT, WIDTH, matmul, program, rows_of, square
from tests.programs import Example, normal

LAYERS = (INPUT, matmul("fc"))


@program("jax#26365", "a mean that is asked for in bfloat16 is not computed in it")
def mean_in_bfloat16() -> Example:
    apply = lambda params, x: jnp.mean(jnp.abs(x @ params["fc"]["w"]), axis=-1, dtype=jnp.bfloat16)
    return Example(apply, {"fc": square()}, (rows_of(),), LAYERS)


@program("jax PR#17792", "a float16 mean underflows when it divides first")
def float16_mean_of_small_numbers() -> Example:
    apply = lambda params, x: jnp.mean(jnp.abs((x @ params["fc"]["w"]).astype(jnp.float16)) * 1e-3)
    return Example(apply, {"fc": square()}, (rows_of(),), LAYERS)


@program(
    "ml_dtypes#63, jax#18387 #29323", "a bfloat16 running sum sticks at 256: sums stay in the program's own format"
)
def running_sum() -> Example:
    def apply(params: Any, x: Any) -> Any:
        steps = jnp.ones((300,)) + 0 * x[0, 0]
        return {"y": x @ params["fc"]["w"], EXACT: (jnp.cumsum(steps), steps.sum())}

    return Example(apply, {"fc": square()}, (rows_of(),), LAYERS)


@program(
    "jax#23007, ml_dtypes#167", "XLA keeps excess precision: rounding by conversion and back does nothing under jit"
)
def rounding_by_conversion() -> Example:
    def apply(params: Any, x: Any) -> Any:
        return (x @ params["fc"]["w"]).astype(jnp.bfloat16).astype(jnp.float32) * 3

    return Example(apply, {"fc": square()}, (rows_of(),), LAYERS)


@program("openxla/xla#41605", "conversions to bfloat16 and back are removed: simulated quantization has no effect")
def simulated_rounding() -> Example:
    def apply(params: Any, x: Any) -> Any:
        rounded = lambda value: value.astype(jnp.bfloat16).astype(jnp.float32)
        h = jax.nn.relu(rounded(x) @ rounded(params["fc"]["w"]))
        return rounded(h) @ rounded(params["out"]["w"])

    return Example(apply, {"fc": square(), "out": square(1)}, (rows_of(),), (*LAYERS, matmul("out")))


@program("jax#6283", "only reduce_precision makes rounding stick")
def rounding_by_reduce_precision() -> Example:
    def apply(params: Any, x: Any) -> Any:
        h = lax.reduce_precision(x @ params["fc"]["w"], 8, 7)
        return h, lax.bitcast_convert_type(h, jnp.uint32) & 0xFFFF

    return Example(apply, {"fc": square()}, (rows_of(),), LAYERS)


@program("jax#24281", "argmax and negative zero")
def argmax_of_zeros() -> Example:
    def apply(params: Any, x: Any) -> Any:
        zeros = jnp.where(x > 0, 0.0, -0.0)
        return x @ params["fc"]["w"], jnp.argmax(zeros, -1), jnp.signbit(zeros)

    return Example(apply, {"fc": square()}, (rows_of(),), LAYERS)


@program("jax#30879", "random.categorical draws other classes for bfloat16 than for float32 scores")
def categorical() -> Example:
    def apply(params: Any, x: Any, key: Any) -> Any:
        scores = x @ params["fc"]["w"]
        return jax.random.categorical(key, scores), scores

    params = {"fc": {"w": np.eye(WIDTH, dtype=np.float32) * 20}}
    return Example(apply, params, (np.sign(rows_of()), jax.random.key(5)), (("input/0", "input"), matmul("fc")))


@program("flax#612, equinox PR#876, keras-core PR#410 PR#412", "statistics of a norm and a softmax overflow in float16")
def large_activations() -> Example:
    def apply(params: Any, x: Any) -> Any:
        h = (x @ params["fc"]["w"]) * 1e3
        centered = h - h.mean(-1, keepdims=True)
        normed = centered * lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-6)
        return normed, jax.nn.softmax(normed @ params["out"]["w"])

    return Example(apply, {"fc": square(), "out": square(1)}, (rows_of(),), (*LAYERS, matmul("out")))


@program("pytorch/xla#8496 #9014 #1929", "a batch norm of bfloat16 activations with float32 statistics is refused")
def batch_norm_of_bfloat16() -> Example:
    def apply(params: Any, x: Any) -> Any:
        kernel = params["fc"]["w"].astype(jnp.bfloat16)
        h = lax.conv_general_dilated(
            x.astype(jnp.bfloat16), kernel, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC")
        )
        normed = (h - params["mean"]) * lax.rsqrt(params["var"] + 1e-3)
        return normed.astype(jnp.bfloat16)

    params = {"fc": {"w": normal(3, WIDTH, 4)}, "mean": normal(4) / 9, "var": np.abs(normal(4)) + 1}
    return Example(apply, params, (normal(2, 8, WIDTH),), (INPUT, ("fc", "conv")))


@program("xla#32845, jax#32148", "one collective permute of bfloat16 and float32 together")
def permute_of_two_formats() -> Example:
    mesh = jax.make_mesh((1,), ("device",), devices=jax.devices()[:1], axis_types=(AxisType.Auto,))
    spec = PartitionSpec("device")

    def apply(params: Any, x: Any) -> Any:
        pair = (x @ params["fc"]["w"], x.astype(jnp.bfloat16))
        permute = lambda *pair: lax.ppermute(pair, "device", [(0, 0)])
        return jax.shard_map(permute, mesh=mesh, in_specs=(spec, spec), out_specs=(spec, spec))(*pair)

    return Example(apply, {"fc": square()}, (rows_of(),), LAYERS)


@program("mesh-transformer-jax#203", "an optimization barrier around values in several formats")
def barrier() -> Example:
    def apply(params: Any, x: Any) -> Any:
        h, small, count = lax.optimization_barrier((x @ params["fc"]["w"], x.astype(jnp.bfloat16), jnp.int8(3)))
        return h * small.astype(jnp.float32), count

    return Example(apply, {"fc": square()}, (rows_of(),), LAYERS)
