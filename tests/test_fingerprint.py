import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.fingerprint import hash_callable, hash_tree


@given(st.integers(0, 23), st.sampled_from(["float32", "int8", "bool", "bfloat16", "float8_e4m3fn"]))
def test_one_changed_value_changes_the_digest(position, dtype):
    array = np.zeros(24, jnp.dtype(dtype))
    changed = array.copy()
    changed[position] = 1
    assert hash_tree({"a": array.reshape(4, 6)}) != hash_tree({"a": changed.reshape(4, 6)})


@pytest.mark.parametrize(
    "other",
    [
        {"a": np.ones((3, 2), np.float32)},
        {"a": np.ones(6, np.int32)},
        {"b": np.ones(6, np.float32)},
        [np.ones(6, np.float32)],
    ],
)
def test_shape_dtype_and_place_count(other):
    assert hash_tree(other) != hash_tree({"a": np.ones(6, np.float32)})


def test_numpy_and_jax_arrays_of_equal_values_are_equal():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert hash_tree(values) == hash_tree(jnp.asarray(values)) == hash_tree(np.asfortranarray(values))


def test_leaves_that_are_no_arrays_are_read():
    tree = {"key": jax.random.key(0), "scalar": 1.5, "activation": jax.nn.relu, "empty": np.zeros((0, 3))}
    assert hash_tree(tree) == hash_tree(dict(tree))
    assert hash_tree(tree) != hash_tree(tree | {"key": jax.random.key(1)})
    assert hash_tree(tree) != hash_tree(tree | {"scalar": 2.5})


def test_code_defaults_and_closures_of_a_callable_count():
    def scaled(by, table=None):
        def score(x, bias=by):
            return x * by if table is None else x * table

        return score

    assert hash_callable(scaled(2)) == hash_callable(scaled(2))
    assert hash_callable(scaled(2)) != hash_callable(scaled(3))
    assert hash_callable(scaled(2, np.ones(3))) != hash_callable(scaled(2, np.zeros(3)))
    assert hash_callable(functools.partial(scaled, 1)) != hash_callable(functools.partial(scaled, 2))


def test_fields_of_a_callable_dataclass_count():
    @dataclass
    class Scaled:
        by: float

        def __call__(self, x):
            return self.by * x

    assert hash_callable(Scaled(2.0)) == hash_callable(Scaled(2.0)) != hash_callable(Scaled(3.0))


def test_code_without_source_is_told_apart_by_its_bytecode():
    def compiled(text):
        scope = {}
        exec(text, scope)
        return scope["f"]

    assert hash_callable(compiled("f = lambda x: x + 1")) == hash_callable(compiled("f = lambda x: x + 1"))
    assert hash_callable(compiled("f = lambda x: x + 1")) != hash_callable(compiled("f = lambda x: x + 2"))
    assert hash_callable(len) != hash_callable(max)


def test_a_function_that_closes_over_itself_has_a_digest():
    def outer():
        def recursive(n):
            return recursive(n - 1)

        return recursive

    assert hash_callable(outer()) == hash_callable(outer())
