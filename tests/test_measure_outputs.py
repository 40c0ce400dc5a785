import math

import jax.numpy as jnp
import numpy as np
import pytest

from tuner.errors import InputError
from tuner.measure.outputs import BaselineOutputs, RelativeError, count_non_finite, floating, widen

ALL = np.ones(2, bool)


def relative_error(outputs, reference):
    error = RelativeError()
    error.add([np.asarray(outputs)], [np.asarray(reference)])
    return error.value


def test_relative_error_is_of_the_whole():
    error = RelativeError()
    error.add([np.array([3.0])], [np.array([0.0])])
    error.add([np.array([4.0])], [np.array([8.0])])
    assert error.value == pytest.approx(5 / 8)


def test_relative_error_leaves_out_what_the_baseline_has_infinite():
    assert relative_error([1.0, 5.0], [2.0, -math.inf]) == pytest.approx(0.5)


def test_relative_error_of_zeros_and_of_complex_numbers():
    assert relative_error([0.0], [0.0]) == 0.0
    assert relative_error([1.0], [0.0]) == math.inf
    assert relative_error([3 + 4j], [0 + 8j]) == pytest.approx(5 / 8)


def test_narrow_floats_are_widened_and_nothing_else():
    outputs = {"a": jnp.ones(2, jnp.bfloat16), "b": jnp.ones(2, jnp.int8), "c": jnp.ones(2)}
    assert {name: str(leaf.dtype) for name, leaf in widen(outputs).items()} == {
        "a": "float32",
        "b": "int8",
        "c": "float32",
    }


def test_counts_what_is_not_finite_in_floating_leaves():
    outputs = (jnp.array([jnp.nan, 1.0]), jnp.array([jnp.inf, -jnp.inf], jnp.float16), jnp.array([1]))
    assert int(count_non_finite(outputs)) == 3
    assert int(count_non_finite(jnp.array([1]))) == 0


def test_floating_takes_whole_numbers_only_where_there_is_nothing_else():
    number, integer = jnp.ones(2, jnp.bfloat16), jnp.ones(2, jnp.int32)
    assert [leaf.dtype for leaf in floating((number, integer), ALL)] == [np.float32]
    assert [leaf.dtype for leaf in floating(integer, ALL)] == [np.int32]


def test_padding_is_cut_from_what_counts_examples():
    per_example, scalar = jnp.arange(2.0), jnp.float32(7)
    kept = floating((per_example, scalar), np.array([True, False]))
    assert [leaf.tolist() for leaf in kept] == [[0.0], 7.0]


def test_baseline_outputs_are_bounded_and_once_full_stay_so(monkeypatch):
    monkeypatch.setattr("tuner.measure.outputs._KEPT_BYTES", 20)
    outputs = BaselineOutputs(lambda inputs: inputs[0] + 100)
    for size in (2, 6, 1):  # 8 bytes, 24 that do not fit, 4 that would
        outputs.keep({"x": jnp.zeros(size)})
    assert outputs.of(0, (1,))["x"].tolist() == [0.0, 0.0]
    assert (outputs.of(1, (1,)), outputs.of(2, (2,))) == (101, 102)


def test_baseline_outputs_that_cannot_be_had_again_must_fit(monkeypatch):
    monkeypatch.setattr("tuner.measure.outputs._KEPT_BYTES", 2**20)
    outputs = BaselineOutputs(lambda inputs: inputs, again=False)
    outputs.keep(jnp.zeros(1000))
    with pytest.raises(
        InputError, match=r"needs more than 1 MiB of its outputs, and with --baseline alternate it cannot"
    ):
        outputs.keep(jnp.zeros(2**18))
