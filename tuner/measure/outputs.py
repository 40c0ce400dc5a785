"""Outputs: what a batch's outputs are compared by, whatever their structure and dtypes."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tuner.errors import InputError

PyTree = Any
# From the inputs of one batch to its outputs.
Run = Callable[[tuple[PyTree, ...]], PyTree]

_KEPT_BYTES = 256 * 2**20


class RelativeError:
    """||outputs - baseline outputs|| / ||baseline outputs|| over everything added, where the baseline is finite."""

    def __init__(self) -> None:
        self._difference = 0.0
        self._reference = 0.0

    def add(self, outputs: list[NDArray[Any]], reference: list[NDArray[Any]]) -> None:
        """Count in the outputs of one batch, given as `floating` gives them."""
        for mine, theirs in zip(outputs, reference, strict=True):
            finite = np.isfinite(theirs)
            exact = np.where(finite, theirs, 0).astype(np.result_type(theirs.dtype, np.float64))
            self._difference += float(np.square(np.abs(np.where(finite, mine, 0) - exact)).sum())
            self._reference += float(np.square(np.abs(exact)).sum())

    @property
    def value(self) -> float:
        """The relative error so far; infinite where the baseline's outputs are all zero and these are not."""
        if self._reference == 0:
            return 0.0 if self._difference == 0 else math.inf
        return math.sqrt(self._difference / self._reference)


def widen(outputs: PyTree) -> PyTree:
    """Floats narrower than float32 in float32, so that no metric adds up in them."""

    def widen_leaf(leaf: Any) -> Any:
        narrow = jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype.itemsize < 4
        return leaf.astype(jnp.float32) if narrow else leaf

    return jax.tree_util.tree_map(widen_leaf, outputs)


def count_non_finite(outputs: PyTree) -> Any:
    """How many values of all floating leaves are NaN or infinite."""
    leaves = [leaf for leaf in jax.tree_util.tree_leaves(outputs) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    counts = [jnp.sum(~jnp.isfinite(leaf), dtype=jnp.int32) for leaf in leaves]
    return sum(counts, start=jnp.zeros((), jnp.int32))


def floating(outputs: PyTree, mask: NDArray[np.bool_]) -> list[NDArray[Any]]:
    """Floating output leaves (all, where none is floating) as numpy arrays in at least float32, without padding."""
    leaves = [leaf for leaf in jax.tree_util.tree_leaves(outputs) if jnp.issubdtype(leaf.dtype, jnp.number)]
    inexact = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    kept = []
    for leaf in inexact or leaves:
        array = np.asarray(leaf)
        if array.dtype.itemsize < 4:
            array = array.astype(np.float32)
        padded = array.ndim > 0 and len(array) == len(mask) and not mask.all()
        kept.append(array[mask] if padded else array)
    return kept


class BaselineOutputs:
    """What the baseline gives for every batch: kept in this process's memory while that is bounded, else run again.

    Args:
        run: the baseline.
        again: whether it can be run again beside a candidate.
    """

    def __init__(self, run: Run, *, again: bool = True) -> None:
        self._run = run
        self._again = again
        self._left = _KEPT_BYTES
        self._kept: list[PyTree] = []
        self._full = False

    def keep(self, outputs: PyTree) -> None:
        """Takes the outputs of the next batch, unless they or those before did not fit.

        Raises:
            InputError: they do not fit, and the baseline cannot be run again.
        """
        size = sum(int(leaf.nbytes) for leaf in jax.tree_util.tree_leaves(outputs))
        self._full = self._full or size > self._left
        if self._full and not self._again:
            raise InputError(
                f"a metric that compares with the program as written needs more than {_KEPT_BYTES / 2**20:g} MiB of its "
                "outputs, and with --baseline alternate it cannot run beside a candidate; give fewer examples, or a metric "
                "that reads labels"
            )
        if not self._full:
            self._left -= size
            self._kept.append(jax.device_get(outputs))

    def of(self, number: int, inputs: tuple[PyTree, ...]) -> PyTree:
        """The outputs of the batch of that number, whose inputs these are."""
        return self._kept[number] if number < len(self._kept) else self._run(inputs)
