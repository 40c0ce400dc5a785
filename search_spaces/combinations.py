"""Which combinations of formats and options one operation can run in, and the words they are made of."""

from typing import TYPE_CHECKING, Literal, get_args

from search_spaces.errors import SearchSpaceError
from search_spaces.formats import ORIGINAL_FORMAT

if TYPE_CHECKING:  # precision.py checks itself with this module
    from search_spaces.precision import Precision

Scaling = Literal["dynamic", "static"]
Observer = Literal["max", "p99.9", "mse"]
Granularity = Literal["channel", "tensor", "row", "g32", "g64", "g128"]

OPERANDS = ("f32", "bf16", "f16", "tf32", "f8_e4m3fn", "f8_e5m2", "i8", "i4")
ACCUMULATORS = ("f32", "bf16", "f16", "i32")
OUTPUTS = ("f32", "bf16", "f16")

# Accumulator -> the float and scaled operands whose every value it holds exactly.
_HOLDS = {
    "f32": frozenset(OPERANDS),
    "bf16": frozenset({"bf16", "f8_e4m3fn", "f8_e5m2", "i8", "i4"}),
    "f16": frozenset({"f16", "f8_e4m3fn", "f8_e5m2", "i8", "i4"}),
}


def check_combination(precision: "Precision") -> None:
    """Returns when some operation can run in the precision; precision.py documents the rules.

    Raises:
        SearchSpaceError: it names the field, the value and what to write instead.
    """
    _check_values(precision)
    if not precision.is_original:
        _check_formats(precision)
    _check_options(precision)


def spell_fields(precision: "Precision") -> str:
    """The first three fields as the grammar prints them."""
    return f"{precision.weights}/{precision.activations}/{precision.accumulate}"


def _check_values(precision: "Precision") -> None:
    """Raises unless every field holds one of the values that its type allows."""
    fields = {
        "weights": OPERANDS,
        "activations": OPERANDS,
        "accumulate": ACCUMULATORS,
        "output": OUTPUTS,
    }
    for field, allowed in fields.items():
        format = getattr(precision, field)
        if format is None or (precision.is_original and field != "output"):
            continue
        if format.name not in allowed:
            raise SearchSpaceError(
                f"precision {spell_fields(precision)}: {format.name!r} cannot be the format for {field}; "
                f"use one of {', '.join(allowed)}"
            )
    for field, values in (
        ("scaling", get_args(Scaling)),
        ("observer", get_args(Observer)),
        ("granularity", get_args(Granularity)),
    ):
        if getattr(precision, field) not in values:
            raise SearchSpaceError(
                f"precision {spell_fields(precision)}: unknown {field} {getattr(precision, field)!r}; "
                f"use one of {', '.join(values)}"
            )


def _check_formats(precision: "Precision") -> None:
    """Raises unless the three formats can meet in one operation."""
    weights, activations, accumulate = precision.weights, precision.activations, precision.accumulate
    start = f"precision {spell_fields(precision)}: "
    if activations.is_scaled and not (weights.is_scaled and weights.kind == activations.kind):
        raise SearchSpaceError(
            f"{start}{activations} activations need weights of the same kind; "
            f"write {activations} for the weights too, or activations in f32, bf16 or f16"
        )
    both_integer = weights.kind == activations.kind == "int"
    if both_integer and accumulate.name != "i32":
        raise SearchSpaceError(f"{start}two integer operands accumulate in i32, not {accumulate}; write i32")
    if accumulate.name == "i32" and not both_integer:
        raise SearchSpaceError(f"{start}i32 accumulates integer operands only; write f32, or i8 for both operands")
    if both_integer:
        return
    for format in (weights, activations):
        if format.name not in _HOLDS[accumulate.name]:
            raise SearchSpaceError(
                f"{start}{accumulate} cannot hold every {format} value; accumulate in f32"
                f" and write ->{accumulate} for a {accumulate} result"
            )


def _check_options(precision: "Precision") -> None:
    """Raises unless every option that differs from its default has something to act on."""
    weights, activations = precision.weights, precision.activations
    integers = "int" in (weights.kind, activations.kind)
    static = precision.scaling == "static"
    checks = (
        (precision.output is not None, not precision.is_original, f"->{precision.output}", "formats before it"),
        (static, activations.is_scaled, "static", "scaled activations (i8, i4 or f8)"),
        (precision.observer != "max", static, precision.observer, "the option static beside it"),
        (precision.granularity != "channel", weights.is_scaled, precision.granularity, "scaled weights (i8, i4 or f8)"),
        (not precision.symmetric, integers, "asym", "integer weights or activations (i8 or i4)"),
        (precision.bias_correction, weights.is_scaled, "bias", "scaled weights (i8, i4 or f8)"),
    )
    for used, possible, name, need in checks:
        if used and not possible:
            fields = ORIGINAL_FORMAT.name if precision.is_original else spell_fields(precision)
            raise SearchSpaceError(f"precision {fields}: {name} needs {need}; add that or leave {name} out")
