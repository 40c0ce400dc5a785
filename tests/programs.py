"""Small programs that stand for what users write; each exercises one way in which a layer can hide."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Example:
    """A function, its parameters, its inputs, and the layers it must be found to have (name, kind).

    Attributes:
        least: how many examples it needs at least.
    """

    apply: Callable[..., Any]
    params: Any
    inputs: tuple[Any, ...]
    layers: tuple[tuple[str, str], ...]
    least: int = field(default=1, kw_only=True)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng((seed, *shape))
    return rng.normal(size=shape).astype(np.float32)


def mlp() -> Example:
    def apply(params: Any, x: Any) -> Any:
        h = jax.nn.relu(x @ params["fc1"]["kernel"] + params["fc1"]["bias"])
        return jax.nn.log_softmax(h @ params["fc2"]["kernel"] + params["fc2"]["bias"])

    params = {
        "fc1": {"kernel": normal(12, 16), "bias": normal(16)},
        "fc2": {"kernel": normal(16, 5), "bias": normal(5)},
    }
    return Example(apply, params, (normal(8, 12),), (("input", "input"), ("fc1", "matmul"), ("fc2", "matmul")))


def weight_on_the_left() -> Example:
    params = {"w": normal(7, 12)}
    return Example(
        lambda p, x: jnp.einsum("oi,bi->bo", p["w"], x), params, (normal(4, 12),), (("input", "input"), ("w", "matmul"))
    )


def transposed_and_reshaped() -> Example:
    def apply(params: Any, x: Any) -> Any:
        return x @ params["a"]["w"].T.reshape(12, -1)

    return Example(apply, {"a": {"w": normal(6, 12)}}, (normal(4, 12),), (("input", "input"), ("a", "matmul")))


def attention() -> Example:
    def apply(params: Any, x: Any) -> Any:
        def heads(name: str) -> Any:
            return jnp.reshape(x @ params[name]["kernel"], (*x.shape[:-1], 2, 4))

        q, k, v = heads("q"), heads("k"), heads("v")
        with jax.named_scope("attn"):
            scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 2.0)
            mixed = jnp.einsum("bhqk,bkhd->bqhd", scores, v)
        return jnp.reshape(mixed, x.shape) @ params["out"]["kernel"]

    params = {name: {"kernel": normal(8, 8, seed=i)} for i, name in enumerate(("q", "k", "v", "out"))}
    layers = (("input", "input"), ("q", "matmul"), ("k", "matmul"), ("v", "matmul"))
    dots = (("attn/bqhd,bkhd->bhqk/dot_0", "dot"), ("attn/bhqk,bkhd->bqhd/dot_0", "dot"))
    return Example(apply, params, (normal(3, 5, 8),), (*layers, *dots, ("out", "matmul")))


def convolutions() -> Example:
    def apply(params: Any, x: Any) -> Any:
        def conv(x: Any, name: str, **settings: Any) -> Any:
            return jax.lax.conv_general_dilated(
                x, params[name]["w"], dimension_numbers=("NHWC", "HWIO", "NHWC"), **settings
            )

        x = conv(x, "stem", window_strides=(2, 2), padding="SAME")
        x = conv(x, "depthwise", window_strides=(1, 1), padding="SAME", feature_group_count=8)
        x = conv(x, "dilated", window_strides=(1, 1), padding="VALID", rhs_dilation=(2, 2))
        return jnp.mean(x, axis=(1, 2)) @ params["head"]["w"]

    params = {
        "stem": {"w": normal(3, 3, 3, 8)},
        "depthwise": {"w": normal(3, 3, 1, 8)},
        "dilated": {"w": normal(3, 3, 8, 4)},
        "head": {"w": normal(4, 3)},
    }
    names = tuple((name, "conv") for name in ("stem", "depthwise", "dilated"))
    return Example(apply, params, (normal(2, 16, 16, 3),), (("input", "input"), *names, ("head", "matmul")))


def channels_first_convolution() -> Example:
    def apply(params: Any, x: Any) -> Any:
        return jax.lax.conv_general_dilated(x, params["w"], (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))

    return Example(apply, {"w": normal(6, 3, 3, 3)}, (normal(2, 3, 8, 8),), (("input", "input"), ("w", "conv")))


def embedding() -> Example:
    def apply(params: Any, ids: Any) -> Any:
        return jnp.take(params["tokens"]["embedding"], ids, axis=0).sum(1) @ params["out"]["w"]

    params = {"tokens": {"embedding": normal(20, 8)}, "out": {"w": normal(8, 3)}}
    ids = np.arange(12, dtype=np.int32).reshape(3, 4)
    return Example(apply, params, (ids,), (("tokens", "embedding"), ("out", "matmul")))


def tied_embedding() -> Example:
    def apply(params: Any, ids: Any) -> Any:
        table = params["tokens"]["embedding"]
        return jnp.tanh(table[ids]) @ table.T

    ids = np.arange(6, dtype=np.int32).reshape(2, 3)
    return Example(apply, {"tokens": {"embedding": normal(20, 8)}}, (ids,), (("tokens", "matmul"),))


def called_functions() -> Example:
    """Layers inside jit, remat and custom rules."""

    @jax.custom_vjp
    def scaled(w: Any, x: Any) -> Any:
        return x @ w

    scaled.defvjp(lambda w, x: (x @ w, (w, x)), lambda saved, g: (saved[1].T @ g, g @ saved[0].T))

    @jax.custom_jvp
    def shifted(w: Any, x: Any) -> Any:
        return x @ w + 1

    shifted.defjvp(lambda primals, tangents: (shifted(*primals), shifted(*tangents)))

    def apply(params: Any, x: Any) -> Any:
        x = jax.jit(lambda w, x: jax.nn.gelu(x @ w))(params["jit"]["w"], x)
        x = jax.checkpoint(lambda w, x: jnp.sin(x @ w))(params["remat"]["w"], x)
        return shifted(params["jvp"]["w"], scaled(params["vjp"]["w"], x))

    params = {name: {"w": normal(6, 6, seed=i)} for i, name in enumerate(("jit", "remat", "vjp", "jvp"))}
    layers = tuple((name, "matmul") for name in ("jit", "remat", "vjp", "jvp"))
    return Example(apply, params, (normal(3, 6),), (("input", "input"), *layers))


def weight_norm() -> Example:
    """A weight computed from two parameters."""

    def apply(params: Any, x: Any) -> Any:
        v, g = params["fc"]["v"], params["fc"]["g"]
        return x @ (g * v / jnp.linalg.norm(v, axis=0))

    params = {"fc": {"v": normal(6, 4), "g": normal(4)}}
    return Example(apply, params, (normal(3, 6),), (("input", "input"), ("fc/{g,v}", "matmul")))


def sliced_stack() -> Example:
    """One stacked parameter, each slice a layer of its own."""

    def apply(params: Any, x: Any) -> Any:
        for i in range(3):
            x = jnp.tanh(x @ params["w"][i])
        return x

    layers = tuple((f"w/{i}", "matmul") for i in range(3))
    return Example(apply, {"w": normal(3, 6, 6)}, (normal(2, 6),), (("input", "input"), *layers))


def shared_weight() -> Example:
    """One weight used twice is one layer."""

    def apply(params: Any, x: Any) -> Any:
        return jnp.tanh(x @ params["w"]) @ params["w"]

    return Example(apply, {"w": normal(6, 6)}, (normal(2, 6),), (("input", "input"), ("w", "matmul")))


def several_inputs() -> Example:
    """A tuple, a dict, an integer input and a random key."""

    def apply(params: Any, pair: Any, extra: Any, key: Any) -> Any:
        noise = jax.random.uniform(key, pair[0].shape)
        return {"y": (pair[0] + noise) @ params["w"] + extra["b"], "n": pair[1] + 1, "key": key}

    inputs = ((normal(2, 6), np.arange(2)), {"b": normal(4)}, jax.random.key(3))
    layers = (("input/0/0", "input"), ("input/1/b", "input"), ("w", "matmul"))
    return Example(apply, {"w": normal(6, 4)}, inputs, layers)


def half_precision_model() -> Example:
    """A model that is bfloat16 already."""

    def apply(params: Any, x: Any) -> Any:
        return jnp.dot(x.astype(jnp.bfloat16), params["w"], precision="highest")

    params = {"w": jnp.asarray(normal(6, 4), jnp.bfloat16)}
    return Example(apply, params, (normal(2, 6),), (("input", "input"), ("w", "matmul")))


def closed_over_constant() -> Example:
    """A matrix that is no parameter."""
    table = normal(6, 4)
    return Example(
        lambda p, x: (x * p["s"]) @ table, {"s": normal(6)}, (normal(2, 6),), (("input", "input"), ("dot_0", "dot"))
    )


def scan_and_branches() -> Example:
    """Layers under scan, cond and a loop."""

    def apply(params: Any, x: Any) -> Any:
        x, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, params["layers"]["w"])
        x = jax.lax.cond(x.sum() > 0, lambda x: x @ params["branch"]["w"], lambda x: -x, x)
        return jax.lax.fori_loop(0, 2, lambda i, x: x @ params["loop"]["w"], x)

    params = {"layers": {"w": normal(4, 6, 6)}, "branch": {"w": normal(6, 6)}, "loop": {"w": normal(6, 6, seed=1)}}
    layers = (("layers", "matmul"), ("branch", "matmul"), ("loop", "matmul"))
    return Example(apply, params, (normal(3, 6),), (("input", "input"), *layers))


def scan_over_layers() -> Example:
    """A transformer-like stack: stacked weights, a norm with stacked scales, a weight shared by all iterations."""

    def apply(params: Any, x: Any) -> Any:
        def block(h: Any, layer: Any) -> Any:
            h = h / jnp.sqrt(jnp.mean(h**2, -1, keepdims=True) + 1e-3) * layer["scale"]
            h = h + jax.nn.relu(h @ layer["up"]["kernel"]) @ layer["down"]["kernel"].T
            return h @ params["shared"]["kernel"], h.sum()

        return jax.lax.scan(block, x, params["layers"], reverse=True)

    layers = {
        "scale": normal(3, 6),
        "up": {"kernel": normal(3, 6, 8) / 3},
        "down": {"kernel": normal(3, 6, 8, seed=1) / 3},
    }
    params = {"layers": layers, "shared": {"kernel": normal(6, 6) / 2}}
    names = (("layers/up", "matmul"), ("layers/down", "matmul"), ("shared", "matmul"))
    return Example(apply, params, (normal(4, 6),), (("input", "input"), *names))


def nested_scans() -> Example:
    """A scan inside a scan, a product of two activations inside both, a branch inside."""

    def apply(params: Any, x: Any) -> Any:
        def inner(h: Any, w: Any) -> Any:
            h = jax.lax.cond(h.sum() > 1e3, lambda h: h @ params["rare"]["w"], lambda h: h, jnp.tanh(h @ w))
            return jnp.sin(h) + jnp.einsum("bi,bj->bi", h, h) / 36, None

        def outer(h: Any, stack: Any) -> Any:
            h, _ = jax.lax.scan(inner, h, stack * params["gain"])
            return h, None

        return jax.lax.scan(outer, x, params["blocks"]["w"])[0]

    params = {"blocks": {"w": normal(2, 3, 6, 6)}, "gain": normal(6), "rare": {"w": normal(6, 6)}}
    layers = (("{blocks,gain}", "matmul"), ("rare", "matmul"), ("bi,bj->bi/dot_0", "dot"))
    return Example(apply, params, (normal(4, 6),), (("input", "input"), *layers))


def while_with_condition() -> Example:
    """A loop whose condition multiplies too, and whose weight is used outside as well."""

    def apply(params: Any, x: Any) -> Any:
        def going(state: Any) -> Any:
            step, h = state
            return (step < 3) & ((h @ params["probe"]["w"]).sum() < 1e6)

        def body(state: Any) -> Any:
            step, h = state
            return step + 1, jnp.tanh(h @ params["loop"]["w"]) + params["loop"]["w"].sum()

        return jax.lax.while_loop(going, body, (0, x))

    params = {"probe": {"w": normal(6, 2)}, "loop": {"w": normal(6, 6)}}
    return Example(apply, params, (normal(4, 6),), (("input", "input"), ("probe", "matmul"), ("loop", "matmul")))


def function_called_twice() -> Example:
    """One jitted function, two calls: its products of activations are layers of their own."""

    @jax.jit
    def mix(x: Any) -> Any:
        return jax.nn.softmax(x @ x.T) @ x

    return Example(
        lambda p, x: mix(mix(x * p["s"])),
        {"s": normal(6)},
        (normal(4, 6),),
        (("input", "input"), *((f"dot_{i}", "dot") for i in range(4))),
    )


def linear_solve() -> Example:
    """A solver of the user's own, with layers in its solve function."""

    def apply(params: Any, x: Any) -> Any:
        def solve(matvec: Any, b: Any) -> Any:
            return jnp.tanh(b @ params["inverse"]["w"])

        return jax.lax.custom_linear_solve(lambda v: v @ params["matrix"], x, solve, symmetric=True)

    params = {"inverse": {"w": normal(6, 6)}, "matrix": normal(6, 6, seed=1)}
    return Example(apply, params, (normal(4, 6),), (("input", "input"), ("inverse", "matmul")))


def callbacks() -> Example:
    """What leaves the program while it runs: unordered, ordered, and with a result."""

    def apply(params: Any, x: Any) -> Any:
        y = x @ params["fc"]["w"]
        jax.debug.callback(lambda total: None, y.sum())
        jax.experimental.io_callback(lambda total: None, None, y.sum(), ordered=True)
        return jax.pure_callback(np.tanh, jax.ShapeDtypeStruct(y.shape, y.dtype), y) @ params["out"]["w"]

    params = {"fc": {"w": normal(6, 6)}, "out": {"w": normal(6, 6, seed=1)}}
    return Example(apply, params, (normal(4, 6),), (("input", "input"), ("fc", "matmul"), ("out", "matmul")))


EXAMPLES: dict[str, Callable[[], Example]] = {
    make.__name__: make
    for make in (
        mlp,
        weight_on_the_left,
        transposed_and_reshaped,
        attention,
        convolutions,
        channels_first_convolution,
        embedding,
        tied_embedding,
        called_functions,
        weight_norm,
        sliced_stack,
        shared_weight,
        several_inputs,
        half_precision_model,
        closed_over_constant,
        scan_and_branches,
        scan_over_layers,
        nested_scans,
        while_with_condition,
        function_called_twice,
        callbacks,
        linear_solve,
    )
}
