"""Scaled formats and their options against a numpy reference, and within what rounding allows."""

from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from search_spaces import FORMATS, Precision
from tests import programs
from tuner.program import capture, make_policy, prepare

GROUPS = {"g32": 32, "g64": 64, "g128": 128}
F8 = {"f8_e4m3fn": ml_dtypes.float8_e4m3fn, "f8_e5m2": ml_dtypes.float8_e5m2}


def run(apply: Any, params: Any, x: Any, text: str, name: str = "params") -> tuple[np.ndarray, Any]:
    program = capture(apply, params, (x,))
    model = prepare(apply, params, make_policy(program, {name: text}), program=program)
    return np.asarray(jax.jit(model)(model.params, x)), model


def rounded(value: np.ndarray, axes: Any, text: str, symmetric: bool = True) -> np.ndarray:
    """The numbers that a scaled format has in place of these, scales shared along the axes: plain numpy."""
    format = FORMATS[text]
    if symmetric:
        scale = np.abs(value).max(axes, keepdims=True) / np.float32(format.max)
        steps = value / scale
        return (steps.astype(F8[text]).astype(np.float32) if text in F8 else np.rint(steps)) * scale
    low, high = -format.max - 1, format.max
    lowest, largest = np.minimum(value.min(axes, keepdims=True), 0), np.maximum(value.max(axes, keepdims=True), 0)
    scale = (largest - lowest) / np.float32(high - low)
    zero = np.rint(low - lowest / scale)
    return (np.clip(np.rint(value / scale) + zero, low, high) - zero) * scale


def weight_of(value: np.ndarray, precision: Precision) -> np.ndarray:
    """A matrix (in, out) as a precision holds it."""
    symmetric = precision.symmetric or not precision.is_weight_only
    arguments = precision.weights.name, symmetric
    if precision.granularity in GROUPS:
        groups = value.reshape(-1, GROUPS[precision.granularity], value.shape[1])
        return rounded(groups, 1, *arguments).reshape(value.shape)
    axes = {"channel": 0, "tensor": (0, 1), "row": 1}[precision.granularity]
    return rounded(value, axes, *arguments)


def expected_product(x: np.ndarray, w: np.ndarray, text: str) -> np.ndarray:
    precision = Precision.parse(text)
    weight = weight_of(w, precision)
    if precision.activations.is_scaled:
        x = rounded(x, 1, precision.activations.name, precision.symmetric)
    elif precision.activations.name == "bf16":
        x = x.astype(ml_dtypes.bfloat16).astype(np.float32)
        if precision.granularity in ("row", *GROUPS):  # multiplied out before the product, in its format
            weight = weight.astype(ml_dtypes.bfloat16).astype(np.float32)
    return x.astype(np.float64) @ weight.astype(np.float64)


PRODUCTS = [
    *("i4/f32/f32", "i4/f32/f32@tensor", "i4/f32/f32@g32", "i4/f32/f32@g64", "i4/f32/f32@row", "i4/bf16/f32@g128"),
    *("i4/f32/f32@asym", "i4/bf16/f32@asym", "i4/f32/f32@g32,asym", "i8/f32/f32@asym", "i8/bf16/f32@g64"),
    *("i4/i4/i32", "i4/i8/i32", "i8/i4/i32", "i4/i8/i32@g32", "i8/i8/i32@g64", "i8/i8/i32@tensor"),
    *("i8/i8/i32@asym", "i4/i8/i32@asym", "i4/i4/i32@asym,tensor"),
    *("f8_e4m3fn/f32/f32", "f8_e5m2/bf16/f32", "f8_e4m3fn/f32/f32@tensor", "f8_e4m3fn/f32/f32@g32"),
    *("fp8", "f8_e5m2/f8_e5m2/f32", "f8_e4m3fn/f8_e5m2/f32@tensor", "f8_e4m3fn/f8_e4m3fn/f32@g32"),
]


@pytest.mark.parametrize("text", PRODUCTS)
def test_products_are_those_of_the_rounded_operands(text: str) -> None:
    x, w = programs.normal(6, 128, seed=3), programs.normal(128, 10, seed=4) * np.linspace(0.1, 3, 10, dtype=np.float32)
    found, _ = run(lambda p, x: x @ p, w, x, text)
    expected = expected_product(x, w, text)
    # A value in the middle between two may go either way where jax and numpy divide differently: one step of it at most.
    assert np.linalg.norm(found - expected) < 2e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize("text", ["i8/i8/i32@asym", "i4/i8/i32@asym"])
def test_a_zero_point_pays_where_nothing_is_negative(text: str) -> None:
    x, w = np.abs(programs.normal(64, 32, seed=1)), programs.normal(32, 8, seed=2)
    held = weight_of(w, Precision.parse(text))
    errors = [np.linalg.norm(run(lambda p, x: x @ p, w, x, one)[0] - x @ held) for one in (text, text.split("@")[0])]
    assert errors[0] < 0.7 * errors[1]


@hypothesis.given(
    left=st.permutations(["b", "m", "k", "l"]),
    right=st.permutations(["b", "k", "l", "n"]),
    flipped=st.booleans(),
    text=st.sampled_from(["i4/i8/i32@g32", "i8/i8/i32@asym", "i4/f32/f32@g32", "fp8", "i4/f32/f32@row,asym"]),
)
@hypothesis.settings(deadline=None, max_examples=20)
def test_any_contracting_batch_and_free_axes(left: Any, right: Any, flipped: bool, text: str) -> None:
    sizes = {"b": 2, "m": 3, "k": 64, "l": 3, "n": 4}
    a = programs.normal(*(sizes[axis] for axis in left), seed=1)
    w = programs.normal(*(sizes[axis] for axis in right), seed=2)

    def axes(names: Any, wanted: str) -> tuple[int, ...]:
        return tuple(names.index(axis) for axis in wanted)

    def apply(params: Any, x: Any) -> Any:
        pair = (params, x) if flipped else (x, params)
        names = (right, left) if flipped else (left, right)
        numbers = ((axes(names[0], "kl"), axes(names[1], "kl")), (axes(names[0], "b"), axes(names[1], "b")))
        return jax.lax.dot_general(*pair, numbers)

    found, _ = run(apply, w, a, text)
    expected = np.asarray(apply(w, a))
    assert found.shape == expected.shape
    assert np.linalg.norm(found - expected) < (0.2 if text.startswith("i4") else 0.06) * np.linalg.norm(expected)


CONVOLUTIONS = [
    *("i4/f32/f32", "i4/f32/f32@tensor", "i8/i8/i32@tensor", "i8/i8/i32@asym", "i4/i8/i32", "i4/i8/i32@asym"),
    *("i4/f32/f32@asym", "f8_e4m3fn/f32/f32", "fp8", "f8_e5m2/f8_e5m2/f32@tensor", "i8/f32/f32@row"),
]


@pytest.mark.parametrize("text", CONVOLUTIONS)
@pytest.mark.parametrize("groups", [2, 4])  # the last is depthwise
def test_convolutions_are_those_of_the_rounded_operands(text: str, groups: int) -> None:
    precision = Precision.parse(text)
    x, w = programs.normal(3, 7, 8, 4, seed=5), programs.normal(3, 2, 4 // groups, 8, seed=6)

    def apply(params: Any, x: Any) -> Any:
        settings = {"rhs_dilation": (1, 2), "lhs_dilation": (1, 2), "feature_group_count": groups}
        return jax.lax.conv_general_dilated(
            x, params, (2, 1), ((1, 1), (2, 0)), dimension_numbers=("NHWC", "HWIO", "NHWC"), **settings
        )

    symmetric = precision.symmetric or not precision.is_weight_only
    axes = {"channel": (0, 1, 2), "tensor": (0, 1, 2, 3), "row": (0, 1, 3)}[precision.granularity]
    held = rounded(w, axes, precision.weights.name, symmetric)
    image = x
    if precision.activations.is_scaled:
        image = rounded(x, (1, 2, 3), precision.activations.name, precision.symmetric)
    found, _ = run(apply, w, x, text)
    expected = np.asarray(apply(held, image))
    assert np.linalg.norm(found - expected) < 2e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    "text",
    ["i4/f32/f32", "i4/f32/f32@g32", "i4/f32/f32@asym", "i4/f32/f32@tensor", "f8_e4m3fn/f32/f32", "i8/f32/f32@tensor"],
)
@pytest.mark.parametrize("mode", ["fill", "clip", "wrap"])
def test_look_ups_are_those_of_the_rounded_table(text: str, mode: str) -> None:
    precision = Precision.parse(text)
    table, ids = programs.normal(10, 64), np.array([[0, 3], [9, 12]], np.int32)
    axes = (0, 1) if precision.granularity == "tensor" else 1
    if precision.granularity == "g32":
        held = rounded(table.reshape(10, 2, 32), 2, "i4").reshape(10, 64)
    else:
        held = rounded(table, axes, precision.weights.name, precision.symmetric)
    apply = lambda p, ids: jnp.take(p, ids, axis=0, mode=mode)
    found, model = run(apply, table, ids, text)
    np.testing.assert_allclose(found, np.asarray(apply(held, ids)), atol=1e-6)
    if precision.weights.name == "i4":
        assert model.params["layers"]["params"]["weight"].nbytes == 10 * 64 // 2


def test_four_bit_weights_take_half_a_byte_each_and_their_scales() -> None:
    x, w = programs.normal(2, 256), programs.normal(256, 32)
    _, model = run(lambda p, x: x @ p, w, x, "i4/bf16/f32@g64")
    packed = model.params["layers"]["params"]
    assert (packed["weight"].dtype, packed["weight"].nbytes) == (jnp.uint8, 256 * 32 // 2)
    assert packed["scale"].shape == (4, 32)
    assert model.weight_bytes == 256 * 32 // 2 + 4 * 4 * 32


@pytest.mark.parametrize("shape", [(5, 3), (1, 1), (7, 2), (1, 9)])
def test_odd_lengths_fit_in_bytes_too(shape: tuple[int, int]) -> None:
    x, w = programs.normal(2, shape[0]), programs.normal(*shape)
    found, model = run(lambda p, x: x @ p, w, x, "i4/f32/f32")
    np.testing.assert_allclose(found, x @ rounded(w, 0, "i4"), rtol=1e-4, atol=1e-5)
    assert model.params["layers"]["params"]["weight"].size <= (w.size + max(shape)) // 2 + 1


@pytest.mark.parametrize("text", ["i4/f32/f32@g32", "i4/i8/i32", "i8/i8/i32@asym", "fp8"])
def test_every_kernel_gives_the_same(text: str) -> None:
    from tuner.policy import Assignment
    from tuner.program.policies import kernel_names

    for rows in (1, 5):
        x, w = programs.normal(rows, 64), programs.normal(64, 8)
        apply = lambda p, x: x @ p
        program = capture(apply, w, (x,))
        plain, *others = kernel_names(program, "params", Precision.parse(text))
        results = []
        for kernel in (plain, *others):
            chosen = {"params": Assignment(precision=Precision.parse(text), kernel=kernel)}
            model = prepare(apply, w, make_policy(program, chosen), program=program)
            results.append(np.asarray(model(model.params, x)))
        assert len(results) > 1
        for found in results[1:]:
            np.testing.assert_allclose(found, results[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("text", ["i8/i8/i32@asym", "i4/f32/f32@g32", "fp8"])
@pytest.mark.parametrize("groups", [1, 32])
def test_every_kernel_of_a_convolution_gives_the_same(text: str, groups: int) -> None:
    from tuner.policy import Assignment
    from tuner.program.policies import kernel_names

    if groups > 1 and "g32" in text:
        pytest.skip("a channel of a depthwise convolution sums too few numbers for groups")
    x, w = programs.normal(2, 5, 6, 32, seed=1), programs.normal(3, 3, 32 // groups, 32, seed=2)

    def apply(params: Any, x: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, params, (2, 1), ((1, 0), (1, 2)), dimension_numbers=numbers, feature_group_count=groups
        )

    program = capture(apply, w, (x,))
    names = kernel_names(program, "params", Precision.parse(text))
    results = []
    for kernel in names:
        chosen = {"params": Assignment(precision=Precision.parse(text), kernel=kernel)}
        model = prepare(apply, w, make_policy(program, chosen), program=program)
        results.append(np.asarray(jax.jit(model)(model.params, x)))
    assert len(names) > 1
    for found in results[1:]:
        np.testing.assert_allclose(found, results[0], rtol=1e-4, atol=1e-4)


def test_ragged_rows_outside_every_group_stay_zero_with_a_zero_point() -> None:
    x, w = programs.normal(6, 32), programs.normal(2, 32, 4)
    sizes = jnp.array([2, 3], jnp.int32)
    found, _ = run(lambda p, x: jax.lax.ragged_dot(x, p, sizes), w, x, "i8/i8/i32@asym")
    expected = np.asarray(jax.lax.ragged_dot(x, w, sizes))
    np.testing.assert_array_equal(found[5], 0)
    assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)


@pytest.mark.parametrize("text", ["i4/f32/f32@g32", "i8/i8/i32@asym", "fp8", "i4/i8/i32@tensor"])
def test_a_scan_holds_the_weights_of_all_iterations(text: str) -> None:
    x, w = programs.normal(4, 32), programs.normal(3, 32, 32) / 6

    def apply(params: Any, x: Any) -> Any:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, params)[0]

    found, _ = run(apply, w, x, text)
    precision = Precision.parse(text)
    expected = x
    for one in w:
        held = weight_of(one, precision)
        given = expected
        if precision.activations.is_scaled:
            given = rounded(expected, 1, precision.activations.name, precision.symmetric)
        expected = np.tanh(given @ held)
    np.testing.assert_allclose(found, expected, atol=0.02)


@pytest.mark.parametrize(
    ("shape", "text", "reason"),
    [
        ((48, 4), "i4/f32/f32@g32", "groups of 32 do not divide the 48 numbers that it sums; leave g32 out"),
        (
            (64, 4),
            "i8/i8/i32@row",
            "a scale that changes within a sum needs activations in floats; write i8/f32/f32@row, or leave row out",
        ),
        (
            (64, 4),
            "i8/i8/i32@g32,asym",
            "g32 and asym do not go together with i8 activations; leave one out",
        ),
    ],
)
def test_what_a_layer_cannot_take_is_said(shape: tuple[int, int], text: str, reason: str) -> None:
    from tuner.errors import PolicyError

    w = programs.normal(*shape)
    program = capture(lambda p, x: x @ p, w, (programs.normal(2, shape[0]),))
    with pytest.raises(PolicyError) as caught:
        make_policy(program, {"params": text})
    assert str(caught.value) == f"layer 'params' cannot run in {text}: {reason}; choose another precision"
