"""Dense 512 - Relu - Dense 512 - Relu - Dense 10 - LogSoftmax in stax, on Fashion-MNIST (or `:mnist`)."""

from typing import Any

import jax
from jax.example_libraries import stax

import tuner
from studies._cache import cached_params
from studies._fashion_mnist import load
from studies._training import fit

_init, apply = stax.serial(stax.Dense(512), stax.Relu, stax.Dense(512), stax.Relu, stax.Dense(10), stax.LogSoftmax)


def task() -> tuner.Task:
    """On Fashion-MNIST."""
    return make_task("fashion_mnist")


def mnist() -> tuner.Task:
    """The same network on the digits of MNIST."""
    return make_task("mnist")


def make_task(data: str) -> tuner.Task:
    """Trained on the 60,000 training images, judged by top-1 on the 10,000 test images."""
    images, labels = load(data, "test")
    name = "fashion_mlp" if data == "fashion_mnist" else "mnist_mlp"
    params = cached_params(f"{name}-v1", init, lambda params: train(params, data))
    return tuner.Task(name=name, apply=apply, params=params, inputs=images, labels=labels, batch_size=256)


def init() -> Any:
    """Parameters to start training from."""
    return _init(jax.random.key(0), (-1, 784))[1]


def train(params: Any, data: str) -> Any:
    """Parameters after a few epochs."""
    images, labels = load(data, "train")
    return fit(apply, params, images, labels, title=data, epochs=6)
