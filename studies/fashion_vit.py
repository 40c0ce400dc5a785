"""A small vision transformer in Flax Linen on Fashion-MNIST, its layers in a Python loop or (`:scanned`) under `nn.scan`."""

from typing import Any

import jax
import jax.numpy as jnp

import tuner
from studies._cache import cached_params, shipped_params
from studies._fashion_mnist import load
from studies._packages import needs
from studies._training import fit

with needs("studies.fashion_vit", "flax"):
    from flax import linen as nn

PATCH, WIDTH, DEPTH, HEADS = 4, 192, 6, 3


def task() -> tuner.Task:
    """Six blocks, one after the other."""
    return make_task("fashion_vit", ViT(), trained())


def scanned() -> tuner.Task:
    """The same weights, stacked: one block that `nn.scan` repeats."""
    return make_task("fashion_vit_scanned", ViT(scanned=True), stack(trained()))


def make_task(name: str, model: nn.Module, params: Any) -> tuner.Task:
    """Judged by top-1 on the 10,000 test images, 64 at a time."""
    images, labels = load("fashion_mnist", "test")
    variables = {"params": params}
    return tuner.Task.from_linen(model, variables, name=name, inputs=images, labels=labels, batch_size=64)


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm and added to what came in."""

    @nn.compact
    def __call__(self, x: jax.Array, _: None = None) -> tuple[jax.Array, None]:
        """(batch, tokens, width) -> the same; the pair is what `nn.scan` wants."""
        x = x + nn.MultiHeadDotProductAttention(HEADS, name="attention")(nn.LayerNorm(name="norm1")(x))
        hidden = nn.gelu(nn.Dense(4 * WIDTH, name="up")(nn.LayerNorm(name="norm2")(x)))
        return x + nn.Dense(WIDTH, name="down")(hidden), None


class ViT(nn.Module):
    """Images of 28 x 28 pixels, as rows, to ten logits."""

    scanned: bool = False
    depth: int = DEPTH

    @nn.compact
    def __call__(self, images: jax.Array, kept: jax.Array | None = None) -> jax.Array:
        """Logits (batch, 10) of images (batch, 784); training may look at some of the 49 patches only."""
        x = nn.Dense(WIDTH, name="embed")(patches(images))
        x = x + self.param("position", nn.initializers.normal(0.02), x.shape[1:])
        x = x if kept is None else x[:, kept]
        if self.scanned:
            layers = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=self.depth)
            x, _ = layers(name="blocks")(x, None)
        else:
            for number in range(self.depth):
                x, _ = Block(name=f"block{number}")(x)
        return nn.Dense(10, name="head")(jnp.mean(nn.LayerNorm(name="norm")(x), 1))


def patches(images: jax.Array) -> jax.Array:
    """(batch, 784) -> (batch, 49, 16), of mean about 0 and deviation about 1."""
    grid = (images.reshape(-1, 28, 28) - 0.286) / 0.353
    across = 28 // PATCH
    return grid.reshape(-1, across, PATCH, across, PATCH).swapaxes(2, 3).reshape(-1, across**2, PATCH**2)


def trained() -> Any:
    """Parameters of the loop."""
    return cached_params("fashion_vit-v1", start, train)


def start() -> Any:
    """Where training begins: six copies of one block, which come trained (see `studies._fashion_vit_start`)."""
    template = jax.eval_shape(init_tied)
    return untie(shipped_params("fashion_vit_start-v1", template, "studies._fashion_vit_start"))


def train(params: Any) -> Any:
    """Parameters after each block has gone its own way."""
    images, labels = load("fashion_mnist", "train")
    apply = lambda params, images: ViT().apply({"params": params}, images)
    settings = {"epochs": 0.09, "batch_size": 64, "learning_rate": 1.5e-4, "warm_up": 0.1}
    return fit(apply, params, images, labels, title="fashion_vit", **settings)


def init_tied() -> Any:
    """Untrained parameters of a transformer whose blocks are one."""
    return dict(ViT(depth=1).init(jax.random.key(0), jnp.zeros((1, 784)))["params"])


def untie(tied: Any, depth: int = DEPTH) -> Any:
    """Parameters of `depth` blocks that are all the one of `init_tied`."""
    return {**tied, **{f"block{number}": tied["block0"] for number in range(depth)}}


def stack(params: Any) -> Any:
    """Parameters of the loop as those of `nn.scan`: each of a block's with all layers on its first axis."""
    blocks = [params[f"block{number}"] for number in range(DEPTH)]
    rest = {name: part for name, part in params.items() if not name.startswith("block")}
    return {**rest, "blocks": jax.tree_util.tree_map(lambda *leaves: jnp.stack(leaves), *blocks)}
