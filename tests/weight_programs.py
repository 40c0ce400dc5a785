"""Ways in which real models reach their weights, one program each, and what a policy then stores.

`transposed` and `reshaped` stand for all that only moves a parameter, `sliced` and its like for what takes a part of it,
`weight_norm` and its like for what computes with it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.programs import Example, normal

INPUT = ("input", "input")
WIDTH = 6
ROWS = (4, WIDTH)
IMAGE = (2, 8, 8, 4)
NHWC = ("NHWC", "HWIO", "NHWC")


@dataclass(frozen=True)
class Weights(Example):
    """A program, and the shapes of its packed weights without scales, by name; none means one per layer, of its shape."""

    packed: dict[str, tuple[int, ...]] | None = None


WEIGHTS: dict[str, Callable[[], Weights]] = {}


def program(
    layers: dict[str, str],
    params: Any,
    x: Any = None,
    packed: dict[str, tuple[int, ...]] | None = None,
    least: int = 1,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the decorated `apply(params, x)`: layers by name and kind, parameters, input (rows when left out)."""

    def add(apply: Callable[..., Any]) -> Callable[..., Any]:
        given = normal(*ROWS) if x is None else x
        floats = (INPUT,) if np.issubdtype(given.dtype, np.floating) else ()
        WEIGHTS[apply.__name__] = lambda: Weights(
            apply, params, (given,), (*floats, *layers.items()), packed, least=least
        )
        return apply

    return add


def one(*shape: int, seed: int = 0) -> dict[str, Any]:
    return {"w": normal(*shape, seed=seed) / 2}


@program({"fc": "matmul"}, {"fc": one(WIDTH, 8)}, packed={"fc": (WIDTH, 8)})
def tied(params: Any, x: Any) -> Any:
    """An encoder and its decoder with one matrix."""
    return jnp.tanh(x @ params["fc"]["w"]) @ params["fc"]["w"].T


@program({"fc": "matmul"}, {"fc": one(8, WIDTH)})
def transposed(params: Any, x: Any) -> Any:
    return x @ params["fc"]["w"].T


@program({"fc": "matmul"}, {"fc": one(2, 3, 8)})
def reshaped(params: Any, x: Any) -> Any:
    """A kernel of heads, as Flax stores them."""
    return x @ params["fc"]["w"].reshape(WIDTH, 8)


@program({"qkv/0": "matmul", "qkv/1": "matmul", "qkv/2": "matmul"}, {"qkv": one(WIDTH, 12)})
def sliced(params: Any, x: Any) -> Any:
    w = params["qkv"]["w"]
    return x @ w[:, :4] + x @ w[:, 4:8] * jnp.tanh(x @ w[:, 8:])


@program({"qkv/0": "matmul", "qkv/1": "matmul"}, {"qkv": one(WIDTH, 8)})
def split(params: Any, x: Any) -> Any:
    return x @ jnp.split(params["qkv"]["w"], 2, axis=1)[0] + x @ jnp.split(params["qkv"]["w"], 2, axis=1)[1]


@program({"attn/{k,q,v}": "matmul"}, {"attn": {name: one(WIDTH, 4, seed=i) for i, name in enumerate("qkv")}})
def concatenated(params: Any, x: Any) -> Any:
    """Three parameters fused into one product."""
    q, k, v = jnp.split(x @ jnp.concatenate([params["attn"][name]["w"] for name in "qkv"], axis=1), 3, axis=1)
    return jnp.tanh(q) * k + v


@program({"heads": "matmul"}, {"heads": one(3, WIDTH, 5)})
def stacked_under_vmap(params: Any, x: Any) -> Any:
    return jax.vmap(lambda w: jnp.tanh(x @ w))(params["heads"]["w"]).sum(0)


@program({"nets/up": "matmul", "nets/down": "matmul"}, {"nets": {"up": one(3, WIDTH, 8), "down": one(3, 8, 4, seed=1)}})
def ensemble_under_vmap(params: Any, x: Any) -> Any:
    """Stacked parameters with rows of their own: every matrix is quantized by itself."""
    member = lambda net, x: jnp.tanh(x @ net["up"]["w"]) @ net["down"]["w"]
    return jax.vmap(member)(params["nets"], jnp.stack([x, -x, 2 * x]))


@program({"fc/{a,b,w}": "matmul"}, {"fc": {**one(WIDTH, WIDTH), "a": normal(WIDTH, 2), "b": normal(2, WIDTH) / 4}})
def low_rank_sum(params: Any, x: Any) -> Any:
    """LoRA merged into the weight."""
    return x @ (params["fc"]["w"] + params["fc"]["a"] @ params["fc"]["b"] * 0.5)


@program(
    {"fc": "matmul", "fc/a": "matmul", "fc/b": "matmul"},
    {"fc": {**one(WIDTH, WIDTH), "a": normal(WIDTH, 2), "b": normal(2, WIDTH) / 4}},
)
def low_rank_branch(params: Any, x: Any) -> Any:
    """LoRA beside the weight: three layers."""
    return x @ params["fc"]["w"] + x @ params["fc"]["a"] @ params["fc"]["b"]


@program({"fc/{direction,gain}": "matmul"}, {"fc": {"direction": normal(WIDTH, 4), "gain": normal(4)}})
def weight_norm(params: Any, x: Any) -> Any:
    direction, gain = params["fc"]["direction"], params["fc"]["gain"]
    return x @ (gain * direction / jnp.linalg.norm(direction, axis=0))


def convolve(x: Any, kernel: Any, **settings: Any) -> Any:
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=NHWC, **settings)


NORM = {"scale": normal(5), "var": np.abs(normal(5, seed=1)) + 0.5, "mean": normal(5, seed=2)}


@program({"{bn/scale,bn/var,conv}": "conv"}, {"conv": one(3, 3, 4, 5), "bn": NORM}, normal(*IMAGE))
def folded_batch_norm(params: Any, x: Any) -> Any:
    gain = params["bn"]["scale"] / jnp.sqrt(params["bn"]["var"] + 1e-3)
    return convolve(x, params["conv"]["w"] * gain) - params["bn"]["mean"] * gain


EXPERTS = {"gate": one(WIDTH, 3), "up": one(3, WIDTH, 8), "down": one(3, 8, WIDTH, seed=1)}
MIXED = {"gate": "matmul", "up": "matmul", "down": "matmul"}


@program(MIXED, EXPERTS)
def mixture_of_experts(params: Any, x: Any) -> Any:
    """All experts on all rows, as einsums."""
    gate = jax.nn.softmax(x @ params["gate"]["w"])
    h = jax.nn.relu(jnp.einsum("bd,edh->beh", x, params["up"]["w"]))
    return jnp.einsum("beh,ehd->bd", h * gate[:, :, None], params["down"]["w"])


@program(MIXED, EXPERTS)
def ragged(params: Any, x: Any) -> Any:
    """Each row through its own expert, rows sorted by expert."""
    expert = jnp.argmax(x @ params["gate"]["w"], axis=-1)
    order = jnp.argsort(expert)
    sizes = jnp.bincount(expert, length=3)
    h = jax.nn.relu(jax.lax.ragged_dot(x[order], params["up"]["w"], sizes))
    return jax.lax.ragged_dot(h, params["down"]["w"], sizes)[jnp.argsort(order)]


@program({"conv": "conv"}, {"conv": one(3, 3, 2, 6)}, normal(*IMAGE))
def grouped_convolution(params: Any, x: Any) -> Any:
    return convolve(x, params["conv"]["w"], feature_group_count=2)


@program({"conv": "conv"}, {"conv": one(3, 3, 1, 4)}, normal(*IMAGE))
def depthwise_convolution(params: Any, x: Any) -> Any:
    return convolve(x, params["conv"]["w"], feature_group_count=4)


@program({"conv": "conv"}, {"conv": one(3, 3, 4, 6)}, normal(*IMAGE), packed={}, least=2)
def batch_groups(params: Any, x: Any) -> Any:
    """Each half of the batch with its own half of the kernel: listed, and not searchable."""
    return convolve(x, params["conv"]["w"], batch_group_count=2)


@program({"conv": "conv"}, {"conv": one(3, 3, 4, 6)}, normal(*IMAGE))
def transposed_convolution(params: Any, x: Any) -> Any:
    return jax.lax.conv_transpose(x, params["conv"]["w"], (2, 2), "SAME", dimension_numbers=NHWC)


@program({"conv": "conv"}, {"conv": one(3, 3, 6, 4)}, normal(*IMAGE))
def transposed_convolution_with_a_transposed_kernel(params: Any, x: Any) -> Any:
    """As Keras and PyTorch store it: features swapped, taps reversed."""
    kernel = params["conv"]["w"]
    return jax.lax.conv_transpose(x, kernel, (2, 2), "SAME", dimension_numbers=NHWC, transpose_kernel=True)


TOKENS = np.arange(6, dtype=np.int32).reshape(2, 3)


@program({"tokens": "matmul"}, {"tokens": {"embedding": normal(20, 8)}}, TOKENS, packed={"tokens": (20, 8)})
def embedding_as_output(params: Any, ids: Any) -> Any:
    """Looked up at the beginning, multiplied with at the end: one table."""
    table = params["tokens"]["embedding"]
    return jnp.tanh(table[ids]) @ table.T


@program({"tokens": "embedding", "positions": "embedding"}, {"tokens": one(20, 8), "positions": one(9, 8)}, TOKENS)
def one_position(params: Any, ids: Any) -> Any:
    """The step of a decoder: many tokens, one position."""
    return params["tokens"]["w"][ids] * params["positions"]["w"][ids.sum() % 9]
