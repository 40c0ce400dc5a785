"""Trains what `studies.fashion_vit` starts from: a transformer whose six blocks are one, small enough for the repository.

A block of its own for each layer is 2.7 million parameters: eleven megabytes to ship, or twenty minutes of two cores to
train from nothing. One block for all layers is a sixth of it, and a good place to start from. It is trained cheaply at
first: three of the six repetitions, on a random half of the patches. It takes two cores about an hour.
"""

from typing import Any

import jax
import jax.numpy as jnp

from studies._cache import ship
from studies._fashion_mnist import load
from studies._training import fit_with_state
from studies.fashion_vit import DEPTH, ViT, init_tied, untie

PATCHES = 49


def train() -> Any:
    """Parameters like those of `init_tied`."""
    params = init_tied()
    for seed, phase in enumerate(PHASES):
        params = train_phase(params, *phase, seed=seed)
    return params


# Repetitions of the block, patches seen, images per step, epochs, learning rate.
PHASES = (
    (3, 24, 128, 4.0, 1e-3),
    (DEPTH, 24, 128, 0.7, 5e-4),
    (DEPTH, PATCHES, 128, 0.4, 3e-4),
    (DEPTH, PATCHES, 64, 0.9, 7e-4),
    (DEPTH, PATCHES, 64, 0.5, 6e-4),
)


def train_phase(
    params: Any, depth: int, seen: int, batch_size: int, epochs: float, learning_rate: float, *, seed: int
) -> Any:
    """Parameters after some epochs of so many repetitions, on so many patches of each image."""
    model = ViT(depth=depth)

    def apply(params: Any, key: jax.Array, images: jax.Array) -> tuple[Any, jax.Array]:
        key, now = jax.random.split(key)
        kept = jnp.sort(jax.random.permutation(now, PATCHES)[:seen]) if seen < PATCHES else None
        return model.apply({"params": untie(params, depth)}, images, kept), key

    images, labels = load("fashion_mnist", "train")
    return fit_with_state(
        apply,
        params,
        jax.random.key(seed),
        images,
        labels,
        title=f"{depth} repetitions, {seen} patches",
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        warm_up=0.1,
        seed=seed,
    )[0]


if __name__ == "__main__":
    ship("fashion_vit_start-v1", train())
