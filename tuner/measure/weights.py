"""Weights: the arrays of one program, on the device, or set aside on the host while another program has its turn."""

from typing import Any

import jax
import jax.numpy as jnp

PyTree = Any


class Weights:
    """A pytree of arrays on the device that can make room and come back.

    Args:
        tree: committed arrays.
    """

    def __init__(self, tree: PyTree) -> None:
        self._tree = tree
        self._host: PyTree | None = None
        self._places: PyTree | None = None

    @property
    def tree(self) -> PyTree:
        """The arrays, wherever they are."""
        return self._tree

    def set_aside(self) -> None:
        """Leaves the device, as far as nobody else holds the same arrays there; on a CPU, host and device are one."""
        if self._host is None:
            self._places = jax.tree_util.tree_map(lambda leaf: leaf.sharding, self._tree)
            self._host = on_host(self._tree)
        self._tree = self._host

    def bring_back(self) -> None:
        """Returns to where the arrays were, when they are there."""
        if self._tree is self._host:
            self._tree = jax.block_until_ready(jax.tree_util.tree_map(jax.device_put, self._host, self._places))


def on_host(tree: PyTree) -> PyTree:
    """The arrays as numpy has them; random keys, which it has not and which are small, stay where they are."""

    def move(leaf: Any) -> Any:
        stays = not isinstance(leaf, jax.Array) or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return leaf if stays else jax.device_get(leaf)

    return jax.tree_util.tree_map(move, tree)
