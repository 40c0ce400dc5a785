"""Part F5: promotion, random bits, donation, and the configuration that a program is traced under."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.conformance.checks import EXACT
from tests.conformance.rows import INPUT, matmul, out_of_scope, program, rows_of, square, stack
from tests.programs import Example

LAYERS = (INPUT, matmul("fc"))


@program(
    "jax#7368, jax PR#10824",
    "strict promotion refuses what a rewrite adds",
    lambda: jax.numpy_dtype_promotion("strict"),
)
def strict_promotion() -> Example:
    def apply(params: Any, x: Any) -> Any:
        h = jax.nn.relu(x @ params["fc"]["w"])
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), h.sum()), h, params["layers"]["w"])

    return Example(apply, {"fc": square(), "layers": stack()}, (rows_of(),), (*LAYERS, matmul("layers")))


@program("jax#11014", "np.result_type with bfloat16")
def result_type() -> Example:
    def apply(params: Any, x: Any) -> Any:
        half = x.astype(jnp.bfloat16)
        dtype = jnp.result_type(half, params["fc"]["w"])
        return half.astype(dtype) @ params["fc"]["w"] + np.ones((), dtype)

    return Example(apply, {"fc": square()}, (rows_of(),), LAYERS)


@program("google/torchax#31", "a float32 constant pulls a bfloat16 layer back to float32")
def float32_constants() -> Example:
    gain = np.float32(1.5)

    def apply(params: Any, x: Any) -> Any:
        h = x.astype(jnp.bfloat16) @ params["fc"]["w"]
        return h * gain, h * 1.5, (h * gain) @ params["fc"]["w"]

    params = {"fc": {"w": jnp.asarray(square()["w"], jnp.bfloat16)}}
    return Example(apply, params, (rows_of(),), LAYERS)


@program("jax#27002", "random numbers depend on the width of their dtype: another dtype is another stream")
def random_stream() -> Example:
    def apply(params: Any, x: Any, key: Any) -> Any:
        first, second = jax.random.split(key)
        noise = jax.random.uniform(first, x.shape)
        flags = jax.random.bernoulli(second, 0.5, x.shape)
        y = (x + noise) @ params["fc"]["w"]
        return {
            "y": jnp.where(flags, y, 0),
            EXACT: noise,
            "flags": flags,
            "bits": jax.random.bits(second),
            "key": first,
        }

    return Example(apply, {"fc": square()}, (rows_of(), jax.random.key(3)), (("input/0", "input"), matmul("fc")))


@program("jax#9274", "the RBG generator with bfloat16")
def rbg_stream() -> Example:
    def apply(params: Any, x: Any, key: Any) -> Any:
        noise = jax.random.uniform(key, (3,), jnp.bfloat16)
        return {"y": x @ params["fc"]["w"], EXACT: noise}

    inputs = (rows_of(), jax.random.key(3, impl="rbg"))
    return Example(apply, {"fc": square()}, inputs, (("input/0", "input"), matmul("fc")))


@program("jax#2274 #3594", "operations that bfloat16 lacked")
def many_operations_in_bfloat16() -> Example:
    def apply(params: Any, x: Any) -> Any:
        h = (x @ params["fc"]["w"]).astype(jnp.bfloat16)
        ordered = jnp.sort(h, -1)
        return jnp.cumsum(ordered, -1), jax.lax.erf(h), jnp.max(h, -1), jax.lax.top_k(h, 2)[0], jax.nn.gelu(h)

    return Example(apply, {"fc": square()}, (rows_of(),), LAYERS)


@program("jax#9675, maxtext PR#495", "a donated input is unusable once its size changed: a warning and more memory")
def donated_input() -> Example:
    return Example(lambda params, x: x + x @ params["fc"]["w"], {"fc": square()}, (rows_of(),), LAYERS)


@program("jax#12514", "debug_nans", lambda: jax.debug_nans(True))
def debug_nans() -> Example:
    apply = lambda params, x: jnp.log(jnp.abs(x @ params["fc"]["w"]) + 1) + 2
    return Example(apply, {"fc": square()}, (np.concatenate([rows_of(3), np.zeros((1, 6), np.float32)]),), LAYERS)


@program(
    "jax#14022 #4873 #12008 #7010 #18934",
    "the default precision of matmuls differs by device, and is set around the program",
    lambda: jax.default_matmul_precision("highest"),
)
def default_precision_of_matmuls() -> Example:
    return Example(lambda params, x: x @ params["fc"]["w"], {"fc": square()}, (rows_of(),), LAYERS)


@program("jax#36799", "a loop in float64 (the report is about its speed in one version)", lambda: jax.enable_x64(True))
def float64() -> Example:
    def apply(params: Any, x: Any) -> Any:
        body = lambda h, w: (jnp.tanh(h @ w), h.sum())
        return jax.lax.scan(body, x @ params["fc"]["w"], params["layers"]["w"])

    params = {name: {"w": part["w"].astype(np.float64)} for name, part in {"fc": square(), "layers": stack()}.items()}
    return Example(apply, params, (rows_of().astype(np.float64),), (*LAYERS, matmul("layers")))


@program("jax#7431, jax PR#7462", "float16 products on the CPU are widened, and slow: what really runs is reported")
def float16_model() -> Example:
    def apply(params: Any, x: Any) -> Any:
        h = jax.nn.relu(x.astype(jnp.float16) @ params["fc"]["w"])
        return h @ params["out"]["w"]

    params = {name: {"w": jnp.asarray(square(i)["w"], jnp.float16)} for i, name in enumerate(("fc", "out"))}
    return Example(apply, params, (rows_of(),), (*LAYERS, matmul("out")))


@program(
    "jax#21212 #11705 #15107", "one example at a time, half precision is slower than expected, since it is widened"
)
def one_example() -> Example:
    apply = lambda params, x: jax.nn.relu(x @ params["fc"]["w"]) @ params["out"]["w"]
    return Example(apply, {"fc": square(), "out": square(1)}, (rows_of(1),), (*LAYERS, matmul("out")))


out_of_scope("jax#18123", "dtype trouble", "the thread names no program")
