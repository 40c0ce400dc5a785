import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner import data
from tuner.data import Split, read_examples, split_examples
from tuner.errors import InputError

X = np.arange(20, dtype=np.float32).reshape(10, 2)
Y = np.arange(10)


def test_the_last_batch_repeats_its_last_example_under_the_mask():
    batches = list(Split((X,), Y).batches(4))
    assert [labels.tolist() for _, labels, _ in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 9, 9]]
    assert [mask.tolist() for _, _, mask in batches] == [[True] * 4, [True] * 4, [True, True, False, False]]
    assert all(inputs[0].shape == (4, 2) for inputs, _, _ in batches)


@given(st.integers(1, 30), st.integers(1, 40))
def test_masked_batches_give_back_every_example_once(count, batch_size):
    split = Split(({"a": np.arange(count), "b": np.zeros((count, 3))},), np.arange(count))
    seen = [inputs[0]["a"][mask] for inputs, _, mask in split.batches(batch_size)]
    assert np.concatenate(seen).tolist() == list(range(count))


def test_a_tuple_is_several_inputs_and_any_other_pytree_is_one():
    assert len(read_examples((X, X), Y).inputs) == 2
    assert len(read_examples({"ids": X, "mask": X}, Y).inputs) == 1
    assert isinstance(read_examples(jnp.asarray(X), jnp.asarray(Y)).inputs[0], np.ndarray)


def test_batches_are_read_once_whatever_yields_them():
    class Loader:  # as torch.utils.data.DataLoader and grain loaders do: iterable, yields lists
        def __iter__(self):
            return iter([[X[:6], Y[:6]], [X[6:], Y[6:]]])

    for source in (Loader(), iter(Loader()), [(X[:6], Y[:6]), (X[6:], Y[6:])], ((x, y) for x, y in Loader())):
        split = read_examples(source, None)
        np.testing.assert_array_equal(split.inputs[0], X)
        np.testing.assert_array_equal(split.labels, Y)
    split = read_examples(iter([(X[:6], X[:6]), (X[6:], X[6:])]), iter([Y[:6], Y[6:]]))
    assert len(split.inputs) == 2
    assert len(split) == len(split.labels) == 10


@given(st.integers(4, 200), st.floats(0.2, 0.8))
def test_splits_are_disjoint_complete_and_repeatable(count, share):
    examples = Split((np.arange(count),), np.arange(count))
    search, holdout = split_examples(examples, share)
    assert sorted([*search.labels, *holdout.labels]) == list(range(count))
    assert len(holdout) == round(count * share)
    again, _ = split_examples(examples, share)
    assert again.labels.tolist() == search.labels.tolist()


def test_sorted_labels_do_no_harm():
    search, holdout = split_examples(Split((np.zeros(1000),), np.repeat(np.arange(10), 100)), 0.5)
    for split in (search, holdout):
        assert np.bincount(split.labels).min() > 25


def test_count_shared_compares_value_for_value():
    assert data.count_shared(Split((X[:6],)), Split((X[4:],))) == 2
    assert data.count_shared(Split((X,)), Split((X + 0.5,))) == 0


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (X[:0], Y[:0], r"inputs is empty \(shape \(0, 2\)\)"),
        (X, Y[:4], r"labels of inputs count 4 for 10 examples"),
        ((X, X[:3]), Y, r"arrays of \[3, 10\] examples"),
        (np.where(X == 7, np.nan, X), Y, r"inputs holds nan in example 3"),
        (np.where(X == 7, np.inf, X).astype(jnp.bfloat16), Y, r"inputs holds inf in example 3"),
        (X, np.where(Y == 2, np.nan, Y), r"labels of inputs holds nan in example 2"),
        ([1.0, 2.0], Y, r"inputs\[0\] is a float, not an array"),
        ((X, {"name": np.array(["a"] * 10)}), Y, r"inputs\[1\]\['name'\] has dtype <U1"),
        (np.float32(1), Y, r"inputs is a scalar"),
        (None, Y, r"holds no array"),
        (iter([]), None, r"yields no batches"),
        (iter([{"x": X}]), None, r"yields a dict where \(inputs, labels\) pairs"),
        (iter([(X, Y), (X[:, :1], Y)]), None, r"batches that do not fit together"),
    ],
)
def test_data_that_cannot_be_used_is_named(inputs, labels, message):
    with pytest.raises(InputError, match=message):
        read_examples(inputs, labels)


def test_floating_dtypes_of_every_family_are_known():
    assert all(map(data.is_floating, (np.float16, np.complex64, jnp.bfloat16, jnp.float8_e4m3fn)))
    assert not any(map(data.is_floating, (np.int8, np.bool_, jnp.int4, jax.random.key(0).dtype, None)))
