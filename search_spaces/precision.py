"""Precision: formats and scaling of one layer, and the grammar in which people write it.

    precision   = "original" | alias | FORMAT | fields ["->" OUTPUT] ["@" option {"," option}]
    fields      = WEIGHTS "/" ACTIVATIONS "/" ACCUMULATE

`original` is the operation exactly as the user wrote it. The fields and options:

    WEIGHTS, ACTIVATIONS   f32 bf16 f16 tf32 f8_e4m3fn f8_e5m2 i8 i4: what each operand is held in. For a matmul of two
                           activations the first field is the left operand.
    ACCUMULATE             f32 bf16 f16 i32: what products are summed in.
    OUTPUT                 f32 bf16 f16: what the layer hands on; left out, the dtype the original operation had.
    option                 dynamic static         activation scale: at run time (default) or from calibration
                           max p99.9 mse          how calibration chooses that scale (default max)
                           channel tensor row g32 g64 g128
                                                  what shares one weight scale: each output channel its own (default), one
                                                  for all, each index of what is summed over its own, or each run of 32,
                                                  64 or 128 of these
                           sym asym               zero point at zero (default) or chosen: that of the activations where
                                                  they are integers, else that of the weights
                           bias                   first-order bias correction (default: none)

Aliases, read but never printed: `w8a8` = i8/i8/i32, `w8a16` = i8/bf16/f32, `w4a16` = i4/bf16/f32, `fp8` =
f8_e4m3fn/f8_e4m3fn/f32; one FORMAT alone is that format throughout: `bf16` = bf16/bf16/bf16, and where it cannot
accumulate, with the accumulator that belongs to it: `i8` = i8/i8/i32. Case and blanks do not matter.

Which combinations exist, so that each has one meaning and one spelling:
- Two integer operands accumulate in i32, and nothing else does.
- A float accumulator holds every value of both operands exactly: f32 any, f16 what fits f16, bf16 what fits bf16. (A
  narrower one would round away what the wider operand paid for; to hand on a narrow result, write `->bf16`.)
- Scaled formats (i8, i4, f8): scaled weights may stand alone (weight-only); scaled activations need scaled weights of
  the same kind, because no device multiplies otherwise.
- An option must have something to act on: weight scales need scaled weights, calibration scaled activations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, get_args

from search_spaces.combinations import (
    ACCUMULATORS,
    OPERANDS,
    OUTPUTS,
    Granularity,
    Observer,
    Scaling,
    check_combination,
    spell_fields,
)
from search_spaces.errors import SearchSpaceError
from search_spaces.formats import FORMATS, ORIGINAL_FORMAT, Format, find_format

ALIASES: Mapping[str, str] = MappingProxyType(
    {"w8a8": "i8/i8/i32", "w8a16": "i8/bf16/f32", "w4a16": "i4/bf16/f32", "fp8": "f8_e4m3fn/f8_e4m3fn/f32"}
)

# Each option -> the field it sets and the value it gives it, in the order in which they are printed.
_OPTIONS: Mapping[str, tuple[str, Any]] = MappingProxyType(
    {
        **{name: ("scaling", name) for name in get_args(Scaling)},
        **{name: ("observer", name) for name in get_args(Observer)},
        **{name: ("granularity", name) for name in get_args(Granularity)},
        "sym": ("symmetric", True),
        "asym": ("symmetric", False),
        "bias": ("bias_correction", True),
    }
)
OPTIONS = tuple(_OPTIONS)

_NOT_YET = "not available yet: "


@dataclass(frozen=True, kw_only=True, slots=True)
class Precision:
    """Formats and scaling of one layer: a value, checked when made; `str` prints its one spelling.

    Raises:
        SearchSpaceError: no operation can run in this combination; the module's documentation has the rules.
    """

    # What the weights (or the left operand) are held in.
    weights: Format
    # What the activations (or the right operand) are held in.
    activations: Format
    # What products are summed in.
    accumulate: Format
    # What the layer hands on; None: the dtype the original operation had.
    output: Format | None = None
    # Activation scale: at run time or from calibration.
    scaling: Scaling = "dynamic"
    # How calibration chooses the activation scale.
    observer: Observer = "max"
    # What shares one weight scale.
    granularity: Granularity = "channel"
    # False: integers get a zero point.
    symmetric: bool = True
    # First-order correction of the mean error that rounding the weights causes.
    bias_correction: bool = False

    def __post_init__(self) -> None:
        check_combination(self)

    @classmethod
    def parse(cls, text: str) -> "Precision":
        """The precision that a text in the grammar means.

        Raises:
            SearchSpaceError: the text is not in the grammar, or names a combination that cannot exist.
        """
        body, at, options = text.lower().partition("@")
        fields, arrow, output = body.partition("->")
        values: dict[str, Any] = _parse_fields(fields, text)
        if arrow:
            values["output"] = _parse_field(output, "output", OUTPUTS, text)
        if at:
            values |= _parse_options(options, text)
        return cls(**values)

    def __str__(self) -> str:
        if self.is_original:
            return ORIGINAL_FORMAT.name
        arrow = f"->{self.output}" if self.output is not None else ""
        options = [name for name, (field, value) in _OPTIONS.items() if getattr(self, field) == value]
        options = [name for name in options if name not in _DEFAULTS]
        return f"{spell_fields(self)}{arrow}{'@' if options else ''}{','.join(options)}"

    def __repr__(self) -> str:
        return f"Precision.parse({str(self)!r})"

    @property
    def is_original(self) -> bool:
        """True when the operation runs exactly as the user wrote it."""
        return self.weights == self.activations == self.accumulate == ORIGINAL_FORMAT

    @property
    def is_weight_only(self) -> bool:
        """True when weights are scaled and activations are not: the weights are widened before the multiplication."""
        return self.weights.is_scaled and not self.activations.is_scaled

    @property
    def is_calibrated(self) -> bool:
        """True when layers need numbers that are found on examples: static scales, bias correction."""
        return self.scaling == "static" or self.bias_correction

    @property
    def unavailable(self) -> str | None:
        """Why no layer can run in this precision with this version, None when it is built."""
        for format in (self.weights, self.activations):
            if format.name in _UNBUILT:
                return f"{_NOT_YET}{_UNBUILT[format.name]}"
        return None


_UNBUILT = {"tf32": "tf32 arrives with the accelerator kernels"}

# What is meant when nothing is written, and so never printed.
_DEFAULTS = frozenset({"dynamic", "max", "channel", "sym"})


def _parse_fields(fields: str, text: str) -> dict[str, Format]:
    """The three formats of "a/b/c", or of the one format that stands for all three."""
    parts = fields.split("/")
    if len(parts) == 1:
        return _parse_single(parts[0], text)
    if len(parts) != 3:
        raise SearchSpaceError(
            f"precision {text!r} has {len(parts)} fields; write WEIGHTS/ACTIVATIONS/ACCUMULATE, for example bf16/bf16/f32"
        )
    return {
        "weights": _parse_field(parts[0], "weights", OPERANDS, text),
        "activations": _parse_field(parts[1], "activations", OPERANDS, text),
        "accumulate": _parse_field(parts[2], "accumulate", ACCUMULATORS, text),
    }


def _parse_single(name: str, text: str) -> dict[str, Format]:
    """The formats of `original`, of an alias, or of one format used throughout."""
    name = name.strip()
    if name == ORIGINAL_FORMAT.name:
        return dict.fromkeys(("weights", "activations", "accumulate"), ORIGINAL_FORMAT)
    if name in ALIASES:
        return _parse_fields(ALIASES[name], text)
    format = find_format(name)
    if format is None or format.name not in OPERANDS:
        names = ", ".join((ORIGINAL_FORMAT.name, *ALIASES, *OPERANDS))
        raise SearchSpaceError(
            f"unknown precision {text!r}; use one of {names}, or write WEIGHTS/ACTIVATIONS/ACCUMULATE, "
            "for example bf16/bf16/f32"
        )
    own = format.name if format.name in ACCUMULATORS else ("i32" if format.kind == "int" else "f32")
    return {"weights": format, "activations": format, "accumulate": FORMATS[own]}


def _parse_field(name: str, field: str, allowed: tuple[str, ...], text: str) -> Format:
    format = find_format(name)
    if format is None or format.name not in allowed:
        problem = "unknown format" if format is None else "unusable format"
        raise SearchSpaceError(
            f"precision {text!r}: {problem} {name.strip()!r} for {field}; use one of {', '.join(allowed)}"
        )
    return format


def _parse_options(options: str, text: str) -> dict[str, Any]:
    """The fields that the part behind "@" sets; no field twice."""
    values: dict[str, Any] = {}
    writers: dict[str, str] = {}
    for name in (option.strip() for option in options.split(",")):
        if name not in _OPTIONS:
            raise SearchSpaceError(f"precision {text!r}: unknown option {name!r}; use one of {', '.join(OPTIONS)}")
        field, value = _OPTIONS[name]
        if field in writers:
            raise SearchSpaceError(
                f"precision {text!r}: {writers[field]!r} and {name!r} cannot both be given; keep one"
            )
        values[field], writers[field] = value, name
    return values


# The operation exactly as the user wrote it; always allowed.
ORIGINAL = Precision(weights=ORIGINAL_FORMAT, activations=ORIGINAL_FORMAT, accumulate=ORIGINAL_FORMAT)
