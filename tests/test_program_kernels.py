"""Each kernel against plain arithmetic, over any dimension numbers."""

from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from tests import programs
from tuner.program import capture, make_policy, prepare


def error(found: Any, expected: Any) -> float:
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    return float(np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-30))


@hypothesis.given(
    left=st.permutations(["b", "m", "k", "l"]),
    right=st.permutations(["b", "k", "l", "n"]),
    flipped=st.booleans(),
    text=st.sampled_from(["f32/f32/f32", "bf16/bf16/f32", "i8/i8/i32", "i8/f32/f32"]),
)
def test_products_with_any_contracting_batch_and_free_axes(left: Any, right: Any, flipped: bool, text: str) -> None:
    sizes = {"b": 2, "m": 3, "k": 5, "l": 2, "n": 4}
    a = programs.normal(*(sizes[axis] for axis in left), seed=1)
    w = programs.normal(*(sizes[axis] for axis in right), seed=2)

    def axes(names: Any, wanted: str) -> tuple[int, ...]:
        return tuple(names.index(axis) for axis in wanted)

    def apply(params: Any, x: Any) -> Any:
        pair = (params, x) if flipped else (x, params)
        names = (right, left) if flipped else (left, right)
        numbers = ((axes(names[0], "kl"), axes(names[1], "kl")), (axes(names[0], "b"), axes(names[1], "b")))
        return jax.lax.dot_general(*pair, numbers)

    program = capture(apply, w, (a,))
    model = prepare(apply, w, make_policy(program, {"params": text}), program=program)
    expected = apply(w, a)
    found = model(model.params, a)
    assert found.shape == expected.shape
    assert error(found, expected) < (1e-6 if text == "f32/f32/f32" else 0.03)


def test_integer_products_scale_every_row_and_channel_for_itself() -> None:
    x = programs.normal(4, 16) * np.array([[1e-3], [1.0], [1e3], [0.0]], np.float32)
    w = programs.normal(16, 3) * np.array([1e-2, 1.0, 1e2], np.float32)
    program = capture(lambda p, x: x @ p, w, (x,))
    model = prepare(lambda p, x: x @ p, w, make_policy(program, {"params": "i8/i8/i32"}), program=program)
    found, expected = np.asarray(model(model.params, x)), x @ w
    for row in range(3):
        for column in range(3):
            row_size = np.linalg.norm(x[row]) * np.linalg.norm(w[:, column])
            assert abs(found[row, column] - expected[row, column]) < 0.02 * row_size
    np.testing.assert_array_equal(found[3], 0)


@pytest.mark.parametrize("text", ["bf16/bf16/f32", "i8/i8/i32", "f16/f16/f32"])
def test_products_of_two_activations(text: str) -> None:
    def apply(params: Any, x: Any) -> Any:
        return jnp.einsum("bqd,bkd->bqk", x * params, x)

    x, s = programs.normal(2, 5, 16), programs.normal(16)
    program = capture(apply, s, (x,))
    (name,) = [layer.name for layer in program.layers if layer.kind == "dot"]
    model = prepare(apply, s, make_policy(program, {name: text}), program=program)
    assert error(model(model.params, x), apply(s, x)) < 0.02


@pytest.mark.parametrize("spec", [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("HWNC", "OHWI", "CNHW")])
@pytest.mark.parametrize("text", ["bf16/bf16/f32", "i8/i8/i32", "i8/f32/f32"])
def test_convolutions_in_any_layout(spec: tuple[str, str, str], text: str) -> None:
    sizes = {"N": 2, "H": 9, "W": 8, "C": 4}
    kernel = {"H": 3, "W": 2, "I": 2, "O": 6}
    x = programs.normal(*(sizes[axis] for axis in spec[0]))
    w = programs.normal(*(kernel[axis] for axis in spec[1]))

    def apply(params: Any, x: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x,
            params,
            (2, 1),
            ((1, 1), (2, 0)),
            rhs_dilation=(1, 2),
            lhs_dilation=(1, 2),
            dimension_numbers=spec,
            feature_group_count=2,
        )

    program = capture(apply, w, (x,))
    model = prepare(apply, w, make_policy(program, {"params": text}), program=program)
    assert error(model(model.params, x), apply(w, x)) < 0.02


@pytest.mark.parametrize("text", ["bf16/f32/f32", "i8/f32/f32", "i8/i8/i32"])
@pytest.mark.parametrize("mode", ["fill", "clip", "wrap"])
def test_look_ups_follow_the_users_out_of_bounds_rule(text: str, mode: str) -> None:
    def apply(params: Any, ids: Any) -> Any:
        return jnp.take(params, ids, axis=0, mode=mode)

    table, ids = programs.normal(10, 6), np.array([[0, 3], [9, 12]], np.int32)
    program = capture(apply, table, (ids,))
    model = prepare(apply, table, make_policy(program, {"params": text}), program=program)
    found, expected = np.asarray(model(model.params, ids)), np.asarray(apply(table, ids))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    assert error(np.nan_to_num(found), np.nan_to_num(expected)) < 0.02


def test_look_ups_along_another_axis() -> None:
    def apply(params: Any, ids: Any) -> Any:
        return jnp.take(params, ids, axis=1)

    table, ids = programs.normal(6, 10), np.array([1, 4], np.int32)
    program = capture(apply, table, (ids,))
    model = prepare(apply, table, make_policy(program, {"params": "i8/f32/f32"}), program=program)
    assert model.params["layers"]["params"]["scale"].shape == (1, 10)
    assert error(model(model.params, ids), apply(table, ids)) < 0.02


def test_a_half_precision_model_can_be_searched_upward() -> None:
    example = programs.half_precision_model()
    program = capture(example.apply, example.params, example.inputs)
    model = prepare(example.apply, example.params, make_policy(program, {"w": "f32/f32/f32"}), program=program)
    assert model.params["layers"]["w"]["weight"].dtype == jnp.float32
    assert model(model.params, *example.inputs).dtype == jnp.bfloat16
