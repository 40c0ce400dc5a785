"""Ragged products in every precision, against the product as written."""

from typing import Any

import jax
import numpy as np
import pytest

from tests.programs import normal
from tuner.program import capture, make_policy, prepare

CLOSE = {"f32": 1e-6, "bf16": 0.01, "f16": 0.002, "i8": 0.03}
TEXTS = ["f32/f32/f32", "bf16/bf16/f32", "bf16/bf16/bf16", "f16/f16/f32", "i8/i8/i32", "i8/f32/f32", "i8/bf16/f32"]
# Experts of very different size, so that a scale taken from another expert would show.
WEIGHTS = {"w": normal(3, 8, 5) * np.array([1e-3, 1, 1e3], np.float32)[:, None, None]}


def both(apply: Any, params: Any, x: Any, sizes: Any, text: str) -> tuple[np.ndarray, np.ndarray]:
    program = capture(apply, params, (x, sizes))
    model = prepare(apply, params, make_policy(program, {"w": text}), program=program)
    return np.asarray(jax.jit(model)(model.params, x, sizes)), np.asarray(apply(params, x, sizes))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("sizes", [[2, 3, 1], [0, 6, 0], [2, 0, 3]])
def test_every_row_meets_the_matrix_of_its_group(text: str, sizes: list[int]) -> None:
    apply = lambda params, x, sizes: jax.lax.ragged_dot(x, params["w"], sizes, precision="highest")
    found, expected = both(apply, WEIGHTS, normal(6, 8), np.array(sizes, np.int32), text)
    assert found.dtype == expected.dtype
    errors = np.linalg.norm(found - expected, axis=1)
    assert (errors <= CLOSE[text.split("/")[0]] * np.linalg.norm(expected, axis=1)).all()
    np.testing.assert_array_equal(found[sum(sizes) :], 0)


@pytest.mark.parametrize("text", ["bf16/bf16/f32", "i8/i8/i32"])
def test_axes_may_stand_in_any_order(text: str) -> None:
    numbers = jax.lax.RaggedDotDimensionNumbers((((0, 2), (1, 3)), ((), ())), (1,), (2,))
    apply = lambda params, x, sizes: jax.lax.ragged_dot_general(x, params["w"], sizes, numbers)
    sizes = np.array([1, 4, 1], np.int32)
    found, expected = both(apply, {"w": normal(5, 8, 3, 2)}, normal(8, 6, 2), sizes, text)
    assert found.shape == expected.shape
    assert np.linalg.norm(found - expected) <= 0.02 * np.linalg.norm(expected)
