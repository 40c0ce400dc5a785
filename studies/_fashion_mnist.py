"""Fashion-MNIST and MNIST as arrays, through tensorflow-datasets."""

from typing import Any

import numpy as np

from studies._cache import cached_arrays


def load(name: str, split: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Images as rows of 784 values from 0 to 1, and their classes; decoded on first use, then kept as arrays.

    Args:
        name: "fashion_mnist" or "mnist".
        split: "train" (60,000) or "test" (10,000).
    """
    arrays = cached_arrays(f"{name}-{split}-v1", lambda: _read(name, split))
    images = arrays["images"].reshape(len(arrays["images"]), -1)
    return (images / 255).astype(np.float32), arrays["labels"]


def _read(name: str, split: str) -> dict[str, np.ndarray[Any, Any]]:
    # Imported here, since tensorflow-datasets is not needed once the arrays are kept.
    from studies._mnist_builders import read_split

    return read_split(name, split)
