import pytest

from tuner.report import numbers


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_234_567, "1.23 MB"), (999_600, "1 MB"), (10**16, "1e+04 TB")],
)
def test_sizes(count, text):
    assert numbers.size(count) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0"), (950, "950"), (1_234, "1.23k"), (5_600_000_000, "5.6G")])
def test_amounts(count, text):
    assert numbers.amount(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0s"), (0.4, "0s"), (59, "59s"), (60, "1m00s"), (245, "4m05s"), (3720, "1h02m")]
)
def test_durations(seconds, text):
    assert numbers.seconds(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(0.38, "0.380"), (1.234, "1.23"), (12.44, "12.4"), (1234.5, "1234")])
def test_milliseconds_keep_three_digits(value, text):
    assert numbers.milliseconds(value) == text


def test_a_difference_of_nothing_has_no_sign():
    assert numbers.signed(-0.00001) == "0.0000"
    assert numbers.signed(0.0011) == "+0.0011"


def test_intervals():
    assert numbers.ratio_interval(0.3124, 0.305, 0.3211) == "0.312 (0.305..0.321)"
    assert numbers.signed_interval(0.0011, -0.001, 0.0032) == "+0.0011 (-0.0010..+0.0032)"
