import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.drop import Drop
from tuner.errors import InputError


@pytest.mark.parametrize(
    ("text", "value", "relative"),
    [
        ("1%", 0.01, False),
        ("0.01", 0.01, False),
        ("7%", 0.07, False),
        (" 1.5 % ", 0.015, False),
        ("1%rel", 0.01, True),
        ("1% REL", 0.01, True),
        ("0.02rel", 0.02, True),
        ("1e-3", 0.001, False),
        ("0", 0.0, False),
        ("0%", 0.0, False),
        ("100%", 1.0, False),
        (0.01, 0.01, False),
        (0, 0.0, False),
        (1, 1.0, False),
    ],
)
def test_reads(text, value, relative):
    assert Drop.parse(text) == Drop(value, relative)


def test_a_drop_is_read_as_itself():
    assert Drop.parse(Drop(0.02, relative=True)) == Drop(0.02, relative=True)


@given(st.floats(0, 1), st.booleans())
def test_prints_what_it_reads(value, relative):
    drop = Drop(value, relative)
    assert Drop.parse(str(drop)) == drop


@pytest.mark.parametrize(
    ("drop", "text"),
    [(Drop(0.01), "1%"), (Drop(0.07), "7%"), (Drop(0.005, True), "0.5%rel"), (Drop(0), "0%"), (Drop(-0.0), "0%")],
)
def test_prints_percent(drop, text):
    assert str(drop) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-1%", "max drop -1% is negative; a drop is a loss of quality, so give zero or more, such as 1%"),
        ("150%", "max drop 150% is above 100%; give at most 100%, and for one point of the metric 1% or 0.01"),
        ("2%rell", "max drop '2%rell' cannot be read; write 1% or 0.01 (points of the metric) or 1%rel"),
        ("", "max drop '' cannot be read"),
        ("%", "max drop '%' cannot be read"),
        ("one", "max drop 'one' cannot be read"),
        ("nan", "max drop nan is not a finite number; write 1% or 0.01"),
        ("inf%", "max drop inf is not a finite number"),
        ("1e999", "max drop inf is not a finite number"),
        (True, "max drop True is a bool; write 1%"),
        (None, "max drop None is a NoneType; write 1%"),
    ],
)
def test_refuses(text, message):
    with pytest.raises(InputError) as caught:
        Drop.parse(text)
    assert message in str(caught.value)


def test_absolute_is_points_and_relative_a_share_of_the_baseline():
    assert Drop.parse("1%").allowed(0.8) == 0.01
    assert Drop.parse("1%rel").allowed(0.8) == pytest.approx(0.008)
    assert Drop.parse("10%rel").allowed(-2.0) == pytest.approx(0.2)  # a metric below zero
