import ml_dtypes
import numpy as np
import pytest

from search_spaces import FORMATS
from tuner.program.observers import Observed, choose_scale

I8, I4 = FORMATS["i8"], FORMATS["i4"]


def observed(*batches):
    seen = Observed()
    for batch in batches:
        batch = np.asarray(batch, np.float32)
        seen.add([batch.min(), batch.max(), 0], batch, {})
    return seen


def squared_error(x, scale, zero, format, low):
    steps = np.clip(np.rint(x / scale) + zero, low, format.max)
    return float((((steps - zero) * scale - x) ** 2).mean())


NORMAL = np.random.default_rng(0).standard_normal(20000).astype(np.float32)
OUTLIERS = np.concatenate([NORMAL, [40.0, -35.0]]).astype(np.float32)


def test_max_reaches_from_end_to_end():
    scale, zero = choose_scale(observed([1.0, -2.0], [0.5, -12.7]), I8, "max", True)
    assert (scale, zero) == (pytest.approx(0.1), 0)
    scale, zero = choose_scale(observed([0.0, 25.5]), I8, "max", False)
    assert (scale, zero) == (pytest.approx(0.1), -128)
    scale, zero = choose_scale(observed([-2.5, -1.0]), I8, "max", False)
    assert (scale, zero) == (pytest.approx(2.5 / 255, rel=1e-6), 127)


def test_a_zero_point_keeps_zero_exact_and_both_ends_within_a_step():
    scale, zero = choose_scale(observed([-0.17, 3.0]), I8, "max", False)
    assert abs((-128 - zero) * scale + 0.17) <= scale
    assert abs((127 - zero) * scale - 3.0) <= scale


def test_a_percentile_cuts_one_in_a_thousand():
    scale, _ = choose_scale(observed(NORMAL), I8, "p99.9", True)
    assert scale * 127 == pytest.approx(np.quantile(np.abs(NORMAL), 0.999), rel=0.01)
    scale, zero = choose_scale(observed(np.abs(NORMAL)), I8, "p99.9", False)
    assert zero == -128
    assert scale * 255 == pytest.approx(np.quantile(np.abs(NORMAL), 0.999), rel=0.01)


@pytest.mark.parametrize("format", [I8, I4])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("values", [NORMAL, OUTLIERS, np.maximum(OUTLIERS, 0)])
def test_the_least_error_is_nearly_the_least_there_is(format, symmetric, values):
    low = -format.max - (not symmetric)
    found = squared_error(values, *choose_scale(observed(values), format, "mse", symmetric), format, low)
    widest = squared_error(values, *choose_scale(observed(values), format, "max", symmetric), format, low)
    factors = np.linspace(0.2, 1.0, 50)
    scale, zero = choose_scale(observed(values), format, "max", symmetric)
    best = min(squared_error(values, scale * factor, zero, format, low) for factor in factors)
    assert found <= widest * 1.0001
    assert found <= best * 1.1


@pytest.mark.parametrize("name", ["f8_e4m3fn", "f8_e5m2"])
@pytest.mark.parametrize("observer", ["max", "mse", "p99.9"])
def test_floats_have_a_scale_too(name, observer):
    scale, zero = choose_scale(observed(OUTLIERS), FORMATS[name], observer, True)
    dtype = {"f8_e4m3fn": ml_dtypes.float8_e4m3fn, "f8_e5m2": ml_dtypes.float8_e5m2}[name]
    limit = FORMATS[name].max
    held = np.clip(OUTLIERS / scale, -limit, limit).astype(dtype).astype(np.float32) * scale
    error = np.linalg.norm(held - OUTLIERS) / np.linalg.norm(OUTLIERS)
    assert zero == 0
    assert error < (0.5 if observer == "p99.9" else 0.1)


@pytest.mark.parametrize("observer", ["max", "mse", "p99.9"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_nothing_but_zeros_has_scale_one(observer, symmetric):
    assert choose_scale(observed(np.zeros(5)), I8, observer, symmetric) == (1.0, 0 if symmetric else -128)


def test_what_was_seen_in_two_parts_is_what_was_seen_at_once():
    whole, parts = observed(OUTLIERS), observed(OUTLIERS[:9]).merged(observed(OUTLIERS[9:]))
    for observer in ("max", "mse", "p99.9"):
        assert choose_scale(whole, I8, observer, True) == choose_scale(parts, I8, observer, True)
    assert Observed().merged(whole) is whole


def test_the_smallest_numbers_make_no_scale_of_zero():
    scale, _ = choose_scale(observed([1e-44, -1e-45]), I8, "mse", True)
    assert scale > 0
