import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from search_spaces import FORMATS, SearchSpaceError, parse_format
from search_spaces.formats import FORMAT_ALIASES


@pytest.mark.parametrize("name", FORMATS)
def test_short_names_parse_to_their_format(name):
    assert parse_format(name) is FORMATS[name]
    assert str(parse_format(name)) == name


@pytest.mark.parametrize(("alias", "name"), FORMAT_ALIASES.items())
def test_aliases_parse_to_the_format_they_mean(alias, name):
    assert parse_format(alias) is FORMATS[name]
    assert parse_format(f" {alias.upper()} ") is FORMATS[name]


@pytest.mark.parametrize("format", FORMATS.values(), ids=str)
def test_dtype_bits_and_max_are_those_of_the_dtype(format):
    dtype = np.dtype(getattr(ml_dtypes, format.dtype, format.dtype))
    if format.kind == "float" and format.name != "tf32":
        assert float(ml_dtypes.finfo(dtype).max) == format.max
        assert ml_dtypes.finfo(dtype).bits == format.bits
    elif format.kind == "int":
        assert int(ml_dtypes.iinfo(dtype).max) == format.max
        assert ml_dtypes.iinfo(dtype).bits == format.bits


def test_scaled_formats_are_those_of_eight_bits_and_fewer():
    assert [f.name for f in FORMATS.values() if f.is_scaled] == ["f8_e4m3fn", "f8_e5m2", "i8", "i4"]


def test_an_unknown_format_is_an_error_that_lists_names_it_takes():
    with pytest.raises(SearchSpaceError) as caught:
        parse_format("i7")
    start, _, names = str(caught.value).partition("; use one of ")
    assert start == "unknown format 'i7'"
    assert [parse_format(name).name for name in names.split(", ")] == list(FORMATS)


def test_the_door_loads_neither_jax_nor_numpy():
    code = "import sys, search_spaces; print(sorted({'jax', 'numpy', 'ml_dtypes'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
