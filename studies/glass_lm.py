"""glassllm's tiny English language model in Haiku, judged by cross-entropy per token on Alice in Wonderland."""

import io
import json
import re
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

# A loss: at most 0.01 nats per token more, one percent of perplexity.
max_drop = 0.01


def task() -> tuner.Task:
    """Windows of 128 tokens, 16 at a time."""
    return make_task("glass_lm", batch_size=16)


def single() -> tuner.Task:
    """The same windows one at a time."""
    return make_task("glass_lm_single", batch_size=1)


def make_task(name: str, batch_size: int) -> tuner.Task:
    """The published weights, judged on each next token of the text."""
    tokens = load_tokens()
    windows = (len(tokens) - 1) // CONTEXT
    inputs = tokens[: windows * CONTEXT].reshape(windows, CONTEXT)
    labels = tokens[1 : windows * CONTEXT + 1].reshape(windows, CONTEXT)
    return tuner.Task(
        name=name,
        apply=apply,
        params=load_params(),
        inputs=inputs,
        labels=labels,
        batch_size=batch_size,
        metric="cross_entropy",
    )


class Attention(hk.Module):
    """Causal attention with rotary positions; two query heads share a key and a value head."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """What each position reads from those before it, (batch, length, width)."""
        batch, length, _ = x.shape
        query = linear("query", HEADS * HEAD_WIDTH)(x).reshape(batch, length, HEADS, HEAD_WIDTH)
        key = linear("key", KEY_HEADS * HEAD_WIDTH)(x).reshape(batch, length, KEY_HEADS, HEAD_WIDTH)
        value = linear("value", KEY_HEADS * HEAD_WIDTH)(x).reshape(batch, length, KEY_HEADS, HEAD_WIDTH)
        key, value = (jnp.repeat(each, HEADS // KEY_HEADS, axis=2) for each in (rotate(key), value))
        scores = jnp.einsum("bqhd,bkhd->bhqk", rotate(query), key) / HEAD_WIDTH**0.5
        scores = jnp.where(jnp.tri(length, dtype=bool), scores, -jnp.inf)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)
        return linear("output", WIDTH)(mixed.reshape(batch, length, WIDTH))


class FeedForward(hk.Module):
    """SwiGLU: a perceptron whose hidden units are gated."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """The same function of every position."""
        return linear("down", WIDTH)(jax.nn.silu(linear("gate", HIDDEN)(x)) * linear("up", HIDDEN)(x))


class Block(hk.Module):
    """One layer of the transformer: attention and a perceptron, each normalized before."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Both, added to what came in."""
        x = x + Attention(name="attention")(norm("attention_norm")(x))
        return x + FeedForward(name="feed_forward")(norm("feed_forward_norm")(x))


def forward(tokens: jax.Array) -> jax.Array:
    """Logits of the next token at every position of (batch, length) tokens."""
    embed = hk.Embed(VOCABULARY, WIDTH, name="embed")
    x = embed(tokens)
    for number in range(DEPTH):
        x = Block(name=f"block_{number}")(x)
    logits: jax.Array = norm("norm")(x) @ embed.embeddings.T
    return logits


def linear(name: str, width: int) -> hk.Linear:
    """A product without a bias."""
    return hk.Linear(width, with_bias=False, name=name)


def norm(name: str) -> hk.RMSNorm:
    """Root-mean-square normalization."""
    return hk.RMSNorm(-1, eps=EPSILON, name=name)


def rotate(x: jax.Array) -> jax.Array:
    """Rotary positions of (batch, length, heads, width), on neighboring pairs."""
    frequencies = ROTARY_BASE ** (-np.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
    angles = np.outer(np.arange(x.shape[1]), frequencies)[:, None, :]
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    even, odd = x[..., ::2], x[..., 1::2]
    return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(x.shape)


_transformed: Any = hk.without_apply_rng(hk.transform(forward))
apply = _transformed.apply

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
