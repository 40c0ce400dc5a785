"""Format: one number format, under the short name that jaxprs print."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from search_spaces.errors import SearchSpaceError


@dataclass(frozen=True, slots=True)
class Format:
    """One number format: how it is called, stored and how far it reaches."""

    # What the grammar prints: "bf16".
    name: str
    # numpy's or ml_dtypes' name of the dtype that holds it: "bfloat16". tf32 lives in float32.
    dtype: str
    # Bits that one number takes in memory.
    bits: int
    # "original" is the null format: whatever the user's program says.
    kind: Literal["float", "int", "original"]
    # Largest finite value; integers are symmetric, so i8 reaches from -127 to 127.
    max: float

    def __str__(self) -> str:
        return self.name

    @property
    def is_scaled(self) -> bool:
        """True for i8, i4 and f8: their values mean something only together with a scale."""
        return self.kind != "original" and self.bits <= 8


_ALL = (
    Format("f32", "float32", 32, "float", 3.4028234663852886e38),
    Format("bf16", "bfloat16", 16, "float", 3.3895313892515355e38),
    Format("f16", "float16", 16, "float", 65504.0),
    Format("tf32", "float32", 32, "float", 3.4011621342146535e38),
    Format("f8_e4m3fn", "float8_e4m3fn", 8, "float", 448.0),
    Format("f8_e5m2", "float8_e5m2", 8, "float", 57344.0),
    Format("i8", "int8", 8, "int", 127.0),
    Format("i4", "int4", 4, "int", 7.0),
    # Only sums are kept in i32: it is an accumulator and never an operand.
    Format("i32", "int32", 32, "int", 2147483647.0),
)

# Short name -> Format, widest floats first.
FORMATS: Mapping[str, Format] = MappingProxyType({format.name: format for format in _ALL})

# The format of all three fields of the precision `original`; no text parses to it.
ORIGINAL_FORMAT = Format("original", "", 0, "original", 0.0)

# Other spellings that are read, never printed.
FORMAT_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "float32": "f32",
        "fp32": "f32",
        "bfloat16": "bf16",
        "float16": "f16",
        "fp16": "f16",
        "tensorfloat32": "tf32",
        "float8_e4m3fn": "f8_e4m3fn",
        "float8_e5m2": "f8_e5m2",
        "int8": "i8",
        "int4": "i4",
        "int32": "i32",
    }
)


def find_format(text: str) -> Format | None:
    """The format that a short name or an alias means, None for an unknown one."""
    name = text.strip().lower()
    return FORMATS.get(FORMAT_ALIASES.get(name, name))


def parse_format(text: str) -> Format:
    """The format that a short name or an alias means.

    Raises:
        SearchSpaceError: no format has that name.
    """
    found = find_format(text)
    if found is None:
        raise SearchSpaceError(f"unknown format {text!r}; use one of {', '.join(FORMATS)}")
    return found
