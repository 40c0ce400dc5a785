"""Which options of scaling a layer can take: groups, rows, zero points, calibrated scales, bias correction."""

from search_spaces import Precision
from tuner.program.kernels.stored import group_size
from tuner.program.layer import CONV, DOT, EMBEDDING, INPUT, Layer


def scaling_reason(layer: Layer, precision: Precision) -> str | None:
    """Why a layer with operations cannot be scaled as the precision says, None when it can."""
    if layer.kind == DOT:
        return _reason_of_two(precision)
    if layer.kind == EMBEDDING and precision.granularity == "row":
        return "each row of a table has a scale of its own already; leave row out"
    if layer.kind == EMBEDDING and precision.bias_correction:
        return "a look-up sums nothing, so no rounding error adds up; leave bias out"
    inside = group_size(precision) is not None or precision.granularity == "row"
    if inside and layer.kind != EMBEDDING and precision.activations.is_scaled:
        if layer.kind == CONV or precision.granularity == "row":
            return (
                f"a scale that changes within a sum needs activations in floats; write {precision.weights}/f32/f32"
                f"@{precision.granularity}, or leave {precision.granularity} out"
            )
        if not precision.symmetric:
            return f"{precision.granularity} and asym do not go together with {precision.activations} activations; leave one out"
    return _group_reason(layer, precision)


def needs_numbers(kind: str, precision: Precision) -> bool:
    """True when a layer of that kind cannot run in the precision without calibrated numbers."""
    return precision.is_calibrated and kind not in (EMBEDDING, INPUT)


def has_zero_point(precision: Precision) -> bool:
    """True when activations are integers around a zero point."""
    return not precision.symmetric and precision.activations.kind == "int"


def _reason_of_two(precision: Precision) -> str | None:
    if precision.is_weight_only or precision.weights.kind != precision.activations.kind:
        return "a product of two activations needs both operands in floats or both in integers"
    options = {
        precision.granularity: precision.granularity != "channel",
        "asym": not precision.symmetric,
        "bias": precision.bias_correction,
        "static": precision.scaling == "static",
    }
    for name, given in options.items():
        if given:
            return f"a product of two activations has no weight, and scales of its own at run time; leave {name} out"
    return None


def _group_reason(layer: Layer, precision: Precision) -> str | None:
    group = group_size(precision)
    if group is None or not layer.summed or layer.summed % group == 0:
        return None
    return f"groups of {group} do not divide the {layer.summed} numbers that it sums; leave {precision.granularity} out"
