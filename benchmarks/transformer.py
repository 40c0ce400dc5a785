"""A transformer whose layers are a Python loop: what tracing has to get through."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WIDTH, HEADS, EXAMPLES, TOKENS = 64, 4, 2, 16


def make(layers: int) -> tuple[dict[str, dict[str, Any]], jax.Array]:
    """(parameters, inputs)."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape) * 0.1, jnp.float32)

    def block() -> dict[str, Any]:
        square = {name: normal(WIDTH, WIDTH) for name in ("query", "key", "value", "mixed")}
        return {
            **square,
            "up": normal(WIDTH, 4 * WIDTH),
            "down": normal(4 * WIDTH, WIDTH),
            "norms": jnp.ones((2, WIDTH)),
        }

    return {f"block_{i}": block() for i in range(layers)}, normal(EXAMPLES, TOKENS, WIDTH)


def apply(params: dict[str, dict[str, Any]], x: Any) -> Any:
    """The outputs: pre-norm attention and a two-layer network in every block."""
    for block in params.values():
        x = x + _attention(block, _norm(x, block["norms"][0]))
        x = x + jax.nn.gelu(_norm(x, block["norms"][1]) @ block["up"]) @ block["down"]
    return x


def _norm(x: Any, scale: Any) -> Any:
    x = x - jnp.mean(x, -1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * scale


def _attention(block: dict[str, Any], x: Any) -> Any:
    query, key, value = (
        jnp.reshape(x @ block[name], (EXAMPLES, TOKENS, HEADS, -1)) for name in ("query", "key", "value")
    )
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", query, key) / (WIDTH // HEADS) ** 0.5)
    return jnp.reshape(jnp.einsum("bhqk,bkhd->bqhd", weights, value), x.shape) @ block["mixed"]
