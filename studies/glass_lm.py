"""glassllm's tiny English language model in Haiku, judged by cross-entropy per token on Alice in Wonderland."""

import io
import json
import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tuner
from studies._packages import needs, read_member

with needs("studies.glass_lm", "dm-haiku", "tokenizers"):
    import haiku as hk
    import tokenizers

WIDTH, DEPTH, HEADS, KEY_HEADS, HIDDEN, VOCABULARY, CONTEXT = 128, 4, 4, 2, 341, 1024, 128
HEAD_WIDTH = WIDTH // HEADS
ROTARY_BASE, EPSILON = 1e4, 1e-6

# Keys and values of one layer, each (batch, context, heads, width).
Cache = tuple[jax.Array, ...]

# A loss: at most 0.01 nats per token more, one percent of perplexity.
max_drop = 0.01


def task() -> tuner.Task:
    """Windows of 128 tokens, 16 at a time."""
    return make_task("glass_lm", batch_size=16)


def single() -> tuner.Task:
    """The same windows one at a time."""
    return make_task("glass_lm_single", batch_size=1)


def mixed() -> tuner.Task:
    """Both: one policy for as many windows 16 at a time as one at a time."""
    shapes = {"batch": tuner.Shape(batch_size=16), "single": tuner.Shape(batch_size=1, weight=16)}
    return make_task("glass_lm_mixed", batch_size=16, shapes=shapes)


def decode() -> tuner.Task:
    """One window, token by token: what generating text costs, its keys and values kept from step to step."""
    return make_task("glass_lm_decode", batch_size=1, apply=decode_windows)


def make_task(name: str, batch_size: int, apply: Any = None, shapes: Any = None) -> tuner.Task:
    """The published weights, judged on each next token of the text."""
    tokens = load_tokens()
    windows = (len(tokens) - 1) // CONTEXT
    inputs = tokens[: windows * CONTEXT].reshape(windows, CONTEXT)
    labels = tokens[1 : windows * CONTEXT + 1].reshape(windows, CONTEXT)
    return tuner.Task(
        name=name,
        apply=read_windows if apply is None else apply,
        params=load_params(),
        inputs=inputs,
        labels=labels,
        batch_size=batch_size,
        metric="cross_entropy",
        shapes=shapes,
    )


class Attention(hk.Module):
    """Causal attention with rotary positions; two query heads share a key and a value head."""

    def __call__(self, x: jax.Array, positions: jax.Array, cache: Cache | None) -> tuple[jax.Array, Cache]:
        """What each position reads from those before it, (batch, length, width), and the keys and values so far.

        With a cache, which holds the whole context, `x` is what comes next in it.
        """
        batch, length, _ = x.shape
        query = linear("query", HEADS * HEAD_WIDTH)(x).reshape(batch, length, HEADS, HEAD_WIDTH)
        key = linear("key", KEY_HEADS * HEAD_WIDTH)(x).reshape(batch, length, KEY_HEADS, HEAD_WIDTH)
        value = linear("value", KEY_HEADS * HEAD_WIDTH)(x).reshape(batch, length, KEY_HEADS, HEAD_WIDTH)
        known: Cache = (rotate(key, positions), value)
        if cache is not None:
            known = jax.tree_util.tree_map(partial(_put, positions[0]), cache, known)
        keys, values = (jnp.repeat(each, HEADS // KEY_HEADS, axis=2) for each in known)
        scores = jnp.einsum("bqhd,bkhd->bhqk", rotate(query, positions), keys) / HEAD_WIDTH**0.5
        scores = jnp.where(positions[:, None] >= jnp.arange(keys.shape[1]), scores, -jnp.inf)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), values)
        return linear("output", WIDTH)(mixed.reshape(batch, length, WIDTH)), known


def _put(position: jax.Array, old: jax.Array, new: jax.Array) -> jax.Array:
    """What is kept, (batch, context, ...), with something new from a position on."""
    return jax.lax.dynamic_update_slice_in_dim(old, new, position, 1)


class FeedForward(hk.Module):
    """SwiGLU: a perceptron whose hidden units are gated."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """The same function of every position."""
        return linear("down", WIDTH)(jax.nn.silu(linear("gate", HIDDEN)(x)) * linear("up", HIDDEN)(x))


class Block(hk.Module):
    """One layer of the transformer: attention and a perceptron, each normalized before."""

    def __call__(self, x: jax.Array, positions: jax.Array, cache: Cache | None) -> tuple[jax.Array, Cache]:
        """Both, added to what came in; and the attention's keys and values."""
        read, known = Attention(name="attention")(norm("attention_norm")(x), positions, cache)
        x = x + read
        return x + FeedForward(name="feed_forward")(norm("feed_forward_norm")(x)), known


def forward(
    tokens: jax.Array, positions: jax.Array | None = None, caches: tuple[Cache, ...] | None = None
) -> tuple[jax.Array, tuple[Cache, ...]]:
    """Logits of the next token at every position of (batch, length) tokens, and what the attentions know by then."""
    positions = jnp.arange(tokens.shape[1]) if positions is None else positions
    embed = hk.Embed(VOCABULARY, WIDTH, name="embed")
    x = embed(tokens)
    known = []
    for number in range(DEPTH):
        x, cache = Block(name=f"block_{number}")(x, positions, None if caches is None else caches[number])
        known.append(cache)
    return norm("norm")(x) @ embed.embeddings.T, tuple(known)


def linear(name: str, width: int) -> hk.Linear:
    """A product without a bias."""
    return hk.Linear(width, with_bias=False, name=name)


def norm(name: str) -> hk.RMSNorm:
    """Root-mean-square normalization."""
    return hk.RMSNorm(-1, eps=EPSILON, name=name)


def rotate(x: jax.Array, positions: jax.Array) -> jax.Array:
    """Rotary positions of (batch, length, heads, width), on neighboring pairs."""
    frequencies = ROTARY_BASE ** (-np.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
    angles = np.outer(np.arange(CONTEXT), frequencies)[:, None, :]
    cos, sin = (jnp.asarray(table.astype(np.float32))[positions] for table in (np.cos(angles), np.sin(angles)))
    even, odd = x[..., ::2], x[..., 1::2]
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


_transformed: Any = hk.without_apply_rng(hk.transform(forward))


def read_windows(params: Any, tokens: jax.Array) -> jax.Array:
    """Logits (batch, length, vocabulary) of whole windows at once."""
    logits: jax.Array = _transformed.apply(params, tokens)[0]
    return logits


def decode_windows(params: Any, tokens: jax.Array) -> jax.Array:
    """The same logits, token after token: each step sees one and what is kept of those before it."""
    batch, length = tokens.shape
    empty = jnp.zeros((batch, length, KEY_HEADS, HEAD_WIDTH))

    def step(caches: tuple[Cache, ...], current: tuple[jax.Array, jax.Array]) -> tuple[tuple[Cache, ...], jax.Array]:
        token, position = current
        logits, caches = _transformed.apply(params, token[:, None], position[None], caches)
        return caches, logits[:, 0]

    caches: tuple[Cache, ...] = ((empty, empty),) * DEPTH
    _, logits = jax.lax.scan(step, caches, (tokens.T, jnp.arange(length)))
    return jnp.swapaxes(logits, 0, 1)


# Our module -> what the package calls its weight inside a block or, for the last two, outside.
PUBLISHED = {
    "query": "attn.W_Q",
    "key": "attn.W_K",
    "value": "attn.W_V",
    "output": "attn.W_O",
    "gate": "ffn.W1",
    "up": "ffn.W3",
    "down": "ffn.W2",
    "attention_norm": "norm1.gamma",
    "feed_forward_norm": "norm2.gamma",
    "norm": "norm_f.gamma",
    "embed": "E",
}


def load_params() -> Any:
    """The published weights (float16 there) as float32."""
    content = read_member("glass_lm", "glassllm/weights/en.npz")
    with np.load(io.BytesIO(content), allow_pickle=False) as published:
        return {
            module: {name: jnp.asarray(published[published_name(module)], leaf.dtype) for name, leaf in leaves.items()}
            for module, leaves in shapes().items()
        }


def shapes() -> Any:
    """Shapes and dtypes of the parameters."""
    tokens = jax.ShapeDtypeStruct((1, CONTEXT), jnp.int32)
    return jax.eval_shape(_transformed.init, jax.random.key(0), tokens)


def published_name(module: str) -> str:
    """`block_0/attention/query` -> `blocks.0.attn.W_Q`."""
    block, *inside = module.split("/")
    return f"blocks.{block.removeprefix('block_')}.{PUBLISHED[inside[-1]]}" if inside else PUBLISHED[module]


def load_tokens() -> np.ndarray[Any, Any]:
    """The book as token numbers."""
    book = read_member("alice29", "brotli-1.2.1/tests/testdata/alice29.txt")
    description = read_member("glass_lm", "glassllm/weights/en.tokenizer.json")
    return np.array(tokenizer(json.loads(description)).encode(typeset(book.decode())).ids, np.int32)


def typeset(text: str) -> str:
    """The plain file in the typography that the model was trained on: no indentation, curly quotes, em dashes."""
    text = re.sub("^ +", "", text.replace("\r", "").replace("\x1a", ""), flags=re.MULTILINE)
    text = re.sub("  +", " ", text).replace("--", "—")
    text = re.sub('"([^"]*)"', r"‘\1’", text)  # noqa: RUF001  # these quotes are meant
    text = re.sub("(?<=[.,!?;:—)*])'", "”", text.replace("`", "“"))
    return text.replace("'", "’")  # noqa: RUF001  # so is this apostrophe


def tokenizer(description: dict[str, Any]) -> tokenizers.Tokenizer:
    """Byte-pair encoding of characters, inside words and line ends."""
    alphabet, merges = description["alphabet"], [(left, right) for left, right in description["merges"]]
    pieces = ["<pad>", "<unk>", "<bos>", "<eos>", *alphabet, *(left + right for left, right in merges)]
    numbers = {piece: number for number, piece in enumerate(pieces)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=numbers, merges=merges, unk_token="<unk>"))
    spaces = tokenizers.normalizers.Replace(" ", "▁")
    made.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.NFC(), spaces])
    words = tokenizers.Regex(r"\n|▁*[^▁\n]+|▁+")
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(words, "removed", invert=True)
    return made
