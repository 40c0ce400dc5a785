"""Loaders of other libraries as the data of a task: grain's own, PyTorch's or a stand-in, and plain iterators."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from tuner import data
from tuner.data import read_examples
from tuner.errors import InputError
from tuner.task import Task

X = np.arange(60, dtype=np.float32).reshape(20, 3)
Y = np.arange(20) % 3


class Examples:
    """A data set with random access: what both libraries take."""

    def __len__(self):
        return len(X)

    def __getitem__(self, number):
        return X[number], Y[number]


def splits(source):
    task = Task(name="t", apply=lambda p, x: x @ p, params=np.ones((3, 3), np.float32), inputs=source, batch_size=4)
    return task.search, task.holdout


def check(make):
    """The same splits, whatever size the loader's batches have: splitting is by example."""
    expected = splits_of_arrays()
    for size in (1, 3, 20):
        for split, known in zip(splits(make(size)), expected, strict=True):
            np.testing.assert_array_equal(split.inputs[0], known.inputs[0])
            np.testing.assert_array_equal(split.labels, known.labels)


def splits_of_arrays():
    task = Task(
        name="t", apply=lambda p, x: x @ p, params=np.ones((3, 3), np.float32), inputs=X, labels=Y, batch_size=4
    )
    return task.search, task.holdout


def batches(size):
    return ((X[start : start + size], Y[start : start + size]) for start in range(0, len(X), size))


def test_iterators_lists_and_jax_arrays():
    check(batches)
    check(lambda size: list(batches(size)))
    check(lambda size: ((jnp.asarray(x), jnp.asarray(y)) for x, y in batches(size)))


@pytest.mark.slow  # importing grain takes seconds
def test_grain_loaders():
    grain = pytest.importorskip("grain.python", reason="grain is not installed")
    check(lambda size: grain.MapDataset.source(Examples()).batch(size))
    check(lambda size: grain.MapDataset.source(Examples()).batch(size).to_iter_dataset())
    check(
        lambda size: grain.DataLoader(
            data_source=Examples(),
            sampler=grain.SequentialSampler(len(X), grain.NoSharding()),
            operations=[grain.Batch(size)],
            worker_count=0,
        )
    )


@pytest.mark.slow  # importing grain takes seconds
def test_a_grain_loader_that_repeats_itself_is_refused(monkeypatch):
    grain = pytest.importorskip("grain.python", reason="grain is not installed")
    monkeypatch.setattr(data, "_memory_bytes", lambda: 100_000)
    with pytest.raises(
        InputError, match=r"inputs yields more than .* half of this machine's memory, and may never end"
    ):
        read_examples(grain.MapDataset.source(Examples()).repeat().batch(4), None)


def test_an_iterator_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(data, "_memory_bytes", lambda: 100_000)
    with pytest.raises(InputError, match=r"a loader that does not repeat itself, or itertools\.islice of it"):
        read_examples(itertools.cycle([(X, Y)]), None)
    with pytest.raises(InputError, match=r"labels of inputs yields more than"):
        read_examples(X, itertools.repeat(Y))


class Tensor:
    """As a tensor of PyTorch: read through `numpy()` once it is detached and on the CPU, refused before."""

    def __init__(self, array, ready=False):
        self.array = array
        self.ready = ready

    def detach(self):
        return Tensor(self.array, ready=True)

    def cpu(self):
        return self

    def numpy(self):
        if not self.ready:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        if self.array.dtype == np.float64:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array

    def __array__(self, dtype=None, copy=None):
        return self.numpy()


class DataLoader:
    """As PyTorch's: no iterator itself, has a length, and collates to lists of tensors."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return -(-len(X) // self.size)

    def __iter__(self):
        for x, y in batches(self.size):
            yield [Tensor(x), Tensor(y)]


def test_loaders_that_yield_lists_of_tensors():
    check(DataLoader)


def test_a_tensor_in_a_dtype_that_numpy_has_not_is_named():
    with pytest.raises(
        InputError, match=r"inputs is a Tensor that numpy cannot read \(TypeError: Got unsupported Scal"
    ):
        read_examples(Tensor(X.astype(np.float64)), Y)


def test_pytorch_loaders():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    loader = torch.utils.data.DataLoader
    check(lambda size: loader(Examples(), batch_size=size))
    tensors = torch.utils.data.TensorDataset(torch.tensor(X, requires_grad=True), torch.tensor(Y))
    check(lambda size: loader(tensors, batch_size=size))
    with pytest.raises(InputError, match="is a Tensor that numpy cannot read"):
        read_examples(torch.tensor(X).to(torch.bfloat16), Y)
