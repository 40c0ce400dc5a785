"""The demo: a multilayer perceptron on scikit-learn's 8x8 digits, in plain JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tuner
from studies._cache import cached_params
from studies._training import fit
from tuner.errors import InputError

Params = dict[str, dict[str, jax.Array]]

WIDTHS = (64, 512, 512, 10)
TRAINED_ON = 797  # the other 1,000 images are evaluated


def apply(params: Params, images: jax.Array) -> jax.Array:
    """Logits of flattened images."""
    x = images
    for name in ("hidden_1", "hidden_2"):
        x = jax.nn.relu(x @ params[name]["kernel"] + params[name]["bias"])
    return x @ params["logits"]["kernel"] + params["logits"]["bias"]


def task() -> tuner.Task:
    """The trained network, judged by top-1 on digits that it was not trained on."""
    images, labels = load_digits()
    train = slice(TRAINED_ON)
    params = cached_params(
        "digits_mlp-v1",
        init,
        lambda params: fit(apply, params, images[train], labels[train], title="digits", epochs=30),
    )
    rest = slice(TRAINED_ON, None)
    return tuner.Task(
        name="digits_mlp", apply=apply, params=params, inputs=images[rest], labels=labels[rest], batch_size=256
    )


def init() -> Params:
    """Parameters to start training from."""
    keys = jax.random.split(jax.random.key(0), len(WIDTHS) - 1)
    shapes = zip(("hidden_1", "hidden_2", "logits"), keys, WIDTHS, WIDTHS[1:], strict=False)
    return {
        name: {"kernel": jax.random.normal(key, (rows, columns)) * (2 / rows) ** 0.5, "bias": jnp.zeros(columns)}
        for name, key, rows, columns in shapes
    }


def load_digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """1,797 images as rows of 64 values from 0 to 1, and their classes, in a shuffled order."""
    try:
        import sklearn.datasets
    except ImportError as error:
        raise InputError("studies.digits_mlp reads its data from scikit-learn; pip install scikit-learn") from error
    digits = sklearn.datasets.load_digits()
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(digits.target))
    return (digits.data[order] / 16).astype(np.float32), digits.target[order].astype(np.int32)
