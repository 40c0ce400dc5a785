"""Linear probes: how much a frozen model knows is what a linear layer can read from its features."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def fit_probe(features: Array, labels: Array, penalty: float) -> dict[str, Array]:
    """The kernel and bias of ridge regression from features to one-hot labels; the same on every run.

    Args:
        features: (examples, width).
        labels: class numbers.
        penalty: of the squared kernel, per example and relative to the mean variance of a feature.
    """
    x, targets = features.astype(np.float64), np.eye(labels.max() + 1)[labels]
    center, mean = x.mean(axis=0), targets.mean(axis=0)
    x -= center
    ridge = penalty * len(x) * x.var(axis=0).mean()
    kernel = np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ (targets - mean))
    return {"kernel": kernel.astype(np.float32), "bias": (mean - center @ kernel).astype(np.float32)}


def in_batches(function: Callable[[Array], Any], inputs: Array, batch_size: int) -> Array:
    """A jitted function over all rows of an array, whose length the batch size divides."""
    return np.concatenate([function(rows) for rows in np.split(inputs, len(inputs) // batch_size)])
