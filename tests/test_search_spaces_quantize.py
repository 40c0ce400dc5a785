import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from search_spaces import FORMATS, SearchSpaceError
from search_spaces.formats import ORIGINAL_FORMAT
from search_spaces.quantize import (
    cast,
    dequantize,
    held_dtype,
    quantize,
    quantize_asym,
    quantize_with,
    round_to,
)

F32, BF16, F16, TF32, I8 = (FORMATS[name] for name in ("f32", "bf16", "f16", "tf32", "i8"))
NUMPY_DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
few = settings(deadline=None, max_examples=40)


def numpy_rounded(x: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype(NUMPY_DTYPES[name]).astype(np.float32)


floats = hnp.arrays(np.float32, 64, elements=st.floats(width=32, allow_nan=True, allow_infinity=True))


@pytest.mark.parametrize("name", NUMPY_DTYPES)
@given(x=floats)
@few
def test_cast_and_round_to_agree_with_numpy_on_every_value(name, x):
    expected = numpy_rounded(x, name)
    jitted = jax.jit(lambda y: round_to(y, FORMATS[name]))(x)
    stored = cast(jnp.asarray(x), FORMATS[name])
    assert stored.dtype == FORMATS[name].dtype
    assert jitted.dtype == jnp.float32
    np.testing.assert_array_equal(np.asarray(stored).astype(np.float32), expected)
    np.testing.assert_array_equal(np.asarray(jitted), expected)


def test_a_tie_goes_to_the_even_neighbour():
    step = 2.0**-7  # distance of bf16 numbers between 1 and 2
    ties = jnp.asarray([1 + step / 2, 1 + 3 * step / 2], jnp.float32)
    np.testing.assert_array_equal(round_to(ties, BF16), [1.0, 1 + 2 * step])
    np.testing.assert_array_equal(cast(jnp.asarray([0.5, 1.5, 2.5, -2.5]), I8), [0, 2, 2, -2])


def test_bf16_rounding_survives_excess_precision_under_jit():
    a, b = ml_dtypes.bfloat16(1 + 2**-7), ml_dtypes.bfloat16(1 + 3 * 2**-7)
    exact = np.float32(a) * np.float32(b)
    product = numpy_rounded(np.asarray(exact), "bf16")
    assert product != exact

    def by_value(x, y, z):
        return round_to(x * y, BF16).astype(jnp.float32) - z

    # Operands in bf16: XLA multiplies in float32 and would hand the unrounded product to the subtraction.
    assert jax.jit(by_value)(a, b, product) == 0.0
    assert jax.jit(by_value)(np.float32(a), np.float32(b), product) == 0.0


def test_a_rounding_by_dtype_alone_is_what_excess_precision_skips():
    if jax.default_backend() != "cpu":
        pytest.skip("which roundings XLA skips depends on the device")
    a, b = ml_dtypes.bfloat16(1 + 2**-7), ml_dtypes.bfloat16(1 + 3 * 2**-7)
    skipped = jax.jit(lambda x, y: (x * y).astype(jnp.float32) - np.float32(a * b))(a, b)
    assert skipped != 0.0  # if this fails, XLA has become strict and the test above proves nothing


def test_tf32_keeps_ten_bits_of_the_mantissa_in_float32():
    x = jnp.asarray([1 + 2.0**-10, 1 + 2.0**-12], jnp.float32)
    rounded = cast(x, TF32)
    assert rounded.dtype == jnp.float32
    np.testing.assert_array_equal(rounded, [1 + 2.0**-10, 1.0])


def test_round_to_keeps_a_narrow_dtype():
    x = jnp.asarray([70000.0, 1e-6, 1.0], jnp.bfloat16)
    rounded = round_to(x, F16)
    assert rounded.dtype == jnp.bfloat16
    expected = np.asarray(x.astype(jnp.float16).astype(jnp.bfloat16)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(rounded).astype(np.float32), expected)


def test_round_to_refuses_formats_that_need_a_scale_and_lists_those_it_takes():
    with pytest.raises(SearchSpaceError, match=r"cannot round in place to i8; use one of f32, bf16, f16, tf32"):
        round_to(jnp.ones(2), I8)


def test_cast_to_original_is_refused():
    with pytest.raises(SearchSpaceError, match="nothing can be cast to 'original'"):
        cast(jnp.ones(2), ORIGINAL_FORMAT)


def test_cast_to_i8_stops_at_the_largest_and_makes_nan_zero():
    x = jnp.asarray([300.0, -300.0, np.inf, -np.inf, np.nan, -128.0], jnp.float32)
    np.testing.assert_array_equal(jax.jit(lambda y: cast(y, I8))(x), [127, -127, 127, -127, 0, -127])
    np.testing.assert_array_equal(cast(jnp.asarray([300, -300, 5]), I8), [127, -127, 5])


def test_cast_overflow_is_infinite_in_f16_and_nan_in_f8_e4m3fn():
    x = jnp.asarray([1e5], jnp.float32)
    assert np.isinf(cast(x, F16)).all()
    assert np.isnan(np.asarray(cast(x, FORMATS["f8_e4m3fn"])).astype(np.float32)).all()


matrices = hnp.arrays(
    np.float32,
    st.sampled_from([(1, 8), (5, 3)]),  # each shape compiles anew
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)


@given(x=matrices, axis=st.sampled_from([0, 1, (0, 1)]))
@few
def test_quantized_values_are_within_half_a_scale(x, axis):
    q, scale = quantize(jnp.asarray(x), I8, axis)
    assert q.dtype == jnp.int8
    assert np.abs(np.asarray(q, np.int32)).max() <= 127
    error = np.abs(np.asarray(dequantize(q, scale, jnp.float32), np.float64) - x)
    # The scale is itself rounded to float32: 127 steps of it are off by up to 127 * 2**-23 of a step.
    assert (error <= np.asarray(scale, np.float64) * (0.5 + 2.0**-15)).all()


def test_scale_is_per_channel_along_the_axes_given():
    x = jnp.asarray([[1.0, -254.0], [-127.0, 2.0]], jnp.float32)
    q, scale = quantize(x, I8, 0)
    assert scale.shape == (1, 2)
    assert scale.dtype == jnp.float32
    np.testing.assert_array_equal(scale, [[1.0, 2.0]])
    np.testing.assert_array_equal(q, [[1, -127], [-127, 1]])


def test_axes_may_be_negative_several_or_none():
    x = jnp.arange(24, dtype=jnp.float32).reshape(2, 3, 4)
    assert quantize(x, I8, -1)[1].shape == (2, 3, 1)
    assert quantize(x, I8, (0, 2))[1].shape == (1, 3, 1)
    assert quantize(x, I8, ())[1].shape == (2, 3, 4)


def test_zero_rows_have_scale_one():
    q, scale = quantize(jnp.zeros((2, 3)), I8, 1)
    np.testing.assert_array_equal(scale, np.ones((2, 1)))
    np.testing.assert_array_equal(q, np.zeros((2, 3)))


def test_an_array_without_elements_quantizes_to_none():
    q, scale = quantize(jnp.zeros((0, 3)), I8, 0)
    assert q.shape == (0, 3)
    np.testing.assert_array_equal(scale, np.ones((1, 3)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_group_that_is_not_finite_dequantizes_to_nan_and_others_do_not(bad):
    x = np.asarray([[1.0, bad, 0.0], [1.0, 2.0, 3.0]], np.float32)
    q, scale = jax.jit(lambda y: quantize(y, I8, 1))(x)
    back = np.asarray(dequantize(q, scale, jnp.float32))
    assert np.isnan(back[0]).all()
    assert np.isfinite(back[1]).all()


def test_the_largest_float_stays_finite():
    x = np.asarray([[np.finfo(np.float32).max, 0.0, -1e38]], np.float32)
    q, scale = quantize(jnp.asarray(x), I8, 1)
    back = np.asarray(dequantize(q, scale, jnp.float32))
    np.testing.assert_array_equal(q, [[127, 0, -37]])
    np.testing.assert_allclose(back, x, atol=float(scale[0, 0]) / 2)


def test_debug_nans_has_nothing_to_object_to():
    with jax.debug_nans(True):
        q, _ = quantize(jnp.asarray([[0.0, 0.0], [1.0, -2.0]]), I8, 1)
    np.testing.assert_array_equal(q, [[0, 0], [64, -127]])


def test_denormals_quantize_without_a_division_by_zero():
    x = jnp.asarray([[1e-44, 1e-40, 0.0]], jnp.float32)
    q, scale = jax.jit(lambda y: quantize(y, I8, 1))(x)
    back = np.asarray(dequantize(q, scale, jnp.float32))
    assert np.isfinite(back).all()
    assert (np.abs(back - np.asarray(x)) <= np.asarray(scale) / 2).all()


def test_scale_is_float32_for_bf16_numbers():
    q, scale = quantize(jnp.asarray([[3.0, -1.0]], jnp.bfloat16), I8, 1)
    assert scale.dtype == jnp.float32
    assert dequantize(q, scale, jnp.bfloat16).dtype == jnp.bfloat16


def test_quantize_works_under_vmap_and_strict_promotion():
    x = jnp.arange(24, dtype=jnp.float32).reshape(2, 3, 4)
    with jax.numpy_dtype_promotion("strict"):
        mapped = jax.vmap(lambda y: quantize(y, I8, 1))(x)
        whole = quantize(x, I8, 2)
    for one, other in zip(mapped, whole, strict=True):
        np.testing.assert_array_equal(one, other)


def test_quantize_refuses_other_formats():
    with pytest.raises(
        SearchSpaceError, match="bf16 needs no scale; quantize to i8, i4, f8_e4m3fn or f8_e5m2, or cast"
    ):
        quantize(jnp.ones((2, 2)), BF16, 0)
    with pytest.raises(SearchSpaceError, match="bf16 needs no scale"):
        quantize_with(jnp.ones((2, 2)), BF16, jnp.ones(()))
    with pytest.raises(SearchSpaceError, match="f8_e4m3fn has no zero point; use i8 or i4"):
        quantize_asym(jnp.ones((2, 2)), FORMATS["f8_e4m3fn"], 0)


@pytest.mark.parametrize("name", ["i4", "f8_e4m3fn", "f8_e5m2"])
def test_other_scaled_formats_reach_their_largest_value(name):
    x = jnp.asarray([[1.0, -3.5, 0.0]], jnp.float32)
    q, scale = quantize(x, FORMATS[name], 1)
    assert q.dtype == held_dtype(FORMATS[name])
    assert float(np.asarray(q, np.float32)[0, 1]) == -FORMATS[name].max
    np.testing.assert_allclose(dequantize(q, scale, jnp.float32), x, atol=3.5 / (7 if name == "i4" else 8) / 2)


@given(x=matrices, name=st.sampled_from(["i8", "i4"]))
@few
def test_with_a_zero_point_values_are_within_a_scale_and_zero_is_exact(x, name):
    format = FORMATS[name]
    q, scale, zero = quantize_asym(jnp.asarray(x), format, 1)
    q, scale, zero = (np.asarray(part, np.float64) for part in (q, scale, zero))
    assert ((q >= -format.max - 1) & (q <= format.max)).all()
    assert (np.abs((q - zero) * scale - x) <= scale * (1 + 2.0**-15)).all()
    np.testing.assert_array_equal(((q - zero) * scale)[x == 0], 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_zero_point_hides_nothing_that_is_not_finite(bad):
    _, scale, _ = quantize_asym(jnp.asarray([[1.0, bad], [1.0, 2.0]], jnp.float32), I8, 1)
    np.testing.assert_array_equal(np.isnan(np.asarray(scale))[:, 0], [True, False])


def test_a_known_scale_stops_at_the_ends_of_the_range():
    x = jnp.asarray([-1000.0, -2.0, 0.0, 1.0, 3.0, 1000.0], jnp.float32)
    half = jnp.asarray(0.5, jnp.float32)
    np.testing.assert_array_equal(quantize_with(x, I8, half), [-127, -4, 0, 2, 6, 127])
    np.testing.assert_array_equal(quantize_with(x, I8, half, jnp.asarray(-100)), [-128, -104, -100, -98, -94, 127])
    np.testing.assert_array_equal(quantize_with(x, FORMATS["i4"], half), [-7, -4, 0, 2, 6, 7])
    ends = np.asarray(quantize_with(x * 1e6, FORMATS["f8_e4m3fn"], half), np.float32)
    np.testing.assert_array_equal(ends[[0, -1]], [-448, 448])
