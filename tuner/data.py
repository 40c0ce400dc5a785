"""Evaluation data: arrays, pytrees or batches in; splits of numpy arrays with a leading example axis out."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.errors import InputError, error_line
from tuner.fingerprint import hash_tree
from tuner.tfds_source import tfds as tfds

PyTree = Any
Batch = tuple[tuple[PyTree, ...], PyTree, np.ndarray[Any, Any]]


@dataclass(frozen=True, eq=False, slots=True)
class Split:
    """Examples that are used together: `inputs` holds one pytree per positional input of `apply`.

    `len(split)` is the number of examples; every leaf is a numpy array whose first axis counts them.
    """

    inputs: tuple[PyTree, ...]
    labels: PyTree = None

    def __len__(self) -> int:
        return len(_leaves(self.inputs)[0])

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Yields (inputs, labels, mask) of exactly `batch_size` examples each.

        The last batch is filled up by repeating its last example; the mask is False there.
        """
        total = len(self)
        for start in range(0, total, batch_size):
            numbers = np.arange(start, start + batch_size)
            part = self.pick(np.minimum(numbers, total - 1))
            yield part.inputs, part.labels, numbers < total

    def pick(self, numbers: np.ndarray[Any, Any] | slice) -> "Split":
        """The examples of these numbers, in this order."""
        import jax

        inputs, labels = jax.tree_util.tree_map(lambda leaf: leaf[numbers], (self.inputs, self.labels))
        return Split(inputs, labels)

    def fingerprint(self) -> str:
        """Hex digest of every value."""
        return hash_tree((self.inputs, self.labels))


def read_examples(inputs: Any, labels: Any, *, paired: bool | None = None, what: str = "inputs") -> Split:
    """Reads user data into one Split, or raises InputError naming what is wrong with it.

    Args:
        inputs: an array or pytree (one positional input), a tuple of them (several), or an iterable of batches:
            of (inputs, labels) pairs when `labels` is None, of inputs alone otherwise.
        labels: an array or pytree with one entry per example, an iterable of batches of them, or None.
        paired: whether batches are (inputs, labels) pairs; by default when `labels` is None.
        what: what an error calls the data.
    """
    paired = labels is None if paired is None else paired
    if is_iterable_of_batches(inputs, paired=paired):
        split = _read_batches(inputs, labels, paired, what)
    else:
        split = Split(positional(inputs, what), _read_labels(labels, what))
    _check_examples(split, what)
    return split


def positional(inputs: Any, what: str) -> tuple[PyTree, ...]:
    """One pytree of numpy arrays per positional input: a tuple is several, anything else is one.

    Raises:
        InputError: a leaf is no array that JAX can hold.
    """
    if isinstance(inputs, tuple) and not hasattr(inputs, "_fields"):
        return tuple(_to_numpy(part, f"{what}[{number}]") for number, part in enumerate(inputs))
    return (_to_numpy(inputs, what),)


def split_examples(examples: Split, share: float, seed: int = 0) -> tuple[Split, Split]:
    """(search, holdout): disjoint, by example, in a shuffled order that depends on the seed and their number only."""
    held = round(len(examples) * share)
    if not 0 < held < len(examples):
        raise InputError(
            f"holdout={share} of {len(examples)} examples leaves {len(examples) - held} to search on and {held} held "
            "out; give more examples, another share, or explicit holdout=(inputs, labels)"
        )
    order = shuffled(len(examples), seed)
    return examples.pick(order[held:]), examples.pick(order[:held])


def shuffled(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """A permutation of range(count), the same on every machine."""
    return np.random.Generator(np.random.PCG64(seed)).permutation(count)


def count_shared(split: Split, other: Split) -> int:
    """How many examples of `split` occur among the inputs of `other`, value for value."""
    known = set(_rows(other))
    return sum(row in known for row in _rows(split))


def layout(split: Split) -> str:
    """Structure, shapes and dtypes of one example, as text."""
    inputs = ", ".join(describe(part, skip=1) for part in split.inputs)
    return inputs if split.labels is None else f"{inputs} with labels {describe(split.labels, skip=1)}"


def describe(tree: PyTree, skip: int = 0) -> str:
    """A pytree with `dtype[shape]` in place of every array, without the first `skip` axes."""
    import jax

    def text(leaf: Any) -> str:
        if not hasattr(leaf, "shape"):
            return type(leaf).__name__
        return f"{leaf.dtype}[{','.join(map(str, leaf.shape[skip:]))}]"

    return str(jax.tree_util.tree_map(text, tree)).replace("'", "")


def is_floating(dtype: Any) -> bool:
    """True for every float and complex dtype, bfloat16 and float8 included."""
    import jax.numpy as jnp

    return dtype is not None and bool(jnp.issubdtype(dtype, jnp.inexact))


def is_iterable_of_batches(inputs: Any, *, paired: bool) -> bool:
    """True for what JAX takes for a single leaf, is no array, and can be iterated; and for a list of pairs."""
    import jax

    if isinstance(inputs, list):
        return paired
    if hasattr(inputs, "__array__") or isinstance(inputs, (str, bytes)):
        return False
    is_leaf = jax.tree_util.all_leaves([inputs])
    return is_leaf and (isinstance(inputs, Iterable) or hasattr(inputs, "__getitem__"))


def _leaves(tree: PyTree) -> list[Any]:
    import jax

    return jax.tree_util.tree_leaves(tree)


def _read_batches(batches: Any, labels: Any, paired: bool, what: str) -> Split:
    inputs_seen, labels_seen = [], []
    for batch in _ending(batches, what):
        if paired:
            if not isinstance(batch, (tuple, list)) or len(batch) != 2:
                raise InputError(
                    f"{what} yields a {type(batch).__name__} where (inputs, labels) pairs are expected; "
                    "map the iterator to pairs, or give labels="
                )
            batch, batch_labels = batch
            labels_seen.append(_to_numpy(batch_labels, f"labels of {what}"))
        inputs_seen.append(positional(batch, what))
    read = _concatenate(labels_seen, f"labels of {what}") if labels_seen else _read_labels(labels, what)
    return Split(_concatenate(inputs_seen, what), read)


def _read_labels(labels: Any, what: str) -> PyTree:
    what = f"labels of {what}"
    if labels is not None and is_iterable_of_batches(labels, paired=False):
        return _concatenate([_to_numpy(batch, what) for batch in _ending(labels, what)], what)
    return _to_numpy(labels, what)


def _ending(batches: Any, what: str) -> Iterator[Any]:
    """The batches, until they hold more than this machine could: loaders for training often begin again at their end."""
    room, held = _memory_bytes() // 2, 0
    for batch in batches:
        held += sum(int(getattr(leaf, "nbytes", 0)) for leaf in _leaves(batch))
        if held > room:
            raise InputError(
                f"{what} yields more than {held / 2**30:.3g} GiB, half of this machine's memory, and may never end; give "
                "fewer examples, a loader that does not repeat itself, or itertools.islice of it"
            )
        yield batch


def _memory_bytes() -> int:
    known = hasattr(os, "sysconf") and {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys()
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if known else 64 * 2**30


def _concatenate(parts: list[Any], what: str) -> PyTree:
    import jax

    if not parts:
        raise InputError(f"{what} is an iterator that yields no batches; give at least two examples (is it used up?)")
    try:
        return jax.tree_util.tree_map(lambda *leaves: np.concatenate(leaves), *parts)
    except ValueError as error:
        raise InputError(
            f"{what} yields batches that do not fit together: {error_line(error)}; "
            "give every example the same structure and shape (pad them)"
        ) from error


def _to_numpy(tree: PyTree, what: str) -> PyTree:
    import jax

    def convert(path: Any, leaf: Any) -> Any:
        where = f"{what}{jax.tree_util.keystr(path)}"
        if not hasattr(leaf, "__array__"):
            raise InputError(f"{where} is a {type(leaf).__name__}, not an array; give numpy or JAX arrays")
        if hasattr(leaf, "detach") and hasattr(leaf, "cpu"):  # a tensor of PyTorch, perhaps with gradients or on a GPU
            leaf = leaf.detach().cpu()
        try:
            array = np.asarray(leaf)
        except Exception as error:  # whatever another library's array says
            raise InputError(
                f"{where} is a {type(leaf).__name__} that numpy cannot read ({error_line(error)}); give it in a dtype "
                "that numpy has, such as float32"
            ) from error
        if array.dtype.kind in "OUSMm":
            raise InputError(f"{where} has dtype {array.dtype}, which JAX cannot hold; give numbers")
        if array.ndim == 0:
            raise InputError(f"{where} is a scalar; its first axis must count the examples")
        return array

    return jax.tree_util.tree_map_with_path(convert, tree)


def _check_examples(split: Split, what: str) -> None:
    leaves = _leaves(split.inputs)
    if not leaves:
        raise InputError(f"{what}={split.inputs!r} holds no array; give at least one, its first axis counting examples")
    counts = {len(leaf) for leaf in leaves}
    if len(counts) > 1:
        raise InputError(f"{what} hold arrays of {sorted(counts)} examples; give every input the same number")
    if len(leaves[0]) == 0:
        raise InputError(f"{what} is empty (shape {leaves[0].shape}); give at least two examples")
    for leaf in _leaves(split.labels):
        if len(leaf) != len(leaves[0]):
            raise InputError(
                f"labels of {what} count {len(leaf)} for {len(leaves[0])} examples; give one label for each"
            )
    _check_finite(split.inputs, what)
    _check_finite(split.labels, f"labels of {what}")


def _check_finite(tree: PyTree, what: str) -> None:
    for leaf in _leaves(tree):
        if not is_floating(leaf.dtype):
            continue
        bad = np.argwhere(~np.isfinite(leaf))
        if len(bad):
            value = leaf[tuple(bad[0])]
            raise InputError(
                f"{what} holds {value} in example {bad[0][0]} ({len(bad)} NaN or infinite in all); "
                "remove those examples or replace the values"
            )


def _rows(split: Split) -> Iterator[bytes]:
    """Every example's inputs as bytes."""
    leaves = [np.ascontiguousarray(leaf).reshape(len(leaf), -1) for leaf in _leaves(split.inputs)]
    for number in range(len(split)):
        yield b"".join(leaf[number].tobytes() for leaf in leaves)
