"""A small ResNet in Flax NNX on Fashion-MNIST: a stem of 32 channels and five basic blocks with batch norm."""

from typing import Any

import jax
import jax.numpy as jnp

import tuner
from studies._cache import ship, shipped_params
from studies._fashion_mnist import load
from studies._packages import needs
from studies._training import fit_with_state

with needs("studies.fashion_resnet", "flax"):
    from flax import nnx

# Output channels and stride of each block.
BLOCKS = ((32, 1), (64, 2), (64, 1), (128, 2), (128, 1))
STEM = 32
# Running statistics over about the last hundred batches: those of the last epoch, not of the first steps.
MOMENTUM = 0.99


def task() -> tuner.Task:
    """Judged by top-1 on the 10,000 test images, 64 at a time."""
    images, labels = load("fashion_mnist", "test")
    return tuner.Task.from_nnx(trained(), name="fashion_resnet", inputs=images, labels=labels, batch_size=64)


def trained() -> "ResNet":
    """The model with the parameters that come with this study."""
    parts: Any = nnx.split(nnx.eval_shape(lambda: ResNet(nnx.Rngs(0))))  # without drawing random numbers first
    graph, state = parts
    model: ResNet = nnx.merge(graph, shipped_params("fashion_resnet-v1", state, "studies.fashion_resnet"))
    return model


def train(epochs: float = 1.5) -> Any:
    """The state of the model after some epochs on the 60,000 training images: what is shipped."""
    images, labels = load("fashion_mnist", "train")
    parts: Any = nnx.split(ResNet(nnx.Rngs(0)), nnx.Param, ...)
    graph, params, state = parts

    def apply(params: Any, state: Any, images: jax.Array) -> tuple[jax.Array, Any]:
        model = nnx.merge(graph, params, state, copy=True)
        model.train()
        logits = model(images)
        return logits, nnx.state(model, nnx.BatchStat)

    trained = fit_with_state(
        apply, params, state, images, labels, title="fashion_resnet", epochs=epochs, learning_rate=3e-3, warm_up=0.1
    )
    return nnx.merge_state(trained[0], trained[1])


class Block(nnx.Module):
    """Two 3x3 convolutions, each normalized, added to what came in."""

    def __init__(self, channels: int, out: int, stride: int, rngs: nnx.Rngs) -> None:
        self.conv1 = conv(channels, out, 3, stride, rngs)
        self.norm1 = norm(out, rngs)
        self.conv2 = conv(out, out, 3, 1, rngs)
        self.norm2 = norm(out, rngs)
        self.shortcut = conv(channels, out, 1, stride, rngs) if (channels, 1) != (out, stride) else None

    def __call__(self, x: jax.Array) -> jax.Array:
        """(batch, height, width, channels) -> the same with its own channels and stride."""
        y = self.norm2(self.conv2(nnx.relu(self.norm1(self.conv1(x)))))
        return nnx.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nnx.Module):
    """Images of 28 x 28 pixels, as rows, to ten logits."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem = conv(1, STEM, 3, 1, rngs)
        self.stem_norm = norm(STEM, rngs)
        inputs = (STEM, *(channels for channels, _ in BLOCKS))
        self.blocks = nnx.List(
            [Block(inputs[i], channels, stride, rngs) for i, (channels, stride) in enumerate(BLOCKS)]
        )
        self.head = nnx.Linear(BLOCKS[-1][0], 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits (batch, 10) of images (batch, 784)."""
        x = nnx.relu(self.stem_norm(self.stem(images.reshape(-1, 28, 28, 1))))
        for block in self.blocks:
            x = block(x)
        return self.head(jnp.mean(x, (1, 2)))


def conv(channels: int, out: int, size: int, stride: int, rngs: nnx.Rngs) -> nnx.Conv:
    """A square convolution without a bias, since a norm follows."""
    return nnx.Conv(channels, out, (size, size), (stride, stride), use_bias=False, rngs=rngs)


def norm(channels: int, rngs: nnx.Rngs) -> nnx.BatchNorm:
    """Batch norm over all but the channels."""
    return nnx.BatchNorm(channels, momentum=MOMENTUM, rngs=rngs)


if __name__ == "__main__":  # trains what is shipped anew
    ship("fashion_resnet-v1", train())
