"""A transformer whose layers are a Python loop, and the same as a scan: what tracing has to get through."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WIDTH, HEADS, EXAMPLES, TOKENS = 64, 4, 2, 16


def make(layers: int) -> tuple[dict[str, dict[str, Any]], jax.Array]:
    """(parameters of every block, inputs)."""
    rng = np.random.default_rng(0)
    return {f"block_{i}": _block(rng, ()) for i in range(layers)}, _normal(rng, EXAMPLES, TOKENS, WIDTH)


def make_stacked(layers: int) -> tuple[dict[str, Any], jax.Array]:
    """The same with the blocks' parameters stacked along a first axis."""
    rng = np.random.default_rng(0)
    return _block(rng, (layers,)), _normal(rng, EXAMPLES, TOKENS, WIDTH)


def apply(params: dict[str, dict[str, Any]], x: Any) -> Any:
    """The outputs: pre-norm attention and a two-layer network in every block, in a Python loop."""
    for block in params.values():
        x = _run_block(x, block)
    return x


def apply_stacked(params: dict[str, Any], x: Any) -> Any:
    """The same as a scan over stacked blocks."""
    return jax.lax.scan(lambda x, block: (_run_block(x, block), None), x, params)[0]


def _normal(rng: np.random.Generator, *shape: int) -> jax.Array:
    return jnp.asarray(rng.normal(size=shape) * 0.1, jnp.float32)


def _block(rng: np.random.Generator, stack: tuple[int, ...]) -> dict[str, Any]:
    return {
        **{name: _normal(rng, *stack, WIDTH, WIDTH) for name in ("query", "key", "value", "mixed")},
        "up": _normal(rng, *stack, WIDTH, 4 * WIDTH),
        "down": _normal(rng, *stack, 4 * WIDTH, WIDTH),
        "norms": jnp.ones((*stack, 2, WIDTH)),
    }


def _run_block(x: Any, block: dict[str, Any]) -> Any:
    x = x + _attention(block, _norm(x, block["norms"][0]))
    return x + jax.nn.gelu(_norm(x, block["norms"][1]) @ block["up"]) @ block["down"]


def _norm(x: Any, scale: Any) -> Any:
    x = x - jnp.mean(x, -1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * scale


def _attention(block: dict[str, Any], x: Any) -> Any:
    query, key, value = (
        jnp.reshape(x @ block[name], (EXAMPLES, TOKENS, HEADS, -1)) for name in ("query", "key", "value")
    )
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", query, key) / (WIDTH // HEADS) ** 0.5)
    return jnp.reshape(jnp.einsum("bhqk,bkhd->bqhd", weights, value), x.shape) @ block["mixed"]
